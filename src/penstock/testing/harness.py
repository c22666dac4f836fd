"""An engine in process whose clock skips: thirty days pass in milliseconds (SPEC 13).

Time moves only when the engine has nothing left to do at the present moment, straight to the next thing that is due.
Nothing sleeps; activities that really wait are waited for: those in threads and processes until they end, those in the event
loop, by `finish`, as long as they sleep for less than a second or something comes from outside soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from typing import Any

from penstock.adapters.entry_points import InstalledPlugins
from penstock.adapters.memory import MemoryStore
from penstock.adapters.memory_bus import MemoryBus
from penstock.engine.engine import Engine as Core
from penstock.engine.engine import Settings
from penstock.engine.recovery import Ownership
from penstock.engine.runs import LocalRuns
from penstock.ports.store import Store
from penstock.sdk.client import Engine, Run
from penstock.sdk.functions import Functions
from penstock.sdk.worker import LocalActivities
from penstock.sdk.workflow import Registry
from penstock.testing.histories import Steps

NOON = 1_767_268_800.0
"""2026-01-01 12:00 UTC: where the clock of a harness begins."""
QUIET_STEPS = 25
REAL_SECONDS = 1.0
"""So long an attempt in the event loop may really sleep before the clock skips over it."""
OUTSIDE_SECONDS = 0.2
"""So long it may wait for something that is not a timer."""
ENDLESS_SECONDS = 60.0
"""So long it is waited for if there is nothing else to come."""


class SkipHandle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SkipClock:
    """A clock that stands still until it is told where to go."""

    def __init__(self, now: float = NOON) -> None:
        self._now = now
        self._count = 0
        self._heap: list[tuple[float, int, Callable[[], None], SkipHandle]] = []

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> SkipHandle:
        handle = SkipHandle()
        self._count += 1
        heappush(self._heap, (when, self._count, callback, handle))
        if when <= self._now:
            asyncio.get_running_loop().call_soon(self.fire)
        return handle

    def ticks(self) -> float:
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> SkipHandle:
        return self.call_at(self._now + seconds, callback)

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_at(
            self._now + seconds, lambda: None if future.done() else future.set_result(None)
        )
        await future

    def next(self) -> float | None:
        """When something is due."""
        while self._heap and self._heap[0][3].cancelled:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire(self) -> None:
        while self._heap and self._heap[0][0] <= self._now:
            _, _, callback, handle = heappop(self._heap)
            if not handle.cancelled:
                callback()

    def move(self, when: float) -> None:
        self._now = max(self._now, when)
        self.fire()


class Harness(Engine):
    """An engine, and the hands on its clock."""

    def __init__(self, core: Core, runs: LocalRuns, clock: SkipClock) -> None:
        super().__init__(runs)
        self.core, self.clock = core, clock
        self._known: set[Any] = set()
        """Attempts that were waited for, and will not end by themselves soon."""

    async def settle(self) -> None:
        """Let the engine do all that can be done at the present moment."""
        quiet = 0
        while quiet < QUIET_STEPS:
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.core.quiet() else 0
            if self.core.attempts.working():
                await asyncio.sleep(0.001)

    async def skip(
        self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Let that much time pass, with everything that is due on the way, in order."""
        target = self.clock.now() + seconds + 60 * minutes + 3600 * hours + 86400 * days
        await self.settle()
        while (due := self.clock.next()) is not None and due <= target:
            self.clock.move(due)
            await self.settle()
        self.clock.move(target)
        await self.settle()

    async def finish(self, run: Run, *, days: float = 3650.0) -> Any:
        """The result of a run, skipping all the time that it takes."""
        limit = self.clock.now() + 86400 * days
        waiting = asyncio.ensure_future(run.result())
        try:
            await self.settle()
            while (await self._runs.find(run.id)).open:
                due = self.clock.next()
                if await self._waited(ever=due is None or due > limit):
                    continue
                if due is None or due > limit:
                    reasons = "; ".join(why.message for why in await run.why())
                    raise AssertionError(f"run {run.id} does not end by itself: {reasons}")
                self.clock.move(due)
                await self.settle()
            return await waiting
        finally:
            waiting.cancel()

    async def _waited(self, *, ever: bool) -> bool:
        """Give attempts under way the real time that they need; whether one has ended."""
        before = self.core.attempts.under_way()
        if not before:
            return False
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while before <= self.core.attempts.under_way():
            passed = loop.time() - begun
            if not ever and (before <= self._known or passed > REAL_SECONDS):
                break
            if not ever and passed > OUTSIDE_SECONDS and not _sleeps(loop, begun + REAL_SECONDS):
                break
            if passed > ENDLESS_SECONDS:
                break
            await asyncio.sleep(0.001)
        else:
            await self.settle()
            return True
        self._known = before
        return False

    async def steps(self, run: Run) -> Steps:
        """What the run did, for assertions."""
        return Steps(await run.history())

    async def types(self, run: Run) -> list[str]:
        """The types of the run's events, in order."""
        return [item.type for item in await run.history()]


def _sleeps(loop: Any, until: float) -> bool:
    """Whether something in the event loop wakes up by then; of loops of others nothing is known."""
    return any(
        not each.cancelled() and each.when() <= until for each in getattr(loop, "_scheduled", ())
    )


@asynccontextmanager
async def harness(
    *,
    activities: Iterable[Any] = (),
    workflows: Iterable[Any] = (),
    guard: bool = True,
    store: Store | None = None,
    clock: SkipClock | None = None,
    settings: Settings | None = None,
    plugins: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Harness]:
    """`async with harness(activities=[…]) as engine:` on a memory store, or on the one given; `plugins` are those of
    `penstock.open`, and no others."""
    clock = clock or SkipClock()
    added = InstalledPlugins(plugins, installed=False)
    worker = LocalActivities(Registry(activities), clock, watch=False, plugins=added)
    core = Core(
        store or MemoryStore(clock=clock.now),
        worker,
        clock,
        bus=MemoryBus(clock),
        functions=Functions(workflows, guard=guard),
        settings=settings or Settings(drain_seconds=0),
        plugins=added,
    )
    ownership = Ownership(core)
    runs = LocalRuns(core, ownership)
    await core.open()
    await ownership.open(keep=False)
    try:
        yield Harness(core, runs, clock)
    finally:
        await runs.close()
