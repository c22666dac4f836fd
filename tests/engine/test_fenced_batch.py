"""An owner that is taken over from after it took what it is to commit, and before it writes that: it is refused (SPEC 4.8)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from penstock import Context, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.errors import Fenced
from penstock.ports.store import Append, Appended, Row
from penstock.ports.transactions import Transaction
from penstock.testing.harness import Harness, harness

gate = asyncio.Event()
begun: list[str] = []


@activity
async def work() -> int:
    begun.append("work")
    await gate.wait()
    return 1


@activity(once=True)
async def once() -> int:
    begun.append("once")
    return 1


class Held(MemoryStore):
    """Holds back what a commit reads first."""

    hold: asyncio.Event | None = None
    asked = False

    async def find_newest(self, ids: Sequence[str]) -> dict[str, Row]:
        found, hold = await super().find_newest(ids), self.hold
        if hold is not None:
            self.asked = True
            await hold.wait()
        return found


async def taken_over(engine: Harness) -> None:
    """Another owns the database from now on, and the engine has just heard of it."""
    store, owner = engine.core.store, engine.core.owner
    assert owner is not None
    await store.release(owner)
    newer = await store.claim("another", "")
    assert newer is not None
    engine.core.lost_ownership(Fenced(token=owner.token, newest=newer.token))


async def seen(store: Held) -> None:
    while not store.asked:  # noqa: ASYNC110 - until the commit is under way
        await asyncio.sleep(0)


async def test_the_result_of_an_attempt_that_a_fenced_owner_has_taken_is_not_written() -> None:
    """It was written without a token, as if anybody had asked for it."""
    begun.clear()
    gate.clear()
    store = Held()
    async with harness(activities=[work], store=store) as engine:
        await engine.register({"id": "one", "tasks": {"a": {"do": "work"}}})
        run = await engine.start("one", id="r")
        await engine.settle()
        assert begun == ["work"]
        engine.core.cache.clear()  # as under pressure: the commit has to read it first
        store.hold = asyncio.Event()
        gate.set()
        await seen(store)
        await taken_over(engine)
        store.hold.set()
        store.hold = None
        await engine.settle()
        assert await engine.types(run) == ["run_started"]


async def test_what_was_asked_of_a_fenced_owner_is_done_all_the_same() -> None:
    store = Held()
    async with harness(store=store) as engine:
        await engine.register({"id": "waits", "tasks": {"s": {"type": "signal", "name": "go"}}})
        run = await engine.start("waits", id="r")
        engine.core.cache.clear()
        store.hold = asyncio.Event()
        asked = asyncio.ensure_future(run.signal("go", 7))
        await seen(store)
        await taken_over(engine)
        store.hold.set()
        store.hold = None
        await asked
        assert await run.result() == 7


class Overtaken(MemoryStore):
    """Another takes over right before the append of that number, unnoticed."""

    appends = 0
    before = 2

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        self.appends += 1
        if self.appends == self.before:
            owner = await self.owner()
            assert owner is not None
            await self.release(owner)
            await self.claim("another", "")
        return await super().append(appends)


async def test_an_attempt_that_a_fenced_owner_is_to_begin_is_not_recorded_as_begun() -> None:
    """Its `TaskStarted` was written without a token, once that of the owner was refused: whoever owns the run then takes
    the attempt for lost."""
    begun.clear()
    async with harness(activities=[once], store=Overtaken()) as engine:
        await engine.register({"id": "one", "tasks": {"a": {"do": "once"}}})
        run = await engine.start("one", id="r")
        await engine.settle()
        assert engine.core.owner is None
        assert begun == []
        assert await engine.types(run) == ["run_started"]


async def test_who_owns_the_database_again_is_not_harmed_by_what_it_took_before() -> None:
    """What was refused is from before it was taken over from: it is the newest owner now."""
    store = Held()
    async with harness(store=store) as engine:
        await engine.register({"id": "waits", "tasks": {"s": {"type": "signal", "name": "go"}}})
        run = await engine.start("waits", id="r")
        engine.core.cache.clear()
        store.hold = asyncio.Event()
        asked = asyncio.ensure_future(run.signal("go", 7))
        await seen(store)
        await taken_over(engine)
        other = await store.owner()
        assert other is not None
        await store.release(other)
        mine = await store.claim("node", "")
        assert mine is not None
        engine.core.own(mine, engine.core.position)
        engine.core.recovered()
        store.hold.set()
        store.hold = None
        await asked
        assert engine.core.owner == mine
        assert await run.result() == 7


@workflow
async def hears(ctx: Context) -> int:
    return await ctx.signal("go") + await ctx.signal("go")


async def test_who_becomes_the_owner_while_it_commits_and_is_taken_over_from_tells_no_function() -> (
    None
):
    """What its function wanted was written without a token, as the batch had been taken by who was not the owner: found by
    seed 10057."""
    store = Held()
    async with harness(workflows=[hears], store=store) as engine:
        run = await engine.start(hears, id="r")
        await engine.settle()
        assert await engine.types(run) == ["run_started"]
        await taken_over(engine)
        store.hold = asyncio.Event()
        asked = asyncio.ensure_future(run.signal("go", 7))
        await seen(store)
        other = await store.owner()
        assert other is not None
        await store.release(other)
        mine = await store.claim("node", "")
        assert mine is not None
        engine.core.own(mine, engine.core.position)
        await store.release(mine)  # and another takes over again, unnoticed
        await store.claim("another", "")
        store.hold.set()
        store.hold = None
        await asked
        assert engine.core.owner is None
        (key,) = [row.key for row in (await store.find_newest(["r"])).values()]
        told = [each.payload for each in await store.events(key)]
        assert len(told) == 2
        assert b'"type":"signal_received"' in told[1]
        assert b"outcomes" not in told[1]


async def test_an_owner_whose_lease_has_run_out_begins_nothing_until_it_is_renewed() -> None:
    """Cut off from its store it read again what another owned by then, and began what that one had begun."""
    begun.clear()
    gate.set()
    async with harness(activities=[work]) as engine:
        await engine.register({"id": "one", "tasks": {"a": {"do": "work"}}})
        engine.core.lease_until = engine.clock.ticks() - 1
        run = await engine.start("one", id="r")
        await engine.settle()
        assert begun == []
        engine.core.renewed(engine.clock.ticks() + 6)
        assert await engine.finish(run) == 1


@activity(transactional=True)
def writes(connection: sqlite3.Connection) -> int:
    connection.execute("CREATE TABLE mine (n)")
    return 1


async def test_what_a_transactional_activity_of_a_fenced_owner_wrote_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(str(tmp_path / "a.db"))
    async with harness(activities=[writes], store=store) as engine:
        core = engine.core
        await engine.register({"id": "one", "tasks": {"a": {"do": "writes"}}})
        begin, owner = store.transactions.begin, core.owner
        assert owner is not None

        async def taken_over_from(*, seconds_max: float) -> Transaction:
            transaction = await begin(seconds_max=seconds_max)
            core.lost_ownership(Fenced(token=owner.token, newest=owner.token + 1))
            return transaction

        monkeypatch.setattr(store.transactions, "begin", taken_over_from)
        run = await engine.start("one", id="r")
        await engine.settle()
        assert await engine.types(run) == ["run_started"]
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        assert (
            database.execute("SELECT name FROM sqlite_master WHERE name = 'mine'").fetchall() == []
        )
