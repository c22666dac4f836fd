"""Mixed runs of workflow functions for processes that die: the second book, beside `workload.py`, whose activities it has."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from crash import workload
from crash.workload import (
    Wanted,
    broken,
    deaf,
    flaky,
    length,
    shaky,
    step,
    step_in_thread,
    text,
    total,
    undo,
)
from penstock import Context, Retry, StepFailed, workflow

ACTIVITIES, SNAPSHOT_EVENTS = workload.ACTIVITIES, workload.SNAPSHOT_EVENTS
PATIENT = Retry(attempts=6, first=0.005, factor=1)


@workflow
async def line(ctx: Context, n: int) -> int:
    one = await ctx.call(step, n, 1)
    two = await ctx.call(step_in_thread, one, add=10)
    return await ctx.call(step, two, 100)


@workflow
async def both(ctx: Context, n: int) -> int:
    """`gather`, a TaskGroup whose tasks have several steps, and one that waits for the first of two."""
    left, right = await asyncio.gather(ctx.call(step, n, 1), ctx.call(step, n, 2))

    async def twice(value: int) -> int:
        return await ctx.call(step, await ctx.call(step, value, 10), 10)

    async with asyncio.TaskGroup() as group:
        up, down = group.create_task(twice(left)), group.create_task(twice(right))
    never = asyncio.ensure_future(ctx.signal("never"))
    soon = asyncio.ensure_future(ctx.call(step, 0, 5))
    await asyncio.wait([never, soon], return_when=asyncio.FIRST_COMPLETED)
    never.cancel()
    return await ctx.call(total, [up.result(), down.result(), soon.result()])


@workflow
async def mapped(ctx: Context, items: list[int]) -> int:
    return await ctx.call(total, await ctx.map(step, items, limit=3))


@workflow
async def letters(ctx: Context, n: int) -> dict[str, int]:
    await ctx.call(step, n, 1)
    one = await ctx.signal("go", type=int)
    two = await ctx.signal("go", type=int)
    return {"sum": await ctx.call(step, one, two), "first": one or 0}


@workflow
async def nap(ctx: Context, n: int) -> int:
    one = await ctx.call(step, n, 1)
    begun = ctx.now()
    await asyncio.sleep(0.015)
    await ctx.sleep(timedelta(milliseconds=10))
    assert (ctx.now() - begun).total_seconds() >= 0.025
    assert ctx.changed("since")
    return await ctx.call(step, one, 10)


@workflow
async def race(ctx: Context, seconds: float) -> str:
    """An answer in time, or none: the wait's own timeout, then one around it."""
    answer = await ctx.signal("answer", timeout=seconds)
    if answer is not None:
        return f"answered {await ctx.call(step, answer, 1)}"
    try:
        async with asyncio.timeout(seconds):
            await ctx.signal("answer")
    except TimeoutError:
        await ctx.call(step, 0)
    return "silent"


@workflow
async def stubborn(ctx: Context, n: int) -> int:
    value = await ctx.call(flaky, n, retry=PATIENT)
    try:
        await ctx.call(broken)
    except StepFailed as failed:
        value += failed.code != "broken"
        return await ctx.call(step, value, 1)
    raise AssertionError


@workflow
async def saga(ctx: Context, n: int) -> None:
    await ctx.call(step, n, 1, undo=shaky, undo_retry=PATIENT)
    await asyncio.gather(ctx.call(text, 3), ctx.call(step, n, 2, undo=undo))
    ctx.undo(undo, n)
    await ctx.call(broken)


@workflow
async def booked(ctx: Context, n: int) -> int:
    return await ctx.call(step, await ctx.call(step, n, 1, undo=undo), 1, undo=undo)


