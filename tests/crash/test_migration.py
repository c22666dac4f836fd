"""A process killed before or after the commit of a migration: the run is one of the old version or of the new, and goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock import activity

HERE = Path(__file__).resolve().parents[1]
RUNS = 5


def line(*names: str) -> dict[str, object]:
    tasks: dict[str, object] = {}
    for before, name in zip((None, *names), names, strict=False):
        task: dict[str, object] = {"do": "work", "inputs": {"name": {"value": name}}}
        if name == "s":
            task = {"type": "signal", "name": "go"}
        tasks[name] = task if before is None else {**task, "after": before}
    return {"id": "line", "tasks": tasks}


ONE, TWO = line("a", "s", "b"), line("a", "s", "n", "b")


@activity
async def work(name: str) -> str:
    return name


VICTIM = """
import asyncio, os, signal, sys
sys.path.insert(0, {here!r})
import penstock
from penstock.engine import points
from crash.test_migration import ONE, RUNS, TWO, work

def reach(name):
    if name == {point!r}:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with penstock.open({url!r}, activities=[work]) as engine:
        await engine.register(ONE)
        for number in range(RUNS):
            run = await engine.start("line", number, id=f"r{{number}}")
            async for change in run.watch():
                if change.event.type == "task_completed":
                    break
        await engine.register(TWO)
        points.reach = reach
        if {many!r}:
            await engine.batch("migrate", definition="line", arguments={{"version": "2"}}, id="b")
            await engine.batches.wait("b")
        else:
            await (await engine.get("r0")).migrate("2", by="ann", command_id="once")

asyncio.run(main())
"""


def die(tmp_path: Path, point: str, *, many: bool) -> str:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    text = VICTIM.format(here=str(HERE), point=point, url=url, many=many)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, timeout=60, check=False, env=dict(os.environ)
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return url


@pytest.mark.parametrize(
    ("point", "moved"),
    [
        ("commit.taken", False), ("decided.run_migrated", False), ("append.before", False),
        ("append.after", True), ("stored.run_migrated", True), ("settle.performed", True),
    ],
)  # fmt: skip
async def test_a_run_is_moved_wholly_or_not_at_all(tmp_path: Path, point: str, moved: bool) -> None:
    url = die(tmp_path, point, many=False)
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
async def test_a_batch_of_migrations_goes_on(tmp_path: Path, point: str) -> None:
    url = die(tmp_path, point, many=True)
    async with penstock.open(url, activities=[work]) as engine:
        batch = await asyncio.wait_for(engine.batches.wait("b"), 20)
        assert (batch.state, batch.done, batch.refused) == ("done", RUNS, {})
        for number in range(RUNS):
            run = await engine.get(f"r{number}")
            types = [item.type for item in await run.history()]
            assert types.count("run_migrated") == 1
            await run.signal("go")
            assert await asyncio.wait_for(run.result(), 10) == "b"
