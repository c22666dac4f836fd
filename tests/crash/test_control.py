"""A process killed while it opens a generation, answers a reset, works on a batch or resumes a definition: nothing is doubled, nothing lost."""

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

STEPS = 9
HERE = Path(__file__).resolve().parents[1]

DEFINITION = {
    "id": "line",
    "tasks": {
        "a": {"do": "work", "inputs": {"name": {"value": "a"}}},
        "s": {"type": "signal", "name": "go", "after": "a"},
        "b": {"do": "work", "inputs": {"name": {"value": "b"}}, "after": "s"},
    },
}


@activity
async def work(name: str) -> str:
    return name


VICTIM = """
import asyncio, os, signal, sys
sys.path.insert(0, {here!r})
import penstock
from penstock.engine import points
from crash.test_control import DEFINITION, work

def reach(name):
    if name == {point!r}:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with penstock.open({url!r}, activities=[work]) as engine:
        await engine.register(DEFINITION)
        for number in range({steps}):
            run = await engine.start("line", number, id=f"r{{number}}")
        for number in range({steps}):
            while len(await (await engine.get(f"r{{number}}")).history()) < 2:
                await asyncio.sleep(0.01)
        points.reach = reach
        if {act!r} == "reset":
            run = await engine.get("r0")
            preview = await run.preview(1)
            await run.reset(1, token=preview.token, command_id="once")
        elif {act!r} == "retry":
            run = await engine.get("r0")
            points.reach = None
            await run.cancel()
            try:
                await run.result()
            except penstock.RunFailed:
                pass
            points.reach = reach
            await run.retry(command_id="once")
        elif {act!r} == "resume":
            await engine.pause_definition("line", by="ann", reason="incident")
            await (await engine.get("r0")).signal("go")  # `b` waits
            await engine.resume_definition("line", by="bob", reason="over")
        else:
            batch = await engine.batch("signal", definition="line", arguments={{"name": "go"}}, id="b")
            await engine.batches.wait("b")

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'a.db'}"
    return request.getfixturevalue("postgres_url")


def die(tmp_path: Path, act: str, point: str, url: str = "") -> str:
    url = url or f"sqlite:///{tmp_path / 'a.db'}"
    text = VICTIM.format(here=str(HERE), point=point, url=url, steps=STEPS, act=act)
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return url


@pytest.mark.parametrize("act", ["reset", "retry"])
@pytest.mark.parametrize("point", ["generation.before", "generation.after"])
async def test_a_generation_is_opened_wholly_or_not_at_all(
    tmp_path: Path, act: str, point: str
) -> None:
    url = die(tmp_path, act, point)
    async with penstock.open(url, activities=[work]) as engine:
        run = await engine.get("r0")
        opened = point == "generation.after"
        assert (await run.show()).generation == (2 if opened else 1)
        old = await run.show(generation=1)
        closed = {"reset": "CONTINUED", "retry": "CANCELLED"}[act]
        assert old.status == (closed if opened or act == "retry" else "WAITING")
        # Whoever got no answer asks again: it is the answer of the first, or it is done now.
        if act == "reset":
            token = (await run.preview(1)).token
            assert await run.reset(1, token=token, command_id="once") == 2
        else:
            assert await run.retry(command_id="once") == 2
        await run.signal("go")
        assert await asyncio.wait_for(run.result(), 10) == "b"
        assert await engine.audit() == []


@pytest.mark.parametrize("point", ["batch.page", "batch.acted", "stored.signal_received"])
async def test_a_batch_goes_on_and_does_nothing_twice(tmp_path: Path, point: str) -> None:
    url = die(tmp_path, "batch", point)
    async with penstock.open(url, activities=[work]) as engine:
        batch = await asyncio.wait_for(engine.batches.wait("b"), 20)
        assert (batch.state, batch.done, batch.refused) == ("done", STEPS, {})
        for number in range(STEPS):
            run = await engine.get(f"r{number}")
            await asyncio.wait_for(run.result(), 10)
            types = [item.type for item in await run.history()]
            assert types.count("signal_received") == 1, number


@pytest.mark.parametrize("point", ["resume.written", "resume.dropped"])
async def test_a_definition_is_resumed_or_still_paused(
    tmp_path: Path, url: str, point: str
) -> None:
    die(tmp_path, "resume", point, url)
    async with penstock.open(url, activities=[work]) as engine:
        run = await engine.get("r0")
        told = [(act.act, act.by) for act in await engine.definition_acts("line")]
        assert told == [("pause", "ann"), ("resume", "bob")]
        paused = [each.definition for each in await engine.paused_definitions()]
        if point == "resume.written":
            assert paused == ["line"]
            assert "pause" in [reason.kind for reason in await run.why()]
            assert "task_completed" not in [item.type for item in await run.history()][2:]
            # Whoever got no answer asks again.
            await engine.resume_definition("line", by="bob")
            told = [(act.act, act.by) for act in await engine.definition_acts("line")]
            assert told == [("pause", "ann"), ("resume", "bob"), ("resume", "bob")]
        else:
            assert paused == []
            with pytest.raises(penstock.Rejected, match="is not paused"):
                await engine.resume_definition("line", by="bob")
        assert await engine.paused_definitions() == []
        assert await asyncio.wait_for(run.result(), 60) == "b"
