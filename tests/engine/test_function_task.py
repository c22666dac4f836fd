"""The function itself in its loop: what libraries and users ask of a task of asyncio's it answers, too (SPEC 2.8)."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from penstock import Context, RunFailed, activity, workflow
from penstock.testing.harness import SkipClock, harness


@activity
async def work(n: int) -> int:
    return n + 1


@activity
async def named(program: str = "", activity: str = "", args: str = "") -> str:
    return program + activity + args


async def result_of(function: Any) -> Any:
    clock = SkipClock()
    async with harness(activities=[work, named], workflows=[function], clock=clock) as engine:
        run = await engine.start(function)
        await engine.finish(run)
        return await run.result()


@workflow
async def moves_on(ctx: Context) -> list[Any]:
    with anyio.move_on_after(10) as scope:
        await ctx.signal("never")
    return [scope.cancelled_caught, await ctx.call(work, 1)]


@workflow
async def gives_up(ctx: Context) -> list[Any]:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await ctx.call(work, 1)
    return [scope.cancelled_caught, await ctx.call(work, 1)]


@pytest.mark.parametrize("function", [moves_on, gives_up])
async def test_time_limits_of_anyio_hold(function: Any) -> None:
    assert await result_of(function) == [True, 2]


@workflow
async def begun_by_hand(ctx: Context) -> int:
    step = ctx.call(work, 10)
    step.send(None)
    step.close()
    return await ctx.call(work, 20)


async def test_what_was_begun_by_hand_and_closed_gives_nothing_to_another() -> None:
    assert await result_of(begun_by_hand) == 21


@workflow
async def any_names(ctx: Context) -> list[str]:
    return [
        await ctx.call(named, program="p"),
        await ctx.call(named, activity="a"),
        await ctx.call(named, args="g"),
    ]


async def test_arguments_may_have_any_name() -> None:
    assert await result_of(any_names) == ["p", "a", "g"]


@workflow
async def asks(ctx: Context) -> list[Any]:
    task: Any = asyncio.current_task()
    refused: list[Any] = []
    for each in (lambda: task.set_result(1), lambda: task.set_exception(ValueError())):
        try:
            each()
        except RuntimeError as error:
            refused.append(str(error))
    frames = task.get_stack()
    return [task.get_name(), task.done(), len(refused), len(frames), "asks" in repr(task)]


async def test_it_answers_what_a_task_does() -> None:
    assert await result_of(asks) == ["asks", False, 2, 1, True]


@workflow
async def awaits_itself(ctx: Context) -> None:
    task: Any = asyncio.current_task()
    await task


async def test_it_cannot_await_itself() -> None:
    with pytest.raises(RunFailed, match="awaits itself"):
        await result_of(awaits_itself)
