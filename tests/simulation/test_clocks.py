"""A clock that is set, forth or back, or a machine that slept: what goes by the calendar goes on soon, and what takes a
while takes that long (SPEC 4.2: no correctness rests on a clock)."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import activity
from penstock.model.codec import decode_event
from penstock.testing.faults import Fault
from penstock.testing.simulator import Result, Scenario, Simulation, Start, Workload, definition_row


@activity
async def brief() -> int:
    await asyncio.sleep(0.2)
    return 1


@activity(timeout=30)
async def long(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return 1


@activity(heartbeat=10)
async def beats() -> int:
    await asyncio.sleep(8)
    return 1


def played(
    document: dict[str, Any], starts: list[Start], faults: list[Fault]
) -> tuple[Result, float]:
    """What came of it, and how long it took."""
    scenario = Scenario(seed=1, starts=starts, faults=faults)
    work = Workload([definition_row({"id": "it", **document})], [], [brief, long, beats])
    simulation = Simulation(scenario, work)
    return simulation.play(), simulation.loop.time()


def types(result: Result, run: str) -> list[str]:
    return [decode_event(each).type for each in result.histories[f"{run}/1"]]


def test_a_timer_that_is_due_by_a_clock_set_forth_fires_within_seconds() -> None:
    """It fired after the time that it had had left before; a night later, if the machine had slept."""
    document = {"tasks": {"w": {"type": "timer", "delay": "8h"}}}
    result, took = played(document, [Start(0, "r", "it")], [Fault(5, "jump", amount=8 * 3600.0)])
    assert result.problems == []
    assert took < 10


def test_what_the_store_could_not_take_is_tried_again_soon_though_the_clock_is_set_back() -> None:
    """The engine's own pauses went by the wall clock: it waited an hour to write down a result."""
    document = {"tasks": {"a": {"do": "brief"}}}
    faults = [Fault(2.1, "full", amount=0.2), Fault(2.4, "jump", amount=-3600.0)]
    result, took = played(document, [Start(2, "r", "it")], faults)
    assert result.problems == []
    assert result.counts["disk full"] > 0
    assert took < 10


def test_a_clock_set_forth_takes_nothing_of_the_time_that_an_attempt_has() -> None:
    document = {"tasks": {"a": {"do": "long", "inputs": {"seconds": {"from": "input"}}}}}
    starts = [Start(0, "over", "it", 35.0), Start(10, "within", "it", 25.0)]
    result, _ = played(document, starts, [Fault(15, "jump", amount=100.0)])
    assert result.problems == []
    assert types(result, "over")[-1] == "run_failed"
    assert types(result, "within")[-2:] == ["task_completed", "run_completed"]


def test_a_clock_set_forth_takes_nothing_of_the_time_between_heartbeats() -> None:
    document = {"tasks": {"a": {"do": "beats"}}}
    result, _ = played(document, [Start(0, "r", "it")], [Fault(5, "jump", amount=100.0)])
    assert types(result, "r")[-1] == "run_completed"
