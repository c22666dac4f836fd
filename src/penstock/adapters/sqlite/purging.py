"""Deleting runs: their rows in one go, their events and blobs a few at a time (SPEC 6.3); erasing payloads.

SQLite gives freed pages to what is written next, so that with retention the file stays as large as it was; nothing
is moved about to make it smaller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from penstock.adapters.sqlite.appending import DROP_ATTRIBUTE, NONE
from penstock.adapters.sqlite.rows import RUNS_PER_SPAN, chunks, marks
from penstock.adapters.store_rules import attributes_of, check_erasure
from penstock.errors import Fenced
from penstock.ports.store import Purged, RunKey

DOOMED = "SELECT run, attributes FROM runs WHERE run IN (@) AND open=0 AND run<(SELECT max(run) FROM runs)"
EVENTS = (
    "DELETE FROM events WHERE position IN (SELECT position FROM leftovers CROSS JOIN events"
    " INDEXED BY events_of_run ON events.run=leftovers.run"
    " WHERE position<(SELECT max(position) FROM events) LIMIT ?)"
)
BLOBS = (
    "DELETE FROM blobs WHERE rowid IN (SELECT blobs.rowid FROM leftovers CROSS JOIN blobs"
    " ON blobs.run=leftovers.run LIMIT ?)"
)
DONE = (
    "DELETE FROM leftovers WHERE NOT EXISTS (SELECT 1 FROM events WHERE events.run=leftovers.run)"
    " AND NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.run=leftovers.run)"
)
SPANS = f"DELETE FROM spans WHERE span<(SELECT min(run)/{RUNS_PER_SPAN} FROM runs)"
BLOBS_AT_ONCE = 4
"""Each may have 64 MiB."""


def purge(
    db: sqlite3.Connection, keys: Sequence[RunKey], *, token: int | None, limit: int
) -> Purged:
    """Inside a transaction."""
    (newest,) = db.execute("SELECT coalesce((SELECT token FROM owner), 0)").fetchone()
    if token is not None and token < newest:
        raise Fenced(token=token, newest=newest)
    runs = 0
    for part in chunks(keys):
        found = db.execute(DOOMED.replace("@", marks(part)), part).fetchall()
        doomed = [run for run, _ in found]
        db.executemany(
            DROP_ATTRIBUTE,
            [
                (name, value, run)
                for run, text in found
                if text != NONE
                for name, value in attributes_of(text).items()
            ],
        )
        db.executemany("INSERT INTO leftovers (run) VALUES (?)", [(run,) for run in doomed])
        for table in ("snapshots", "runs"):
            db.execute(f"DELETE FROM {table} WHERE run IN ({marks(doomed)})", doomed)
        runs += len(doomed)
    if runs:
        db.execute(SPANS)
    events = db.execute(EVENTS, (limit,)).rowcount
    blobs = db.execute(BLOBS, (BLOBS_AT_ONCE,)).rowcount
    db.execute(DONE)
    (left,) = db.execute("SELECT EXISTS (SELECT 1 FROM leftovers)").fetchone()
    return Purged(runs, events, bool(left), blobs)


def erase(
    db: sqlite3.Connection,
    key: RunKey,
    payloads: Mapping[int, bytes],
    *,
    blobs: Sequence[bytes],
    attributes: bool,
) -> None:
    """Inside a transaction. What is deleted is overwritten with zeros."""
    row = db.execute("SELECT open, attributes FROM runs WHERE run=?", (key,)).fetchone()
    before: dict[int, bytes] = {}
    for part in chunks(list(payloads)):
        text = f"SELECT seq, payload FROM events WHERE run=? AND seq IN ({marks(part)})"
        before.update(db.execute(text, (key, *part)))
    is_open, kept = (None, NONE) if row is None else row
    check_erasure(None if is_open is None else bool(is_open), before, payloads)
    db.execute("PRAGMA secure_delete=ON")
    try:
        db.executemany(
            "UPDATE events SET payload=? WHERE run=? AND seq=?",
            [(payload, key, seq) for seq, payload in payloads.items()],
        )
        db.execute("DELETE FROM snapshots WHERE run=?", (key,))
        db.executemany(
            "DELETE FROM blobs WHERE run=? AND digest=?", [(key, digest) for digest in blobs]
        )
        if attributes and kept != NONE:
            named = [(name, value, key) for name, value in attributes_of(kept).items()]
            db.executemany(DROP_ATTRIBUTE, named)
            db.execute("UPDATE runs SET attributes=? WHERE run=?", (NONE, key))
    finally:
        db.execute("PRAGMA secure_delete=OFF")
