"""Workflow functions that are asked to stop (SPEC 2.8, 4.4, 4.5): attempts that are under way end first, and what they did
all the same is undone; what the function has in `finally` is done; then the rest is undone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest

import penstock
from penstock import Context, Fail, RunFailed, workflow
from penstock.adapters.memory import MemoryStore
from penstock.testing.harness import harness
from support import deeds
from support.deeds import begun, done, note, pay, refuse, take_back


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    deeds.forget()


def engine_on(store: MemoryStore | None = None) -> Any:
    store = store or MemoryStore(clock=deeds.clock.now)
    return harness(workflows=WORKFLOWS, activities=ACTIVITIES, store=store, clock=deeds.clock)


@workflow
async def order(ctx: Context, seconds: float, how: str = "pays") -> None:
    await ctx.call(note, "begun", undo=take_back)
    await ctx.call(pay, seconds, how, undo=take_back)


@workflow(timeout=60)
async def in_time(ctx: Context) -> None:
    await ctx.call(pay, 2.0, undo=take_back)


@workflow
async def careful(ctx: Context, cleaning: float) -> None:
    """Cleans up while what it waited for goes on to its end."""
    try:
        await asyncio.gather(ctx.call(pay, 2.0, undo=take_back), ctx.call(pay, 5.0, undo=take_back))
    finally:
        await ctx.call(note, "cleaning")
        await ctx.sleep(cleaning)
        await ctx.call(note, "cleaned")


@workflow
async def raising(ctx: Context) -> None:
    try:
        await ctx.call(pay, 2.0, undo=take_back)
    except asyncio.CancelledError:
        raise Fail("no cancelling here", code="stubborn") from None


@workflow
async def hasty(ctx: Context, seconds: float, how: str) -> str:
    """Returns while what it began is under way."""
    paying = asyncio.create_task(ctx.call(pay, seconds, how, undo=take_back))
    await asyncio.wait([paying], timeout=1)
    return "hasty"


@workflow
async def parent_of_hasty(ctx: Context, seconds: float, how: str = "pays") -> None:
    await ctx.call(note, "begun", undo=take_back)
    await ctx.call(note, await ctx.child(hasty, seconds, how))
    raise Fail("no", code="late")


WORKFLOWS = [order, in_time, careful, raising, hasty, parent_of_hasty]
ACTIVITIES = [note, take_back, pay, refuse]


async def stopped(function: Any, *args: Any) -> tuple[RunFailed, list[str]]:
    async with engine_on() as engine:
        run = await engine.start(function, *args)
        await engine.settle()
        await run.cancel(reason="enough")
        with pytest.raises(RunFailed) as failed:
            await engine.finish(run)
        return failed.value, await engine.types(run)


async def test_what_was_done_though_it_was_told_to_stop_is_undone() -> None:
    failed, types = await stopped(order, 2.0)
    assert failed.status == "CANCELLED"
    assert done == ["begun", "paid", "undo payment", "undo begun"]
    assert types.index("task_completed", 2) < types.index("undo_completed")


@pytest.mark.parametrize("how", ["stops", "fails"])
async def test_what_stops_or_fails_then_is_neither_tried_again_nor_undone(how: str) -> None:
    failed, _ = await stopped(order, 2.0, how)
    assert (failed.status, failed.failure.code) == ("CANCELLED", "cancelled")
    assert done == ["begun", "undo begun"]
    assert begun == [1]


async def test_what_does_not_hear_is_given_up_after_its_grace() -> None:
    failed, _ = await stopped(order, 500.0)
    assert failed.status == "CANCELLED"
    assert done[:2] == ["begun", "undo begun"]


async def test_the_timeout_of_the_run_waits_for_what_is_under_way_too() -> None:
    async with engine_on() as engine:
        run = await engine.start(in_time)
        with pytest.raises(RunFailed) as failed:
            await engine.finish(run)
        assert failed.value.status == "TIMED_OUT"
        assert done == ["paid", "undo payment"]


@pytest.mark.parametrize("cleaning", [0.5, 3.0, 20.0])
async def test_attempts_end_while_the_function_cleans_up_and_all_of_them_before_anything_is_undone(
    cleaning: float,
) -> None:
    failed, _ = await stopped(careful, cleaning)
    assert failed.status == "CANCELLED"
    assert sorted(done[:4]) == ["cleaned", "cleaning", "paid", "paid"]
    assert done[4:] == ["undo payment", "undo payment"]


async def test_what_the_function_raises_instead_is_how_it_ends_and_all_is_undone() -> None:
    failed, _ = await stopped(raising)
    assert (failed.status, failed.failure.code) == ("FAILED", "stubborn")
    assert done == ["paid", "undo payment"]


@pytest.mark.parametrize(
    ("seconds", "how", "paid"), [(2.0, "pays", True), (2.0, "stops", False), (500.0, "pays", False)]
)
async def test_a_child_that_returns_waits_for_what_its_parent_would_have_to_undo(
    seconds: float, how: str, paid: bool
) -> None:
    async with engine_on() as engine:
        run = await engine.start(parent_of_hasty, seconds, how)
        with pytest.raises(RunFailed, match="no"):
            await engine.finish(run)
    if paid:
        assert done == ["begun", "paid", "hasty", "undo payment", "undo begun"]
    else:
        assert done[:3] == ["begun", "hasty", "undo begun"]


async def test_a_run_that_returns_and_is_nobodys_child_waits_for_nothing() -> None:
    async with engine_on() as engine:
        run = await engine.start(hasty, 500.0, "pays")
        assert await engine.finish(run) == "hasty"
    assert done == []


async def test_a_run_that_cleans_up_is_neither_paused_nor_asked_again() -> None:
    async with engine_on() as engine:
        run = await engine.start(careful, 60.0)
        await engine.settle()
        await run.cancel()
        await engine.skip(seconds=10)
        with pytest.raises(penstock.Rejected, match="cleans up, and then ends CANCELLED"):
            await run.pause()
        await run.cancel()  # a repeat, of no effect
        with pytest.raises(RunFailed):
            await engine.finish(run)
        assert done.count("cleaned") == 1
        late = await engine.start(in_time_and_clean)
        await engine.skip(seconds=61)
        with pytest.raises(penstock.Rejected, match="needs no cancelling"):
            await late.cancel()


@workflow(timeout=60)
async def in_time_and_clean(ctx: Context) -> None:
    try:
        await ctx.sleep(timedelta(days=1))
    finally:
        await ctx.sleep(30)


WORKFLOWS.append(in_time_and_clean)


async def test_a_process_that_dies_meanwhile_does_not_begin_it_again() -> None:
    store = MemoryStore(clock=deeds.clock.now)
    async with engine_on(store) as engine:
        run = await engine.start(careful, 3600.0, id="c")
        await engine.settle()
        await run.cancel()
        await engine.settle()
        await engine.skip(seconds=1)  # both are told, none has ended
        assert {each.key for each in await run.why() if each.kind == "attempt"} == {
            "pay#1",
            "pay#2",
        }
    async with engine_on(store) as engine:
        with pytest.raises(RunFailed, match="CANCELLED"):
            await engine.finish(await engine.get("c"))
        assert begun == [1, 1]
        assert done.count("cleaned") == 1


# --- functions that end, or give a step up, while it is under way ------------------------------------------------


@workflow
async def gathering(ctx: Context, seconds: float = 2.0) -> None:
    await asyncio.gather(ctx.call(pay, seconds, undo=take_back), ctx.call(refuse, 5.0))


@workflow
async def grouping(ctx: Context) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.call(pay, 2.0, undo=take_back))
        group.create_task(ctx.call(refuse, 5.0))


@workflow
async def mapping(ctx: Context) -> None:
    async def paid() -> None:
        await ctx.map(pay, [2.0, 3.0], undo=take_back)

    await asyncio.gather(paid(), ctx.call(refuse, 5.0))


@workflow
async def too_slow(ctx: Context, rest: float) -> None:
    try:
        await asyncio.wait_for(ctx.call(pay, 2.0, undo=take_back), 5)
    except TimeoutError:
        await ctx.call(note, "late")
    if rest:
        await ctx.sleep(rest)
    raise Fail("too slow", code="full")


@workflow
async def slow_and_well(ctx: Context) -> str:
    try:
        await asyncio.wait_for(ctx.call(pay, 2.0, undo=take_back), 5)
    except TimeoutError:
        await ctx.sleep(60)
    return "well"


@workflow
async def left_behind(ctx: Context) -> None:
    paying = asyncio.create_task(ctx.call(pay, 2.0, undo=take_back))
    await ctx.sleep(5)
    assert not paying.done()
    raise Fail("no room", code="full")


@workflow
async def moving_on(ctx: Context, seconds: float, stage: int = 1) -> None:
    if stage == 2:
        await ctx.call(note, "second")
        raise Fail("no room", code="full")
    paying = asyncio.create_task(ctx.call(pay, seconds, undo=take_back))
    await ctx.sleep(5)
    assert not paying.done()
    ctx.continue_as_new(seconds, 2)


WORKFLOWS += [
    gathering, grouping, mapping, too_slow, slow_and_well, left_behind, moving_on,
]  # fmt: skip


async def failed(function: Any, *args: Any) -> None:
    async with engine_on() as engine:
        run = await engine.start(function, *args)
        with pytest.raises(RunFailed) as caught:
            await engine.finish(run)
        assert caught.value.status == "FAILED"
        assert "full" in repr(caught.value.failure)


@pytest.mark.parametrize("function", [gathering, grouping, left_behind])
async def test_what_is_done_after_its_function_has_failed_is_undone(function: Any) -> None:
    await failed(function)
    assert done == ["paid", "undo payment"]


async def test_items_of_a_map_that_are_done_after_its_function_has_failed_are_undone() -> None:
    await failed(mapping)
    assert done == ["paid", "paid", "undo payment", "undo payment"]


async def test_a_failed_function_does_not_wait_for_ever() -> None:
    await failed(gathering, 500.0)
    assert "undo payment" not in done


@pytest.mark.parametrize("rest", [0.0, 60.0])
async def test_what_a_function_gave_up_and_is_done_all_the_same_is_undone_if_it_fails(
    rest: float,
) -> None:
    await failed(too_slow, rest)
    assert sorted(done) == ["late", "paid", "undo payment"]
    assert done[-1] == "undo payment"


async def test_what_a_function_gave_up_is_not_undone_if_it_ends_well() -> None:
    async with engine_on() as engine:
        assert await engine.finish(await engine.start(slow_and_well)) == "well"
    assert done == ["paid"]


async def test_what_is_done_while_its_function_goes_on_as_new_goes_along() -> None:
    await failed(moving_on, 2.0)
    assert done == ["paid", "second", "undo payment"]


async def test_a_function_that_goes_on_as_new_does_not_wait_for_ever() -> None:
    await failed(moving_on, 500.0)
    assert done[0] == "second"
    assert "undo payment" not in done


@pytest.mark.parametrize(("function", "args"), [(gathering, (20.0,)), (moving_on, (20.0,))])
async def test_a_process_that_dies_while_a_function_waits_to_end(function: Any, args: Any) -> None:
    store = MemoryStore(clock=deeds.clock.now)
    async with engine_on(store) as engine:
        run = await engine.start(function, *args, id="f")
        await engine.settle()
        await engine.skip(seconds=6)
        assert [each.key for each in await run.why() if each.kind == "attempt"] == ["pay#1"]
    async with engine_on(store) as engine:
        with pytest.raises(RunFailed, match="FAILED"):
            await engine.finish(await engine.get("f"))
    assert begun == [1]


async def pages(ctx: Context) -> AsyncIterator[str]:
    try:
        for number in range(3):
            yield await ctx.call(note, f"page {number}")
    finally:
        await ctx.call(note, "closed")


@workflow
async def leaves(ctx: Context, how: str) -> str:
    if how == "closes":
        async with aclosing(pages(ctx)) as found:
            async for page in found:
                return page
    async for page in pages(ctx):
        return page
    return ""


@pytest.mark.parametrize("how", ["closes", "leaves"])
async def test_an_async_generator_that_is_left_is_closed_where_the_code_says_so(how: str) -> None:
    """As the page says: else it would be closed whenever the collector comes by, which no history knows."""
    async with harness(workflows=[leaves], activities=ACTIVITIES) as engine:
        assert await engine.finish(await engine.start(leaves, how)) == "page 0"
    assert done == (["page 0", "closed"] if how == "closes" else ["page 0"])
