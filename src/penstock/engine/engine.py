"""Engine: load, take a turn, append; only then may the world see it (SPEC 4.2).

Commands wait in one inbox (`engine/inbox.py`); a single loop takes all that is ready, of many runs (`engine/commits.py`),
takes their turns (`engine/turns.py`), makes one commit of it, and then performs the effects (`engine/effects.py`). An
engine that does not own the database decides and appends commands all the same, without executing anything, and tells
the owner (SPEC 4.8). Ownership and recovery: `engine/recovery.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, TypeVar

from penstock.core.functions import FUNCTION, FunctionPlan
from penstock.core.plan import NeedPlan, Plan
from penstock.core.values import decode
from penstock.engine import points
from penstock.engine.admission import Admission
from penstock.engine.attempts import Attempts
from penstock.engine.collector import COLLECTOR
from penstock.engine.commits import Commits
from penstock.engine.effects import Effects
from penstock.engine.errands import Errands
from penstock.engine.following import Following
from penstock.engine.forecast import Forecast
from penstock.engine.history import Entry, History
from penstock.engine.holding import Holding
from penstock.engine.inbox import Inbox, Item, Reader
from penstock.engine.inside import Inside
from penstock.engine.known import Known
from penstock.engine.listeners import Listeners
from penstock.engine.observers import Observers
from penstock.engine.outbox import Outbox
from penstock.engine.plugins import plan_of
from penstock.engine.programs import Programs
from penstock.engine.projections import Projections
from penstock.engine.queueing import Queueing
from penstock.engine.requests import Requests
from penstock.engine.retention import Retention
from penstock.engine.roots import Roots
from penstock.engine.routing import Routing
from penstock.engine.settings import Settings
from penstock.engine.snapshots import Snapshots
from penstock.engine.tending import Tending
from penstock.engine.timers import Timers
from penstock.engine.turns import Turns
from penstock.errors import Busy, Fenced, NotFound, PenstockError, StoreError
from penstock.model import commands as c
from penstock.ports.activities import Activities
from penstock.ports.bus import Bus
from penstock.ports.clock import Clock
from penstock.ports.hints import Hints
from penstock.ports.plugins import NoPlugins, Plugins
from penstock.ports.programs import Functions, NoFunctions
from penstock.ports.store import Owner, Record, Store

log = logging.getLogger("penstock.engine")

T = TypeVar("T")
RECORDS_PAGE = 1000


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
        functions: Functions | None = None,
        node: str = "node",
        settings: Settings | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        self.plugins: Plugins = plugins or NoPlugins()
        self.store, self.activities, self.clock, self.hints, self.node = (
            store,
            activities,
            clock,
            hints,
            node,
        )
        self.settings = settings or Settings()
        self.bus = bus
        self.functions: Functions = functions or NoFunctions()
        self.owner: Owner | None = None
        self._settled = asyncio.Event()
        """Set unless runs are being taken over."""
        self.owned_at = 0.0
        self.lease_until = inf
        """By `clock.ticks()`: from then on another process may own the database, and nothing more is begun here (SPEC 4.8)."""
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
        self.inbox = Inbox()
        self.post, self.heavy = self.inbox.post, self.inbox.heavy
        self.snapshots = Snapshots(self)
        self.programs = Programs(self)
        self.known = Known(self)
        self.turns = Turns(self)
        self.effects = Effects(self)
        self.holding = Holding(self)
        self.commits = Commits(self)
        self.stopping = self._drained = False
        self._task: asyncio.Task[None] | None = None
        self.position = 0
        """The newest position that this engine has written or looked at."""
        self.open_runs = 0

    # --- life ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        self.inside.check()
        await self.store.open()
        await self.bus.open()
        await self.activities.open()
        await self.load_globals()
        await self.known.write_down()
        self._task = asyncio.get_running_loop().create_task(
            self.commits.run(), name="penstock.commits"
        )
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
        self.commits.post_again()
        await self._emptied()
        self._drained = True
        if points.reach is not None:
            points.reach("stop.drained")
        await self.outbox.close()
        await self.bus.close()
        await self.projections.close()
        await self.listeners.close()
        await self.following.close()
        self.timers.close()
        await self.errands.close()
        await self._emptied()  # cut off in the middle of a batch, this would not be a clean end
        task, self._task = self._task, None
        if task is None:  # pyright: ignore[reportUnnecessaryComparison]
            return  # closed by two at once, and the other was first
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if self.settings.ease_collector:
            COLLECTOR.restore()
        self.commits.abandon(PenstockError("the engine is closed"))

    async def _emptied(self) -> None:
        """Until nothing is left in the inbox; each round of the loop may add to it."""
        while self._working() and self.broken is None:
            busy = self.commits.batch or self.inside.busy or self.programs
            await asyncio.sleep(0.001 if busy else 0)

    def _working(self) -> bool:
        return bool(self.inbox or self.commits.batch or self.inside.busy or self.programs)

    # --- what is asked of runs ----------------------------------------------------------------------------------

    async def command(self, run_id: str, command: c.Command, plan: Plan | None = None) -> Any:
        """On disk on return, or the reason why it was refused."""
        self.check_room()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.post(run_id, Item(command, future, plan))
        return await future

    def check_room(self) -> None:
        """Whether commands are taken at this moment."""
        self.check_open()
        if len(self.inbox.mail) >= self.settings.inbox_max:
            raise Busy(
                f"{len(self.inbox.mail)} runs have commands waiting, which is the limit",
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

    # --- ownership -------------------------------------------------------------------------------------------

    def own(self, owner: Owner, position: int) -> None:
        """This process is the owner from now on; what it remembers may be old."""
        self.owner, self.position, self.owned_at = owner, position, self.clock.ticks()
        self.lease_until = inf
        self.effects.take_over()
        self._settled.clear()
        self.open_runs = 0
        self.admission.clear()
        self.routing.clear()
        self.cache.clear()
        self.programs.clear()
        self.holding.clear()
        self.newest.clear()

    def renewed(self, until: float) -> None:
        """The lease holds until then; what was not begun because it had run out is looked at now."""
        self.lease_until = until
        self.attempts.renewed()

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
        if plan is None and version == FUNCTION:
            plan = self.functions.plan(definition) or FunctionPlan(definition)
            return self.know(definition, version, plan)
        if plan is None:
            row = await self.store.definition(definition, version)
            if row is None:
                raise NotFound(
                    f"no version {version} of definition `{definition}`",
                    hint="take one that is registered, or none for the newest",
                )
            plan = self.know(definition, version, await plan_of(self.store, self.plugins, row))
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

    def adopt(self, entry: Entry) -> None:
        """Take a loaded run into memory (recovery)."""
        if self.effects.taken is not None:
            self.effects.taken.add(entry.row.id)
        mine, here = entry.row, self.cache.get(entry.row.id)
        if here is None or (here.row.generation, here.row.revision) < (
            mine.generation,
            mine.revision,
        ):
            self.cache[mine.id] = entry
            self.turns.loading.discard(mine.id)
        self.open_runs += 1
        if entry.flow.plan.runs_max is not None:
            self.admission.joined(entry.flow.run)
        if entry.flow.plan.awaits:
            self.routing.seen(entry.flow.run)

    @property
    def recovering(self) -> bool:
        """Not all runs of the owner before are taken over."""
        return self.effects.taken is not None

    def recovered(self) -> None:
        """All open runs are taken; what was put off meanwhile is looked at now."""
        for run_id in self.effects.taken_over():
            self.post(run_id, Item(None))
        self._settled.set()
        self.admission.recovered()

    async def until_recovered(self) -> None:
        """All open runs are taken, or are not ours any more: till then not all are known that wait for something."""
        while self.recovering and self.owner is not None:
            await self._settled.wait()

    def disown(self) -> None:
        """The runs are not ours any more."""
        self.owner = None
        self._settled.set()

    def refresh(self, run_id: str) -> None:
        """A hint: the run may have changed in the store. Whoever comes next looks, once nothing more is begun here."""
        if self._drained:
            return
        self.cache.pop(run_id, None)
        self.turns.loading.discard(run_id)
        self.observers.poke(run_id)
        self.post(run_id, Item(None))

    def forget(self, run_id: str) -> None:
        """A closed run that nothing more is to be done to leaves the memory."""
        entry = self.cache.get(run_id)
        if (
            entry is not None
            and entry.flow.run.closed
            and run_id not in self.inbox.mail
            and not self.attempts.busy(run_id)
        ):
            del self.cache[run_id]

    # --- for others ------------------------------------------------------------------------------------------

    def lost_ownership(self, error: Fenced) -> None:
        """A newer owner exists: nothing that is under way here counts any more. Unless that is this very process, and what
        was refused is from before it was taken over from."""
        if self.owner is None or error.token < self.owner.token:
            return
        log.error("owner.fenced", extra={"error": str(error)})
        self.disown()
        self.attempts.lost_ownership()
        self.observers.disturb(error)

    def in_memory(self, run_id: str) -> bool:
        """The run is here and not closed, as far as is on disk."""
        entry = self.cache.get(run_id)
        return entry is not None and entry.row.open and self.owner is not None

    def quiet(self) -> bool:
        """Nothing is to be committed or carried out at this moment; attempts may be under way."""
        return (
            not self.inbox
            and not self.commits.batch
            and not self.errands
            and self.listeners.quiet()
            and self.outbox.quiet()
            and self.bus.quiet()
            and self.projections.quiet()
        )

    @property
    def backlog(self) -> int:
        return len(self.inbox.ready)

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

    def stats(self) -> dict[str, int]:
        return {
            **self.store.stats(),
            **self.retention.counts,
            "roots": self.roots.count,
            "turns": self.turns.count,
            "running": self.attempts.dispatch.running,
            "queued": len(self.attempts.dispatch),
            "in_memory": len(self.cache),
            "timers": len(self.timers),
        }
