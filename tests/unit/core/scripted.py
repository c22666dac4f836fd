"""A script in the place of a workflow function's code, and a run of it."""

from __future__ import annotations

from typing import Any

from penstock.core.functions import FUNCTION, FunctionPlan
from penstock.core.invariants import broken
from penstock.core.program import Told
from penstock.model import commands as c
from penstock.model import intents as i
from penstock.model.definition import Timeouts
from penstock.model.run import Run
from support.world import NOON, Case, World


class Scripted:
    """The program, and the host that begins it."""

    def __init__(self, *answers: list[i.Intent]) -> None:
        self.answers = list(answers)
        self.heard: list[Told] = []
        self.advanced = 0

    def begin(self, run: Run) -> Any:
        return self

    def advance(self, told: Told) -> list[i.Intent]:
        self.heard.append(told)
        return self.answers.pop(0) if self.answers else []

    def last(self) -> tuple[i.Heard, bytes | None]:
        (heard,), (output,) = self.heard[-1].heard, self.heard[-1].outputs
        return heard, output


def started(
    *answers: list[i.Intent],
    timeouts: Timeouts | None = None,
    plan: FunctionPlan | None = None,
    **more: Any,
) -> tuple[Case, Scripted]:
    plan, program = plan or FunctionPlan("work", timeouts), Scripted(*answers)
    world = World(plan)
    case = world.cases["run"] = Case(world, "run", plan)
    case.flow.host = program
    case.command(
        c.StartRun(at=NOON, id="run", definition="work", version=FUNCTION, input=b"7", **more)
    )
    assert broken(case.flow) == []
    return case, program
