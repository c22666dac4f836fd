"""One group of appends as one transaction: what makes it fast, and what makes it safe.

All is tried at once, in bulk, with the checks inside the statements. If one of them does not hold, the whole is
rolled back and tried again with every append judged by itself first; so the usual case pays nothing for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

from penstock.adapters.sqlite.rows import EVENT, RUN, RUNS_PER_SPAN, chunks, marks
from penstock.adapters.store_rules import attributes_of, refusal
from penstock.errors import Fenced, RevisionConflict, StoreError
from penstock.model.chain import link, prefix
from penstock.ports.store import Append, Appended, Row

RUN_WIDTH = RUN.count(",") + 1
EVENTS_AT_ONCE = 100
RUNS_AT_ONCE = 50
NONE = b"{}"

HEADS = (
    "SELECT coalesce((SELECT max(position) FROM events), 0),"
    " coalesce((SELECT max(run) FROM runs), 0), coalesce((SELECT token FROM owner), 0)"
)
_CHANGE = (
    "version=?, status=?, revision=?, updated_at=?, priority=?, paused=?, next_due=?, deadline=?,"
    " ended_at=?, hash=?, position=?"
)
# These leave alone what stands in an index of open runs and in the table of attributes. Where that would be
# wrong they find no row, as with another revision or another head, and the append is judged by itself.
_SAME = " WHERE run=? AND revision=? AND hash=? AND attributes=? AND open=1"
STAY_OPEN = f"UPDATE runs SET {_CHANGE}{_SAME}"
CLOSE = f"UPDATE runs SET open=0, {_CHANGE}{_SAME}"
CHANGE = f"UPDATE runs SET {_CHANGE}, open=?, attributes=? WHERE run=?"
WIDEN = (
    "INSERT INTO spans (span, oldest, newest) VALUES (?,?,?) ON CONFLICT (span) DO UPDATE"
    " SET oldest = min(oldest, excluded.oldest), newest = max(newest, excluded.newest)"
)
ADD_ATTRIBUTE = "INSERT INTO attributes (name, value, run) VALUES (?,?,?)"
DROP_ATTRIBUTE = "DELETE FROM attributes WHERE name=? AND value=? AND run=?"


class Judge(Exception):
    """Not all of the group holds at once: roll back, and judge each append by itself."""


class Prepared:
    """An append with its hashes, ready for any number of tries."""

    __slots__ = ("append", "attributes", "hashes", "problem")

    def __init__(self, append: Append) -> None:
        self.append = append
        self.attributes: dict[str, str] | None = None
        """By name, where they are needed: of a new run."""
        self.hashes: list[bytes] = []
        self.problem: Exception | None = None
        row = append.row
        if reason := refusal(append):
            self.problem = StoreError(f"the append to run {row.id} makes no sense: {reason}")
            return
        try:
            if row.key == 0 and row.attributes != NONE:
                self.attributes = attributes_of(row.attributes)
            head, start = append.previous, prefix(row.id, row.generation)
            for seq, payload in enumerate(append.payloads, append.expected + 1):
                head = link(head, start, seq, payload)
                self.hashes.append(head)
        except (TypeError, ValueError) as error:
            self.problem = _unfit(row, error)


def write(
    db: sqlite3.Connection, group: Sequence[Prepared], *, judging: bool
) -> list[Appended | Exception]:
    """Inside a transaction: write all that may be written, and say of each what became of it.

    Raises Judge, for the transaction to be rolled back, where not all hold at once; with `judging` the
    guilty are found first and only they are refused.
    """
    position, newest, token = db.execute(HEADS).fetchone()
    refused = [p.problem or _fenced(p.append, token) for p in group]
    if judging:
        _judge(db, group, refused)
    outcomes: list[Appended | Exception] = []
    events: list[Any] = []
    starts: list[Any] = []
    stays: list[tuple[Any, ...]] = []
    closes: list[tuple[Any, ...]] = []
    changes: list[tuple[Any, ...]] = []
    attributes: list[tuple[str, str, int]] = []
    for prepared, problem in zip(group, refused, strict=True):
        if problem is not None:
            outcomes.append(problem)
            continue
        append, row, seq = prepared.append, prepared.append.row, prepared.append.expected
        key = row.key
        if key == 0:
            newest += 1
            key = newest
        hash = b""
        for payload, hash in zip(append.payloads, prepared.hashes, strict=True):
            position += 1
            seq += 1
            events += (position, key, seq, payload, hash)
        outcomes.append(Appended(key, position, hash))
        if row.key == 0:
            starts += _start(row, key, hash, position)
            if prepared.attributes:
                attributes += [(n, v, key) for n, v in prepared.attributes.items()]
        elif judging:
            changes.append((*_change(row, hash, position), row.open, row.attributes, key))
        else:
            same = (key, append.expected, append.previous, row.attributes)
            (stays if row.open else closes).append((*_change(row, hash, position), *same))
    try:
        if stays and db.executemany(STAY_OPEN, stays).rowcount != len(stays):
            raise Judge
        if closes and db.executemany(CLOSE, closes).rowcount != len(closes):
            raise Judge
        if changes:
            db.executemany(CHANGE, changes)
        if starts:
            _insert(db, "runs", RUN, starts, RUNS_AT_ONCE)
            db.executemany(WIDEN, _spans(starts))
        if attributes:
            db.executemany(ADD_ATTRIBUTE, attributes)
        _insert(db, "events", EVENT, events, EVENTS_AT_ONCE)
    except (sqlite3.IntegrityError, *UNFIT) as error:
        raise Judge(str(error)) from error
    return outcomes


UNFIT = (
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    OverflowError,
)
"""What SQLite's driver raises for a value that it cannot take."""


