"""A store that is slow, or fails for a moment: what is in between is neither lost nor shown nor done twice (SPEC 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.core.flow import Flow
from penstock.engine.inbox import Item
from penstock.errors import StoreError
from penstock.ports.store import Append, Appended, Row
from penstock.testing.harness import harness

CALLS: list[Any] = []


@activity
async def note(value: Any = None) -> Any:
    CALLS.append(value)
    return value


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


class Slow(SqliteStore):
    """Each append waits for a while before it is made, as it does for a busy database."""

    waiting = 0

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().append(appends)


async def test_a_snapshot_holds_only_what_is_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with harness(activities=[note], store=Slow(path)) as engine:
        await engine.register(
            "id: d\ntasks:\n  l: {type: loop, while: 'iteration < 150', body: {type: signal, name: go}}\n"
        )
        run = await engine.start("d", id="r")
        for number in range(140):
            await run.signal("go", number)
        row = await engine.core.store.find("r")
        assert row is not None
        kept = await engine.core.store.snapshot(row.key)
        assert kept is not None
        events = await engine.core.store.events(row.key)
        assert kept.hash == events[kept.revision - 1].hash
    async with harness(activities=[note], store=SqliteStore(path)) as engine:
        run = await engine.get("r")
        for number in range(10):
            await run.signal("go", number)
        assert await engine.finish(run) == 9


async def test_a_snapshot_that_does_not_fit_its_chain_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with harness(store=SqliteStore(path)) as engine:
        await engine.register("id: d\ntasks:\n  s: {type: signal, name: go}\n")
        run = await engine.start("d", id="r")
        await run.snapshot("now")
        await engine.settle()
        store = engine.core.store
        row = await store.find("r")
        assert row is not None
        kept = await store.snapshot(row.key)
        assert kept is not None
        wrong = type(kept)(kept.revision, kept.state.replace(b"WAITING", b"RUNNING"), b"\0" * 32)
        await store.save_snapshots([(row.key, wrong)])
    async with harness(store=SqliteStore(path)) as engine:
        run = await engine.get("r")
        await run.signal("go", 1)
        assert await engine.finish(run) == 1


async def test_closing_waits_for_the_commit_under_way(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with harness(activities=[note], store=Slow(path)) as engine:
        await engine.register("id: d\ntasks:\n  s: {type: signal, name: go}\n")
        starting = asyncio.ensure_future(engine.start("d", id="r"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert (await starting).id == "r"
    async with harness(store=SqliteStore(path)) as engine:
        assert await (await engine.get("r")).status() == "WAITING"


async def test_a_refused_start_leaves_nothing_behind() -> None:
    async with harness(activities=[note]) as engine:
        await engine.register("id: a\ninputSchema: {type: integer}\ntasks:\n  t: {do: note}\n")
        await engine.register("id: b\ntasks:\n  t: {type: transform, set: {n: '2'}}\n")
        refused, started = await asyncio.gather(
            engine.start("a", "bad", id="x"),
            engine.start("b", "good", id="x"),
            return_exceptions=True,
        )
        assert isinstance(refused, penstock.Rejected)
        assert isinstance(started, penstock.Run)
        assert await engine.finish(started) == {"n": 2}
        row = await engine.core.store.find("x")
        assert row is not None
        assert row.definition == "b"


async def test_a_read_that_fails_stops_nobody() -> None:
    class Failing(MemoryStore):
        failures = 0

        async def find(self, id: str, generation: int | None = None) -> Row | None:
            if self.failures:
                self.failures -= 1
                raise StoreError("disk I/O error")
            return await super().find(id, generation)

    store = Failing()
    async with harness(activities=[note], store=store) as engine:
        await engine.register("id: d\ntasks:\n  s: {type: signal, name: go}\n")
        run = await engine.start("d", id="r")
        engine.core.cache.clear()
        store.failures = 1
        with pytest.raises(StoreError):
            await run.signal("go", 1)
        await run.signal("go", 2)
        assert await engine.finish(run) == 2


async def test_a_reader_that_breaks_breaks_only_its_own_answer() -> None:
    async with harness(activities=[note]) as engine:
        await engine.register("id: d\ntasks:\n  a: {do: note, inputs: {value: {value: 1}}}\n")
        run = await engine.start("d", id="r")

        def broken(flow: Flow) -> None:
            raise ZeroDivisionError

        reading = asyncio.ensure_future(engine.core.read("r", broken))
        engine.core.post("r", Item(None))
        with pytest.raises(ZeroDivisionError):
            await reading
        assert await engine.finish(run) == 1


async def test_a_turn_may_need_any_number_of_values(tmp_path: Path) -> None:
    tasks: dict[str, Any] = {
        f"t{n}": {"do": "note", "inputs": {"value": {"value": f"{n}" * 3000}}} for n in range(8)
    }
    tasks["s"] = {"type": "signal", "name": "go", "after": list(tasks), "join": "all"}
    total = " + ".join(f"tasks.t{n}.output.size()" for n in range(8))
    tasks["sum"] = {"type": "transform", "set": {"n": total}, "after": ["s"]}
    path = tmp_path / "a.db"
    async with harness(activities=[note], store=SqliteStore(path)) as engine:
        await engine.register({"id": "d", "tasks": tasks})
        await engine.start("d", id="r")
        await engine.settle()
    async with harness(activities=[note], store=SqliteStore(path)) as engine:
        run = await engine.get("r")
        await run.signal("go")
        assert await engine.finish(run) == {"n": 24_000}


async def test_an_attempt_whose_result_waits_for_the_store_is_not_begun_again(
    tmp_path: Path,
) -> None:
    """A hint about the run comes while a commit is under way, and the attempt ends before that commit does."""
    gate, begun = asyncio.Event(), 0

    @activity
    async def gated() -> int:
        nonlocal begun
        begun += 1
        await gate.wait()
        return begun

    class Watched(Slow):
        async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
            gate.set()
            return await super().append(appends)

    async with harness(activities=[gated, note], store=Watched(tmp_path / "a.db")) as engine:
        await engine.register("id: d\ntasks:\n  t: {do: gated}\n")
        await engine.register("id: other\ntasks:\n  t: {do: note, inputs: {value: 1}}\n")
        run = await engine.start("d", id="r")
        gate.clear()
        other = asyncio.ensure_future(engine.start("other", id="o"))
        engine.core.refresh("r")
        await other
        assert await engine.finish(run) == 1
        assert begun == 1
