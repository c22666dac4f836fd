"""Workflow functions for simulations: what SPEC 2.8 lists, each in a few steps."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import penstock
from penstock import Context, Retry, workflow
from simulation.activities import book, undo, x


@workflow
async def fn_order(ctx: Context, n: int = 0) -> int:
    payment = await ctx.call(x, n, undo=undo)
    approved = await ctx.signal("approve", timeout=timedelta(seconds=20))
    if approved is None and n % 3 == 0:
        raise penstock.Fail("not approved")
    return payment + await ctx.call(x, payment)


@workflow
async def fn_steps(ctx: Context, n: int = 0) -> int:
    total = n
    for _ in range(5):
        total += await ctx.call(x, total, retry=Retry(attempts=5, first=0.2))
    return total


@workflow
async def fn_fan(ctx: Context, n: int = 0) -> list[int]:
    first = await asyncio.gather(
        *(ctx.call(x, i, retry=Retry(attempts=4, first=0.1)) for i in range(3))
    )
    async with asyncio.TaskGroup() as group:
        one = group.create_task(ctx.call(x, n, undo=undo))  # type: ignore[arg-type]
        two = group.create_task(ctx.call(x, n + 1, undo=undo))  # type: ignore[arg-type]
    return [*first, one.result(), two.result()]


@workflow
async def fn_map(ctx: Context, n: int = 0) -> list[int]:
    return await ctx.map(x, range(4), limit=1 + n % 3, retry=Retry(attempts=6, first=0.1))


@workflow
async def fn_nap(ctx: Context, n: int = 0) -> int:
    got = 0
    for _ in range(2):
        await asyncio.sleep(0.5 + n % 4)
        got += await ctx.call(x, n)
    try:
        async with asyncio.timeout(3):
            got += await ctx.signal("never") or 0
    except TimeoutError:
        got += 100
    return got


@workflow
async def fn_child(ctx: Context, n: int = 0) -> int:
    return await ctx.call(x, n, undo=undo)


@workflow
async def fn_parent(ctx: Context, n: int = 0) -> Any:
    mine = await ctx.child(fn_child, n)
    other = ctx.child("child", {"n": n})
    sent = await ctx.start(fn_steps, n)
    ctx.send(sent, "hello", n)
    return [mine, await other, sent]


@workflow
async def fn_count(ctx: Context, n: int = 0, left: int = 3) -> int:
    await ctx.call(x, n, undo=undo)
    if left:
        ctx.continue_as_new(n + 1, left=left - 1)
    word = await ctx.signal("last", timeout=10)
    if n % 2:
        raise penstock.Fail("odd", code="odd")
    return n + (word or 0)


@workflow
async def fn_tidy(ctx: Context, n: int = 0) -> int:
    try:
        done = await ctx.call(x, n, undo=undo)
        await ctx.signal("go", timeout=30)
        return done
    finally:
        await asyncio.shield(
            asyncio.ensure_future(ctx.call(x, 7, retry=Retry(attempts=3, first=0.1)))
        )


@workflow
async def fn_cart(ctx: Context, n: int = 0) -> list[int]:
    items: list[int] = []
    while len(items) < 2:
        asked = await ctx.update("ask", timeout=25)
        if asked is None:
            break
        if asked.payload == 4:
            asked.refuse("not four")
            items.append(4)
            continue
        items.append(await ctx.call(x, asked.payload, retry=Retry(attempts=6, first=0.1)))
        asked.answer(len(items))
    return items


@workflow
async def fn_book(ctx: Context, n: int = 0) -> int:
    total = n
    for _ in range(3):
        total += await ctx.call(book, total, retry=Retry(attempts=8, first=0.2))
    return total


FUNCTIONS = [
    fn_order, fn_steps, fn_fan, fn_map, fn_nap, fn_child, fn_parent, fn_count, fn_tidy, fn_cart, fn_book,
]  # fmt: skip
STARTED = [each for each in FUNCTIONS if each is not fn_child]
