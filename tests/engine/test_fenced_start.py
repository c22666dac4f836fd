"""A start whose process lost the database meanwhile, unnoticed: it is a command of one that does not own it (SPEC 4.8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import NotFound
from penstock.testing.harness import Harness, SkipClock, harness
from support.stores import Make

WAITS = {"id": "waits", "tasks": {"s": {"type": "signal", "name": "go"}}}


@pytest.fixture
async def engine(make_store: Make) -> AsyncIterator[Harness]:
    clock = SkipClock()
    async with harness(store=make_store(clock=clock.now), clock=clock) as made:
        await made.register(WAITS)
        yield made


async def lose(engine: Harness) -> None:
    """Another owns the database from now on, and the engine does not know yet."""
    store, owner = engine.core.store, engine.core.owner
    assert owner is not None
    await store.release(owner)
    newer = await store.claim("another", "")
    assert newer is not None
    assert newer.token > owner.token
    assert engine.core.owner == owner


async def test_a_start_that_is_fenced_starts_the_run(engine: Harness) -> None:
    await lose(engine)
    run = await engine.start("waits", 1, id="r")
    assert engine.core.owner is None
    assert await run.status() == "WAITING"
    assert await engine.types(run) == ["run_started"]
    assert (await engine.start("waits", 1, id="r")).id == "r"


async def test_many_starts_that_are_fenced_start_their_runs(engine: Harness) -> None:
    await lose(engine)
    runs = await engine.start_many("waits", range(20), ids=[f"r{n}" for n in range(20)])
    assert [await engine.types(run) for run in runs] == [["run_started"]] * 20


async def test_a_signal_with_start_that_is_fenced_does_both(engine: Harness) -> None:
    await lose(engine)
    run = await engine.signal_with_start("waits", None, "go", 7, id="r")
    assert await engine.types(run) == ["run_started", "signal_received", "run_completed"]


async def test_a_command_to_a_run_that_is_started_at_that_moment_costs_the_start_nothing(
    engine: Harness,
) -> None:
    outcomes: list[Any] = await asyncio.gather(
        engine.core.read("r", lambda flow: flow.run.id),
        engine.start("waits", 1, id="r"),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], NotFound) or outcomes[0] == "r"
    assert outcomes[1].id == "r"
