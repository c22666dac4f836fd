"""Those who answer what workflows ask for, in a simulation of somebody's workflows: in time, late, or not at all."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.core.keys import static
from penstock.core.owed import Reason, reasons
from penstock.model.run import Run
from penstock.testing.drawing import Shape, shape_of
from penstock.testing.people import People
from penstock.testing.pretending import answer_to

if TYPE_CHECKING:
    from penstock.testing.plays import Play

UNSERVED = re.compile(r"nobody serves activity `(.+)`")
LOOK_SECONDS = 0.3
SILENT = 0.3
"""How many of those who are asked, and need not answer, do not."""
QUIET_SECONDS = 1.5
"""Nothing happened for so long: time may leap to what is due next."""
LEAP_LEAST = 4.0


class Visitors(People):
    """They answer what workflows ask for, or do not; and while nothing happens they let time pass."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._play = play
        self._plans: dict[tuple[str, int, str], float | None] = {}
        self._asked: Counter[str] = Counter()
        self._seen, self._since = -1, 0.0

    async def attend(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for id in self._judge.open_runs():
                await self._give(id)
            self._leap()

    async def _give(self, id: str) -> None:
        run = self._judge.run(id)
        for reason in reasons(run):
            match reason.kind:
                case "pause":
                    await self.do(id, "resume")
                    return
                case "undo-failed":
                    await self.do(id, "accept", reason.key)
                    return
                case "attempt":
                    name = self._play.unserved(run, reason.key)
                    if name:
                        self._judge.note(f"run {id} does not end: nobody serves activity `{name}`")
                        return
                case "signal" | "event" | "form":
                    if await self._answer(id, run, reason):
                        return
                case _:
                    pass

    async def _answer(self, id: str, run: Run, reason: Reason) -> bool:
        play, name = self._play, (id, run.generation, reason.key)
        now = play.loop.time()
        chance = play.draw("answer", *name, self._asked[str(name)])
        if name not in self._plans:
            calm = play.setup.calm
            silent = reason.due is not None and not calm and chance.random() < SILENT
            left = (
                6.0 if reason.due is None else max(0.0, reason.due - play.nodes[0].clock.now()) / 3
            )
            wait = (0.05 if calm else chance.random()) * min(3.0, left)
            self._plans[name] = None if silent else now + wait
        due = self._plans[name]
        if due is None and reason.due is not None and play.nodes[0].clock.now() > reason.due + 1.0:
            due = self._plans[name] = now  # it is late, and still waited for
        if due is None or now < due:
            return False
        self._asked[str(name)] += 1
        if self._asked[str(name)] > 20:
            return False
        self._plans[name] = now + 2.0
        node = play.app.nodes.get((run.definition, static(reason.key)))
        schema = None if node is None else node[0].config.get("schema")
        shape = (
            Shape(schema)
            if schema is not None
            else shape_of(play.types.get((run.definition, reason.key), Any))
        )
        word = (
            reason.key.partition("#")[0].partition(":")[2] or static(reason.key).rpartition("/")[2]
        )
        match reason.kind:
            case "form":
                value, guess = answer_to(play.app, word, shape, chance, word)
                await self.do(id, "submit", reason.key, value if shape is not None else {})
            case "event":
                topic = run.listening[reason.key]
                value, guess = answer_to(play.app, topic, shape, chance, word)
                await self.do(id, "publish", topic.replace("*", "then"), value)
            case _:
                signal = next((n for n, keys in run.waiters.items() if reason.key in keys), "")
                value, guess = answer_to(play.app, signal, shape, chance, signal)
                await self.do(id, "signal", signal, value)
        if guess:
            play.guessed.setdefault(id, f"what `{word}` brought")
        return True

    def _working(self) -> int:
        """Attempts that are open, and do not wait for their time."""
        now = self._play.nodes[0].clock.now()
        return sum(
            each.kind == "attempt"
            or (each.kind == "undo" and (each.due is None or each.due <= now))
            for id in self._judge.open_runs()
            for each in reasons(self._judge.run(id))
        )

    def _leap(self) -> None:
        """If nothing happens, time passes until something is due."""
        play = self._play
        now = play.loop.time()
        if self._judge.events != self._seen:
            self._seen, self._since = self._judge.events, now
        if now < self._since + QUIET_SECONDS or not self._judge.open_runs():
            return
        if any(not node.place.alive or not node.opened for node in play.nodes):
            return
        if any(plan is not None and plan >= now for plan in self._plans.values()):
            return
        if self._working() > sum(alarm.rest for node in play.nodes for alarm in node.clock.alarms):
            return  # an attempt is not at rest: it begins, does something, or its result is on its way
        left = min((node.clock.left() or 1e18 for node in play.nodes), default=1e18)
        if LEAP_LEAST < left < 1e17:
            seconds = left - 0.01
            play.loop.leapt += seconds
            play.counts["leaps in time"] += 1
            for node in play.nodes:
                node.clock.leap(seconds)
            self._since = now
