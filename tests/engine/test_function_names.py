"""Workflow functions by name: started where their code is not, and what is done with versions, which they have not (SPEC 2.7,
2.8, 10)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Context, NotFound, Rejected, RunFailed, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.testing.harness import SkipClock, harness

PLAIN = {"id": "plain", "tasks": {"wait": {"type": "signal", "name": "go"}}}


@activity
async def add(a: int, b: int) -> int:
    return a + b


@workflow(timeout=3600)
async def order(ctx: Context, n: int) -> int:
    n = await ctx.call(add, n, 1)
    return n + (await ctx.signal("go", type=int) or 0)


@workflow
async def above(ctx: Context) -> int:
    return await ctx.child("order", 5)


class Place:
    """One store; lives one after the other, with code and without."""

    def __init__(self) -> None:
        self.clock = SkipClock()
        self.store = MemoryStore(clock=self.clock.now)

    def life(self, *workflows: Any) -> Any:
        return harness(
            workflows=list(workflows), activities=[add], store=self.store, clock=self.clock
        )


async def test_a_process_without_the_code_starts_it_by_name_with_its_timeout() -> None:
    place = Place()
    async with place.life(order):
        pass
    async with place.life() as engine:
        run = await engine.start("order", {"n": 5}, id="o")
        await engine.settle()
        [reason] = await run.why()
        assert reason.message == "no process that is at work has the workflow function `order`"
        by_function = await engine.start(order, 5)  # imported, and not given to `open`
        many = await engine.start_many("order", [{"n": 1}, {"n": 2}])
        signalled = await engine.signal_with_start("order", {"n": 3}, "go", 7, id="s")
    async with place.life(order) as engine:
        for each in (by_function, *many):
            await (await engine.get(each.id)).signal("go", 1)
        assert await engine.finish(await engine.get(signalled.id)) == 11
        assert [await engine.finish(await engine.get(each.id)) for each in many] == [3, 4]
        with pytest.raises(RunFailed, match="TIMED_OUT"):
            await engine.finish(await engine.get("o"))


async def test_a_name_that_nobody_has_is_refused_with_those_that_there_are() -> None:
    place = Place()
    async with place.life(order) as engine:
        await engine.register(PLAIN)
    async with place.life() as engine:
        for version in (None, "function"):
            with pytest.raises(
                NotFound, match=r"`oder`.*no workflow function of that name"
            ) as refused:
                await engine.start("oder", {"n": 5}, id="o", version=version)
            assert "registered: plain; workflow functions: order" in str(refused.value.hint)
        with pytest.raises(NotFound):
            await engine.start("plain", version="function")
        with pytest.raises(NotFound):
            await engine.get("o")


async def test_a_child_by_name_waits_for_the_code_of_its_function() -> None:
    place = Place()
    async with place.life(order):
        pass
    async with place.life(above) as engine:
        run = await engine.start(above, id="a")
        await engine.settle()
        child = await engine.get("a/child:order#1")
        [reason] = await child.why()
        assert reason.kind == "code"
    async with place.life(above, order) as engine:
        await (await engine.get("a/child:order#1")).signal("go", 2)
        assert await engine.finish(await engine.get(run.id)) == 8


async def test_what_is_kept_follows_the_code() -> None:
    place = Place()
    async with place.life(order):
        pass
    slower = workflow(name="order", timeout=7200)(_again())
    async with place.life(slower):
        pass
    async with place.life() as engine:
        run = await engine.start("order", {"n": 5})
        await engine.skip(seconds=5400)
        assert await run.status() != "TIMED_OUT"


def _again() -> Any:
    async def order(ctx: Context, n: int) -> int:
        return n

    return order


async def test_a_function_can_be_paused_as_a_definition_can() -> None:
    async with Place().life(order) as engine:
        await engine.pause_definition("order", reason="stock-taking")
        run = await engine.start(order, 1)
        await engine.settle()
        assert await engine.types(run) == ["run_started"]
        await engine.resume_definition("order")
        await run.signal("go", 1)
        assert await engine.finish(run) == 3
        with pytest.raises(Rejected):
            await engine.resume_definition("order")


async def test_a_schedule_starts_a_function_by_name() -> None:
    async with Place().life(order) as engine:
        await engine.schedules.create("hourly", "order", {"n": 1}, every="1h")
        await engine.skip(hours=1.5)
        [row] = await engine.list(definition="order")
        await (await engine.get(row.id)).signal("go", 1)
        assert await (await engine.get(row.id)).result() == 3


async def test_a_run_of_a_function_is_not_migrated() -> None:
    async with Place().life(order) as engine:
        await engine.register({**PLAIN, "id": "order"})
        run = await engine.start(order, 1)
        await engine.settle()
        for version in (None, "1", "function"):
            for act in (run.migrate, run.preview_migration):
                with pytest.raises(Rejected) as refused:
                    await act(version)
                assert refused.value.code == "migration-of-function"
                assert "is one of the workflow function `order`, whose code has no versions" in str(
                    refused.value
                )
                assert "ctx.changed" in str(refused.value.hint)
        await engine.register(PLAIN)
        other = await engine.start("plain")
        with pytest.raises(Rejected, match="cannot become one of a workflow function"):
            await other.migrate("function")
        await run.signal("go", 1)
        assert await engine.finish(run) == 3


async def test_no_version_of_a_definition_is_named_as_those_of_functions() -> None:
    async with Place().life(order) as engine:
        with pytest.raises(Rejected, match="cannot be named `function`") as refused:
            await engine.register({**PLAIN, "version": "function"})
        assert refused.value.code == "version-reserved"


APP = """
from penstock import Context, workflow

