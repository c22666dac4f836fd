"""Records: small named documents, written by compare-and-set, each by itself and all in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from penstock.adapters.store_rules import written
from penstock.errors import RevisionConflict, StoreError
from penstock.ports.store import Record

RECORD = "kind, id, value, revision, due, expires"
ONE = f"SELECT {RECORD} FROM records WHERE kind=? AND id=?"
BY_ID = f"SELECT {RECORD} FROM records WHERE kind=? AND id>? ORDER BY id LIMIT ?"
BY_DUE = f"SELECT {RECORD} FROM records WHERE kind=? AND due<=? ORDER BY due, id LIMIT ?"
KEEP = f"INSERT OR REPLACE INTO records ({RECORD}) VALUES (?,?,?,?,?,?)"
DROP = "DELETE FROM records WHERE kind=? AND id=?"
EXPIRE = (
    "DELETE FROM records WHERE rowid IN"
    " (SELECT rowid FROM records WHERE expires<=? ORDER BY expires, kind, id LIMIT ?)"
)


def record_of(columns: tuple[Any, ...]) -> Record:
    return Record(*columns)


def write(db: sqlite3.Connection, records: Sequence[Record]) -> list[Record | RevisionConflict]:
    """Inside a transaction: what became of each."""
    outcomes: list[Record | RevisionConflict] = []
    for wanted in records:
        try:
            columns = db.execute(ONE, (wanted.kind, wanted.id)).fetchone()
            outcome = written(None if columns is None else record_of(columns), wanted)
            if isinstance(outcome, Record):
                db.execute(KEEP, _columns(outcome))
        except (sqlite3.DataError, sqlite3.ProgrammingError, ValueError, OverflowError) as error:
            name = f"{wanted.kind} {wanted.id!a}"
            raise StoreError(f"{name} has a value that cannot be stored: {error}") from error
        outcomes.append(outcome)
    return outcomes


def are_there(db: sqlite3.Connection, outcomes: Sequence[Record | RevisionConflict]) -> bool:
    """Whether the outcomes of `write` came true though COMMIT gave no good answer: all or none did."""
    newest = {(o.kind, o.id): o for o in outcomes if isinstance(o, Record)}
    return all(db.execute(ONE, key).fetchone() == _columns(o) for key, o in newest.items())


def drop(db: sqlite3.Connection, kind: str, ids: Sequence[str]) -> None:
    db.executemany(DROP, [(kind, id) for id in ids])


def _columns(record: Record) -> tuple[Any, ...]:
    return record.kind, record.id, record.value, record.revision, record.due, record.expires
