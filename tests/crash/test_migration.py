"""A process killed before or after the commit of a migration: the run is one of the old version or of the new, and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from crash.control import RUNS, Orders, work
from crash.harness import KILLED, Nursery


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("migration") / "errors", "crash.control") as nursery:
        yield nursery


def die(nursery: Nursery, tmp_path: Path, act: str, point: str) -> str:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    assert nursery.live(Orders(url, act, point)) == KILLED, nursery.words()
    return url


@pytest.mark.parametrize(
    ("point", "moved"),
    [
        ("commit.taken", False), ("decided.run_migrated", False), ("append.before", False),
        ("append.after", True), ("stored.run_migrated", True), ("settle.performed", True),
    ],
)  # fmt: skip
async def test_a_run_is_moved_wholly_or_not_at_all(
    nursery: Nursery, tmp_path: Path, point: str, moved: bool
) -> None:
    url = die(nursery, tmp_path, "migrate", point)
    async with penstock.open(url, activities=[work]) as engine:
        run = await engine.get("r0")
        assert (await run.show()).version == ("2" if moved else "1")
        # Whoever got no answer asks again.
        await run.migrate("2", by="ann", command_id="once")
        await run.signal("go")
        assert await asyncio.wait_for(run.result(), 10) == "b"
        assert (await run.show()).execution_path == ["a", "n", "b"]
        types = [item.type for item in await run.history()]
        assert types.count("run_migrated") == 1
        assert await engine.audit() == []


@pytest.mark.parametrize("point", ["batch.page", "batch.acted", "stored.run_migrated"])
async def test_a_batch_of_migrations_goes_on(nursery: Nursery, tmp_path: Path, point: str) -> None:
    url = die(nursery, tmp_path, "migrate all", point)
    async with penstock.open(url, activities=[work]) as engine:
        batch = await asyncio.wait_for(engine.batches.wait("b"), 20)
        assert (batch.state, batch.done, batch.refused) == ("done", RUNS, {})
        for number in range(RUNS):
            run = await engine.get(f"r{number}")
            types = [item.type for item in await run.history()]
            assert types.count("run_migrated") == 1
            await run.signal("go")
            assert await asyncio.wait_for(run.result(), 10) == "b"
