"""A drain that takes longer than the lease (SPEC 4.8): it is renewed until nothing is under way any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engine import points
from penstock.engine.engine import Engine as Core
from penstock.engine.engine import Settings
from penstock.engine.recovery import LEASE_SECONDS
from penstock.testing.harness import SkipClock

SLOW = {"id": "slow", "tasks": {"t": {"do": "slow"}}}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'penstock.db'}"
    return request.getfixturevalue("postgres_url")


async def test_who_drains_is_not_taken_over_from(url: str) -> None:
    clock, begun = SkipClock(), list[str]()
    first, go = asyncio.Event(), asyncio.Event()

    @penstock.activity
    async def slow() -> int:
        begun.append("x")
        first.set()
        await go.wait()
        return 7

    settings = Settings(drain_seconds=10 * LEASE_SECONDS)
    options: dict[str, Any] = {"activities": [slow], "clock": clock, "settings": settings}
    closing = penstock.open(url, **options)
    engine = await closing.__aenter__()
    await engine.register(SLOW)
    run = await engine.start("slow", id="r")
    await asyncio.wait_for(first.wait(), 60)
    async with penstock.open(url, **options) as standby:
        before = await standby.owner()
        closed = asyncio.ensure_future(closing.__aexit__(None, None, None))
        for _ in range(40):
            clock.move(clock.now() + 0.1 * LEASE_SECONDS)
            await _a_while(standby)
        after, draining = await standby.owner(), not closed.done()
        go.set()
        await asyncio.wait_for(closed, 60)

        assert draining
        assert before is not None
        assert after is not None
        assert (after.token, after.node) == (before.token, before.node)
        assert after.renewed_at > before.renewed_at
        assert await (await standby.get(run.id)).result() == 7
        while (owner := await standby.owner()) is None or owner.token == before.token:
            clock.move(clock.now() + 1)
            await _a_while(standby)
        assert begun == ["x"]


async def _a_while(engine: penstock.Engine) -> None:
    """What is due gets its turn, and the store's answer: a server's takes longer than a turn of the loop."""
    for _ in range(10):
        await engine.owner()
        await asyncio.sleep(0.001)


async def test_a_hint_while_it_drains_does_not_make_it_an_unclean_end(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes to a run as this one lets go. What is read for that hint must not be cut off: whoever comes
    next would take it for a crash, and what was never begun for lost."""
    heard: list[str] = []

    @penstock.activity
    async def slow() -> int:
        return 7

    closing = penstock.open(url)
    engine = await closing.__aenter__()
    await engine.register(SLOW)
    await engine.start("slow", id="r")
    core: Core = vars(engine)["_runs"].engine
    load, closed = core.turns.load, core.bus.close

    async def later(run_ids: list[str]) -> None:
        await asyncio.sleep(0.2)  # a store with a long line
        await load(run_ids)

    async def close() -> None:
        for _ in range(5):  # as a bus with a server does: the committer gets its turn
            await asyncio.sleep(0)
        await closed()

    def reach(name: str) -> None:
        if name == "stop.drained":
            heard.append(name)
            core.refresh("r")

    monkeypatch.setattr(core.turns, "load", later)
    monkeypatch.setattr(core.bus, "close", close)
    monkeypatch.setattr(points, "reach", reach)
    await closing.__aexit__(None, None, None)
    monkeypatch.setattr(points, "reach", None)
    assert heard == ["stop.drained"]

    async with penstock.open(url, activities=[slow]) as after:
        run = await after.get("r")
        assert await asyncio.wait_for(run.result(), 60) == 7
        assert "task_lost" not in [each.type for each in await run.history()]
