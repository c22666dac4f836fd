"""A commit is bounded in bytes: large payloads do not hold up others, nor the loop (SPEC 4.2, 4.10)."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import activity
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine import sizes
from penstock.errors import StoreError
from penstock.model.codec import stored_event
from penstock.ports.store import Append, Store
from penstock.testing.harness import harness
from support.stores import Make

MIB = 1024 * 1024
WAITS = {"id": "waits", "tasks": {"a": {"type": "signal", "config": {"name": "go"}}}}


def noise(mib: float) -> str:
    """Text that does not get much smaller."""
    return b64encode(random.Random(1).randbytes(int(mib * MIB))).decode()


class Commits:
    """What a store was asked to write: for each commit the runs, and the bytes."""

    def __init__(self, store: Store) -> None:
        self.runs: list[list[str]] = []
        self.bytes: list[int] = []
        self.fail_at = -1
        self._append = store.append
        store.append = self.append  # type: ignore[method-assign]

    async def append(self, appends: Sequence[Append]) -> Any:
        if len(self.runs) == self.fail_at:
            self.fail_at = -1
            raise StoreError("full, for this once")
        self.runs.append([each.row.id for each in appends])
        self.bytes.append(
            sum(sum(map(len, a.payloads)) + sum(map(len, a.blobs.values())) for a in appends)
        )
        return await self._append(appends)


async def test_a_commit_is_bounded_in_bytes_and_what_is_larger_goes_alone(
    make_store: Make,
) -> None:
    store = make_store()
    commits = Commits(store)
    async with harness(store=store) as engine:
        await engine.register(WAITS)
        await engine.start("waits", 0, id="first")  # from now on the definition is known
        commits.runs, commits.bytes = [], []
        middle, large = noise(3), noise(9)
        await asyncio.gather(
            *(engine.start("waits", middle, id=f"m{n}") for n in range(5)),
            engine.start("waits", large, id="large"),
            engine.start("waits", 1, id="small"),
        )
        for runs, size in zip(commits.runs, commits.bytes, strict=True):
            assert size <= sizes.COMMIT_BYTES_MAX or len(runs) == 1, (runs, size)
        order = [run for runs in commits.runs for run in runs]
        assert [run for run in order if run.startswith("m")] == [f"m{n}" for n in range(5)]
        assert sorted(["first", *order]) == sorted(row.id for row in await engine.list())
        assert "small" in commits.runs[0], "it does not wait for the large ones before it"
        assert await engine.audit() == []


async def test_middle_sized_events_of_many_runs_are_several_commits(make_store: Make) -> None:
    store = make_store()
    commits = Commits(store)
    async with harness(store=store) as engine:
        await engine.register(WAITS)
        given = noise(0.7)  # each stands in its event: nothing says beforehand that they are much
        await engine.start_many("waits", [given] * 30, ids=[f"r{n}" for n in range(30)])
        assert max(commits.bytes) <= sizes.COMMIT_BYTES_MAX
        assert 3 <= len(commits.runs) < 30
        assert [run for runs in commits.runs for run in runs] == [f"r{n}" for n in range(30)]


async def test_what_the_store_cannot_take_costs_that_commit_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    commits = Commits(store)
    commits.fail_at = 1
    async with harness(store=store) as engine:
        await engine.register(WAITS)
        given = noise(0.7)
        starts = [engine.start("waits", given, id=f"r{n}") for n in range(30)]
        done = await asyncio.gather(*starts, return_exceptions=True)
        failed = {f"r{n}" for n, each in enumerate(done) if isinstance(each, Exception)}
        assert 0 < len(failed) < 20
        assert {row.id for row in await engine.list()} == {f"r{n}" for n in range(30)} - failed
        assert await engine.audit() == []


async def test_the_loop_neither_packs_nor_writes_what_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed_by: list[tuple[int, bool]] = []
    written_by: list[tuple[str, bool]] = []

    def here() -> bool:
        return threading.current_thread() is threading.main_thread()

    def watched(event: Any, plain: bytes, blobs: Any) -> bytes:
        packed_by.append((len(plain), here()))
        return stored_event(event, plain, blobs)

    class Watched(sqlite3.Connection):
        def executemany(self, text: str, rows: Any, /) -> sqlite3.Cursor:
            written_by.append((text, here()))
            return super().executemany(text, rows)

    monkeypatch.setattr(sizes, "stored_event", watched)
    monkeypatch.setattr(SqliteStore, "connection_class", Watched)
    async with harness(store=SqliteStore(tmp_path / "a.db")) as engine:
        await engine.register(WAITS)
        await engine.start("waits", noise(3))
        await engine.start_many("waits", ["x" * 100_000] * 50)
    assert [by for size, by in packed_by if size > MIB] == [False]
    middle = [by for size, by in packed_by if size < MIB]
    assert middle.count(False) >= 3, "many that are not large are large together"
    assert [by for text, by in written_by if "INTO blobs" in text] == [False]


@activity
async def size(text: str, more: str = "") -> int:
    return len(text)


@pytest.mark.parametrize(
    "task",
    [
        {"type": "transform", "config": {"set": {"a": "input", "b": "input"}}},
        {"do": "size", "inputs": {k: {"from": "input", "path": "$"} for k in ("text", "more")}},
        {"type": "map", "items": "[input, input]", "body": {"do": "size", "inputs": {"text": "${item}"}}},
    ],
)  # fmt: skip
async def test_what_expressions_give_is_bounded(
    task: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.core.inputs.PAYLOAD_BYTES_MAX", 1_500_000)
    async with harness(activities=[size]) as engine:
        await engine.register({"id": "d", "tasks": {"t": task}})
        run = await engine.start("d", "x" * MIB)
        with pytest.raises(penstock.RunFailed):
            await engine.finish(run)
        shown = {each.key: each for each in (await run.show()).tasks}
        error = shown["t"].error
        assert error is not None
        assert error.code == "payload-too-large"
        assert "1,500,000" in error.message
        assert await engine.audit() == []


async def test_the_output_of_a_run_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.inputs.PAYLOAD_BYTES_MAX", 1_500_000)
    async with harness(activities=[size]) as engine:
        document = {
            "id": "d",
            "tasks": {"t": {"do": "size", "inputs": {"text": {"from": "input"}}}},
        }
        await engine.register({**document, "outputs": {"a": "input", "b": "input"}})
        run = await engine.start("d", "x" * MIB)
        with pytest.raises(penstock.RunFailed, match="1,500,000"):
            await engine.finish(run)
