"""Attempts of this process: from the effect that wants one to the command that says what came of it (SPEC 4.3).

A ticket names an attempt; it is held while the attempt is queued, under way or waiting for its time, so that nobody
begins it twice. Which goes next is chosen by `engine/dispatch.py`; the activity is called by `sdk/worker.py`.
"""

from __future__ import annotations

import asyncio
import logging
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from penstock.core.attempts import LOST_CAREFUL, POISON_LOSSES
from penstock.core.functions import told
from penstock.core.owed import owed
from penstock.core.values import Need
from penstock.engine import points
from penstock.engine.dispatch import Dispatch, Ticket
from penstock.engine.history import Entry
from penstock.engine.inbox import Item
from penstock.engine.jobs import Jobs, due_of, underway
from penstock.engine.queues import HIGH
from penstock.errors import CompleteLater, EvaluationError, PenstockError
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model.failure import Failure
from penstock.model.job import Broken, Cut, Done, Job, Outcome
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX, encode_payload
from penstock.model.queue import DEFAULT
from penstock.model.run import Run

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.ports.transactions import Transaction

log = logging.getLogger("penstock.engine")

LONG_SECONDS = 1.0
"""An attempt older than this gets its `TaskStarted` in the next commit (SPEC 4.3)."""
PROGRESS_SECONDS = 1.0
"""Heartbeats of one attempt are stored at most this often."""
AGAIN_SECONDS = 0.5
CALM_SECONDS = 2.0
"""An attempt whose next loss fails it as `poison` is begun only by a process that has lived for so long without it
(decision 6)."""


