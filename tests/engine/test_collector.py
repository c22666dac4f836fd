"""Python's collector while engines are open (decision 7), and that attempts leave it nothing to do."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import penstock
from penstock import activity
from penstock.engine.collector import YOUNG_MAX
from penstock.engine.engine import Settings
from penstock.testing.harness import harness


@activity
async def note(value: int) -> int:
    return value


@pytest.fixture(autouse=True)
def _as_python_sets_it() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


async def test_it_looks_less_often_until_the_last_engine_is_closed() -> None:
    async with penstock.open("memory:a"):
        async with penstock.open("memory:b"):
            assert gc.get_threshold() == (YOUNG_MAX, 10, 10)
        assert gc.get_threshold() == (YOUNG_MAX, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


async def test_what_the_application_has_chosen_stays() -> None:
    gc.set_threshold(900, 5, 5)
    async with penstock.open("memory:"):
        assert gc.get_threshold() == (900, 5, 5)
    async with penstock.open("memory:"):
        gc.set_threshold(901, 5, 5)
    assert gc.get_threshold() == (901, 5, 5)


async def test_it_can_be_left_alone() -> None:
    async with penstock.open("memory:", settings=Settings(ease_collector=False)):
        assert gc.get_threshold() == (700, 10, 10)


async def test_attempts_that_have_ended_are_no_cycles() -> None:
    async with harness(activities=[note]) as engine:
        await engine.register("id: d\ntasks:\n  t: {do: note, inputs: {value: {from: input}}}\n")
        run = await engine.start("d", 0)
        await engine.finish(run)
        gc.collect()
        gc.disable()
        try:
            for number in range(100):
                run = await engine.start("d", number)
                assert await engine.finish(run) == number
            assert gc.collect() < 100
        finally:
            gc.enable()
