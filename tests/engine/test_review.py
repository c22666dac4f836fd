"""What a review broke: bad words at the border, listeners, children between two processes, values by reference."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import activity
from penstock.errors import EvaluationError, PayloadInvalid, Rejected, RunFailed
from penstock.testing.harness import harness

WAITS = {"id": "waits", "tasks": {"a": {"type": "signal", "config": {"name": "go"}}}}
PARENT = {
    "id": "parent",
    "tasks": {"sub": {"type": "subworkflow", "config": {"definition": "waits"}}},
}


@activity
async def note(value: Any = None) -> Any:
    return value


@activity
async def leaves() -> None:
    raise GeneratorExit


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


@activity
async def mute() -> None:
    raise Mute


@pytest.mark.parametrize(
    "given",
    [
        {"metadata": {"x": object()}},
        {"metadata": {1: 2}},
        {"attributes": {"x": float("nan")}},
        {"created_by": "\ud800"},
        {"created_by": 5},
        {"delay": float("inf")},
        {"delay": float("nan")},
    ],
)
async def test_what_cannot_be_kept_is_refused_at_the_border(given: dict[str, Any]) -> None:
    async with harness() as engine:
        await engine.register(WAITS)
        with pytest.raises((PayloadInvalid, Rejected)):
            await engine.start("waits", None, id="x", **given)
        run = await engine.start("waits", None, id="x")
        await run.signal("go", 1)
        assert await engine.finish(run) == 1


async def test_a_bad_word_in_a_command_harms_nobody() -> None:
    async with harness() as engine:
        await engine.register(WAITS)
        run = await engine.start("waits", None)
        with pytest.raises(Rejected, match="5, not a text"):
            await run.signal("go", 1, message_id=5)  # type: ignore[arg-type]
        for act in (
            run.signal("go", 1, by="\udc80"),
            run.cancel(reason="\ud800"),
            run.pause(by="\ud800"),
            run.terminate(reason="\ud800"),
        ):
            with pytest.raises(Rejected, match="text that can be kept"):
                await act
        await run.signal("go", 1, by="Zoë")
        assert await engine.finish(run) == 1


async def test_an_input_that_only_python_takes_for_the_same_is_another() -> None:
    async with harness() as engine:
        await engine.register(WAITS)
        await engine.start("waits", {"a": 1, "b": 2}, id="x")
        await engine.start("waits", {"b": 2, "a": 1}, id="x")
        with pytest.raises(Rejected, match="exists already"):
            await engine.start("waits", {"a": True, "b": 2}, id="x")


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyError])
async def test_a_listener_never_harms_a_run(error: type[BaseException]) -> None:
    def bad(change: Any) -> None:
        raise error

    async with harness() as engine:
        await engine.register(WAITS)
        engine.on(None, bad)
        run = await engine.start("waits", None)
        await run.signal("go", 1)
        assert await engine.finish(run) == 1


@pytest.mark.parametrize("name", ["leaves", "mute"])
async def test_an_activity_may_raise_whatever_it_likes(name: str) -> None:
    async with harness(activities=[leaves, mute]) as engine:
        await engine.register({"id": "d", "tasks": {"a": {"do": name}}})
        with pytest.raises(RunFailed):
            await engine.finish(await engine.start("d"))


async def test_a_query_reads_any_number_of_values(tmp_path: Path) -> None:
    count, url = 30, f"sqlite:///{tmp_path}/q.db"
    tasks: dict[str, Any] = {
        f"t{i}": {"do": "note", "inputs": {"value": {"value": [i, "y" * 3000]}}}
        for i in range(count)
    }
    tasks["s"] = {"type": "signal", "config": {"name": "go"}, "after": list(tasks)}
    asked = " + ".join(f"tasks.t{i}.output[0]" for i in range(count))
    async with penstock.open(url, activities=[note]) as engine:
        await engine.register({"id": "d", "tasks": tasks, "queries": {"sum": asked}})
        run = await engine.start("d", None, id="x")
        while await run.status() != "WAITING":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with (
        penstock.open(url, activities=[note]) as engine,
        penstock.open(url, execute=False) as other,
    ):
        assert await (await engine.get("x")).query("sum") == sum(range(count))
        assert await (await other.get("x")).query("sum") == sum(range(count))


async def test_a_child_that_starts_while_its_parent_is_stopped_elsewhere_is_stopped(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    async with penstock.open(url) as engine, penstock.open(url, execute=False) as other:
        await engine.register(WAITS)
        await engine.register(PARENT)
        store = engine._runs.engine.store  # type: ignore[attr-defined]
        find = store.definition

        async def definition(id: str, version: str | None = None) -> Any:
            if id == "waits":
                await (await other.get("p")).cancel()
            return await find(id, version)

        store.definition = definition
        run = await engine.start("parent", None, id="p")
        with pytest.raises(RunFailed, match="CANCELLED"):
            await run.result()
        for _ in range(3_000):
            await asyncio.sleep(0.02)
            if [row for row in await engine.list() if row.id == "p/sub" and not row.open]:
                return
        raise AssertionError("the child still waits")


async def test_a_run_that_has_the_id_of_a_child_is_not_taken_for_it() -> None:
    async with harness() as engine:
        await engine.register(WAITS)
        await engine.register(PARENT)
        own = await engine.start("waits", None, id="p/sub")
        with pytest.raises(RunFailed, match="is taken"):
            await engine.finish(await engine.start("parent", None, id="p"))
        await own.signal("go", 7)
        assert await engine.finish(own) == 7


async def test_nobody_who_has_gone_is_remembered() -> None:
    async with harness() as engine:
        await engine.register(WAITS)
        run = await engine.start("waits", None)
        for _ in range(3):
            waiting = asyncio.ensure_future(run.update("nope"))
            with pytest.raises(Rejected):
                await waiting
        observers = engine.core.observers
        assert not observers._answers
        assert not observers._results


async def test_a_query_that_breaks_is_refused_and_harms_nothing() -> None:
    async with harness() as engine:
        await engine.register({**WAITS, "queries": {"all": "tasks"}})
        run = await engine.start("waits", None, delay=60)
        with pytest.raises(EvaluationError, match="query `all`"):
            await run.query("all")
