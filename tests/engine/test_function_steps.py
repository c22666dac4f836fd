"""What a Context offers, one by one, and what of it is the same when a history is told again (SPEC 2.8)."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import enum
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pydantic
import pytest

import penstock
from penstock import Context, Rejected, Retry, RunFailed, StepFailed, Timeouts, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.testing.harness import SkipClock, harness
from support import deeds
from support.deeds import done, note


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    deeds.forget()


def engine_on(*workflows: Any, store: MemoryStore | None = None, guard: bool = True) -> Any:
    store = store or MemoryStore(clock=deeds.clock.now)
    return harness(
        workflows=list(workflows),
        activities=ACTIVITIES,
        store=store,
        clock=deeds.clock,
        guard=guard,
    )


@activity
async def broken(code: str) -> None:
    raise penstock.Fail("for good", code=code)


@activity
async def counted(n: int) -> int:
    """How many of them are under way."""
    done.append(1)
    await deeds.clock.sleep(1)
    now = len(done)
    done.pop()
    return now


@activity(retry=Retry(attempts=3, first=1, jitter=0), heartbeat=5)
async def beating(silent_at: int) -> list[Any]:
    """Counts on from where the attempt before was; falls silent once."""
    attempt = penstock.current()
    begun = attempt.progress or 0
    for number in range(begun + 1, 6):
        attempt.heartbeat(number)
        await deeds.clock.sleep(2)
        if number == silent_at and attempt.job.attempt == 1:
            await deeds.clock.sleep(100)
    return [attempt.job.attempt, begun]


@activity
async def told_to_stop(seconds: float) -> str:
    try:
        await deeds.clock.sleep(seconds)
    except asyncio.CancelledError:
        done.append(f"told {penstock.current().cancelled}")
        raise
    return "slept"


ACTIVITIES = [note, broken, counted, beating, told_to_stop]


# --- activities -----------------------------------------------------------------------------------------------


async def test_an_activity_that_falls_silent_is_tried_again_from_its_last_heartbeat() -> None:
    @workflow(name="w")
    async def w(ctx: Context) -> list[Any]:
        return await ctx.call(beating, 3)

    async with engine_on(w) as engine:
        run = await engine.start(w)
        assert await engine.finish(run) == [2, 3]
        assert "task_retried" in await engine.types(run)


@pytest.mark.parametrize("how", ["timeout", "task", "asyncio", "race"])
async def test_an_activity_is_told_to_stop_when_nobody_waits_for_it(how: str) -> None:
    @workflow(name="w")
    async def w(ctx: Context) -> str:
        try:
            match how:
                case "timeout":
                    return await ctx.call(told_to_stop, 100.0, timeout=10)
                case "task":
                    return await ctx.call(told_to_stop, 100.0, timeout=Timeouts(task=10))
                case "asyncio":
                    async with asyncio.timeout(10):
                        return await ctx.call(told_to_stop, 100.0)
                case _:
                    slow = asyncio.ensure_future(ctx.call(told_to_stop, 100.0))
                    await asyncio.wait([slow], timeout=10)
                    slow.cancel()
                    return "raced"
        except (StepFailed, TimeoutError) as error:
            return getattr(error, "code", "asyncio")

    async with engine_on(w) as engine:
        began = deeds.clock.now()
        result = await engine.finish(await engine.start(w))
        assert result == {"race": "raced", "asyncio": "asyncio"}.get(how, "timeout")
        assert deeds.clock.now() - began == 10
        await engine.settle()
        assert done == ["told True"]


async def test_a_step_waits_in_the_queue_that_it_names() -> None:
    @workflow(name="w")
    async def w(ctx: Context) -> list[int]:
        return await ctx.map(counted, range(6), queue="narrow")

    async with engine_on(w) as engine:
        await engine.set_queue("narrow", limit=2)
        assert max(await engine.finish(await engine.start(w))) == 2


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3), (None, 7), (100, 7)])
async def test_a_map_has_so_many_under_way_and_gives_results_in_order(
    limit: int | None, most: int
) -> None:
    @workflow(name="w")
    async def w(ctx: Context) -> list[int]:
        return await ctx.map(counted, range(7), limit=limit)

    async with engine_on(w, order_of_items) as engine:
        run = await engine.start(w)
        counts = await engine.finish(run)
        assert max(counts) == most
        assert len(counts) == 7
        assert await engine.finish(await engine.start(order_of_items, list("cab"))) == list("cab")


@workflow
async def order_of_items(ctx: Context, items: list[str]) -> list[str]:
    return await ctx.map(note, items, limit=2)


async def test_the_first_that_fails_ends_a_map_and_the_others_are_told() -> None:
    @workflow(name="w")
    async def w(ctx: Context) -> str:
        code = ""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.map(told_to_stop, [100.0, 100.0]))
                group.create_task(ctx.call(broken, "bad"))
        except* StepFailed as errors:
            code = errors.exceptions[0].code
        return code

    async with engine_on(w) as engine:
        assert await engine.finish(await engine.start(w)) == "bad"
        await engine.settle()
        assert done == ["told True", "told True"]


# --- time -----------------------------------------------------------------------------------------------------


async def test_times_without_a_zone_and_in_the_past() -> None:
    @workflow(name="w")
    async def w(ctx: Context) -> float:
        began = ctx.now()
        await ctx.sleep_until(began - datetime.timedelta(days=1))
        await asyncio.sleep(0)
        await ctx.sleep(datetime.timedelta(0))
        return (ctx.now() - began).total_seconds()

    @workflow(name="naive")
    async def naive(ctx: Context) -> None:
        await ctx.sleep_until(datetime.datetime(2026, 1, 1))  # noqa: DTZ001

    async with engine_on(w, naive) as engine:
        assert await engine.finish(await engine.start(w)) == 0
        with pytest.raises(RunFailed, match="has no zone"):
            await engine.finish(await engine.start(naive))


# --- child runs -----------------------------------------------------------------------------------------------


@workflow
async def below(ctx: Context) -> str:
    try:
        await ctx.signal("go")
    except asyncio.CancelledError:
        await ctx.call(note, "cleaned")
        raise
    return "went"


@pytest.mark.parametrize(
    ("how", "status"),
    [("awaited", "CANCELLED"), ("kept", "WAITING"), ("detached", "WAITING")],
)
@pytest.mark.parametrize("end", ["cancel", "fail"])
async def test_a_child_is_cancelled_with_its_parent_or_not(how: str, status: str, end: str) -> None:
    @workflow(name="above")
    async def above(ctx: Context) -> None:
        if how == "detached":
            assert await ctx.start(below, id="b") == "b"
            waiting = asyncio.get_running_loop().create_task(ctx.signal("never"))
        else:
            waiting = asyncio.get_running_loop().create_task(
                ctx.child(below, id="b", keep=how == "kept")
            )
        if end == "fail":
            await ctx.sleep(5)
            raise penstock.Fail("enough")
        await waiting

    async with engine_on(above, below) as engine:
        run = await engine.start(above)
        await engine.skip(seconds=1)
        if end == "cancel":
            await run.cancel()
        with pytest.raises(RunFailed, match="CANCELLED" if end == "cancel" else "enough"):
            await engine.finish(run)
        child = await engine.get("b")
        await engine.settle()
        assert await child.status() == status
        assert done == (["cleaned"] if status == "CANCELLED" else [])
        if status == "WAITING":
            await child.signal("go")
            assert await child.result() == "went"


async def test_a_child_that_was_cancelled_by_others_is_a_failed_step() -> None:
    @workflow(name="above")
    async def above(ctx: Context) -> str:
        try:
            await ctx.child(below, id="b")
        except StepFailed as failed:
            return failed.code
        return ""

    async with engine_on(above, below) as engine:
        run = await engine.start(above)
        await engine.settle()
        await (await engine.get("b")).cancel()
        assert await engine.finish(run) == "child-cancelled"


# --- types ----------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(pydantic.BaseModel):
    name: str
    price: decimal.Decimal
    colour: Colour = Colour.RED


class Basket(pydantic.BaseModel):
    items: list[Item]
    due: datetime.date


@activity
async def total(basket: Basket, extra: list[Item]) -> Item:
    assert all(isinstance(each, Item) for each in [*basket.items, *extra])
    price = sum((each.price for each in [*basket.items, *extra]), decimal.Decimal())
    return Item(name="all", price=price, colour=Colour.BLUE)


@workflow
async def shopping(ctx: Context, basket: Basket, when: datetime.datetime) -> Basket:
    assert isinstance(basket.items[0].price, decimal.Decimal)
    assert isinstance(when, datetime.datetime)
    assert when.tzinfo is not None
    extra = await ctx.signal("extra", type=Item)
    assert isinstance(extra, Item)
    summed = await ctx.call(total, basket, [extra])
    assert isinstance(summed, Item)
    assert summed.colour is Colour.BLUE
    await ctx.sleep(1)
    return Basket(items=[summed], due=basket.due)


async def test_pydantic_models_in_and_out_over_a_restart() -> None:
    store = MemoryStore(clock=deeds.clock.now)
    basket = Basket(
        items=[Item(name="tea", price=decimal.Decimal("1.10"))], due=datetime.date(2026, 2, 3)
    )
    ACTIVITIES.append(total)
    try:
        async with engine_on(shopping, store=store) as engine:
            run = await engine.start(
                shopping, basket, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), id="s"
            )
            await run.signal("extra", Item(name="cup", price=decimal.Decimal("2.20")))
            await engine.settle()
            with pytest.raises(Rejected, match="`basket` cannot be read as Basket"):
                await engine.start(
                    "shopping", {"basket": {"items": 5}, "when": "2026-01-01T00:00:00Z"}
                )
        async with engine_on(shopping, store=store) as engine:
            again = await engine.finish(await engine.get("s"))
            assert Basket.model_validate(again).items[0].price == decimal.Decimal("3.30")
            run = await engine.start(
                shopping, basket, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
            )
            await run.signal("extra", {"name": "cup", "price": "0.90"})
            typed = await engine.finish(run)
            assert isinstance(typed, Basket)
            assert typed.items[0].price == decimal.Decimal("2.00")
    finally:
        ACTIVITIES.remove(total)


# --- the same again -------------------------------------------------------------------------------------------


@workflow
async def chances(ctx: Context) -> list[Any]:
    made = [
        str(ctx.uuid()),
        ctx.random.random(),
        ctx.now().isoformat(),
        ctx.side_effect(lambda: len(done)),
    ]
    done.append("more")
    await ctx.sleep(60)
    return [*made, str(ctx.uuid()), ctx.random.randrange(10**9)]


async def test_chance_and_time_are_the_same_in_every_life() -> None:
    """As one that was never interrupted: runs of one id draw alike."""
    results: list[Any] = []
    for lives in (1, 2, 3):
        done.clear()
        own = SkipClock()
        store = MemoryStore(clock=own.now)
        for life in range(lives):
            async with harness(workflows=[chances], store=store, clock=own, guard=False) as engine:
                if life == 0:
                    await engine.start(chances, id="c")
                await engine.settle()
                if life == lives - 1:
                    results.append(await engine.finish(await engine.get("c")))
    assert results[0] == results[1] == results[2]
    assert len(set(map(str, results[0]))) == 6


async def test_a_function_is_told_its_history_only_when_something_happens_to_its_run() -> None:
    store = MemoryStore(clock=deeds.clock.now)
    async with engine_on(below, store=store) as engine:
        runs = [await engine.start(below) for _ in range(5)]
        await engine.settle()
        assert engine.core.programs.replayed == 0
    async with engine_on(below, store=store) as engine:
        await engine.settle()
        assert engine.core.programs.replayed == 0
        run = await engine.get(runs[2].id)
        await run.signal("go")
        assert await run.result() == "went"
        assert engine.core.programs.replayed == 1


HASHED = '''
import asyncio, sys
from penstock import Context, activity, workflow
from penstock.testing.harness import harness

@activity
async def note(what: str) -> str:
    return what

@workflow
async def hashed(ctx: Context) -> list[str]:
    """Sets of tasks: their order is that of the calls."""
    tasks = {asyncio.ensure_future(ctx.call(note, f"n{number}")) for number in range(9)}
    first, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    said = [each.result() for each in first]
    said += [await each for each in asyncio.as_completed(rest)]
    more = {asyncio.ensure_future(ctx.sleep(1)) for _ in range(5)}
    await asyncio.wait(more)
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(ctx.call(note, f"g{number}"))
    return said

async def main():
    async with harness(workflows=[hashed], activities=[note]) as engine:
        run = await engine.start(hashed, id="h")
        print(await engine.finish(run))
        for each in await run.history():
            print(each.hash)

asyncio.run(main())
'''


def test_the_order_of_tasks_does_not_depend_on_hashes(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HASHED)
    made = [
        subprocess.Popen(
            [sys.executable, "app.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONHASHSEED": chance, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for chance in ("0", "77")
    ]  # fmt: skip
    told = [each.communicate()[0] for each in made]
    assert told[0] == told[1]
    assert len(told[0].splitlines()) > 15


# --- changed code ---------------------------------------------------------------------------------------------


def changing(body: Any) -> Any:
    async def changing(ctx: Context) -> Any:
        return await body(ctx)

    return workflow(name="changing")(changing)


async def as_it_was(ctx: Context) -> str:
    await ctx.call(note, "one")
    await asyncio.gather(ctx.call(note, "two"), ctx.sleep(60))
    await ctx.child(below, id="b")
    return "end"


async def another_argument(ctx: Context) -> None:
    await ctx.call(note, "uno")


async def another_activity(ctx: Context) -> None:
    await ctx.call(broken, "one")


async def a_step_before(ctx: Context) -> None:
    await ctx.signal("first")
    await as_it_was(ctx)


async def a_step_less(ctx: Context) -> None:
    await ctx.call(note, "one")
    await ctx.sleep(60)
    await ctx.child(below, id="b")


async def another_order(ctx: Context) -> None:
    await ctx.call(note, "one")
    await asyncio.gather(ctx.sleep(60), ctx.call(note, "two"))
    await ctx.child(below, id="b")


async def ends_sooner(ctx: Context) -> str:
    return await ctx.call(note, "one")


async def another_child(ctx: Context) -> None:
    await ctx.call(note, "one")
    await asyncio.gather(ctx.call(note, "two"), ctx.sleep(60))
    await ctx.child("elsewhere")


async def raises(ctx: Context) -> None:
    await ctx.call(note, "one")
    raise ValueError("new")


async def more_at_once(ctx: Context) -> None:
    await asyncio.gather(ctx.call(note, "one"), ctx.call(note, "also"))
    await ctx.signal("never")


@pytest.mark.parametrize(
    ("body", "step", "recorded", "wanted"),
    [
        (another_argument, "note#1", 'call note["one"]', 'call note["uno"]'),
        (another_activity, "note#1", 'call note["one"]', 'call broken["one"]'),
        (a_step_before, "note#1", 'call note["one"]', "signal first"),
        (a_step_less, "note#2", 'call note["two"]', "sleep until"),
        (another_order, "note#2", 'call note["two"]', "sleep until"),
        (ends_sooner, "note#2", 'call note["two"]', 'return "one"'),
        (another_child, "child:below#1", "child below{}", "child elsewherenull"),
        (raises, "note#2", 'call note["two"]', "raise ValueError: new"),
        (more_at_once, "note#2", "nothing", 'call note["also"]'),
    ],
)
async def test_code_that_does_not_fit_is_told_by_step_recorded_wanted_and_line(
    body: Any, step: str, recorded: str, wanted: str
) -> None:
    store = MemoryStore(clock=deeds.clock.now)
    async with engine_on(changing(as_it_was), below, store=store) as engine:
        await engine.start("changing", id="c")
        await engine.skip(seconds=61)
    async with engine_on(changing(body), below, store=store) as engine:
        run = await engine.get("c")
        await (await engine.get("b")).signal("go")
        await engine.settle()
        [reason] = await run.why()
        assert reason.kind == "code"
        assert f"at `{step}` {recorded} is recorded, and the code wants {wanted}" in reason.message
        if not wanted.startswith(("return", "raise")):
            assert "test_function_steps.py:" in reason.message
        assert await run.status() == "WAITING"
    async with engine_on(changing(as_it_was), below, store=store) as engine:
        assert await engine.finish(await engine.get("c")) == "end"
        assert done == ["one", "two"]


async def patience_changed(ctx: Context) -> str:
    """How patiently a step is tried, and how long is slept, may change."""
    await ctx.call(note, "one", retry=Retry(attempts=9), timeout=77)
    await asyncio.gather(ctx.call(note, "two"), ctx.sleep(90))
    await ctx.child(below, id="b")
    return "end"


async def new_way(ctx: Context) -> str:
    """A marker in a loop is asked once; a second one is on its own."""
    for _ in range(3):
        if ctx.changed("first"):
            await ctx.call(note, "new")
            break
    await ctx.call(note, "one")
    await asyncio.gather(ctx.call(note, "two"), ctx.sleep(60))
    await ctx.child(below, id="b")
    if ctx.changed("second"):
        await ctx.call(note, "later")
    return "end"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [(patience_changed, ["one", "two"]), (new_way, ["one", "two", "later"])],
)
async def test_changes_that_fit(body: Any, wanted: list[str]) -> None:
    store = MemoryStore(clock=deeds.clock.now)
    async with engine_on(changing(as_it_was), below, store=store) as engine:
        await engine.start("changing", id="c")
        await engine.skip(seconds=61)
    for _ in range(2):
        async with engine_on(changing(body), below, store=store) as engine:
            await engine.settle()
    async with engine_on(changing(body), below, store=store) as engine:
        await (await engine.get("b")).signal("go")
        run = await engine.get("c")
        assert await engine.finish(run) == "end"
        assert done == wanted
        markers = [
            intent
            for each in await run.history()
            for intent in map(str, each.event.outcomes)
            if "changed:" in intent
        ]
        assert len(markers) <= 1
