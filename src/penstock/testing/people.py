"""Those who ask: they start runs, act on them, give them what they wait for, and ask again until they hear an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.owed import reasons
from penstock.errors import NotFound, PenstockError, Rejected
from penstock.policy.calendars import moments
from penstock.policy.overlap import run_id
from penstock.ports.schedules import ScheduleView
from penstock.sdk.client import Engine
from penstock.testing.faults import NOON
from penstock.testing.nodes import NodeDied
from penstock.testing.scenario import Deed, Start, Timetable

if TYPE_CHECKING:
    from penstock.testing.simulator import Simulation

T = TypeVar("T")

LOOK_SECONDS = 2.0
"""How often people look whether a run waits for them."""
ASKED = "ask"
"""A signal whose name begins so is awaited as an update."""
UNNAMED = ("snapshot", "submit", "publish", "retry", "reset")
"""Acts whose ids are not in the history of the run that they are about."""


class People:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._judge, self._trouble = simulation.judge, simulation.trouble
        self._chance, self._counts = simulation.chance, simulation.counts
        self._asking: dict[str, asyncio.Task[None]] = {}
        """Updates under way, by run."""
        self._made: list[ScheduleView] = []

    async def ask(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        """Of any node, until one answers and the answer is heard; Rejected and NotFound are answers."""
        while True:
            able = [node for node in self._simulation.nodes if node.place.alive and node.opened]
            if able:
                node = able[int(self._chance.random() * len(able))]
                try:
                    answer = await node.call(work)
                    if self._trouble.deaf and self._chance.random() < self._trouble.deaf:
                        self._counts["answers lost"] += 1
                    else:
                        return answer
                except NodeDied:
                    self._counts["callers cut off"] += 1
                except (Rejected, NotFound):
                    raise
                except PenstockError:
                    self._counts["callers refused"] += 1
            await asyncio.sleep(0.05 + self._chance.random() * 0.5)

    async def starting(self, start: Start) -> None:
        await asyncio.sleep(start.at)
        await self.ask(
            lambda engine: engine.start(start.definition, start.input, id=start.id, **start.options)
        )
        self._judge.answered(start.id)

    async def scheduling(self, table: Timetable) -> None:
        await asyncio.sleep(table.at)
        until = datetime.fromtimestamp(NOON + table.until, UTC)

        async def work(engine: Engine) -> ScheduleView:
            return await engine.schedules.create(
                table.id, table.definition, table.input, every=table.every, until=until, overlap=table.overlap
            )  # fmt: skip

        try:
            made = await self.ask(work)
        except Rejected:
            return  # its clock was set forth: all of it would be in the past
        self._counts["schedules"] += 1
        self._made.append(made)

    async def missed(self) -> list[str]:
        """What schedules have not done; every moment is decided once, and what is started is a run of that name."""
        found: list[str] = []
        for made in self._made:
            now = await self.ask(lambda engine, id=made.id: engine.schedules.get(id))
            due = {run_id(made.id, each) for each in moments(made.timing, made.created_at)}
            runs = {id for id in self._judge.newest if id.startswith(f"{made.id}/")}
            runs = {id for id in runs if self._judge.run(id).parent is None}
            said = now.counts
            decided = said.started + said.skipped
            if now.buffered or decided != len(due):
                found.append(f"schedule {made.id} has decided {decided} of {len(due)} moments")
            elif len(runs) != said.started or not runs <= due:
                found.append(f"schedule {made.id} says {said.started} runs, and has {len(runs)}")
        return found

    async def doing(self, deed: Deed) -> None:
        await asyncio.sleep(deed.at)
        if deed.run not in self._judge.newest:
            return
        await self.do(deed.run, deed.act, deed.name, deed.payload)

    async def do(self, id: str, act: str, name: str = "", payload: Any = None) -> None:
        """One act of people, asked for until it is answered."""
        command = f"c{self._counts['acts']}"
        self._counts["acts"] += 1
        self._counts[f"act {act}"] += 1

        now, drawn = self._judge.run(id), self._chance.random()
        to = 1 + int(drawn * now.revision)
        keys = [each.key for each in reasons(now) if each.key] or ["nothing"]
        key = keys[int(drawn * len(keys))]

        async def work(engine: Engine) -> Any:
            run = await engine.get(id)
            match act:
                case "update":
                    return await run.update(name, payload, command_id=command)
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
            answer = await self.ask(work)
        except (Rejected, NotFound):
            return
        if act == "update":
            self._judge.replied(id, command, answer)
        if act not in UNNAMED:
            self._judge.answered(id, command)

    async def attend(self) -> None:
        """People give runs what they wait for."""
        while True:
            await asyncio.sleep(LOOK_SECONDS * (0.5 + self._chance.random()))
            for id in self._judge.open_runs():
                await self._give(id)

    def _update(self, id: str, name: str) -> None:
        """Somebody asks the run something, and waits for the answer beside all else."""
        work = self.do(id, "update", name, int(self._chance.random() * 5))
        task = self._simulation.loop.create_task(work, name=f"update of {id}")
        self._asking[id] = task
        task.add_done_callback(lambda _: self._asking.pop(id, None))

    @property
    def asking(self) -> list[asyncio.Task[None]]:
        """Updates that are not answered."""
        return list(self._asking.values())

    async def _give(self, id: str) -> None:
        run = self._judge.run(id)
        for reason in reasons(run):
            match reason.kind:
                case "signal":
                    name = next((n for n, keys in run.waiters.items() if reason.key in keys), "")
                    if name.startswith(ASKED):
                        if id not in self._asking:
                            self._update(id, name)
                    elif name and self._chance.random() < 0.6:
                        more = self._chance.random() < 0.5
                        await self.do(
                            id, "signal", name, int(self._chance.random() * 5) if more else None
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
                    await self.do(id, "publish", topic, int(self._chance.random() * 6))
                    return
                case "form":
                    await self.do(id, "submit", reason.key, {"n": 1})
                    return
                case _:
                    pass