class Attempts:
    def __init__(self, engine: Engine, *, limit: int) -> None:
        self._engine = engine
        self.dispatch = Dispatch(
            self._begin, engine.clock, engine.timers, limit=limit, options=engine.settings.queues
        )
        self._make = Jobs(engine)
        self._known: set[Ticket] = set()
        """Queued, under way, or waiting for their time."""
        self._timed: set[Ticket] = set()
        """Those of them that wait for their time."""
        self.paused: set[str] = set()
        """Definitions that an operator has paused: no attempt of their runs is begun."""
        self._held: dict[str, dict[str, None]] = {}
        """Runs that have something to begin and belong to those, by definition."""
        self._lapsed: dict[str, None] = {}
        """Runs that have something to begin, once the lease is renewed."""
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
        self._calm_at = 0.0
        self.unserved: dict[str, list[Ticket]] = {}
        """Those whose activity nobody here serves, by its name: they wait for a worker."""
        engine.activities.on_heartbeat(self._heartbeat)

    # --- what the engine asks --------------------------------------------------------------------------------

    def want(self, entry: Entry, effect: f.Execute) -> None:
        """The state wants this attempt, now or when it is due."""
        run = entry.flow.run
        ticket = (run.id, effect.key, effect.attempt, effect.undo, run.generation)
        if ticket in self._known:
            if effect.due is not None and ticket in self._timed:
                self._due(ticket)  # somebody may have fired it before its time
            return
        if run.paused and not effect.undo:
            return
        self._known.add(ticket)
        self._busy[run.id] = self._busy.get(run.id, 0) + 1
        if effect.due is not None and effect.due > self._engine.clock.now():
            self._timed.add(ticket)
            self._engine.timers.add(effect.due, self._due, ticket)
        else:
            self._offer(ticket, entry)

    def abandon(self, run: Run, effect: f.Abandon) -> None:
        """It still reports; but one that was never begun here has nobody to report it, so that is recorded at once."""
        ticket = (run.id, effect.key, effect.attempt, False, run.generation)
        if ticket in self._jobs:
            self._tell(ticket)
        elif run.stopping is not None or effect.key in run.ending or told(run, effect.key):
            failure = Failure(code="cancelled", message=f"`{effect.key}` was not begun any more")
            command = c.FailTask(
                at=self._engine.clock.now(), key=effect.key, attempt=effect.attempt, failure=failure,
                generation=run.generation,
            )  # fmt: skip
            self._engine.post(run.id, Item(command))

    def promote(self, entry: Entry) -> None:
        """What the run has waiting goes first from now on."""
        run = entry.flow.run
        for effect in owed(run) if self.dispatch.waiting else ():
            if isinstance(effect, f.Execute):
                self.dispatch.promote(
                    (run.id, effect.key, effect.attempt, effect.undo, run.generation)
                )

    def keep(self, run: Run, wanted: list[f.Effect]) -> None:
        """Another has written: attempts of the run that are not wanted any more are told."""
        run_id = run.id
        if run_id not in self._busy:
            return
        attempts = {
            (run_id, e.key, e.attempt, e.undo, run.generation)
            for e in wanted
            if isinstance(e, f.Execute)
        }
        for ticket in [t for t in self._jobs if t[0] == run_id and t not in attempts]:
            self._tell(ticket)

    def _tell(self, ticket: Ticket) -> None:
        """It is not wanted any more. Activities do not tell an undo from the task's own attempt of that number, nor
        that of one generation from the next: the older were told when the newer began."""
        run_id, key, attempt, undo, generation = ticket
        newer = (
            each
            for each in self._jobs
            if each[:3] == ticket[:3] and (each[4], each[3]) > (generation, undo)
        )
        if next(newer, None) is None:
            self._engine.activities.cancel(run_id, key, attempt)

    def busy(self, run_id: str) -> bool:
        return run_id in self._busy

    def known(self, ticket: Ticket) -> bool:
        """This very process is at that attempt."""
        return ticket in self._known

    def once(self, entry: Entry, key: str) -> bool:
        """The task, or its activity, says that it runs at most once."""
        try:
            node = entry.flow.locate(key)[2]
        except KeyError:
            return False
        known = node.type == "activity" or node.added is not None
        return known and self._make.route(entry.flow, node).once

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
        self._timed.clear()
        self._busy.clear()
        self._lapsed.clear()
        self.unserved.clear()
        self.dispatch.clear()
        for ticket in list(self._jobs):
            self._tell(ticket)

    def renewed(self) -> None:
        """The lease holds again: what was put off begins."""
        lapsed, self._lapsed = self._lapsed, {}
        for run_id in lapsed:
            self._engine.post(run_id, Item(None))

    def under_way(self) -> set[Ticket]:
        return set(self._jobs)

    def working(self) -> bool:
        """An attempt is under way that does not just wait in the event loop."""
        return any(
            (served := self._engine.activities.get(job.activity)) is not None
            and served.kind != "loop"
            for job in self._jobs.values()
        )

    def pause(self, definitions: set[str]) -> None:
        """Which definitions are paused from now on; what was held of the others begins."""
        self.paused = definitions
        for definition in [each for each in self._held if each not in definitions]:
            for run_id in self._held.pop(definition):
                self._engine.post(run_id, Item(None))

    # --- beginning -------------------------------------------------------------------------------------------

    def _due(self, ticket: Ticket) -> None:
        """Its time has come, unless a pause has put it off, or it was fired before."""
        if ticket not in self._known or ticket not in self._timed:
            return
        engine = self._engine
        entry = engine.cache.get(ticket[0])
        if entry is None:
            self._drop(ticket)
            engine.post(ticket[0], Item(None))
            return
        due = due_of(entry.flow, ticket)
        if due is not None and due > engine.clock.now():
            engine.timers.add(due, self._due, ticket)
        else:
            self._timed.discard(ticket)
            self._offer(ticket, entry)

    def _offer(self, ticket: Ticket, entry: Entry) -> None:
        if ticket not in self._known:
            return
        dispatch = self.dispatch
        if not entry.flow.plan.queued and dispatch.at_once(ticket):
            return
        self._enqueue(ticket, entry)
        if ticket in dispatch.waiting:
            self._be_patient(ticket)

    def _enqueue(self, ticket: Ticket, entry: Entry) -> None:
        """Into its queue. What a compensation calls is another activity: it has no limits but the node's."""
        flow, run = entry.flow, entry.flow.run
        queue, priority, key, limit = DEFAULT, run.priority, None, 0
        if not ticket[3] and flow.plan.queued:
            try:
                path, _, node, _ = flow.locate(ticket[1])
                route = self._make.route(flow, node)
                queue, limit = route.queue, route.key_limit
                priority = priority if route.priority is None else route.priority
                key = self._make.key(flow, path, route)
            except KeyError:
                self._drop(ticket)
                return
            except Need as need:
                self._bring(entry, ticket, need.refs)
                return
            except EvaluationError as error:
                self._refuse(
                    ticket, "expression-failed", f"the key limit of `{ticket[1]}`: {error}"
                )
                return
        if run.escalated:
            priority = HIGH
        self.dispatch.offer(
            ticket, priority, run.deadline, queue=queue, tenant=self._engine.settings.tenant_of(run),
            key=key, key_limit=limit,
        )  # fmt: skip

    def _refuse(self, ticket: Ticket, code: str, message: str) -> None:
        """The attempt fails without having begun."""
        self._drop(ticket)
        command = c.FailTask(
            at=self._engine.clock.now(), key=ticket[1], attempt=ticket[2], failure=Failure(code=code, message=message),
            final=code == "expression-failed", generation=ticket[4],
        )  # fmt: skip
        self._engine.post(ticket[0], Item(command))

    def _bring(self, entry: Entry, ticket: Ticket, refs: set[int]) -> None:
        if ticket not in self._bringing:
            self._bringing.add(ticket)
            self._engine.errands.run(self._bring_and_offer(entry, ticket, refs))

    def _be_patient(self, ticket: Ticket) -> None:
        limit = None if ticket[3] else self._patience(ticket)
        if limit is not None:
            self._engine.timers.after(limit, self._waited, ticket, limit)

    def _patience(self, ticket: Ticket) -> float | None:
        """How long the attempt may wait for a place (`scheduleToStart`)."""
        entry = self._engine.cache.get(ticket[0])
        if entry is None:
            return None
        try:
            return self._make.route(entry.flow, entry.flow.locate(ticket[1])[2]).patience
        except KeyError:
            return None

    def _waited(self, ticket: Ticket, limit: float) -> None:
        """The attempt has waited for long enough, and is failed without having begun."""
        if ticket not in self._known or ticket in self._jobs or self._engine.owner is None:
            return
        waits = self.dispatch.why(ticket)
        what = "a place to run" if waits is None else waits[0]
        for activity, waiting in self.unserved.items():
            if ticket in waiting:
                waiting.remove(ticket)
                what = f"a worker that serves `{activity}`"
        entry = self._engine.cache.get(ticket[0])
        if entry is not None and entry.flow.run.paused:
            self._drop(ticket)  # the resume wants it again
            return
        self._refuse(ticket, "schedule-to-start", f"`{ticket[1]}` waited {limit:g} s for {what}")

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
        if engine.lease_until < engine.clock.ticks():
            self._lapsed[ticket[0]] = None
            self._drop(ticket)
            return False
        if self.paused and entry.row.definition in self.paused and not ticket[3]:
            self._held.setdefault(entry.row.definition, {})[ticket[0]] = None
            self._drop(ticket)
            return False
        try:
            job = self._make.job(entry.flow, ticket)
        except Need as need:
            self._bring(entry, ticket, need.refs)
            return False
        if job is None:
            if ticket not in self._bringing:
                self._drop(ticket)
            return False
        served = engine.activities.get(job.activity)
        if served is None:
            self.unserved.setdefault(job.activity, []).append(ticket)
            log.warning(
                "activity.unserved: run %s waits for a process that serves activity `%s`", ticket[0], job.activity,
                extra={"activity": job.activity, "run": ticket[0]},
            )  # fmt: skip
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
        if served.transactional:
            engine.inside.begin(job)
        else:
            engine.activities.begin(job, self.report)
        if points.reach is not None:
            points.reach("undo.begun" if job.undo else "dispatch.after")
        self._fresh[ticket] = None
        if not self._pulsing:
            self._pulsing = True
            engine.timers.after(LONG_SECONDS, self._pulse)
        return True

    def _job(self, entry: Entry, ticket: Ticket) -> Job | None:
        """The attempt as a job; None if it is not wanted any more, or waits for values that are not in memory."""
        try:
            return self._make.job(entry.flow, ticket)
        except Need as need:
            self._bring(entry, ticket, need.refs)
            return None

    def _next_careful(self) -> None:
        """After losses attempts are begun one at a time, each after its `TaskStarted` is stored."""
        while self._careful_now is None and self._careful and not self._engine.stopping:
            if not self._calm(self._careful[0]):
                return
            ticket = heappop(self._careful)[2]
            entry = self._engine.cache.get(ticket[0])
            job = None if entry is None else self._job(entry, ticket)
            if job is None:
                if ticket not in self._bringing:
                    self._drop(ticket)
                self.dispatch.done(ticket)
                continue
            self._careful_now = ticket
            self._engine.errands.run(self._begin_recorded(ticket, job))

    def _calm(self, waiting: tuple[int, int, Ticket]) -> bool:
        """Whether its next loss would say something of this attempt: it has the last chance in a process that has shown
        that it lives."""
        if waiting[0] < POISON_LOSSES - 1:
            return True
        calm = self._engine.owned_at + CALM_SECONDS
        left = calm - self._engine.clock.ticks()
        if left <= 0:
            return True
        if self._calm_at != calm:
            self._calm_at = calm
            self._engine.timers.after(left, self._next_careful)
        return False

    def suspect(self, run_id: str, key: str) -> bool:
        """An attempt of the task waits because of losses before."""
        return any(t[0] == run_id and t[1] == key for _, _, t in self._careful)

    async def _begin_recorded(self, ticket: Ticket, job: Job) -> None:
        engine = self._engine
        begun = c.StartTask(
            at=job.started_at, key=job.key, attempt=job.attempt, worker=engine.node, undo=job.undo,
            generation=job.generation,
        )  # fmt: skip
        try:
            await engine.command(job.run_id, begun)
        except PenstockError:
            self._free(ticket)
            return
        if points.reach is not None:
            points.reach("dispatch.recorded")
        if engine.stopping:
            return
        entry = engine.cache.get(job.run_id)
        owned = engine.owner is not None and ticket in self._known
        if not owned or entry is None or not underway(entry.flow, job):
            # Not wanted any more, or another wrote, or this process is the owner no longer: whoever loads the run, as
            # its owner, begins it.
            self._free(ticket)
            return
        self._jobs[ticket] = job
        served = engine.activities.get(job.activity)
        if served is not None and served.transactional:
            engine.inside.begin(job)
        else:
            engine.activities.begin(job, self.report)

    async def _bring_and_offer(self, entry: Entry, ticket: Ticket, refs: set[int]) -> None:
        """The ticket is held meanwhile, so that nobody else begins the attempt."""
        engine = self._engine
        try:
            await engine.history.bring(entry.flow, entry.row.key, refs)
        except PenstockError:
            self._drop(ticket)
            engine.timers.after(AGAIN_SECONDS, engine.post, ticket[0], Item(None))
            raise
        finally:
            self._bringing.discard(ticket)
        self._offer(ticket, entry)

    # --- ending ----------------------------------------------------------------------------------------------

    def _drop(self, ticket: Ticket) -> None:
        if ticket not in self._known:
            return
        self._known.discard(ticket)
        if self.dispatch.waiting:
            self.dispatch.withdraw(ticket)
        if self._timed:
            self._timed.discard(ticket)
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
        self.dispatch.done(ticket)

    def report(self, job: Job, outcome: Outcome, inside: Transaction | None = None) -> None:
        """An attempt has ended; what it gave goes into the run's inbox, or with its open transaction to the committer."""
        if points.reach is not None:
            points.reach("report.before")
        engine = self._engine
        run_id, key, attempt, generation = job.run_id, job.key, job.attempt, job.generation
        ticket = (run_id, key, attempt, job.undo, generation)
        if engine.owner is None:
            self.told(ticket)  # begun as the owner, which this process is no longer
        else:
            now = engine.clock.now()
            if type(outcome) is Done:
                command = c.CompleteTask(
                    at=now, key=key, attempt=attempt, output=outcome.output, logs=outcome.logs,
                    undo=job.undo, generation=generation,
                )  # fmt: skip
                engine.heavy.weigh(run_id, outcome.output)
                if self._progress:
                    self._progress.pop((run_id, key), None)
            else:
                command = self._broken(job, outcome, now)
            # Held until it is on disk: else whoever looks at the state meanwhile begins the attempt again.
            item = Item(command, ticket=ticket)
            if inside is None:
                engine.post(run_id, item)
            else:
                lost = c.LoseTask(
                    at=now, key=key, attempt=attempt, undo=job.undo, cut=True, generation=generation
                )
                engine.inside.put(run_id, item, lost, inside)
        if points.reach is not None:
            points.reach("report.after")
        self._leave(ticket)

    def _broken(self, job: Job, outcome: Outcome, now: float) -> c.Command:
        beaten = self._progress.pop((job.run_id, job.key), None)
        progress = None if beaten is None else beaten[1]
        if isinstance(outcome, Broken):
            if outcome.failure.code == CompleteLater.code and not job.undo:
                limit = job.start_to_close
                return c.DeferTask(
                    at=now, key=job.key, attempt=job.attempt, due=None if limit is None else job.started_at + limit,
                    retry=outcome.retry, began=job.started_at, logs=outcome.logs, generation=job.generation,
                )  # fmt: skip
            return c.FailTask(
                at=now, key=job.key, attempt=job.attempt, failure=outcome.failure, retry=outcome.retry,
                final=outcome.final, died=outcome.died, progress=progress, logs=outcome.logs, once=job.once,
                undo=job.undo, generation=job.generation,
            )  # fmt: skip
        assert isinstance(outcome, Cut)
        return c.LoseTask(
            at=now, key=job.key, attempt=job.attempt, progress=progress, once=job.once, undo=job.undo, cut=True,
            generation=job.generation,
        )  # fmt: skip

    def _heartbeat(self, job: Job, progress: Any) -> None:
        if self._engine.owner is None:
            return
        raw = encode_payload(progress, limit=INLINE_PAYLOAD_BYTES_MAX)
        now = self._engine.clock.now()
        last = self._progress.get((job.run_id, job.key))
        if last is not None and now - last[0] < PROGRESS_SECONDS:
            self._progress[(job.run_id, job.key)] = (last[0], raw)
            return
        self._progress[(job.run_id, job.key)] = (now, raw)
        if raw != b"null":
            command = c.RecordProgress(
                at=now, key=job.key, attempt=job.attempt, progress=raw, generation=job.generation
            )
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
                    at=now, key=ticket[1], attempt=ticket[2], worker=engine.node, began=begun,
                    generation=ticket[4],
                )  # fmt: skip
                engine.post(ticket[0], Item(command))
        for ticket in long:
            del fresh[ticket]
        self._pulsing = bool(fresh)
        if fresh:
            engine.timers.after(min(LONG_SECONDS, begun + LONG_SECONDS - now), self._pulse)
