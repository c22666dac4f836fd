"""One group of appends as one statement, which is one transaction: the function `append_1` of the schema.

All is tried at once. If not all of it holds, nothing is written, and it is tried again with every append judged by
itself first, under the same lock; so the usual case pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.adapters.groups import NONE, Group, Known, judge, unfit
from penstock.adapters.postgres.database import SPACE, Connection
from penstock.adapters.store_rules import attributes_of
from penstock.errors import StoreError
from penstock.ports.store import Append, Appended, Row

INT_MAX = 2**31 - 1
STARTS, CHANGES, EVENTS = 19, 16, 4
WRITE = f"SELECT first_position, first_run FROM append_1({','.join(f'${n}' for n in range(1, 8 + STARTS + CHANGES + EVENTS))})"
LOCK = f"SELECT pg_advisory_xact_lock({SPACE}, hashtext(current_schema()))"
JUDGED = ("PSJ01", "23505")
"""Codes that say: not all of the group holds at once."""


class Hope(Struct, frozen=True):
    """What becomes of an append once its group is written."""

    key: int
    """Negative: the n-th new run."""
    ahead: int
    """Of its last event, counted from the position before the group."""
    hash: bytes


class Batch:
    """A group, without those that are refused, as the arrays that the function takes."""

    def __init__(
        self, group: Group, refused: dict[int, Exception], *, judged: bool = False
    ) -> None:
        self._judged = judged
        self.outcomes: list[Hope | Exception] = []
        self.new = 0
        self.token: int | None = None
        self._starts: list[tuple[Any, ...]] = []
        self._changes: dict[int, tuple[Any, ...]] = {}
        self._changed = 0
        self._attributes: list[tuple[int, str, str]] = []
        self._events: list[list[Any]] = [[], [], [], []]
        self.hints: list[str] = []
        for place, append in enumerate(group.appends):
            if place in refused:
                self.outcomes.append(refused[place])
                continue
            self._add(append, group.hashes[place], group.attributes.get(place))

    def _add(self, append: Append, hashes: list[bytes], attributes: dict[str, str] | None) -> None:
        row, head = append.row, hashes[-1]
        runs, seqs, payloads, links = self._events
        ahead = len(runs) + len(hashes)
        if append.token is None:
            self.hints.append(row.id)
        elif self.token is None or append.token < self.token:
            self.token = append.token
        if row.key == 0:
            self.new += 1
            key = -self.new
            self._starts.append(_start(row, head, ahead))
            if attributes:
                self._attributes += [(key, name, text) for name, text in attributes.items()]
        else:
            key = row.key
            self._changed += 1
            # Several of one run, once they are judged, become one change: from before the first to the last.
            first = self._changes.get(key)
            before = (append.expected, append.previous) if first is None else first[1:3]
            self._changes[key] = (key, *before, *_change(row, head, ahead))
            if row.attributes != NONE and (self._judged or not row.open):
                self._attributes += [
                    (key, name, text) for name, text in attributes_of(row.attributes).items()
                ]
        runs += [key] * len(hashes)
        seqs += range(append.expected + 1, row.revision + 1)
        payloads += append.payloads
        links += hashes
        self.outcomes.append(Hope(key, ahead, head))

    @property
    def events(self) -> int:
        return len(self._events[0])

    @property
    def repeats(self) -> bool:
        """Some run is in it more than once, which only holds if it was judged."""
        return self._changed != len(self._changes)

    def arguments(self, nonce: int, *, judged: bool) -> list[Any]:
        return [
            nonce,
            self.token,
            judged,
            self.hints,
            *_columns(self._starts, STARTS),
            *_columns(self._attributes, 3),
            *_columns(self._changes.values(), CHANGES),
            *self._events,
        ]

    def settled(self, position: int, run: int | None) -> list[Appended | Exception]:
        """The outcomes, given the highest position and key before the group."""
        done: list[Appended | Exception] = []
        for hope in self.outcomes:
            if isinstance(hope, Exception):
                done.append(hope)
            else:
                key = hope.key if hope.key > 0 else (run or 0) - hope.key
                done.append(Appended(key, position + hope.ahead, hope.hash))
        return done


def _columns(rows: Any, width: int) -> list[Sequence[Any]]:
    """By column; one of nothing but nulls is empty, which `unnest` fills up: the driver looks at each value, nulls too."""
    if not rows:
        return [()] * width
    return [
        () if column[0] is None and column.count(None) == len(column) else column
        for column in zip(*rows, strict=True)
    ]


def _start(row: Row, hash: bytes, ahead: int) -> tuple[Any, ...]:
    return (
        row.id, row.generation, row.definition, row.version, row.status, row.revision,
        row.created_at, row.updated_at, row.priority, row.paused, row.open, row.next_due,
        row.deadline, row.ended_at, row.created_by, row.parent, row.attributes, hash, ahead,
    )  # fmt: skip


def _change(row: Row, hash: bytes, ahead: int) -> tuple[Any, ...]:
    return (
        row.version, row.status, row.revision, row.updated_at, row.priority, row.paused, row.open,
        row.next_due, row.deadline, row.ended_at, row.attributes, hash, ahead,
    )  # fmt: skip


class Judge(Exception):
    """Not all of the group holds at once: judge each append by itself."""


async def write(db: Connection, batch: Batch, nonce: int) -> list[Appended | Exception]:
    """All at once; raises Judge, with nothing written, where not all of it holds."""
    if batch.repeats:
        raise Judge
    if not batch.events:
        return batch.settled(0, 0)
    arguments = batch.arguments(nonce, judged=False)
    try:
        position, run = await db.fetchrow(WRITE, *arguments)
    except Exception as error:
        if getattr(error, "sqlstate", None) in JUDGED or _is_unfit(error):
            raise Judge(str(error)) from error
        raise
    return batch.settled(position, run)


async def judged(db: Connection, group: Group) -> Batch:
    """Inside a transaction: who is refused; brings the attributes of the others up to date."""
    await db.execute(LOCK)
    token = await db.fetchval("SELECT coalesce((SELECT token FROM owner), 0)")
    refused = dict(group.problems)
    for place, append in enumerate(group.appends):
        if place not in refused and (problem := _problem(append)):
            refused[place] = unfit(append.row, ValueError(problem))
    appends = [a for place, a in enumerate(group.appends) if place not in refused]
    known = {
        run: Known(*rest)
        for run, *rest in await db.fetch(
            "SELECT run, revision, hash, attributes,"
            " coalesce((SELECT max(seq) FROM events e WHERE e.run = r.run), 0)"
            " FROM runs r WHERE run = ANY($1::bigint[])",
            [append.row.key for append in appends if append.row.key],
        )
    }
    new = [append.row for append in appends if append.row.key == 0]
    taken = {
        (id, generation): (run, revision)
        for id, generation, run, revision in await db.fetch(
            "SELECT r.id, r.generation, r.run, r.revision FROM runs r"
            " JOIN unnest($1::text[], $2::integer[]) w (id, generation) USING (id, generation)",
            [row.id for row in new],
            [row.generation for row in new],
        )
    }
    changes = judge(group, token=token, known=known, taken=taken, refused=refused)
    for change in changes:
        drops, adds = change.drops, change.adds
        await db.execute(
            "DELETE FROM attributes a USING unnest($2::text[], $3::text[]) d (name, value)"
            " WHERE a.run = $1 AND a.name = d.name AND a.value = d.value",
            change.key, [n for n, _ in drops], [v for _, v in drops],
        )  # fmt: skip
        await db.execute(
            "INSERT INTO attributes (name, value, run)"
            " SELECT name, value, $1 FROM unnest($2::text[], $3::text[]) a (name, value)",
            change.key, [n for n, _ in adds], [v for _, v in adds],
        )  # fmt: skip
    return Batch(group, refused, judged=True)


async def write_judged(db: Connection, batch: Batch, nonce: int) -> list[Appended | Exception]:
    """Inside the transaction of `judged`."""
    if not batch.events:
        return batch.settled(0, 0)
    try:
        position, run = await db.fetchrow(WRITE, *batch.arguments(nonce, judged=True))
    except Exception as error:
        if getattr(error, "sqlstate", None) in JUDGED or _is_unfit(error):
            raise StoreError(f"the database refuses what it should take: {error}") from error
        raise
    return batch.settled(position, run)


async def write_blobs(db: Connection, group: Group, outcomes: list[Appended | Exception]) -> None:
    """Inside the same transaction: what stands beside the events that were written."""
    blobs = [
        (outcome.key, digest, stored)
        for append, outcome in zip(group.appends, outcomes, strict=True)
        if isinstance(outcome, Appended)
        for digest, stored in append.blobs.items()
    ]
    if blobs:
        await db.executemany(
            "INSERT INTO blobs (run, digest, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            blobs,
        )


async def find(db: Connection, batch: Batch, group: Group, nonce: int) -> list[Appended | Exception] | None:  # fmt: skip
    """The outcomes of a group whose answer was lost, if it was written; all of it was, or nothing.

    The nonce with its first event tells ours from equal events that somebody else wrote.
    """
    place = next((n for n, o in enumerate(batch.outcomes) if isinstance(o, Hope)), None)
    if place is None:
        return None
    append = group.appends[place]
    first = await db.fetchval(
        "SELECT e.position FROM events e JOIN runs r ON r.run = e.run"
        " WHERE r.id = $1 AND r.generation = $2 AND e.seq = $3 AND e.nonce = $4",
        append.row.id, append.row.generation, append.expected + 1, nonce,
    )  # fmt: skip
    if first is None:
        return None
    runs = await db.fetch(
        "SELECT position, run FROM events WHERE position >= $1 AND position < $2",
        first,
        first + batch.events,
    )
    keys: dict[int, int] = dict(runs)
    return [
        hope if isinstance(hope, Exception)
        else Appended(keys[first - 1 + hope.ahead], first - 1 + hope.ahead, hope.hash)
        for hope in batch.outcomes
    ]  # fmt: skip


def _is_unfit(error: Exception) -> bool:
    """A value that the driver or the server cannot take; who it is, the judging finds."""
    code: str = getattr(error, "sqlstate", None) or ""
    return code[:2] == "22" or isinstance(error, ValueError | OverflowError | TypeError)


def _problem(append: Append) -> str | None:
    row = append.row
    for text in (row.id, row.definition, row.version, row.status, row.created_by, row.parent):
        if text is not None and (problem := text_problem(text)):
            return problem
    for number in (row.generation, row.revision, row.priority, append.expected):
        if not -INT_MAX <= number <= INT_MAX:
            return f"{number} is out of range"
    return None


def text_problem(text: str) -> str | None:
    if "\0" in text:
        return "a text has a NUL character, which PostgreSQL cannot keep"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return str(error)
    return None