@workflow
async def family(ctx: Context, n: int) -> int:
    """A child function, a child definition, one that goes its own way."""
    one, two = await asyncio.gather(
        ctx.child(line, n), ctx.child("sequence", {"n": n}, id=f"{ctx.run_id}/plain")
    )
    await ctx.start(line, n, id=f"{ctx.run_id}/alone")
    return await ctx.call(total, [one, two])


@workflow
async def trip(ctx: Context, n: int) -> None:
    await ctx.child(booked, n)
    await ctx.call(broken)


@workflow
async def stages(ctx: Context, n: int, stage: int, bad: bool) -> int:
    """Four generations; a signal that came early is read in the last, and undo goes through all of them."""
    n = await ctx.call(step, n, 1, undo=undo)
    ctx.set_attributes({"stage": stage})
    if stage < 4:
        ctx.continue_as_new(n, stage + 1, bad)
    if bad:
        await ctx.call(broken)
    return await ctx.call(step, n, await ctx.signal("go", type=int) or 0)


@workflow
async def quits(ctx: Context, n: int) -> None:
    """Cancelled by the client, wherever it is; what it has in `finally` is done all the same."""
    try:
        await ctx.call(step, n, 1, undo=undo)
        await ctx.call(step, n, 1, undo=undo)
        await ctx.signal("never")
    finally:
        await asyncio.shield(ctx.call(length, "cleaned"))
        await asyncio.sleep(0.005)
        await ctx.call(total, [1, 2])


@workflow
async def hasty(ctx: Context, n: int) -> None:
    """Cancelled while steps are under way that do not hear of it: what they did is undone, as all the rest."""
    try:
        await ctx.call(step, n, 1, undo=undo)
        await asyncio.gather(*(ctx.call(deaf, n, undo=undo) for _ in range(3)))
        await ctx.signal("never")
    finally:
        await ctx.call(length, "cleaned")


@workflow
async def torn(ctx: Context, n: int) -> None:
    """Fails by itself while such steps are under way."""
    await ctx.call(step, n, 1, undo=undo)
    await asyncio.gather(*(ctx.call(deaf, n, undo=undo) for _ in range(3)), ctx.call(broken))


@workflow
async def parts(ctx: Context, n: int) -> None:
    """A parent that is cancelled while its child has done half."""
    await ctx.call(step, n, 1, undo=undo)
    await ctx.child(quits, n)


@workflow
async def gives(ctx: Context, n: int) -> None:
    """Gives steps up that do not hear of it, goes on, and fails: what they did is undone, as all the rest."""
    first = asyncio.ensure_future(ctx.call(deaf, n, undo=undo))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ctx.call(deaf, n, undo=undo), 0.008)
    first.cancel()
    for _ in range(3):
        await ctx.call(step, n, 1, undo=undo)
    await ctx.call(broken)


@workflow
async def moves(ctx: Context, n: int, stage: int) -> None:
    """Goes on as new while such steps are under way; what they did goes along, and is undone at last."""
    await ctx.call(step, n, 1, undo=undo)
    if stage == 3:
        await ctx.call(broken)
    under_way = [asyncio.ensure_future(ctx.call(deaf, n, undo=undo)) for _ in range(2)]
    await asyncio.wait(under_way, timeout=0.005)
    ctx.continue_as_new(n, stage + 1)


@workflow(timeout=0.03)
async def late(ctx: Context, n: int) -> None:
    """Out of time, wherever it is; cleaned up all the same."""
    try:
        await ctx.call(step, n, 1, undo=undo)
        await asyncio.gather(ctx.call(deaf, n, undo=undo), ctx.signal("never"))
    finally:
        await ctx.call(length, "cleaned")


@workflow
async def rounds(ctx: Context, n: int, left: int) -> int:
    n = await ctx.call(step, n, 1, undo=undo)
    if left:
        ctx.continue_as_new(n, left - 1)
    return n


@workflow
async def elder(ctx: Context, n: int, bad: bool) -> int:
    """Its child goes on as new, twice: its result, and what it did, are those of all three generations."""
    one = await ctx.child(rounds, n, 2)
    if bad:
        await ctx.call(broken)
    return await ctx.call(step, one, 10)


