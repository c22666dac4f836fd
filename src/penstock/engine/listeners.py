"""Listeners: functions of the application that are called after events are on disk; they never harm a run (SPEC 4.10).

Each has a bounded queue and works it off by itself: an `async def` in the loop, a plain function in a thread of its own. One that
is too slow loses events, which is counted and said; who must not lose any takes a projection. Events come in the order of the
log, whoever wrote them: those of this process from memory, those of others by reading the log where ours are not adjacent.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast, get_args

from penstock.errors import Rejected, StoreError
from penstock.model.codec import decode_event
from penstock.model.events import Event
from penstock.model.run import Run
from penstock.ports.runs import Change

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

PAGE = 1000
AGAIN_SECONDS = 0.5
END_SECONDS_MAX = 1.0
"""How long a closing engine waits for listeners to hear what has happened."""

Listener = Callable[[Change], Any]


class Listening:
    """One listener, and how it fares; `close()` ends it."""

    def __init__(
        self,
        listeners: Listeners,
        listener: Listener,
        *,
        types: frozenset[str] | None,
        definition: str | None,
        run: str | None,
        limit: int,
    ) -> None:
        self._listeners, self._listener = listeners, listener
        self._types, self._definition, self._run, self._limit = types, definition, run, limit
        self.heard = 0
        """Events it was called with."""
        self.failed = 0
        """How often it raised."""
        self.dropped = 0
        """Events that it was too slow for."""
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Change] = deque()
        self._working: asyncio.Task[None] | None = None
        self._inbox: queue.SimpleQueue[Change | None] | None = None
        self._given = 0
        if not is_async(listener):
            self._inbox = queue.SimpleQueue()
            threading.Thread(target=self._main, name="penstock-listener", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Events that it has not heard yet."""
        return self._given - self.heard

    def wants(self, event: Event, run_id: str, definition: str) -> bool:
        return (
            (self._types is None or event.type in self._types)
            and (self._run is None or run_id == self._run)
            and (self._definition is None or definition == self._definition)
        )

    def give(self, change: Change) -> None:
        if self._given - self.heard >= self._limit:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th, …
                log.warning(
                    "listener.dropped", extra={"listener": str(self), "dropped": self.dropped}
                )
            return
        self._given += 1
        if self._inbox is not None:
            self._inbox.put(change)
            return
        self._waiting.append(change)
        if self._working is None:
            self._working = self._loop.create_task(self._work(), name="penstock.listener")

    async def _work(self) -> None:
        while self._waiting and not self.closed:
            change = self._waiting.popleft()
            try:
                await self._listener(change)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                self._broke(change)
            except BaseException:
                self._broke(change)
            self.heard += 1
        self._working = None

    def _main(self) -> None:
        assert self._inbox is not None
        while (change := self._inbox.get()) is not None:
            if self.closed:
                continue
            try:
                given = self._listener(change)
                if inspect.isawaitable(given):  # a plain function that gives something to await
                    asyncio.run_coroutine_threadsafe(_awaited(given), self._loop).result()
            except BaseException:
                self._broke(change)
            self.heard += 1

    def _broke(self, change: Change) -> None:
        self.failed += 1
        log.exception("listener.failed", extra={"run": change.run_id, "listener": str(self)})

    def close(self) -> None:
        """It hears nothing more; from any thread, and twice."""
        if self.closed:
            return
        self.closed = True
        if self._inbox is not None:
            self._inbox.put(None)
        self._loop.call_soon_threadsafe(self._listeners.forget, self)

    def cut(self) -> asyncio.Task[None] | None:
        """End what it is at."""
        if self._working is not None:
            self._working.cancel()
        return self._working

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __str__(self) -> str:
        return getattr(self._listener, "__qualname__", None) or repr(self._listener)


