"""What type checkers know of workflow functions (SPEC 2.8, 15): read by pyright in `make check`, never executed.

Each `assert_type` is a claim; the last line must be refused, or the comment that excuses it is an error of its own.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from typing import assert_type

import penstock
from penstock import Context, Run, activity, workflow


@activity
async def charge(card: str, cents: int) -> str:
    return f"{card} {cents}"


@activity(timeout=5)
def weigh(name: str) -> float:
    return float(len(name))


@workflow
async def order(ctx: Context, card: str) -> int:
    assert_type(await ctx.call(charge, card, 1), str)
    assert_type(await ctx.call(weigh, card, undo=charge, timeout=5), float)
    assert_type(await ctx.map(weigh, [card]), list[float])
    both = await asyncio.gather(ctx.call(charge, card, 1), ctx.call(weigh, card))
    assert_type(both, tuple[str, float])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ctx.call(weigh, card))
    assert_type(task.result(), float)
    assert_type(await ctx.signal("n", type=int), int | None)
    assert_type(await ctx.child(other, 1), bytes)
    assert_type(await ctx.start(other, 1), str)
    assert_type(ctx.side_effect(lambda: 5), int)
    return 1


@workflow(timeout=5, signals=["n"])
async def other(ctx: Context, n: int) -> bytes:
    return bytes(n)


async def main() -> None:
    async with penstock.open("memory:", workflows=[order]) as engine:
        run = await engine.start(order, "4242", id="o")
        assert_type(run, Run[int])
        assert_type(await run.result(), int)
        assert_type(await (await engine.start(other, 1)).result(), bytes)
        wrong: str = await run.result()  # pyright: ignore[reportAssignmentType]
        print(wrong)
