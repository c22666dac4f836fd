"""One life of an engine process: goes on with all that earlier lives began, until it is killed, stopped or done."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

import penstock
from crash import workload
from crash.workload import Wanted, trace
from penstock.adapters.postgres.store import PostgresStore
from penstock.adapters.sqlite import SqliteStore
from penstock.adapters.sqlite import connections as sqlite_connections
from penstock.engine import attempts, effects, points, programs, recovery
from penstock.engine.engine import Settings
from penstock.errors import NotFound, Rejected, RunFailed
from penstock.model.codec import decode_run
from penstock.policy import snapshots

STILL_SECONDS_MAX = 60
"""A life of which nothing is seen for so long is stuck."""
ENDED, STOPPED, STUCK = 0, 3, 4
"""How a life ends that nobody kills: all runs have ended; it was stopped on the way; it was stuck."""

SQLITE_POINTS = {
    "sqlite.begun": "a transaction holds the write lock, nothing is written",
    "sqlite.halfway": "rows of runs are written, their events are not",
    "sqlite.written": "all is written, nothing is committed",
    "sqlite.committed": "committed; the store does not know",
    "sqlite.checkpoint": "the write lock is held, the log is to be copied back",
    "sqlite.copied": "the log is copied back, the write lock is held",
}


class Orders(msgspec.Struct):
    """What becomes of this life."""

    database: str
    log: str
    first: int = 0
    last: int = 40
    """Runs from `first` up to `last`."""
    kill: str = ""
    """`POINT:n`: SIGKILL when it is reached for the n-th time; `A:n>B:m`: for the m-th time once A was for the n-th."""
    stop: str = ""
    """`POINT:n`: from then on a graceful stop."""
    counts: str = ""
    """A file that gets how often each point was reached."""
    pace: float = 0.0
    """Seconds between two starts."""
    seconds: float = 0.004
    """How long an activity takes at most."""
    drain: float = 0.002
    """How long attempts may take to end when the engine stops."""
    bell: str = ""
    """A pipe by name, to say that the engine is open."""
    book: str = "workload"
    """The module that says what runs there are."""
    last_life: bool = False
    """Nobody ends it: what is done in it is in a history."""
    bare: bool = False
    """A process that has the activities and not the code of workflow functions: nothing new is asked of it."""


def book_of(name: str) -> Any:
    return importlib.import_module(f"crash.{name}")


class Points:
    """Counts the points, and ends the process where it was told to."""

    def __init__(self, orders: Orders) -> None:
        self.seen: Counter[str] = Counter()
        self.stop = asyncio.Event()
        self._kill = [_place(text) for text in orders.kill.split(">")] if orders.kill else []
        self._since: Counter[str] = Counter()
        """What was seen since the last place on the way to the kill."""
        self._stop = _place(orders.stop) if orders.stop else None

    def reach(self, name: str) -> None:
        self.seen[name] += 1
        self._since[name] += 1
        if self._kill and self._kill[0] == (name, self._since[name]):
            del self._kill[0]
            self._since.clear()
            if not self._kill:
                os.kill(os.getpid(), signal.SIGKILL)
        if self._stop == (name, self.seen[name]):
            self.stop.set()

    def keep(self, path: str) -> None:
        Path(path).write_bytes(msgspec.json.encode(self.seen))


def _place(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition(":")
    return name, int(number)


class Connection(sqlite3.Connection):
    """Points inside of a transaction, seen from its statements."""

    def execute(self, text: str, *values: Any) -> sqlite3.Cursor:
        reach = points.reach
        assert reach is not None
        if text == "COMMIT":
            reach("sqlite.written")
            cursor = super().execute(text, *values)
            reach("sqlite.committed")
            return cursor
        if text.startswith("PRAGMA wal_checkpoint"):
            reach("sqlite.checkpoint")
            cursor = super().execute(text, *values)
            reach("sqlite.copied")
            return cursor
        if text.startswith("INSERT OR FAIL INTO events"):
            reach("sqlite.halfway")
        cursor = super().execute(text, *values)
        if text == "BEGIN IMMEDIATE":
            reach("sqlite.begun")
        return cursor


SAVES: dict[Any, Any] = {store: store.save_snapshots for store in (SqliteStore, PostgresStore)}


def watch_snapshots() -> None:
    """One more point: a snapshot is stored in which an attempt that was given up has not ended yet."""
    for store, save in SAVES.items():
        store.save_snapshots = _noticing(save)


def _noticing(save: Any) -> Any:
    async def save_snapshots(self: Any, snapshots: Any) -> None:
        await save(self, snapshots)
        for _, snapshot in snapshots:
            if points.reach is not None and decode_run(snapshot.state).ending:
                points.reach("snapshot.ending")

    return save_snapshots


def url_of(database: str) -> str:
    """A path is one of SQLite's."""
    return database if "://" in database else f"sqlite:///{database}"


