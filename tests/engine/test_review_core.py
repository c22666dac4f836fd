"""What a review broke: attempts between a task and its undo, clean stops, pauses, and children that are given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Retry, activity
from penstock.engine.engine import Settings
from penstock.errors import RunFailed
from penstock.model import commands as c
from penstock.testing.harness import SkipClock, harness


async def test_a_task_that_ends_late_does_not_lose_its_undo(tmp_path: Path) -> None:
    seen: list[str] = []

    @activity
    async def slow() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            seen.append("late")
        return "late"

    @activity
    async def undo(_: Any = None) -> None:
        seen.append("undo")
        await asyncio.sleep(0.3)

    definition = {
        "id": "d",
        "tasks": {
            "a": {
                "type": "activity",
                "config": {"activity": "slow"},
                "timeout": "200ms",
                "compensate": {"activity": "undo", "when": "attempted"},
            }
        },
    }
    async with penstock.open(f"sqlite:///{tmp_path / 'x.db'}", activities=[slow, undo]) as engine:
        await engine.register(definition)
        run = await engine.start("d", None)
        with pytest.raises(RunFailed):
            await asyncio.wait_for(run.result(), 10)
        types = [each.type for each in await run.history()]
    assert seen == ["undo", "late"]
    assert "undo_lost" not in types


async def test_clean_stops_do_not_poison_a_long_task(tmp_path: Path) -> None:
    begun: list[int] = []

    @activity
    async def long() -> None:
        begun.append(1)
        await asyncio.sleep(3600)

    settings = Settings(drain_seconds=0.01)
    for count in range(7):
        url = f"sqlite:///{tmp_path / 'x.db'}"
        async with penstock.open(url, activities=[long], settings=settings) as engine:
            await engine.register({"id": "d", "tasks": {"a": {"do": "long"}}})
            run = await engine.start("d", None, id="x")
            while len(begun) <= count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert await run.status() == "RUNNING"


async def test_a_pause_puts_a_retry_off() -> None:
    clock = SkipClock()
    began = clock.now()
    at: list[float] = []

    @activity(retry=Retry(attempts=3, first=40, factor=1, jitter=0))
    async def flaky() -> None:
        at.append(round(clock.now() - began))
        raise RuntimeError("x")

    async with harness(activities=[flaky], clock=clock) as engine:
        await engine.register({"id": "d", "tasks": {"a": {"do": "flaky"}}})
        run = await engine.start("d", None)
        await engine.settle()
        await engine.skip(10)
        await run.pause()
        await engine.skip(20)
        await run.resume()  # before it was due: the timer that is set is too early
        await engine.skip(35)
        assert at == [0, 60]
        await run.pause()  # over the time at which it was due
        await engine.skip(100)
        assert at == [0, 60]
        await run.resume()
        await engine.skip(200)
    assert at == [0, 60, 200]


async def test_an_activity_that_nobody_serves_is_not_waited_for_longer_than_asked() -> None:
    @activity
    async def quick() -> None: ...

    async with harness(activities=[quick]) as engine:
        definition = {
            "id": "d",
            "tasks": {"a": {"do": "quick"}},
            "timeouts": {"scheduleToStart": 5},
        }
        await engine.register(definition)
        core: Any = engine
        core._runs.engine.activities._entries.pop("quick")
        run = await engine.start("d", None)
        await engine.skip(4)
        assert await run.status() == "RUNNING"
        await engine.skip(2)
        assert await run.status() == "FAILED"
        with pytest.raises(RunFailed, match="a worker that serves `quick`"):
            await run.result()
        assert not core._runs.engine.attempts.unserved.get("quick")


async def test_what_is_recorded_as_begun_is_not_begun_by_one_who_owns_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[int] = []

    @activity(once=True)
    async def single() -> None:
        begun.append(1)

    async with harness(activities=[single]) as engine:
        core: Any = engine
        inner = core._runs.engine
        owner, command = inner.owner, inner.command

        async def fenced(run_id: str, given: c.Command, plan: Any = None) -> Any:
            answer = await command(run_id, given, plan)
            if isinstance(given, c.StartTask):
                inner.owner = None
            return answer

        monkeypatch.setattr(inner, "command", fenced)
        await engine.register({"id": "d", "tasks": {"a": {"do": "single"}}})
        await engine.start("d", None)
        await asyncio.sleep(0.05)
        assert inner.owner is None
        assert not begun
        inner.owner = owner


PARENT = {
    "id": "parent",
    "tasks": {
        "sub": {"type": "subworkflow", "config": {"definition": "waits"}},
        "bad": {"type": "transform", "config": {"set": {"x": "input.nope.nope"}}},
    },
}
WAITS = {"id": "waits", "tasks": {"a": {"type": "signal", "config": {"name": "go"}}}}


async def test_a_child_that_is_given_up_before_it_began_is_not_waited_for() -> None:
    async with harness(activities=[]) as engine:
        await engine.register(WAITS)
        await engine.register(PARENT)
        run = await engine.start("parent", {}, id="p")
        await engine.settle()
        assert await run.status() == "FAILED"
        types = [each.type for each in await run.history()]
        assert types[-2:] == ["child_closed", "run_failed"]


async def test_children_of_a_terminated_run_are_told_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"

    async def never(*_: Any) -> None: ...

    async with penstock.open(url) as engine:
        await engine.register(WAITS)
        await engine.register({"id": "only", "tasks": {"sub": PARENT["tasks"]["sub"]}})  # type: ignore[index]
        run = await engine.start("only", None, id="p")
        while [each.type for each in await run.history()][-1] != "child_started":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        core: Any = engine
        monkeypatch.setattr(core._runs.engine.errands, "cancel_child", never)
        await run.terminate()
    async with penstock.open(url) as engine:
        child = await engine.get("p/sub")
        for _ in range(6_000):
            if await child.status() == "CANCELLED":
                break
            await asyncio.sleep(0.01)
        assert await child.status() == "CANCELLED"
