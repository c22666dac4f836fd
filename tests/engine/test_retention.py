"""Closed runs are deleted once they have been kept for long enough, and nothing else is (SPEC 2.1, 6.3)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import activity
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine.engine import Settings
from penstock.errors import DefinitionInvalid, NotFound
from penstock.ports.store import Record
from penstock.testing.harness import Harness, SkipClock, harness
from support.stores import Make

DAY = 86400.0


@activity
async def note(value: Any = None) -> Any:
    return value


@activity
async def fails() -> None:
    raise RuntimeError("broken")


PLAIN = {"id": "plain", "tasks": {"a": {"do": "note", "inputs": {"value": {"from": "input"}}}}}


def kept_for(id: str, retention: dict[str, Any], do: str = "note") -> dict[str, Any]:
    return {"id": id, "tasks": {"a": {"do": do, "retry": {"attempts": 1}}}, "retention": retention}


@pytest.fixture
async def engine(make_store: Make) -> AsyncIterator[Harness]:
    clock = SkipClock()
    settings = Settings(drain_seconds=0, retention=timedelta(days=30))
    async with harness(
        activities=[note, fails], store=make_store(clock=clock.now), clock=clock, settings=settings
    ) as made:
        await made.register(PLAIN)
        yield made


async def ids(engine: Harness) -> list[str]:
    return [row.id for row in await engine.list(limit=1000)]


async def test_a_closed_run_is_deleted_when_its_time_is_over(engine: Harness) -> None:
    old = await engine.start("plain", 1, id="old", attributes={"city": "Ulm"})
    await engine.finish(old)
    await engine.skip(days=20)
    young = await engine.start("plain", 2, id="young")
    await engine.finish(young)
    await engine.data.sweep()
    assert await ids(engine) == ["young", "old"]

    await engine.skip(days=11)
    await engine.data.sweep()
    assert await ids(engine) == ["young"]
    assert await engine.list(attributes={"city": "Ulm"}) == []
    with pytest.raises(NotFound):
        await engine.get("old")
    assert engine.stats()["purged_runs"] == 1
    assert engine.stats()["purged_events"] == 3
    assert await engine.audit() == []
    again = await engine.start("plain", 3, id="old")
    assert await engine.finish(again) == 3


async def test_a_definition_says_how_long_its_runs_are_kept_by_status(engine: Harness) -> None:
    await engine.register(kept_for("short", {"keep": "1d", "failed": "10d"}))
    await engine.register(kept_for("breaks", {"keep": "1d", "failed": "10d"}, do="fails"))
    await engine.register(kept_for("always", {"completed": "forever"}))
    for definition in ("short", "always", "plain", "breaks"):
        await engine.start(definition, id=definition)
    await engine.start("plain", id="newest")
    await engine.settle()
    await engine.skip(days=2)
    await engine.data.sweep()
    assert await ids(engine) == ["newest", "breaks", "plain", "always"]
    await engine.skip(days=9)
    await engine.data.sweep()
    assert await ids(engine) == ["newest", "plain", "always"]
    await engine.skip(days=365)
    await engine.data.sweep()
    assert await ids(engine) == [
        "newest",
        "always",
    ]  # the newest of all stays until there is a newer


async def test_neither_an_open_run_nor_its_closed_child_is_deleted(engine: Harness) -> None:
    await engine.register(
        {
            "id": "parent",
            "tasks": {
                "child": {"type": "subworkflow", "config": {"definition": "plain"}},
                "wait": {"type": "signal", "config": {"name": "go"}, "after": ["child"]},
            },
        }
    )
    run = await engine.start("parent", id="p")
    await engine.settle()
    last = await engine.start("plain", id="last")
    await engine.finish(last)
    await engine.skip(days=100)
    await engine.data.sweep()
    assert len(await ids(engine)) == 3
    await run.signal("go")
    await engine.finish(run)
    await engine.data.sweep()
    assert await ids(engine) == ["last", "p"], "the child went with its parent's end"
    await engine.skip(days=31)
    await engine.data.sweep()
    assert await ids(engine) == ["last"]


async def test_many_runs_leave_in_small_commits(engine: Harness) -> None:
    for n in range(500):
        await engine.start("plain", n, id=f"r{n}")
    await engine.settle()
    await engine.skip(days=31)
    commits = engine.stats()["commits"]
    await engine.data.sweep()
    assert await ids(engine) == ["r499"]
    assert engine.stats()["purged_runs"] == 499
    assert engine.stats()["purged_events"] == 499 * 3
    assert engine.stats()["commits"] - commits >= 4
    assert await engine.audit() == []


async def test_expired_records_are_deleted(engine: Harness) -> None:
    store = engine.core.store
    now = engine.clock.now()
    await store.put([Record("command", "a", b"1", expires=now + DAY), Record("command", "b", b"1")])
    await engine.data.sweep()
    assert len(await store.records("command")) == 2
    await engine.skip(days=1)
    await engine.data.sweep()
    assert [record.id for record in await store.records("command")] == ["b"]
    assert engine.stats()["expired_records"] == 1


async def test_without_a_rule_all_is_kept(make_store: Make) -> None:
    clock = SkipClock()
    async with harness(activities=[note], store=make_store(clock=clock.now), clock=clock) as engine:
        await engine.register(PLAIN)
        for n in range(3):
            await engine.start("plain", id=f"r{n}")
        await engine.settle()
        await engine.skip(days=10_000)
        await engine.data.sweep()
        assert len(await ids(engine)) == 3


@pytest.mark.parametrize(
    "retention", [{"keep": "soon"}, {"keep": -1}, {"archived": "1d"}, {"keep": None}, "30d"]
)
async def test_a_rule_that_cannot_be_read_is_refused(engine: Harness, retention: Any) -> None:
    with pytest.raises(DefinitionInvalid):
        await engine.register(kept_for("bad", retention))


async def test_the_blobs_of_deleted_runs_go_in_the_same_sweep(tmp_path: Path) -> None:
    clock, path = SkipClock(), tmp_path / "store.db"
    settings = Settings(drain_seconds=0, retention=timedelta(days=30))
    async with harness(
        activities=[note], store=SqliteStore(path, clock=clock.now), clock=clock, settings=settings
    ) as engine:
        await engine.register(PLAIN)
        for n in range(15):  # more than go in one commit, whose events all do
            await engine.finish(await engine.start("plain", os.urandom(300_000).hex(), id=f"r{n}"))
        await engine.skip(days=31)
        await engine.finish(await engine.start("plain", 1, id="young"))
        await engine.data.sweep()
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT count(*) FROM blobs").fetchone() == (0,)
            assert db.execute("SELECT count(*) FROM leftovers").fetchone() == (0,)


async def test_a_read_that_meets_a_deletion_does_not_show_an_empty_run(
    engine: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in ("old", "young"):
        await engine.finish(await engine.start("plain", 1, id=id))
    old = await engine.get("old")
    store = engine.core.store
    row = await store.find("old")
    assert row is not None
    read = store.events

    async def late(key: int, **options: Any) -> Any:
        while (await store.purge([row.key])).again:
            pass
        return await read(key, **options)

    monkeypatch.setattr(store, "events", late)
    for ask in (old.show, old.history):
        with pytest.raises(NotFound):
            await ask()
