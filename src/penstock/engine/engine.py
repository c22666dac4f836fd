"""Engine: load, take a turn, append; only then may the world see it (SPEC 4.2).

Commands wait in one inbox; a single loop takes all that is ready, of many runs, makes one commit of it, and then
performs the effects. An engine that does not own the database decides and appends commands all the same, without
executing anything, and tells the owner (SPEC 4.8). Ownership and recovery: `engine/recovery.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, cast

from penstock.core.decide import LOST_CAREFUL
from penstock.core.flow import Flow
from penstock.core.owed import owed
from penstock.core.plan import Plan
from penstock.core.turn import Turn, turn
from penstock.core.values import Need, decode
from penstock.engine import points
from penstock.engine.dispatch import Dispatch, Ticket
from penstock.engine.history import Entry, History
from penstock.engine.timers import Timers
from penstock.errors import (
    Busy,
    Fenced,
    NotFound,
    PenstockError,
    Rejected,
    RevisionConflict,
    StoreError,
)
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model.codec import decode_definition, encode_event, encode_run
from penstock.model.events import Event
from penstock.model.failure import Failure, failure_of
from penstock.model.payload import encode_payload
from penstock.model.job import Broken, Cut, Done, Job, Outcome
from penstock.model.run import COMPLETED, RETRYING, RUNNING, SCHEDULED, Run, Undo
from penstock.policy import snapshots as snapshot_policy
from penstock.ports.activities import Activities
from penstock.ports.clock import Clock
from penstock.ports.hints import Hints
from penstock.ports.store import Append, Appended, Owner, Row, Snapshot, Store

log = logging.getLogger("penstock.engine")

BATCH_RUNS_MAX = 1000
TRIES_MAX = 100
"""Times that a command is decided anew because another writer was first."""
LONG_SECONDS = 1.0
"""An attempt older than this gets its `TaskStarted` in the next commit (SPEC 4.3)."""
PROGRESS_SECONDS = 1.0
"""Heartbeats of one attempt are stored at most this often."""
AGAIN_SECONDS = 0.5
"""What the store could not take is tried again after this."""
PASSING = (StoreError, Busy, RevisionConflict)
"""Errors that say nothing of the run: the same may be done a little later."""

Reader = Callable[[Flow], Any]


class Settings:
    """Limits of one engine (SPEC 4.10, 16)."""

    __slots__ = ("cache_runs", "drain_seconds", "inbox_max", "runs_max", "tasks_max")

    def __init__(
        self,
        *,
        max_concurrent_workflows: int = 1_000_000,
        max_concurrent_tasks_per_node: int = 1000,
        priority_queue_depth: int = 100_000,
        cache_runs: int = 10_000,
        drain_seconds: float = 10.0,
    ) -> None:
        self.runs_max = max_concurrent_workflows
        self.tasks_max = max_concurrent_tasks_per_node
        self.inbox_max = priority_queue_depth
        self.cache_runs = cache_runs
        self.drain_seconds = drain_seconds


class Item:
    """A command, or a read, on its way to its run."""

    __slots__ = ("command", "future", "plan", "tries")

    def __init__(
        self, command: c.Command | Reader, future: asyncio.Future[Any] | None = None, plan: Plan | None = None
    ) -> None:
        self.command, self.future, self.plan = command, future, plan
        self.tries = 0


class Change:
    """An event that is on disk, as listeners and watchers get it."""

    __slots__ = ("event", "run_id", "seq", "status")

    def __init__(self, run_id: str, seq: int, event: Event, status: str) -> None:
        self.run_id, self.seq, self.event, self.status = run_id, seq, event, status

    @property
    def type(self) -> str:
        return self.event.type

    def __repr__(self) -> str:
        return f"Change({self.run_id!r}, {self.seq}, {self.type!r}, {self.status!r})"


class Engine:
    """See the module's docstring. `open()` before use, `close()` after."""

    def __init__(
        self,
        store: Store,
        activities: Activities,
        clock: Clock,
        *,
        hints: Hints | None = None,
        node: str = "node",
        settings: Settings | None = None,
    ) -> None:
        self.store, self.activities, self.clock, self.hints, self.node = store, activities, clock, hints, node
        self.settings = settings or Settings()
        self.owner: Owner | None = None
        self.broken: BaseException | None = None
        self.timers = Timers(clock)
        self.dispatch = Dispatch(self._begin, limit=self.settings.tasks_max)
        self.plans: dict[tuple[str, str], Plan] = {}
        self.history = History(store, self.plan)
        self.globals: dict[str, Any] = {}
        self._cache: dict[str, Entry] = {}
        self._mail: dict[str, list[Item]] = {}
        self._mailed = 0
        self._ready: deque[str] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._known: set[Ticket] = set()
        """Attempts queued, under way, or waiting for their time."""
        self._busy: dict[str, int] = {}
        """How many of those a run has: it stays in memory while it has any."""
        self._jobs: dict[Ticket, Job] = {}
        self._long: deque[tuple[float, Ticket]] = deque()
        self._pulsing = False
        self._progress: dict[tuple[str, str], tuple[float, bytes]] = {}
        self._again: list[tuple[str, Item]] = []
        """What the store could not take, until it is tried again."""
        self._taken: set[str] | None = None
        """While runs are taken over from a dead process: those that are."""
        self._later: set[str] = set()
        self._bringing: set[Ticket] = set()
        """Those that wait for values they are to be called with."""
        self._careful: list[tuple[int, int, Ticket]] = []
        """A heap: those that were less often lost under suspicion first, so that another's crashes hit each in turn."""
        self._careful_count = 0
        self._careful_now: Ticket | None = None
        self.unserved: dict[str, list[Ticket]] = {}
        """Attempts whose activity nobody here serves, by its name: they wait for a worker."""
        self._results: dict[str, list[asyncio.Future[Entry]]] = {}
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._watchers: dict[str, list[asyncio.Queue[Change | None]]] = {}
        self._listeners: list[tuple[frozenset[str] | None, Callable[[Change], Any]]] = []
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._errands: set[asyncio.Task[Any]] = set()
        self.position = 0
        """The newest position that this engine has written or looked at."""
        self.turns = 0
        self._open_runs = 0
        self.newest: dict[str, str] = {}
        """The newest version of a definition, as far as this process registered or looked it up."""
        activities.on_heartbeat(self._heartbeat)

    # --- life ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.store.open()
        await self.activities.open()
        await self.load_globals()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="penstock.commits")

    async def close(self) -> None:
        """Drain: attempts end or are cut, what they gave is committed; then nothing is left behind."""
        if self._task is None:
            return
        self._stopping = True
        self.dispatch.open = False
        if points.reach is not None:
            points.reach("stop.draining")
        await self.activities.close(drain_seconds=self.settings.drain_seconds)
        self._post_again()
        while (self._ready or self._mail) and self.broken is None:
            await asyncio.sleep(0)
        if points.reach is not None:
            points.reach("stop.drained")
        self.timers.close()
        for errand in list(self._errands):
            errand.cancel()
        self._task.cancel()
        await asyncio.gather(self._task, *self._errands, return_exceptions=True)
        self._task = None
        self._abandon(PenstockError("the engine is closed"))
        for queues in self._watchers.values():
            for queue in queues:
                queue.put_nowait(None)

    def _abandon(self, error: BaseException) -> None:
        for items in self._mail.values():
            for item in items:
                if item.future is not None and not item.future.done():
                    item.future.set_exception(error)
        self._mail.clear()
        for futures in [*self._results.values(), list(self._answers.values())]:
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    async def _run(self) -> None:
        """The loop: all that is ready makes one commit."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                if not self._ready:
                    self._idle = loop.create_future()
                    await self._idle
                    self._idle = None
                    continue
                await self._commit()
        except Exception as error:
            self.broken = error
            log.exception("engine.broken")
            self._abandon(error)

    # --- the inbox -------------------------------------------------------------------------------------------

    def post(self, run_id: str, item: Item) -> None:
        """Put a command into a run's inbox."""
        mail = self._mail.get(run_id)
        self._mailed += 1
        if mail is not None:
            mail.append(item)
            return
        self._mail[run_id] = [item]
        self._ready.append(run_id)
        idle = self._idle
        if idle is not None and not idle.done():
            idle.set_result(None)

    async def command(self, run_id: str, command: c.Command, plan: Plan | None = None) -> Any:
        """On disk on return, or the reason why it was refused."""
        self._check()
        if len(self._mail) >= self.settings.inbox_max:
            raise Busy(
                f"{len(self._mail)} runs have commands waiting, which is the limit",
                hint="try again in a moment, or raise priority_queue_depth",
            )
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.post(run_id, Item(command, future, plan))
        return await future

    async def read(self, run_id: str, reader: Reader) -> Any:
        """Ask the run as it is on disk."""
        self._check()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.post(run_id, Item(reader, future))
        return await future

    def _check(self) -> None:
        if self.broken is not None:
            raise StoreError(f"the engine has stopped: {self.broken}") from self.broken
        if self._task is None:
            raise PenstockError("the engine is not open", hint="use `async with penstock.open(…)`")

    # --- one commit ------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        ready, mail = self._ready, self._mail
        batch: list[tuple[str, list[Item]]] = []
        absent: list[str] = []
        while ready and len(batch) < BATCH_RUNS_MAX:
            run_id = ready.popleft()
            items = mail.pop(run_id, None)
            if items is None:
                continue
            batch.append((run_id, items))
            if self.owner is None:
                self._cache.pop(run_id, None)  # others write: what is in memory here may be old
            if run_id not in self._cache:
                first = items[0]
                if first.tries or not isinstance(first.command, c.StartRun):
                    absent.append(run_id)
        if points.reach is not None:
            points.reach("commit.taken")
        if absent:
            await self._load(absent)
        appends: list[Append] = []
        taken: list[tuple[str, Entry, list[Item], Turn, list[Any]]] = []
        for run_id, items in batch:
            made = await self._turn(run_id, items)
            if made is None:
                continue
            entry, outcome, readings = made
            if outcome.events:
                appends.append(self._append_of(entry, outcome.events))
            taken.append((run_id, entry, items, outcome, readings))
        results: list[Appended | Exception] = []
        if appends:
            if points.reach is not None:
                points.each("decided", taken)
                points.reach("append.before")
            try:
                results = await self.store.append(appends)
            except StoreError as error:
                self._store_failed(taken, error)
                return
            if points.reach is not None:
                points.reach("append.after")
                points.each("stored", taken)
        place = 0
        for run_id, entry, items, outcome, readings in taken:
            if outcome.events:
                result = results[place]
                append = appends[place]
                place += 1
                if isinstance(result, Exception):
                    self._refused(run_id, items, result)
                    continue
                self._stored(entry, append, result)
            self._settle(run_id, entry, items, outcome, readings)
        if len(self._cache) > self.settings.cache_runs:
            self._evict()

    async def _turn(self, run_id: str, items: list[Item]) -> tuple[Entry, Turn, list[Any]] | None:
        """Take the turn of one run; None if nothing came of it but answers."""
        readings: list[Any] = []
        for _ in range(TRIES_MAX):
            entry = self._cache.get(run_id)
            if entry is None:
                first = items[0]
                if not isinstance(first.command, c.StartRun) or first.plan is None or first.tries:
                    await self._load([run_id])  # it was told to go while others of the batch were loaded
                    if run_id in self._cache:
                        continue
                    self._fail(items, NotFound(f"no run {run_id}", hint="`penstock list` shows the runs"))
                    return None
                entry = self._fresh(run_id, first.command, first.plan)
            commands = [i.command for i in items if not callable(i.command)]
            entry.flow.globals = self.globals
            try:
                outcome = turn(entry.flow, cast("Sequence[c.Command]", commands))
                readings = [
                    None if item.command == self.reconcile else item.command(entry.flow)
                    for item in items
                    if callable(item.command)
                ]
            except Need as need:
                if not await self._bring(run_id, items, entry, need):
                    return None
                continue
            except Exception as error:
                # A poison run is isolated: nothing of this turn is kept, the others go on.
                self._cache.pop(run_id, None)
                log.exception("run.turn_failed", extra={"run": run_id})
                self._fail(items, error)
                return None
            self.turns += 1
            return entry, outcome, readings
        self._fail(items, StoreError(f"run {run_id} needs more values than can be loaded"))
        return None

    async def _bring(self, run_id: str, items: list[Item], entry: Entry, need: Need) -> bool:
        """Values left the memory: take the run as stored again, with them."""
        held = dict(entry.flow.values)
        armed = entry.armed
        self._cache.pop(run_id, None)
        try:
            if entry.row.key:
                await self._load([run_id])
                again = self._cache[run_id]
            else:
                first = items[0]
                assert isinstance(first.command, c.StartRun)
                assert first.plan is not None
                again = self._fresh(run_id, first.command, first.plan)
            again.armed = armed
            for ref, value in held.items():
                again.flow.values.setdefault(ref, value)
            await self.history.bring(again.flow, again.row.key, need.refs - set(held))
        except (PenstockError, KeyError) as error:
            self._fail(items, error)
            return False
        return True

    def _fresh(self, run_id: str, command: c.StartRun, plan: Plan) -> Entry:
        row = Row(
            id=run_id, generation=command.generation, definition=command.definition, version=command.version,
            status="CREATED", revision=0, created_at=command.at, updated_at=command.at,
        )  # fmt: skip
        entry = self._cache[run_id] = Entry(Flow(Run(id=run_id), plan), row)
        return entry

    def once(self, entry: Entry, key: str) -> bool:
        """The activity itself says that it runs at most once."""
        try:
            node = entry.flow.locate(key)[2]
        except KeyError:
            return False
        served = self.activities.get(str(node.config.get("activity", "")))
        return served is not None and served.once

    def own(self, owner: Owner, position: int) -> None:
        """This process is the owner from now on; what it remembers may be old."""
        self.owner, self.position = owner, position
        self._taken, self._later = set(), set()
        self._open_runs = 0
        self._cache.clear()
        self.newest.clear()

    def _append_of(self, entry: Entry, events: list[Event]) -> Append:
        run, row = entry.flow.run, entry.row
        expected = row.revision
        row.status, row.revision = run.status, run.revision
        row.updated_at, row.ended_at = run.updated_at, run.ended_at
        row.paused, row.open = run.paused, run.ended_at is None
        row.next_due = run.dues[0][0] if run.dues else None
        if expected == 0:
            row.created_at, row.created_by, row.priority = run.created_at, run.created_by, run.priority
            row.deadline = run.deadline
            if run.parent is not None:
                row.parent = f"{run.parent}\n{run.parent_key}"
            if run.attributes:
                row.attributes = encode_attributes(run.attributes)
        payloads = [encode_event(event) for event in events]
        return Append(
            row=row, expected=expected, payloads=payloads, previous=entry.hash,
            token=None if self.owner is None else self.owner.token,
        )  # fmt: skip

    def _stored(self, entry: Entry, append: Append, result: Appended) -> None:
        if append.expected == 0:
            self._open_runs += 1
            if self._taken is not None:
                self._taken.add(entry.row.id)  # begun here, so that nothing of it was begun elsewhere
        if not entry.row.open:
            self._open_runs -= 1
        entry.row.key, entry.hash = result.key, result.hash
        first = result.position - len(append.payloads) + 1
        if self.owner is not None and first > self.position + 1:
            self._errand(self.look(self.position, first))  # others have written meanwhile
        if result.position > self.position:
            self.position = result.position
        entry.tail += len(append.payloads)
        for payload in append.payloads:
            entry.tail_bytes += len(payload)

    def _settle(
        self, run_id: str, entry: Entry, items: list[Item], outcome: Turn, readings: list[Any]
    ) -> None:
        """It is on disk: answer, push, and let the world act."""
        refused, place, read, reconcile = outcome.refused, 0, 0, False
        for item in items:
            future = item.future
            if callable(item.command):
                reconcile = reconcile or item.command == self.reconcile
                if future is not None and not future.done():
                    future.set_result(readings[read])
                read += 1
                continue
            if future is not None and not future.done():
                if refused and place in refused:
                    future.set_exception(refused[place])
                else:
                    future.set_result(None)
            place += 1
        run = entry.flow.run
        if outcome.events:
            if points.reach is not None:
                points.reach("settle.answered")
            if self._watchers or self._listeners:
                self._announce(run, outcome.events)
            if self.owner is not None:
                self._perform(run_id, entry, outcome.effects)
                self._arm(run_id, entry)
            else:
                self._hint(run_id)
            for effect in outcome.effects:
                if isinstance(effect, f.Answer):
                    self._answer(effect)
            if points.reach is not None:
                points.reach("settle.performed")
            if run.closed:
                self._closed(run_id, entry)
            elif entry.tail >= snapshot_policy.EVENTS_MIN or run.updated_at - entry.snapshot_at > 600:
                self._consider_snapshot(entry)
        if reconcile:
            self.reconcile(entry.flow)  # only now: what this turn decided is on disk

    def _refused(self, run_id: str, items: list[Item], error: Exception) -> None:
        """Another writer was first: load anew, decide anew. A newer owner: nothing more is ours to do."""
        self._cache.pop(run_id, None)
        if isinstance(error, Fenced):
            self.lost_ownership(error)
        elif not isinstance(error, RevisionConflict):
            self._fail(items, error)
            return
        for item in items:
            if isinstance(error, Fenced) and item.future is None:
                continue  # what this process did as the owner counts no more; what it was asked for does
            item.tries += 1
            if item.tries > TRIES_MAX:
                self._fail([item], error)
            else:
                self.post(run_id, item)
        if self.owner is not None and not isinstance(error, Fenced):
            self.post(run_id, Item(self.reconcile))

    def _store_failed(
        self, taken: list[tuple[str, Entry, list[Item], Turn, list[Any]]], error: StoreError
    ) -> None:
        """Nothing was written. Callers are told; what nobody waits for is kept and tried again."""
        log.error("store.failed", extra={"error": str(error)})
        again = self._again
        for run_id, _, items, _, _ in taken:
            self._cache.pop(run_id, None)
            for item in items:
                if item.future is not None:
                    if not item.future.done():
                        item.future.set_exception(error)
                else:
                    again.append((run_id, item))
            again.append((run_id, Item(self.reconcile)))
        self.timers.add(self.clock.now() + AGAIN_SECONDS, self._post_again)

    def _post_again(self) -> None:
        again, self._again = self._again, []
        for run_id, item in again:
            self.post(run_id, item)

    @property
    def untold(self) -> bool:
        """Something happened here that could not be stored: whoever comes next must not take our end for a clean one."""
        return self.broken is not None or any(not callable(item.command) for _, item in self._again)

    @staticmethod
    def _fail(items: list[Item], error: Exception) -> None:
        for item in items:
            if item.future is not None and not item.future.done():
                item.future.set_exception(error)

    # --- memory ----------------------------------------------------------------------------------------------

    async def plan(self, definition: str, version: str) -> Plan:
        """The compiled version, from memory or from the store."""
        plan = self.plans.get((definition, version))
        if plan is None:
            row = await self.store.definition(definition, version)
            if row is None:
                raise NotFound(f"no version {version} of definition `{definition}`")
            plan = self.plans[(definition, version)] = Plan(decode_definition(row.document))
        return plan

    async def _load(self, run_ids: Sequence[str]) -> None:
        rows: list[Row] = []
        for run_id in run_ids:
            row = await self.store.find(run_id)
            if row is not None:
                rows.append(row)
        if not rows:
            return
        for run_id, entry in (await self.history.load(rows)).items():
            if isinstance(entry, Exception):
                log.error("run.unreadable", extra={"run": run_id, "error": str(entry)})
                self._fail(self._mail.pop(run_id, []), entry)
                continue
            self._cache[run_id] = entry

    def adopt(self, entry: Entry) -> None:
        """Take a loaded run into memory (recovery)."""
        if self._taken is not None:
            self._taken.add(entry.row.id)
        here = self._cache.get(entry.row.id)
        if here is None or here.row.revision < entry.row.revision:
            self._cache[entry.row.id] = entry
        self._open_runs += 1

    def known(self, run_id: str, effect: f.Execute | f.Abandon) -> bool:
        """This very process is at that attempt."""
        return (run_id, effect.key, effect.attempt, isinstance(effect, f.Execute) and effect.undo) in self._known

    @property
    def recovering(self) -> bool:
        """Not all runs of the owner before are taken over."""
        return self._taken is not None

    def recovered(self) -> None:
        """All open runs are taken; what was put off meanwhile is looked at now."""
        later, self._taken, self._later = self._later, None, set()
        for run_id in later:
            self.post(run_id, Item(self.reconcile))

    def _evict(self) -> None:
        """Runs that only wait leave the memory, the oldest first."""
        excess = len(self._cache) - self.settings.cache_runs
        passive = [
            run_id
            for run_id in self._cache
            if run_id not in self._busy and run_id not in self._mail and run_id not in self._watchers
        ]
        for run_id in passive[: max(excess, self.settings.cache_runs // 10)]:
            del self._cache[run_id]

    def _consider_snapshot(self, entry: Entry) -> None:
        run = entry.flow.run
        hours = (run.updated_at - entry.snapshot_at) / 3600
        if snapshot_policy.due(
            events=entry.tail, tail_bytes=entry.tail_bytes, last_bytes=entry.snapshot_bytes, path=run.tasks_done,
            hours=hours,
        ):  # fmt: skip
            self._errand(self.snapshot(entry))

    async def snapshot(self, entry: Entry) -> None:
        """Keep the state as it is now; nothing depends on it."""
        run = entry.flow.run
        if run.revision != entry.row.revision or run.pending:
            return
        state = encode_run(run)
        entry.tail = entry.tail_bytes = 0
        entry.snapshot_bytes, entry.snapshot_at = len(state), run.updated_at
        if points.reach is not None:
            points.reach("snapshot.before")
        await self.store.save_snapshots([(entry.row.key, Snapshot(run.revision, state, entry.hash))])
        if points.reach is not None:
            points.reach("snapshot.after")

    # --- effects ---------------------------------------------------------------------------------------------

    def reconcile(self, flow: Flow) -> None:
        """Somebody else has written: whatever the state wants now and nobody is at, is begun."""
        run = flow.run
        entry = self._cache.get(run.id)
        if entry is None or self.owner is None:
            return
        if self._taken is not None and run.id not in self._taken:
            self._later.add(run.id)  # what a dead process had begun is not recorded as lost yet
            return
        if points.reach is not None:
            points.reach("recovery.owed")
        wanted = owed(run)
        attempts = {(run.id, e.key, e.attempt, e.undo) for e in wanted if isinstance(e, f.Execute)}
        if run.id in self._busy:
            for ticket in [t for t in self._jobs if t[0] == run.id and t not in attempts]:
                self.activities.cancel(ticket[0], ticket[1], ticket[2])
        self._perform(run.id, entry, wanted)
        self._arm(run.id, entry)
        if run.closed:
            self._closed(run.id, entry)

    def refresh(self, run_id: str) -> None:
        """A hint: the run may have changed in the store."""
        self._cache.pop(run_id, None)
        for queue in self._watchers.get(run_id, ()):
            queue.put_nowait(None)  # look for yourselves
        self.post(run_id, Item(self.reconcile))

    async def look(self, after: int, before: int) -> None:
        """Runs that others wrote to between two positions: whatever is owed there is begun."""
        while after + 1 < before:
            stored = await self.store.follow(after=after, limit=min(1000, before - after - 1))
            stored = [each for each in stored if each.position < before]
            if not stored:
                return
            after = stored[-1].position
            rows = await self.store.find_many(list({each.key for each in stored}))
            for row in rows.values():
                self.refresh_if_behind(row)

    def refresh_if_behind(self, row: Row) -> None:
        """The row as stored: if the run in memory is older, look again."""
        entry = self._cache.get(row.id)
        if entry is not None and entry.row.revision >= row.revision:
            return
        if entry is not None or row.open:
            self.refresh(row.id)

    def _perform(self, run_id: str, entry: Entry, effects: list[f.Effect]) -> None:
        run = entry.flow.run
        if self._taken is not None and run_id not in self._taken:
            self._later.add(run_id)  # recovery comes to it, and begins all that it is owed
            return
        for effect in effects:
            if type(effect) is f.Execute:
                ticket = (run_id, effect.key, effect.attempt, effect.undo)
                if ticket in self._known or (run.paused and not effect.undo):
                    continue
                self._hold(ticket)
                if effect.due is not None and effect.due > self.clock.now():
                    self.timers.add(effect.due, self._offer, ticket, run.priority, run.deadline)
                else:
                    self._offer(ticket, run.priority, run.deadline)
            else:
                match effect:
                    case f.Abandon():
                        self._abandon_attempt(run, effect)
                    case f.StartChild():
                        self._errand(self._start_child(run_id, effect.key), run_id)
                    case f.CancelChild():
                        self._errand(self._cancel_child(effect.run), run_id)
                    case f.Deliver():
                        out = run.outgoing.get(effect.id)
                        if out is not None:
                            work = self._deliver(run_id, effect.id, out.run, out.name, bytes(out.payload))
                            self._errand(work, run_id)
                    case _:
                        pass

    def _abandon_attempt(self, run: Run, effect: f.Abandon) -> None:
        """It still reports; but one that was never begun here has nobody to report it, so that is recorded at once."""
        if (run.id, effect.key, effect.attempt, False) in self._jobs:
            self.activities.cancel(run.id, effect.key, effect.attempt)
        elif run.stopping is not None:
            command = c.LoseTask(at=self.clock.now(), key=effect.key, attempt=effect.attempt)
            self.post(run.id, Item(command))

    def _offer(self, ticket: Ticket, priority: int, deadline: float | None) -> None:
        if ticket not in self._known:
            return
        self.dispatch.offer(ticket, priority, deadline)
        if len(self.dispatch) and not ticket[3]:
            limit = self._patience(ticket)
            if limit is not None:
                self.timers.add(self.clock.now() + limit, self._waited, ticket, limit)

    def _patience(self, ticket: Ticket) -> float | None:
        """How long the attempt may wait for a place (`scheduleToStart`)."""
        entry = self._cache.get(ticket[0])
        try:
            node = None if entry is None else entry.flow.locate(ticket[1])[2]
        except KeyError:
            node = None
        if entry is None or node is None:
            return None
        defaults = entry.flow.plan.definition.timeouts
        return node.timeouts.schedule_to_start or (None if defaults is None else defaults.schedule_to_start)

    def _waited(self, ticket: Ticket, limit: float) -> None:
        """The attempt has waited for long enough, and is failed without having begun."""
        if ticket not in self._known or ticket in self._jobs or self.owner is None:
            return
        self._drop(ticket)
        failure = Failure(
            code="schedule-to-start", message=f"`{ticket[1]}` waited {limit:g} s for a place to run"
        )
        command = c.FailTask(at=self.clock.now(), key=ticket[1], attempt=ticket[2], failure=failure)
        self.post(ticket[0], Item(command))

    def _arm(self, run_id: str, entry: Entry) -> None:
        dues = entry.flow.run.dues
        due = dues[0][0] if dues and not entry.flow.run.paused else None
        if due is not None and due != entry.armed:
            self.timers.add(due, self._wake, run_id)
        entry.armed = due

    def _wake(self, run_id: str) -> None:
        if points.reach is not None:
            points.reach("timer.before")
        entry = self._cache.get(run_id)
        if entry is not None:
            entry.armed = None
        if self.owner is not None:
            self.post(run_id, Item(c.Wake(at=self.clock.now())))

    def _closed(self, run_id: str, entry: Entry) -> None:
        for future in self._results.pop(run_id, ()):
            if not future.done():
                future.set_result(entry)
        for queue in self._watchers.pop(run_id, ()):
            queue.put_nowait(None)
        run = entry.flow.run
        if run.parent is not None and self.owner is not None:
            self._errand(self._tell_parent(entry), run.parent)
        if run_id not in self._busy and run_id not in self._mail:
            self._cache.pop(run_id, None)

    def _announce(self, run: Run, events: list[Event]) -> None:
        seq = run.revision - len(events)
        queues = self._watchers.get(run.id, ())
        for event in events:
            seq += 1
            change = Change(run.id, seq, event, run.status)
            for queue in queues:
                queue.put_nowait(change)
            for types, listener in self._listeners:
                if types is None or event.type in types:
                    try:
                        listener(change)
                    except Exception:
                        log.exception("listener.failed", extra={"run": run.id})

    def _answer(self, effect: f.Answer) -> None:
        future = self._answers.pop(effect.id, None)
        if future is not None and not future.done():
            if effect.refused:
                future.set_exception(Rejected("update-failed", effect.refused))
            else:
                future.set_result(effect.output)

    def _hint(self, run_id: str) -> None:
        if self.hints is not None:
            self._errand(self._tell_owner(run_id))

    async def _tell_owner(self, run_id: str) -> None:
        owner = await self.store.owner()
        if owner is not None and owner.address and self.hints is not None:
            self.hints.tell(owner.address, run_id)

    def _errand(self, work: Any, run_id: str | None = None) -> None:
        """Work that follows from what is stored; if it is cut off, the state (of that run) still owes it."""
        task = asyncio.get_running_loop().create_task(work)
        self._errands.add(task)
        task.add_done_callback(partial(self._errand_done, run_id))

    def _errand_done(self, run_id: str | None, task: asyncio.Task[Any]) -> None:
        self._errands.discard(task)
        if task.cancelled() or self._stopping:
            return
        error = task.exception()
        if error is not None:
            log.error("errand.failed", exc_info=error)
            if run_id is not None and isinstance(error, PASSING):
                self.timers.add(self.clock.now() + AGAIN_SECONDS, self.post, run_id, Item(self.reconcile))

    # --- attempts --------------------------------------------------------------------------------------------

    def _begin(self, ticket: Ticket) -> bool:
        """Begin an attempt, if the state still wants it."""
        if points.reach is not None:
            points.reach("dispatch.before")
        run_id, key, attempt, undo = ticket
        if ticket not in self._known:
            return False  # it has waited for too long
        entry = self._cache.get(run_id)
        if entry is None:
            # It left the memory because another wrote; loading it again offers what is still wanted.
            self._drop(ticket)
            self.post(run_id, Item(self.reconcile))
            return False
        job = self._job(entry, key, attempt, undo)
        if job is None:
            if ticket not in self._bringing:
                self._drop(ticket)
            return False
        if self.activities.get(job.activity) is None:
            self.unserved.setdefault(job.activity, []).append(ticket)
            log.warning("activity.unserved", extra={"activity": job.activity, "run": run_id})
            return False
        job.started_at = self.clock.now()
        if not undo:
            state = entry.flow.locate(key)[3]
            careful = state.lost >= LOST_CAREFUL
            if (careful or job.once) and not state.started:
                if careful:
                    self._careful_count += 1
                    heappush(self._careful, (state.poison, self._careful_count, ticket))
                    asyncio.get_running_loop().call_soon(self._next_careful)  # once all of this commit are here
                else:
                    self._errand(self._begin_recorded(ticket, job))
                return True
        self._jobs[ticket] = job
        self.activities.begin(job, self._report)
        if points.reach is not None:
            points.reach("undo.begun" if undo else "dispatch.after")
        self._long.append((job.started_at, ticket))
        if not self._pulsing:
            self._pulsing = True
            self.timers.add(job.started_at + LONG_SECONDS, self._pulse)
        return True

    def _next_careful(self) -> None:
        """After losses attempts are begun one at a time, each after its `TaskStarted` is stored."""
        while self._careful_now is None and self._careful and not self._stopping:
            ticket = heappop(self._careful)[2]
            entry = self._cache.get(ticket[0])
            job = None if entry is None else self._job(entry, ticket[1], ticket[2], ticket[3])
            if job is None:
                if ticket not in self._bringing:
                    self._drop(ticket)
                self.dispatch.done()
                continue
            self._careful_now = ticket
            job.started_at = self.clock.now()
            self._errand(self._begin_recorded(ticket, job))

    async def _begin_recorded(self, ticket: Ticket, job: Job) -> None:
        try:
            await self.command(
                job.run_id, c.StartTask(at=job.started_at, key=job.key, attempt=job.attempt, worker=self.node)
            )
        except PenstockError:
            self._free(ticket)
            return
        if points.reach is not None:
            points.reach("dispatch.recorded")
        if self._stopping:
            return
        entry = self._cache.get(job.run_id)
        if entry is None or not _underway(entry.flow, job.key, job.attempt):
            self._free(ticket)  # not wanted any more, or another wrote: whoever loads the run begins it
            return
        self._jobs[ticket] = job
        self.activities.begin(job, self._report)

    def _job(self, entry: Entry, key: str, attempt: int, undo: bool) -> Job | None:
        """The attempt as a job, or None if the state does not want it any more."""
        flow = entry.flow
        run = flow.run
        if run.closed:
            return None
        if undo:
            undoing = run.undoing.get(key)
            if undoing is None or undoing.attempt != attempt:
                return None
            arguments = decode(bytes(undoing.entry.arguments))
            return Job(
                run_id=run.id, generation=run.generation, key=key, attempt=attempt, activity=undoing.entry.activity,
                arguments=arguments, idempotency_key=f"{run.id}/{run.generation}/{key}/undo", priority=run.priority,
            )  # fmt: skip
        try:
            _, _, node, state = flow.locate(key)
        except KeyError:
            return None
        if state.attempt != attempt or run.paused or state.status not in (SCHEDULED, RETRYING, RUNNING):
            return None
        if run.stopping is not None:
            return None
        activity = "http" if node.type == "http" else cast("str", node.config["activity"])
        served = self.activities.get(activity)
        try:
            values, secrets = flow.arguments(key)
        except Need as need:
            ticket = (run.id, key, attempt, undo)
            if ticket not in self._bringing:
                self._bringing.add(ticket)
                self._errand(self._bring_and_offer(entry, ticket, need.refs))
            return None
        arguments: Any = values
        if served is not None and served.parameters and not node.type == "http":
            arguments = self._implied(flow, served.parameters, values, secrets)
        defaults = flow.plan.definition.timeouts
        limits = node.timeouts
        return Job(
            run_id=run.id, generation=run.generation, key=key, attempt=attempt, activity=activity, arguments=arguments,
            idempotency_key=f"{run.id}/{run.generation}/{key}", secrets=tuple(secrets),
            start_to_close=limits.start_to_close
            or (defaults and defaults.start_to_close)
            or (served and served.start_to_close),
            heartbeat=limits.heartbeat or (defaults and defaults.heartbeat) or (served and served.heartbeat),
            progress=None if state.progress is None else decode(state.progress),
            once=bool(node.config.get("once")) or bool(served and served.once),
            scheduled_at=state.scheduled_at, priority=run.priority, deadline=run.deadline,
        )  # fmt: skip

    def _implied(
        self, flow: Flow, parameters: tuple[str, ...], values: dict[str, Any], secrets: list[tuple[str, str]]
    ) -> dict[str, Any]:
        """Parameters that no input names are looked up by name: run data, the run's input, global data (SPEC 2.6)."""
        missing = [p for p in parameters if p not in values and all(p != name for name, _ in secrets)]
        if not missing:
            return values
        run = flow.run
        given: Any = flow.input() if run.input is not None else None
        for name in missing:
            if name in run.data:
                values[name] = decode(bytes(run.data[name].value))
            elif isinstance(given, dict) and name in given:
                values[name] = cast("dict[str, Any]", given)[name]
            elif name in self.globals:
                values[name] = self.globals[name]
        return values

    async def _bring_and_offer(self, entry: Entry, ticket: Ticket, refs: set[int]) -> None:
        """The ticket is held meanwhile, so that nobody else begins the attempt."""
        try:
            await self.history.bring(entry.flow, entry.row.key, refs)
        except PenstockError:
            self._drop(ticket)
            self.timers.add(self.clock.now() + 0.5, self.post, ticket[0], Item(self.reconcile))
            raise
        finally:
            self._bringing.discard(ticket)
        self._offer(ticket, entry.flow.run.priority, entry.flow.run.deadline)

    def _hold(self, ticket: Ticket) -> None:
        if ticket not in self._known:
            self._known.add(ticket)
            self._busy[ticket[0]] = self._busy.get(ticket[0], 0) + 1

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
        entry = self._cache.get(run_id)
        if entry is not None and entry.flow.run.closed and run_id not in self._mail:
            del self._cache[run_id]

    def _free(self, ticket: Ticket) -> None:
        """The attempt is over, one way or the other."""
        self._jobs.pop(ticket, None)
        self._drop(ticket)
        if self._careful_now == ticket:
            self._careful_now = None
            self._next_careful()
        self.dispatch.done()

    def _report(self, job: Job, outcome: Outcome) -> None:
        """An attempt has ended; what it gave goes into the run's inbox."""
        if points.reach is not None:
            points.reach("report.before")
        run_id, key, attempt = job.run_id, job.key, job.attempt
        undo = job.idempotency_key.endswith("/undo")
        ticket = (run_id, key, attempt, undo)
        if self.owner is None:
            self._free(ticket)  # begun as the owner, which this process is no longer
            return
        now = self.clock.now()
        command: c.Command
        progress = self._progress.pop((run_id, key), None) if self._progress else None
        if type(outcome) is Done:
            command = c.CompleteTask(at=now, key=key, attempt=attempt, output=outcome.output, logs=outcome.logs)
        elif isinstance(outcome, Broken):
            command = c.FailTask(
                at=now, key=key, attempt=attempt, failure=outcome.failure, retry=outcome.retry, final=outcome.final,
                died=outcome.died, progress=None if progress is None else progress[1], logs=outcome.logs,
            )  # fmt: skip
        else:
            assert isinstance(outcome, Cut)
            command = c.LoseTask(at=now, key=key, attempt=attempt, progress=None if progress is None else progress[1])
        self.post(run_id, Item(command))
        if points.reach is not None:
            points.reach("report.after")
        self._free(ticket)

    def _heartbeat(self, job: Job, progress: Any) -> None:
        if self.owner is None:
            return
        raw = encode_payload(progress)
        now = self.clock.now()
        last = self._progress.get((job.run_id, job.key))
        if last is None or now - last[0] >= PROGRESS_SECONDS:
            self._progress[(job.run_id, job.key)] = (now, raw)
            if raw != b"null":
                self.post(
                    job.run_id, Item(c.RecordProgress(at=now, key=job.key, attempt=job.attempt, progress=raw))
                )
        else:
            self._progress[(job.run_id, job.key)] = (last[0], raw)

    def _pulse(self) -> None:
        """Attempts that have run for a second get their `TaskStarted` in the next commit, not waited for."""
        now = self.clock.now()
        long = self._long
        while long and long[0][0] <= now - LONG_SECONDS:
            began, ticket = long.popleft()
            if ticket in self._jobs and not ticket[3] and self.owner is not None:
                self.post(
                    ticket[0],
                    Item(c.StartTask(at=now, key=ticket[1], attempt=ticket[2], worker=self.node, began=began)),
                )
        while long and long[0][1] not in self._jobs:
            long.popleft()
        self._pulsing = bool(long)
        if long:
            self.timers.add(long[0][0] + LONG_SECONDS, self._pulse)

    # --- children and messages -------------------------------------------------------------------------------

    async def _start_child(self, run_id: str, key: str) -> None:
        """The child has the id that its parent's key gives it, so that starting it twice is starting it once."""
        wanted = await self.read(run_id, lambda flow: _child_of(flow, key))
        if wanted is None:
            return
        child, config, run_facts = wanted
        if points.reach is not None:
            points.reach("child.before")
        row = await self.store.find(child)
        if row is None:
            try:
                version = config["version"]
                definition = await self.store.definition(config["definition"], version)
                if definition is None:
                    raise NotFound(f"no definition `{config['definition']}`" + (f" version {version}" if version else ""))
                plan = await self.plan(definition.id, definition.version)
                command = c.StartRun(
                    at=self.clock.now(), id=child, definition=definition.id, version=definition.version,
                    input=encode_attributes(config["input"]), parent=run_id, parent_key=key, **run_facts,
                )  # fmt: skip
                await self.command(child, command, plan)
                if points.reach is not None:
                    points.reach("child.after")
                number = definition.version
            except Rejected as error:
                if error.code != "id-taken":
                    await self._child_refused(run_id, key, error)
                    return
                number = ""
            except PASSING:
                raise  # still owed
            except PenstockError as error:
                await self._child_refused(run_id, key, error)
                return
        else:
            number = row.version
            if not row.open:
                await self._tell_of(child)
                return
        await self._try(run_id, c.RecordChild(at=self.clock.now(), key=key, run=child, version=number))

    async def _child_refused(self, run_id: str, key: str, error: PenstockError) -> None:
        await self._try(
            run_id, c.CloseChild(at=self.clock.now(), key=key, status="FAILED", failure=failure_of(error))
        )

    async def _cancel_child(self, child: str) -> None:
        row = await self.store.find(child)
        if row is None:
            return
        if row.open:
            await self._try(child, c.CancelRun(at=self.clock.now(), reason="the parent run stops"))
        else:
            await self._tell_of(child)

    async def _tell_of(self, child: str) -> None:
        row = await self.store.find(child)
        if row is None:
            return
        entry = (await self.history.load([row])).get(child)
        if isinstance(entry, Entry):
            await self._tell_parent(entry)

    async def _tell_parent(self, entry: Entry) -> None:
        """A closed child hands its result, and what can be undone, to its parent (SPEC 4.5)."""
        if points.reach is not None:
            points.reach("child.telling")
        run = entry.flow.run
        assert run.parent is not None
        assert run.parent_key is not None
        output = run.result
        if output is None and run.result_ref:
            output = encode_attributes(await self.history.value(entry.row.key, run.result_ref))
        undo: tuple[Undo, ...] = tuple(run.undo) if run.status == COMPLETED else ()
        command = c.CloseChild(
            at=self.clock.now(), key=run.parent_key, status=run.status, output=output or b"null", failure=run.failure,
            undo=undo,
        )  # fmt: skip
        await self._try(run.parent, command)

    async def _deliver(self, run_id: str, id: str, target: str, name: str, payload: bytes) -> None:
        refused = ""
        if points.reach is not None:
            points.reach("deliver.before")
        try:
            await self.command(
                target, c.SendSignal(at=self.clock.now(), name=name, payload=payload, by=f"run:{run_id}", id=id)
            )
        except PASSING:
            raise  # still owed
        except PenstockError as error:
            refused = f"{error.code}: {error}"
        if points.reach is not None:
            points.reach("deliver.after")
        await self._try(run_id, c.RecordDelivery(at=self.clock.now(), id=id, refused=refused))

    async def _try(self, run_id: str, command: c.Command) -> None:
        """Give a command that may have become pointless."""
        try:
            await self.command(run_id, command)
        except (Rejected, NotFound):
            return

    # --- for others ------------------------------------------------------------------------------------------

    def lost_ownership(self, error: BaseException) -> None:
        """A newer owner exists: nothing that is under way here counts any more."""
        if self.owner is None:
            return
        log.error("owner.fenced", extra={"error": str(error)})
        self.owner = None
        self._known.clear()
        self._busy.clear()
        for ticket in list(self._jobs):
            self.activities.cancel(ticket[0], ticket[1], ticket[2])

    def in_memory(self, run_id: str) -> bool:
        """The run is here and not closed, as far as is on disk."""
        entry = self._cache.get(run_id)
        return entry is not None and entry.row.open and self.owner is not None

    def quiet(self) -> bool:
        """Nothing is to be committed or carried out at this moment; attempts may be under way."""
        return not self._ready and not self._mail and not self._errands

    def working(self) -> bool:
        """An attempt is under way that does not just wait in the event loop."""
        return any(
            (served := self.activities.get(job.activity)) is not None and served.kind != "loop"
            for job in self._jobs.values()
        )

    @property
    def backlog(self) -> int:
        return len(self._ready)

    def closing(self, run_id: str) -> asyncio.Future[Entry]:
        """The run as it was closed, if this process learns of it."""
        future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._results.setdefault(run_id, []).append(future)
        return future

    def watch(self, run_id: str) -> asyncio.Queue[Change | None]:
        queue: asyncio.Queue[Change | None] = asyncio.Queue()
        self._watchers.setdefault(run_id, []).append(queue)
        return queue

    def unwatch(self, run_id: str, queue: asyncio.Queue[Change | None]) -> None:
        queues = self._watchers.get(run_id)
        if queues is not None and queue in queues:
            queues.remove(queue)
            if not queues:
                del self._watchers[run_id]

    def listen(self, types: frozenset[str] | None, listener: Callable[[Change], Any]) -> None:
        self._listeners.append((types, listener))

    def answering(self, update_id: str) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[update_id] = future
        return future

    def open_count(self) -> int:
        return self._open_runs

    async def load_globals(self) -> None:
        self.globals = {name: decode(raw) for name, raw in (await self.store.data_global()).items()}

    async def bring(self, run_id: str, refs: set[int]) -> None:
        """Load values that a reader needs."""
        entry = self._cache.get(run_id)
        if entry is not None:
            await self.history.bring(entry.flow, entry.row.key, refs)

    def stats(self) -> dict[str, int]:
        return {
            **self.store.stats(),
            "turns": self.turns,
            "running": self.dispatch.running,
            "queued": len(self.dispatch),
            "in_memory": len(self._cache),
            "timers": len(self.timers),
        }


def _underway(flow: Flow, key: str, attempt: int) -> bool:
    """Its `TaskStarted` is stored and nothing has come of it yet."""
    try:
        state = flow.locate(key)[3]
    except KeyError:
        return False
    return state.started and state.attempt == attempt and flow.run.stopping is None


def _child_of(flow: Flow, key: str) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    try:
        state = flow.locate(key)[3]
    except KeyError:
        return None
    if state.child is None or state.arguments is None or state.status != "WAITING":
        return None
    run = flow.run
    facts = {
        "depth": run.depth + 1, "parent_generation": run.generation, "created_by": run.created_by,
        "priority": run.priority, "deadline": run.deadline,
    }  # fmt: skip
    return state.child, decode(state.arguments), facts


def encode_attributes(value: Any) -> bytes:
    import msgspec  # the one place where the shell encodes plain JSON

    return msgspec.json.encode(value)
