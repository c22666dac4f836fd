"""Runs moved to another version: durable, replayed, found, copied and undone like any other (SPEC 2.7, 4.4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import NotFound, Rejected, activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.testing.harness import Harness, SkipClock, harness

CALLS: list[str] = []
BROKEN: set[str] = set()
ONE = {
    "id": "order",
    "tasks": {
        "reserve": {"do": "work", "inputs": {"name": {"value": "reserve"}}, "compensate": "undo"},
        "ok": {"type": "signal", "after": "reserve"},
        "pay": {"do": "work", "inputs": {"name": {"value": "pay"}}, "after": "ok"},
    },
}
TWO = {
    "id": "order",
    "data": {"seen": {"value": 1}},
    "tasks": {
        **ONE["tasks"],  # type: ignore[dict-item]
        "audit": {"do": "work", "inputs": {"name": {"value": "audit"}}, "after": "ok"},
        "pay": {"do": "work", "inputs": {"name": {"value": "pay"}}, "after": "audit"},
    },
}
THREE = {
    "id": "order",
    "tasks": {
        "reserve": {"do": "work", "inputs": {"name": {"value": "other"}}, "compensate": "undo"},
        "ok": {"type": "signal", "after": "reserve"},
    },
}


@activity
async def work(name: str) -> str:
    CALLS.append(name)
    if name in BROKEN:
        raise penstock.Fail(f"{name} is broken")
    return name


@activity
async def undo(value: Any) -> None:
    CALLS.append("undo")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()
    BROKEN.clear()


@pytest.fixture(params=["memory", "sqlite"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    clock = SkipClock()
    store = (
        MemoryStore(clock=clock.now)
        if request.param == "memory"
        else SqliteStore(tmp_path / "a.db", clock=clock.now)
    )
    async with harness(activities=[work, undo], store=store, clock=clock) as made:
        for each in (ONE, TWO, THREE):
            await made.register(each)
        yield made


async def started(engine: Harness, id: str = "o") -> penstock.Run:
    run = await engine.start("order", {}, id=id, version="1")
    await engine.settle()
    return run


async def test_a_moved_run_goes_on_in_the_new_version(engine: Harness) -> None:
    run = await started(engine)

    await run.migrate("2", by="ann", reason="audits")

    view = await run.show()
    assert (view.version, view.data) == ("2", {"seen": 1})
    assert [row.version for row in await engine.list(version="2")] == ["2"]
    await run.signal("ok", 1)
    assert await engine.finish(run) == "pay"
    assert CALLS == ["reserve", "audit", "pay"]
    fact = (await run.history())[2].event
    assert (fact.version, fact.was, fact.by, fact.reason) == ("2", "1", "ann", "audits")  # type: ignore[union-attr]
    assert (await run.show(at=2)).version == "1"
    assert await engine.audit() == []


async def test_without_a_version_it_is_the_newest(engine: Harness) -> None:
    run = await started(engine)
    await engine.register({**TWO, "metadata": {"n": 4}})

    await run.migrate()

    assert (await run.show()).version == "4"


async def test_a_preview_tells_and_changes_nothing(engine: Harness) -> None:
    run = await started(engine)
    before = await run.history()

    good, bad = await run.preview_migration("2"), await run.preview_migration("3")

    assert good.safe
    assert [each.why for each in bad.obstacles] == ["undo-changed"]
    with pytest.raises(Rejected, match="may have to be undone") as caught:
        await run.migrate("3")
    assert caught.value.code == "migration-unsafe"
    assert await run.history() == before


async def test_what_looks_renamed_is_suggested(engine: Harness) -> None:
    renamed = {
        "id": "order",
        "tasks": {"reserve": ONE["tasks"]["reserve"], "yes": {"type": "signal", "name": "ok", "after": "reserve"},  # type: ignore[index]
                  "pay": {**ONE["tasks"]["pay"], "after": "yes"}},  # type: ignore[index]
    }  # fmt: skip
    await engine.register(renamed)
    run = await started(engine)

    found = await run.preview_migration("4")

    assert not found.safe
    assert found.suggestion == {"ok": "yes"}
    assert (await run.preview_migration("4", mapping=found.suggestion)).renamed == {"ok": "yes"}
    await run.migrate("4", mapping={"ok": "yes"})
    await run.signal("ok", 1)
    assert await engine.finish(run) == "pay"
    assert "moved from version 1 to 4 (ok is yes)" in _told((await run.history())[2].event)


def _told(event: Any) -> str:
    from penstock.cli.follow import told

    return told(event)


async def test_a_repeat_of_the_command_gets_the_answer_of_the_first(engine: Harness) -> None:
    run = await started(engine)

    await run.migrate("2", command_id="m")
    await run.migrate("2", command_id="m")

    types = await engine.types(run)
    assert types.count("run_migrated") == 1
    with pytest.raises(Rejected) as caught:
        await run.migrate("1", command_id="m")
    assert caught.value.code == "key-reused"


async def test_bad_arguments_are_told(engine: Harness) -> None:
    run = await started(engine)
    before = await run.history()

    for version, mapping, code in (
        ("9", {}, "not-found"), (2, {}, "text-invalid"), ("2", {"a": 1}, "mapping-invalid"), ("2", [1], "payload-invalid"),
        ("2", {"nobody": "pay"}, "mapping-invalid"),
    ):  # fmt: skip
        with pytest.raises(penstock.PenstockError) as caught:
            await run.migrate(version, mapping=mapping)  # type: ignore[arg-type]
        assert caught.value.code == code, (version, mapping, caught.value)
        assert caught.value.hint
    with pytest.raises(NotFound):
        await penstock.Run(run._runs, "nobody").migrate("2")
    assert await run.history() == before


async def test_a_batch_moves_all_that_can_and_counts_the_others(engine: Harness) -> None:
    for number in range(7):
        await started(engine, f"o{number}")
    done = await engine.get("o3")
    await done.signal("ok", 1)
    await engine.settle()

    batch = await engine.batch(
        "migrate", definition="order", arguments={"version": "2"}, by="ann", reason="all"
    )
    await engine.settle()

    batch = await engine.batches.get(batch.id)
    assert (batch.state, batch.done, batch.refused) == ("done", 6, {"run-closed": 1})
    assert len(await engine.list(version="2")) == 6
    with pytest.raises(Rejected) as caught:
        await engine.batch("migrate", definition="order")
    assert caught.value.code == "batch-invalid"


async def test_a_reset_and_a_retry_go_on_in_the_version_of_their_point(engine: Harness) -> None:
    for each in (ONE, TWO):
        reserve = {"do": "work", "inputs": {"name": {"value": "reserve"}}}
        tasks: dict[str, Any] = {**each["tasks"], "reserve": reserve}  # type: ignore[dict-item]
        await engine.register({**each, "id": "plain", "tasks": tasks})
    run = await engine.start("plain", {}, id="o", version="1")
    await engine.settle()
    await run.migrate("2")
    BROKEN.add("audit")
    await run.signal("ok", 1)
    await engine.settle()
    assert await run.status() == "FAILED"
    BROKEN.clear()

    await run.retry()
    assert await engine.finish(run) == "pay"
    assert (await run.show()).version == "2"
    CALLS.clear()
    await run.reset(2, token=(await run.preview(2)).token)
    assert await engine.finish(run) == "pay"  # the signal is given again
    assert (await run.show()).version == "1"
    assert CALLS == ["pay"]


@pytest.mark.parametrize("when", ["never", "before", "after", "both"])
async def test_it_is_recovered_whatever_was_snapshotted(tmp_path: Path, when: str) -> None:
    clock = SkipClock()
    options: dict[str, Any] = {"activities": [work, undo], "clock": clock}
    async with harness(store=SqliteStore(tmp_path / "a.db", clock=clock.now), **options) as engine:
        for each in (ONE, TWO):
            await engine.register(each)
        run = await started(engine)
        if when in ("before", "both"):
            await run.snapshot("before")
        await run.migrate("2")
        if when in ("after", "both"):
            await run.snapshot("after")
        await engine.settle()
        state = await engine.core.read("o", lambda flow: flow.run)
    async with harness(store=SqliteStore(tmp_path / "a.db", clock=clock.now), **options) as engine:
        assert await engine.core.read("o", lambda flow: flow.run) == state
        run = await engine.get("o")
        await run.signal("ok", 1)
        assert await engine.finish(run) == "pay"
        assert CALLS == ["reserve", "audit", "pay"]


async def test_it_is_exported_with_every_version_that_it_was_of(
    engine: Harness, tmp_path: Path
) -> None:
    open_run = await started(engine, "open")
    closed = await started(engine, "closed")
    for run in (open_run, closed):
        await run.migrate("2")
    await closed.signal("ok", 1)
    await engine.finish(closed)
    assert await engine.data.export(tmp_path / "runs.zst") == 2

    async with harness(activities=[work, undo]) as other:
        await other.data.import_runs(tmp_path / "runs.zst", take_open=True)
        there = await other.get("closed")
        assert (await there.show()).version == "2"
        assert await there.result() == "pay"
        going = await other.get("open")
        await going.signal("ok", 1)
        assert await other.finish(going) == "pay"


async def test_an_archived_run_is_read_from_its_file(engine: Harness, tmp_path: Path) -> None:
    run = await started(engine)
    await run.migrate("2")
    await run.signal("ok", 1)
    await engine.finish(run)
    last = await engine.start("order", {}, id="last", version="1")
    del last
    await engine.skip(days=2)
    await engine.data.archive(tmp_path, older_than=86400.0)

    view = await run.show()
    assert (view.version, view.status) == ("2", "COMPLETED")
    assert await run.result() == "pay"


async def test_another_process_moves_a_run_that_this_one_executes(tmp_path: Path) -> None:
    await moved_from_elsewhere(f"sqlite:///{tmp_path / 'a.db'}")


async def test_a_run_is_moved_on_postgres(postgres_url: str) -> None:
    await moved_from_elsewhere(postgres_url)


async def moved_from_elsewhere(url: str) -> None:
    async with penstock.open(url, activities=[work, undo]) as owner:
        for each in (ONE, TWO):
            await owner.register(each)
        run = await owner.start("order", {}, id="o", version="1")
        async for change in run.watch():
            if change.event.type == "task_completed":
                break
        async with penstock.open(url, execute=False) as other:
            there = await other.get("o")
            await there.migrate("2", by="ann")
            assert [row.id for row in await other.list(version="2")] == ["o"]
            await there.signal("ok", 1)
        assert await run.result() == "pay"
        assert CALLS == ["reserve", "audit", "pay"]
        assert await owner.audit() == []
    async with penstock.open(url, activities=[work, undo]) as again:
        assert (await (await again.get("o")).show()).version == "2"
