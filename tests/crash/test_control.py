"""A process killed while it opens a generation, answers a reset, works on a batch or resumes a definition: nothing is doubled, nothing lost."""

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
    with Nursery(tmp_path_factory.mktemp("control") / "errors", "crash.control") as nursery:
        yield nursery


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'a.db'}"
    return request.getfixturevalue("postgres_url")


def die(nursery: Nursery, url: str, act: str, point: str) -> None:
    assert nursery.live(Orders(url, act, point)) == KILLED, nursery.words()


@pytest.mark.parametrize("act", ["reset", "retry"])
@pytest.mark.parametrize("point", ["generation.before", "generation.after"])
async def test_a_generation_is_opened_wholly_or_not_at_all(
    nursery: Nursery, tmp_path: Path, act: str, point: str
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    die(nursery, url, act, point)
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
async def test_a_batch_goes_on_and_does_nothing_twice(
    nursery: Nursery, tmp_path: Path, point: str
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    die(nursery, url, "batch", point)
    async with penstock.open(url, activities=[work]) as engine:
        batch = await asyncio.wait_for(engine.batches.wait("b"), 20)
        assert (batch.state, batch.done, batch.refused) == ("done", RUNS, {})
        for number in range(RUNS):
            run = await engine.get(f"r{number}")
            await asyncio.wait_for(run.result(), 10)
            types = [item.type for item in await run.history()]
            assert types.count("signal_received") == 1, number


@pytest.mark.parametrize("point", ["resume.written", "resume.dropped"])
async def test_a_definition_is_resumed_or_still_paused(
    nursery: Nursery, url: str, point: str
) -> None:
    die(nursery, url, "resume", point)
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
