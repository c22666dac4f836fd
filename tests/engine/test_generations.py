"""Retry and reset: another generation, opened in one commit, that keeps what was done (SPEC 4.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Rejected, RunFailed, activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.model import events as e
from penstock.testing.harness import Harness, SkipClock, harness

CALLS: list[Any] = []
BROKEN: set[str] = set()


@activity
async def work(name: str) -> str:
    CALLS.append(name)
    if name in BROKEN:
        raise penstock.Fail(f"{name} is broken")
    return f"{name} done"


@activity
async def undo(name: str) -> None:
    CALLS.append(f"undo {name}")


@activity
async def waits(name: str) -> str:
    CALLS.append(f"begin {name}")
    await asyncio.Event().wait()
    return name


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()
    BROKEN.clear()


@pytest.fixture(params=["memory", "sqlite"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    clock = SkipClock()
    store = (
        MemoryStore(clock=clock.now)
        if request.param == "memory"
        else SqliteStore(tmp_path / "a.db", clock=clock.now)
    )
    async with harness(activities=[work, undo, waits], store=store, clock=clock) as made:
        yield made


def line(id: str, *names: str, **more: Any) -> dict[str, Any]:
    """A sequence of tasks."""
    tasks: dict[str, Any] = {}
    before = None
    for name in names:
        task: dict[str, Any] = {"do": "work", "inputs": {"name": {"value": name}}, **more}
        if before is not None:
            task["after"] = before
        tasks[name] = task
        before = name
    return {"id": id, "tasks": tasks}


async def failed(engine: Harness, run: penstock.Run) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        await engine.finish(run)
    return caught.value


async def test_a_retry_keeps_what_was_done_and_tries_what_failed_again(engine: Harness) -> None:
    await engine.register(line("abc", "a", "b", "c"))
    BROKEN.add("b")
    run = await engine.start("abc", id="r")
    await failed(engine, run)
    BROKEN.clear()

    assert await run.retry(by="ann", reason="fixed") == 2
    assert await engine.finish(run) == "c done"
    assert CALLS == ["a", "b", "b", "c"]
    shown = await run.show()
    assert (shown.generation, shown.status) == (2, "COMPLETED")
    first = await run.show(generation=1)
    assert first.status == "FAILED"
    facts = [item.event for item in await run.history() if isinstance(item.event, e.RunReset)]
    assert [(f.generation, f.of, f.cause, f.task, f.by, f.reason) for f in facts] == [
        (2, 1, "retry", "b", "ann", "fixed")
    ]
    assert await engine.audit() == []


async def test_branches_that_were_done_before_the_failure_are_kept(engine: Harness) -> None:
    definition = line("par", "a")
    definition["tasks"]["b"] = {"do": "work", "inputs": {"name": {"value": "b"}}}
    definition["tasks"]["t"] = {"type": "timer", "delay": "5s"}
    definition["tasks"]["c"] = {"do": "work", "inputs": {"name": {"value": "c"}}, "after": "t"}
    await engine.register(definition)
    BROKEN.add("c")
    run = await engine.start("par", id="r")
    await failed(engine, run)
    BROKEN.clear()

    await run.retry()
    await engine.finish(run)
    assert CALLS == ["a", "b", "c", "c"]


async def test_what_was_undone_is_done_again(engine: Harness) -> None:
    await engine.register(line("saga", "a", "b", "c", compensate="undo"))
    BROKEN.add("c")
    run = await engine.start("saga", id="r")
    await failed(engine, run)
    assert CALLS == ["a", "b", "c", "undo b done", "undo a done"]
    with pytest.raises(Rejected, match="has been undone") as caught:
        await run.retry("c")
    assert caught.value.code == "retry-undone"
    BROKEN.clear()
    CALLS.clear()

    await run.retry()
    assert await engine.finish(run) == "c done"
    assert CALLS == ["a", "b", "c"]


async def test_a_retry_begins_with_a_named_task(engine: Harness) -> None:
    await engine.register(line("abc", "a", "b", "c"))
    BROKEN.add("c")
    run = await engine.start("abc", id="r")
    await failed(engine, run)
    BROKEN.clear()

    await run.retry("b")
    await engine.finish(run)
    assert CALLS == ["a", "b", "c", "b", "c"]
    with pytest.raises(penstock.Rejected) as caught:
        await run.retry()
    assert caught.value.code == "not-retriable"


async def test_a_cancelled_and_a_timed_out_run_can_be_retried(engine: Harness) -> None:
    definition = line("slow", "a")
    definition["tasks"]["t"] = {"type": "timer", "delay": "1h", "after": "a"}
    definition["timeouts"] = {"run": "90m"}
    await engine.register(definition)
    run = await engine.start("slow", id="r")
    await engine.skip(minutes=10)
    await run.cancel()
    await engine.skip(minutes=60)

    await run.retry()
    await engine.skip(minutes=49)
    assert await run.status() == "WAITING"
    await engine.skip(minutes=2)
    assert await run.status() == "COMPLETED"
    assert CALLS == ["a"]
    definition["tasks"]["t"]["delay"] = "2h"
    await engine.register(definition)
    late = await engine.start("slow", id="late")
    assert (await failed(engine, late)).status == "TIMED_OUT"
    await late.retry()
    assert (await late.show()).generation == 2
    assert await late.status() == "WAITING"


async def test_a_reset_of_an_open_run_ends_its_generation_in_the_same_commit(
    engine: Harness,
) -> None:
    definition = line("sig", "a", "b")
    definition["tasks"]["s"] = {"type": "signal", "name": "go", "after": "b"}
    definition["tasks"]["w"] = {
        "do": "waits", "inputs": {"name": {"value": "w"}}, "after": "s",
    }  # fmt: skip
    await engine.register(definition)
    run = await engine.start("sig", id="r")
    await engine.settle()
    await run.signal("go", 1)
    await engine.settle()
    assert CALLS == ["a", "b", "begin w"]

    preview = await run.preview(2)
    assert [(each.kind, each.key) for each in preview.consequences] == [("task", "b")]
    assert preview.signals == ["go"]
    with pytest.raises(Rejected) as caught:
        await run.reset(2, token="")
    assert caught.value.code == "preview-missing"
    with pytest.raises(Rejected) as caught:
        await run.reset(2, token="0" * 16)
    assert caught.value.code == "preview-stale"

    assert await run.reset(2, token=preview.token, by="ann", reason="b was wrong") == 2
    await engine.settle()
    assert CALLS == ["a", "b", "begin w", "b", "begin w"]
    old = await run.history(generation=1)
    assert old[-1].type == "run_continued"
    assert (await run.show(generation=1)).status == "CONTINUED"
    assert [item.type for item in await run.history()] == [
        "run_started", "task_completed", "run_reset", "signal_received", "task_completed",
    ]  # fmt: skip
    rows = await engine.list(id_prefix="r", limit=10)
    assert [(row.generation, row.open) for row in rows] == [(2, True), (1, False)]


async def test_excluded_signals_are_not_given_again(engine: Harness) -> None:
    definition = line("sig", "a")
    definition["tasks"]["s"] = {"type": "signal", "name": "go", "after": "a"}
    await engine.register(definition)
    run = await engine.start("sig", id="r")
    await engine.settle()
    await run.signal("go", 1)
    await engine.finish(run)

    token = (await run.preview(2)).token
    await run.reset(2, token=token, exclude=["go"])
    await engine.settle()
    assert await run.status() == "WAITING"
    await run.signal("go", 2)
    assert await engine.finish(run) == 2


async def test_what_came_later_is_undone_on_request_before_the_run_goes_on(engine: Harness) -> None:
    definition = line("saga", "a", "b", "c", compensate="undo")
    definition["tasks"]["s"] = {"type": "signal", "name": "go", "after": "c"}
    await engine.register(definition)
    run = await engine.start("saga", id="r")
    await engine.settle()
    CALLS.clear()

    preview = await run.preview(2)
    assert [(each.key, each.undoable) for each in preview.consequences] == [
        ("b", True),
        ("c", True),
    ]
    await run.reset(2, token=preview.token, undo=True)
    await engine.settle()
    assert CALLS == ["undo c done", "undo b done", "b", "c"]


async def test_children_are_kept_stopped_or_begun_anew(engine: Harness) -> None:
    await engine.register({"id": "child", "tasks": {"s": {"type": "signal", "name": "go"}}})
    await engine.register(
        {
            "id": "parent",
            "tasks": {
                "early": {"type": "subworkflow", "definition": "child"},
                "t": {"type": "timer", "delay": "10s"},
                "late": {"type": "subworkflow", "definition": "child", "after": "t"},
            },
        }
    )
    run = await engine.start("parent", id="p")
    await engine.skip(11)
    to = next(i.seq for i in await run.history() if i.type == "child_started")
    preview = await run.preview(to)
    assert preview.children == ["p/late"]

    await run.reset(to, token=preview.token)
    await engine.settle()
    assert (await engine._runs.find("p/late")).status == "CANCELLED"
    assert (await engine._runs.find("p/early")).open
    await engine.skip(11)
    assert (await engine._runs.find("p~2/late")).open
    await (await engine.get("p/early")).signal("go")
    await (await engine.get("p~2/late")).signal("go")
    await engine.finish(run)

    again = await run.preview(to)
    await run.reset(to, token=again.token)
    await engine.skip(11)
    late = await engine.get("p~3/late")
    await late.terminate()
    with pytest.raises(RunFailed):
        await engine.finish(run)
    await run.retry()
    await engine.settle()
    await (await engine.get("p~4/late")).signal("go")
    await engine.finish(run)
    assert (await run.show()).generation == 4


async def test_a_reset_to_no_event_or_into_the_end_is_refused(engine: Harness) -> None:
    await engine.register(line("abc", "a", "b"))
    BROKEN.add("b")
    run = await engine.start("abc", id="r")
    await failed(engine, run)
    for to in (0, -1, 99, 3, 4):
        with pytest.raises(Rejected) as caught:
            await run.preview(to)
        assert caught.value.code == "reset-point", to


async def test_a_result_follows_the_run_into_its_next_generation(engine: Harness) -> None:
    definition = line("sig", "a")
    definition["tasks"]["s"] = {"type": "signal", "name": "go", "after": "a"}
    await engine.register(definition)
    run = await engine.start("sig", id="r")
    await engine.settle()
    waiting = asyncio.ensure_future(run.result())
    seen: list[str] = []

    async def look() -> None:
        async for change in run.watch():
            seen.append(change.type)

    looking = asyncio.ensure_future(look())
    await engine.settle()
    await run.reset(1, token=(await run.preview(1)).token)
    await engine.settle()
    await run.signal("go", 7)
    assert await asyncio.wait_for(waiting, 60) == 7
    await asyncio.wait_for(looking, 60)
    assert seen == [
        "run_started", "task_completed", "run_continued", "run_reset", "task_completed", "signal_received",
        "run_completed",
    ]  # fmt: skip


async def test_after_a_restart_the_newest_generation_goes_on(tmp_path: Path) -> None:
    clock = SkipClock()
    path = tmp_path / "a.db"
    definition = line("sig", "a")
    definition["tasks"]["t"] = {"type": "timer", "delay": "1h", "after": "a"}
    async with harness(
        activities=[work], store=SqliteStore(path, clock=clock.now), clock=clock
    ) as engine:
        await engine.register(definition)
        run = await engine.start("sig", id="r")
        await engine.settle()
        await run.reset(1, token=(await run.preview(1)).token)
        await engine.settle()
    async with harness(
        activities=[work], store=SqliteStore(path, clock=clock.now), clock=clock
    ) as engine:
        run = await engine.get("r")
        await engine.finish(run)
        assert (await run.show()).generation == 2


async def test_a_process_that_does_not_own_the_database_can_retry(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with penstock.open(url, activities=[work]) as owner:
        await owner.register(line("abc", "a", "b"))
        BROKEN.add("b")
        run = await owner.start("abc", id="r")
        with pytest.raises(RunFailed):
            await run.result()
        BROKEN.clear()
        async with penstock.open(url, execute=False) as other:
            await (await other.get("r")).retry()
        assert await asyncio.wait_for(run.result(), 60) == "b done"


async def test_a_repeated_retry_is_told_the_generation_that_it_opened(engine: Harness) -> None:
    await engine.register({"id": "sig", "tasks": {"s": {"type": "signal", "name": "go"}}})
    run = await engine.start("sig", id="x")
    for number, command in enumerate("abc", 2):
        await run.cancel()
        await engine.settle()
        assert await run.retry(command_id=command) == number
        for before, earlier in enumerate("abc"[: number - 1], 2):
            assert await run.retry(command_id=earlier) == before
    await engine.start("sig", 1, id="x", if_exists="replace")  # which copies nothing
    assert [await run.retry(command_id=command) for command in "abc"] == [2, 3, 4]
    await run.signal("go")
    assert (await run.show()).generation == 5


async def test_exclude_is_a_list_of_names(engine: Harness) -> None:
    await engine.register({"id": "sig", "tasks": {"s": {"type": "signal", "name": "go"}}})
    run = await engine.start("sig", id="x")
    seen = await run.preview(1)
    for wrong in ("go", [1], 5):
        with pytest.raises(Rejected) as caught:
            await run.reset(1, token=seen.token, exclude=wrong)  # type: ignore[arg-type]
        assert caught.value.code == "exclude-invalid"
    assert (await run.show()).generation == 1


async def test_a_run_that_ends_while_its_reset_reads_is_closed_once(engine: Harness) -> None:
    """The row was read before the end and the events after it: a closed generation was continued (SPEC 4.8)."""
    await engine.register("id: short\ntasks:\n  go: {type: timer, delay: 5s}\n")
    run = await engine.start("short")
    await engine.settle()
    token = (await run.preview(1)).token
    core: Any = vars(engine._runs)["engine"]
    read = core.store.events
    ended = False

    async def events(key: int, *rest: Any, **more: Any) -> Any:
        nonlocal ended
        if not ended:
            ended = True
            await engine.skip(seconds=6)
        return await read(key, *rest, **more)

    core.store.events = events
    assert await run.reset(1, token=token) == 2
    core.store.events = read

    first = [item.type for item in await run.history(generation=1)]
    assert first == ["run_started", "timer_fired", "run_completed"]
