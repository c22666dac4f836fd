"""One act on many runs, in steps that a crash does not double (SPEC 4.4)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Rejected, activity
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine import batches, points
from penstock.ports.store import Query
from penstock.testing.harness import Harness, SkipClock, harness

WAITS = {"id": "waits", "tasks": {"s": {"type": "signal", "name": "go"}}}
FAILS = {"id": "fails", "tasks": {"a": {"do": "work"}}}
BROKEN: list[bool] = []


@activity
async def work() -> None:
    if BROKEN:
        raise penstock.Fail("broken")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "STEP", 5)
    BROKEN.clear()


async def started(engine: Harness, count: int, **more: Any) -> None:
    await engine.register(WAITS)
    for number in range(count):
        await engine.start("waits", number, id=f"r{number}", **more)


async def test_an_act_is_done_to_all_that_a_filter_finds() -> None:
    async with harness() as engine:
        await started(engine, 12, attributes={"region": "eu"})
        await engine.start("waits", 1, id="other")
        batch = await engine.batch(
            "cancel", status="OPEN", attributes={"region": "eu"}, by="ann", reason="moved"
        )
        assert batch.total == 12
        await engine.settle()
        batch = await engine.batches.get(batch.id)
        assert (batch.state, batch.done, batch.refused) == ("done", 12, {})
        assert {row.id for row in await engine.list(status="OPEN")} == {"other"}
        asked = next(
            i.event
            for i in await (await engine.get("r3")).history()
            if i.type == "cancel_requested"
        )
        assert (asked.by, asked.reason) == ("ann", "moved")  # type: ignore[union-attr]
        assert [each.id for each in await engine.batches.list()] == [batch.id]


async def test_refusals_are_counted_by_code() -> None:
    async with harness() as engine:
        await started(engine, 7)
        for number in (1, 4):
            await (await engine.get(f"r{number}")).terminate()
        batch = await engine.batch("signal", id_prefix="r", arguments={"name": "go", "payload": 1})
        await engine.settle()
        batch = await engine.batches.get(batch.id)
        assert (batch.state, batch.done, batch.refused) == ("done", 5, {"run-closed": 2})
        assert {each.run for each in batch.examples} == {"r1", "r4"}


async def test_failed_runs_are_retried_together() -> None:
    async with harness(activities=[work]) as engine:
        await engine.register(FAILS)
        BROKEN.append(True)
        for number in range(8):
            await engine.start("fails", number, id=f"f{number}")
        await engine.settle()
        BROKEN.clear()
        await engine.batch("retry", status="FAILED", definition="fails", by="ann")
        await engine.settle()
        rows = await engine.list(status="COMPLETED", limit=20)
        assert len(rows) == 8
        assert {row.generation for row in rows} == {2}


async def test_a_batch_is_stopped_and_goes_on() -> None:
    async with harness() as engine:
        await started(engine, 23)

        def stop(point: str) -> None:
            if point == "batch.acted":
                points.reach = None
                stopping.append(asyncio.ensure_future(engine.batches.stop("b")))

        stopping: list[asyncio.Future[Any]] = []
        points.reach = stop
        try:
            await engine.batch("pause", definition="waits", id="b")
            await engine.settle()
        finally:
            points.reach = None
        batch = await engine.batches.get("b")
        assert batch.state == "stopped"
        assert 5 <= batch.seen < 23
        assert len(await engine.list(status="PAUSED", limit=50)) == batch.done
        await engine.skip(3600)
        resumed = await engine.batches.resume("b")
        assert resumed.pace(engine.clock.now() + 2.0) == (
            0,
            2.0,
        )  # the hour that it stood still does not count
        await engine.settle()
        batch = await engine.batches.wait("b")
        assert batch.pace(engine.clock.now() + 9.0) == (23 - resumed.seen, 0.0)
        assert (batch.state, batch.done) == ("done", 23)
        with pytest.raises(Rejected) as caught:
            await engine.batches.stop("b")
        assert caught.value.code == "batch-over"


class Killed(BaseException):
    pass


@pytest.mark.parametrize("point", ["batch.page", "batch.acted"])
async def test_a_crash_in_a_step_doubles_nothing(tmp_path: Path, point: str) -> None:
    """As a kill leaves it: the record says which runs are in turn, whatever was done to them."""
    clock, path = SkipClock(), tmp_path / "a.db"
    reached = 0

    def kill(name: str) -> None:
        nonlocal reached
        reached += name == point
        if reached == 2:
            points.reach = None
            raise penstock.errors.StoreError("killed")

    async with harness(store=SqliteStore(path, clock=clock.now), clock=clock) as engine:
        await started(engine, 17)
        points.reach = kill
        try:
            await engine.batch("signal", definition="waits", arguments={"name": "go"}, id="b")
            await engine.settle()
        finally:
            points.reach = None
        before = await engine.batches.get("b")
        assert before.state == "running"
        assert before.done == 5
    async with harness(store=SqliteStore(path, clock=clock.now), clock=clock) as engine:
        await engine.settle()
        batch = await engine.batches.get("b")
        assert (batch.state, batch.done, batch.refused) == ("done", 17, {})
        for number in range(17):
            types = await engine.types(await engine.get(f"r{number}"))
            assert types.count("signal_received") == 1, number


async def test_bad_batches_are_refused() -> None:
    async with harness() as engine:
        for act, arguments, code in (
            ("explode", {}, "act-unknown"),
            ("signal", {}, "batch-invalid"),
            ("cancel", {"key": 1}, "batch-invalid"),
        ):
            with pytest.raises(Rejected) as caught:
                await engine.batch(act, arguments=arguments)
            assert caught.value.code == code
        await engine.batch("cancel", status="OPEN", id="b")
        await engine.batch("cancel", status="OPEN", id="b")
        with pytest.raises(Rejected) as caught:
            await engine.batch("pause", status="OPEN", id="b")
        assert caught.value.code == "key-reused"


async def test_another_process_asks_and_the_owner_does_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with penstock.open(url) as owner, penstock.open(url, execute=False) as other:
        await owner.register(WAITS)
        for number in range(9):
            await owner.start("waits", number, id=f"r{number}")
        batch = await other.batch("terminate", status="OPEN", by="ann")
        batch = await asyncio.wait_for(other.batches.wait(batch.id), 10)
        assert (batch.state, batch.done) == ("done", 9)


@pytest.mark.parametrize(
    ("act", "given", "code"),
    [
        ("attributes", {"arguments": {"values": "abc"}}, "batch-invalid"),
        ("signal", {"arguments": {"name": 5}}, "batch-invalid"),
        ("retry", {"arguments": {"task": []}}, "batch-invalid"),
    ],
)
async def test_an_argument_of_a_wrong_type_is_refused_at_the_call(
    act: str, given: dict[str, Any], code: str
) -> None:
    async with harness() as engine:
        await started(engine, 1)
        with pytest.raises(Rejected) as refused:
            await engine.batch(act, **given)
        assert refused.value.code == code
        assert await engine.batches.list() == []


async def test_a_filter_of_a_wrong_type_is_refused_at_the_call() -> None:
    async with harness() as engine:
        await started(engine, 1)
        for bad, code in (
            ({"status": 5}, "text-invalid"),
            ({"attributes": "abc"}, "wrong-type"),
            ({"created_after": "now"}, "time-invalid"),
        ):
            query: Any = Query(**bad)
            with pytest.raises(Rejected) as refused:
                await engine.batches.start("pause", query, arguments={})
            assert refused.value.code == code
        assert await engine.batches.list() == []


async def test_a_failure_of_our_own_is_a_refusal_and_the_batch_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = batches.LocalBatches._one  # pyright: ignore[reportPrivateUsage]

    async def broken(self: Any, batch: Any, id: str) -> None:
        if id == "r1":
            raise KeyError("oh")
        await one(self, batch, id)

    monkeypatch.setattr(batches.LocalBatches, "_one", broken)
    async with harness() as engine:
        await started(engine, 3)
        batch = await engine.batch("pause", definition="waits")
        await engine.settle()
        batch = await engine.batches.get(batch.id)
        assert (batch.state, batch.done, batch.refused) == ("done", 2, {"internal": 1})