class Listeners:
    """All listeners of this process, and how far they were told."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.all: list[Listening] = []
        self._position: int | None = None
        """Of the newest event that was given; None until it is known where the log ended."""
        self._first: int | None = None
        """Of the earliest event written here while that is not known."""
        self._reading: asyncio.Task[None] | None = None
        self._again = False
        self._unfollow: Callable[[], None] | None = None

    def add(
        self,
        listener: Listener,
        *,
        types: frozenset[str] | None = None,
        definition: str | None = None,
        run: str | None = None,
        limit: int = 10_000,
    ) -> Listening:
        listening = Listening(
            self, listener, types=types, definition=definition, run=run, limit=limit
        )
        if not self.all:
            owned = self._engine.owner is not None
            self._position = self._engine.position if owned else None
            self._first = None
            self._unfollow = self._engine.following.follow(self._woken)
            if not owned:
                self._look()
        self.all.append(listening)
        return listening

    def forget(self, listening: Listening) -> None:
        if listening in self.all:
            self.all.remove(listening)
            listening.cut()
        if not self.all and self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    def quiet(self) -> bool:
        return self._reading is None and not any(each.waiting for each in self.all)

    async def close(self) -> None:
        """Let them hear what has happened, for a moment; then they are ended."""
        end = asyncio.get_running_loop().time() + END_SECONDS_MAX
        while not self.quiet() and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if self._reading is not None:
            self._reading.cancel()
        ended = [task for each in self.all if (task := each.cut()) is not None]
        await asyncio.gather(
            *ended, *([self._reading] if self._reading else []), return_exceptions=True
        )
        for each in list(self.all):
            each.close()
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    # --- what has happened -----------------------------------------------------------------------------------

    def offer(self, run: Run, events: list[Event], last: int) -> None:
        """Events that this process has just written, with the position of the last."""
        first = last - len(events) + 1
        if self._reading is None and self._position is not None and first == self._position + 1:
            self._position = last
            seq = run.revision - len(events)
            for event in events:
                seq += 1
                self._give(run.id, run.definition, seq, event, run.status)
        elif self._position is None:
            self._first = first if self._first is None else min(self._first, first)
            self._look()
        elif last > self._position:
            self._look()

    def _woken(self, others: bool) -> None:
        if others:  # our own are offered
            self._look()

    def _look(self) -> None:
        """There may be events that we have not seen."""
        self._again = True
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(
                self._read(), name="penstock.listeners"
            )

    async def _read(self) -> None:
        engine = self._engine
        try:
            while self._again:
                self._again = False
                try:
                    while await self._read_page() == PAGE:
                        pass
                except StoreError as error:
                    log.warning("listeners.behind", extra={"error": str(error)})
                    self._again = True
                    await engine.clock.sleep(AGAIN_SECONDS)
        finally:
            self._reading = None

    async def _read_page(self) -> int:
        store = self._engine.store
        if self._position is None:
            head = await store.head()
            self._position = head if self._first is None else min(head, self._first - 1)
        page = await store.follow(after=self._position, limit=PAGE)
        if not page:
            return 0
        rows = await store.find_many(list({each.key for each in page}))
        for each in page:
            row = rows.get(each.key)
            if row is not None:  # else retention is deleting it
                event = decode_event(each.payload)
                self._give(row.id, row.definition, each.seq, event, row.status)
        self._position = page[-1].position
        return len(page)

    def _give(self, run_id: str, definition: str, seq: int, event: Event, status: str) -> None:
        change: Change | None = None
        for listening in self.all:
            if not listening.closed and listening.wants(event, run_id, definition):
                if change is None:
                    change = Change(run_id, seq, event.type, status, event)
                listening.give(change)


TYPES: frozenset[str] = frozenset(cls.__struct_config__.tag for cls in get_args(Event))


def checked_types(types: Sequence[str] | None) -> frozenset[str] | None:
    """Types of events as asked for; None: all. Rejected for one that there is not."""
    for name in types or ():
        if name not in TYPES:
            near = get_close_matches(name, TYPES, n=3)
            raise Rejected(
                "event-type-unknown",
                f"there is no event of type {name!r:.80}",
                hint=f"did you mean {' or '.join(near)}?"
                if near
                else "docs/howto/listeners.md has the list",
            )
    return None if types is None else frozenset(types)


def is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.iscoroutinefunction(function)


async def _awaited(given: Any) -> Any:
    return await given
