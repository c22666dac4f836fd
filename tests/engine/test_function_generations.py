"""Workflow functions that go on as new (SPEC 2.8, 4.4): one run of many generations, with one timeout, one start, one result."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Context, Fail, Rejected, RunFailed, workflow
from penstock.testing.harness import Harness, harness
from support import deeds
from support.deeds import done, note, take_back


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    deeds.forget()


@workflow(timeout=timedelta(hours=1))
async def patient(ctx: Context, number: int) -> None:
    try:
        await ctx.sleep(timedelta(minutes=25))
    except asyncio.CancelledError:
        await ctx.call(note, f"in {number}")
        raise
    ctx.continue_as_new(number + 1)


@workflow
async def stages(ctx: Context, number: int, most: int) -> dict[str, Any]:
    """All that goes along: undo entries, letters that nobody read, attributes, who started it."""
    first = await ctx.signal(f"for {number}", timeout=1)
    await ctx.call(note, f"{number}", undo=take_back)
    ctx.undo(take_back, f"by hand {number}")
    ctx.set_attributes({f"stage{number}": number, "newest": number})
    if number < most:
        ctx.continue_as_new(number + 1, most)
    last = await ctx.signal("last")
    if last == "fail":
        raise Fail("as it was asked to")
    return {
        "first": first, "last": last, "attributes": dict(ctx.attributes), "parent": ctx.parent,
        "generation": ctx.generation,
    }  # fmt: skip


@workflow
async def above(ctx: Context) -> Any:
    result = await ctx.child(stages, 1, 3, id="below")
    await ctx.signal("go")
    raise Fail(f"after {result['generation']}")


@workflow
async def desk(ctx: Context, count: int) -> int:
    """An update in each generation; `None` is taken, and not answered."""
    message = await ctx.update("add")
    assert message is not None
    if message.payload is not None:
        count += message.payload
        message.answer(count)
    if message.payload == 0:
        return count
    ctx.continue_as_new(count)


WORKFLOWS = [patient, stages, above, desk]
ACTIVITIES = [note, take_back]


async def clear(engine: Harness, id: str, generation: int) -> None:
    """As retention does."""
    row = await engine.core.store.find(id, generation)
    assert row is not None
    assert not row.open
    await engine.core.store.purge([row.key])
    assert await engine.core.store.find(id, generation) is None


async def test_the_timeout_of_a_run_is_that_of_all_its_generations() -> None:
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        began = engine.clock.now()
        run = await engine.start(patient, 1)
        with pytest.raises(RunFailed, match="TIMED_OUT"):
            await engine.finish(run)
        assert done == ["in 3"]
        shown = await run.show()
        assert shown.generation == 3
        assert shown.ended_at is not None
        assert shown.ended_at == began + 3600


async def test_a_pause_shifts_the_timeout_of_all_generations() -> None:
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        began = engine.clock.now()
        run = await engine.start(patient, 1)
        await engine.skip(minutes=10)
        await run.pause()
        await engine.skip(hours=5)
        await run.resume()
        with pytest.raises(RunFailed, match="TIMED_OUT"):
            await engine.finish(run)
        shown = await run.show()
        assert shown.ended_at is not None
        assert shown.ended_at == began + 3600 + 5 * 3600


async def test_what_goes_along() -> None:
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        run = await engine.start(stages, 1, 4, id="s", attributes={"given": 1}, created_by="ann")
        await run.signal("for 4", "early")
        await run.signal("last", "one")
        await run.signal("last", "two")
        told = await engine.finish(run)
        assert told == {
            "first": "early", "last": "one", "parent": None, "generation": 4,
            "attributes": {"given": 1, "stage1": 1, "stage2": 2, "stage3": 3, "stage4": 4, "newest": 4},
        }  # fmt: skip
        shown = await run.show()
        assert shown.attributes == told["attributes"]
        assert (shown.generation, shown.created_by) == (4, "ann")
        [row] = await engine.list(attributes={"newest": 4})
        assert row.id == "s"


async def test_what_was_done_in_all_generations_is_undone_last_first_each_by_its_own_name() -> None:
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        run = await engine.start(stages, 1, 3)
        await run.signal("last", "fail")
        with pytest.raises(RunFailed, match="as it was asked to"):
            await engine.finish(run)
        assert done == [
            "1", "2", "3", "undo by hand 3", "undo 3", "undo by hand 2", "undo 2", "undo by hand 1", "undo 1",
        ]  # fmt: skip
        history = await run.history()
        assert [each.event.key for each in history if each.type == "undo_completed"] == [
            "undo:take_back#1", "note#1", "~2/undo:take_back#1", "~2/note#1", "~1/undo:take_back#1", "~1/note#1",
        ]  # fmt: skip


async def test_a_child_of_many_generations_hands_all_that_it_did_to_its_parent() -> None:
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        run = await engine.start(above, id="a")
        await engine.skip(seconds=5)
        below = await engine.get("below")
        assert (await below.show()).generation == 3
        await below.signal("last", "done")
        await run.signal("go")
        with pytest.raises(RunFailed, match="after 3"):
            await engine.finish(run)
        assert done[:3] == ["1", "2", "3"]
        assert done[3:] == [
            "undo by hand 3", "undo 3", "undo by hand 2", "undo 2", "undo by hand 1", "undo 1",
        ]  # fmt: skip
        keys = [each.event.key for each in await run.history() if each.type == "undo_completed"]
        assert keys[0] == "child:stages#1/undo:take_back#1"
        assert keys[-1] == "child:stages#1/~1/note#1"


async def test_result_and_a_repeated_start_outlive_the_generations_before() -> None:
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        run = await engine.start(stages, 1, 3, id="s", idempotency_key="k")
        waiting = asyncio.ensure_future(run.result())
        await engine.skip(seconds=5)
        for generation in (1, 2):
            await clear(engine, "s", generation)
        again = await engine.start(stages, 1, 3, id="s")
        assert again.id == "s"
        assert (await engine.start(stages, 1, 3, id="s", idempotency_key="k")).id == "s"
        for other in ((2, 3), (3, 3)):  # the second is what the newest generation has
            with pytest.raises(Rejected) as refused:
                await engine.start(stages, *other, id="s")
            assert refused.value.code == "id-taken"
            with pytest.raises(Rejected) as refused:
                await engine.start(stages, *other, id="s", idempotency_key="k")
            assert refused.value.code == "key-reused"
        await run.signal("last", 1)
        assert (await waiting)["generation"] == 3
        assert (await (await engine.get("s")).result())["last"] == 1


async def test_a_retry_keeps_the_start_and_does_not_count_as_done_what_was_undone() -> None:
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        run = await engine.start(careless, 1, id="s")
        with pytest.raises(RunFailed):
            await engine.finish(run)
        await run.retry()
        await clear(engine, "s", 1)
        assert (await engine.start(careless, 1, id="s")).id == "s"
        with pytest.raises(penstock.Rejected):
            await engine.start(careless, 2, id="s")
        undone = await engine.start(stages, 1, 2)
        await undone.signal("last", "fail")
        with pytest.raises(RunFailed):
            await engine.finish(undone)
        with pytest.raises(Rejected, match="was done in a generation before") as refused:
            await undone.retry()
        assert refused.value.code == "retry-undone"


@workflow
async def careless(ctx: Context, number: int) -> None:
    await ctx.call(note, str(number))
    if number < 2:
        ctx.continue_as_new(number + 1)
    raise Fail("after all")


WORKFLOWS.append(careless)


# --- updates -------------------------------------------------------------------------------------------------


async def test_an_update_that_is_asked_again_gets_the_answer_of_the_generation_that_took_it() -> (
    None
):
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        run = await engine.start(desk, 0)
        for number, answer in ((1, 1), (2, 3), (3, 6)):
            assert await run.update("add", number, command_id=f"u{number}") == answer
        for number, answer in ((1, 1), (2, 3), (3, 6)):
            again = run.update("add", number, command_id=f"u{number}")
            assert await asyncio.wait_for(again, 20) == answer
        assert await run.update("add", 0, command_id="last") == 6
        assert await asyncio.wait_for(run.update("add", 2, command_id="u2"), 20) == 3
        assert await engine.finish(run) == 6


async def test_updates_that_wait_while_a_run_goes_on_as_new_are_answered_at_once() -> None:
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        run = await engine.start(desk, 0)
        asked = [run.update("add", 1) for _ in range(4)]
        begun = time.monotonic()
        assert sorted(await asyncio.wait_for(asyncio.gather(*asked), 60)) == [1, 2, 3, 4]
        assert time.monotonic() - begun < 4  # and not when it is looked for, every five seconds


async def test_another_process_gets_an_answer_though_the_run_has_gone_on_since(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with (
        penstock.open(url, workflows=WORKFLOWS, activities=ACTIVITIES) as owner,
        penstock.open(url, execute=False) as other,
    ):
        await owner.start(desk, 0, id="d")
        run = await other.get("d")
        assert await asyncio.wait_for(run.update("add", 1), 20) == 1
        with pytest.raises(Rejected, match="gone on in generation 3 without an answer") as caught:
            await asyncio.wait_for(run.update("add", None, command_id="n"), 20)
        assert caught.value.code == "update-unanswered"
        assert await asyncio.wait_for(run.update("add", 0), 20) == 1
        assert await (await owner.get("d")).result() == 1


async def test_an_answer_whose_generation_was_cleared_away_is_not_waited_for() -> None:
    async with harness(workflows=WORKFLOWS, activities=ACTIVITIES) as engine:
        run = await engine.start(desk, 0, id="d")
        assert await run.update("add", 1, command_id="u") == 1
        await engine.settle()
        await clear(engine, "d", 1)
        with pytest.raises(Rejected, match="without an answer") as caught:
            await asyncio.wait_for(run.update("add", 1, command_id="u"), 20)
        assert caught.value.code == "update-unanswered"
