"""An event loop that owns time and order, from one seed (SPEC 13).

Code that runs in it belongs to a place, which stands for a process: what it began ends with it, at any await. Within a place
callbacks keep the order that asyncio promises; between places the seed chooses. Time passes a little with every step, and
skips to the next timer once nobody has anything to do. Nothing here waits, and nothing depends on addresses or hashes.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")

STEP_SECONDS = 0.00002
"""How long one step takes: timers come due while others are at work."""
STEPS_AT_ONCE = 12
"""At most so many steps of one place follow each other while others have something to do."""
THREAD_SECONDS_MAX = 0.01
CLOSES_MAX = 10


class Place:
    """A process: dead, nothing of it goes on; stalled, nothing until it is let go."""

    __slots__ = ("alive", "blow", "fuse", "name", "ready", "stalled", "tasks", "watermark")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.alive = True
        self.stalled = False
        self.fuse = -1
        """Steps that are left until `blow` is called; below zero: as many as it likes."""
        self.blow: Callable[[], None] = lambda: None
        self.tasks: list[asyncio.Task[Any]] = []
        """Begun and perhaps not ended; held, so that the collector ends none of them when it likes."""
        self.watermark = 64


WORLD = Place("world")
"""Where code is that belongs to no place of its own; never used."""
PLACE: ContextVar[Place] = ContextVar("penstock_place", default=WORLD)


class SimulationLoop(asyncio.AbstractEventLoop):
    """See the module's docstring."""

    def __init__(self, seed: object) -> None:
        self.chance = random.Random(f"{seed}/loop")
        self.steps = 0
        self.leapt = 0.0
        """Seconds that have passed beside those of `time`: whoever plays let them pass at once (`NodeClock.leap`)."""
        self.unheard: list[dict[str, Any]] = []
        """What nobody was there to hear: an exception in a callback of a place that lives."""
        self._now = 0.0
        self._count = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._busy: list[Place] = []
        """Places that have something to do, and may."""
        self._places: list[Place] = []
        self._over = False

    # --- places ----------------------------------------------------------------------------------------------

    def open_place(self, name: str) -> tuple[Place, Context]:
        """A place, and the context in which code is to run that belongs to it."""
        place = Place(name)
        self._places.append(place)
        context = copy_context()
        context.run(PLACE.set, place)
        return place, context

    def kill(self, place: Place) -> None:
        """Nothing of it goes on, from this moment."""
        place.alive = False
        place.ready.clear()
        if place in self._busy:
            self._busy.remove(place)

    def stall(self, place: Place, stalled: bool) -> None:
        """Nothing of it goes on until it is let go; what comes meanwhile waits."""
        if place.stalled is stalled or not place.alive:
            return
        place.stalled = stalled
        if stalled and place in self._busy:
            self._busy.remove(place)
        if not stalled and place.ready:
            self._busy.append(place)

    # --- running ---------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Until the work is done; then all that is left of all places is closed."""
        around = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._ignore, self._ignore)
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage]
        try:
            _, context = self.open_place("world")
            main = self.create_task(work, context=context)
            while not main.done():
                self._step()
            return main.result()
        finally:
            self._over = True
            self._close_all()
            asyncio._set_running_loop(around)  # pyright: ignore[reportPrivateUsage]
            sys.set_asyncgen_hooks(*hooks)

    def _step(self) -> None:
        busy, timers = self._busy, self._timers
        if not busy:
            self._skip()
            return
        several = len(busy) > 1
        place = busy[int(self.chance.random() * len(busy))] if several else busy[0]
        left = 1 + int(self.chance.random() * STEPS_AT_ONCE) if several else STEPS_AT_ONCE
        ready = place.ready
        while left and ready:
            left -= 1
            if place.fuse >= 0:
                if place.fuse == 0:
                    place.fuse = -1
                    place.blow()
                    return
                place.fuse -= 1
            handle = ready.popleft()
            self.steps += 1
            self._now += STEP_SECONDS
            if not handle._cancelled:  # pyright: ignore
                handle._run()  # pyright: ignore
            if timers and timers[0][0] <= self._now:
                self._fire()
                break
        if not ready and place in busy:
            busy.remove(place)

    def _skip(self) -> None:
        """Nobody has anything to do: on to the next moment at which somebody has."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:  # pyright: ignore
            heappop(timers)
        if not timers:
            raise RuntimeError("nothing is left to do, and the simulation is not over")
        self._now = max(self._now, timers[0][0])
        self._fire()

    def _fire(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            handle = heappop(timers)[2]
            if not handle._cancelled:  # pyright: ignore
                self._put(handle)

    def _put(self, handle: asyncio.Handle) -> None:
        place = handle._context.get(PLACE, WORLD)  # pyright: ignore
        if place.alive:
            ready = place.ready
            if not ready and not place.stalled:
                self._busy.append(place)
            ready.append(handle)

    def _ignore(self, _: Any) -> None:
        """Async generators end with their place."""

    def _close_all(self) -> None:
        """What is left is closed now, not when the collector likes."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # pyright: ignore
            _close(task.get_coro())
        for place in self._places:
            place.tasks.clear()
            place.ready.clear()
        self._timers.clear()

    # --- what asyncio asks of a loop -------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heappush(self._timers, (when, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        place = PLACE.get() if context is None else context.get(PLACE, WORLD)
        tasks = place.tasks
        tasks.append(task)
        if len(tasks) > place.watermark:
            tasks[:] = [each for each in tasks if not each.done()]
            place.watermark = 64 + 2 * len(tasks)
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """There are no threads: it is done here, a moment later."""
        future = self.create_future()

        def do() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self.chance.random() * THREAD_SECONDS_MAX, do)
        return future

    get_debug: Any = staticmethod(bool)  # False, without a call of Python's: every future asks

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._over and PLACE.get().alive:
            self.unheard.append(context)


def _close(coroutine: Any) -> None:
    for _ in range(CLOSES_MAX):
        try:
            coroutine.close()
        except (
            BaseException
        ):  # it waits for something while it ends, or does not want to: once more
            continue
        return
