"""Schedules on the engine, on a clock that skips: firings, overlap, catch-up, backfill, acts (SPEC 4.6)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import Calendar, NotFound, Rejected
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite import SqliteStore
from penstock.engine import points
from penstock.ports.store import Store
from penstock.testing.harness import Harness, SkipClock, harness

QUICK = {"id": "quick", "tasks": {"a": {"type": "transform", "set": {"n": "1"}}}}
SLOW = {"id": "slow", "tasks": {"a": {"type": "timer", "delay": "150m"}}}
PICKY = {
    "id": "picky",
    "inputSchema": {"type": "object", "required": ["n"]},
    "tasks": {"a": {"type": "transform", "set": {"n": "1"}}},
}
NOON = "2026-01-01T12:00:00Z"
Opening = Callable[[], Any]


@asynccontextmanager
async def opened(
    store: Store | None = None, clock: SkipClock | None = None
) -> AsyncIterator[Harness]:
    async with harness(store=store, clock=clock) as engine:
        for definition in (QUICK, SLOW, PICKY):
            await engine.register(definition)
        yield engine


async def ids(engine: Harness, prefix: str = "s/") -> list[str]:
    rows = await engine.list(id_prefix=prefix, limit=1000)
    return sorted(row.id.removeprefix(prefix) for row in rows)


async def test_cron_starts_runs_under_their_nominal_times() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "quick", cron="0 9 * * MON-FRI", zone="Europe/Berlin")
        await engine.skip(days=5)

        assert await ids(engine) == [
            "2026-01-02T08:00:00Z",
            "2026-01-05T08:00:00Z",
            "2026-01-06T08:00:00Z",
        ]
        run = await engine.get("s/2026-01-05T08:00:00Z")
        view = await run.show()
        assert view.metadata == {"schedule": "s", "nominal": "2026-01-05T08:00:00Z"}
        assert view.created_by == "schedule:s"
        assert view.created_at == datetime(2026, 1, 5, 8, tzinfo=UTC).timestamp()


async def test_skip_leaves_out_what_falls_into_an_open_run() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "slow", every="1h")
        await engine.skip(hours=7)

        assert await ids(engine) == [f"2026-01-01T{hour}:00:00Z" for hour in ("13", "16", "19")]
        view = await engine.schedules.get("s")
        assert (view.counts.started, view.counts.skipped) == (3, 4)
        assert view.open == ["s/2026-01-01T19:00:00Z"]


async def test_allow_starts_all() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "slow", every="1h", overlap="allow")
        await engine.skip(hours=3)

        assert len(await ids(engine)) == 3
        assert len((await engine.schedules.get("s")).open) == 3


async def test_buffered_starts_begin_when_the_open_run_ends() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "slow", every="1h", overlap="buffer", buffer=2)
        await engine.skip(hours=4, minutes=10)  # 13, 14 and 15 buffered; 13 ends 15:30; 16 buffered

        view = await engine.schedules.get("s")
        assert await ids(engine) == ["2026-01-01T13:00:00Z", "2026-01-01T14:00:00Z"]
        assert view.buffered == ["s/2026-01-01T15:00:00Z", "s/2026-01-01T16:00:00Z"]
        run = await engine.get("s/2026-01-01T14:00:00Z")
        assert (await run.show()).created_at == datetime(2026, 1, 1, 15, 30, tzinfo=UTC).timestamp()
        await engine.skip(hours=1)
        assert (await engine.schedules.get("s")).counts.skipped == 1  # 17:00


async def test_cancel_other_starts_the_newest_when_the_other_has_stopped() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "slow", every="1h", overlap="cancel-other")
        await engine.skip(hours=3)

        assert await ids(engine) == [f"2026-01-01T{hour}:00:00Z" for hour in ("13", "14", "15")]
        first = await (await engine.get("s/2026-01-01T13:00:00Z")).show()
        assert first.status == "CANCELLED"
        assert (await engine.schedules.get("s")).open == ["s/2026-01-01T15:00:00Z"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_was_missed_is_made_up_for_within_the_window(kind: str, tmp_path: Path) -> None:
    clock = SkipClock()
    store = MemoryStore("missed", clock=clock.now) if kind == "memory" else None
    try:
        async with opened(
            store or SqliteStore(tmp_path / "s.db", clock=clock.now), clock
        ) as engine:
            await engine.schedules.create("s", "quick", every="1h", overlap="allow", catch_up="3h")
        clock.move(clock.now() + 10 * 3600 + 60)
        store = MemoryStore("missed", clock=clock.now) if kind == "memory" else None
        async with opened(
            store or SqliteStore(tmp_path / "s.db", clock=clock.now), clock
        ) as engine:
            await engine.settle()

            assert await ids(engine) == [f"2026-01-01T{hour}:00:00Z" for hour in (20, 21, 22)]
            view = await engine.schedules.get("s")
            assert (view.counts.started, view.counts.missed) == (3, 7)
    finally:
        MemoryStore.forget("missed")


async def test_years_of_missed_minutes_are_passed_over_at_once() -> None:
    clock = SkipClock()
    store = MemoryStore("long", clock=clock.now)
    try:
        async with opened(store, clock) as engine:
            await engine.schedules.create(
                "s", "quick", cron="* * * * *", overlap="allow", catch_up=60
            )
        clock.move(clock.now() + 10 * 365 * 86400 + 30)
        async with opened(MemoryStore("long", clock=clock.now), clock) as engine:
            await engine.settle()

            assert len(await ids(engine)) == 1
            assert (await engine.schedules.get("s")).counts.missed >= 1000
    finally:
        MemoryStore.forget("long")


async def test_jitter_delays_the_start_and_not_the_name() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "quick", every="1h", jitter="10m")
        await engine.skip(hours=5)

        assert await ids(engine) == [f"2026-01-01T{hour}:00:00Z" for hour in (13, 14, 15, 16)] or (
            await ids(engine)
        ) == [f"2026-01-01T{hour}:00:00Z" for hour in (13, 14, 15, 16, 17)]
        late = []
        for row in await engine.list(id_prefix="s/"):
            nominal = datetime.fromisoformat(row.id.removeprefix("s/")).timestamp()
            late.append(row.created_at - nominal)
        assert all(0 <= each < 600 for each in late)
        assert any(each > 1 for each in late)


async def test_pause_and_resume_with_who_and_why() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "quick", every="1h", by="ann", reason="reports")
        await engine.schedules.pause("s", by="bob", reason="stock count")
        await engine.skip(hours=3)
        paused = await engine.schedules.get("s")
        assert (paused.paused, paused.note, paused.next) == (True, "stock count", [])
        assert await ids(engine) == []
        await engine.schedules.resume("s", by="bob")
        await engine.skip(hours=1)

        assert await ids(engine) == ["2026-01-01T16:00:00Z"]
        view = await engine.schedules.get("s")
        assert [(act.act, act.by, act.reason) for act in view.acts] == [
            ("create", "ann", "reports"),
            ("pause", "bob", "stock count"),
            ("resume", "bob", ""),
        ]


async def test_trigger_now() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "slow", every="1d", paused=True)
        first = await engine.schedules.trigger("s", by="ann", reason="try it")
        assert first.run == f"s/{NOON}"
        assert (await (await engine.get(first.run)).show()).created_by == "ann"
        with pytest.raises(Rejected, match="is open") as refused:
            await engine.schedules.trigger("s")
        assert refused.value.code == "schedule-overlap"
        second = await engine.schedules.trigger("s", overlap="allow")
        assert second.run == "s/2026-01-01T12:00:00.001Z"
        await engine.schedules.resume("s")
        third = await engine.schedules.trigger("s", overlap="buffer")
        assert third.waits
        with pytest.raises(NotFound):
            await engine.get(third.run)
        await engine.skip(hours=3)

        assert await (await engine.get(third.run)).status() == "WAITING"


async def test_update_keeps_the_past_and_does_not_fire_for_it() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "quick", {"n": 1}, every="1h")
        await engine.skip(hours=2)
        await engine.schedules.update("s", cron="30 * * * *", by="ann", reason="half past")
        await engine.skip(hours=2)
        view = await engine.schedules.get("s")

        assert await ids(engine) == [
            f"2026-01-01T{time}:00Z" for time in ("13:00", "14:00", "14:30", "15:30")
        ]
        assert (view.number, view.timing.cron, view.timing.every) == (2, ("30 * * * *",), None)
        assert view.input == {"n": 1}
        assert [(past["number"], past["plan"]["timing"]["every"]) for past in view.past] == [
            (1, 3600.0)
        ]


async def test_delete_ends_it_and_its_name_can_be_used_again() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "quick", every="1h")
        await engine.skip(hours=1)
        await engine.schedules.delete("s", by="ann")
        await engine.skip(hours=2)
        assert await engine.schedules.list() == []
        with pytest.raises(NotFound):
            await engine.schedules.get("s")
        await engine.schedules.create("s", "quick", every="2h")
        await engine.skip(hours=2)

        assert await ids(engine) == ["2026-01-01T13:00:00Z", "2026-01-01T16:00:00Z"]


async def test_the_same_schedule_again_is_a_no_op_and_another_is_refused() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "quick", {"n": 1}, cron="@daily")
        await engine.schedules.create("s", "quick", {"n": 1}, cron="@daily")
        with pytest.raises(Rejected) as refused:
            await engine.schedules.create("s", "quick", {"n": 2}, cron="@daily")

        assert refused.value.code == "schedule-exists"
        assert len((await engine.schedules.get("s")).acts) == 1


async def test_backfill_starts_what_is_missing_in_batches() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "quick", every="1h", overlap="allow")
        await engine.skip(hours=2)
        job = await engine.schedules.backfill(
            "s", "2025-12-20T00:00:00Z", datetime(2026, 1, 1, 13, tzinfo=UTC), by="ann"
        )
        assert job.total == 12 * 24 + 14
        await engine.settle()

        found = await ids(engine)
        assert len(found) == job.total + 1  # 13:00 had its run already
        assert found[0] == "2025-12-20T00:00:00Z"
        view = await engine.schedules.get("s")
        assert view.backfills == []
        assert view.acts[-1].act == "backfill 1 done"


async def test_backfill_one_after_the_other_survives_a_restart() -> None:
    clock = SkipClock()
    try:
        async with opened(MemoryStore("fill", clock=clock.now), clock) as engine:
            await engine.schedules.create("s", "slow", every="1d")
            await engine.schedules.backfill(
                "s", "2025-12-28T00:00:00Z", "2025-12-31T00:00:00Z", overlap="buffer"
            )
            await engine.skip(hours=3)
            view = await engine.schedules.get("s")
            assert (view.backfills[0].done, view.backfills[0].total) == (2, 4)
        async with opened(MemoryStore("fill", clock=clock.now), clock) as engine:
            await engine.skip(hours=8)

            assert len(await ids(engine)) == 4
            assert (await engine.schedules.get("s")).open == []
    finally:
        MemoryStore.forget("fill")


async def test_backfill_of_ten_years_of_minutes_is_refused_with_where_to_stop() -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "quick", cron="* * * * *", paused=True)
        with pytest.raises(Rejected) as refused:
            await engine.schedules.backfill("s", "2016-01-01T00:00:00Z", NOON)

        assert refused.value.code == "backfill-too-large"
        assert refused.value.hint is not None
        assert "2016-01-07T22:39:00Z" in refused.value.hint
        for begin, end, overlap in [
            (NOON, "2026-01-01T11:00:00Z", "allow"),
            ("2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z", "allow"),
            ("yesterday", NOON, "allow"),
            ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "allow"),
            ("2026-01-01T00:00:00Z", NOON, "cancel-other"),
        ]:
            with pytest.raises(Rejected) as refused:
                await engine.schedules.backfill("s", begin, end, overlap=overlap)
            assert refused.value.code == "backfill-invalid"
        assert (await engine.schedules.get("s")).backfills == []


async def test_buffered_starts_survive_a_restart() -> None:
    clock = SkipClock()
    try:
        async with opened(MemoryStore("buffer", clock=clock.now), clock) as engine:
            await engine.schedules.create("s", "slow", every="1h", overlap="buffer")
            await engine.skip(hours=2, minutes=30)
            await engine.schedules.pause("s")
            await engine.schedules.resume("s")
        async with opened(MemoryStore("buffer", clock=clock.now), clock) as engine:
            assert (await engine.schedules.get("s")).buffered == ["s/2026-01-01T14:00:00Z"]
            await engine.skip(hours=1, minutes=10)

            run = await engine.get("s/2026-01-01T14:00:00Z")
            assert (await run.show()).created_at == datetime(
                2026, 1, 1, 15, 30, tzinfo=UTC
            ).timestamp()
    finally:
        MemoryStore.forget("buffer")


async def test_a_start_that_is_refused_is_counted_and_the_next_still_comes() -> None:
    clock = SkipClock()
    store = MemoryStore("refused", clock=clock.now)
    try:
        async with opened(store, clock) as engine:
            await engine.schedules.create("s", "picky", {"n": 1}, every="1h")
            stricter = {**PICKY, "inputSchema": {"type": "object", "required": ["m"]}}
            await engine.register(stricter)
            await engine.skip(hours=2)

            view = await engine.schedules.get("s")
            assert view.counts.failed == 2
            assert "input-invalid" in view.error
            assert await ids(engine) == []
    finally:
        MemoryStore.forget("refused")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"cron": "0 0 30 2 *"}, "cron-never"),
        ({"cron": "0 25 * * *"}, "cron-invalid"),
        ({"cron": "@daily", "zone": "Mars/Olympus"}, "zone-unknown"),
        ({"every": 0}, "interval-invalid"),
        ({"every": "1h", "overlap": "sometimes"}, "overlap-unknown"),
        ({"every": "1h", "buffer": 0.5}, "schedule-invalid"),
        ({"every": "1h", "buffer": 10_000}, "schedule-invalid"),
        ({"every": "1h", "catch_up": "long"}, "schedule-invalid"),
        ({"every": "1h", "priority": "urgent"}, "priority-unknown"),
        ({"every": "1h", "wat": 1}, "schedule-invalid"),
        ({}, "schedule-invalid"),
        ({"calendar": Calendar(dates=("2020-01-01",))}, "schedule-never"),
    ],
)
async def test_what_means_nothing_is_refused_and_nothing_is_kept(
    words: dict[str, Any], code: str
) -> None:
    async with opened() as engine:
        with pytest.raises(Rejected) as refused:
            await engine.schedules.create("s", "quick", **words)

        assert refused.value.code == code
        assert refused.value.hint
        assert await engine.schedules.list() == []


async def test_bad_ids_definitions_and_inputs_are_refused() -> None:
    async with opened() as engine:
        create = engine.schedules.create
        for id in ("", "a/b", "a b", "ä", "x" * 201, "\n"):
            with pytest.raises(Rejected) as refused:
                await create(id, "quick", cron="@daily")
            assert refused.value.code == "id-invalid"
        with pytest.raises(NotFound):
            await create("s", "nothing", cron="@daily")
        with pytest.raises(Rejected) as refused:
            await create("s", "picky", {"x": 1}, cron="@daily")
        assert refused.value.code == "input-invalid"
        for act in (engine.schedules.pause, engine.schedules.trigger, engine.schedules.delete):
            with pytest.raises(NotFound):
                await act("s")


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("point", ["schedule.decided", "schedule.started"])
@pytest.mark.parametrize("overlap", ["skip", "buffer", "cancel-other", "allow"])
async def test_an_end_between_decision_and_record_doubles_and_loses_none(
    point: str, overlap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SkipClock()
    path = tmp_path / "s.db"
    stops = 0
    for life in range(6):
        engine_clock = clock
        async with opened(SqliteStore(path, clock=clock.now), engine_clock) as engine:
            await engine.settle()
            await engine.schedules.create("s", "quick", every="1h", overlap=overlap)
            if life < 5:

                def reach(name: str, core: Any = engine.core) -> None:
                    nonlocal stops
                    if name == point:
                        stops += 1
                        core.stopping = True  # nothing more is done about it in this life
                        raise Died

                monkeypatch.setattr(points, "reach", reach)
            await engine.skip(hours=1)
            monkeypatch.setattr(points, "reach", None)
            engine.core.stopping = False
    assert stops == 5
    async with opened(SqliteStore(path, clock=clock.now), clock) as engine:
        await engine.settle()

        assert await ids(engine) == [f"2026-01-01T{hour}:00:00Z" for hour in range(13, 19)]
        counts = (await engine.schedules.get("s")).counts
        assert (counts.started, counts.skipped, counts.missed) == (6, 0, 0)


async def test_another_process_acts_on_a_schedule_and_the_owner_follows(tmp_path: Path) -> None:
    import penstock

    url = f"sqlite:///{tmp_path / 's.db'}"
    async with penstock.open(url) as owner, penstock.open(url, execute=False) as other:
        await owner.register(QUICK)
        await other.schedules.create("s", "quick", every=1, overlap="allow")
        async for change in _started(owner):
            assert change.startswith("s/")
            break
        triggered = await other.schedules.trigger("s")
        assert await (await other.get(triggered.run)).status() in (
            "RUNNING",
            "COMPLETED",
            "CREATED",
        )
        await other.schedules.delete("s")
        assert await owner.schedules.list() == []


async def _started(engine: Any) -> AsyncIterator[str]:
    import asyncio

    queue: asyncio.Queue[str] = asyncio.Queue()
    engine.on("run_started", lambda change: queue.put_nowait(change.run_id))
    while True:
        yield await asyncio.wait_for(queue.get(), 10)


async def test_a_change_loses_no_moment_that_its_jitter_holds_back() -> None:
    async with opened() as engine:
        for id in ("s", "t"):
            await engine.schedules.create(id, "quick", cron="0 * * * *", jitter=600)
        await engine.skip(minutes=60, seconds=1)
        assert await ids(engine) == await ids(engine, "t/") == []
        await engine.schedules.update("s", priority="high")
        await engine.schedules.update("t", cron="30 * * * *")
        await engine.skip(minutes=15)

        assert await ids(engine) == await ids(engine, "t/") == ["2026-01-01T13:00:00Z"]
        await engine.skip(hours=1)
        assert await ids(engine) == ["2026-01-01T13:00:00Z", "2026-01-01T14:00:00Z"]
        assert await ids(engine, "t/") == ["2026-01-01T13:00:00Z", "2026-01-01T13:30:00Z"]


async def test_children_of_its_run_do_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.schedules.OPEN_PAGE", 3)
    body = {"type": "subworkflow", "config": {"definition": "slow"}}
    many = {
        "id": "many",
        "tasks": {"m": {"type": "map", "config": {"items": "input.n", "body": body}}},
    }
    async with opened() as engine:
        await engine.register(many)
        await engine.schedules.create("s", "many", {"n": list(range(9))}, cron="0 0 1 1 *")
        first = await engine.schedules.trigger("s")
        await engine.settle()

        assert len(await engine.list(status="OPEN")) == 10
        assert (await engine.schedules.get("s")).open == [first.run]
        with pytest.raises(Rejected) as refused:
            await engine.schedules.trigger("s")
        assert refused.value.code == "schedule-overlap"


@pytest.mark.parametrize("overlap", ["buffer", "cancel-other"])
async def test_a_trigger_that_waits_starts_though_the_schedule_is_paused(overlap: str) -> None:
    async with opened() as engine:
        await engine.schedules.create("s", "slow", cron="0 * * * *", overlap=overlap, paused=True)
        await engine.schedules.trigger("s")
        second = await engine.schedules.trigger("s")
        assert second.waits
        await engine.skip(hours=3)

        assert await (await engine.get(second.run)).status() in ("WAITING", "COMPLETED")
        view = await engine.schedules.get("s")
        assert (view.buffered, view.counts.started) == ([], 2)
