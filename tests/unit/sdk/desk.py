"""A worker on a clock that moves by hand, and jobs that are awaited."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

from penstock.model.job import Broken, Done, Job, Outcome
from penstock.model.payload import decode_payload
from penstock.sdk.worker import LocalActivities

WAIT_SECONDS_MAX = 60.0


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Time stands still until a test moves it."""

    def __init__(self) -> None:
        self._now = 1_000_000.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Timer]] = []

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def ticks(self) -> float:
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self.call_at(self._now + seconds, callback)

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self.call_at(self._now + seconds, woken.set)
        await woken.wait()

    def advance(self, seconds: float) -> None:
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if not timer.cancelled:
                timer.callback()
        self._now = until

    @property
    def pending(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self._timers)


class Desk:
    """Begins jobs at a worker and collects what they report."""

    def __init__(self, worker: LocalActivities) -> None:
        self.worker = worker
        self.reports: list[tuple[Job, Outcome]] = []
        self.beats: list[tuple[str, Any]] = []
        self._numbers = itertools.count(1)
        worker.on_heartbeat(lambda job, progress: self.beats.append((job.key, progress)))

    def begin(self, activity: str, arguments: Any = None, **fields: Any) -> asyncio.Future[Outcome]:
        key = fields.pop("key", None) or f"task-{next(self._numbers)}"
        fields.setdefault("attempt", 1)
        job = Job(
            run_id=fields.pop("run_id", "run"),
            generation=1,
            key=key,
            activity=activity,
            arguments={} if arguments is None else arguments,
            **fields,
        )
        reported: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        inside = True

        def report(job: Job, outcome: Outcome) -> None:
            assert not inside, "reported from inside begin"
            assert not reported.done(), "reported twice"
            self.reports.append((job, outcome))
            reported.set_result(outcome)

        self.worker.begin(job, report)
        inside = False
        return reported

    async def run(self, activity: str, arguments: Any = None, **fields: Any) -> Outcome:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await self.begin(activity, arguments, **fields)

    async def value(self, activity: str, arguments: Any = None, **fields: Any) -> Any:
        outcome = await self.run(activity, arguments, **fields)
        assert isinstance(outcome, Done), outcome
        return decode_payload(outcome.output)

    async def failure(self, activity: str, arguments: Any = None, **fields: Any) -> Broken:
        outcome = await self.run(activity, arguments, **fields)
        assert isinstance(outcome, Broken), outcome
        return outcome


async def until(condition: Callable[[], Any]) -> None:
    """Threads and processes take their own time; wait for what they do, not for a time."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110  (the condition is another thread's or process's)
            await asyncio.sleep(0.002)
