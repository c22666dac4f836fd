"""Tasks of a definition that are under way as another fails (SPEC 4.5): told to stop, and undone if they are done all the same."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import RunFailed
from penstock.adapters.memory import MemoryStore
from penstock.testing.harness import harness
from support import deeds
from support.deeds import done, pay, refuse, take_back


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    deeds.forget()


def order(seconds: float) -> str:
    return f"""
id: order
tasks:
  pay: {{do: pay, inputs: {{seconds: {{value: {seconds}}}}}, compensate: {{activity: take_back, inputs: {{what: {{from: pay}}}}}}}}
  refuse: {{do: refuse, inputs: {{seconds: {{value: 1}}}}}}
"""


def engine_on(store: MemoryStore) -> Any:
    return harness(activities=[pay, refuse, take_back], store=store, clock=deeds.clock)


async def ended(seconds: float) -> RunFailed:
    async with engine_on(MemoryStore(clock=deeds.clock.now)) as engine:
        await engine.register(order(seconds))
        run = await engine.start("order", {})
        with pytest.raises(RunFailed) as failed:
            await engine.finish(run)
        return failed.value


async def test_what_is_done_though_another_task_failed_is_undone_before_the_run_ends() -> None:
    failed = await ended(2.0)

    assert (failed.status, failed.failure.code) == ("FAILED", "full")
    assert done == ["paid", "undo payment"]


async def test_what_does_not_hear_is_given_up_after_its_grace() -> None:
    failed = await ended(500.0)

    assert (failed.status, failed.failure.code) == ("FAILED", "full")
    assert "undo payment" not in done


async def test_the_run_says_what_it_waits_for() -> None:
    async with engine_on(MemoryStore(clock=deeds.clock.now)) as engine:
        await engine.register(order(20.0))
        run = await engine.start("order", {})
        await engine.skip(seconds=2)
        why = await run.why()
        assert [(each.kind, each.key) for each in why] == [("attempt", "pay")]
        assert "was told to stop and is to end" in why[0].message
        with pytest.raises(RunFailed):
            await engine.finish(run)
    assert done == ["paid", "undo payment"]
