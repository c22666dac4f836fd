"""What the crash tests found, each as small as it can be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import RunFailed, activity
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine.engine import Settings
from penstock.errors import StoreError
from penstock.ports.store import Append, Appended

begun: list[str] = []
some: asyncio.Event


@activity
async def waits(name: str) -> None:
    begun.append(name)
    some.set()
    await asyncio.Event().wait()


WAITS = {"id": "waits", "tasks": {"a": {"do": "waits", "inputs": {"name": {"from": "input"}}}}}


@pytest.fixture(autouse=True)
async def _none_begun() -> None:
    global some
    some = asyncio.Event()
    begun.clear()


def as_a_kill_leaves_it(database: Path) -> Path:
    """A copy of the files of a database that is in use."""
    copy = database.with_name(f"copy-of-{database.name}")
    for end in ("", "-wal"):
        Path(f"{copy}{end}").write_bytes(Path(f"{database}{end}").read_bytes())
    return copy


async def test_a_run_cancelled_before_its_attempt_has_begun_ends_at_once() -> None:
    settings = Settings(max_concurrent_tasks_per_node=1, drain_seconds=0)
    async with penstock.open("memory:", activities=[waits], settings=settings) as engine:
        await engine.register(WAITS)
        await engine.start("waits", "first")
        second = await engine.start("waits", "second")

        await second.cancel()
        with pytest.raises(RunFailed, match="CANCELLED"):
            await asyncio.wait_for(second.result(), 5)
        assert begun == ["first"]


async def test_after_a_crash_an_attempt_begins_only_once_the_loss_of_the_last_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "penstock.db"
    settings = Settings(drain_seconds=0)
    async with penstock.open(
        f"sqlite:///{database}", activities=[waits], settings=settings
    ) as engine:
        await engine.register(WAITS)
        await engine.start("waits", "a", id="a")
        await asyncio.wait_for(some.wait(), 5)
        copy = as_a_kill_leaves_it(database)

    append = SqliteStore.append
    refused = asyncio.Event()

    async def refuse(self: Any, appends: Sequence[Append]) -> list[Appended | Exception]:
        if not refused.is_set():
            refused.set()
            raise StoreError("not now")
        return await append(self, appends)

    monkeypatch.setattr(SqliteStore, "append", refuse)
    begun.clear()
    async with penstock.open(f"sqlite:///{copy}", activities=[waits], settings=settings) as engine:
        await asyncio.wait_for(refused.wait(), 5)
        for _ in range(20):
            await asyncio.sleep(0)
        assert begun == []
        some.clear()
        await asyncio.wait_for(some.wait(), 5)
        assert "task_lost" in [item.event.type for item in await (await engine.get("a")).history()]
        assert begun == ["a"]
