"""Deterministic simulation: the real engine on nodes that crash and restart, on a loop that owns time and order (SPEC 13).

A scenario is data: what is started when, what people do, what breaks. The same scenario gives the same histories, byte for
byte. While it plays, `testing/judging.py` looks at every commit; once nothing breaks any more every run must end.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from msgspec import Struct

from penstock.adapters.memory_bus import MemoryBus
from penstock.core.owed import reasons
from penstock.core.plan import Plan
from penstock.dsl.load import load_document
from penstock.engine.engine import Engine as Core
from penstock.engine.inbox import Item
from penstock.engine.recovery import Ownership
from penstock.engine.runs import LocalRuns
from penstock.engine.settings import Settings
from penstock.engine.verdicts import digest_of
from penstock.errors import Busy, Fenced, NotFound, PenstockError, Rejected, StoreError
from penstock.model import commands as c
from penstock.model.codec import encode_definition
from penstock.model.job import Broken, Done, Job, Outcome
from penstock.ports.store import DefinitionRow
from penstock.sdk.client import Engine
from penstock.sdk.functions import Functions
from penstock.sdk.tap import close_tap
from penstock.sdk.worker import LocalActivities
from penstock.sdk.workflow import Registry
from penstock.testing.faults import NOON, Fault, FaultyStore, NodeClock, NodeHints, Trouble
from penstock.testing.judging import Judge
from penstock.testing.loop import SimulationLoop
from penstock.testing.stores import Disk, disk_of

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

LATE_KEPT = 40
"""Results that may arrive once more."""
LOOK_SECONDS = 2.0
"""How often people look whether a run waits for them."""
PATIENCE_SECONDS = 240.0
"""With nothing broken any more, a run to which nothing happens for so long is stuck."""
WATCH_SECONDS = 1.0
STEPS_MAX = 300_000


class Start(Struct, frozen=True):
    """A run that somebody starts."""

    at: float
    id: str
    definition: str
    input: Any = None
    options: Mapping[str, Any] = {}


class Deed(Struct, frozen=True):
    """What somebody does to a run: `cancel`, `terminate`, `pause`, `resume`, `snapshot`, `signal`, `retry`, `reset`,
    `attributes`, `fire`, `skip`."""

    at: float
    act: str
    run: str
    name: str = ""
    payload: Any = None


class Scenario(Struct, frozen=True):
    """All that a simulation depends on, beside the code."""

    seed: int
    store: str = "memory"
    nodes: int = 1
    starts: Sequence[Start] = ()
    deeds: Sequence[Deed] = ()
    faults: Sequence[Fault] = ()
    cache_runs: int = 1000
    tasks_max: int = 1000


class Workload(Struct):
    """What runs: documents of definitions, workflow functions, activities."""

    definitions: Sequence[tuple[DefinitionRow, Plan]] = ()
    workflows: Sequence[Any] = ()
    activities: Sequence[Any] = ()


class Result(Struct):
    """What came of a simulation."""

    digest: str
    problems: list[str]
    counts: Counter[str]
    histories: dict[str, list[bytes]]
    """The events of each run, as stored; by id and generation."""


def definition_row(document: Mapping[str, Any]) -> tuple[DefinitionRow, Plan]:
    """A definition as the store keeps it, without verifying it."""
    definition = load_document(dict(document)).definition
    row = DefinitionRow(
        id=definition.id, version=definition.version or "1", number=1, document=encode_definition(definition),
        digest=digest_of(definition), created_at=NOON,
    )  # fmt: skip
    return row, Plan(definition)


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
            report(job, outcome)

        super().begin(job, tell)

    def bury(self) -> None:
        """Its process is gone, and nobody closed it."""
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
        self.store = simulation.disk.store(self.clock.now)
        work, scenario = simulation.workload, simulation.scenario
        self.worker = WatchedActivities(Registry(work.activities), self.clock, watch=False)
        self.worker.node = self
        self.core = core = Core(
            FaultyStore(self.store, self, simulation.trouble),  # type: ignore[arg-type]
            self.worker,
            self.clock,
            bus=MemoryBus(self.clock),
            hints=NodeHints(self, loop, simulation.trouble, simulation.listeners),
            functions=Functions(work.workflows),
            node=self.name,
            settings=Settings(
                drain_seconds=0, ease_collector=False, cache_runs=scenario.cache_runs,
                max_concurrent_tasks_per_node=scenario.tasks_max,
            ),
        )  # fmt: skip
        if scenario.seed % 4:  # compiled once for all; the others read them from the store
            for row, plan in work.definitions:
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
        await self.core.open()
        await self.ownership.open()
        self.opened = True

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


class Simulation:
    """Plays one scenario."""

    def __init__(self, scenario: Scenario, workload: Workload, folder: str | None = None) -> None:
        self.scenario, self.workload = scenario, workload
        self.loop = SimulationLoop(scenario.seed)
        self.trouble = Trouble(Random(f"{scenario.seed}/trouble"))
        self.counts = self.trouble.counts
        self.chance = Random(f"{scenario.seed}/people")
        self.judge = Judge()
        self.listeners: dict[str, NodeHints] = {}
        self.late: deque[tuple[Job, Outcome]] = deque(maxlen=LATE_KEPT)
        self.disk: Disk = disk_of(scenario.store, folder, self.trouble)
        self.nodes: list[Node] = []
        self.dead: list[Node] = []
        self.raging = True
        """Things still break."""
        self.context: Any = None

    def play(self) -> Result:
        with _sealed(self.scenario.seed), _silenced(self.judge):
            try:
                self.loop.run(self._play())
            finally:
                for node in (*self.dead, *self.nodes):
                    node.bury()
                self.disk.close()
        for each in self.loop.unheard:
            self.judge.note(f"unheard: {each.get('message')}: {each.get('exception')!r}")
        self.counts["steps"] = self.loop.steps
        self.counts["events"] = self.judge.events
        self.counts["attempts"] = self.judge.attempts
        self.counts["runs"] = len(self.judge.newest)
        return Result(
            self.judge.digest(), self.judge.problems, self.counts,
            {f"{id}/{n}": shadow.payloads for (id, n), shadow in self.judge.shadows.items()},
        )  # fmt: skip

    async def _play(self) -> None:
        from contextvars import copy_context

        self.context = copy_context()
        await self._found()
        self.nodes = [self._begin(number) for number in range(self.scenario.nodes)]
        loop = self.loop
        acts = [loop.create_task(self._starting(each)) for each in self.scenario.starts]
        acts += [loop.create_task(self._doing(each)) for each in self.scenario.deeds]
        faults = [loop.create_task(self._breaking(each)) for each in self.scenario.faults]
        beside = [loop.create_task(self._attend()), loop.create_task(self._watch())]
        over = loop.create_task(self._over(acts, faults))
        alarm = loop.create_future()
        self.judge.alarm = lambda: None if alarm.done() else alarm.set_result(None)
        try:
            await asyncio.wait([alarm, over, *beside], return_when="FIRST_COMPLETED")
            for each in (over, *beside):
                if each.done():
                    each.result()
        finally:
            for each in (*acts, *faults, *beside, over):
                each.cancel()
        if not self.judge.problems:
            await self._close()

    async def _found(self) -> None:
        """The database, with its definitions."""
        store = self.disk.store(lambda: NOON)
        await store.open()
        for row, plan in self.workload.definitions:
            kept = await store.publish(row)
            self.judge.plans[kept.id, kept.version] = plan
        await store.close()

    async def _watch(self) -> None:
        """Whether engines and the loop are sound; what is stored is judged as it is."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for node in self.nodes:
                if node.core.broken is not None and node.place.alive:
                    self.judge.note(f"{node.name} is broken: {node.core.broken!r}")
            if self.loop.steps > STEPS_MAX:
                self.judge.note(f"not over after {STEPS_MAX:,} steps")

    async def _over(self, acts: Sequence[Awaitable[Any]], faults: Sequence[Awaitable[Any]]) -> None:
        """Until nothing breaks any more and all runs have ended."""
        await asyncio.gather(*faults)
        self.raging = False
        self.trouble.heal()
        for node in self.nodes:
            node.place.fuse = -1
            node.clock.offset = self.nodes[0].clock.offset  # somebody sets them right
            self.loop.stall(node.place, False)
        await asyncio.gather(*acts)
        seen, since = -1, self.loop.time()
        while self.judge.open_runs():
            if self.judge.events != seen:
                seen, since = self.judge.events, self.loop.time()
            if self.loop.time() > since + PATIENCE_SECONDS:
                for id in self.judge.open_runs()[:3]:
                    why = "; ".join(each.message for each in reasons(self.judge.run(id)))
                    self.judge.note(f"run {id} does not end: {why}")
                return
            await asyncio.sleep(0.25)

    async def _close(self) -> None:
        """In order; then what is on disk is what the judge has seen."""
        for node in self.nodes:
            if node.place.alive:
                try:
                    await node.call(lambda engine: engine.close())
                except PenstockError as error:
                    self.judge.note(f"{node.name} does not close: {error}")
        store = self.disk.store(lambda: NOON)
        await store.open()
        for (id, generation), shadow in self.judge.shadows.items():
            row = await store.find(id, generation)
            stored = [] if row is None else [each.payload for each in await store.events(row.key)]
            if stored != shadow.payloads:
                self.judge.note(f"run {id}: what is on disk is not what was stored")
        await store.close()

    # --- nodes -----------------------------------------------------------------------------------------------

    def _begin(self, number: int, offset: float = 0.0) -> Node:
        node = Node(self, number, offset)
        self.loop.create_task(self._opening(node), context=node.context)
        return node

    async def _opening(self, node: Node) -> None:
        while True:
            try:
                await node.open()
                return
            except StoreError:
                await asyncio.sleep(0.2)

    def crash(self, node: Node) -> None:
        """It dies, this very moment; a while later it is there again."""
        if not node.place.alive:
            return
        self.counts["crashes"] += 1
        self._end(node)
        self.loop.create_task(
            self._reopening(node, self.chance.random() * 3.0), context=self.context
        )

    def _end(self, node: Node) -> None:
        """Nothing of it goes on; whoever waits for it is told, and what it was at may still come to an end elsewhere."""
        self.loop.kill(node.place)
        self.disk.crashed(node.store)
        self.listeners.pop(node.name, None)
        for future in list(node.asked):
            if not future.done():
                future.set_exception(NodeDied(node.name))
        self.late.extend((job, Done(b'"late"')) for job in node.jobs.values())
        self.dead.append(node)

    def _lose_power(self) -> None:
        """All nodes die at once."""
        self.counts["power losses"] += 1
        for each in list(self.nodes):
            self.crash(each)
        for append in self.disk.power_lost():
            self.counts["commits lost with the power"] += 1
            self.judge.taken_back(append)

    async def _reopening(self, node: Node, delay: float) -> None:
        await asyncio.sleep(delay)
        self.counts["restarts"] += 1
        offset = node.clock.offset if self.raging else self.nodes[0].clock.offset
        self.nodes[node.number] = self._begin(node.number, offset)

    # --- what breaks -----------------------------------------------------------------------------------------

    async def _breaking(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        node = self.nodes[fault.node % len(self.nodes)]
        trouble = self.trouble
        match fault.kind:
            case "crash":
                node.place.fuse = int(fault.amount)
            case "power":
                node.place.blow = self._lose_power
                node.place.fuse = int(fault.amount)
            case "restart":
                await self._restart(node)
            case "stall":
                if node.place.alive:
                    self.counts["stalls"] += 1
                    self.loop.stall(node.place, True)
                    await asyncio.sleep(fault.amount)
                    self.loop.stall(node.place, False)
            case "jump":
                self.counts["clock jumps"] += 1
                node.clock.offset += fault.amount
            case "late":
                await self._late(fault.amount)
            case "slow" | "failing" | "unsure" | "deaf":
                self.counts[f"{fault.kind} spells"] += 1
                setattr(trouble, fault.kind, 0.3)
                await asyncio.sleep(fault.amount)
                setattr(trouble, fault.kind, 0.0)
            case "full" | "partition":
                name = "full" if fault.kind == "full" else "parted"
                self.counts[f"{fault.kind} spells"] += 1
                setattr(trouble, name, True)
                await asyncio.sleep(fault.amount)
                setattr(trouble, name, False)
            case _:
                raise AssertionError(fault)

    async def _restart(self, node: Node) -> None:
        if not node.place.alive or not node.opened:
            return
        self.counts["orderly restarts"] += 1
        with suppress(NodeDied, PenstockError):
            await node.call(lambda engine: engine.close())
        if node.place.alive:
            self._end(node)
            await self._reopening(node, self.chance.random())

    async def _late(self, delay: float) -> None:
        """The result of an attempt, which may be long over, comes (once more) to whoever owns the database."""
        if not self.late:
            return
        job, outcome = self.late[int(self.chance.random() * len(self.late))]
        await asyncio.sleep(delay)
        for node in self.nodes:
            if node.place.alive and node.core.owner is not None:
                at, key, attempt = node.clock.now(), job.key, job.attempt
                if isinstance(outcome, Done):
                    self.judge.gave(job, outcome)
                    command: c.Command = c.CompleteTask(
                        at=at, key=key, attempt=attempt, output=outcome.output, undo=job.undo,
                        generation=job.generation,
                    )  # fmt: skip
                else:
                    assert isinstance(outcome, Broken)
                    command = c.FailTask(
                        at=at, key=key, attempt=attempt, failure=outcome.failure, undo=job.undo,
                        generation=job.generation,
                    )  # fmt: skip
                self.counts["late results"] += 1
                item = Item(command)
                self.loop.call_soon(node.core.post, job.run_id, item, context=node.context)

    # --- what is asked ---------------------------------------------------------------------------------------

    async def ask(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        """Of any node, until one answers and the answer is heard; Rejected and NotFound are answers."""
        while True:
            able = [node for node in self.nodes if node.place.alive and node.opened]
            if able:
                node = able[int(self.chance.random() * len(able))]
                try:
                    answer = await node.call(work)
                    if self.trouble.deaf and self.chance.random() < self.trouble.deaf:
                        self.counts["answers lost"] += 1
                    else:
                        return answer
                except NodeDied:
                    self.counts["callers cut off"] += 1
                except (Rejected, NotFound):
                    raise
                except (StoreError, Busy, Fenced, PenstockError):
                    self.counts["callers refused"] += 1
            await asyncio.sleep(0.05 + self.chance.random() * 0.5)

    async def _starting(self, start: Start) -> None:
        await asyncio.sleep(start.at)
        await self.ask(
            lambda engine: engine.start(start.definition, start.input, id=start.id, **start.options)
        )
        self.judge.answered(start.id)

    async def _doing(self, deed: Deed) -> None:
        await asyncio.sleep(deed.at)
        if deed.run not in self.judge.newest:
            return
        await self.do(deed.run, deed.act, deed.name, deed.payload)

    async def do(self, id: str, act: str, name: str = "", payload: Any = None) -> None:
        """One act of people, asked for until it is answered."""
        command = f"c{self.counts['acts']}"
        self.counts["acts"] += 1
        self.counts[f"act {act}"] += 1

        now, drawn = self.judge.run(id), self.chance.random()
        to = 1 + int(drawn * now.revision)
        keys = [each.key for each in reasons(now) if each.key] or ["nothing"]
        key = keys[int(drawn * len(keys))]

        async def work(engine: Engine) -> None:
            run = await engine.get(id)
            match act:
                case "signal":
                    await run.signal(name, payload, message_id=command)
                case "snapshot":
                    await run.snapshot(command)
                case "attributes":
                    await run.set_attributes({"seen": command}, command_id=command)
                case "reset":
                    token = (await run.preview(to)).token
                    await run.reset(to, token=token, undo=drawn < 0.5, command_id=command)
                case "fire" | "skip":
                    await getattr(run, act)(key, by="people", command_id=command)
                case "accept":
                    await run.resolve_undo(name, "accept", by="people", command_id=command)
                case "submit":
                    await run.submit(name, payload, by="people")
                case "publish":
                    await engine.bus.publish(name, payload, id=command)
                case _:
                    await getattr(run, act)(command_id=command)

        try:
            await self.ask(work)
        except (Rejected, NotFound):
            return
        if act not in ("snapshot", "submit", "publish", "retry", "reset"):
            self.judge.answered(id, command)

    async def _attend(self) -> None:
        """People give runs what they wait for."""
        while True:
            await asyncio.sleep(LOOK_SECONDS * (0.5 + self.chance.random()))
            for id in self.judge.open_runs():
                await self._give(id)

    async def _give(self, id: str) -> None:
        run = self.judge.run(id)
        for reason in reasons(run):
            match reason.kind:
                case "signal":
                    name = next((n for n, keys in run.waiters.items() if reason.key in keys), "")
                    if name and self.chance.random() < 0.6:
                        more = self.chance.random() < 0.5
                        await self.do(
                            id, "signal", name, int(self.chance.random() * 5) if more else None
                        )
                    return
                case "pause":
                    await self.do(id, "resume")
                    return
                case "undo-failed":
                    await self.do(id, "accept", reason.key)
                    return
                case "event":
                    topic = run.listening[reason.key].replace("*", "then")
                    await self.do(id, "publish", topic, int(self.chance.random() * 6))
                    return
                case "form":
                    await self.do(id, "submit", reason.key, {"n": 1})
                    return
                case _:
                    pass


def simulate(scenario: Scenario, workload: Workload, folder: str | None = None) -> Result:
    """Play a scenario; the same one always gives the same result."""
    return Simulation(scenario, workload, folder).play()


@contextmanager
def _sealed(seed: int) -> Generator[None]:
    """Names that are made up on the way come from the seed, too."""
    chance, real = Random(f"{seed}/names"), uuid.uuid4
    uuid.uuid4 = lambda: UUID(int=chance.getrandbits(128), version=4)  # type: ignore[assignment]
    try:
        yield
    finally:
        uuid.uuid4 = real


class _Ear(logging.Handler):
    """What the engine says when something is wrong with it."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(logging.ERROR)
        self._judge = judge

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text in (
            "run.turn_failed",
            "run.unreadable",
            "run.unfit",
            "engine.broken",
            "report.failed",
        ):
            self._judge.note(
                f"{text}: {record.__dict__.get('run', '')} {record.__dict__.get('error', '')} {''.join(__import__('traceback').format_exception(record.exc_info[1])) if record.exc_info else ''}"
            )
        elif record.exc_info and not isinstance(record.exc_info[1], PenstockError):
            self._judge.note(f"{text}: {record.exc_info[1]!r}")


@contextmanager
def _silenced(judge: Judge) -> Generator[None]:
    logger, ear = logging.getLogger("penstock"), _Ear(judge)
    before = logger.propagate, logger.level
    logger.addHandler(ear)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.propagate, level = before
        logger.setLevel(level)