def ring(bell: str, word: str = "open") -> None:
    pipe = os.open(bell, os.O_WRONLY)
    os.write(pipe, word.encode())
    os.close(pipe)


def small(snapshot_events: int = workload.SNAPSHOT_EVENTS) -> None:
    """Make rare things common: checkpoints, snapshots, evictions, several chunks of recovery, long attempts."""
    sqlite_connections.WAL_FRAMES_MAX = 150
    effects.EVENTS_MIN = snapshots.EVENTS_MIN = snapshot_events
    recovery.CHUNK = 12
    attempts.LONG_SECONDS = 0.002
    programs.INLINE_EVENTS_MAX, programs.EVENTS_AT_ONCE = 8, 3


def acknowledged(path: str) -> set[tuple[str, ...]]:
    """What earlier lives were told is done."""
    try:
        with open(path, encoding="utf-8") as file:
            told = {tuple(line.split()[1:]) for line in file if line.startswith("ack ")}
            return told | {("there", "was", "a", "life")}
    except FileNotFoundError:
        return set()


async def drive(
    engine: penstock.Engine, want: Wanted, done: set[tuple[str, ...]], book: Any = workload
) -> None:
    """All commands of one run that nobody was told of, in order; then its end."""
    name = want.id

    async def give(word: str, work: Any) -> None:
        if (name, word) in done:
            work.close()
            return
        try:
            await work
        except Rejected as error:
            # An earlier life's command may have done its work unheard, and the run may have ended since; a short one
            # may have ended before it could be paused.
            if error.code != "run-closed" or not (done or word in ("pause", "resume")):
                raise
            trace("moot", name, word)
            return
        trace("ack", name, word)

    if (name, "end") in done:
        return
    if want.definition == "sender":
        # Its receiver is there before a signal can be sent to it.
        receiver = book.wanted(int(name.rpartition("-")[2]) - 1)
        await engine.start(receiver.definition, receiver.input, id=receiver.id)
    await give("start", _begin(engine, want))
    run = await engine.get(name)
    for number, (signal_name, payload) in enumerate(want.signals):
        message = f"{name}:{number}"
        await give(f"signal:{message}", run.signal(signal_name, payload, message_id=message))
    for number, (update, payload, answer) in enumerate(want.updates):
        message = f"{name}:update:{number}"
        await give(f"update:{message}", _asked(run, update, payload, answer, message))
    if want.pauses:
        await give("pause", run.pause())
        await give("resume", run.resume())
    if want.cancels:
        await give("cancel", run.cancel())
    with contextlib.suppress(RunFailed):
        await run.result()
    for key in want.children:  # nobody else waits for one that goes its own way
        with contextlib.suppress(RunFailed, NotFound):
            await (await engine.get(f"{name}/{key}")).result()
    trace("ack", name, "end")


async def _asked(run: penstock.Run, name: str, payload: Any, answer: Any, message: str) -> None:
    told = await run.update(name, payload, command_id=message)
    assert told == answer, (message, told, answer)


