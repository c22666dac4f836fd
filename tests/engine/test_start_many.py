"""Many starts in one call: checked first, in groups, idempotent by ids, resumable (SPEC 4.4, 4.10)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Busy, NotFound, Rejected, StartsRefused, StartsStopped
from penstock.engine.bulk import GROUP_RUNS_MAX
from penstock.engine.settings import Settings
from penstock.ports.runs import Progress
from penstock.testing.harness import harness

WAIT = {"id": "wait", "tasks": {"go": {"type": "signal", "name": "go"}}}
TYPED = {**WAIT, "id": "typed", "inputSchema": {"type": "integer"}}
MANY = 3 * GROUP_RUNS_MAX + 7


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[penstock.Engine]:
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/many.db"}
    url = urls.get(request.param) or request.getfixturevalue("postgres_url")
    async with penstock.open(url) as engine:
        await engine.register(WAIT)
        await engine.register(TYPED)
        yield engine


async def test_all_are_started_in_groups_with_progress(engine: penstock.Engine) -> None:
    seen: list[Progress] = []
    before = engine.stats().get("commits", 0)
    runs = await engine.start_many(
        "wait", range(MANY), attributes={"batch": "b1"}, created_by="ann", progress=seen.append
    )

    assert len({run.id for run in runs}) == MANY
    assert [each.done for each in seen] == [250, 500, 750, MANY]
    assert {each.total for each in seen} == {MANY}
    assert len(await engine.list(attributes={"batch": "b1"}, limit=MANY + 1)) == MANY
    shown = await runs[300].show()
    assert (shown.input, shown.created_by, shown.attributes) == (300, "ann", {"batch": "b1"})
    if "commits" in engine.stats():
        assert engine.stats()["commits"] - before < 20
    assert not await engine.audit(runs[-1].id)


async def test_the_same_ids_again_start_what_is_missing(engine: penstock.Engine) -> None:
    ids = [f"job-{n}" for n in range(MANY)]
    for one in (0, 300, MANY - 1):
        await engine.start("wait", one, id=ids[one])
    await engine.start_many("wait", range(400), ids=ids[:400])
    runs = await engine.start_many("wait", range(MANY), ids=ids)

    assert [run.id for run in runs] == ids
    assert len(await engine.list(definition="wait", limit=2 * MANY)) == MANY


async def test_none_is_a_call_that_does_nothing(engine: penstock.Engine) -> None:
    assert await engine.start_many("wait", []) == []


@pytest.mark.parametrize(
    ("definition", "inputs", "ids", "bad"),
    [
        (
            "wait",
            [1, float("nan"), object(), 4],
            None,
            {1: "payload-invalid", 2: "payload-invalid"},
        ),
        ("typed", [1, "two", 3, None], None, {1: "input-invalid", 3: "input-invalid"}),
        ("wait", [1, 2, 3], ["a", "", "a"], {1: "id-invalid", 2: "id-taken"}),
        ("wait", [1, 2, 3], ["a", None, 3], {1: "id-invalid", 2: "id-invalid"}),
        ("wait", [1, 2], ["a", "\ud800"], {1: "id-invalid"}),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_started(
    engine: penstock.Engine, definition: str, inputs: Any, ids: Any, bad: dict[int, str]
) -> None:
    with pytest.raises(StartsRefused) as refused:
        await engine.start_many(definition, inputs, ids=ids)

    assert {place: error.code for place, error in refused.value.refused.items()} == bad
    assert all(f"number {place}" in str(refused.value) for place in bad)
    assert refused.value.started == 0
    assert await engine.list() == []


@pytest.mark.parametrize(
    ("inputs", "more", "code"),
    [
        ("text", {}, "starts-invalid"),
        ({"a": 1}, {}, "starts-invalid"),
        (7, {}, "starts-invalid"),
        ([1], {"ids": "x"}, "starts-invalid"),
        ([1, 2], {"ids": ["x"]}, "starts-invalid"),
        ([1], {"priority": "urgent"}, "priority-unknown"),
        ([1], {"delay": float("inf")}, "time-invalid"),
        ([1], {"created_by": 3}, "text-invalid"),
    ],
)
async def test_a_call_that_makes_no_sense_is_refused(inputs: Any, more: Any, code: str) -> None:
    async with harness() as engine:
        await engine.register(WAIT)
        with pytest.raises(Rejected) as refused:
            await engine.start_many("wait", inputs, **more)
        with pytest.raises(NotFound):
            await engine.start_many("nobody", [1])

        assert refused.value.code == code
        assert await engine.list() == []


async def test_an_id_of_another_run_stops_the_call_after_its_group(engine: penstock.Engine) -> None:
    await engine.start("wait", "other", id="job-300")
    with pytest.raises(StartsRefused) as refused:
        await engine.start_many("wait", range(MANY), ids=[f"job-{n}" for n in range(MANY)])

    assert list(refused.value.refused) == [300]
    assert refused.value.started == len(await engine.list(limit=MANY)) - 1
    assert refused.value.started < MANY - 1


async def test_limits_are_waited_for_and_then_said() -> None:
    limits = Settings(max_concurrent_workflows=300, drain_seconds=0)
    async with harness(settings=limits) as engine:
        await engine.register({"id": "nap", "tasks": {"a": {"type": "timer", "delay": "10s"}}})
        naps = asyncio.ensure_future(engine.start_many("nap", range(900)))
        await engine.skip(minutes=1)
        assert len(await naps) == 900
        await engine.register(WAIT)
        waits = asyncio.ensure_future(engine.start_many("wait", range(900)))
        await engine.skip(minutes=1)
        with pytest.raises(StartsStopped) as stopped:
            await waits

        assert isinstance(stopped.value.__cause__, Busy)
        assert stopped.value.started == 300 == len(await engine.list(definition="wait", limit=900))


async def test_a_limit_of_the_definition_that_refuses_is_never_passed() -> None:
    async with harness() as engine:
        await engine.register({**WAIT, "limits": {"runs": 3, "over": "refuse"}})
        starting = asyncio.ensure_future(engine.start_many("wait", range(5)))
        await engine.skip(minutes=1)
        with pytest.raises(StartsStopped) as stopped:
            await starting

        assert stopped.value.started == 3 == len(await engine.list())


async def test_others_are_not_kept_waiting_for_all_of_it(engine: penstock.Engine) -> None:
    seen: list[int] = []
    begun = asyncio.Event()

    def heard(progress: Progress) -> None:
        seen.append(progress.done)
        begun.set()

    many = asyncio.ensure_future(engine.start_many("wait", range(8 * MANY), progress=heard))
    await begun.wait()
    await engine.start("wait", 0, id="urgent")

    assert seen[-1] < 8 * MANY
    await many


async def test_who_stops_waiting_leaves_whole_runs_and_a_working_engine(
    engine: penstock.Engine,
) -> None:
    ids = [f"job-{n}" for n in range(MANY)]
    calls = 0

    def breaks(progress: Progress) -> None:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await engine.start_many("wait", range(MANY), ids=ids, progress=breaks)
    cancelled = asyncio.ensure_future(engine.start_many("wait", range(MANY), ids=ids))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert len(await engine.start_many("wait", range(MANY), ids=ids)) == MANY

    assert calls == 1
    assert len(await engine.list(limit=2 * MANY)) == MANY


VICTIM = """
import asyncio, sys, penstock
async def main(url, definition, count):
    async with penstock.open(url) as engine:
        await engine.register({"id": "wait", "tasks": {"go": {"type": "signal", "name": "go"}}})
        await engine.start_many("wait", range(count), ids=[f"job-{n}" for n in range(count)],
                                progress=lambda each: print(each.done, flush=True))
asyncio.run(main(sys.argv[1], "wait", int(sys.argv[2])))
"""


def killed(url: str, count: int) -> int:
    """A process that starts so many runs is killed after a few groups; how many it had told of."""
    command = [sys.executable, "-c", VICTIM, url, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        told = [int(victim.stdout.readline()) for _ in range(4)][-1]
        os.kill(victim.pid, signal.SIGKILL)
    return told


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_killed_in_the_middle_the_same_call_goes_on(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/many.db"
    if store == "postgres":
        url = request.getfixturevalue("postgres_url")
    count = 20_000
    told = await asyncio.to_thread(killed, url, count)
    async with penstock.open(url) as engine:
        there = {row.id for row in await engine.list(limit=count)}
        assert told <= len(there) < count
        assert {f"job-{n}" for n in range(told)} <= there
        ids = [f"job-{n}" for n in range(len(there) + 1000)]
        runs = await engine.start_many("wait", range(len(ids)), ids=ids)
        assert len(await engine.list(limit=count)) == len(runs) == len(ids)
        assert (await runs[-1].show()).input == len(ids) - 1
        assert not await engine.audit(ids[told])
