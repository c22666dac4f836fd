"""One process of a simulation: an engine, a worker and a store of its own, all of which end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.adapters.memory_bus import MemoryBus
from penstock.core.vocabulary import mentioned
from penstock.engine.engine import Engine as Core
from penstock.engine.recovery import Ownership
from penstock.engine.runs import LocalRuns
from penstock.engine.settings import Settings
from penstock.errors import StoreError
from penstock.model.job import Broken, Done, Job, Outcome
from penstock.sdk.client import Engine
from penstock.sdk.tap import close_tap
from penstock.sdk.worker import LocalActivities
from penstock.sdk.workflow import Entry
from penstock.testing.faults import FaultyStore, NodeClock, NodeHints
from penstock.testing.transacting import FaultyTransactions, WatchedTransaction

if TYPE_CHECKING:
    from penstock.testing.simulator import Simulation

T = TypeVar("T")

AGAIN_SECONDS = 0.2
LATE = b'"late"'
"""What an attempt gives that ends after its time, or after its node."""


class NodeDied(Exception):
    """Whoever was asked is gone."""


class WatchedActivities(LocalActivities):
    """The worker of a node; the judge sees what begins and what comes of it."""

    node: Node

    def begin(self, job: Job, report: Callable[[Job, Outcome], None]) -> None:
        node = self.node
        node.judge.begun(node, job, owns=node.owns())
        node.jobs[job.run_id, job.generation, job.key, job.attempt, job.undo] = job

        def tell(job: Job, outcome: Outcome) -> None:
            node.jobs.pop((job.run_id, job.generation, job.key, job.attempt, job.undo), None)
            node.judge.gave(job, outcome)
            if isinstance(outcome, Done | Broken):
                node.simulation.late.append((job, outcome))
            if isinstance(outcome, Broken) and outcome.failure.code == "timeout":
                node.simulation.late.append((job, Done(LATE)))
            report(job, outcome)

        super().begin(job, tell)

    def serve(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._entries[entry.name] = entry

    def perform(self, job: Job) -> Outcome:
        """A transactional activity, inside of a commit."""
        node = self.node
        node.judge.begun(node, job, owns=node.owns())
        outcome = super().perform(job)
        node.judge.gave(job, outcome)
        return outcome

    def bury(self) -> None:
        """Its process is gone, and nobody closed it."""
        if self._beside is not None:
            self._beside.close()
        if self._tapped:
            self._tapped = False
            close_tap()


class Node:
    """One process with an engine in it."""

    def __init__(self, simulation: Simulation, number: int, clock_offset: float = 0.0) -> None:
        self.simulation, self.number = simulation, number
        self.name = f"node-{number}"
        self.judge = simulation.judge
        loop = simulation.loop
        self.place, self.context = loop.open_place(self.name)
        self.place.blow = lambda: simulation.crash(self)
        self.clock = NodeClock(loop, clock_offset)
        self.jobs: dict[tuple[str, int, str, int, bool], Job] = {}
        self.asked: dict[asyncio.Future[Any], None] = {}
        self.opened = False
        self.cut_off = False
        """It does not reach the store."""
        self.transactions: dict[WatchedTransaction, None] = {}
        """Those of activities that are open."""
        self.store = simulation.disk.store(self.clock.now)
        work, scenario = simulation.workload, simulation.scenario
        self.worker = WatchedActivities(
            simulation.registry, self.clock, watch=False, secrets=work.secrets
        )
        self.worker.serve(work.entries)
        self.worker.node = self
        store = FaultyStore(self.store, self, simulation.trouble)
        if self.store.transactions is not None:
            store.transactions = FaultyTransactions(
                self.store.transactions, self, simulation.trouble
            )
        self.core = core = Core(
            store,  # type: ignore[arg-type]
            self.worker,
            self.clock,
            bus=MemoryBus(self.clock),
            hints=NodeHints(self, loop, simulation.trouble, simulation.listeners),
            functions=work.functions(work.workflows),
            node=self.name,
            settings=Settings(
                drain_seconds=0, ease_collector=False, cache_runs=scenario.cache_runs,
                max_concurrent_tasks_per_node=scenario.tasks_max,
            ),
        )  # fmt: skip
        for row, plan in work.definitions:
            # Compiled once for all; every fourth reads from the store what needs no plugin.
            if scenario.seed % 4 or mentioned(plan.definition):
                core.know(row.id, row.version, plan)
        self.ownership = Ownership(core)
        self.runs = LocalRuns(core, self.ownership)
        self.engine = Engine(self.runs)

    def owns(self) -> bool:
        owner = self.core.owner
        return owner is not None and owner.token == self.simulation.disk.token()

    def bury(self) -> None:
        """What is left of it ends now, and not during another simulation."""
        self.core.programs.clear()
        for entry in self.core.cache.values():
            if entry.flow.program is not None:
                entry.flow.program.close()
        self.worker.bury()

    async def open(self) -> None:
        """However often the store fails."""
        while not self.opened:
            try:
                await self.core.open()
                await self.ownership.open()
                self.opened = True
            except StoreError:
                await asyncio.sleep(AGAIN_SECONDS)

    def end(self) -> None:
        """Nothing of it goes on, and whoever waits for it is told."""
        simulation = self.simulation
        simulation.loop.kill(self.place)
        for transaction in list(self.transactions):
            transaction.cut()
        simulation.disk.crashed(self.store)
        simulation.listeners.pop(self.name, None)
        for future in list(self.asked):
            if not future.done():
                future.set_exception(NodeDied(self.name))
        simulation.late.extend((job, Done(LATE)) for job in self.jobs.values())

    def call(self, work: Callable[[Engine], Awaitable[T]]) -> asyncio.Future[T]:
        """Ask the node for something; NodeDied if it does not live to answer."""
        loop = self.simulation.loop
        future: asyncio.Future[T] = loop.create_future()
        if not self.place.alive:
            future.set_exception(NodeDied(self.name))
            return future
        self.asked[future] = None

        async def do() -> None:
            try:
                answer = await work(self.engine)
            except BaseException as error:
                loop.call_soon(self._tell, future, None, error, context=self.simulation.context)
                if not isinstance(error, Exception):
                    raise
            else:
                loop.call_soon(self._tell, future, answer, None, context=self.simulation.context)

        loop.create_task(do(), context=self.context)
        return future

    def _tell(self, future: asyncio.Future[T], answer: Any, error: BaseException | None) -> None:
        self.asked.pop(future, None)
        if future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error if isinstance(error, Exception) else NodeDied(self.name))
