"""Projections: read models that follow the log, are rebuilt while running and survive a kill at any point (SPEC 4.1)."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Engine, EventBatch, Rejected
from penstock.engine import projection, projections
from penstock.testing.harness import harness

TALK = "id: talk\ntasks:\n  p: {type: publish, topic: t, payload: {n: '${input}'}}\n"
SHORT = TALK + "retention: {keep: 1s}\n"


class Copy:
    """A read model in memory: what it was given, by target."""

    def __init__(self) -> None:
        self.targets: dict[int, list[tuple[int, str, int, str]]] = {}
        self.in_use = 1
        self.fails = 0
        self.batches = 0

    async def __call__(self, batch: EventBatch) -> None:
        self.batches += 1
        if self.fails:
            self.fails -= 1
            raise ValueError("not today")
        if batch.after == 0:
            self.targets[batch.target] = []
        kept = self.targets[batch.target]
        kept.extend((e.position, e.run_id, e.seq, e.type) for e in batch.events)

    def swap(self, target: int) -> None:
        self.in_use = target

    def whole(self, target: int = 1) -> bool:
        return [p for p, *_ in self.targets[target]] == list(
            range(1, len(self.targets[target]) + 1)
        )


async def talk(engine: Engine, *names: str) -> None:
    runs = [await engine.start("talk", 1, id=name) for name in names]
    for run in runs:
        await run.result()


async def until(holds: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/a.db" if request.param == "sqlite" else f"memory:{tmp_path.name}"


async def test_it_is_given_all_that_was_and_all_that_comes(url: str) -> None:
    copy = Copy()
    async with penstock.open(url) as engine:
        await engine.register(TALK)
        await talk(engine, "a", "b")
        projection = await engine.project("copy", copy)
        await talk(engine, *(f"r{n}" for n in range(50)))
        await projection.caught_up()
        assert copy.whole()
        assert Counter(id for _, id, _, _ in copy.targets[1]) == Counter(
            dict.fromkeys(("a", "b", *(f"r{n}" for n in range(50))), 3)
        )
        (view,) = await engine.projections()
        assert (view.name, view.here, view.live.position, view.live.lag) == ("copy", True, 156, 0)
        assert (view.live.since, view.live.missing, view.rebuild) == (1, 0, None)
    async with penstock.open(url) as engine:  # it goes on where it was
        if not url.startswith("memory"):
            await engine.project("copy", copy)
            await talk(engine, "c")
            await until(lambda: len(copy.targets[1]) == 159)
            assert copy.whole()


async def test_types_are_chosen_and_plain_functions_run_in_threads() -> None:
    seen: list[tuple[str, str]] = []

    def handler(batch: EventBatch) -> None:
        time.sleep(0.001)  # may block
        seen.extend((e.type, e.definition) for e in batch.events)

    async with harness() as engine:
        await engine.register(TALK)
        await engine.project("ends", handler, types=["run_completed"], batch=2)
        for n in range(5):
            await engine.finish(await engine.start("talk", n))
        await engine.settle()
        assert seen == [("run_completed", "talk")] * 5
        assert (await engine.projections())[0].live.lag == 0


async def test_failures_are_retried_one_by_one_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    copy = Copy()
    copy.fails = 2
    async with harness() as engine:
        await engine.register(TALK)
        await engine.finish(await engine.start("talk", 1))
        await engine.project("copy", copy)
        await until(lambda: copy.batches == 1)
        (view,) = await engine.projections()
        assert view.live.failures == 1
        assert "not today" in view.live.error
        assert "after position 0" in view.live.error
        assert view.live.lag == 3
        await until(lambda: len(copy.targets.get(1, ())) == 3)
        await engine.settle()
        (view,) = await engine.projections()
        assert (view.live.failures, view.live.error, view.live.lag) == (0, "", 0)


async def test_one_process_follows_and_another_takes_over(url: str) -> None:
    first, second = Copy(), Copy()
    async with penstock.open(url) as standby:
        await standby.register(TALK)
        async with penstock.open(url, execute=False) as engine:
            await engine.project("copy", first)
            await standby.project("copy", second)
            await talk(standby, "a", "b")
            await until(lambda: len(first.targets.get(1, ())) == 6)
            assert not second.targets
            second.targets[1] = list(first.targets[1])
            assert [v.here for v in await standby.projections()] == [False]
        await talk(standby, "c")
        await until(lambda: len(second.targets[1]) == 9)
        assert second.whole()
        assert len(first.targets[1]) == 6


async def test_a_follower_that_is_silent_is_taken_over_from_and_may_not_go_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after SIGSTOP: the position is moved by one of them only."""
    monkeypatch.setattr(projection, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(projections, "BEAT_SECONDS", 0.1)
    first, second = Copy(), Copy()
    async with penstock.open(url) as engine, penstock.open(url) as other:
        await engine.register(TALK)
        await engine.project("copy", first)
        served = engine._runs.engine.projections  # type: ignore[attr-defined]
        served._task.cancel()  # no sign of life any more
        await talk(engine, "a")
        await until(lambda: len(first.targets.get(1, ())) == 3)
        second.targets[1] = list(first.targets[1])
        await other.project("copy", second)
        await until(lambda: _holder(other) != "")
        await asyncio.sleep(0.6)
        assert [v.here for v in await other.projections()] == [True]
        await talk(engine, "b")
        await until(lambda: len(second.targets[1]) == 6)
        assert second.whole()
        await asyncio.sleep(0.1)
        assert served._here["copy"].kept is None, "it has seen that it follows no more"


def _holder(engine: Engine) -> str:
    kept = engine._runs.engine.projections._here["copy"].kept  # type: ignore[attr-defined]
    return "" if kept is None else kept.holder


async def test_a_rebuild_fills_a_second_target_while_the_first_goes_on(url: str) -> None:
    copy, gate = Copy(), asyncio.Event()

    async def handler(batch: EventBatch) -> None:
        if batch.target == 2:
            await gate.wait()
        await copy(batch)

    async with penstock.open(url) as engine:
        await engine.register(TALK)
        await talk(engine, *(f"r{n}" for n in range(20)))
        projection = await engine.project("copy", handler, swap=copy.swap, batch=10)
        await projection.caught_up()
        assert await projection.rebuild() == 2
        with pytest.raises(Rejected) as twice:
            await projection.rebuild()
        assert twice.value.code == "projection-rebuilding"
        await talk(engine, "during")
        await projection.caught_up()
        assert (copy.in_use, len(copy.targets[1])) == (1, 63)
        (view,) = await engine.projections()
        assert view.rebuild is not None
        assert (view.live.target, view.rebuild.target, view.rebuild.lag) == (1, 2, 63)
        gate.set()
        await until(lambda: copy.in_use == 2)
        await talk(engine, "after")
        await projection.caught_up()
        await until(lambda: len(copy.targets[2]) == 66)
        assert copy.whole(1)
        assert copy.whole(2)
        assert len(copy.targets[1]) == 63, "the old one is not written to any more"
        (view,) = await engine.projections()
        assert (view.live.target, view.rebuild) == (2, None)


async def test_a_rebuild_asked_for_elsewhere_or_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    copy = Copy()

    async def handler(batch: EventBatch) -> None:
        if batch.target == 2:
            raise ValueError("a bug in the new one")
        await copy(batch)

    async with penstock.open(url) as engine, penstock.open(url) as other:
        await engine.register(TALK)
        await talk(engine, "a")
        await engine.project("copy", handler, swap=copy.swap)
        there = await other.project("copy", handler, swap=copy.swap)
        assert await there.rebuild() == 2
        await asyncio.sleep(0.1)
        assert await there.rebuild(again=True) == 3
        await until(lambda: copy.in_use == 3)
        assert copy.whole(3)


async def test_what_retention_deleted_is_said(tmp_path: Path) -> None:
    """Rebuilt later, it says from which position on it is whole."""
    copy = Copy()
    async with harness() as engine:
        await engine.register(SHORT)
        for n in range(3):
            await engine.finish(await engine.start("talk", n, id=f"old{n}"))
        projection = await engine.project("copy", copy)
        await engine.settle()
        await engine.skip(seconds=10)
        await engine.data.sweep()
        await engine.register(TALK.replace("id: talk", "id: keep"))
        await engine.finish(await engine.start("keep", 1, id="new"))
        await engine.settle()
        (view,) = await engine.projections()
        assert (view.live.since, view.live.missing, view.live.position) == (1, 0, 12)
        await projection.rebuild()
        await engine.settle()
        await until(lambda: 2 in copy.targets)
        await engine.settle()
        (view,) = await engine.projections()
        left = copy.targets[2]
        assert view.live.missing == 12 - len(left) > 0
        assert view.live.since == next(
            p for p, *_ in left if [q for q, *_ in left if q >= p] == list(range(p, 13))
        )


async def test_a_closed_one_is_forgotten_if_asked(tmp_path: Path) -> None:
    copy = Copy()
    async with penstock.open(f"sqlite:///{tmp_path}/a.db") as engine:
        projection = await engine.project("copy", copy)
        with pytest.raises(Rejected) as twice:
            await engine.project("copy", copy)
        assert twice.value.code == "projection-taken"
        await projection.close()
        assert [(v.name, v.holder) for v in await engine.projections()] == [("copy", "")]
        await (await engine.project("copy", copy)).close(forget=True)
        assert await engine.projections() == []
        for bad in (
            lambda: engine.project("", copy),
            lambda: engine.project("x", None),  # type: ignore[arg-type]
            lambda: engine.project("x", copy, batch=0),
            lambda: engine.project("x", copy, types=["nothing"]),
        ):
            with pytest.raises(Rejected):
                await bad()
        with pytest.raises(penstock.NotFound):
            await projection.rebuild()


def test_it_works_without_asyncio(tmp_path: Path) -> None:
    seen: list[str] = []
    with penstock.sync.open(f"sqlite:///{tmp_path}/a.db") as engine:
        engine.register(TALK)
        projection = engine.project("s", lambda batch: seen.extend(e.type for e in batch.events))
        engine.start("talk", 1).result()
        projection.caught_up()
        assert seen == ["run_started", "published", "run_completed"]
        assert engine.projections()[0].live.lag == 0


VICTIM = """
import asyncio, os, signal, sqlite3, sys
import penstock
from penstock.engine import points

kill, own, rebuild = sys.argv[1], sys.argv[2] == "own", sys.argv[3] == "rebuild"
db = sqlite3.connect("model.db", check_same_thread=False)
db.executescript(
    "CREATE TABLE IF NOT EXISTS seen (target, position, run, seq);"
    "CREATE TABLE IF NOT EXISTS at (target INTEGER PRIMARY KEY, position);"
    "CREATE TABLE IF NOT EXISTS used (one INTEGER PRIMARY KEY, target);"
)
name, _, number = kill.partition(":")
count = 0

def reach(point):
    global count
    if point == name:
        count += 1
        if count == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

points.reach = reach

def handler(batch):
    with db:
        if batch.after == 0:
            db.execute("DELETE FROM seen WHERE target = ?", (batch.target,))
        db.executemany("INSERT INTO seen VALUES (?, ?, ?, ?)",
                       [(batch.target, e.position, e.run_id, e.seq) for e in batch.events])
        db.execute("INSERT OR REPLACE INTO at VALUES (?, ?)", (batch.target, batch.position))

def position(target):
    row = db.execute("SELECT position FROM at WHERE target = ?", (target,)).fetchone()
    return row[0] if row else 0

def swap(target):
    with db:
        db.execute("INSERT OR REPLACE INTO used VALUES (1, ?)", (target,))

async def main():
    async with penstock.open("sqlite:///a.db") as engine:
        p = await engine.project("copy", handler, batch=4, position=position if own else None, swap=swap)
        await p.caught_up()
        if rebuild and (await engine.projections())[0].live.target == 1:
            try:
                await p.rebuild()
            except penstock.Rejected:
                pass
            while (await engine.projections())[0].live.target == 1:
                await asyncio.sleep(0.01)
    print("done")

asyncio.run(main())
"""


@pytest.mark.parametrize("own", ["own", "ours"])
@pytest.mark.parametrize(
    "point",
    ["project.before:3", "project.handled:3", "project.saved:3", "project.handled:9", "project.swapped:1"],
)  # fmt: skip
async def test_a_kill_at_each_point_loses_nothing(tmp_path: Path, point: str, own: str) -> None:
    """kill -9 in the middle, twice, then to the end: every event is there; exactly once if the position is in the same
    transaction, else again at most the batch that was being worked off."""
    async with penstock.open(f"sqlite:///{tmp_path}/a.db") as engine:
        await engine.register(TALK)
        await talk(engine, *(f"r{n}" for n in range(10)))
    codes: list[int] = []
    for kill in (point, point, "none:0"):
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", textwrap.dedent(VICTIM), kill, own, "rebuild"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        codes.append(done.returncode)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert codes[0] == -signal.SIGKILL
    assert codes[-1] == 0
    db = sqlite3.connect(tmp_path / "model.db")
    (used,) = db.execute("SELECT target FROM used").fetchone()
    assert used == 2
    for target in (1, 2):
        seen = Counter(
            p for (p,) in db.execute("SELECT position FROM seen WHERE target = ?", (target,))
        )
        assert set(seen) == set(range(1, 31)), "nothing is lost"
        if own == "own":
            assert set(seen.values()) == {1}, "exactly once"
        else:
            assert sum(seen.values()) <= 30 + 2 * 4
    db.close()