def _unfit(row: Row, error: Exception) -> StoreError:
    problem = StoreError(f"run {row.id!a} has a value that cannot be stored: {error}")
    problem.__cause__ = error
    return problem


def _fenced(append: Append, newest: int) -> Exception | None:
    if append.token is None or append.token >= newest:
        return None
    return Fenced(token=append.token, newest=newest)


def _judge(
    db: sqlite3.Connection, group: Sequence[Prepared], refused: list[Exception | None]
) -> None:
    """Fill in who is refused, in the order of the group; bring the attributes of the others up to date.

    Under the write lock: what is read here is what the writing meets.
    """
    keys = [p.append.row.key for p in group if p.append.row.key]
    known: dict[int, tuple[int, bytes, bytes]] = {}
    for part in chunks(keys):
        found = db.execute(
            f"SELECT run, revision, hash, attributes FROM runs WHERE run IN ({marks(part)})", part
        )
        known.update((run, (revision, hash, text)) for run, revision, hash, text in found)
    begun: dict[tuple[str, int], int] = {}
    for index, prepared in enumerate(group):
        if refused[index] is not None:
            continue
        append, row = prepared.append, prepared.append.row
        try:
            values = (*_start(row, row.key, append.previous, 0), append.expected, *append.payloads)
            for part in chunks(values):
                db.execute(f"SELECT {marks(part)}", part)
            wanted = attributes_of(row.attributes)
            taken = _taken(db, row) if row.key == 0 else None
        except UNFIT as error:
            refused[index] = _unfit(row, error)
            continue
        if row.key == 0:
            actual = begun.get((row.id, row.generation))
            if taken is not None:
                actual = known[taken[0]][0] if taken[0] in known else taken[1]
            if actual is None:
                begun[row.id, row.generation] = row.revision
            else:
                refused[index] = RevisionConflict(row.id, expected=0, actual=actual)
            continue
        revision, head, text = known.get(row.key, (None, b"", NONE))
        if revision != append.expected or head != append.previous:
            actual = None if revision == append.expected else revision
            refused[index] = RevisionConflict(row.id, expected=append.expected, actual=actual)
            continue
        known[row.key] = (row.revision, prepared.hashes[-1], row.attributes)
        if text != row.attributes:
            before = attributes_of(text)
            drops = [(n, v, row.key) for n, v in (before.items() - wanted.items())]
            adds = [(n, v, row.key) for n, v in (wanted.items() - before.items())]
            db.executemany(DROP_ATTRIBUTE, drops)
            db.executemany(ADD_ATTRIBUTE, adds)


def _taken(db: sqlite3.Connection, row: Row) -> tuple[int, int] | None:
    """Key and revision of the run that has this id and generation."""
    text = "SELECT run, revision FROM runs WHERE id=? AND generation=?"
    return db.execute(text, (row.id, row.generation)).fetchone()


def _spans(starts: list[Any]) -> list[tuple[int, float, float]]:
    """By span the oldest and newest of some new runs, given as `_insert` takes them."""
    times: dict[int, list[float]] = {}
    for created_at, key in zip(starts[6::RUN_WIDTH], starts[18::RUN_WIDTH], strict=True):
        times.setdefault(key // RUNS_PER_SPAN, []).append(created_at)
    return [(span, min(created), max(created)) for span, created in times.items()]


def _start(row: Row, key: int, hash: bytes, position: int) -> tuple[Any, ...]:
    return (
        row.id, row.generation, row.definition, row.version, row.status, row.revision,
        row.created_at, row.updated_at, row.priority, row.paused, row.open, row.next_due,
        row.deadline, row.ended_at, row.created_by, row.parent, row.attributes, hash, key, position,
    )  # fmt: skip


def _change(row: Row, hash: bytes, position: int) -> tuple[Any, ...]:
    return (
        row.version, row.status, row.revision, row.updated_at, row.priority, row.paused,
        row.next_due, row.deadline, row.ended_at, hash, position,
    )  # fmt: skip


@cache
def _values(table: str, columns: str, count: int) -> str:
    # OR FAIL: whoever gets the error rolls back everything, so SQLite need not prepare to undo less.
    row = f"({','.join('?' * (columns.count(',') + 1))})"
    return f"INSERT OR FAIL INTO {table} ({columns}) VALUES {','.join([row] * count)}"


def _insert(
    db: sqlite3.Connection, table: str, columns: str, values: list[Any], at_once: int
) -> None:
    """Rows given as one flat list, many a statement: each statement takes the interpreter's lock anew."""
    width = columns.count(",") + 1
    for begin in range(0, len(values), at_once * width):
        part = values[begin : begin + at_once * width]
        db.execute(_values(table, columns, len(part) // width), part)


def look(db: sqlite3.Connection, group: Sequence[Prepared]) -> list[Appended | Exception] | None:
    """What became of a group whose COMMIT gave no good answer: outcomes if it is there, None if not."""
    outcomes: list[Appended | Exception] = []
    found = False
    for prepared in group:
        row = prepared.append.row
        if prepared.problem is not None:
            outcomes.append(prepared.problem)
            continue
        event = db.execute(
            "SELECT e.run, e.position, e.hash FROM runs r JOIN events e ON e.run = r.run AND e.seq = ?"
            " WHERE r.id = ? AND r.generation = ?",
            (row.revision, row.id, row.generation),
        ).fetchone()
        if event is not None and event[2] == prepared.hashes[-1]:
            outcomes.append(Appended(*event))
            found = True
        else:
            outcomes.append(RevisionConflict(row.id, expected=prepared.append.expected))
    return outcomes if found else None
