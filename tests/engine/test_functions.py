"""Workflow functions (SPEC 2.8): what the code awaits is a step, recorded and never executed again."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import pathlib
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Context, Fail, Retry, RunFailed, StepFailed, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.model.codec import encode_run
from penstock.testing.harness import SkipClock, harness

done: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@activity
async def note(what: str) -> str:
    done.append(what)
    return f"noted {what}"


@activity
async def take_back(what: str) -> None:
    done.append(f"undo {what}")


@activity(retry=Retry(attempts=3, first=1, jitter=0))
async def flaky(fails: int) -> int:
    done.append("try")
    attempt = penstock.current().job.attempt
    if attempt <= fails:
        raise ValueError(f"attempt {attempt}")
    return attempt


@activity
async def broken(message: str) -> None:
    raise Fail(message, code="out-of-stock", details={"left": 0})


@activity
async def slow(seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        done.append("told")
        raise
    return "slept"


ACTIVITIES = [note, take_back, flaky, broken, slow]


@workflow
async def sequence(ctx: Context, name: str, times: int = 3) -> list[str]:
    return [await ctx.call(note, f"{name}{number}") for number in range(times)]


async def test_steps_are_executed_in_order() -> None:
    async with harness(workflows=[sequence], activities=ACTIVITIES) as engine:
        run = await engine.start(sequence, "a", id="one")
        assert await engine.finish(run) == ["noted a0", "noted a1", "noted a2"]
        assert await engine.types(run) == [
            "run_started", "task_completed", "task_completed", "task_completed", "run_completed",
        ]  # fmt: skip
        assert [item.event.key for item in (await run.history())[1:4]] == [
            "note#1",
            "note#2",
            "note#3",
        ]
        assert await engine.finish(await engine.start("sequence", {"name": "b", "times": 1})) == [
            "noted b0"
        ]


@workflow
async def everything(ctx: Context, card: str) -> list[Any]:
    both = await asyncio.gather(ctx.call(note, "left"), ctx.call(note, "right"))
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ctx.call(note, "up"))
        second = group.create_task(ctx.call(note, "down"))
    await asyncio.sleep(3600)
    await ctx.sleep(datetime.timedelta(days=30))
    before = ctx.now()
    await ctx.sleep_until(before + datetime.timedelta(hours=1))
    try:
        async with asyncio.timeout(60):
            await ctx.signal("never")
    except TimeoutError:
        both.append("timed out")
    mapped = await ctx.map(note, [f"item {number}" for number in range(5)], limit=2)
    return [*both, first.result(), second.result(), *mapped, (ctx.now() - before).total_seconds()]


async def test_concurrency_and_time() -> None:
    async with harness(workflows=[everything], activities=ACTIVITIES) as engine:
        run = await engine.start(everything, "4242")
        assert await engine.finish(run) == [
            "noted left", "noted right", "timed out", "noted up", "noted down",
            *[f"noted item {number}" for number in range(5)], 3660.0,
        ]  # fmt: skip


@workflow
async def approval(ctx: Context, days: int) -> str:
    payment = await ctx.call(note, "paid", undo=take_back)
    approved = await ctx.signal("approve", timeout=datetime.timedelta(days=days))
    if not approved:
        raise Fail("not approved")
    return payment


async def test_a_signal_or_its_timeout_and_what_is_undone_then() -> None:
    async with harness(workflows=[approval], activities=ACTIVITIES) as engine:
        run = await engine.start(approval, 2)
        await engine.settle()
        assert [each.kind for each in await run.why()] == ["signal"]
        await run.signal("approve", True)
        assert await run.result() == "noted paid"
        run = await engine.start(approval, 2)
        with pytest.raises(RunFailed, match="not approved"):
            await engine.finish(run)
        assert done == ["paid", "paid", "undo noted paid"]
        early = await engine.start(approval, 2)
        await early.signal("approve", True)  # before it is waited for
        assert await engine.finish(early) == "noted paid"


@workflow
async def saga(ctx: Context) -> None:
    await ctx.call(note, "one", undo=take_back)
    await ctx.call(note, "two", undo=take_back)
    ctx.undo(take_back, "by hand")
    await ctx.call(broken, "no more")


async def test_undo_goes_last_first_and_the_failure_is_the_steps_own() -> None:
    async with harness(workflows=[saga], activities=ACTIVITIES) as engine:
        run = await engine.start(saga)
        with pytest.raises(RunFailed) as failed:
            await engine.finish(run)
        assert done == ["one", "two", "undo by hand", "undo noted two", "undo noted one"]
        undone = [each for each in await run.history() if each.type == "undo_completed"]
        assert [each.event.key for each in undone] == ["undo:take_back#1", "note#2", "note#1"]
        failure = failed.value.failure
        assert (failure.code, failure.message, failure.key) == (
            "out-of-stock",
            "no more",
            "broken#1",
        )
        assert failure.details == {"left": 0}


@workflow
async def catching(ctx: Context) -> Any:
    try:
        await ctx.call(broken, "no more")
    except StepFailed as error:
        caught = [error.code, error.key, str(error)]
    tries = await ctx.call(flaky, 2)
    try:
        await ctx.call(flaky, 5, retry=Retry(attempts=1))
    except StepFailed as error:
        caught.append(error.failure.type)
    return [*caught, tries]


async def test_failures_are_caught_and_attempts_retried() -> None:
    async with harness(workflows=[catching], activities=ACTIVITIES) as engine:
        run = await engine.start(catching)
        assert await engine.finish(run) == ["out-of-stock", "broken#1", "no more", "ValueError", 3]


@workflow
async def causes(ctx: Context) -> None:
    try:
        await ctx.call(broken, "inner")
    except StepFailed as error:
        try:
            raise KeyError("middle") from error
        except KeyError as middle:
            raise ValueError("outer") from middle


async def test_the_chain_of_causes_is_kept_in_order() -> None:
    async with harness(workflows=[causes], activities=ACTIVITIES) as engine:
        with pytest.raises(RunFailed) as failed:
            await engine.finish(await engine.start(causes))
        chain, cursor = [], failed.value.failure
        while cursor is not None:
            chain.append((cursor.type, cursor.message))
            cursor = cursor.cause
        assert chain == [("ValueError", "outer"), ("KeyError", "'middle'"), ("Fail", "inner")]
        assert "test_functions.py" in failed.value.failure.trace


@workflow
async def cleaning(ctx: Context) -> None:
    await ctx.call(note, "begun", undo=take_back)
    try:
        await ctx.call(slow, 1000.0)
    finally:
        await asyncio.shield(ctx.call(note, "cleaned"))


async def test_cancel_reaches_the_activity_cleans_up_and_undoes() -> None:
    async with harness(workflows=[cleaning], activities=ACTIVITIES) as engine:
        run = await engine.start(cleaning)
        await engine.settle()
        await run.cancel(reason="enough")
        with pytest.raises(RunFailed, match="CANCELLED"):
            await engine.finish(run)
        assert done in (
            ["begun", "told", "cleaned", "undo noted begun"],
            ["begun", "cleaned", "told", "undo noted begun"],
        )
        undone = [each for each in await run.history() if each.type == "undo_completed"]
        assert [each.event.key for each in undone] == ["note#1"]


@workflow(timeout=60)
async def endless(ctx: Context) -> None:
    try:
        await ctx.signal("never")
    finally:
        await ctx.call(note, "late")


async def test_the_timeout_of_the_run() -> None:
    async with harness(workflows=[endless], activities=ACTIVITIES) as engine:
        run = await engine.start(endless)
        with pytest.raises(RunFailed, match="TIMED_OUT"):
            await engine.finish(run)
        assert done == ["late"]


@workflow
async def parent(ctx: Context) -> list[Any]:
    first = await ctx.child(sequence, "child", 1)
    detached = await ctx.start(sequence, "alone", 1, id="alone")
    try:
        await ctx.child(saga)
    except StepFailed as error:
        failed = error.code
    return [first, detached, failed]


async def test_children_awaited_detached_and_failed() -> None:
    async with harness(workflows=[parent, sequence, saga], activities=ACTIVITIES) as engine:
        run = await engine.start(parent)
        assert await engine.finish(run) == [["noted child0"], "alone", "child-failed"]
        assert await (await engine.get("alone")).result() == ["noted alone0"]


@workflow
async def counter(ctx: Context, number: int, most: int) -> int:
    await ctx.call(note, str(number), undo=take_back)
    ctx.set_attributes({"number": number})
    if number < most:
        ctx.continue_as_new(number + 1, most)
    extra = await ctx.signal("extra")
    if extra < 0:
        raise Fail("less than nothing")
    return number + extra


async def test_continue_as_new_takes_undo_signals_and_attributes_along() -> None:
    async with harness(workflows=[counter], activities=ACTIVITIES) as engine:
        run = await engine.start(counter, 1, 3, id="count")
        await run.signal("extra", 10)
        assert await engine.finish(run) == 13
        shown = await run.show()
        assert shown.generation == 3
        assert shown.attributes == {"number": 3}
        for generation, last in ((1, "run_continued"), (2, "run_continued"), (3, "run_completed")):
            history = await run.history(generation=generation)
            assert (history[0].type, history[-1].type) == ("run_started", last)
            assert history[0].event.generation == generation
        run = await engine.start(counter, 1, 3)
        await run.signal("extra", -1)
        with pytest.raises(RunFailed, match="less than nothing"):
            await engine.finish(run)
        assert done[-3:] == ["undo noted 3", "undo noted 2", "undo noted 1"]


@workflow
async def cart(ctx: Context) -> list[str]:
    items: list[str] = []
    ctx.query("items", lambda: items)
    ctx.query("has", lambda name: name in items)
    while True:
        message = await ctx.update("add")
        assert message is not None
        if message.payload == "stop":
            message.answer(len(items))
            return items
        if message.payload in items:
            message.refuse("twice")
        else:
            items.append(message.payload)
            message.answer(len(items))


async def test_updates_are_answered_and_queries_read() -> None:
    async with harness(workflows=[cart], activities=[]) as engine:
        run = await engine.start(cart)
        assert await run.update("add", "apple") == 1
        assert await run.update("add", "pear") == 2
        with pytest.raises(penstock.Rejected, match="twice"):
            await run.update("add", "pear")
        assert await run.query("items") == ["apple", "pear"]
        with pytest.raises(penstock.Rejected, match="answers no query `prices`"):
            await run.query("prices")
        assert await run.update("add", "stop") == 2
        assert await run.result() == ["apple", "pear"]


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    name: str
    price: decimal.Decimal


class Order(msgspec.Struct):
    lines: list[Line]
    due: datetime.date
    colour: Colour


@activity
async def total(order: Order) -> decimal.Decimal:
    assert isinstance(order.due, datetime.date)
    return sum((line.price for line in order.lines), decimal.Decimal())


@workflow
async def typed(ctx: Context, order: Order, colour: Colour) -> tuple[decimal.Decimal, Order]:
    assert isinstance(order.lines[0].price, decimal.Decimal)
    assert colour is Colour.RED
    cost = await ctx.call(total, order)
    assert isinstance(cost, decimal.Decimal)
    given = await ctx.signal("date", type=datetime.date)
    assert given == datetime.date(2027, 1, 1)
    return cost, order


async def test_types_in_and_out() -> None:
    order = Order(
        [Line("tea", decimal.Decimal("1.10")), Line("cup", decimal.Decimal("2.20"))],
        datetime.date(2026, 1, 1),
        Colour.RED,
    )
    async with harness(workflows=[typed], activities=[total]) as engine:
        run = await engine.start(typed, order, Colour.RED)
        await run.signal("date", datetime.date(2027, 1, 1))
        cost, again = await engine.finish(run)
        assert cost == decimal.Decimal("3.30")
        assert again == order


@workflow
async def marked(ctx: Context) -> list[Any]:
    made = ctx.side_effect(lambda: done.append("made") or 7)
    await ctx.sleep(1)
    return [made, str(ctx.uuid()), ctx.random.random(), ctx.changed("new")]


async def test_what_is_made_once_stays() -> None:
    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    async with harness(workflows=[marked], activities=[], store=store, clock=clock) as engine:
        await engine.start(marked, id="m")
        await engine.settle()
    async with harness(workflows=[marked], activities=[], store=store, clock=clock) as engine:
        again = await engine.finish(await engine.get("m"))
        assert again[0] == 7
        assert done == ["made"]
        assert again[3] is True
        other = await engine.finish(await engine.start(marked, id="m2"))
        assert other[1] != again[1]


@pytest.mark.parametrize("kills", [1, 3])
async def test_after_a_restart_no_step_is_executed_again(kills: int) -> None:
    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    functions = [everything, approval]
    async with harness(
        workflows=functions, activities=ACTIVITIES, store=store, clock=clock
    ) as engine:
        await engine.start(everything, "x", id="all")
        await engine.settle()
    for _ in range(kills):
        async with harness(
            workflows=functions, activities=ACTIVITIES, store=store, clock=clock
        ) as engine:
            await engine.skip(hours=1)
    async with harness(
        workflows=functions, activities=ACTIVITIES, store=store, clock=clock
    ) as engine:
        result = await engine.finish(await engine.get("all"))
        assert result[-1] == 3660.0
        assert len(done) == len(set(done)) == 9


def first_code() -> Any:
    @workflow(name="changing")
    async def changing(ctx: Context) -> str:
        await ctx.call(note, "old")
        await ctx.sleep(60)
        return await ctx.call(note, "end")

    return changing


def other_code() -> Any:
    @workflow(name="changing")
    async def changing(ctx: Context) -> str:
        await ctx.call(note, "new")
        await ctx.sleep(60)
        return await ctx.call(note, "end")

    return changing


def careful_code() -> Any:
    @workflow(name="changing")
    async def changing(ctx: Context) -> str:
        await ctx.call(note, "new" if ctx.changed("newer") else "old")
        await ctx.sleep(60)
        return await ctx.call(note, "end")

    return changing


async def test_code_that_does_not_fit_its_history_is_named_and_nothing_is_lost() -> None:
    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    async with harness(
        workflows=[first_code()], activities=ACTIVITIES, store=store, clock=clock
    ) as engine:
        await engine.start("changing", id="c")
        await engine.settle()
    async with harness(
        workflows=[other_code()], activities=ACTIVITIES, store=store, clock=clock
    ) as engine:
        await engine.skip(seconds=61)
        run = await engine.get("c")
        [reason] = await run.why()
        assert reason.kind == "code"
        assert (
            '`note#1` call note["old"] is recorded, and the code wants call note["new"]'
            in reason.message
        )
        assert "test_functions.py:" in reason.message
    async with harness(
        workflows=[careful_code()], activities=ACTIVITIES, store=store, clock=clock
    ) as engine:
        assert await engine.finish(await engine.get("c")) == "noted end"
        assert done == ["old", "end"]
        assert await engine.finish(await engine.start("changing")) == "noted end"
        assert done == ["old", "end", "new", "end"]


async def test_a_change_that_no_old_run_needs_any_more_can_go() -> None:
    @workflow(name="parcel")
    async def both(ctx: Context) -> str:
        said = await ctx.call(note, "new" if ctx.changed("new") else "old")
        await ctx.signal("go")
        return said

    @workflow(name="parcel")
    async def one(ctx: Context) -> str:
        said = await ctx.call(note, "new")
        await ctx.signal("go")
        return f"{said}, {ctx.changed('new')}"

    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    for code in (both, one, one):
        async with harness(
            workflows=[code], activities=ACTIVITIES, store=store, clock=clock
        ) as engine:
            run = await engine.start("parcel", id="p")
            await engine.settle()
            assert [why.kind for why in await run.why()] == ["signal"]
    async with harness(workflows=[one], activities=ACTIVITIES, store=store, clock=clock) as engine:
        run = await engine.get("p")
        await run.signal("go")
        assert await engine.finish(run) == "noted new, True"
        assert "changed:new" not in str((await run.history())[-1])
    assert done == ["new"]


@workflow
async def spinning(ctx: Context) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    await asyncio.gather(spin(), ctx.signal("never"))


async def test_code_that_goes_round_and_round_does_not_stop_the_engine() -> None:
    async with harness(workflows=[spinning], guard=False) as engine:
        with pytest.raises(RunFailed) as failed:
            await engine.finish(await engine.start(spinning))
    assert failed.value.failure.code == "endless-turn"
    assert "test_functions.py:" in failed.value.failure.message
    assert failed.value.failure.message.endswith("in spin")


@workflow
async def raising(ctx: Context) -> None:
    loop = asyncio.get_running_loop()

    def again() -> None:
        loop.call_soon(again)
        raise ValueError("nobody hears this")

    loop.call_soon(again)
    await ctx.signal("never")


async def test_nor_does_a_callback_that_raises_again_and_again() -> None:
    async with harness(workflows=[raising], guard=False) as engine:
        with pytest.raises(RunFailed) as failed:
            await engine.finish(await engine.start(raising))
    assert failed.value.failure.code == "endless-turn"


async def test_a_function_may_want_a_lot_at_one_moment() -> None:
    @workflow
    async def wide(ctx: Context) -> int:
        async def one(number: int) -> int:
            for _ in range(3):
                await asyncio.sleep(0)
            return number

        return sum(await asyncio.gather(*(one(number) for number in range(8_000))))

    async with harness(workflows=[wide], guard=False) as engine:
        assert await engine.finish(await engine.start(wide)) == sum(range(8_000))


async def test_a_process_without_the_code_records_what_comes() -> None:
    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    async with harness(
        workflows=[approval], activities=ACTIVITIES, store=store, clock=clock
    ) as engine:
        await engine.start(approval, 2, id="a")
        await engine.settle()
    async with harness(activities=ACTIVITIES, store=store, clock=clock) as engine:
        run = await engine.get("a")
        await run.signal("approve", True)
        await engine.settle()
        [reason] = await run.why()
        assert reason.message == "no process that is at work has the workflow function `approval`"
    async with harness(
        workflows=[approval], activities=ACTIVITIES, store=store, clock=clock
    ) as engine:
        run = await engine.get("a")
        assert await engine.finish(run) == "noted paid"
        assert "advanced" in await engine.types(run)


@workflow
async def stuck(ctx: Context) -> None:
    await asyncio.get_running_loop().create_future()


@workflow
async def forgotten(ctx: Context) -> None:
    ctx.call(note, "never")
    await ctx.sleep(1)


@workflow
async def threaded(ctx: Context) -> None:
    await asyncio.to_thread(print)


@workflow
async def connecting(ctx: Context) -> None:
    await asyncio.open_connection("127.0.0.1", 9)


@pytest.mark.parametrize(
    ("function", "code", "says"),
    [
        (stuck, "deadlock", "waits for nothing that can happen"),
        (forgotten, "never-awaited", "not awaited"),
        (threaded, "nondeterminism", "uses a thread"),
        (connecting, "nondeterminism", "uses a socket"),
    ],
)
async def test_code_that_cannot_work_fails_with_its_place(
    function: Any, code: str, says: str
) -> None:
    async with harness(workflows=[function], activities=ACTIVITIES) as engine:
        with pytest.raises(RunFailed) as failed:
            await engine.finish(await engine.start(function))
        assert failed.value.failure.code == code
        assert says in failed.value.failure.message
        if code != "nondeterminism":
            line = function.__code__.co_firstlineno + 2
            assert (
                f"test_functions.py:{line} in {function.__name__}" in failed.value.failure.message
            )
        assert done == []


@activity
async def text(size: int) -> str:
    return "x" * size


@workflow
async def large(ctx: Context, given: str) -> list[int]:
    """Values that the state only refers to: an input, a result that shrinks when it is stored, a signal."""
    made = await ctx.call(text, 5000)
    await ctx.sleep(60)
    huge = await ctx.call(text, 3_000_000)
    sent = await ctx.signal("more", type=str)
    await ctx.sleep(60)
    return [len(each or "") for each in (given, made, huge, sent)]


async def test_large_values_are_told_again() -> None:
    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    for life in range(5):
        async with harness(
            workflows=[large], activities=[text], store=store, clock=clock
        ) as engine:
            if life == 0:
                run = await engine.start(large, "y" * 7000, id="l")
                await run.signal("more", "z" * 9000)
            await engine.skip(seconds=40)
    async with harness(workflows=[large], activities=[text], store=store, clock=clock) as engine:
        assert await engine.finish(await engine.get("l")) == [7000, 5000, 3_000_000, 9000]


async def test_a_start_again_attaches_though_the_run_goes_on_with_another_input() -> None:
    async with harness(workflows=[counter], activities=ACTIVITIES) as engine:
        await engine.start(counter, 1, 3, id="count", idempotency_key="k")
        await engine.settle()
        run = await engine.start(counter, 1, 3, id="count")
        assert (await run.show()).generation == 3
        await engine.start(counter, 1, 3, id="count", idempotency_key="k")
        for other in ((3, 3), (2, 3)):
            with pytest.raises(penstock.Rejected, match="another definition or input"):
                await engine.start(counter, *other, id="count")


async def test_undo_names_each_step_by_its_own_generation() -> None:
    async with harness(workflows=[counter], activities=ACTIVITIES) as engine:
        run = await engine.start(counter, 1, 4)
        await run.signal("extra", -5)
        with pytest.raises(RunFailed):
            await engine.finish(run)
        undone = [each.event.key for each in await run.history() if each.type == "undo_completed"]
        assert undone == ["note#1", "~3/note#1", "~2/note#1", "~1/note#1"]


@activity
async def patient(n: int) -> int:
    return n


@workflow
async def whole_numbers(ctx: Context) -> int:
    """A policy in whole numbers is in memory what it is on disk."""
    policy = Retry(attempts=2, first=1, factor=2, jitter=0, maximum=5)
    done = ctx.call(patient, 1, retry=policy, timeout=5, undo=patient, undo_retry=policy)
    ctx.undo(patient, 2, retry=policy)
    await ctx.signal("go", timeout=datetime.timedelta(days=1))
    return await done


async def test_a_policy_is_the_same_in_memory_and_on_disk() -> None:
    async with harness(workflows=[whole_numbers], activities=[patient]) as engine:
        run = await engine.start(whole_numbers)
        await engine.settle()
        await run.signal("go")
        here = await engine.core.read(run.id, lambda flow: encode_run(flow.run))
        row = await engine.core.store.find(run.id)
        assert row is not None
        entry = (await engine.core.history.load([row]))[run.id]
        assert not isinstance(entry, Exception)
        assert entry.flow.run.undo[0].attempts == 2
        assert here == encode_run(entry.flow.run)
        assert await engine.finish(run) == 1


@workflow
async def knows(ctx: Context) -> list[Any]:
    before = [ctx.parent, dict(ctx.attributes)]
    await ctx.signal("go")
    return [*before, ctx.parent, dict(ctx.attributes)]


@workflow
async def knows_inside(ctx: Context) -> list[Any]:
    return await ctx.child(knows, id="inner")


async def test_a_function_that_is_told_again_knows_of_its_run_what_it_knew(
    tmp_path: pathlib.Path,
) -> None:
    url = f"sqlite:///{tmp_path}/known.db"
    async with penstock.open(url, workflows=[knows, knows_inside]) as engine:
        await engine.start(knows, id="alone", attributes={"city": "Ghent"})
        await engine.start(knows_inside, id="outer")
        while "inner" not in {row.id for row in await engine.list()}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async with penstock.open(url, workflows=[knows, knows_inside]) as engine:
        for id in ("alone", "inner"):
            await (await engine.get(id)).signal("go")

        assert await (await engine.get("alone")).result() == [None, {"city": "Ghent"}] * 2
        assert await (await engine.get("outer")).result() == ["outer", {}] * 2
