"""A function of very many steps: a step late in its life costs what an early one did, and so does telling it again.

Counted in calls and objects, not in seconds; `make bench` measures 100,000 steps with a clock.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from penstock import Context, activity, workflow
from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.turn import turn
from penstock.model import commands as c
from penstock.model.codec import decode_event, encode_event, encode_run
from penstock.model.run import Run
from penstock.sdk.functions import Functions

STEPS, SAMPLE = 1500, 100


@activity
async def double(number: int) -> int:
    return number * 2


@workflow
async def long(ctx: Context, steps: int) -> int:
    value = 1
    for _ in range(steps):
        value = await ctx.call(double, value) % 1000
    return value


def calls(do: Callable[[], None]) -> int:
    """How many functions of Python's were called."""
    count = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


class Life:
    """One run of `long`, step by step, in memory."""

    def __init__(self) -> None:
        self.functions = Functions([long])
        plan = self.functions.plan("long")
        assert plan is not None
        self.plan = plan
        self.flow = Flow(Run(id="r"), plan)
        self.flow.host = self.functions
        self.stored: list[bytes] = []
        self.done = 0
        self._take(
            c.StartRun(at=1.0, id="r", definition="long", version="function", input=b'{"steps":%d}' % STEPS)
        )  # fmt: skip

    def _take(self, command: c.Command) -> None:
        taken = turn(self.flow, [command])
        assert not taken.refused, taken.refused
        self.stored += [encode_event(event) for event in taken.events]

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.done += 1
            self._take(
                c.CompleteTask(
                    at=1.0 + self.done, key=f"double#{self.done}", attempt=1, output=b"%d" % (self.done % 7)
                )
            )  # fmt: skip


def kept() -> int:
    gc.collect()
    return len(gc.get_objects())


async def test_a_late_step_costs_what_an_early_one_did_in_calls_and_memory() -> None:
    life = Life()
    life.live(SAMPLE)
    early, objects, state = calls(lambda: life.live(SAMPLE)), kept(), len(encode_run(life.flow.run))
    life.live(STEPS - 4 * SAMPLE)

    late = calls(lambda: life.live(SAMPLE))

    assert late <= early * 1.02
    assert kept() - objects < 50
    assert len(encode_run(life.flow.run)) < state + 20  # longer numbers
    life.live(SAMPLE)
    assert life.flow.run.closed


async def test_history_is_told_again_at_the_same_cost_throughout() -> None:
    life = Life()
    life.live(STEPS - SAMPLE)
    flow = Flow(Run(id="r", definition="long"), life.plan)
    flow.program = life.functions.begin(flow.run)
    assert flow.program is not None
    rest = iter(life.stored)

    def tell(events: int) -> None:
        for _ in range(events):
            evolve(flow, decode_event(next(rest)))
            flow.effects.clear()

    tell(SAMPLE)
    early = calls(lambda: tell(SAMPLE))
    tell(STEPS - 4 * SAMPLE)

    late = calls(lambda: tell(SAMPLE))

    assert late <= early * 1.02
    assert early < 60 * SAMPLE  # 20,000 a second and more
    tell(1)
    assert encode_run(flow.run) == encode_run(life.flow.run)
    flow.program.close()
    await asyncio.sleep(0)
