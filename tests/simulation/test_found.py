"""What simulation found, each with a test that fails without its fix."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import Context, Retry, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.adapters.memory_bus import MemoryBus
from penstock.adapters.sqlite.store import SqliteStore
from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.functions import FunctionPlan
from penstock.engine.engine import Engine as Core
from penstock.engine.history import Entry
from penstock.engine.recovery import Ownership
from penstock.engine.runs import LocalRuns
from penstock.engine.settings import Settings
from penstock.errors import Fenced, Rejected, StoreError
from penstock.model.codec import decode_event
from penstock.model.run import Run
from penstock.ports.store import Append, Appended, Stored
from penstock.sdk.worker import LocalActivities
from penstock.sdk.workflow import Registry
from penstock.testing.harness import Harness, SkipClock, harness


@workflow
async def waits(ctx: Context) -> int:
    return await ctx.signal("go")


async def test_a_function_is_told_what_another_wrote_before_a_command_to_it_is_decided() -> None:
    """A signal that another process stored ends the run; a cancel that comes next was decided first, and its events came
    after the end (SPEC 4.4: terminal is final)."""
    clock = SkipClock()
    stores = [MemoryStore("told", clock=clock.now) for _ in range(2)]
    async with (
        harness(workflows=[waits], store=stores[0], clock=clock) as owner,
        harness(workflows=[waits], store=stores[1], clock=clock) as other,
    ):
        run = await owner.start(waits, id="r")
        await owner.settle()
        await (await other.get("r")).signal("go", 5)
        with pytest.raises(Rejected, match="has ended COMPLETED"):
            await run.cancel(command_id="c")
        assert await run.result() == 5
        assert (await owner.types(run))[-1] == "run_completed"
    MemoryStore.forget("told")


def test_a_child_that_was_done_before_its_function_gave_it_up_is_undone_with_the_rest() -> None:
    """The step had left the plan with its task, and the turn broke each time the child told of its end (SPEC 4.5)."""
    flow = Flow(Run(id="r"), FunctionPlan("parent"))
    for text in (
        b'{"type":"run_started","id":"r","definition":"parent","version":"function","input":null,"at":1,'
        b'"outcomes":[[{"want":"child","key":"child:c#1","definition":"c","input":null}]]}',
        b'{"type":"child_started","key":"child:c#1","run":"r/child:c#1","version":"function","at":2}',
        b'{"type":"cancel_requested","due":33,"at":3,'
        b'"outcomes":[[{"want":"drop","key":"child:c#1"},{"want":"stop"}]]}',
        b'{"type":"child_closed","key":"child:c#1","status":"COMPLETED","output":8,"at":4,'
        b'"undo":[{"key":"x#1","activity":"undo","arguments":[8]}]}',
    ):
        evolve(flow, decode_event(text))
    assert list(flow.run.undoing) == ["child:c#1/x#1"]


class FailingStore(MemoryStore):
    """Fails when it is told to."""

    follows = appends = 0

    async def follow(self, **wanted: Any) -> list[Stored]:
        if self.follows:
            self.follows -= 1
            raise StoreError("for a moment")
        return await super().follow(**wanted)

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        if self.appends:
            self.appends -= 1
            raise StoreError("for a moment")
        return await super().append(appends)


@activity
async def work() -> int:
    return 1


STEP = {"id": "step", "tasks": {"a": {"do": "work"}, "b": {"do": "work", "after": "a"}}}


async def test_what_another_wrote_is_looked_at_though_the_store_failed_meanwhile() -> None:
    """A lost wake-up: the owner, which had heard nothing of it, saw at its own next commit that another had written; the
    store failed to tell what, and nobody asked again (SPEC 4.8)."""
    clock = SkipClock()
    stores = [FailingStore("looked", clock=clock.now) for _ in range(2)]
    async with (
        harness(activities=[work], store=stores[0], clock=clock) as owner,
        harness(activities=[work], store=stores[1], clock=clock) as other,
    ):
        await owner.register(STEP)
        await other.start("step", id="theirs")
        stores[0].follows = 2
        await owner.finish(await owner.start("step", id="ours"))
        await owner.skip(seconds=5)
        assert await (await owner.get("theirs")).status() == "COMPLETED"
    MemoryStore.forget("looked")


async def test_a_store_that_fails_for_long_leaves_no_heap_of_things_to_look_at() -> None:
    """Each failure added one more look at the run to all those before it."""
    store = FailingStore()
    async with harness(activities=[work], store=store) as engine:
        await engine.register(STEP)
        run = await engine.start("step", id="r")
        store.appends = 100
        for _ in range(60):
            await engine.skip(seconds=0.5)
        assert store.appends < 50
        assert len(engine.core.commits.again) <= 4
        store.appends = 0
        await engine.finish(run)


@workflow
async def goes_on(ctx: Context, n: int) -> int:
    if n < 3:
        ctx.continue_as_new(n + 1)
    return n


async def test_a_start_that_is_repeated_attaches_though_the_function_has_gone_on_as_new() -> None:
    """Its answer was lost and it was asked for again: the input was compared with that of the newest generation."""
    async with harness(workflows=[goes_on]) as engine:
        run = await engine.start(goes_on, 1, id="r")
        assert await engine.finish(run) == 3
        assert (await run.show()).generation == 3
        again = await engine.start(goes_on, 1, id="r")
        assert await again.result() == 3
        with pytest.raises(Rejected, match="another definition or input"):
            await engine.start(goes_on, 3, id="r")


@activity(retry=Retry(attempts=3, first=60))
async def never() -> int:
    raise RuntimeError("not now")


@workflow
async def steps(ctx: Context) -> list[int | None]:
    await ctx.sleep(3600)
    return [await ctx.call(never), await ctx.signal("go")]


async def test_a_function_goes_on_when_an_operator_skips_what_it_waits_for() -> None:
    """The step was skipped, the function was not told of it, and the run waited for nothing (SPEC 4.8, 4.9)."""
    async with harness(workflows=[steps], activities=[never]) as engine:
        run = await engine.start(steps, id="r")
        for key in ("sleep#1", "never#1", "signal:go#1"):
            await engine.settle()
            await run.skip(key, by="ann")
        assert await engine.finish(run) == [None, None]
        assert (await engine.types(run)).count("task_skipped") == 3


@activity
async def lingers() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        for _ in range(20):
            await asyncio.sleep(0)


async def test_an_engine_that_is_closed_by_two_at_once_is_closed() -> None:
    """The first waited for an attempt to end, the second did not, and the first found everything gone."""
    async with harness(activities=[lingers]) as engine:
        await engine.register({"id": "long", "tasks": {"a": {"do": "lingers"}}})
        await engine.start("long", id="r")
        for _ in range(5):
            await asyncio.sleep(0)
        await asyncio.gather(engine.close(), engine.close())


class Gated(MemoryStore):
    """Answers once, late, with what was there when it was asked."""

    gate: asyncio.Event | None = None

    async def events_many(self, keys: Mapping[int, int]) -> dict[int, list[Stored]]:
        found, gate = await super().events_many(keys), self.gate
        if gate is not None:
            self.gate = None
            await gate.wait()
        return found


async def test_recovery_takes_no_run_as_it_was_before_this_process_wrote_to_it() -> None:
    """A lost wake-up: a signal came while runs were taken over; the run left the memory again, and recovery, which had
    read it before, put the older one there, which wanted nothing (SPEC 4.8)."""
    clock = SkipClock()
    definition = {
        "id": "go",
        "tasks": {"g": {"type": "signal", "name": "go"}, "a": {"do": "work", "after": "g"}},
    }
    async with harness(activities=[work], store=MemoryStore("gated"), clock=clock) as first:
        await first.register(definition)
        await first.start("go", id="r")
        first.core.broken = RuntimeError("as if it had died")  # no clean end
    store = Gated("gated", clock=clock.now)
    worker = LocalActivities(Registry([work]), clock, watch=False)
    settings = Settings(cache_runs=0, drain_seconds=0)
    core = Core(store, worker, clock, bus=MemoryBus(clock), settings=settings)
    ownership = Ownership(core)
    runs = LocalRuns(core, ownership)
    second = Harness(core, runs, clock)
    await core.open()
    gate = store.gate = asyncio.Event()
    opening = asyncio.ensure_future(ownership.open(keep=False))
    while store.gate is not None:  # noqa: ASYNC110 - until it was asked
        await asyncio.sleep(0)
    await (await second.get("r")).signal("go", 1)
    gate.set()
    await opening
    await second.skip(seconds=5)
    assert await (await second.get("r")).status() == "COMPLETED"
    await runs.close()
    MemoryStore.forget("gated")


async def test_who_is_taken_over_from_while_it_takes_over_records_no_losses() -> None:
    """It went on with its recovery, and recorded what the new owner had just begun as lost, as one who may write
    without a token (SPEC 4.8)."""
    clock = SkipClock()
    definition = {"id": "one", "tasks": {"a": {"do": "lingers"}}}
    async with harness(activities=[lingers], store=MemoryStore("taken"), clock=clock) as first:
        await first.register(definition)
        await first.start("one", id="r")
        first.core.broken = RuntimeError("as if it had died")
    store = Gated("taken", clock=clock.now)
    worker = LocalActivities(Registry([lingers]), clock, watch=False)
    core = Core(store, worker, clock, bus=MemoryBus(clock), settings=Settings(drain_seconds=0))
    ownership = Ownership(core)
    runs = LocalRuns(core, ownership)
    await core.open()
    events = len(await store.follow(after=0))
    gate = store.gate = asyncio.Event()
    opening = asyncio.ensure_future(ownership.open(keep=False))
    while store.gate is not None:  # noqa: ASYNC110 - until it was asked
        await asyncio.sleep(0)
    core.lost_ownership(Fenced(token=2, newest=3))
    gate.set()
    await opening
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(await store.follow(after=0)) == events
    await runs.close()
    MemoryStore.forget("taken")


@activity(transactional=True)
def booked(connection: sqlite3.Connection, n: int) -> int:
    connection.execute("CREATE TABLE IF NOT EXISTS mine (n)")
    connection.execute("INSERT INTO mine VALUES (?)", (n,))
    return n + 1


@workflow
async def books(ctx: Context) -> int:
    return await ctx.call(booked, await ctx.call(booked, 7))


async def test_a_function_gives_a_transactional_activity_its_arguments_by_position(
    tmp_path: Path,
) -> None:
    """They were taken for the connection, and every such run failed (SPEC 2.8, 4.3)."""
    store = SqliteStore(str(tmp_path / "a.db"))
    async with harness(workflows=[books], activities=[booked], store=store) as engine:
        assert await engine.finish(await engine.start(books, id="r")) == 9
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        assert database.execute("SELECT n FROM mine").fetchall() == [(7,), (8,)]


@workflow
async def goes_further(ctx: Context, n: int = 0) -> int:
    if n < 1:
        ctx.continue_as_new(n + 1)
    return await ctx.signal("go")


async def test_recovery_takes_the_newest_generation_though_the_one_before_has_more_events() -> None:
    """A lost wake-up, seed 19856: who was asked something of a run had read it as it was before it went on as new, and
    what recovery read later was taken for older, by its number of events (SPEC 4.8)."""
    async with harness(workflows=[goes_further]) as engine:
        run = await engine.start(goes_further, id="r")
        await engine.settle()
        core = engine.core
        entries: list[Entry] = []
        for generation in (1, 2):
            row = await core.store.find("r", generation)
            assert row is not None
            entry = (await core.history.load([row]))["r"]
            assert isinstance(entry, Entry)
            entries.append(entry)
        before, newest = entries
        assert before.row.revision > newest.row.revision
        core.cache["r"] = before
        core.adopt(newest)
        assert core.cache["r"] is newest
        await run.signal("go", 3)
        assert await run.result() == 3


class SlowToTell(MemoryStore):
    """Holds back what it has read."""

    hold: asyncio.Event | None = None
    asked = False

    async def events_many(self, keys: Mapping[int, int]) -> dict[int, list[Stored]]:
        found = await super().events_many(keys)
        if self.hold is not None:
            self.asked = True
            await self.hold.wait()
        return found


async def test_what_another_wrote_while_a_run_was_read_is_seen_by_who_looks_because_of_it() -> None:
    """The hint of it let go of what was in memory, and then came what had been read before: whoever looked found that."""
    clock = SkipClock()
    stores = [SlowToTell("read", clock=clock.now) for _ in range(2)]
    async with (
        harness(activities=[work], store=stores[0], clock=clock) as owner,
        harness(activities=[work], store=stores[1], clock=clock) as other,
    ):
        await owner.register(
            {"id": "w", "tasks": {"s": {"type": "signal", "name": "go"}, "a": {"do": "work", "after": "s"}}}
        )  # fmt: skip
        run = await owner.start("w", id="r")
        await owner.settle()
        owner.core.cache.clear()
        stores[0].hold = asyncio.Event()
        reading = asyncio.ensure_future(owner.core.read("r", lambda flow: flow.run.revision))
        while not stores[0].asked:  # noqa: ASYNC110 - until it is being read
            await asyncio.sleep(0)
        await (await other.get("r")).signal("go", 5)
        owner.core.refresh("r")  # as its hint does
        stores[0].hold.set()
        stores[0].hold = None
        await reading
        await owner.settle()
        assert await run.status() == "COMPLETED"
    MemoryStore.forget("read")
