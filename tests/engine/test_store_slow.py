"""A store that is slow, or fails for a moment: what is in between is neither lost nor shown nor done twice (SPEC 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock
from penstock import activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.core.flow import Flow
from penstock.engine.engine import Settings
from penstock.engine.inbox import Item
from penstock.errors import StoreError
from penstock.ports.store import Append, Appended, DefinitionRow, Row, Stored
from penstock.testing.harness import SkipClock, harness

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


class Moody(MemoryStore):
    """Every call waits for a while, as one to a server does; those of a name may fail."""

    failing: str | None = None
    appending = False

    async def _moment(self, name: str) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        if self.failing == name:
            raise StoreError("the database is out of reach")

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        self.appending = len(appends) > 0 and appends[0].expected > 0
        await self._moment("append")
        done = await super().append(appends)
        await self._moment("answer")
        return done

    async def find(self, id: str, generation: int | None = None) -> Row | None:
        await self._moment("find")
        return await super().find(id, generation)

    async def events_many(self, keys: Mapping[int, int]) -> dict[int, list[Stored]]:
        await self._moment("events_many")
        return await super().events_many(keys)

    async def definition(self, id: str, version: str | None = None) -> DefinitionRow | None:
        await self._moment("definition")
        return await super().definition(id, version)


async def test_who_was_told_of_a_failure_does_not_find_it_in_the_log_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Moody()
    async with harness(activities=[note], store=store) as engine:
        await engine.register("id: d\ntasks:\n  s: {type: signal, name: go}\n")
        run = await engine.start("d")
        store.failing = "append"
        with pytest.raises(StoreError):
            await run.signal("go", 1)
        store.failing = None
    assert [each for each in caplog.records if each.levelname != "INFO"] == []


async def test_a_store_that_goes_away_while_a_run_is_loaded_again_stops_nobody() -> None:
    """Told to go in the middle of a batch, the run is loaded by itself; and that fails."""

    class Away(Moody):
        gone = False

        async def find(self, id: str, generation: int | None = None) -> Row | None:
            if self.gone and id == "r0":
                engine.core.cache.pop("r1")  # a hint
            if self.gone and id == "r1":
                raise StoreError("the database is out of reach")
            return await super().find(id, generation)

    store = Away()
    async with harness(activities=[note], store=store) as engine:
        await engine.register("id: d\ntasks:\n  s: {type: signal, name: go}\n")
        runs = [await engine.start("d", id=f"r{n}") for n in range(2)]
        engine.core.cache.pop("r0")
        store.gone = True
        kept, lost = await asyncio.gather(
            *(run.signal("go", 1) for run in runs), return_exceptions=True
        )
        store.gone = False

        assert kept is None
        assert isinstance(lost, StoreError)
        assert engine.core.broken is None
        await runs[1].signal("go", 1)
        for run in runs:
            assert await engine.finish(run) == 1


@pytest.mark.parametrize("name", ["events_many", "definition", "find"])
async def test_a_run_that_could_not_be_read_for_a_moment_is_not_taken_for_damaged(
    name: str,
) -> None:
    store = Moody()
    async with harness(activities=[note], store=store) as engine:
        await engine.register(
            "id: d\ntasks:\n  a: {do: note, inputs: {value: {value: " + "x" * 3000 + "}}}\n"
            "  s: {type: signal, name: go, after: [a]}\n  b: {do: note, after: [s], inputs: {value: {from: a}}}\n"
        )
        run = await engine.start("d", id="r")
        await engine.settle()
        engine.core.cache.clear()
        engine.core.plans.clear()
        store.failing = name
        with pytest.raises(StoreError, match="out of reach"):
            await run.signal("go", 1)
        store.failing = None
        await run.signal("go", 1)
        assert await engine.finish(run) == "x" * 3000


async def test_a_run_read_while_it_is_being_committed_is_not_kept_as_it_was_before() -> None:
    """A hint throws it out, recovery reads it back from before the append: who asks afterwards sees the append."""
    store = Moody()
    async with harness(activities=[note], store=store) as engine:
        await engine.register(
            "id: d\ntasks:\n  s: {type: signal, name: go}\n  t: {type: signal, name: on, after: [s]}\n"
        )
        run = await engine.start("d", id="r")
        core = engine.core
        row = await store.find("r")
        assert row is not None
        loaded = (await core.history.load([row]))["r"]
        assert not isinstance(loaded, Exception)
        signal = asyncio.ensure_future(run.signal("go", 1))
        while not store.appending:  # noqa: ASYNC110
            await asyncio.sleep(0)
        core.cache.pop("r")
        core.adopt(loaded)
        await signal
        revision = await core.read("r", lambda flow: flow.run.revision)
        there = await store.find("r")
        assert there is not None
        assert revision == there.revision == 2


async def test_a_store_that_fails_while_a_standby_takes_over_costs_time_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it cannot give around the claim: the standby owns the database all the same, a moment later."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    for name in ("head", "records", "open_runs"):
        failed: list[str] = []
        async with penstock.open(url, activities=[note], node="first") as first:
            await first.register("id: d\ntasks:\n  t: {do: note, inputs: {value: 1}}\n")
            context = penstock.open(url, activities=[note], node="second")
            second = await context.__aenter__()
        before: Any = getattr(SqliteStore, name)

        async def fails(
            self: Any, *given: Any, _name: str = name, _before: Any = before, _failed: list[str] = failed,
            **more: Any,
        ) -> Any:  # fmt: skip
            if not _failed:
                _failed.append(_name)
                raise StoreError("away for a moment")
            return await _before(self, *given, **more)

        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, name, fails)
            run = await second.start("d")
            assert await asyncio.wait_for(run.result(), 20) == 1
        assert failed == [name]
        await context.__aexit__(None, None, None)


async def test_the_runs_of_one_commit_are_loaded_together() -> None:
    """Not one question after the other: on a server each is a journey."""

    class Counting(MemoryStore):
        asked: ClassVar[list[int]] = []

        async def find_newest(self, ids: Sequence[str]) -> dict[str, Row]:
            self.asked.append(len(ids))
            return await super().find_newest(ids)

    clock = SkipClock()
    small = Settings(cache_runs=1, drain_seconds=0)
    async with harness(store=Counting(clock=clock.now), clock=clock, settings=small) as engine:
        await engine.register({"id": "d", "tasks": {"a": {"type": "signal", "name": "go"}}})
        runs = [await engine.start("d", id=f"r{n}") for n in range(50)]
        await engine.settle()
        Counting.asked.clear()
        await asyncio.gather(*(run.signal("go", 1) for run in runs))
        assert max(Counting.asked) > 30
        for run in runs:
            await engine.finish(run)