@workflow
async def order(ctx: Context, n: int) -> int:
    return n + await ctx.signal("go", type=int)
"""


async def test_a_command_line_starts_and_signals_what_another_process_executes(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    spaces: dict[str, Any] = {"__name__": "app"}
    exec(compile(APP, "app.py", "exec"), spaces)

    async def say(*words: str) -> str:
        command = [sys.executable, "-m", "penstock", *words, "--store", url]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async with penstock.open(url, workflows=[spaces["order"]]) as engine:
        await say("start", "order", "-i", '{"n": 5}', "--id", "o")
        await say("signal", "o", "go", "7")
        assert await (await engine.get("o")).result() == 12


@activity(name="shop/charge")
async def charge(n: int) -> int:
    return n + 1


@activity(name="update:card")
async def update_card(n: int) -> int:
    return n


@workflow(name="shop/child")
async def inner(ctx: Context) -> int:
    return await ctx.call("shop/charge", 1) + await ctx.call("shop/charge", 2)


@workflow
async def slashes(ctx: Context) -> list[Any]:
    ctx.undo(charge, 5)
    update = await ctx.update("up/now", type=int)
    assert update is not None
    update.answer(update.payload + 1)
    said = await ctx.signal("go/now", type=str)
    return [said, await ctx.child(inner), await ctx.call(charge, 3, timeout=5)]


async def test_names_may_have_a_slash_which_keys_have_for_what_is_inside_of_another() -> None:
    async with harness(workflows=[slashes, inner], activities=[charge]) as engine:
        run = await engine.start(slashes)
        asked = asyncio.ensure_future(run.update("up/now", 7))
        await engine.settle()
        assert await asked == 8
        await run.signal("go/now", "x")
        assert await run.result() == ["x", 5, 4]


@pytest.mark.parametrize("guard", [False, True])
async def test_an_activity_may_be_named_like_the_key_of_an_update(guard: bool) -> None:
    @workflow
    async def both(ctx: Context) -> list[int]:
        alone = await ctx.call(update_card, 3)
        (beside,) = await asyncio.gather(ctx.call(update_card, 4))
        return [alone, beside]

    async with harness(workflows=[both], activities=[update_card], guard=guard) as engine:
        run = await engine.start(both)
        assert await run.result() == [3, 4]
