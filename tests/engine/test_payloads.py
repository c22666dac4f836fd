"""Payloads of any size: compressed where it pays, beside the event above 1 MiB, refused above 64 (SPEC 4.10, 6.3)."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import activity
from penstock.adapters.sqlite.store import SqliteStore
from penstock.model.packing import pack, unpack
from penstock.testing.harness import Harness, harness
from support.stores import Make

MIB = 1024 * 1024


@activity
async def make(mib: float, letter: str = "x") -> str:
    return letter * int(mib * MIB)


@activity
async def measure(text: str) -> int:
    return len(text)


def two(**more: Any) -> dict[str, Any]:
    return {
        "id": "two",
        "tasks": {
            "make": {"do": "make", "inputs": {"mib": {"from": "input"}}},
            "measure": {
                "do": "measure",
                "after": ["make"],
                "inputs": {"text": {"from": "make"}},
            },
        },
        **more,
    }


@pytest.fixture
async def engine(make_store: Make) -> AsyncIterator[Harness]:
    async with harness(activities=[make, measure], store=make_store()) as made:
        yield made


async def test_a_large_output_is_kept_beside_its_event(engine: Harness) -> None:
    await engine.register(
        two(outputs={"size": "tasks.measure.output", "same": "size(tasks.make.output)"})
    )
    run = await engine.start("two", 3)
    assert await engine.finish(run) == {"size": 3 * MIB, "same": 3 * MIB}
    stored = await engine.core.store.events((await engine.list())[0].key)
    assert max(len(each.payload) for each in stored) < 1000
    item = next(item for item in await run.history() if item.type == "task_completed")
    assert item.event.beside["output"][1] == 3 * MIB + 2
    shown = {task.key: task.output for task in (await run.show()).tasks}
    assert shown == {"make": "<3,145,730 bytes beside the event>", "measure": 3 * MIB}
    assert await engine.data.payload(run.id, item.seq) == "x" * 3 * MIB
    assert await engine.audit() == []


async def test_a_run_goes_on_with_it_after_a_restart(make_store: Make) -> None:
    document = two()
    document["tasks"]["wait"] = {"type": "signal", "config": {"name": "go"}, "after": ["make"]}
    document["tasks"]["measure"]["after"] = ["wait"]
    async with harness(activities=[make, measure], store=make_store()) as engine:
        await engine.register(document)
        await engine.start("two", 2, id="a")
        await engine.settle()
    async with harness(activities=[make, measure], store=make_store()) as engine:
        run = await engine.get("a")
        assert len(engine.core.cache["a"].flow.values) == 0, "nothing is loaded before it is read"
        await run.signal("go")
        assert await engine.finish(run) == 2 * MIB


async def test_large_inputs_signals_and_results(engine: Harness) -> None:
    await engine.register(
        {
            "id": "pass",
            "tasks": {
                "wait": {"type": "signal", "config": {"name": "go"}},
                "sub": {
                    "type": "subworkflow",
                    "config": {"definition": "inner"},
                    "inputs": {"text": {"from": "wait"}},
                    "after": ["wait"],
                },
            },
            "queries": {"length": "size(input.text)"},
        }
    )
    await engine.register(
        {
            "id": "inner",
            "tasks": {
                "a": {"do": "make", "inputs": {"mib": {"value": 1.5}, "letter": {"value": "z"}}}
            },
        }
    )
    given = {"text": "y" * 2 * MIB}
    run = await engine.start("pass", given, id="p")
    assert await run.query("length") == 2 * MIB
    again = await engine.start("pass", given, id="p")
    assert again.id == "p"
    with pytest.raises(penstock.PenstockError, match="another definition or input"):
        await engine.start("pass", {"text": "z" * 2 * MIB}, id="p")
    await run.signal("go", "s" * 2 * MIB)
    assert await engine.finish(run) == "z" * int(1.5 * MIB)
    assert (await run.show()).input == "<2,097,163 bytes beside the event>"
    assert await engine.audit() == []


async def test_above_64_mib_is_refused_and_changes_nothing(engine: Harness) -> None:
    await engine.register(two())
    with pytest.raises(penstock.PenstockError) as caught:
        await engine.start("two", "x" * 65 * MIB)
    assert caught.value.code == "payload-too-large"
    run = await engine.start("two", 65)
    with pytest.raises(penstock.RunFailed, match="at most 67,108,864"):
        await engine.finish(run)


async def test_what_is_damaged_beside_the_event_is_found(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with harness(activities=[make, measure], store=SqliteStore(path)) as engine:
        await engine.register(two())
        run = await engine.start("two", 2, id="a")
        await engine.finish(run)
        for change, what in (
            ("UPDATE blobs SET bytes = x'00'", "is not what was written"),
            ("DELETE FROM blobs", "is missing"),
        ):
            db = sqlite3.connect(path)
            db.execute(change)
            db.commit()
            db.close()
            assert await engine.audit() == [f"run a: a payload of event 2 {what}"]
            with pytest.raises(penstock.PenstockError, match=r"missing|damaged"):
                await engine.data.payload("a", 2)


async def test_middle_sized_events_are_compressed_and_small_ones_are_not(engine: Harness) -> None:
    await engine.register(two())
    run = await engine.start("two", 0.1)
    assert await engine.finish(run) == int(0.1 * MIB)
    sizes = [len(e.payload) for e in await engine.core.store.events((await engine.list())[0].key)]
    assert max(sizes) < 1000
    first = (await engine.core.store.events((await engine.list())[0].key))[0]
    assert first.payload.startswith(b"{")


def test_packing_gives_back_what_it_got_and_refuses_what_is_damaged() -> None:
    for raw in (b"", b"{}", b"x" * 4095, b"x" * 4096, bytes(range(256)) * 100):
        assert unpack(pack(raw)) == raw
    packed = pack(b"x" * 100_000)
    assert len(packed) < 100
    for damaged in (packed[:-3], packed + b"more", packed[:8] + b"\xff" + packed[9:]):
        with pytest.raises(penstock.PenstockError) as caught:
            unpack(damaged)
        assert caught.value.code == "store-corrupt"
