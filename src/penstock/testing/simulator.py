"""Deterministic simulation: the real engine on nodes that crash and restart, on a loop that owns time and order (SPEC 13).

A scenario is data: what is started when, what people do, what breaks. The same scenario gives the same histories, byte for
byte. While it plays, `testing/judging.py` looks at every commit; once nothing breaks any more every run must end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from random import Random
from typing import Any

from penstock.core.owed import reasons
from penstock.engine.inbox import Item
from penstock.errors import PenstockError
from penstock.model import commands as c
from penstock.model.job import Broken, Done, Job, Outcome
from penstock.sdk.workflow import Registry
from penstock.testing.faults import NOON, Fault, NodeHints, Trouble
from penstock.testing.judging import Judge
from penstock.testing.loop import SimulationLoop
from penstock.testing.nodes import Node, NodeDied
from penstock.testing.people import People
from penstock.testing.scenario import (
    Deed,
    Result,
    Scenario,
    Start,
    Timetable,
    Workload,
    definition_row,
)
from penstock.testing.sealing import heard_by, sealed
from penstock.testing.stores import Disk, disk_of

__all__ = [
    "Deed", "Fault", "Result", "Scenario", "Simulation", "Start", "Timetable", "Workload", "definition_row", "simulate",
]  # fmt: skip

LATE_KEPT = 40
"""Results that may arrive once more."""
PATIENCE_SECONDS = 240.0
"""With nothing broken any more, a run to which nothing happens for so long is stuck."""
WATCH_SECONDS = 1.0
STEPS_MAX = 300_000


class Simulation:
    """Plays one scenario."""

    people = People
    """Who does what runs wait for."""
    judging = Judge
    patience = PATIENCE_SECONDS
    steps_max = STEPS_MAX

    def __init__(self, scenario: Scenario, workload: Workload, folder: str | None = None) -> None:
        self.scenario, self.workload = scenario, workload
        self.loop = SimulationLoop(scenario.seed)
        self.trouble = Trouble(Random(f"{scenario.seed}/trouble"))
        self.counts = self.trouble.counts
        self.chance = Random(f"{scenario.seed}/people")
        self.judge = self.judging()
        self.listeners: dict[str, NodeHints] = {}
        self.late: deque[tuple[Job, Outcome]] = deque(maxlen=LATE_KEPT)
        self.disk: Disk = disk_of(scenario.store, folder, self.trouble)
        self.registry = Registry(workload.activities)
        """What the worker of each process serves."""
        self.nodes: list[Node] = []
        self.dead: list[Node] = []
        self.raging = True
        """Things still break."""
        self.context: Any = None

    def play(self) -> Result:
        with sealed(self.scenario.seed), heard_by(self.judge):
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
        self.context = copy_context()
        await self._found()
        self.nodes = [self._begin(number) for number in range(self.scenario.nodes)]
        loop, people = self.loop, self.people(self)
        acts = [
            loop.create_task(people.starting(each), name=f"the start of {each.id}")
            for each in self.scenario.starts
        ]
        acts += [
            loop.create_task(people.doing(each), name=f"{each.act} of {each.run}")
            for each in self.scenario.deeds
        ]
        acts += [
            loop.create_task(people.scheduling(each), name=f"the schedule {each.id}")
            for each in self.scenario.schedules
        ]
        faults = [
            loop.create_task(self._breaking(each), name=f"{each.kind} of node {each.node}")
            for each in self.scenario.faults
        ]
        beside = [loop.create_task(people.attend()), loop.create_task(self._watch())]
        over = loop.create_task(self._over(people, acts, faults))
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
            if self.loop.steps > self.steps_max:
                self.judge.note(f"not over after {self.steps_max:,} steps")

    async def _over(
        self,
        people: People,
        acts: Sequence[asyncio.Task[None]],
        faults: Sequence[asyncio.Task[None]],
    ) -> None:
        """Until nothing breaks any more and all runs have ended."""
        await self._ended(
            faults, [each.at + each.amount for each in self.scenario.faults], "is not over"
        )
        self.raging = False
        self.trouble.heal()
        for node in self.nodes:
            node.place.fuse = -1
            node.clock.offset = self.nodes[0].clock.offset  # somebody sets them right
            self.loop.stall(node.place, False)
        plays = self.scenario
        begun = [each.at for each in (*plays.starts, *plays.deeds, *plays.schedules)]
        await self._ended(acts, begun, "is not answered")
        if plays.schedules:
            over = max(each.until for each in plays.schedules) - self.nodes[0].clock.offset
            await asyncio.sleep(over - self.loop.time())
        seen, since = -1, self.loop.time()
        while left := self.judge.open_runs() or await people.missed():
            if self.judge.events != seen:
                seen, since = self.judge.events, self.loop.time()
            if self.loop.time() > since + self.patience:
                for each in left[:3]:
                    self.judge.note(self._why(each))
                return
            await asyncio.sleep(0.25)
        await self._ended(people.asking, [], "is not answered")

    def _why(self, left: str) -> str:
        """Why it does not end, if it is a run."""
        if left not in self.judge.newest:
            return left
        return f"run {left} does not end: " + "; ".join(
            each.message for each in reasons(self.judge.run(left))
        )

    async def _ended(
        self, works: Sequence[asyncio.Task[None]], begun: Sequence[float], otherwise: str
    ) -> None:
        """Until all of them are over; one that is not in time is told of by its name."""
        if works:
            left = max(begun, default=0.0) + self.patience - self.loop.time()
            _, open = await asyncio.wait(works, timeout=max(self.patience, left))
            for each in works:
                if each in open:
                    self.judge.note(f"{each.get_name()} {otherwise}")
                else:
                    each.result()

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
        newest = await store.find_newest(list(self.judge.newest))
        keys: dict[tuple[str, int], int] = {}
        for id, generation in self.judge.shadows:
            row = newest.get(id)
            if row is None or row.generation != generation:
                row = await store.find(id, generation)
            keys[id, generation] = 0 if row is None else row.key
        stored = await store.events_many(dict.fromkeys(keys.values(), 0))
        for name, shadow in self.judge.shadows.items():
            if [each.payload for each in stored[keys[name]]] != shadow.payloads:
                self.judge.note(f"run {name[0]}: what is on disk is not what was stored")
        await store.close()
        if self.workload.audit is not None:
            for problem in self.workload.audit(self):
                self.judge.note(problem)

    # --- nodes -----------------------------------------------------------------------------------------------

    def _begin(self, number: int, offset: float = 0.0) -> Node:
        node = Node(self, number, offset)
        self.loop.create_task(node.open(), context=node.context)
        return node

    def clocks_differ(self) -> bool:
        """The clock of some process was set: what is due by one may not be due by another."""
        return bool(self.counts["clock jumps forth"] or self.counts["clock jumps back"])

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
        node.end()
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
                self.counts[f"clock jumps {'forth' if fault.amount > 0 else 'back'}"] += 1
                node.clock.offset += fault.amount
            case "cut":
                self.counts["nodes cut off"] += 1
                node.cut_off = True
                await asyncio.sleep(fault.amount)
                node.cut_off = False
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


def simulate(scenario: Scenario, workload: Workload, folder: str | None = None) -> Result:
    """Play a scenario; the same one always gives the same result."""
    return Simulation(scenario, workload, folder).play()