async def _begin(engine: penstock.Engine, want: Wanted) -> None:
    """Start it in its way, as often as lives are told to; the run exists on return."""
    match want.how:
        case "schedule":
            schedule, _, nominal = want.id.partition("/")
            await engine.schedules.create(
                schedule, want.definition, want.input, every="365d", overlap="buffer",
                anchor="2020-01-01T00:00:00Z",
            )  # fmt: skip
            await engine.schedules.backfill(schedule, nominal, nominal, overlap="buffer")
        case "debounce":
            window = penstock.Debounce(want.id, 0.02)
            for _ in range(
                2
            ):  # of the same input, as a life may end, and the window with it, in between
                await engine.start(want.definition, want.input, id=want.id, debounce=window)
        case "singleton":
            await asyncio.gather(
                *(
                    engine.start(want.definition, want.input, id=want.id, singleton=want.id)
                    for _ in range(2)
                )
            )
        case _:
            await engine.start(want.definition, want.input, id=want.id)
            return
    while not await engine.list(id_prefix=want.id, limit=1):  # noqa: ASYNC110 - it is nobody's to say
        await asyncio.sleep(0.002)


async def live(orders: Orders) -> bool:
    """True once all runs have ended; False after a stop on the way."""
    watch = Points(orders)
    points.reach = watch.reach
    SqliteStore.connection_class = Connection
    watch_snapshots()
    book = book_of(orders.book)
    small(book.SNAPSHOT_EVENTS)
    workload.seconds_max = orders.seconds
    done = acknowledged(orders.log)  # before this life makes the file
    workload.trace_to(orders.log)
    if orders.last_life:
        trace("life", "last")
    settings = Settings(cache_runs=40, drain_seconds=orders.drain)
    async with penstock.open(
        url_of(orders.database), activities=book.ACTIVITIES, settings=settings,
        workflows=() if orders.bare else book.WORKFLOWS,
    ) as engine:  # fmt: skip
        for definition in book.DEFINITIONS:
            await engine.register(definition)
        if orders.bell:
            ring(orders.bell)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(_drive_all(engine, orders, done))
            halt = group.create_task(watch.stop.wait())
            await asyncio.wait([work, halt], return_when=asyncio.FIRST_COMPLETED)
            finished = work.done()
            work.cancel()
            halt.cancel()
    if orders.counts:
        watch.keep(orders.counts)
    return finished


async def _drive_all(engine: penstock.Engine, orders: Orders, done: set[tuple[str, ...]]) -> None:
    if orders.bare:
        await asyncio.Event().wait()
    book = book_of(orders.book)
    async with asyncio.TaskGroup() as group:
        for number in range(orders.first, orders.last):
            group.create_task(drive(engine, book.wanted(number), done, book))
            if orders.pace and (book.wanted(number).id, "start") not in done:
                await asyncio.sleep(orders.pace)


def watch_over(log: str) -> None:
    """Should nothing happen for long, say what everybody waits for, and end."""
    before = -1

    def look(_number: int, _frame: object) -> None:
        nonlocal before
        seen = os.path.getsize(log) if os.path.exists(log) else 0
        if seen > before:
            before = seen
            signal.alarm(STILL_SECONDS_MAX)
            return
        waits = Counter(" < ".join(_places(task.get_coro())) for task in asyncio.all_tasks())
        print(f"nothing for {STILL_SECONDS_MAX} s; who waits where:", file=sys.stderr)
        for place, count in waits.most_common()[:12] + waits.most_common()[12:][-12:]:
            print(f"{count:>6} {place}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(STUCK)

    signal.signal(signal.SIGALRM, look)
    signal.alarm(STILL_SECONDS_MAX)


def _places(work: Any) -> list[str]:
    """Where a coroutine stands, the innermost first."""
    found: list[str] = []
    while (frame := getattr(work, "cr_frame", None)) is not None:
        code = frame.f_code
        found.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        work = work.cr_await
    return found[::-1]


def main(orders: Orders) -> int:
    watch_over(orders.log)
    logging.basicConfig(level=logging.WARNING)
    return ENDED if asyncio.run(live(orders)) else STOPPED
