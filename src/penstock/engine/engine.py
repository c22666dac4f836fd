"""Engine: load, take a turn, append; only then may the world see it (SPEC 4.2).

Commands wait in one inbox; a single loop takes all that is ready, of many runs, makes one commit of it, and then
performs the effects. An engine that does not own the database decides and appends commands all the same, without
executing anything, and tells the owner (SPEC 4.8). Ownership and recovery: `engine/recovery.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.core.flow import Flow
from penstock.core.owed import every_reference, owed
from penstock.core.plan import NeedPlan, Plan
from penstock.core.turn import Turn, turn
from penstock.core.values import Need, decode, encode
from penstock.engine import points
from penstock.engine.admission import Admission
from penstock.engine.attempts import Attempts
from penstock.engine.collector import COLLECTOR
from penstock.engine.errands import AGAIN_SECONDS, Errands
from penstock.engine.following import Following
from penstock.engine.forecast import Forecast
from penstock.engine.history import Entry, History
from penstock.engine.inbox import Item, Reader
from penstock.engine.inside import Inside
from penstock.engine.listeners import Listeners
from penstock.engine.observers import Observers
from penstock.engine.outbox import Outbox
from penstock.engine.projection import Projections
from penstock.engine.queueing import Queueing
from penstock.engine.requests import Requests
from penstock.engine.retention import Retention
from penstock.engine.roots import Roots
from penstock.engine.routing import Routing
from penstock.engine.settings import Settings
from penstock.engine.sizes import COMMIT_BYTES_MAX, Heavy, Packing, bytes_of
from penstock.engine.tending import Tending
from penstock.engine.timers import Timers
from penstock.errors import Busy, Fenced, NotFound, PenstockError, RevisionConflict, StoreError
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model.codec import decode_definition, encode_event, encode_run, plain_event
from penstock.model.events import Event
from penstock.model.packing import PACK_FROM_BYTES
from penstock.model.run import Run
from penstock.policy import snapshots as snapshot_policy
from penstock.ports.activities import Activities
from penstock.ports.bus import Bus
from penstock.ports.clock import Clock
from penstock.ports.hints import Hints
from penstock.ports.store import Append, Appended, Owner, Query, Record, Row, Snapshot, Store

log = logging.getLogger("penstock.engine")

T = TypeVar("T")
BATCH_RUNS_MAX = 1000
RECORDS_PAGE = 1000
TRIES_MAX = 100
"""Times that a command is decided anew because another writer was first."""
SNAPSHOT_SECONDS = 600.0
"""A run that has been going for longer since its last snapshot is looked at even if its tail is short."""


NEEDS_MAX = 3
"""A turn that asks for values so often gets all that its state refers to."""


Taken = tuple[str, Entry, list[Item], Turn, list[Any]]
"""A run whose turn was taken: what it was, what was asked, what came of it, what was read."""


class Raised:
    """What a reader raised instead of answering."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _reading(read: Reader, flow: Flow) -> Any:
    """A reader that breaks breaks only its own answer."""
    try:
        return read(flow)
    except Exception as error:
        return Raised(error)


