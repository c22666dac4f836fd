"""Runs too large for `support/world.py`, which looks at all of a run after each turn: effects are done as they come."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from penstock.core.flow import Flow
from penstock.core.plan import Plan
from penstock.core.turn import turn
from penstock.dsl.load import load_document
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.effects import Execute
from penstock.model.run import Run
from support.world import encode


class Large:
    """One run whose activities all succeed, in an order drawn from a seed."""

    def __init__(
        self, document: Mapping[str, Any], input: Any = None, *, keep: bool = True, batch: int = 1
    ) -> None:
        self.plan = Plan(load_document({"id": "large", **document}).definition)
        self.flow = Flow(Run(id="large"), self.plan)
        self.events: list[e.Event] = []
        self.keep, self.batch = keep, batch
        self.count = 0
        self.begun: list[str] = []
        self.peak = 0
        self.marks: list[tuple[int, float]] = []
        """(events so far, seconds) after each tenth of a percent or so."""
        self.ready: list[Execute] = []
        self._take(
            [c.StartRun(at=0.0, id="large", definition="large", version="1", input=encode(input))]
        )

    @property
    def run(self) -> Run:
        return self.flow.run

    def _take(self, commands: list[c.Command]) -> None:
        outcome = turn(self.flow, commands)
        assert not outcome.refused, outcome.refused
        self.count += len(outcome.events)
        if self.keep:
            self.events += outcome.events
        for effect in outcome.effects:
            if isinstance(effect, Execute):
                self.ready.append(effect)
                if self.keep:
                    self.begun.append(effect.key)
        self.peak = max(self.peak, len(self.ready))

    def play(self, seed: int = 1, output: Any = None, mark: int = 1000) -> Large:
        chance, raw = random.Random(seed), encode(output)
        began = time.perf_counter()
        while self.ready and not self.run.closed:
            commands: list[c.Command] = []
            for _ in range(min(self.batch, len(self.ready))):
                place = chance.randrange(len(self.ready))
                self.ready[place], self.ready[-1] = self.ready[-1], self.ready[place]
                job = self.ready.pop()
                commands.append(
                    c.CompleteTask(at=1.0, key=job.key, attempt=job.attempt, output=raw)
                )
            self._take(commands)
            if self.count // mark > len(self.marks):
                self.marks.append((self.count, time.perf_counter() - began))
        return self
