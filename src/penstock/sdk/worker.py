"""LocalActivities: calls the activities of this process and reports what they did.

`begin` to `report` of an activity in the loop is the hot path: one asyncio task, one place in a dict, no logging, no
timer of its own. Threads are in `sdk/threads.py`, child processes in `sdk/processes.py`, the words of outcomes in
`sdk/outcome.py`, what the activity itself sees in `sdk/attempt.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, cast

from penstock.core.vocabulary import PREFIX
from penstock.errors import Rejected
from penstock.model.failure import Failure
from penstock.model.job import Broken, Cut, Done, Job, Outcome
from penstock.ports.activities import Served
from penstock.ports.clock import Clock, Handle
from penstock.ports.plugins import NoPlugins, Plugins
from penstock.sdk.activities.http import Http
from penstock.sdk.attempt import CURRENT, Attempt, current
from penstock.sdk.child import refuse_in_child
from penstock.sdk.deadlines import Deadlines
from penstock.sdk.logs import Logs, Numbered
from penstock.sdk.outcome import broken, perform, returned
from penstock.sdk.plugins import Executors
from penstock.sdk.processes import Processes
from penstock.sdk.tap import close_tap, open_tap
from penstock.sdk.threads import Beside, Threads
from penstock.sdk.watchdog import Watchdog
from penstock.sdk.workflow import Entry, Registry, entry_of

if TYPE_CHECKING:
    from penstock.verify.verification import Signature

__all__ = ["Attempt", "LocalActivities", "current"]

log = logging.getLogger(__name__)

THREADS_MAX = 32
CANCEL_GRACE_SECONDS = 30.0
"""How long an attempt may take to end after it was told that it is not wanted any more."""
CUT_SECONDS_MAX = 2.0
"""How long a closing worker waits for the coroutines it has cut to leave the loop."""

Report = Callable[[Job, Outcome], None]
Secrets = Mapping[str, str] | Callable[[str], str | None]


class Execution(Attempt):
    """An attempt that was begun, until it is settled."""

    __slots__ = (
        "beat_at",
        "beating",
        "began",
        "entry",
        "handle",
        "index",
        "limit",
        "report",
        "settled",
        "task",
        "worker",
    )

    def __init__(self, worker: LocalActivities, job: Job, entry: Entry, report: Report) -> None:
        # All in one place, without a call of Attempt's: the hot path.
        self.job = job
        self.progress = job.progress
        self.cancelled = False
        self.secrets = None
        self.logs = None
        self.worker = worker
        self.entry = entry
        self.report = report
        self.index: Any = (job.run_id, job.key, job.attempt)
        self.began = False
        """Whether its code was entered, or handed to a thread."""
        self.settled = False
        self.task: asyncio.Task[None] | None = None
        self.limit: float | None = None
        self.handle: Handle | None = None
        """The timer of its heartbeats; once it is cancelled, of its grace."""
        self.beat_at = 0.0
        self.beating = False

    @property
    def given(self) -> dict[str, Any] | None:
        """What it is called with beside its arguments: secrets, and a connection."""
        connection = self.job.connection
        if connection is None:
            return self.secrets
        return {**(self.secrets or {}), self.entry.served.transactional: connection}

    def beat(self) -> None:
        self.worker.heard(self)

    def note(self, level: str, text: str) -> None:
        if not self.settled:
            super().note(level, text)

    def now(self) -> float:
        return self.worker.now()


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
        plugins: Plugins | None = None,
    ) -> None:
        """`secrets` finds a secret by its name; `watch=False` leaves out the thread that reports a blocked loop; `plugins`
        have the executors of types that are not ours."""
        refuse_in_child()
        if threads < 1 or (processes is not None and processes < 1):
            raise Rejected("limit-invalid", "at least one thread and one process are needed")
        self._clock = clock
        self._secrets = secrets
        self._http = Http()
        self._entries = {entry.name: entry for entry in registry}
        self._entries["http"] = entry_of(self._http, name="http")
        self._executors = Executors(plugins or NoPlugins())
        self._open: dict[Any, Execution] = {}
        self._late: dict[Execution, None] = {}
        self._listeners: list[Callable[[Job, Any], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ident = 0
        self._closing = False
        self._tapped = False
        self._empty: asyncio.Event | None = None
        self._deadlines: Deadlines[Execution] = Deadlines(clock, self._expired)
        self._threads: Threads[Execution] = Threads(
            threads,
            begun=self._entered,
            perform=self._in_thread,
            settle=self._ended,
            wanted=_wanted,
        )
        self._beside: Beside | None = None
        """The thread of transactional activities that are waited for."""
        self._processes: Processes[Execution] = Processes(
            processes or os.cpu_count() or 1,
            begun=self._entered,
            beat=self._heard_of_child,
            logged=self._logged_by_child,
            settle=self._ended,
            wanted=_wanted,
        )
        self._watchdog = Watchdog(self._entries.values()) if watch else None

    def now(self) -> float:
        return self._clock.now()

    @property
    def clock(self) -> Clock:
        return self._clock

    # What the engine asks.

    def get(self, name: str) -> Served | None:
        entry = self._entries.get(name) or self._added(name)
        return None if entry is None else entry.served

    def _added(self, name: str) -> Entry | None:
        """Of a type that a plugin added, made when it is first asked for."""
        entry = self._executors.entry(name)
        if entry is not None:
            self._entries[name] = entry
        return entry

    def names(self) -> list[str]:
        return [name for name in self._entries if name != "http" and not name.startswith(PREFIX)]

    def signature(self, name: str) -> Signature | None:
        from penstock.sdk.signatures import signature_of  # late: the verifier is heavy

        entry = self._entries.get(name)
        if entry is None:
            return None
        return signature_of(entry.function, without=entry.served.transactional)

    def on_heartbeat(self, listener: Callable[[Job, Any], None]) -> None:
        self._listeners.append(listener)

    @property
    def open_count(self) -> int:
        """Attempts that were begun and have not reported."""
        return len(self._open)

    @property
    def waiting_count(self) -> int:
        """Those of them that wait for a thread or a process."""
        return sum(map(_wanted, (*self._threads.waiting, *self._processes.waiting)))

    @property
    def late_count(self) -> int:
        """Attempts that were reported as timed out, or given up, and whose code still runs here."""
        return len(self._late)

    async def open(self) -> None:
        loop = self._bind()
        if self._watchdog is not None:
            self._watchdog.open(loop, self._open)

    def begin(self, job: Job, report: Report) -> None:
        loop = self._loop or self._bind()
        entry = self._entries.get(job.activity) or self._added(job.activity)
        if entry is None or self._closing:
            loop.call_soon(report, job, _unknown(job) if entry is None else Cut())
            return
        execution = Execution(self, job, entry, report)
        if job.secrets and not self._resolve(execution, loop):
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
            # Not `create_task`: an eager factory would call the activity, and `report`, inside of `begin`.
            execution.task = asyncio.Task(self._in_loop(execution), loop=loop, name=job.key)
            self._arm(execution)
        elif kind == "thread":
            self._threads.submit(execution)
        else:
            self._processes.submit(execution)

    def perform(self, job: Job) -> Outcome:
        entry = self._entries[job.activity]
        limit = job.start_to_close
        assert limit is not None
        told: list[Outcome] = []
        execution = Execution(self, job, entry, lambda _, outcome: told.append(outcome))
        try:
            secrets = {parameter: self._secret(name) for parameter, name in job.secrets}
        except Exception as error:
            outcome = broken(entry.name, error, entry.served.retry)
            outcome.final = isinstance(error, Rejected)
            return outcome
        execution.secrets = secrets or None
        execution.began = True
        self._open[execution.index] = execution
        if self._beside is None:
            self._beside = Beside()
        done = self._beside.call(lambda: self._in_thread_beside(execution), limit)
        if done is None:
            self._beside = None  # it is occupied by who is late
            self._expired(execution, limit)
        else:
            self._settle(execution, done)
        return told[0]

    def cancel(self, run_id: str, key: str, attempt: int) -> None:
        execution = self._open.get((run_id, key, attempt))
        if execution is None or execution.cancelled:
            return
        loop = self._loop or self._bind()
        execution.cancelled = True
        told = execution.began
        if execution.task is not None:
            execution.task.cancel()
        elif execution.entry.served.kind == "process":
            told = self._processes.cancel(execution)
        if not told:
            # Not one step of it was taken: it waits for its turn, and will not get one.
            loop.call_soon(self._settle, execution, _cancelled(execution))
        self._disarm(execution)
        execution.handle = self._clock.call_later(
            CANCEL_GRACE_SECONDS, lambda: self._give_up(execution)
        )

    async def close(self, *, drain_seconds: float) -> None:
        self._closing = True
        for each in (*self._threads.waiting, *self._processes.waiting):
            self._settle(each, Cut())
        if self._open and drain_seconds > 0:
            await self._drain(drain_seconds)
        tasks = [each.task for each in (*self._open.values(), *self._late) if each.task is not None]
        for each in list(self._open.values()):
            each.cancelled = True
            self._settle(each, Cut())
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CUT_SECONDS_MAX)
        self._threads.close()
        if self._beside is not None:
            self._beside.close()
        await self._processes.close()
        await self._http.close()
        await self._executors.close()
        if self._watchdog is not None:
            self._watchdog.close()
        if self._tapped:
            self._tapped = False
            close_tap()

    # Code that runs.

    async def _in_loop(self, execution: Execution) -> None:
        execution.began = True
        CURRENT.set(execution)
        entry = execution.entry
        try:
            job = execution.job
            given = execution.secrets if job.connection is None else execution.given
            result = await entry.parameters.call(job.arguments, given)
        except GeneratorExit as error:
            if asyncio.current_task() is not execution.task:
                raise  # the loop is gone and closes what is left of it
            self._ended(execution, self._raised(execution, error))
            return
        except BaseException as error:
            self._ended(execution, self._raised(execution, error))
            return
        outcome = returned(entry.name, result, entry.served.retry, entry.parameters.result)
        self._ended(execution, outcome)

    def _raised(self, execution: Execution, error: BaseException) -> Outcome:
        task = execution.task
        if (
            isinstance(error, asyncio.CancelledError)
            and not execution.cancelled
            and task is not None
            and task.cancelling()
        ):
            return Cut()  # someone ends all tasks of the loop, not this attempt
        served = execution.entry.served
        return broken(served.name, error, served.retry, execution.secrets)

    def _in_thread(self, execution: Execution) -> Outcome:
        CURRENT.set(execution)
        entry, job = execution.entry, execution.job
        retry = entry.served.retry
        return perform(entry.name, entry.parameters, job.arguments, execution.given, retry)

    def _in_thread_beside(self, execution: Execution) -> Outcome:
        outcome = self._in_thread(execution)
        loop = self._loop
        if execution.settled and loop is not None:  # late: nobody waits for it any more
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ended, execution, outcome)
        return outcome

    def _entered(self, execution: Execution) -> None:
        """A thread or a child process has it: its time begins."""
        execution.began = True
        self._arm(execution)

    # Heartbeats.

    def heard(self, execution: Execution) -> None:
        """A heartbeat, in the loop or in any thread."""
        execution.beat_at = self._clock.ticks()
        if threading.get_ident() == self._ident:
            self._tell(execution)
        elif not execution.beating:
            # At most one on its way: the latest progress is what it will find.
            execution.beating = True
            loop = self._loop
            assert loop is not None
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
                loop.call_soon_threadsafe(self._tell, execution)

    def _heard_of_child(self, execution: Execution, progress: Any) -> None:
        execution.progress = progress
        execution.beat_at = self._clock.ticks()
        self._tell(execution)

    def _logged_by_child(self, execution: Execution, lines: list[Numbered]) -> None:
        logs = execution.logs
        if logs is None:
            logs = execution.logs = Logs()
        for each in lines:
            logs.put(each)

    def _tell(self, execution: Execution) -> None:
        execution.beating = False
        if execution.settled:
            return
        for listener in self._listeners:
            try:
                # Not in the attempt's own context: what the listener sets going is no part of it.
                Context().run(listener, execution.job, execution.progress)
            except Exception:
                log.exception("heartbeat.listener-failed activity=%s", execution.entry.name)

    # Ends.

    def _ended(self, execution: Execution, outcome: Outcome) -> None:
        """Its code has come to an end, wanted or not."""
        execution.task = None  # which holds the execution: no cycle is left for the collector, which costs a fifth
        if execution.settled:
            if execution in self._late:
                del self._late[execution]
                log.info(
                    "activity.ended-late activity=%s run=%s key=%s",
                    execution.entry.name,
                    execution.job.run_id,
                    execution.job.key,
                )
            return
        if execution.cancelled and type(outcome) is Broken:
            outcome = _cancelled(execution, outcome.failure)
        self._settle(execution, outcome)

    def _settle(self, execution: Execution, outcome: Outcome) -> None:
        if execution.settled:
            return
        execution.settled = True
        if execution.logs is not None and isinstance(outcome, Done | Broken):
            outcome.logs = execution.logs.lines()
        del self._open[execution.index]
        if execution.limit is not None or execution.handle is not None:
            self._disarm(execution)
        if self._empty is not None and not self._open:
            self._empty.set()
        try:
            execution.report(execution.job, outcome)
        except Exception:
            log.exception("report.failed activity=%s", execution.entry.name)

    def _give_up(self, execution: Execution) -> None:
        """Told to end, and still there after its grace."""
        execution.handle = None
        self._abandon(execution, _cancelled(execution))

    def _abandon(self, execution: Execution, outcome: Outcome) -> None:
        """Report now; what the code does from here on is dropped."""
        if execution.settled:
            return
        execution.cancelled = True
        if execution.task is not None:
            execution.task.cancel()
        elif execution.entry.served.kind == "process":
            self._processes.kill(execution)
        if execution.began and execution.entry.served.kind != "process":
            self._late[execution] = None
        if execution.entry.served.kind == "thread":
            # It cannot be stopped, and its place is taken until it returns.
            log.warning(
                "thread.occupied activity=%s run=%s key=%s threads=%d late=%d",
                execution.entry.name,
                execution.job.run_id,
                execution.job.key,
                self._threads.count,
                len(self._late),
            )
        self._settle(execution, outcome)

    async def _drain(self, seconds: float) -> None:
        self._empty = asyncio.Event()
        handle = self._clock.call_later(seconds, self._empty.set)
        try:
            await self._empty.wait()
        finally:
            handle.cancel()
            self._empty = None

    # Time limits.

    def _arm(self, execution: Execution) -> None:
        job, served = execution.job, execution.entry.served
        limit = job.start_to_close
        if limit is None:
            limit = served.start_to_close
        if limit is not None:
            execution.limit = limit
            self._deadlines.add(execution, limit)
        heartbeat = job.heartbeat
        if heartbeat is None:
            heartbeat = served.heartbeat
        if heartbeat is not None:
            execution.beat_at = self._clock.ticks()
            self._await_beat(execution, heartbeat)

    def _disarm(self, execution: Execution) -> None:
        if execution.limit is not None:
            self._deadlines.remove(execution, execution.limit)
            execution.limit = None
        if execution.handle is not None:
            execution.handle.cancel()
            execution.handle = None

    def _expired(self, execution: Execution, limit: float) -> None:
        message = (
            f"activity `{execution.entry.name}` did not end within {limit:g} s (start to close)"
        )
        failure = Failure("timeout", message, details={"limit_seconds": limit})
        self._abandon(execution, Broken(failure, execution.entry.served.retry))

    def _await_beat(self, execution: Execution, limit: float) -> None:
        left = execution.beat_at + limit - self._clock.ticks()
        execution.handle = self._clock.call_later(left, lambda: self._check_beat(execution, limit))

    def _check_beat(self, execution: Execution, limit: float) -> None:
        execution.handle = None
        if execution.beat_at + limit > self._clock.ticks():
            self._await_beat(execution, limit)
            return
        message = f"activity `{execution.entry.name}` gave no heartbeat for {limit:g} s"
        failure = Failure("heartbeat-timeout", message, details={"limit_seconds": limit})
        self._abandon(execution, Broken(failure, execution.entry.served.retry))

    # Secrets.

    def _resolve(self, execution: Execution, loop: asyncio.AbstractEventLoop) -> bool:
        """Look up the secrets of a job; where that fails, so does the attempt."""
        job, served = execution.job, execution.entry.served
        try:
            execution.secrets = {parameter: self._secret(name) for parameter, name in job.secrets}
        except Exception as error:
            outcome = broken(served.name, error, served.retry)
            outcome.final = isinstance(error, Rejected)
            loop.call_soon(execution.report, job, outcome)
            return False
        return True

    def _secret(self, name: str) -> str:
        source = self._secrets
        value = None
        if isinstance(source, Mapping):
            value = cast("Mapping[str, str]", source).get(name)
        elif source is not None:
            value = source(name)
        if value is None:
            message = f"no secret is named `{name}` where the activity runs"
            raise Rejected("secret-missing", message, secret=name)
        return value

    def _bind(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        self._ident = threading.get_ident()
        if not self._tapped:
            self._tapped = True
            open_tap()
        return self._loop


def _wanted(execution: Execution) -> bool:
    return not execution.settled


def _cancelled(execution: Execution, cause: Failure | None = None) -> Broken:
    served = execution.entry.served
    if cause is not None and cause.type == "CancelledError":
        cause = None  # that says nothing new
    message = f"activity `{served.name}` was cancelled"
    return Broken(Failure("cancelled", message, cause=cause), served.retry)


def _unknown(job: Job) -> Broken:
    message = f"no activity is named `{job.activity}` in this process"
    return Broken(Failure("unknown-activity", message), final=True)
