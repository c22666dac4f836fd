"""Attempts of this process: from the effect that wants one to the command that says what came of it (SPEC 4.3).

A ticket names an attempt; it is held while the attempt is queued, under way or waiting for its time, so that nobody
begins it twice. Which goes next is chosen by `engine/dispatch.py`; the activity is called by `sdk/worker.py`.
"""

from __future__ import annotations

import asyncio
import logging
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, cast

from penstock.core.decide import LOST_CAREFUL
from penstock.core.flow import Flow
from penstock.core.plan import Node
from penstock.core.values import Need, decode
from penstock.engine import points
from penstock.engine.dispatch import Dispatch, Ticket
from penstock.engine.history import Entry
from penstock.engine.inbox import Item
from penstock.errors import PenstockError
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model.failure import Failure
from penstock.model.job import Broken, Cut, Done, Job, Outcome
from penstock.model.payload import encode_payload
from penstock.model.run import RETRYING, RUNNING, SCHEDULED, Run
from penstock.ports.activities import Served

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

LONG_SECONDS = 1.0
"""An attempt older than this gets its `TaskStarted` in the next commit (SPEC 4.3)."""
PROGRESS_SECONDS = 1.0
"""Heartbeats of one attempt are stored at most this often."""
AGAIN_SECONDS = 0.5


class Route:
    """What every attempt of one task has in common."""

    __slots__ = ("activity", "heartbeat", "implied", "once", "patience", "served", "start_to_close")

    def __init__(self, flow: Flow, node: Node, served: Served | None, activity: str) -> None:
        limits, defaults = node.timeouts, flow.plan.definition.timeouts
        self.activity, self.served = activity, served
        self.start_to_close = (
            limits.start_to_close
            or (defaults and defaults.start_to_close)
            or (served and served.start_to_close)
        )
        self.heartbeat = (
            limits.heartbeat or (defaults and defaults.heartbeat) or (served and served.heartbeat)
        )
        self.patience = limits.schedule_to_start or (defaults and defaults.schedule_to_start)
        self.once = bool(node.config.get("once")) or bool(served and served.once)
        given = {each.name for each in node.inputs}
        self.implied: tuple[str, ...] = ()
        """Parameters that no input names: looked up by name (SPEC 2.6)."""
        if served is not None and node.type != "http":
            self.implied = tuple(name for name in served.parameters if name not in given)


