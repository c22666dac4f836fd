"""What the store could not take is tried again as it was decided, and nobody sees it before (SPEC 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock import Context, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.engine import known
from penstock.engine.settings import Settings
from penstock.errors import StoreError
from penstock.ports.store import Append, Appended, Record, Row
from penstock.testing.harness import Harness, SkipClock, harness

begun: list[int] = []


@pytest.fixture(autouse=True)
def _none_begun() -> None:
    begun.clear()


@activity
async def work(n: int = 0) -> int:
    begun.append(n)
    return n + 1


@workflow
async def steps(ctx: Context, n: int = 0) -> int:
    for _ in range(5):
        n = await ctx.call(work, n)
        if n == 2:
            n = 2 + await ctx.signal("go")
    return n


class Store(MemoryStore):
    """Full for as many appends as it is told to; of some of them only the answer is lost."""

    full = lost = tried = read = recorded = 0

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        self.tried += 1
        if self.full:
            self.full -= 1
            raise StoreError("the disk is full")
        done = await super().append(appends)
        if self.lost:
            self.lost -= 1
            raise StoreError("the answer is lost")
        return done

    async def find_newest(self, ids: Sequence[str]) -> dict[str, Row]:
        self.read += 1
        return await super().find_newest(ids)

    async def record(self, kind: str, id: str) -> Record | None:
        self.recorded += 1
        return await super().record(kind, id)


async def at_signal(engine: Harness, id: str = "r") -> None:
    run = await engine.start(steps, 0, id=id)
    await engine.settle()
    assert (await run.show()).status == "WAITING"


async def given(engine: Harness, store: Store, n: int = 0, id: str = "r") -> None:
    """The signal is stored; what its step gives is not."""
    await (await engine.get(id)).signal("go", n)
    store.full = 1
    await engine.settle()


async def test_a_turn_that_was_not_stored_is_stored_without_reading_the_run_again() -> None:
    store = Store()
    async with harness(activities=[work], workflows=[steps], store=store) as engine:
        await at_signal(engine)
        await given(engine, store)
        store.read = 0
        assert engine.core.holding
        await engine.skip(seconds=5)
        assert await engine.finish(await engine.get("r")) == 5
        assert (store.full, store.read, engine.core.programs.replayed) == (0, 0, 0)
        assert not engine.core.holding
    assert begun == [0, 1, 2, 3, 4]


async def test_nobody_sees_what_is_not_stored_and_what_else_comes_counts() -> None:
    store = Store()
    async with harness(activities=[work], workflows=[steps], store=store) as engine:
        await at_signal(engine)
        await given(engine, store)
        store.full = 1000
        run = await engine.get("r")
        before = len(await run.history())
        assert engine.core.holding
        assert "r" not in engine.core.cache
        await engine.skip(seconds=2)
        assert len(await run.history()) == before
        with pytest.raises(StoreError):
            await run.signal("more", 1)
        store.full = 0
        await run.signal("more", 2)
        assert not engine.core.holding
        assert await engine.finish(run) == 5
        types = await engine.types(run)
    assert types.count("signal_received") == 2
    assert types.count("task_completed") == 5
    assert begun == [0, 1, 2, 3, 4]


async def test_another_that_wrote_meanwhile_was_first() -> None:
    clock = SkipClock()
    stores = [Store("written", clock=clock.now) for _ in range(2)]
    async with (
        harness(activities=[work], workflows=[steps], store=stores[0], clock=clock) as owner,
        harness(activities=[work], workflows=[steps], store=stores[1], clock=clock) as other,
    ):
        await at_signal(owner)
        await given(owner, stores[0])
        assert owner.core.holding
        owner.core._drained = True  # it hears of nothing  # pyright: ignore[reportPrivateUsage]
        await (await other.get("r")).signal("more", 1)
        owner.core._drained = False  # pyright: ignore[reportPrivateUsage]
        await owner.skip(seconds=5)
        run = await owner.get("r")
        assert await owner.finish(run) == 5
        types = await owner.types(run)
    MemoryStore.forget("written")
    assert types.count("signal_received") == 2
    assert types.count("task_completed") == 5
    assert begun == [0, 1, 2, 3, 4]


async def test_a_turn_that_was_stored_though_its_answer_was_lost_is_not_stored_twice() -> None:
    store = Store()
    async with harness(activities=[work], workflows=[steps], store=store) as engine:
        await at_signal(engine)
        await (await engine.get("r")).signal("go", 0)
        store.lost = 1
        await engine.settle()
        await engine.skip(seconds=5)
        run = await engine.get("r")
        assert await engine.finish(run) == 5
        assert (await engine.types(run)).count("task_completed") == 5
    assert begun == [0, 1, 2, 3, 4]


async def test_no_more_is_held_than_may_be_in_memory() -> None:
    store = Store()
    settings = Settings(cache_runs=2)
    async with harness(
        activities=[work], workflows=[steps], store=store, settings=settings
    ) as engine:
        for number in range(4):
            await at_signal(engine, f"r{number}")
        runs = [await engine.get(f"r{number}") for number in range(4)]
        await asyncio.gather(*(run.signal("go", 0) for run in runs))
        store.full = 50
        await engine.settle()
        held = engine.core.holding
        assert len(held._held) == 2  # pyright: ignore[reportPrivateUsage]
        store.full = 0
        for run in runs:
            assert await engine.finish(run) == 5


async def test_what_failed_at_many_moments_is_tried_again_together() -> None:
    """Each commit that failed tried all of them again, each half second: a hundred tries where two do."""
    store = Store()
    async with harness(activities=[work], workflows=[steps], store=store) as engine:
        for number in range(20):
            await at_signal(engine, f"r{number}")
        for number in range(20):
            store.full = 0
            await (await engine.get(f"r{number}")).signal("go", 0)
            store.full = 1000
            await engine.skip(seconds=0.02)
        await engine.skip(seconds=2)  # and it is noted of each attempt that it has begun
        store.tried = 0
        await engine.skip(seconds=10)
        assert store.tried <= 21
        store.full = 0
        for number in range(20):
            assert await engine.finish(await engine.get(f"r{number}")) == 5


async def test_functions_are_read_in_one_go_when_they_are_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    async with harness(activities=[work], workflows=[steps, other_steps], store=store) as engine:
        found = {each.id: each.revision for each in await store.records(known.KIND)}
        assert sorted(found) == ["other_steps", "steps"]
        store.recorded = 0
        await engine.core.known.write_down()
        assert store.recorded == 0
        monkeypatch.setattr(known, "AT_ONCE", 1)
        await engine.core.known.write_down()
        assert store.recorded == 1  # the one that did not fit
        assert found == {each.id: each.revision for each in await store.records(known.KIND)}


@workflow
async def other_steps(ctx: Context, n: int = 0) -> int:
    return n
