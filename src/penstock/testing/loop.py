"""An event loop that owns time and order, from one seed (SPEC 13).

Code that runs in it belongs to a place, which stands for a process: what it began ends with it, at any await. Within a place
callbacks keep the order that asyncio promises; between places the seed chooses. Time passes a little with every step, and
skips to the next timer once nobody has anything to do. Nothing here waits, and nothing depends on addresses or hashes.
"""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.format_helpers import _format_callback_source  # pyright: ignore
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")
_new = object.__new__

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
        self.ready: deque[Step] = deque()
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


class Step(asyncio.TimerHandle):
    """What is to be called, now or at a time; without what asyncio keeps for those who look for mistakes."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, context: Context | None) -> None:  # pyright: ignore
        self._callback, self._args = callback, args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        """It is passed over when its time comes."""
        self._cancelled = True
        self._callback, self._args = None, ()

    def __repr__(self) -> str:
        return f"<Step {self._callback!r}>"


class Pause:
    """Somebody waits for a while."""

    __slots__ = ("_loop", "_seconds")

    def __init__(self, loop: SimulationLoop, seconds: float) -> None:
        self._loop, self._seconds = loop, seconds

    def __await__(self) -> Generator[Any, None, None]:
        future = asyncio.Future[None](loop=self._loop)
        step = self._loop.call_later(self._seconds, _end, future)
        try:
            yield from future
        except BaseException:
            step.cancel()
            raise


def _end(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.set_result(None)


class SimulationLoop(asyncio.AbstractEventLoop):
    """See the module's docstring."""

    def __init__(self, seed: object) -> None:
        self.chance = random.Random(f"{seed}/loop")
        self.steps = 0
        self.leapt = 0.0
        """Seconds that have passed beside those of `time`: whoever plays let them pass at once (`NodeClock.leap`)."""
        self._buried: list[Step] = []
        """Of dead places; held as their tasks are: an activity that hears nothing of its end may know nobody else."""
        self.unheard: list[dict[str, Any]] = []
        """What nobody was there to hear: an exception in a callback of a place that lives."""
        self._now = 0.0
        self._count = 0
        self._timers: list[tuple[float, int, Step]] = []
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
            self._turn(main)
            return main.result()
        finally:
            self._over = True
            self._close_all()
            asyncio._set_running_loop(around)  # pyright: ignore[reportPrivateUsage]
            sys.set_asyncgen_hooks(*hooks)

    def _turn(self, main: asyncio.Task[Any]) -> None:
        busy, timers, random, done = self._busy, self._timers, self.chance.random, main.done
        while not done():
            if not busy:
                self._skip()
                continue
            if len(busy) > 1:
                place = busy[int(random() * len(busy))]
                left = 1 + int(random() * STEPS_AT_ONCE)
            else:
                place, left = busy[0], STEPS_AT_ONCE
            ready = place.ready
            while left and ready:
                left -= 1
                if place.fuse >= 0:
                    if place.fuse == 0:
                        place.fuse = -1
                        place.blow()
                        break
                    place.fuse -= 1
                step = ready.popleft()
                self.steps += 1
                self._now += STEP_SECONDS
                if not step._cancelled:  # pyright: ignore
                    try:
                        step._context.run(step._callback, *step._args)  # pyright: ignore
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self._failed(step, error)
                if timers and timers[0][0] <= self._now:
                    self._fire()
                    if not ready and place in busy:
                        busy.remove(place)
                    break
            else:
                if not ready and place in busy:
                    busy.remove(place)

    def _failed(self, step: Step, error: BaseException) -> None:
        named = _format_callback_source(step._callback, step._args)  # pyright: ignore
        message = f"Exception in callback {named}"
        self.call_exception_handler({"message": message, "exception": error, "handle": step})

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
            step = heappop(timers)[2]
            if not step._cancelled:  # pyright: ignore
                self._put(step)

    def _put(self, step: Step) -> None:
        place = step._context.get(PLACE, WORLD)  # pyright: ignore
        if place.alive:
            ready = place.ready
            if not ready and not place.stalled:
                self._busy.append(place)
            ready.append(step)
        else:
            self._buried.append(step)

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
        self._buried.clear()

    # --- what asyncio asks of a loop -------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Step:
        step = _new(
            Step
        )  # as it does itself, and `_put` once more: most that happens comes by here
        if context is None:
            context = copy_context()
        step._callback, step._args, step._context = callback, args, context  # pyright: ignore
        step._cancelled = False  # pyright: ignore
        place = context.get(PLACE, WORLD)
        if place.alive:
            ready = place.ready
            if not ready and not place.stalled:
                self._busy.append(place)
            ready.append(step)
        else:
            self._buried.append(step)
        return step

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Step:
        when = self._now + delay
        step = Step(callback, args, context)
        step._when = when  # pyright: ignore
        self._count += 1
        heappush(self._timers, (when, self._count, step))
        return step

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Step:
        step = Step(callback, args, context)
        step._when = when  # pyright: ignore
        self._count += 1
        heappush(self._timers, (when, self._count, step))
        return step

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def pause(self, seconds: float) -> Pause:
        """As `asyncio.sleep`, for more than no time; it costs less."""
        return Pause(self, seconds)

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
