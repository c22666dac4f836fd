"""What a workflow function gives and nothing can keep is refused at its line; no run hangs by it, none repeats (SPEC 2.8)."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from typing import Any

import pytest

import penstock
from penstock import Context, Fail, Rejected, Retry, RunFailed, Timeouts, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.model import intents
from penstock.model.codec import encode_event
from penstock.sdk.replay import Replay
from penstock.testing import replayed
from penstock.testing.harness import SkipClock, harness

HALF = os.fsdecode(b"\xff.csv")
"""A name of a file that is not UTF-8: half of a surrogate pair is in it."""
done: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@activity
async def charge(what: Any = None) -> Any:
    done.append(what)
    return what


async def told_again(run: Any, workflow: Any) -> None:
    """Its history fits the code."""
    await replayed([workflow], [encode_event(item.event) for item in await run.history()])


GIVEN: dict[str, tuple[Any, str]] = {
    "set_attributes": (lambda ctx: ctx.set_attributes({"a": object()}), "payload-invalid"),
    "attributes NaN": (lambda ctx: ctx.set_attributes({"a": math.nan}), "payload-invalid"),
    "attributes key": (lambda ctx: ctx.set_attributes({1: 2}), "payload-invalid"),
    "attributes text": (lambda ctx: ctx.set_attributes({"a": HALF}), "payload-invalid"),
    "attributes list": (lambda ctx: ctx.set_attributes([1]), "payload-invalid"),
    "call text": (lambda ctx: ctx.call(HALF, 1), "activity-invalid"),
    "call argument": (lambda ctx: ctx.call(charge, HALF), "payload-invalid"),
    "call lambda": (lambda ctx: ctx.call(lambda x: x, 3), "activity-invalid"),
    "call queue": (lambda ctx: ctx.call(charge, queue=HALF), "activity-invalid"),
    "call retry": (lambda ctx: ctx.call(charge, retry=Retry(first=math.inf)), "payload-invalid"),
    "call retry text": (lambda ctx: ctx.call(charge, retry=Retry(first="x")), "activity-invalid"),  # type: ignore[arg-type]
    "call timeouts": (lambda ctx: ctx.call(charge, timeout=Timeouts(task=math.inf)), "payload-invalid"),
    "undo lambda": (lambda ctx: ctx.undo(lambda: 1), "activity-invalid"),
    "send to none": (lambda ctx: ctx.send(None, "go", 1), "id-invalid"),
    "send number": (lambda ctx: ctx.send("one", 5, 1), "name-invalid"),
    "send text": (lambda ctx: ctx.send(HALF, "go"), "id-invalid"),
    "send payload": (lambda ctx: ctx.send("one", "go", HALF), "payload-invalid"),
    "publish": (lambda ctx: ctx.publish(None, 1), "topic-invalid"),
    "child id": (lambda ctx: ctx.child(gives, "x", id=7), "id-invalid"),
    "child version": (lambda ctx: ctx.child("w", version=7), "text-invalid"),
    "child text": (lambda ctx: ctx.child(HALF), "name-invalid"),
    "signal text": (lambda ctx: ctx.signal(HALF), "name-invalid"),
    "signal timeout": (lambda ctx: ctx.signal("go", timeout=0), "time-invalid"),
    "sleep text": (lambda ctx: ctx.sleep("1"), "time-invalid"),
    "sleep NaN": (lambda ctx: ctx.sleep(math.nan), "time-invalid"),
    "sleep until": (lambda ctx: ctx.sleep_until("noon"), "time-invalid"),
    "changed": (lambda ctx: ctx.changed(None), "name-invalid"),
    "changed text": (lambda ctx: ctx.changed(HALF), "name-invalid"),
}  # fmt: skip


@workflow
async def gives(ctx: Context, what: str) -> str:
    await ctx.call(charge, "before")
    try:
        GIVEN[what][0](ctx)
    except penstock.PenstockError as error:
        await ctx.sleep(60)  # and it goes on
        return error.code
    return "taken"


@pytest.mark.parametrize("what", GIVEN)
async def test_what_nothing_can_keep_is_refused_at_the_line_that_gives_it(what: str) -> None:
    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    async with harness(workflows=[gives], activities=[charge], store=store, clock=clock) as engine:
        run = await engine.start(gives, what, id="one")
        await engine.settle()
    async with harness(workflows=[gives], activities=[charge], store=store, clock=clock) as engine:
        run = await engine.get("one")  # told again, it is refused again
        assert await engine.finish(run) == GIVEN[what][1]
    assert done == ["before"]


@workflow
async def raises(ctx: Context, what: str, late: bool) -> None:
    if late:
        await ctx.call(charge, "before")
    match what:
        case "details":
            raise Fail("x", code="c", details=object())
        case "text":
            raise ValueError("no file " + HALF)
        case "cause":
            raise ValueError("outer") from KeyError(HALF)
        case "group":
            raise ExceptionGroup("two", [ValueError(HALF), KeyError(2)])
        case _:
            raise Mute


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("details", "c", "x"),
        ("text", "error", "no file ?.csv"),
        ("cause", "error", "outer"),
        ("group", "error", "two (2 sub-exceptions): ValueError: ?.csv; KeyError: 2"),
        ("mute", "error", "an exception whose text could not be read"),
    ],
)
async def test_a_failure_is_kept_whatever_it_brings_along(
    what: str, code: str, message: str, late: bool
) -> None:
    async with harness(workflows=[raises], activities=[charge]) as engine:
        run = await engine.start(raises, what, late, id="one")
        with pytest.raises(RunFailed) as failed:
            await engine.finish(run)
        assert (failed.value.failure.code, failed.value.failure.message) == (code, message)
        assert await engine.types(run) == [
            "run_started", *["task_completed"] * late, "run_failed",
        ]  # fmt: skip
        await told_again(run, raises)


@workflow
async def wants_more(ctx: Context, late: bool) -> None:
    if late:
        await ctx.call(charge, "before")
    program: Replay = ctx._program  # pyright: ignore[reportPrivateUsage]
    program.want(intents.Tag({"a": object()}))
    await ctx.sleep(60)


@pytest.mark.parametrize("late", [False, True])
async def test_what_is_not_seen_at_its_line_fails_the_run_and_what_woke_it_is_kept(
    late: bool,
) -> None:
    async with harness(workflows=[wants_more], activities=[charge]) as engine:
        run = await engine.start(wants_more, late, id="one")
        with pytest.raises(RunFailed, match="cannot be kept") as failed:
            await engine.finish(run)
        assert failed.value.failure.code == "payload-invalid"
        assert await engine.types(run) == [
            "run_started", *["task_completed"] * late, "run_failed",
        ]  # fmt: skip
        await told_again(run, wants_more)
        assert done == ["before"] * late


@workflow
async def refuses(ctx: Context) -> None:
    update = await ctx.update("u")
    assert update is not None
    update.refuse(HALF)


async def test_a_refusal_is_told_whatever_is_in_its_text() -> None:
    async with harness(workflows=[refuses]) as engine:
        run = await engine.start(refuses, id="one")
        with pytest.raises(Rejected, match=r"\?\.csv"):
            await run.update("u", 1)
        await engine.finish(run)


@workflow
async def for_ever(ctx: Context, what: str) -> Any:
    match what:
        case "timeout":
            async with asyncio.timeout(math.inf):
                return await ctx.call(charge, 1)
        case "race":
            task = asyncio.create_task(asyncio.sleep(math.inf))
            await ctx.sleep(5)
            return task.cancel()
        case "sleep":
            await asyncio.sleep(math.inf)
        case _:
            await asyncio.sleep(math.nan)


@pytest.mark.parametrize(
    ("what", "told"),
    [("timeout", 1), ("race", True), ("sleep", "deadlock"), ("NaN", "time-invalid")],
)
async def test_for_ever_is_no_timer(what: str, told: Any) -> None:
    async with harness(workflows=[for_ever], activities=[charge]) as engine:
        run = await engine.start(for_ever, what, id="one")
        try:
            found = await engine.finish(run)
        except RunFailed as failed:
            found = failed.failure.code
        assert found == told


@workflow
async def leaves(ctx: Context, what: str) -> Any:
    await ctx.sleep(1)

    async def inner() -> None:
        if what == "interrupt":
            raise KeyboardInterrupt
        sys.exit(3)

    match what:
        case "callback":
            asyncio.get_running_loop().call_soon(sys.exit, 3)
        case "caught":
            try:
                await asyncio.gather(inner(), ctx.call(charge, 1))
            except BaseException:
                return "went on"
        case _:
            task = asyncio.create_task(inner())
            await asyncio.gather(task, ctx.call(charge, 1))
    return await ctx.signal("never")


@pytest.mark.parametrize(
    ("what", "type"),
    [
        ("task", "SystemExit"),
        ("interrupt", "KeyboardInterrupt"),
        ("callback", "SystemExit"),
        ("caught", "SystemExit"),
    ],
)
async def test_a_task_that_leaves_the_process_ends_its_run_alone(what: str, type: str) -> None:
    async with harness(workflows=[leaves, gives], activities=[charge]) as engine:
        other = await engine.start(gives, "changed", id="other")
        run = await engine.start(leaves, what, id="one")
        with pytest.raises(RunFailed) as failed:
            await engine.finish(run)
        assert failed.value.failure.type == type
        await told_again(run, leaves)
        assert await engine.finish(other) == "name-invalid"


@activity
async def found() -> dict[str, Any]:
    return {"total": None, "scores": {"1": 2}, "lines": [{"sku": "gasket"}]}


def as_it_came(value: dict[str, Any]) -> None:
    pass


def changed(value: dict[str, Any]) -> None:
    value["lines"][0]["sku"] = "blade"


def not_a_number(value: dict[str, Any]) -> None:
    value["total"] = math.nan


def number_keys(value: dict[str, Any]) -> None:
    value["scores"] = {1: 2}


CHANGES = {each.__name__: each for each in (as_it_came, changed, not_a_number, number_keys)}


@workflow
async def passes_on(ctx: Context, how: str) -> dict[str, Any]:
    value = await ctx.call(found)
    CHANGES[how](value)
    value = await ctx.call(charge, value)
    CHANGES[how](value)
    return value


@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize("how", CHANGES)
async def test_what_came_is_passed_on_as_it_is_then(how: str, guard: bool) -> None:
    wanted = await found()
    async with harness(workflows=[passes_on], activities=[found, charge], guard=guard) as engine:
        run = await engine.start(passes_on, how)
        if how == "not_a_number" or how == "number_keys":
            with pytest.raises(
                RunFailed, match="total.* is nan" if how == "not_a_number" else "keys must be text"
            ):
                await run.result()
            return
        CHANGES[how](wanted)
        assert await run.result() == wanted
        assert done == [wanted]
        await told_again(run, passes_on)