@workflow
async def desk(ctx: Context, count: int) -> int:
    """An update in each generation."""
    message = await ctx.update("add")
    assert message is not None
    count += message.payload
    await ctx.call(step, count)
    message.answer(count)
    if count < 6:
        ctx.continue_as_new(count)
    return count


@workflow
async def crier(ctx: Context, n: int) -> int:
    """Publishes to a run that waits for it."""
    await ctx.start("hears", {"n": n, "run": ctx.run_id}, id=f"{ctx.run_id}/hears")
    ctx.publish("crash.cried", {"run": ctx.run_id})
    return await ctx.call(step, n, 1)


@workflow
async def cart(ctx: Context) -> list[str]:
    items: list[str] = []
    ctx.query("items", lambda: items)
    while True:
        message = await ctx.update("add")
        assert message is not None
        if message.payload == "stop":
            message.answer(len(items))
            return items
        items.append(message.payload)
        await ctx.call(step, len(items))
        message.answer(len(items))


@workflow
async def sender(ctx: Context, n: int, to: str) -> int:
    value = await ctx.call(step, n, 1)
    ctx.send(to, "go", value)
    return await ctx.call(step, value, 1)


@workflow
async def receiver(ctx: Context, n: int) -> int:
    return await ctx.call(step, await ctx.signal("go", type=int) or 0, 1)


@workflow
async def made(ctx: Context, n: int) -> list[int]:
    """What is made once is the same in every life."""
    first = [ctx.side_effect(os.getpid), ctx.uuid().int % 1000, ctx.random.randrange(1000)]
    first = [await ctx.call(step, value) for value in first]
    await ctx.sleep(0.01)
    second = [await ctx.call(step, value) for value in first]
    other = ctx.random.randrange(1000)
    await ctx.sleep(0.005)
    third = await ctx.call(step, other)
    return [sum(first) - sum(second), third - other]


@workflow
async def parcel(ctx: Context, n: int) -> int:
    return await ctx.call(length, await ctx.call(text, n))


@workflow
async def long(ctx: Context, n: int) -> int:
    """Long enough for snapshots, and to be told its history beside the commits."""
    for _ in range(40):
        n = await ctx.call(step, n, 1)
    return n


WORKFLOWS = [
    line, both, mapped, letters, nap, race, stubborn, saga, booked, family, trip, stages, quits, hasty, torn, parts, gives, moves,
    late, rounds, elder, desk, crier, cart, sender, receiver, made, parcel, long,
]  # fmt: skip
DEFINITIONS: list[dict[str, Any]] = [
    next(each for each in workload.DEFINITIONS if each["id"] == "sequence"),
    {
        "id": "hires",
        "tasks": {
            "child": {"type": "subworkflow", "definition": "booked", "inputs": {"n": workload.N}},
            "last": {
                "do": "step",
                "after": ["child"],
                "inputs": {"value": {"from": "child"}, "add": {"value": 1}},
            },
        },
    },
    {
        "id": "hears",
        "tasks": {
            "cried": {
                "type": "event",
                "topic": "crash.cried",
                "where": "event.data.run == input.run",
            },
            "last": {
                "do": "step",
                "after": ["cried"],
                "inputs": {"value": workload.N, "add": {"value": 1}},
            },
        },
    },
]


