"""One group of appends as one transaction: what makes it fast, and what makes it safe.

All is tried at once, in bulk, with the checks inside the statements. If one of them does not hold, the whole is
rolled back and tried again with every append judged by itself first; so the usual case pays nothing for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

from penstock.adapters.groups import NONE, Group, Known, judge, unfit
from penstock.adapters.sqlite.rows import EVENT, RUN, RUNS_PER_SPAN, chunks, marks
from penstock.errors import Fenced
from penstock.ports.store import Appended, Row

RUN_WIDTH = RUN.count(",") + 1
ROWS_AT_ONCE = (64, 16, 4, 1)
"""Few sizes, so that few statements stay prepared; from 16 on larger ones gain nothing (measured)."""
# Python's driver looks for an adapter for every `bytes`, `None` and `bool` that it binds, which takes longer than
# all the rest (0.8, 0.3 and 0.4 µs; measured). It takes a bytearray, a float and an int as they are, and
# SQLite has no NaN: it stores NULL.
NULL = float("nan")
blob = bytearray

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
_SAME = "WHERE run=? AND revision=? AND hash=? AND open=1"
STAY_OPEN = f"UPDATE runs SET {_CHANGE} {_SAME} AND attributes=x'7b7d'"
STAY_OPEN_WITH = f"UPDATE runs SET {_CHANGE} {_SAME} AND attributes=?"
CLOSE = STAY_OPEN.replace("SET ", "SET open=0, ")
CLOSE_WITH = STAY_OPEN_WITH.replace("SET ", "SET open=0, ")
CHANGE = f"UPDATE runs SET {_CHANGE}, open=?, attributes=? WHERE run=?"
UPDATES = (STAY_OPEN, STAY_OPEN_WITH, CLOSE, CLOSE_WITH, CHANGE)
"""In the order in which a group may hold several for one run."""
WIDEN = (
    "INSERT INTO spans (span, oldest, newest) VALUES (?,?,?) ON CONFLICT (span) DO UPDATE"
    " SET oldest = min(oldest, excluded.oldest), newest = max(newest, excluded.newest)"
)
ADD_BLOB = "INSERT OR IGNORE INTO blobs (run, digest, bytes) VALUES (?,?,?)"
ADD_ATTRIBUTE = "INSERT INTO attributes (name, value, run) VALUES (?,?,?)"
TAKEN = "SELECT run, revision FROM runs WHERE id=? AND generation=?"
"""The run that has this id and generation."""
DROP_ATTRIBUTE = "DELETE FROM attributes WHERE name=? AND value=? AND run=?"


class Judge(Exception):
    """Not all of the group holds at once: roll back, and judge each append by itself."""


def write(db: sqlite3.Connection, group: Group, *, judging: bool) -> list[Appended | Exception]:
    """Inside a transaction: write all that may be written, and say of each what became of it.

    Raises Judge, for the transaction to be rolled back, where not all hold at once; with `judging` the
    guilty are found first and only they are refused.
    """
    position, newest, token = db.execute(HEADS).fetchone()
    refused = dict(group.problems)
    if judging:
        _judge(db, group, token, refused)
    outcomes: list[Appended | Exception] = []
    events: list[Any] = []
    starts: list[Any] = []
    updates: dict[str, list[tuple[Any, ...]]] = {s: [] for s in UPDATES}
    attributes: list[tuple[str, str, int]] = []
    blobs: list[tuple[int, bytes, bytes]] = []
    place = -1
    for append in group.appends:
        place += 1
        if append.token is not None and append.token < token:
            refused.setdefault(place, Fenced(token=append.token, newest=token))
        if refused and place in refused:
            if not judging and place in group.partners:
                raise Judge  # its partner may be among those that are to be written
            outcomes.append(refused[place])
            continue
        row, seq, hash = append.row, append.expected, b""
        key = row.key
        if key == 0:
            newest += 1
            key = newest
        for payload, hash in zip(append.payloads, group.hashes[place], strict=True):
            position += 1
            seq += 1
            events += (position, key, seq, blob(payload), blob(hash))
        if append.blobs:
            blobs += [(key, digest, stored) for digest, stored in append.blobs.items()]
        outcomes.append(Appended(key, position, hash))
        if row.key == 0:
            starts += _start(row, key, hash, position)
            if place in group.attributes:
                attributes += [(n, v, key) for n, v in group.attributes[place].items()]
            continue
        values = _change(row, hash, position)
        if judging:
            updates[CHANGE].append((*values, +row.open, row.attributes, key))
        elif row.attributes == NONE:
            values += (key, append.expected, blob(append.previous))
            updates[STAY_OPEN if row.open else CLOSE].append(values)
        else:
            values += (key, append.expected, blob(append.previous), row.attributes)
            updates[STAY_OPEN_WITH if row.open else CLOSE_WITH].append(values)
    try:
        for statement, rows in updates.items():
            if rows and db.executemany(statement, rows).rowcount != len(rows):
                raise Judge
        if starts:
            _insert(db, "runs", RUN, starts)
            db.executemany(WIDEN, _spans(starts))
        if attributes:
            db.executemany(ADD_ATTRIBUTE, attributes)
        if blobs:
            db.executemany(ADD_BLOB, blobs)
        _insert(db, "events", EVENT, events)
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


def _judge(db: sqlite3.Connection, group: Group, token: int, refused: dict[int, Exception]) -> None:
    """Fill in who is refused; bring the attributes of the others up to date.

    Under the write lock: what is read here is what the writing meets.
    """
    known: dict[int, Known] = {}
    keys = [append.row.key for append in group.appends if append.row.key]
    for part in chunks(keys):
        text = (
            "SELECT run, revision, hash, attributes,"
            " coalesce((SELECT max(seq) FROM events e WHERE e.run = r.run), 0)"
            f" FROM runs r WHERE run IN ({marks(part)})"
        )
        known.update((run, Known(*rest)) for run, *rest in db.execute(text, part))
    taken: dict[tuple[str, int], tuple[int, int]] = {}
    for place, append in enumerate(group.appends):
        row = append.row
        if place in refused:
            continue
        try:
            values = (*_start(row, row.key, append.previous, 0), append.expected, *append.payloads)
            for part in chunks(values):
                db.execute(f"SELECT {marks(part)}", part)
            if row.key == 0 and (found := db.execute(TAKEN, (row.id, row.generation)).fetchone()):
                taken[row.id, row.generation] = found
        except UNFIT as error:
            refused[place] = unfit(row, error)
    for change in judge(group, token=token, known=known, taken=taken, refused=refused):
        db.executemany(DROP_ATTRIBUTE, [(n, v, change.key) for n, v in change.drops])
        db.executemany(ADD_ATTRIBUTE, [(n, v, change.key) for n, v in change.adds])


def _spans(starts: list[Any]) -> list[tuple[int, float, float]]:
    """By span the oldest and newest of some new runs, given as `_insert` takes them."""
    times: dict[int, list[float]] = {}
    for created_at, key in zip(starts[6::RUN_WIDTH], starts[18::RUN_WIDTH], strict=True):
        times.setdefault(key // RUNS_PER_SPAN, []).append(created_at)
    return [(span, min(created), max(created)) for span, created in times.items()]


def _start(row: Row, key: int, hash: bytes, position: int) -> tuple[Any, ...]:
    due, deadline, ended, by, parent = (
        row.next_due, row.deadline, row.ended_at, row.created_by, row.parent
    )  # fmt: skip
    return (
        row.id, row.generation, row.definition, row.version, row.status, row.revision,
        row.created_at, row.updated_at, row.priority, +row.paused, +row.open,
        NULL if due is None else due, NULL if deadline is None else deadline,
        NULL if ended is None else ended, NULL if by is None else by,
        NULL if parent is None else parent, blob(row.attributes), blob(hash), key, position,
    )  # fmt: skip


def _change(row: Row, hash: bytes, position: int) -> tuple[Any, ...]:
    due, deadline, ended = row.next_due, row.deadline, row.ended_at
    return (
        row.version, row.status, row.revision, row.updated_at, row.priority, +row.paused,
        NULL if due is None else due, NULL if deadline is None else deadline,
        NULL if ended is None else ended, blob(hash), position,
    )  # fmt: skip


@cache
def _values(table: str, columns: str, count: int) -> str:
    # OR FAIL: whoever gets the error rolls back everything, so SQLite need not prepare to undo less.
    row = f"({','.join('?' * (columns.count(',') + 1))})"
    return f"INSERT OR FAIL INTO {table} ({columns}) VALUES {','.join([row] * count)}"


def _insert(db: sqlite3.Connection, table: str, columns: str, values: list[Any]) -> None:
    """Rows given as one flat list, many a statement: each statement takes the interpreter's lock anew."""
    width, begin = columns.count(",") + 1, 0
    for rows in ROWS_AT_ONCE:
        while len(values) - begin >= rows * width:
            db.execute(_values(table, columns, rows), values[begin : begin + rows * width])
            begin += rows * width


def is_there(db: sqlite3.Connection, outcomes: Sequence[Appended | Exception]) -> bool:
    """Whether the outcomes of `write` came true though COMMIT gave no good answer.

    All or none did. The place in the log tells ours from equal events that somebody else wrote.
    """
    done = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
    text = "SELECT run, position, hash FROM events WHERE position=?"
    return all(
        db.execute(text, (o.position,)).fetchone() == (o.key, o.position, o.hash) for o in done
    )
