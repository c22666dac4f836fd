"""Starts that a key holds together: singleton and debounce, with ends of the process in between (SPEC 4.6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock import Debounce, NotFound, Rejected, Singleton
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite import SqliteStore
from penstock.engine import points
from penstock.engine.schedules import TRIES_MAX
from penstock.testing.harness import NOON, Harness, SkipClock, harness

ECHO = {
    "id": "echo",
    "inputSchema": {"type": "integer"},
    "tasks": {"a": {"type": "transform", "set": {"n": "input"}}},
    "outputs": {"n": "data.n"},
}
SLOW = {"id": "slow", "tasks": {"a": {"type": "timer", "delay": "2h"}}}


async def ready(engine: Harness) -> Harness:
    for definition in (ECHO, SLOW):
        await engine.register(definition)
    return engine


async def test_a_second_start_attaches_to_the_open_run_and_after_its_end_begins_another() -> None:
    async with harness() as engine:
        await ready(engine)
        first = await engine.start("slow", 1, singleton="daily")
        second = await engine.start("slow", 2, singleton="daily", id="mine")
        other = await engine.start("slow", 2, singleton="else", id="other")
        assert second.id == first.id
        assert other.id == "other"
        with pytest.raises(Rejected) as refused:
            await engine.start("slow", 2, singleton=Singleton("daily", attach=False))
        assert refused.value.code == "singleton-open"
        await engine.skip(hours=3)
        third = await engine.start("slow", 3, singleton="daily", id="third")

        assert third.id == "third"
        assert (await first.status(), await third.status()) == ("COMPLETED", "WAITING")


async def test_many_at_once_make_one_run() -> None:
    async with harness() as engine:
        await ready(engine)
        runs = await asyncio.gather(
            *(engine.start("slow", n, singleton="one") for n in range(TRIES_MAX // 2))
        )

        assert len({run.id for run in runs}) == 1
        assert len(await engine.list(definition="slow")) == 1


async def test_a_starter_that_died_is_stood_in_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def reach(name: str) -> None:
        if name == "singleton.named":
            raise KeyError(name)

    async with harness() as engine:
        await ready(engine)
        monkeypatch.setattr(points, "reach", reach)
        with pytest.raises(KeyError):
            await engine.start("slow", 1, singleton="one", id="first")
        monkeypatch.setattr(points, "reach", None)
        run = await engine.start("slow", 2, singleton="one", id="second")

        assert run.id == "first"
        assert (await run.show()).input == 2


async def test_records_of_ended_runs_are_taken_away() -> None:
    async with harness() as engine:
        await ready(engine)
        run = await engine.start("slow", 1, singleton="one")
        await engine.skip(hours=1, minutes=30)
        for _ in range(12):
            await engine.core.tending.look_around()
        await engine.settle()
        record = await engine.core.store.record("singleton", "one")
        assert record is not None
        assert record.expires is None  # still open
        await engine.skip(hours=2)
        for _ in range(12):
            await engine.core.tending.look_around()
        await engine.settle()
        assert await run.status() == "COMPLETED"

        record = await engine.core.store.record("singleton", "one")
        assert record is not None
        assert record.expires is not None


async def test_starts_within_the_window_become_one_run_with_the_last_input() -> None:
    async with harness() as engine:
        await ready(engine)
        runs = []
        for n in range(5):
            runs.append(await engine.start("echo", n, debounce=Debounce("k", 10)))
            await engine.skip(5)
        assert len({run.id for run in runs}) == 1
        with pytest.raises(NotFound):
            await runs[0].show()
        await engine.skip(5)
        assert await runs[0].result() == {"n": 4}
        again = await engine.start("echo", 9, debounce=Debounce("k", "10s"))
        await engine.skip(10)

        assert again.id != runs[0].id
        assert await again.result() == {"n": 9}


async def test_it_waits_at_most_so_long() -> None:
    async with harness() as engine:
        await ready(engine)
        for n in range(12):
            run = await engine.start("echo", n, debounce=Debounce("k", 10, at_most="30s"))
            await engine.skip(5)
        await engine.skip(20)

        rows = sorted(await engine.list(definition="echo"), key=lambda row: row.created_at)
        assert [row.created_at - NOON for row in rows] == [30, 60]
        assert await run.result() == {"n": 11}


@pytest.mark.parametrize("point", ["debounce.decided", "debounce.started", ""])
async def test_a_window_survives_the_process_and_starts_once(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SkipClock()
    path = tmp_path / "d.db"
    async with harness(store=SqliteStore(path, clock=clock.now), clock=clock) as engine:
        await ready(engine)
        run = await engine.start("echo", 7, debounce=Debounce("k", 10), attributes={"a": 1})

        def reach(name: str, core: Any = engine.core) -> None:
            if name == point:
                core.stopping = True
                raise KeyError(name)

        monkeypatch.setattr(points, "reach", reach)
        await engine.skip(10 if point else 5)
        monkeypatch.setattr(points, "reach", None)
        engine.core.stopping = False
    async with harness(store=SqliteStore(path, clock=clock.now), clock=clock) as engine:
        newer = await engine.start("echo", 8, debounce=Debounce("k", 10))
        await engine.skip(20)

        assert len(await engine.list(definition="echo")) == (2 if point else 1)
        assert (newer.id == run.id) is not bool(point)
        assert await (await engine.get(run.id)).result() == {"n": 7 if point else 8}
        assert await newer.result() == {"n": 8}


async def test_a_start_that_comes_as_the_window_ends_is_not_lost() -> None:
    clock = SkipClock()
    store = MemoryStore("race", clock=clock.now)
    try:
        async with harness(store=store, clock=clock) as engine:
            await ready(engine)
            await engine.start("echo", 1, debounce=Debounce("k", 10))
            clock.move(clock.now() + 10)  # it is due, and nothing was done about it yet
            late = await engine.start("echo", 2, debounce=Debounce("k", 10))
            await engine.skip(30)

            assert await late.result() == {"n": 2}
            results = {
                (await (await engine.get(row.id)).result())["n"] for row in await engine.list()
            }
            assert 2 in results
    finally:
        MemoryStore.forget("race")


@pytest.mark.parametrize(
    "bad",
    [
        Debounce("", 5), Debounce("k", 0), Debounce("k", -1), Debounce("k", "soon"), Debounce("k", 10, at_most=5),
        Debounce("k\n", 5), Debounce("k", float("nan")),
    ],
)  # fmt: skip
async def test_bad_windows_are_refused(bad: Debounce) -> None:
    async with harness() as engine:
        await ready(engine)
        with pytest.raises(Rejected) as refused:
            await engine.start("echo", 1, debounce=bad)

        assert refused.value.code in ("debounce-invalid", "id-invalid")


async def test_bad_starts_are_refused_at_once() -> None:
    async with harness() as engine:
        await ready(engine)
        with pytest.raises(Rejected) as refused:
            await engine.start("echo", "text", debounce=Debounce("k", 5))
        assert refused.value.code == "input-invalid"
        with pytest.raises(NotFound):
            await engine.start("nothing", 1, debounce=Debounce("k", 5))
        with pytest.raises(Rejected):
            await engine.start("echo", 1, debounce=Debounce("k", 5), singleton="k")
        with pytest.raises(Rejected):
            await engine.start("echo", 1, singleton="")


async def test_a_debounced_start_whose_id_is_taken_is_refused_and_none_is_lost_unsaid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with harness() as engine:
        await ready(engine)
        await engine.start("echo", 1, id="x")
        with pytest.raises(Rejected) as refused:
            await engine.start("echo", 2, id="x", debounce=Debounce("k", seconds=5))
        assert refused.value.code == "id-taken"
        same = await engine.start("echo", 1, id="x", debounce=Debounce("k", seconds=5))
        await engine.skip(10)
        assert same.id == "x"
        assert "debounce.refused" not in caplog.text

        await engine.start("echo", 3, id="y", debounce=Debounce("l", seconds=5))
        await engine.start("echo", 4, id="y")
        await engine.skip(10)
        assert "debounce.refused" in caplog.text