def _kinds() -> list[Callable[[int], Wanted]]:
    def run(kind: str, i: int, input: Any, result: Any = None, **more: Any) -> Wanted:
        return Wanted(f"{kind}-{i}", kind, input, result, **more)

    def items(i: int) -> Wanted:
        values = [(i + k) % 50 for k in range(8)]
        return run("mapped", i, {"items": values}, sum(values), pauses=i % 3 > 0)

    def stages(i: int, *, bad: bool) -> Wanted:
        input = {"n": i, "stage": 1, "bad": bad}
        if not bad:
            return run("stages", i, input, i + 4 + 7, signals=(("go", 7),), generations=4)
        undone = ("step#1", "~3/step#1", "~2/step#1", "~1/step#1")
        return run(
            "stages", i, input, status="FAILED", code="broken", undone=undone, generations=4
        )  # fmt: skip

    silent = {"status": "FAILED", "code": "broken"}
    child, at_last = "child:rounds#1", {**silent, "undone": None}
    stopped = {"status": "CANCELLED", "code": "cancelled", "undone": None, "cancels": True}
    return [
        lambda i: run("line", i, {"n": i}, i + 111),
        lambda i: run("both", i, {"n": i}, 2 * i + 3 + 40 + 5),
        items,
        lambda i: run(
            "letters", i, {"n": i}, {"sum": i + 7, "first": i}, signals=(("go", i), ("go", 7))
        ),
        lambda i: run("nap", i, {"n": i}, i + 11),
        lambda i: run("race", i, {"seconds": 3600}, f"answered {i + 1}", signals=(("answer", i),)),
        lambda i: run("race", i, {"seconds": 0.012}, "silent"),
        lambda i: run("stubborn", i, {"n": i}, i + 1),
        lambda i: run("saga", i, {"n": i}, undone=("undo:undo#1", "step#2", "step#1"), **silent),
        lambda i: run(
            "family", i, {"n": i}, 2 * i + 222, children=("child:line#1", "plain", "alone")
        ),
        lambda i: run(
            "trip", i, {"n": i}, children=("child:booked#1",),
            undone=("child:booked#1/step#2", "child:booked#1/step#1"), **silent,
        ),
        lambda i: stages(i, bad=False),
        lambda i: stages(i, bad=True),
        lambda i: run("quits", i, {"n": i}, must=("length#1", "total#1"), **stopped),
        lambda i: run("hasty", i, {"n": i}, must=("length#1",), **stopped),
        lambda i: run("torn", i, {"n": i}, **at_last),
        lambda i: run("parts", i, {"n": i}, **stopped),
        lambda i: run("gives", i, {"n": i}, **at_last),
        lambda i: run("moves", i, {"n": i, "stage": 1}, generations=3, **at_last),
        lambda i: run(
            "late", i, {"n": i}, status="TIMED_OUT", code="timeout", undone=None, must=("length#1",)
        ),
        lambda i: run("elder", i, {"n": i, "bad": False}, i + 13, children=(child,)),
        lambda i: run(
            "elder", i, {"n": i, "bad": True}, children=(child,),
            undone=(f"{child}/step#1", f"{child}/~2/step#1", f"{child}/~1/step#1"), **silent,
        ),
        lambda i: run(
            "desk", i, {"count": 0}, 6, updates=(("add", 1, 1), ("add", 2, 3), ("add", 3, 6)), generations=3
        ),
        lambda i: run("crier", i, {"n": i}, i + 1, children=("hears",)),
        lambda i: run(
            "cart", i, {}, ["tea", "cup"],
            updates=(("add", "tea", 1), ("add", "cup", 2), ("add", "stop", 2)),
        ),
        lambda i: run("receiver", i, {"n": i}, i + 1),
        # Sent to the receiver before it, and both are to end.
        lambda i: run("sender", i, {"n": i - 2, "to": f"receiver-{i - 1}"}, i),
        lambda i: run("made", i, {"n": i}, [0, 0]),
        lambda i: run("parcel", i, {"n": 5000 + i}, 5000 + i),
        lambda i: run("long", i, {"n": i}, i + 40),
        lambda i: run("hires", i, {"n": i}, i + 3, children=("child",)),
    ]  # fmt: skip


KINDS = _kinds()


def wanted(number: int) -> Wanted:
    return KINDS[number % len(KINDS)](number)
