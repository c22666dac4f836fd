"""Records that cannot be read, and words that would make one: they cost one record, never the database (SPEC 4.2)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock import Debounce, PenstockError, Rejected, Singleton
from penstock.adapters.sqlite import SqliteStore
from penstock.errors import StoreCorrupt
from penstock.ports.store import Record
from penstock.testing.harness import harness

QUICK = {"id": "quick", "tasks": {"a": {"type": "transform", "set": {"n": "1"}}}}
KINDS = ("schedule", "queue", "batch", "debounce", "singleton")


@pytest.mark.parametrize("value", [b"{", b'{"id": 5}', b"\xff", b"[]"])
async def test_one_that_cannot_be_read_costs_the_others_nothing(
    tmp_path: Path, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "a.db")
    async with harness(store=SqliteStore(path)) as engine:
        await engine.register(QUICK)
        await engine.schedules.create("fine", "quick", every=3600)
        await engine.set_queue("fine", limit=3)
    store = SqliteStore(path)
    await store.open()
    await store.put([Record(kind, "bad", value, due=1.0) for kind in KINDS])
    await store.close()

    with caplog.at_level(logging.ERROR, "penstock.engine"):
        async with harness(store=SqliteStore(path)) as engine:
            await engine.register(QUICK)
            await engine.settle()
            told = {getattr(each, "kind", "") for each in caplog.records}
            assert told >= set(KINDS) - {"singleton"}  # that one is found by the look around
            assert [each.id for each in await engine.schedules.list()] == ["fine"]
            assert "fine" in {each.name for each in await engine.queues()}
            assert await engine.batches.list() == []
            with pytest.raises(StoreCorrupt, match="bad"):
                await engine.schedules.get("bad")
            with pytest.raises(StoreCorrupt, match="bad"):
                await engine.batches.get("bad")
            await engine.skip(hours=2)
            assert len(await engine.list(id_prefix="fine/")) == 2
            # And each can be put right.
            await engine.schedules.delete("bad")
            await engine.schedules.create("bad", "quick", every=3600)
            await engine.set_queue("bad", limit=2)
            assert {"bad", "fine"} <= {each.name for each in await engine.queues()}


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("priority-unknown", {"priority": 5, "debounce": Debounce("k", seconds=9)}),
        ("priority-unknown", {"priority": "bogus", "debounce": Debounce("k", seconds=9)}),
        ("text-invalid", {"version": 5, "debounce": Debounce("k", seconds=9)}),
        ("priority-unknown", {"priority": "bogus", "singleton": Singleton("k")}),
        ("priority-unknown", {"priority": [], "singleton": Singleton("k")}),
    ],
)
async def test_a_start_of_a_key_with_a_wrong_word_is_refused(
    code: str, given: dict[str, Any]
) -> None:
    async with harness() as engine:
        await engine.register(QUICK)
        with pytest.raises(PenstockError) as refused:
            await engine.start("quick", **given)
        assert refused.value.code == code
        for kind in KINDS:
            assert await engine.core.store.records(kind) == []


async def test_whether_a_schedule_is_paused_is_a_truth() -> None:
    async with harness() as engine:
        await engine.register(QUICK)
        wrong: Any = 1
        with pytest.raises(Rejected) as refused:
            await engine.schedules.create("s", "quick", every=60, paused=wrong)
        assert refused.value.code == "wrong-type"
        assert await engine.schedules.list() == []