class Engine:
    """See the module's docstring. `open()` before use, `close()` after."""

    def __init__(
        self,
        store: Store,
        activities: Activities,
        clock: Clock,
        *,
        bus: Bus,
        hints: Hints | None = None,
        node: str = "node",
        settings: Settings | None = None,
    ) -> None:
        self.store, self.activities, self.clock, self.hints, self.node = (
            store,
            activities,
            clock,
            hints,
            node,
        )
        self.settings = settings or Settings()
        self.bus = bus
        self.owner: Owner | None = None
        self.owned_at = 0.0
        self.broken: BaseException | None = None
        self.timers = Timers(clock)
        self.plans: dict[tuple[str, str], Plan] = {}
        self._kin: dict[str, dict[str, Plan]] = {}
        """The same, by definition and version."""
        self.newest: dict[str, str] = {}
        """The newest version of a definition, as far as this process registered or looked it up."""
        self.history = History(store, self.plan)
        self.globals: dict[str, Any] = {}
        self.observers = Observers()
        self.following = Following(self)
        self.listeners = Listeners(self)
        self.projections = Projections(self)
        self.errands = Errands(self)
        self.tending = Tending(self)
        self.routing = Routing(self)
        self.outbox = Outbox(self)
        self.attempts = Attempts(self, limit=self.settings.tasks_max)
        self.retention = Retention(self)
        self.roots = Roots(self)
        self.requests = Requests(self)
        self.inside = Inside(self)
        self.queueing = Queueing(self)
        self.admission = Admission(self)
        self.forecast = Forecast(self)
        self.cache: dict[str, Entry] = {}
        """Runs in memory, by id."""
        self._mail: dict[str, list[Item]] = {}
        self.heavy = Heavy()
        self._ready: deque[str] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._unreadable: dict[str, Exception] = {}
        """What was wrong with runs that could not be loaded, until whoever asked is told."""
        self._named: set[str] = set()
        """Runs whose next append is followed by a snapshot."""
        self._batch: list[tuple[str, list[Item]]] = []
        """What is being committed."""
        self._again: list[tuple[str, Item]] = []
        """What the store could not take, until it is tried again."""
        self._taken: set[str] | None = None
        """While runs are taken over from a dead process: those that are."""
        self._later: set[str] = set()
        self.stopping = False
        self._task: asyncio.Task[None] | None = None
        self.position = 0
        """The newest position that this engine has written or looked at."""
        self.turns = 0
        self.open_runs = 0

    # --- life ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        self.inside.check()
        await self.store.open()
        await self.bus.open()
        await self.activities.open()
        await self.load_globals()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="penstock.commits")
        if self.settings.ease_collector:
            COLLECTOR.ease()

    async def close(self) -> None:
        """Drain: attempts end or are cut, what they gave is committed; then nothing is left behind."""
        if self._task is None:
            return
        self.stopping = True
        self.attempts.dispatch.open = False
        if points.reach is not None:
            points.reach("stop.draining")
        await self.requests.close()
        await self.activities.close(drain_seconds=self.settings.drain_seconds)
        self._post_again()
        await self._emptied()
        if points.reach is not None:
            points.reach("stop.drained")
        await self.outbox.close()
        await self.bus.close()
        await self.projections.close()
        await self.listeners.close()
        await self.following.close()
        self.timers.close()
        await self.errands.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        if self.settings.ease_collector:
            COLLECTOR.restore()
        self._abandon(PenstockError("the engine is closed"))

    async def _emptied(self) -> None:
        """Until nothing is left in the inbox; each round of the loop may add to it."""
        while self._working() and self.broken is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001 if self._batch or self.inside.busy else 0)

    def _working(self) -> bool:
        return bool(self._ready or self._mail or self._batch or self.inside.busy)

    def _abandon(self, error: BaseException) -> None:
        for items in [*self._mail.values(), *(items for _, items in self._batch)]:
            for item in items:
                if item.future is not None and not item.future.done():
                    item.future.set_exception(error)
        self._mail.clear()
        self.heavy.sizes.clear()
        self.observers.abandon(error)

    async def _run(self) -> None:
        """The loop: all that is ready makes one commit."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                if self.inside:
                    await self.inside.commit()
                    if not self._ready:
                        continue
                if not self._ready:
                    self._idle = loop.create_future()
                    await self._idle
                    self._idle = None
                    continue
                await self._commit()
                self._batch = []
        except Exception as error:
            self.broken = error
            log.exception("engine.broken")
            self._abandon(error)

    # --- the inbox -------------------------------------------------------------------------------------------

    def post(self, run_id: str, item: Item) -> None:
        """Put a command into a run's inbox."""
        mail = self._mail.get(run_id)
        if mail is not None:
            mail.append(item)
            return
        self._mail[run_id] = [item]
        self._ready.append(run_id)
        self.rouse()

    def rouse(self) -> None:
        """The committer has something to do."""
        idle = self._idle
        if idle is not None and not idle.done():
            idle.set_result(None)

    async def command(self, run_id: str, command: c.Command, plan: Plan | None = None) -> Any:
        """On disk on return, or the reason why it was refused."""
        self.check_room()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.post(run_id, Item(command, future, plan))
        return await future

    def check_room(self) -> None:
        """Whether commands are taken at this moment."""
        self.check_open()
        if len(self._mail) >= self.settings.inbox_max:
            raise Busy(
                f"{len(self._mail)} runs have commands waiting, which is the limit",
                hint="try again in a moment, or raise priority_queue_depth",
            )

    async def read(self, run_id: str, reader: Reader) -> Any:
        """Ask the run as it is on disk."""
        self.check_open()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.post(run_id, Item(None, future, read=reader))
        return await future

    def check_open(self) -> None:
        if self.broken is not None:
            raise StoreError(f"the engine has stopped: {self.broken}") from self.broken
        if self._task is None:
            raise PenstockError("the engine is not open", hint="use `async with penstock.open(…)`")

    # --- one commit ------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        ready, mail = self._ready, self._mail
        batch: list[tuple[str, list[Item]]] = []
        absent: list[str] = []
        heavy, put_off = self.heavy, list[str]()
        while ready and len(batch) < BATCH_RUNS_MAX:
            run_id = ready.popleft()
            if heavy.sizes and not heavy.takes(run_id):
                put_off.append(run_id)
                continue
            items = mail.pop(run_id, None)
            if items is None:
                continue
            batch.append((run_id, items))
            if self.owner is None:
                self.cache.pop(run_id, None)  # others write: what is in memory here may be old
            if run_id not in self.cache:
                first = items[0]
                if first.tries or not isinstance(first.command, c.StartRun):
                    absent.append(run_id)
        if put_off:
            ready.extend(put_off)
        heavy.laden = 0
        if points.reach is not None:
            points.reach("commit.taken")
        self._batch = batch
        try:
            if self.owner is None:
                await self.load_globals()
            if absent:
                await self._load(absent)
        except StoreError as error:
            self._store_failed(batch, error)
            return
        await self._decide(batch)
        if len(self.cache) > self.settings.cache_runs:
            self._evict()

    async def _decide(self, batch: list[tuple[str, list[Item]]]) -> None:
        """Take the turn of each run and write what they gave: in one commit, or in several if it is much."""
        appends: list[Append] = []
        taken: list[Taken] = []
        size, packing = 0, Packing()
        for place, (run_id, items) in enumerate(batch):
            made = await self.take_turn(run_id, items)
            if made is None:
                continue
            entry, outcome, readings, items = made
            if outcome.events:
                try:
                    payloads = [plain_event(event) for event in outcome.events]
                    gain = sum(map(len, payloads))
                    blobs: dict[bytes, bytes] = {}
                    if gain >= PACK_FROM_BYTES:
                        payloads, blobs = await packing.pack(outcome.events, payloads, gain)
                        gain = bytes_of(payloads, blobs)
                except Exception as error:
                    self._turn_failed(run_id, items, error)
                    continue
                if size + gain > COMMIT_BYTES_MAX and appends:
                    if not await self._write(taken, appends):
                        self._put_back([(run_id, items), *batch[place + 1 :]])
                        return
                    appends, taken, size = [], [], 0
                try:
                    appends.append(self._append_with(entry, payloads, blobs))
                except Exception as error:
                    self._turn_failed(run_id, items, error)
                    continue
                size += gain
            elif entry.row.key == 0:
                self.cache.pop(run_id, None)  # a start that was refused leaves nothing behind
            taken.append((run_id, entry, items, outcome, readings))
        await self._write(taken, appends)

    async def _write(self, taken: Sequence[Taken], appends: list[Append]) -> bool:
        """One commit, and then all that follows from it; False if the store could not take it."""
        results: list[Appended | Exception] = []
        if appends:
            if points.reach is not None:
                points.each("decided", taken)
                points.reach("append.before")
            try:
                results = await self.store.append(appends)
            except StoreError as error:
                self._store_failed([(run_id, items) for run_id, _, items, _, _ in taken], error)
                return False
            if points.reach is not None:
                points.reach("append.after")
                points.each("stored", taken)
        if results and self.owner is None and self.hints is not None and not self.hints.in_append:
            await self.tell_owner([run_id for run_id, _, _, outcome, _ in taken if outcome.events])
        place = 0
        for run_id, entry, items, outcome, readings in taken:
            if outcome.events:
                result = results[place]
                append = appends[place]
                place += 1
                if isinstance(result, Exception):
                    self._refused(run_id, items, result)
                    continue
                self.stored(entry, append, result)
                if self.cache.get(run_id) is not entry:
                    self.cache.pop(run_id, None)  # read meanwhile, from before this append
            self.settle(run_id, entry, items, outcome, readings)
        if appends and self.following:
            self.following.wrote()
        return True

    def _put_back(self, batch: Sequence[tuple[str, list[Item]]]) -> None:
        """Not come to: in front of what has come since, in the same order."""
        self.cache.pop(batch[0][0], None)  # its turn was taken, for nothing
        for run_id, items in reversed(batch):
            self._mail[run_id] = items + self._mail.get(run_id, [])
            self._ready.appendleft(run_id)

    async def take_turn(
        self, run_id: str, items: list[Item]
    ) -> tuple[Entry, Turn, list[Any], list[Item]] | None:
        """Take the turn of one run, with as many of its items as go together; None if nothing came of it."""
        needs = 0
        while True:
            entry = self.cache.get(run_id)
            if entry is None:
                first = items[0]
                if not isinstance(first.command, c.StartRun) or first.plan is None or first.tries:
                    # It was told to go while others of the batch were loaded, or there is none.
                    try:
                        await self._load([run_id])
                    except StoreError as error:
                        self._store_failed([(run_id, items)], error)
                        return None
                    if run_id in self.cache:
                        continue
                    items = self._from_start(run_id, items)
                    if not items:
                        return None
                    first = items[0]
                assert isinstance(first.command, c.StartRun)
                assert first.plan is not None
                entry = self._fresh(run_id, first.command, first.plan)
                items = self._alike(run_id, items)
            entry.flow.globals = self.globals
            try:
                outcome = turn(entry.flow, [i.command for i in items if i.command is not None])
                readings = [_reading(i.read, entry.flow) for i in items if i.read is not None]
            except Need as need:
                needs += 1
                refs = (
                    need.refs if needs < NEEDS_MAX else need.refs | every_reference(entry.flow.run)
                )
                if refs <= set(entry.flow.values):
                    self._turn_failed(run_id, items, StoreError(f"run {run_id} needs what it has"))
                    return None
                if not await self._bring(run_id, items, entry, refs):
                    return None
            except Exception as error:
                self._turn_failed(run_id, items, error)
                return None
            else:
                self.turns += 1
                return entry, outcome, readings, items

    def _from_start(self, run_id: str, items: list[Item]) -> list[Item]:
        """There is no such run. What was asked of it is refused, up to a start of it: that is decided as if it came
        alone, also if it was refused before because another process had taken over."""
        missing = NotFound(f"no run {run_id}", hint="`penstock list` shows the runs")
        error = self._unreadable.pop(run_id, missing)
        for place, item in enumerate(items):
            if error is missing and isinstance(item.command, c.StartRun) and item.plan is not None:
                self._fail(items[:place], error)
                return items[place:]
        self._fail(items, error)
        return []

    def _alike(self, run_id: str, items: list[Item]) -> list[Item]:
        """Of the commands to a run that does not exist yet, those up to a start of another plan."""
        plan = items[0].plan
        for place, item in enumerate(items):
            if item.plan is not None and item.plan is not plan:
                for later in items[place:]:
                    self.post(run_id, later)
                return items[:place]
        return items

    def _turn_failed(self, run_id: str, items: list[Item], error: Exception) -> None:
        """A poison run is isolated: nothing of this turn is kept, the others go on. What nobody waits for (results of
        attempts) is tried once more, by itself."""
        self.cache.pop(run_id, None)
        log.error("run.turn_failed", extra={"run": run_id}, exc_info=error)
        for item in items:
            if item.future is not None:
                self._fail([item], error)
            elif item.command is not None and not item.tries:
                item.tries += 1
                self.post(run_id, item)
            else:
                self._fail([item], error)

    async def _bring(self, run_id: str, items: list[Item], entry: Entry, refs: set[int]) -> bool:
        """Values left the memory: take the run as stored again, with them."""
        held = dict(entry.flow.values)
        armed = entry.armed
        self.cache.pop(run_id, None)
        try:
            if entry.row.key:
                await self._load([run_id])
                again = self.cache[run_id]
            else:
                first = items[0]
                assert isinstance(first.command, c.StartRun)
                assert first.plan is not None
                again = self._fresh(run_id, first.command, first.plan)
            again.armed = armed
            for ref, value in held.items():
                again.flow.values.setdefault(ref, value)
            await self.history.bring(again.flow, again.row.key, refs - set(held))
        except StoreError as error:
            self._store_failed([(run_id, items)], error)
            return False
        except (PenstockError, KeyError) as error:
            self._fail(items, error)
            return False
        return True

    def _fresh(self, run_id: str, command: c.StartRun, plan: Plan) -> Entry:
        row = Row(
            id=run_id, generation=command.generation, definition=command.definition, version=command.version,
            status="CREATED", revision=0, created_at=command.at, updated_at=command.at,
        )  # fmt: skip
        entry = self.cache[run_id] = Entry(Flow(Run(id=run_id), plan), row)
        return entry

    def own(self, owner: Owner, position: int) -> None:
        """This process is the owner from now on; what it remembers may be old."""
        self.owner, self.position, self.owned_at = owner, position, self.clock.now()
        self._taken, self._later = set(), set()
        self.open_runs = 0
        self.admission.clear()
        self.routing.clear()
        self.cache.clear()
        self.newest.clear()

    def append_of(self, entry: Entry, events: list[Event]) -> Append:
        blobs: dict[bytes, bytes] = {}
        return self._append_with(entry, [encode_event(event, blobs) for event in events], blobs)

    def _append_with(
        self, entry: Entry, payloads: list[bytes], blobs: dict[bytes, bytes]
    ) -> Append:
        run, row = entry.flow.run, entry.row
        expected = row.revision
        row.status, row.revision, row.version = run.status, run.revision, run.version
        row.updated_at, row.ended_at = run.updated_at, run.ended_at
        row.paused, row.open = run.paused, run.ended_at is None
        row.next_due = run.dues[0][0] if run.dues else None
        if run.attributes is not entry.attributes and (run.attributes or expected):
            entry.attributes = run.attributes
            row.attributes = encode(run.attributes)
        if expected == 0:
            row.created_at, row.created_by, row.priority = (
                run.created_at,
                run.created_by,
                run.priority,
            )
            row.deadline = run.deadline
            if run.parent is not None:
                row.parent = f"{run.parent}\n{run.parent_key}"
        return Append(
            row=row, expected=expected, payloads=payloads, previous=entry.hash, blobs=blobs,
            token=None if self.owner is None else self.owner.token,
        )  # fmt: skip

    def stored(self, entry: Entry, append: Append, result: Appended) -> None:
        if append.expected == 0:
            self.open_runs += 1
            if entry.flow.plan.runs_max is not None:
                self.admission.joined(entry.flow.run)
            if self._taken is not None:
                self._taken.add(
                    entry.row.id
                )  # begun here, so that nothing of it was begun elsewhere
        if not entry.row.open:
            self.open_runs -= 1
        entry.row.key, entry.row.position, entry.hash = result.key, result.position, result.hash
        first = result.position - len(append.payloads) + 1
        if self.owner is not None and first > self.position + 1:
            self.errands.run(self.look(self.position, first))  # others have written meanwhile
        if result.position > self.position:
            self.position = result.position
        entry.tail += len(append.payloads)
        for payload in append.payloads:
            entry.tail_bytes += len(payload)

    def settle(
        self, run_id: str, entry: Entry, items: list[Item], outcome: Turn, readings: list[Any]
    ) -> None:
        """It is on disk: answer, push, and let the world act."""
        refused, place, read, looked = outcome.refused, 0, 0, False
        for item in items:
            future = item.future
            if item.command is not None:
                if future is not None and not future.done():
                    if refused and place in refused:
                        future.set_exception(refused[place])
                    else:
                        future.set_result(None)
                place += 1
                if item.ticket is not None:
                    self.attempts.told(item.ticket)
            elif item.read is not None:
                value = readings[read]
                read += 1
                if future is not None and not future.done():
                    if isinstance(value, Raised):
                        future.set_exception(value.error)
                    else:
                        future.set_result(value)
            else:
                looked = True
        run = entry.flow.run
        if outcome.events:
            if points.reach is not None:
                points.reach("settle.answered")
            if self.observers:
                self.observers.announce(run, outcome.events)
            if self.listeners.all:
                self.listeners.offer(run, outcome.events, entry.row.position)
            if self.following.asked:
                self.following.moved(run_id, closed=run.closed)
            if self.owner is not None:
                self._perform(run_id, entry, outcome.effects)
                self._arm(run_id, entry)
                if entry.flow.plan.on_bus:
                    self._on_bus(entry)
            else:
                for effect in outcome.effects:
                    if isinstance(effect, f.Answer):
                        self.observers.answer(run_id, effect)
            if points.reach is not None:
                points.reach("settle.performed")
            if run.closed:
                self._closed(run_id, entry)
            elif (
                entry.tail >= snapshot_policy.EVENTS_MIN
                or run.updated_at - entry.snapshot_at > SNAPSHOT_SECONDS
            ):
                self._consider_snapshot(entry)
            if run_id in self._named:
                self._named.discard(run_id)
                self._snapshot(entry)
        if looked:
            self.reconcile(run_id)  # only now: what this turn decided is on disk

    def _on_bus(self, entry: Entry) -> None:
        """A run that publishes, or waits for what others do."""
        if entry.flow.plan.awaits:
            self.routing.seen(entry.flow.run)
        if entry.flow.plan.publishes:
            self.outbox.wake()

    def _refused(self, run_id: str, items: list[Item], error: Exception) -> None:
        """Another writer was first: load anew, decide anew. A newer owner: nothing more is ours to do."""
        self.cache.pop(run_id, None)
        if isinstance(error, Fenced):
            self.lost_ownership(error)
        elif not isinstance(error, RevisionConflict):
            self._fail(items, error)
            return
        for item in items:
            if isinstance(error, Fenced) and item.future is None:
                # What this process did as the owner counts no more; what it was asked for does.
                self._fail([item], error)
                continue
            item.tries += 1
            if item.tries > TRIES_MAX:
                self._fail([item], error)
            else:
                self.post(run_id, item)
        if self.owner is not None and not isinstance(error, Fenced):
            self.post(run_id, Item(None))

    def _store_failed(self, taken: Sequence[tuple[str, list[Item]]], error: StoreError) -> None:
        """Nothing was written. Callers are told; what nobody waits for is kept and tried again."""
        told = all(item.future is not None for _, items in taken for item in items)
        log.log(
            logging.INFO if told else logging.ERROR, "store.failed", extra={"error": str(error)}
        )
        again = self._again
        for run_id, items in taken:
            self.cache.pop(run_id, None)
            for item in items:
                if item.future is not None:
                    if not item.future.done():
                        item.future.set_exception(error)
                else:
                    again.append((run_id, item))
            again.append((run_id, Item(None)))
        self.timers.add(self.clock.now() + AGAIN_SECONDS, self._post_again)

    def _post_again(self) -> None:
        again, self._again = self._again, []
        for run_id, item in again:
            self.post(run_id, item)

    @property
    def untold(self) -> bool:
        """Something happened here that could not be stored: whoever comes next must not take our end for a clean one."""
        return (
            self.broken is not None
            or bool(self._batch)
            or any(item.command is not None for _, item in self._again)
        )

    def _fail(self, items: list[Item], error: Exception) -> None:
        for item in items:
            if item.ticket is not None:
                self.attempts.told(item.ticket)
            if item.future is not None and not item.future.done():
                item.future.set_exception(error)

    async def tell_owner(self, run_ids: list[str]) -> None:
        """Before the callers are answered, as they may be gone right after."""
        try:
            owner = await self.store.owner()
        except StoreError:
            return  # a lost hint costs a moment
        if owner is not None and owner.address and self.hints is not None:
            for run_id in run_ids:
                self.hints.tell(owner.address, run_id)

    # --- memory ----------------------------------------------------------------------------------------------

    async def plan(self, definition: str, version: str) -> Plan:
        """The compiled version, from memory or from the store."""
        plan = self.plans.get((definition, version))
        if plan is None:
            row = await self.store.definition(definition, version)
            if row is None:
                raise NotFound(
                    f"no version {version} of definition `{definition}`",
                    hint="take one that is registered, or none for the newest",
                )
            plan = self.know(definition, version, Plan(decode_definition(row.document)))
        return plan

    def know(self, definition: str, version: str, plan: Plan) -> Plan:
        """Keep a version that was compiled; the others of its definition are found through it."""
        kept = self.plans.setdefault((definition, version), plan)
        if kept is plan:
            plan.join(self._kin.setdefault(definition, {}), version)
        return kept

    async def folded(self, definition: str, fold: Callable[[], T]) -> T:
        """What a fold of a history gives, once all versions that the run has been of are compiled."""
        while True:
            try:
                return fold()
            except NeedPlan as need:
                await self.plan(definition, need.version)

    async def _load(self, run_ids: Sequence[str]) -> None:
        rows = await self.store.find_newest(run_ids)
        if not rows:
            return
        for run_id, entry in (await self.history.load(rows.values())).items():
            if isinstance(entry, Exception):
                log.error("run.unreadable", extra={"run": run_id, "error": str(entry)})
                self._fail(self._mail.pop(run_id, []), entry)
                self._unreadable[run_id] = entry
                continue
            self.cache[run_id] = entry

    def adopt(self, entry: Entry) -> None:
        """Take a loaded run into memory (recovery)."""
        if self._taken is not None:
            self._taken.add(entry.row.id)
        here = self.cache.get(entry.row.id)
        if here is None or here.row.revision < entry.row.revision:
            self.cache[entry.row.id] = entry
        self.open_runs += 1
        if entry.flow.plan.runs_max is not None:
            self.admission.joined(entry.flow.run)
        if entry.flow.plan.awaits:
            self.routing.seen(entry.flow.run)

    @property
    def recovering(self) -> bool:
        """Not all runs of the owner before are taken over."""
        return self._taken is not None

    def recovered(self) -> None:
        """All open runs are taken; what was put off meanwhile is looked at now."""
        later, self._taken, self._later = self._later, None, set()
        for run_id in later:
            self.post(run_id, Item(None))
        self.admission.recovered()

    def _evict(self) -> None:
        """Runs that only wait leave the memory, the oldest first."""
        excess = len(self.cache) - self.settings.cache_runs
        passive = [
            run_id
            for run_id in self.cache
            if not self.attempts.busy(run_id)
            and run_id not in self._mail
            and not self.observers.watched(run_id)
        ]
        for run_id in passive[: max(excess, self.settings.cache_runs // 10)]:
            del self.cache[run_id]

    def _consider_snapshot(self, entry: Entry) -> None:
        run = entry.flow.run
        hours = (run.updated_at - entry.snapshot_at) / 3600
        if snapshot_policy.due(
            events=entry.tail, tail_bytes=entry.tail_bytes, last_bytes=entry.snapshot_bytes, path=run.tasks_done,
            hours=hours,
        ):  # fmt: skip
            self._snapshot(entry)

    def snapshot_with(self, run_id: str) -> None:
        """The next append of the run is followed by a snapshot."""
        self._named.add(run_id)

    def _snapshot(self, entry: Entry) -> None:
        """Keep the state as it is now, right after its append; only the writing may take its time."""
        run = entry.flow.run
        state = encode_run(run)
        entry.tail = entry.tail_bytes = 0
        entry.snapshot_bytes, entry.snapshot_at = len(state), run.updated_at
        self.errands.run(
            self._save_snapshot(entry.row.key, Snapshot(run.revision, state, entry.hash))
        )

    async def _save_snapshot(self, key: int, snapshot: Snapshot) -> None:
        if points.reach is not None:
            points.reach("snapshot.before")
        await self.store.save_snapshots([(key, snapshot)])
        if points.reach is not None:
            points.reach("snapshot.after")

    # --- effects ---------------------------------------------------------------------------------------------

    def reconcile(self, run_id: str) -> None:
        """Somebody else may have written: whatever the state wants now and nobody is at, is begun."""
        entry = self.cache.get(run_id)
        if entry is None or self.owner is None:
            return
        if self._taken is not None and run_id not in self._taken:
            self._later.add(run_id)  # what a dead process had begun is not recorded as lost yet
            return
        if points.reach is not None:
            points.reach("recovery.owed")
        run = entry.flow.run
        wanted = owed(run)
        self.attempts.keep(run, wanted)
        self._perform(run_id, entry, wanted)
        self._arm(run_id, entry)
        if entry.flow.plan.on_bus:
            self._on_bus(entry)
        if run.generation > 1 or entry.flow.plan.runs_max is not None:
            self.admission.seen(run, entry.flow.plan)
        if run.closed:
            self._closed(run_id, entry)

    def refresh(self, run_id: str) -> None:
        """A hint: the run may have changed in the store."""
        self.cache.pop(run_id, None)
        self.observers.poke(run_id)
        self.post(run_id, Item(None))

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
        self.open_runs = await self.store.count(Query(status="OPEN"))

    def refresh_if_behind(self, row: Row) -> None:
        """The row as stored: if the run in memory is older, look again."""
        entry = self.cache.get(row.id)
        if entry is not None:
            mine, stored = entry.row, row
            if (mine.generation, mine.revision) >= (stored.generation, stored.revision):
                return
        if (
            entry is not None
            or row.open
            or row.parent is not None
            or row.status == "TERMINATED"  # its children may not know
            or self.observers.awaited(row.id)
            or self.admission.holds(row)
        ):
            self.refresh(row.id)

    def _perform(self, run_id: str, entry: Entry, effects: list[f.Effect]) -> None:
        run = entry.flow.run
        if self._taken is not None and run_id not in self._taken:
            self._later.add(run_id)  # recovery comes to it, and begins all that it is owed
            return
        for effect in effects:
            match effect:
                case f.Execute():
                    self.attempts.want(entry, effect)
                case f.Abandon():
                    self.attempts.abandon(run, effect)
                case f.StartChild():
                    self.errands.run(self.errands.start_child(run_id, effect.key), run_id)
                case f.CancelChild():
                    self.errands.run(
                        self.errands.cancel_child(run_id, effect.key, effect.run), run_id
                    )
                case f.Deliver():
                    out = run.outgoing.get(effect.id)
                    if out is not None:
                        work = self.errands.deliver(
                            run_id, effect.id, out.run, out.name, bytes(out.payload)
                        )
                        self.errands.run(work, run_id)
                case f.Admit():
                    self.admission.want(run, entry.flow.plan)
                case f.Answer():
                    self.observers.answer(run_id, effect)

    def _arm(self, run_id: str, entry: Entry) -> None:
        run = entry.flow.run
        if run.deadline is not None:
            self.forecast.watch(run)
        dues = run.dues
        due = dues[0][0] if dues and not run.paused else None
        if due is not None and due != entry.armed:
            self.timers.add(due, self._wake, run_id)
        entry.armed = due

    def _wake(self, run_id: str) -> None:
        if points.reach is not None:
            points.reach("timer.before")
        entry = self.cache.get(run_id)
        if entry is not None:
            entry.armed = None
        if self.owner is not None:
            self.post(run_id, Item(c.Wake(at=self.clock.now())))

    def _closed(self, run_id: str, entry: Entry) -> None:
        self.observers.closed(run_id, entry)
        run = entry.flow.run
        self.forecast.ended(run)
        if entry.flow.plan.runs_max is not None:
            self.admission.left(run)
        if run.parent is not None and self.owner is not None:
            self.errands.run(self.errands.tell_parent(entry), run.parent)
        self.forget(run_id)

    def forget(self, run_id: str) -> None:
        """A closed run that nothing more is to be done to leaves the memory."""
        entry = self.cache.get(run_id)
        if (
            entry is not None
            and entry.flow.run.closed
            and run_id not in self._mail
            and not self.attempts.busy(run_id)
        ):
            del self.cache[run_id]

    # --- for others ------------------------------------------------------------------------------------------

    def lost_ownership(self, error: Fenced) -> None:
        """A newer owner exists: nothing that is under way here counts any more."""
        if self.owner is None:
            return
        log.error("owner.fenced", extra={"error": str(error)})
        self.owner = None
        self.attempts.lost_ownership()
        self.observers.disturb(error)

    def in_memory(self, run_id: str) -> bool:
        """The run is here and not closed, as far as is on disk."""
        entry = self.cache.get(run_id)
        return entry is not None and entry.row.open and self.owner is not None

    def quiet(self) -> bool:
        """Nothing is to be committed or carried out at this moment; attempts may be under way."""
        return (
            not self._ready
            and not self._mail
            and not self._batch
            and not self.errands
            and self.listeners.quiet()
            and self.outbox.quiet()
            and self.bus.quiet()
            and self.projections.quiet()
        )

    @property
    def backlog(self) -> int:
        return len(self._ready)

    async def load_globals(self) -> None:
        self.take_globals(await self.store.data_global())

    def take_globals(self, data: Mapping[str, bytes]) -> None:
        self.globals = {name: decode(raw) for name, raw in data.items()}

    async def load_paused(self) -> None:
        """Which definitions operators have paused (SPEC 4.9)."""
        self.attempts.pause({each.id for each in await self.paused_records()})

    async def paused_records(self) -> list[Record]:
        found = page = await self.store.records("paused", limit=RECORDS_PAGE)
        while len(page) == RECORDS_PAGE:
            page = await self.store.records("paused", after=page[-1].id, limit=RECORDS_PAGE)
            found.extend(page)
        return found

    async def bring(self, run_id: str, refs: set[int]) -> None:
        """Load values that a reader needs."""
        entry = self.cache.get(run_id)
        if entry is not None:
            await self.history.bring(entry.flow, entry.row.key, refs)

    def stats(self) -> dict[str, int]:
        return {
            **self.store.stats(),
            **self.retention.counts,
            "roots": self.roots.count,
            "turns": self.turns,
            "running": self.attempts.dispatch.running,
            "queued": len(self.attempts.dispatch),
            "in_memory": len(self.cache),
            "timers": len(self.timers),
        }
