"""`engine.on`: functions of the application hear of events, whoever wrote them, and never harm a run (SPEC 4.10)."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Engine, Rejected, activity
from penstock.engine import awaiting
from penstock.testing.harness import Harness, harness

GO = "id: go\ntasks:\n  s: {type: signal, name: go}\n"
TALK = "id: talk\ntasks:\n  p: {type: publish, topic: t, payload: {n: '${input}'}}\n"


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/a.db" if request.param == "sqlite" else f"memory:{tmp_path.name}"


async def until(holds: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.005)


async def talk(engine: Engine, number: int) -> str:
    run = await engine.start("talk", number)
    await run.result()
    return run.id


async def test_plain_and_async_listeners_hear_all_in_order() -> None:
    plain: list[tuple[str, int]] = []
    waited: list[tuple[str, int]] = []

    async def listener(change: Any) -> None:
        await asyncio.sleep(0)
        waited.append((change.run_id, change.seq))

    async with harness() as engine:
        await engine.register(TALK)
        engine.on(None, lambda change: plain.append((change.run_id, change.seq)))
        engine.on(None, listener)
        for number in range(50):
            await engine.finish(await engine.start("talk", number, id=f"r{number}"))
        await engine.settle()
    assert plain == waited == [(f"r{n}", seq) for n in range(50) for seq in (1, 2, 3)]


async def test_a_listener_chooses_types_definition_and_run() -> None:
    async with harness() as engine:
        await engine.register(TALK)
        await engine.register(GO)
        heard: dict[str, list[str]] = {"types": [], "definition": [], "run": []}
        engine.on(["run_completed", "published"], lambda c: heard["types"].append(c.type))
        engine.on(None, lambda c: heard["definition"].append(c.run_id), definition="go")
        run = await engine.start("talk", 1, id="one")
        engine.on(None, lambda c: heard["run"].append(c.type), run=run)
        engine.on("run_started", lambda c: heard["run"].append(c.run_id), run="two")
        await engine.start("talk", 2, id="two")
        await engine.start("go", id="go-1")
        await engine.settle()
    assert heard["types"] == ["published", "run_completed"] * 2
    assert heard["definition"] == ["go-1"]
    assert heard["run"] == ["two"] or heard["run"] == ["published", "run_completed", "two"]


async def test_one_that_raises_is_counted_and_goes_on() -> None:
    def bad(change: Any) -> None:
        raise SystemExit(change.type)

    async def worse(change: Any) -> None:
        raise asyncio.CancelledError

    async with harness() as engine:
        await engine.register(TALK)
        both = [engine.on(None, bad), engine.on(None, worse)]
        await engine.finish(await engine.start("talk", 1))
        await engine.settle()
        assert [(each.heard, each.failed, each.dropped) for each in both] == [(3, 3, 0)] * 2


async def test_a_slow_one_misses_events_and_delays_nobody(tmp_path: Path) -> None:
    let_go = threading.Event()
    async with penstock.open(f"sqlite:///{tmp_path}/a.db") as engine:
        await engine.register(TALK)
        slow = engine.on(None, lambda _: let_go.wait(300), limit=10)
        for number in range(20):
            await talk(engine, number)
        assert (slow.waiting, slow.dropped) == (10, 50)
        let_go.set()
        await until(lambda: slow.heard == 10)
        await talk(engine, 20)
        await until(lambda: slow.heard == 13)


async def test_a_closed_one_hears_nothing_more() -> None:
    async with harness() as engine:
        await engine.register(TALK)
        heard: list[str] = []
        with engine.on(None, lambda change: heard.append(change.type)):
            await engine.finish(await engine.start("talk", 1))
            await engine.settle()
        await engine.finish(await engine.start("talk", 2))
        await engine.settle()
        assert len(heard) == 3
        again = engine.on("published", lambda change: heard.append(change.type))
        await engine.finish(await engine.start("talk", 3))
        await engine.settle()
        assert len(heard) == 4
        again.close()
        again.close()


async def test_what_makes_no_sense_is_refused(engine: Harness) -> None:
    with pytest.raises(Rejected, match="run_complete") as unknown:
        engine.on("run_complete", print)
    assert unknown.value.code == "event-type-unknown"
    assert "run_completed" in str(unknown.value.hint)
    for listener, options in ((None, {}), (print, {"limit": 0})):
        with pytest.raises(Rejected) as refused:
            engine.on(None, listener, **options)  # type: ignore[arg-type]
        assert refused.value.code == "listener-invalid"


@pytest.fixture
async def engine() -> Any:
    async with harness() as engine:
        yield engine


async def test_events_of_other_processes_are_heard_in_order(url: str) -> None:
    """Two engines on one database: each hears what either writes, in the order of the log."""
    async with penstock.open(url) as owner, penstock.open(url) as standby:
        await owner.register(GO)
        heard: dict[str, list[tuple[str, int]]] = {"owner": [], "standby": []}
        owner.on(None, lambda c: heard["owner"].append((c.run_id, c.seq)))
        standby.on(None, lambda c: heard["standby"].append((c.run_id, c.seq)))
        for number in range(20):
            starts, signals = (owner, standby) if number % 2 else (standby, owner)
            await starts.start("go", id=f"r{number}")
            await (await signals.get(f"r{number}")).signal("go", number)
        await until(lambda: len(heard["owner"]) == len(heard["standby"]) == 60)
        assert heard["owner"] == heard["standby"]
        for number in range(20):
            assert [seq for id, seq in heard["owner"] if id == f"r{number}"] == [1, 2, 3]


async def test_results_come_back_at_once_to_the_process_that_asked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby is told by the owner: who looked for himself would wait for longer than this test may take."""
    for name in ("ASK_SECONDS", "NET_SECONDS"):
        monkeypatch.setattr(awaiting, name, 600.0)

    @activity
    async def nap() -> str:
        await asyncio.sleep(0.3)
        return "rested"

    async with (
        penstock.open(url, activities=[nap]) as owner,
        penstock.open(url, activities=[nap]) as standby,
        penstock.open(url, execute=False) as outside,
    ):
        await owner.register("id: nap\ntasks:\n  n: {do: nap}\n")
        for asks in (standby, outside):
            run = await asks.start("nap")
            async with asyncio.timeout(60):
                assert await run.result() == "rested"  # who waits first tells where it listens
            run = await asks.start("nap")
            async with asyncio.timeout(60):
                seen = [change.type async for change in run.watch()]
            assert seen[0] == "run_started"
            assert seen[-1] == "run_completed"


async def test_who_waits_is_answered_when_the_owner_has_gone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with penstock.open(url) as standby_to_be:
        owner = standby_to_be
        await owner.register(GO)
        async with penstock.open(url) as standby:
            run = await standby.start("go", id="x")
            waiting = asyncio.ensure_future(run.result())
            await asyncio.sleep(0.1)
            await owner.close()
            await run.signal("go", 7)
            assert await asyncio.wait_for(waiting, 10) == 7
