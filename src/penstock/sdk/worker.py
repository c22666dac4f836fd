"""LocalActivities: calls the activities of this process and reports what they did.

`begin` to `report` of an activity in the loop is the hot path: one asyncio task, one entry in a dict, no logging, no
timer of its own. Threads are in `sdk/threads.py`, child processes in `sdk/processes.py`, the words of outcomes in
`sdk/outcome.py`, what the activity itself sees in `sdk/attempt.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from penstock.errors import Rejected
from penstock.model.failure import Failure
from penstock.model.job import Broken, Cut, Done, Job, Outcome
from penstock.model.payload import encode_payload
from penstock.ports.activities import Served
from penstock.ports.clock import Clock, Handle
from penstock.sdk.activities.http import Http
from penstock.sdk.attempt import CURRENT, Attempt, current
from penstock.sdk.outcome import broken, perform, returned
from penstock.sdk.processes import Processes
from penstock.sdk.threads import Threads
from penstock.sdk.watchdog import Watchdog
from penstock.sdk.workflow import Entry, Registry, entry_of

__all__ = ["Attempt", "LocalActivities", "current"]

log = logging.getLogger(__name__)

THREADS_MAX = 32
CANCEL_GRACE_SECONDS = 30.0
"""How long an attempt may take to end after it was told that it is not wanted any more."""
CUT_SECONDS_MAX = 2.0
"""How long a closing worker waits for coroutines it has cut to leave the loop."""

Report = Callable[[Job, Outcome], None]
Secrets = Mapping[str, str] | Callable[[str], str | None]


class Execution(Attempt):
    """An attempt that was begun and has not ended."""

    __slots__ = (
        "began",
        "beat_at",
        "beating",
        "deadline",
        "entry",
        "handle",
        "index",
        "limit",
        "report",
        "secrets",
        "settled",
        "task",
        "worker",
    )

    def __init__(self, worker: LocalActivities, job: Job, entry: Entry, report: Report) -> None:
        # Written out, not `super().__init__`: the hot path.
        self.job = job
        self.progress = job.progress
        self.cancelled = False
        self.worker = worker
        self.entry = entry
        self.report = report
        self.index: Any = (job.run_id, job.key, job.attempt)
        self.began = False
        self.settled = False
        self.secrets: dict[str, Any] | None = None
        self.task: asyncio.Task[None] | None = None
        self.limit: float | None = None
        self.deadline = 0.0
        self.handle: Handle | None = None
        self.beat_at = 0.0
        self.beating = False

    def beat(self) -> None:
        self.worker.heard(self)


class _Lane:
    """The attempts with one and the same time limit, in the order in which it runs out: one timer for all."""

    __slots__ = ("handle", "open")

    def __init__(self) -> None:
        self.open: dict[Execution, None] = {}
        self.handle: Handle | None = None


class LocalActivities:
    """Executes attempts in this process (`ports/activities.py`)."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        *,
        threads: int = THREADS_MAX,
        processes: int | None = None,
        secrets: Secrets | None = None,
        watch: bool = True,
    ) -> None:
        if threads < 1 or (processes is not None and processes < 1):
            raise Rejected("limit-invalid", "at least one thread and one process are needed")
        self._clock = clock
        self._secrets = secrets
        self._http = Http()
        self._entries = {entry.name: entry for entry in registry}
        self._entries["http"] = entry_of(self._http, name="http")
        self._open: dict[Any, Execution] = {}
        self._lanes: dict[float, _Lane] = {}
        self._listeners: list[Callable[[Job, Any], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._empty: asyncio.Event | None = None
        self._late: set[Execution] = set()
        self._threads: Threads[Execution] = Threads(
            threads,
            begun=self._arm,
            perform=self._in_thread,
            settle=self._returned,
            wanted=_wanted,
        )
        self._processes: Processes[Execution] = Processes(
            processes or os.cpu_count() or 1,
            begun=self._arm,
            beat=self._beat_of_child,
            settle=self._returned,
            wanted=_wanted,
        )
        self._watchdog = Watchdog(self._attempt_of_task, self._name_of_code) if watch else None

    # What the engine asks.

    def get(self, name: str) -> Served | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.served

    def on_heartbeat(self, listener: Callable[[Job, Any], None]) -> None:
        self._listeners.append(listener)

    @property
    def late(self) -> int:
        """Attempts that were reported as timed out or cancelled and whose code still runs here."""
        return len(self._late)

    @property
    def waiting(self) -> int:
        """Attempts that were begun while every thread, or every process, was taken."""
        return len(self._threads.waiting) + len(self._processes.waiting)

    async def open(self) -> None:
        refuse_in_child()
        self._loop = asyncio.get_running_loop()
        if self._watchdog is not None:
            self._watchdog.open(self._loop, self._open)

    def begin(self, job: Job, report: Report) -> None:
        loop = self._loop or self._late_open()
        entry = self._entries.get(job.activity)
        if entry is None or self._closing:
            loop.call_soon(report, job, Cut() if entry is not None else _unknown(job))
            return
        execution = Execution(self, job, entry, report)
        if job.secrets and not self._resolve(execution):
            return
        index = execution.index
        if index in self._open:
            # An older generation's attempt of the same name has not ended yet: it makes way.
            older = self._open.pop(index)
            older.index = object()
            self._open[older.index] = older
        self._open[index] = execution
        kind = entry.served.kind
        if kind == "loop":
            execution.task = asyncio.Task(self._in_loop(execution), loop=loop, name=job.key)
            self._arm(execution)
        elif kind == "thread":
            self._threads.submit(execution)
        else:
            self._processes.submit(execution)

    def cancel(self, run_id: str, key: str, attempt: int) -> None:
        execution = self._open.get((run_id, key, attempt))
        if execution is None or execution.cancelled:
            return
        loop = self._loop or self._late_open()
        execution.cancelled = True
        if not execution.began:
            # Not one step of it was taken, or it still waits for its turn.
            loop.call_soon(self._settle, execution, self._cancelled(execution))
        if execution.task is not None:
            execution.task.cancel()
        elif execution.began and execution.entry.served.kind == "process":
            self._processes.cancel(execution)
        self._disarm(execution)
        execution.handle = self._clock.call_at(
            self._clock.now() + CANCEL_GRACE_SECONDS, lambda: self._give_up(execution)
        )

    async def close(self, *, drain_seconds: float) -> None:
        loop = self._loop or self._late_open()
        self._closing = True
        waits = [each for each in self._open.values() if not each.began and each.task is None]
        for each in waits:
            self._settle(each, Cut())
        if self._open and drain_seconds > 0:
            await self._drain(loop, drain_seconds)
        tasks = [each.task for each in (*self._open.values(), *self._late) if each.task is not None]
        for each in list(self._open.values()):
            each.cancelled = True
            self._settle(each, Cut())
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CUT_SECONDS_MAX)
        self._threads.close()
        await self._processes.close()
        await self._http.close()
        if self._watchdog is not None:
            self._watchdog.close()

    # The loop.

    async def _in_loop(self, execution: Execution) -> None:
        execution.began = True
        CURRENT.set(execution)
        entry = execution.entry
        try:
            result = await entry.parameters.call(execution.job.arguments, execution.secrets)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._returned(execution, self._raised(execution, error))
            return
        if execution.settled:
            self._returned(execution, Cut())
            return
        try:
            outcome = Done(encode_payload(result))
        except BaseException:
            outcome = returned(entry.name, result, entry.served.retry)
        self._settle(execution, outcome)

    def _raised(self, execution: Execution, error: BaseException) -> Outcome:
        task = execution.task
        if (
            isinstance(error, asyncio.CancelledError)
            and not execution.cancelled
            and task
            and task.cancelling()
        ):
            return Cut()  # someone ends the loop's tasks, not this attempt
        served = execution.entry.served
        return broken(served.name, error, served.retry, execution.secrets)

    # Threads.

    def _in_thread(self, execution: Execution) -> Outcome:
        CURRENT.set(execution)
        entry = execution.entry
        return perform(
            entry.name,
            entry.parameters,
            execution.job.arguments,
            execution.secrets,
            entry.served.retry,
        )

    # Heartbeats.

    def heard(self, execution: Execution) -> None:
        """A heartbeat, in the loop or in any thread."""
        execution.beat_at = self._clock.now()
        if execution.entry.served.kind == "loop":
            # Its own threads may beat too; they find no running loop.
            if asyncio._get_running_loop() is self._loop:  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
                self._tell(execution)
                return
        if not execution.beating:
            execution.beating = True
            loop = self._loop
            assert loop is not None
            loop.call_soon_threadsafe(self._tell, execution)

    def _beat_of_child(self, execution: Execution, progress: Any) -> None:
        execution.progress = progress
        execution.beat_at = self._clock.now()
        self._tell(execution)

    def _tell(self, execution: Execution) -> None:
        execution.beating = False
        if execution.settled:
            return
        for listener in self._listeners:
            try:
                listener(execution.job, execution.progress)
            except Exception:
                log.exception("heartbeat.listener-failed activity=%s", execution.entry.name)

    # Ends.

    def _returned(self, execution: Execution, outcome: Outcome) -> None:
        """The code has come to its end, wanted or not."""
        if execution.settled:
            if execution in self._late:
                self._late.discard(execution)
                log.info(
                    "activity.ended-late activity=%s key=%s",
                    execution.entry.name,
                    execution.job.key,
                )
            return
        if execution.cancelled and isinstance(outcome, Broken):
            outcome = self._cancelled(execution)
        self._settle(execution, outcome)

    def _settle(self, execution: Execution, outcome: Outcome) -> None:
        if execution.settled:
            return
        execution.settled = True
        del self._open[execution.index]
        if execution.limit is not None or execution.handle is not None:
            self._disarm(execution)
        if self._empty is not None and not self._open:
            self._empty.set()
        try:
            execution.report(execution.job, outcome)
        except Exception:
            log.exception("report.failed activity=%s", execution.entry.name)

    def _cancelled(self, execution: Execution) -> Broken:
        served = execution.entry.served
        return Broken(Failure("cancelled", f"activity `{served.name}` was cancelled"), served.retry)

    def _give_up(self, execution: Execution) -> None:
        """Told to end, and still there."""
        execution.handle = None
        self._abandon(execution, self._cancelled(execution))

    def _abandon(self, execution: Execution, outcome: Outcome) -> None:
        """Report now; what the code does from here on is dropped."""
        if execution.settled:
            return
        execution.cancelled = True
        kind = execution.entry.served.kind
        if kind == "loop":
            assert execution.task is not None
            if execution.began:
                self._late.add(execution)
            execution.task.cancel()
        elif kind == "thread":
            if execution.began:
                self._late.add(execution)
                log.warning(
                    "thread.occupied activity=%s key=%s threads=%d late=%d",
                    execution.entry.name,
                    execution.job.key,
                    self._threads.count,
                    len(self._late),
                )
        else:
            self._processes.kill(execution)
        self._settle(execution, outcome)

    # Time limits.

    def _arm(self, execution: Execution) -> None:
        """The attempt's time begins."""
        job, served = execution.job, execution.entry.served
        if execution.task is None:
            execution.began = True
        limit = job.start_to_close
        if limit is None:
            limit = served.start_to_close
        if limit is not None:
            execution.limit = limit
            execution.deadline = deadline = self._clock.now() + limit
            lane = self._lanes.get(limit)
            if lane is None:
                lane = self._lanes[limit] = _Lane()
                lane.handle = self._clock.call_at(deadline, lambda: self._expire(limit))
            lane.open[execution] = None
        heartbeat = job.heartbeat
        if heartbeat is None:
            heartbeat = served.heartbeat
        if heartbeat is not None:
            execution.beat_at = self._clock.now()
            self._listen(execution, heartbeat)

    def _disarm(self, execution: Execution) -> None:
        limit = execution.limit
        if limit is not None:
            execution.limit = None
            lane = self._lanes[limit]
            del lane.open[execution]
            if not lane.open:
                assert lane.handle is not None
                lane.handle.cancel()
                del self._lanes[limit]
        if execution.handle is not None:
            execution.handle.cancel()
            execution.handle = None

    def _expire(self, limit: float) -> None:
        lane = self._lanes[limit]
        now = self._clock.now()
        for execution in list(lane.open):
            if execution.deadline > now:
                lane.handle = self._clock.call_at(execution.deadline, lambda: self._expire(limit))
                return
            name = execution.entry.name
            message = f"activity `{name}` did not end within {limit:g} s (start_to_close)"
            details = {"limit_seconds": limit}
            failure = Failure("timeout", message, details=details)
            self._abandon(execution, Broken(failure, execution.entry.served.retry))

    def _listen(self, execution: Execution, limit: float) -> None:
        """Wait for the next heartbeat, from the last."""

        def check() -> None:
            execution.handle = None
            if execution.beat_at + limit > self._clock.now():
                self._listen(execution, limit)
                return
            message = f"activity `{execution.entry.name}` gave no heartbeat for {limit:g} s"
            failure = Failure("heartbeat-timeout", message, details={"limit_seconds": limit})
            self._abandon(execution, Broken(failure, execution.entry.served.retry))

        execution.handle = self._clock.call_at(execution.beat_at + limit, check)

    # The rest.

    async def _drain(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._empty = asyncio.Event()
        handle = self._clock.call_at(self._clock.now() + seconds, self._empty.set)
        try:
            await self._empty.wait()
        finally:
            handle.cancel()
            self._empty = None

    def _resolve(self, execution: Execution) -> bool:
        """Look up the secrets of a job; where that fails, so does the attempt."""
        job = execution.job
        try:
            execution.secrets = {parameter: self._secret(name) for parameter, name in job.secrets}
        except Rejected as error:
            failure = Failure(error.code, error.message, details=error.facts)
            outcome = Broken(failure, execution.entry.served.retry, final=True)
        except Exception as error:
            outcome = broken(execution.entry.name, error, execution.entry.served.retry)
        else:
            return True
        loop = self._loop or self._late_open()
        loop.call_soon(execution.report, job, outcome)
        return False

    def _secret(self, name: str) -> str:
        source = self._secrets
        value = (
            None
            if source is None
            else source.get(name)
            if isinstance(source, Mapping)
            else source(name)
        )
        if value is None:
            raise Rejected(
                "secret-missing",
                f"no secret is named `{name}` where the activity runs",
                secret=name,
            )
        return value

    def _late_open(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        return self._loop

    def _attempt_of_task(self, task: asyncio.Task[Any]) -> Attempt | None:
        coroutine = task.get_coro()
        frame = (
            coroutine.cr_frame
            if isinstance(coroutine, Coroutine) and hasattr(coroutine, "cr_frame")
            else None
        )  # pyright: ignore
        found = None if frame is None else frame.f_locals.get("execution")  # pyright: ignore
        return found if isinstance(found, Execution) else None

    def _name_of_code(self, code: Any) -> str | None:
        for entry in self._entries.values():
            if getattr(entry.function, "__code__", None) is code:
                return entry.name
        return None


def _wanted(execution: Execution) -> bool:
    return not execution.settled


def _unknown(job: Job) -> Broken:
    message = f"no activity is named `{job.activity}` in this process"
    return Broken(Failure("unknown-activity", message), final=True)


def refuse_in_child() -> None:
    """A child process that imports a script without a guard would open a second engine."""
    from penstock.sdk import child

    if child.IN_CHILD:
        raise Rejected(
            "unguarded-main",
            "a child process for `cpu=True` activities imported your script, and the script opened an engine again",
            hint='put what starts it under `if __name__ == "__main__":`',
        )
