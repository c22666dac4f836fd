"""Limits on starts, and deadlines: what is over a limit waits or is refused; what will be late goes first (SPEC 4.10, 5.1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine.settings import Settings
from penstock.errors import Busy
from penstock.sdk.client import Run
from penstock.testing.harness import Harness, SkipClock, harness

BEGUN: list[Any] = []
GATES: dict[Any, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    BEGUN.clear()
    GATES.clear()


@activity
async def work(value: Any = None) -> Any:
    BEGUN.append(value)
    await GATES.setdefault(value, asyncio.Event()).wait()
    return value


@activity
async def quick(value: Any = None) -> Any:
    BEGUN.append(value)
    return value


ACTIVITIES = [work, quick]
LIMITED = "id: d\nlimits: {runs: 2}\ntasks:\n  a: {do: work, inputs: {value: {from: input}}}"
REFUSING = LIMITED.replace("runs: 2", "runs: 2, over: refuse")


async def go(engine: Harness, *values: Any) -> None:
    for value in values:
        GATES.setdefault(value, asyncio.Event()).set()
    await engine.settle()


def moment(engine: Harness, seconds: float) -> datetime:
    return datetime.fromtimestamp(engine.clock.now() + seconds, UTC)


@pytest.fixture
async def engine() -> AsyncIterator[Harness]:
    async with harness(activities=ACTIVITIES) as made:
        yield made


# --- runs of one definition ----------------------------------------------------------------------------------


async def test_runs_over_the_limit_wait_in_order_and_why_says_for_what(engine: Harness) -> None:
    await engine.register(LIMITED)
    runs = [await engine.start("d", number) for number in range(4)]
    urgent = await engine.start("d", "urgent", priority="high")
    await engine.settle()
    assert BEGUN == [0, 1]
    assert await runs[2].status() == "CREATED"
    (why,) = await runs[2].why()
    assert why.kind == "quota"
    assert "among the runs of `d`: 2 of 2 are open, 2 others wait" in why.message
    await go(engine, 0)
    assert BEGUN == [0, 1, "urgent"]
    await go(engine, "urgent", 1, 2, 3)
    for run in (*runs, urgent):
        await engine.finish(run)
    assert BEGUN == [0, 1, "urgent", 2, 3]
    assert await engine.types(runs[3]) == [
        "run_started", "run_admitted", "task_completed", "run_completed",
    ]  # fmt: skip


async def test_starts_at_one_moment_do_not_slip_through(engine: Harness) -> None:
    await engine.register(LIMITED)
    await asyncio.gather(*[engine.start("d", number) for number in range(20)])
    await engine.settle()
    assert len(BEGUN) == 2


@pytest.mark.parametrize("act", ["cancel", "terminate"])
async def test_a_run_that_waits_can_be_stopped_and_one_that_is_stopped_gives_its_place(
    engine: Harness, act: str
) -> None:
    await engine.register(LIMITED)
    runs = [await engine.start("d", number) for number in range(5)]
    await engine.settle()
    await getattr(runs[2], act)()
    await getattr(runs[0], act)()
    await engine.skip(60)
    assert await runs[2].status() == ("CANCELLED" if act == "cancel" else "TERMINATED")
    assert BEGUN == [0, 1, 3]


@pytest.mark.parametrize("act", ["reset", "replace"])
async def test_another_generation_takes_over_the_place_of_the_one_before(
    engine: Harness, act: str
) -> None:
    await engine.register(LIMITED)
    runs = [await engine.start("d", number, id=f"r{number}") for number in range(4)]
    await engine.settle()
    if act == "reset":
        seen = await runs[0].preview(1)
        await runs[0].reset(1, token=seen.token)
    else:
        await engine.start("d", "other", id="r0", if_exists="replace")
    await engine.settle()
    (why,) = await runs[3].why()
    assert "2 of 2 are open" in why.message
    await go(engine, 0, "other", 1)
    for run in runs[:2]:
        await engine.finish(run)
    await engine.settle()
    assert 2 in BEGUN
    assert 3 in BEGUN


async def test_a_generation_of_another_definition_gives_the_place_back(engine: Harness) -> None:
    await engine.register(LIMITED)
    await engine.register("id: free\ntasks:\n  a: {do: work, inputs: {value: {from: input}}}")
    for number in range(4):
        await engine.start("d", number, id=f"r{number}")
    await engine.settle()
    await engine.start("free", "other", id="r0", if_exists="replace")
    await engine.settle()
    assert BEGUN == [0, 1, "other", 2] or BEGUN == [0, 1, 2, "other"]


async def test_a_place_that_another_process_freed_with_a_generation_is_given_on(
    tmp_path: Path,
) -> None:
    clock = SkipClock()
    async with harness(
        activities=ACTIVITIES, store=SqliteStore(tmp_path / "a.db", clock=clock.now), clock=clock
    ) as owner:
        await owner.register(LIMITED)
        await owner.register("id: free\ntasks:\n  a: {do: work, inputs: {value: {from: input}}}")
        for number in range(4):
            await owner.start("d", number, id=f"r{number}")
        await owner.settle()
        async with penstock.open(f"sqlite:///{tmp_path}/a.db", execute=False) as other:
            await other.start("free", "other", id="r0", if_exists="replace")
        await owner.start("free", "nudge")  # whoever writes sees that others have written
        await owner.settle()
        assert 2 in BEGUN
        assert 3 not in BEGUN


async def test_a_paused_run_is_not_admitted_until_it_is_resumed(engine: Harness) -> None:
    await engine.register(LIMITED)
    runs = [await engine.start("d", number) for number in range(4)]
    await engine.settle()
    await runs[2].pause()
    await go(engine, 0)
    assert BEGUN == [0, 1, 3]
    await go(engine, 1)
    await runs[2].resume()
    await engine.settle()
    assert BEGUN == [0, 1, 3, 2]


async def test_the_timeout_of_a_run_counts_from_its_admission(engine: Harness) -> None:
    await engine.register(LIMITED.replace("id: d", "id: d\ntimeouts: {run: 100s}"))
    runs = [await engine.start("d", number) for number in range(3)]
    await engine.skip(50)
    await go(engine, 0)
    await engine.skip(60)
    assert await runs[1].status() == "TIMED_OUT"
    assert await runs[2].status() in ("RUNNING", "WAITING")
    await engine.skip(50)
    assert await runs[2].status() == "TIMED_OUT"


@pytest.mark.parametrize("clean", [True, False])
async def test_who_waited_goes_on_waiting_in_the_next_process(tmp_path: Path, clean: bool) -> None:
    clock = SkipClock()
    stores = [SqliteStore(tmp_path / "a.db") for _ in range(2)]
    async with harness(activities=ACTIVITIES, store=stores[0], clock=clock) as engine:
        await engine.register(LIMITED)
        ids = [(await engine.start("d", number)).id for number in range(6)]
        await engine.settle()
        if not clean:
            engine.core.commits.again.append((ids[0], _unstored()))  # its end is not a clean one
    BEGUN.clear()
    async with harness(activities=ACTIVITIES, store=stores[1], clock=clock) as engine:
        await engine.settle()
        assert sorted(BEGUN) == [0, 1]
        await go(engine, *range(6))
        for number, id in enumerate(ids):
            assert await engine.finish(await engine.get(id)) == number


def _unstored() -> Any:
    from penstock.engine.inbox import Item
    from penstock.model import commands as c

    return Item(c.Wake(at=0.0))


async def test_a_child_waits_even_where_starts_are_refused(engine: Harness) -> None:
    await engine.register(REFUSING.replace("{from: input}", "{value: 7}"))
    await engine.register("id: p\ntasks:\n  c: {type: subworkflow, definition: d}")
    for number in range(2):
        await engine.start("d", number)
    parent = await engine.start("p")
    await engine.settle()
    assert BEGUN == [7, 7]
    (why,) = await (await engine.get(f"{parent.id}/c")).why()
    assert "2 of 2 are open" in why.message
    await go(engine, 7)
    assert BEGUN == [7, 7, 7]
    await engine.finish(parent)


async def test_starts_over_the_limit_are_refused_with_the_figures(engine: Harness) -> None:
    await engine.register(REFUSING)
    outcomes = await asyncio.gather(
        *[engine.start("d", number, id=f"r{number}") for number in range(5)],
        return_exceptions=True,
    )
    assert sum(isinstance(each, Run) for each in outcomes) == 2
    busy = [each for each in outcomes if isinstance(each, Busy)]
    assert len(busy) == 3
    assert "2 runs of `d` are open, and its limit is 2" in str(busy[0])
    assert busy[0].hint
    assert len(await engine.list()) == 2
    assert (await engine.start("d", 0, id="r0")).id == "r0", "it exists: nothing new is started"
    await go(engine, 0)
    await engine.start("d", 9)


async def test_another_process_is_refused_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with penstock.open(url, activities=ACTIVITIES) as owner:
        await owner.register(REFUSING)
        async with penstock.open(url, execute=False) as other:
            for number in range(2):
                await other.start("d", number)
            with pytest.raises(Busy, match="its limit is 2"):
                await other.start("d", 2)
            for number in range(2):
                GATES.setdefault(number, asyncio.Event()).set()
            for row in await other.list():
                await (await other.get(row.id)).result()
            assert await (await other.start("d", 1)).result() == 1


async def test_all_runs_have_a_limit(engine: Harness) -> None:
    del engine
    settings = Settings(max_concurrent_workflows=3, drain_seconds=0)
    async with harness(activities=ACTIVITIES, settings=settings) as limited:
        await limited.register("id: d\ntasks:\n  a: {do: work, inputs: {value: {from: input}}}")
        outcomes = await asyncio.gather(
            *[limited.start("d", number, id=f"r{number}") for number in range(9)],
            return_exceptions=True,
        )
        busy = [each for each in outcomes if isinstance(each, Busy)]
        assert len(busy) == 6
        assert "3 is the limit" in str(busy[0])
        await limited.start("d", 0, id="r0")


async def test_a_queue_that_is_too_deep_refuses_starts_that_would_add_to_it() -> None:
    settings = Settings(queues={"mail": {"limit": 1, "depth": 3}}, drain_seconds=0)
    async with harness(activities=ACTIVITIES, settings=settings) as engine:
        for id, queue in (("d", "mail"), ("e", "web")):
            await engine.register(
                f"id: {id}\ntasks:\n  a: {{do: work, queue: {queue}, inputs: {{value: {{from: input}}}}}}"
            )
        for number in range(4):
            await engine.start("d", number)
            await engine.settle()
        with pytest.raises(Busy, match="3 attempts wait in queue `mail`, and its depth is 3"):
            await engine.start("d", 4)
        await engine.start("e", "e")
        await go(engine, 0)
        await engine.start("d", 4)


# --- deadlines -----------------------------------------------------------------------------------------------


async def test_a_miss_is_an_event_once_and_the_run_goes_on(engine: Harness) -> None:
    heard: list[str] = []
    engine.on("deadline_missed", lambda change: heard.append(change.run_id))
    await engine.register("id: d\ntasks:\n  a: {type: signal, name: go}")
    run = await engine.start("d", deadline=moment(engine, 10))
    await engine.skip(9)
    assert heard == []
    await engine.skip(2)
    assert heard == [run.id]
    why = await run.why()
    assert [each.kind for each in why] == ["signal", "deadline"]
    assert "was missed" in why[1].message
    await engine.skip(100)
    await run.signal("go")
    await engine.finish(run)
    assert await engine.types(run) == [
        "run_started", "deadline_missed", "signal_received", "run_completed",
    ]  # fmt: skip


async def test_a_run_that_is_done_in_time_hears_nothing(engine: Harness) -> None:
    await engine.register("id: d\ntasks:\n  a: {do: quick}")
    run = await engine.start("d", deadline=moment(engine, 10))
    await engine.finish(run)
    await engine.skip(20)
    assert "deadline_missed" not in await engine.types(run)


async def test_a_miss_while_nobody_ran_is_told_by_the_next_process() -> None:
    store, clock = MemoryStore(), SkipClock()
    async with harness(activities=ACTIVITIES, store=store, clock=clock) as engine:
        await engine.register("id: d\ntasks:\n  a: {type: signal, name: go}")
        run = await engine.start("d", deadline=moment(engine, 10))
    clock.move(clock.now() + 50)
    async with harness(activities=ACTIVITIES, store=store, clock=clock) as engine:
        await engine.settle()
        assert (await engine.types(run := await engine.get(run.id))).count("deadline_missed") == 1
    async with harness(activities=ACTIVITIES, store=store, clock=clock) as engine:
        await engine.skip(100)
        assert (await engine.types(await engine.get(run.id))).count("deadline_missed") == 1


async def test_a_pause_does_not_move_a_deadline(engine: Harness) -> None:
    await engine.register("id: d\ntasks:\n  a: {type: signal, name: go}")
    run = await engine.start("d", deadline=moment(engine, 10))
    await run.pause()
    await engine.skip(30)
    assert "deadline_missed" not in await engine.types(run)
    await run.resume()
    await engine.settle()
    assert "deadline_missed" in await engine.types(run)


async def test_a_miss_that_is_foreseen_lets_the_run_go_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Runs take 60 s. Two places; ten of normal priority wait before one of low priority with a deadline in 100 s:
    from 40 s on it goes first."""
    document = (
        "id: d\ntasks:\n  t: {type: timer, delay: 60s}\n"
        "  a: {do: work, after: t, inputs: {value: {from: input}}}"
    )
    settings = Settings(queues={"default": {"limit": 1, "longest_wait": 999}}, drain_seconds=0)
    async with harness(activities=ACTIVITIES, settings=settings) as engine:
        await engine.register(document)
        await engine.register("id: e\ntasks:\n  a: {do: work, inputs: {value: {from: input}}}")
        await go(engine, 0)
        for _ in range(5):
            await engine.finish(await engine.start("d", 0))
        for number in range(1, 10):
            await engine.start("e", number)
        run = await engine.start("d", "late", priority="low", deadline=moment(engine, 100))
        heard: list[Any] = []
        engine.on("deadline_foreseen", lambda change: heard.append(change.event))
        with caplog.at_level(logging.WARNING, logger="penstock.engine"):
            await engine.skip(39)
            assert heard == []
            await engine.skip(2)
        assert len(heard) == 1
        assert heard[0].expected >= heard[0].deadline
        assert any(record.getMessage() == "deadline.foreseen" for record in caplog.records)
        await engine.skip(30)
        assert any(
            each.kind == "deadline" and "will probably be missed" in each.message
            for each in await run.why()
        )
        await go(engine, BEGUN[-1])
        assert BEGUN[-1] == "late"
        await go(engine, "late")
        await engine.finish(run)
        assert (await engine.types(run)).count("deadline_foreseen") == 1


async def test_one_that_waits_already_is_brought_forward() -> None:
    """It waits in its queue, of low priority, when its miss is foreseen."""
    settings = Settings(queues={"default": {"limit": 1}}, drain_seconds=0)
    async with harness(activities=ACTIVITIES, settings=settings) as engine:
        await engine.register(
            "id: d\ntasks:\n  a: {do: work, inputs: {value: {from: input}}}\n"
            "  t: {type: timer, delay: 60s, after: a}"
        )
        await go(engine, 0)
        for _ in range(4):
            await engine.finish(await engine.start("d", 0))
        await engine.start("d", 1)
        for number in range(2, 8):
            await engine.start("d", number)
        run = await engine.start("d", "late", priority="low", deadline=moment(engine, 50))
        await engine.skip(1)
        await go(engine, 1)
        assert BEGUN[-1] == "late"
        assert "deadline_foreseen" in await engine.types(run)