class Attempts:
    def __init__(self, engine: Engine, *, limit: int) -> None:
        self._engine = engine
        self.dispatch = Dispatch(self._begin, limit=limit)
        self._routes: dict[Node, Route] = {}
        self._known: set[Ticket] = set()
        """Queued, under way, or waiting for their time."""
        self._busy: dict[str, int] = {}
        """How many of those a run has: it stays in memory while it has any."""
        self._jobs: dict[Ticket, Job] = {}
        """Under way, or over and not on disk yet."""
        self._fresh: dict[Ticket, None] = {}
        """Those of them that have no `TaskStarted`, the oldest first."""
        self._pulsing = False
        self._progress: dict[tuple[str, str], tuple[float, bytes]] = {}
        self._bringing: set[Ticket] = set()
        """Those that wait for values they are to be called with."""
        self._careful: list[tuple[int, int, Ticket]] = []
        """A heap: those that were less often lost under suspicion first, so that another's crashes hit each in turn."""
        self._careful_count = 0
        self._careful_now: Ticket | None = None
        self.unserved: dict[str, list[Ticket]] = {}
        """Those whose activity nobody here serves, by its name: they wait for a worker."""
        engine.activities.on_heartbeat(self._heartbeat)

    # --- what the engine asks --------------------------------------------------------------------------------

    def want(self, entry: Entry, effect: f.Execute) -> None:
        """The state wants this attempt, now or when it is due."""
        run = entry.flow.run
        ticket = (run.id, effect.key, effect.attempt, effect.undo)
        if ticket in self._known or (run.paused and not effect.undo):
            return
        self._known.add(ticket)
        self._busy[run.id] = self._busy.get(run.id, 0) + 1
        if effect.due is not None and effect.due > self._engine.clock.now():
            self._engine.timers.add(effect.due, self._due, ticket)
        else:
            self._offer(ticket, run.priority, run.deadline)

    def abandon(self, run: Run, effect: f.Abandon) -> None:
        """It still reports; but one that was never begun here has nobody to report it, so that is recorded at once."""
        ticket = (run.id, effect.key, effect.attempt, False)
        if ticket in self._jobs:
            self._tell(ticket)
        elif run.stopping is not None:
            failure = Failure(code="cancelled", message=f"`{effect.key}` was not begun any more")
            command = c.FailTask(
                at=self._engine.clock.now(), key=effect.key, attempt=effect.attempt, failure=failure
            )
            self._engine.post(run.id, Item(command))

    def keep(self, run_id: str, wanted: list[f.Effect]) -> None:
        """Another has written: attempts of the run that are not wanted any more are told."""
        if run_id not in self._busy:
            return
        attempts = {(run_id, e.key, e.attempt, e.undo) for e in wanted if isinstance(e, f.Execute)}
        for ticket in [t for t in self._jobs if t[0] == run_id and t not in attempts]:
            self._tell(ticket)

    def _tell(self, ticket: Ticket) -> None:
        """It is not wanted any more. Activities do not tell an undo from the task's own attempt of that number, which
        they told when the undo began."""
        run_id, key, attempt, undo = ticket
        if undo or (run_id, key, attempt, True) not in self._jobs:
            self._engine.activities.cancel(run_id, key, attempt)

    def busy(self, run_id: str) -> bool:
        return run_id in self._busy

    def known(self, run_id: str, effect: f.Execute | f.Abandon) -> bool:
        """This very process is at that attempt."""
        return (
            run_id,
            effect.key,
            effect.attempt,
            isinstance(effect, f.Execute) and effect.undo,
        ) in self._known

    def once(self, entry: Entry, key: str) -> bool:
        """The task, or its activity, says that it runs at most once."""
        try:
            node = entry.flow.locate(key)[2]
        except KeyError:
            return False
        return node.type == "activity" and self._route(entry.flow, node).once

    def hold(self, ticket: Ticket) -> None:
        """What came of the attempt is on its way to the store: nobody begins it before that is there."""
        if ticket not in self._known:
            self._known.add(ticket)
            self._busy[ticket[0]] = self._busy.get(ticket[0], 0) + 1

    def told(self, ticket: Ticket) -> None:
        """What came of the attempt is on disk, or counts no more."""
        self._jobs.pop(ticket, None)
        self._fresh.pop(ticket, None)
        self._drop(ticket)

    def lost_ownership(self) -> None:
        """Nothing that is under way here counts any more."""
        self._known.clear()
        self._busy.clear()
        self.unserved.clear()
        for ticket in list(self._jobs):
            self._tell(ticket)

    def working(self) -> bool:
        """An attempt is under way that does not just wait in the event loop."""
        return any(
            (served := self._engine.activities.get(job.activity)) is not None
            and served.kind != "loop"
            for job in self._jobs.values()
        )

    # --- beginning -------------------------------------------------------------------------------------------

    def _due(self, ticket: Ticket) -> None:
        """Its time has come, unless a pause has put it off."""
        if ticket not in self._known:
            return
        engine = self._engine
        entry = engine.cache.get(ticket[0])
        if entry is None:
            self._drop(ticket)
            engine.post(ticket[0], Item(None))
            return
        run, due = entry.flow.run, _due_of(entry.flow, ticket)
        if due is not None and due > engine.clock.now():
            engine.timers.add(due, self._due, ticket)
        else:
            self._offer(ticket, run.priority, run.deadline)

    def _offer(self, ticket: Ticket, priority: int, deadline: float | None) -> None:
        if ticket not in self._known:
            return
        self.dispatch.offer(ticket, priority, deadline)
        if len(self.dispatch):
            self._be_patient(ticket)

    def _be_patient(self, ticket: Ticket) -> None:
        limit = None if ticket[3] else self._patience(ticket)
        if limit is not None:
            self._engine.timers.add(self._engine.clock.now() + limit, self._waited, ticket, limit)

    def _patience(self, ticket: Ticket) -> float | None:
        """How long the attempt may wait for a place (`scheduleToStart`)."""
        entry = self._engine.cache.get(ticket[0])
        if entry is None:
            return None
        try:
            return self._route(entry.flow, entry.flow.locate(ticket[1])[2]).patience
        except KeyError:
            return None

    def _waited(self, ticket: Ticket, limit: float) -> None:
        """The attempt has waited for long enough, and is failed without having begun."""
        if ticket not in self._known or ticket in self._jobs or self._engine.owner is None:
            return
        what = "a place to run"
        for activity, waiting in self.unserved.items():
            if ticket in waiting:
                waiting.remove(ticket)
                what = f"a worker that serves `{activity}`"
        entry = self._engine.cache.get(ticket[0])
        self._drop(ticket)
        if entry is not None and entry.flow.run.paused:
            return  # the resume wants it again
        failure = Failure(
            code="schedule-to-start", message=f"`{ticket[1]}` waited {limit:g} s for {what}"
        )
        command = c.FailTask(
            at=self._engine.clock.now(), key=ticket[1], attempt=ticket[2], failure=failure
        )
        self._engine.post(ticket[0], Item(command))

    def _begin(self, ticket: Ticket) -> bool:
        """Begin an attempt, if the state still wants it."""
        if points.reach is not None:
            points.reach("dispatch.before")
        if ticket not in self._known:
            return False  # it has waited for too long
        engine = self._engine
        entry = engine.cache.get(ticket[0])
        if entry is None:
            # It left the memory because another wrote; loading it again offers what is still wanted.
            self._drop(ticket)
            engine.post(ticket[0], Item(None))
            return False
        job = self._job(entry, ticket)
        if job is None:
            if ticket not in self._bringing:
                self._drop(ticket)
            return False
        if engine.activities.get(job.activity) is None:
            self.unserved.setdefault(job.activity, []).append(ticket)
            log.warning("activity.unserved", extra={"activity": job.activity, "run": ticket[0]})
            self._be_patient(ticket)
            return False
        if job.lost >= LOST_CAREFUL and not job.recorded:
            self._careful_count += 1
            heappush(self._careful, (job.poison, self._careful_count, ticket))
            asyncio.get_running_loop().call_soon(
                self._next_careful
            )  # once all of this commit are here
            return True
        if job.once and not job.recorded:
            engine.errands.run(self._begin_recorded(ticket, job))
            return True
        self._jobs[ticket] = job
        engine.activities.begin(job, self._report)
        if points.reach is not None:
            points.reach("undo.begun" if job.undo else "dispatch.after")
        self._fresh[ticket] = None
        if not self._pulsing:
            self._pulsing = True
            engine.timers.add(job.started_at + LONG_SECONDS, self._pulse)
        return True

    def _next_careful(self) -> None:
        """After losses attempts are begun one at a time, each after its `TaskStarted` is stored."""
        while self._careful_now is None and self._careful and not self._engine.stopping:
            ticket = heappop(self._careful)[2]
            entry = self._engine.cache.get(ticket[0])
            job = None if entry is None else self._job(entry, ticket)
            if job is None:
                if ticket not in self._bringing:
                    self._drop(ticket)
                self.dispatch.done()
                continue
            self._careful_now = ticket
            self._engine.errands.run(self._begin_recorded(ticket, job))

    async def _begin_recorded(self, ticket: Ticket, job: Job) -> None:
        engine = self._engine
        if not job.undo:
            try:
                await engine.command(
                    job.run_id,
                    c.StartTask(
                        at=job.started_at, key=job.key, attempt=job.attempt, worker=engine.node
                    ),
                )
            except PenstockError:
                self._free(ticket)
                return
        if points.reach is not None:
            points.reach("dispatch.recorded")
        if engine.stopping:
            return
        entry = engine.cache.get(job.run_id)
        owned = engine.owner is not None and ticket in self._known
        if not owned or entry is None or not _underway(entry.flow, job):
            # Not wanted any more, or another wrote, or this process is the owner no longer: whoever loads the run, as
            # its owner, begins it.
            self._free(ticket)
            return
        self._jobs[ticket] = job
        engine.activities.begin(job, self._report)

    def _route(self, flow: Flow, node: Node) -> Route:
        route = self._routes.get(node)
        if route is None:
            activity = "http" if node.type == "http" else str(node.config.get("activity", ""))
            route = self._routes[node] = Route(
                flow, node, self._engine.activities.get(activity), activity
            )
        return route

    def _job(self, entry: Entry, ticket: Ticket) -> Job | None:
        """The attempt as a job, or None if the state does not want it any more."""
        run_id, key, attempt, undo = ticket
        flow = entry.flow
        run = flow.run
        if run.closed:
            return None
        if undo:
            return self._undo_job(run, key, attempt)
        try:
            path, scope, node, state = flow.locate(key)
        except KeyError:
            return None
        if (
            state.attempt != attempt
            or run.paused
            or state.status not in (SCHEDULED, RETRYING, RUNNING)
        ):
            return None
        if run.stopping is not None:
            return None
        try:
            arguments, secrets = flow.arguments_of(path, scope, node, state)
        except Need as need:
            if ticket not in self._bringing:
                self._bringing.add(ticket)
                self._engine.errands.run(self._bring_and_offer(entry, ticket, need.refs))
            return None
        route = self._routes.get(node) or self._route(flow, node)
        if route.implied:
            self._imply(flow, route.implied, arguments)
        progress = None if state.progress is None else decode(state.progress)
        # By position, as names cost as much again: this is made for every attempt.
        return Job(
            run_id, run.generation, key, attempt, route.activity, arguments, route.start_to_close, route.heartbeat,
            progress, secrets, route.once, False, self._engine.clock.now(), state.lost, state.poison, state.started,
        )  # fmt: skip

    def _undo_job(self, run: Run, key: str, attempt: int) -> Job | None:
        undoing = run.undoing.get(key)
        if undoing is None or undoing.attempt != attempt:
            return None
        return Job(
            run_id=run.id, generation=run.generation, key=key, attempt=attempt, activity=undoing.entry.activity,
            arguments=decode(bytes(undoing.entry.arguments)), undo=True, started_at=self._engine.clock.now(),
            lost=undoing.lost, poison=undoing.lost,
        )  # fmt: skip

    def _imply(self, flow: Flow, names: tuple[str, ...], values: dict[str, Any]) -> None:
        """Parameters that no input names, from run data, the run's input, global data (SPEC 2.6)."""
        run = flow.run
        given: Any = flow.input() if run.input is not None else None
        for name in names:
            if name in values:
                continue
            if name in run.data:
                values[name] = decode(bytes(run.data[name].value))
            elif isinstance(given, dict) and name in given:
                values[name] = cast("dict[str, Any]", given)[name]
            elif name in self._engine.globals:
                values[name] = self._engine.globals[name]

    async def _bring_and_offer(self, entry: Entry, ticket: Ticket, refs: set[int]) -> None:
        """The ticket is held meanwhile, so that nobody else begins the attempt."""
        engine = self._engine
        try:
            await engine.history.bring(entry.flow, entry.row.key, refs)
        except PenstockError:
            self._drop(ticket)
            engine.timers.add(
                engine.clock.now() + AGAIN_SECONDS, engine.post, ticket[0], Item(None)
            )
            raise
        finally:
            self._bringing.discard(ticket)
        self._offer(ticket, entry.flow.run.priority, entry.flow.run.deadline)

    # --- ending ----------------------------------------------------------------------------------------------

    def _drop(self, ticket: Ticket) -> None:
        if ticket not in self._known:
            return
        self._known.discard(ticket)
        run_id = ticket[0]
        left = self._busy[run_id] - 1
        if left:
            self._busy[run_id] = left
            return
        del self._busy[run_id]
        self._engine.forget(run_id)

    def _free(self, ticket: Ticket) -> None:
        """The attempt is over, one way or the other, and nothing is to be told of it."""
        self.told(ticket)
        self._leave(ticket)

    def _leave(self, ticket: Ticket) -> None:
        """Its place is for the next one."""
        if self._careful_now == ticket:
            self._careful_now = None
            self._next_careful()
        self.dispatch.done()

    def _report(self, job: Job, outcome: Outcome) -> None:
        """An attempt has ended; what it gave goes into the run's inbox."""
        if points.reach is not None:
            points.reach("report.before")
        engine = self._engine
        run_id, key, attempt = job.run_id, job.key, job.attempt
        ticket = (run_id, key, attempt, job.undo)
        if engine.owner is None:
            self.told(ticket)  # begun as the owner, which this process is no longer
        else:
            now = engine.clock.now()
            if type(outcome) is Done:
                command = c.CompleteTask(
                    at=now, key=key, attempt=attempt, output=outcome.output, logs=outcome.logs,
                    undo=job.undo,
                )  # fmt: skip
                if self._progress:
                    self._progress.pop((run_id, key), None)
            else:
                command = self._broken(job, outcome, now)
            # Held until it is on disk: else whoever looks at the state meanwhile begins the attempt again.
            engine.post(run_id, Item(command, ticket=ticket))
        if points.reach is not None:
            points.reach("report.after")
        self._leave(ticket)

    def _broken(self, job: Job, outcome: Outcome, now: float) -> c.Command:
        beaten = self._progress.pop((job.run_id, job.key), None)
        progress = None if beaten is None else beaten[1]
        if isinstance(outcome, Broken):
            return c.FailTask(
                at=now, key=job.key, attempt=job.attempt, failure=outcome.failure, retry=outcome.retry,
                final=outcome.final, died=outcome.died, progress=progress, logs=outcome.logs, once=job.once,
                undo=job.undo,
            )  # fmt: skip
        assert isinstance(outcome, Cut)
        return c.LoseTask(
            at=now, key=job.key, attempt=job.attempt, progress=progress, once=job.once, undo=job.undo, cut=True
        )  # fmt: skip

    def _heartbeat(self, job: Job, progress: Any) -> None:
        if self._engine.owner is None:
            return
        raw = encode_payload(progress)
        now = self._engine.clock.now()
        last = self._progress.get((job.run_id, job.key))
        if last is not None and now - last[0] < PROGRESS_SECONDS:
            self._progress[(job.run_id, job.key)] = (last[0], raw)
            return
        self._progress[(job.run_id, job.key)] = (now, raw)
        if raw != b"null":
            command = c.RecordProgress(at=now, key=job.key, attempt=job.attempt, progress=raw)
            self._engine.post(job.run_id, Item(command))

    def _pulse(self) -> None:
        """Attempts that have run for a second get their `TaskStarted` in the next commit, not waited for."""
        engine, fresh = self._engine, self._fresh
        now = engine.clock.now()
        begun = now
        long: list[Ticket] = []
        for ticket in fresh:
            begun = self._jobs[ticket].started_at
            if begun > now - LONG_SECONDS:
                break
            long.append(ticket)
            if not ticket[3] and engine.owner is not None:
                command = c.StartTask(
                    at=now, key=ticket[1], attempt=ticket[2], worker=engine.node, began=begun
                )
                engine.post(ticket[0], Item(command))
        for ticket in long:
            del fresh[ticket]
        self._pulsing = bool(fresh)
        if fresh:
            engine.timers.add(begun + LONG_SECONDS, self._pulse)


def _due_of(flow: Flow, ticket: Ticket) -> float | None:
    """When the attempt is to begin, as the state says now."""
    if ticket[3]:
        undoing = flow.run.undoing.get(ticket[1])
        return None if undoing is None or undoing.attempt != ticket[2] else undoing.due
    try:
        state = flow.locate(ticket[1])[3]
    except KeyError:
        return None
    return state.due if state.status == RETRYING and state.attempt == ticket[2] else None


def _underway(flow: Flow, job: Job) -> bool:
    """It is recorded that the attempt begins, and nothing has come of it yet."""
    run = flow.run
    if job.undo:
        undoing = run.undoing.get(job.key)
        return undoing is not None and undoing.attempt == job.attempt
    try:
        state = flow.locate(job.key)[3]
    except KeyError:
        return False
    return state.started and state.attempt == job.attempt and run.stopping is None
