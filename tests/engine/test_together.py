"""Functions of one batch go on one after the other: each as if it were alone, whatever becomes of another (SPEC 4.2, 2.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock import Context, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.core.values import Need
from penstock.engine import commits, turns
from penstock.errors import StoreError
from penstock.ports.store import Append, Appended
from penstock.testing.harness import Harness, harness

COUNT = 40
loops: set[int] = set()


@activity
async def work(n: int) -> int:
    loops.add(id(asyncio.get_running_loop()))
    await asyncio.sleep(0)
    return n + 1


@workflow
async def steps(ctx: Context, n: int) -> int:
    for _ in range(4):
        n = await ctx.call(work, n)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_one(ctx, n)) for _ in range(2)]
    return sum(each.result() for each in tasks)


async def _one(ctx: Context, n: int) -> int:
    assert asyncio.current_task() is not None
    return await ctx.call(work, n)


class Flaky(MemoryStore):
    """Every third append fails; of some of them only the answer is lost."""

    tried = 0
    well = True

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        self.tried += 1
        if self.well or self.tried % 3:
            return await super().append(appends)
        if self.tried % 2:
            await super().append(appends)
        raise StoreError("the disk is full")


async def all_done(engine: Harness) -> None:
    runs = [await engine.start(steps, n, id=f"r{n}") for n in range(COUNT)]
    for n, run in enumerate(runs):
        await engine.finish(run)
        assert await run.result() == 2 * (n + 5)
        done = [item.event.key for item in await run.history() if item.type == "task_completed"]
        assert sorted(done) == [f"work#{k}" for k in range(1, 7)]


@pytest.mark.parametrize("guard", [True, False])
async def test_the_loop_around_is_the_one_that_runs_after_each(guard: bool) -> None:
    loops.clear()
    async with harness(activities=[work], workflows=[steps], guard=guard) as engine:
        runs = await asyncio.gather(*(engine.start(steps, n) for n in range(COUNT)))
        assert [await run.result() for run in runs] == [2 * (n + 5) for n in range(COUNT)]
    assert loops == {id(asyncio.get_running_loop())}


async def test_what_was_decided_with_a_commit_that_failed_is_decided_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits, "COMMIT_BYTES_MAX", 600)  # a few runs each
    store = Flaky()
    async with harness(activities=[work], workflows=[steps], store=store, guard=False) as engine:
        runs = [await engine.start(steps, n, id=f"r{n}") for n in range(COUNT)]
        store.well = False
        await engine.settle()
        store.well = True
        for n, run in enumerate(runs):
            await engine.finish(run)
            assert await run.result() == 2 * (n + 5)
            done = [i.event.key for i in await run.history() if i.type == "task_completed"]
            assert sorted(done) == [f"work#{k}" for k in range(1, 7)]
        assert await engine.audit() == []


@pytest.mark.parametrize("error", [Need({1 << 20}), RuntimeError("broken")])
async def test_what_one_needs_or_raises_is_its_own(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = turns.turn, set[str]()

    def turn(flow: Any, items: Any) -> Any:
        made = plain(flow, items)
        if flow.run.revision == 3 and flow.run.id not in seen and int(flow.run.id[1:]) % 2:
            seen.add(flow.run.id)
            raise error
        return made

    monkeypatch.setattr(turns, "turn", turn)
    async with harness(activities=[work], workflows=[steps], guard=False) as engine:
        await all_done(engine)
    assert len(seen) == COUNT // 2
