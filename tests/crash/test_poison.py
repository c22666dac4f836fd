"""What ends its own process, and what survives it: poison, `once`, a standby, several processes, a pause (SPEC 4.3, 4.8)."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock
from crash import scenes, victim, workload
from crash.harness import KILLED, Bell, Nursery
from crash.judge import judge
from penstock.model.codec import decode_event
from penstock.model.events import TaskCompleted

LIVES_MAX = 10


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Nursery(tmp_path_factory.mktemp("scenes") / "errors", "crash.scenes") as nursery:
        yield nursery


def lines(path: Path, word: str) -> list[list[str]]:
    found = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return [words[1:] for words in found if words[0] == word]


def begins(path: Path) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words) for words in lines(path, "begin"))


def scene(tmp_path: Path, name: str, **more: Any) -> scenes.Orders:
    return scenes.Orders(name, str(tmp_path / "penstock.db"), str(tmp_path / "log"), **more)


def live(nursery: Nursery, orders: scenes.Orders) -> int:
    nursery.bear(orders)
    return nursery.wait()


async def test_an_activity_that_kills_its_child_process_three_times_is_poison(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    async with penstock.open(
        f"sqlite:///{tmp_path / 'penstock.db'}", activities=scenes.ACTIVITIES, processes=2
    ) as engine:
        for definition in scenes.DEFINITIONS:
            await engine.register(definition)
        bad = await engine.start("child", str(log), id="bad")
        good = [await engine.start("adds", number) for number in range(10)]

        assert await scenes.ended(bad) == "poison"
        assert [await run.result() for run in good] == list(range(1, 11))
        assert begins(log) == {("bad", "bad", str(n)): 1 for n in (1, 2, 3)}


def test_an_activity_that_ends_the_engine_each_time_is_poison_and_the_others_complete(
    nursery: Nursery, tmp_path: Path
) -> None:
    orders = scene(tmp_path, "poison")
    ends = [scenes.BAD]
    while ends[-1] == scenes.BAD and len(ends) <= LIVES_MAX:
        ends.append(live(nursery, orders))

    log = tmp_path / "log"
    assert ends[1:] == [scenes.BAD] * 5 + [0]
    assert dict(lines(log, "end-of"))["the-bad"] == "poison"
    assert begins(log)["the-bad", "bad", "5"] == 1
    verdict = judge(tmp_path / "penstock.db", log, range(17))
    assert verdict.complaints == []


@pytest.mark.parametrize("name", ["once", "once-by-task"])
def test_an_activity_that_runs_at_most_once_and_is_lost_fails_with_its_outcome_unknown(
    nursery: Nursery, tmp_path: Path, name: str
) -> None:
    orders = scene(tmp_path, name)

    assert [live(nursery, orders), live(nursery, orders)] == [scenes.BAD, 0]
    log = tmp_path / "log"
    assert dict(lines(log, "end-of"))["the-bad"] == "outcome-unknown"
    assert [words for words in begins(log) if words[0] == "the-bad"] == [("the-bad", "bad", "1")]
    assert judge(tmp_path / "penstock.db", log, range(17)).complaints == []


def test_four_processes_on_one_database_execute_each_task_once(tmp_path: Path) -> None:
    database, log = str(tmp_path / "penstock.db"), str(tmp_path / "log")
    nurseries = [Nursery(tmp_path / f"errors-{n}") for n in range(4)]
    size = 2 * len(workload.KINDS)
    try:
        for number, each in enumerate(nurseries):
            each.bear(
                victim.Orders(
                    database, log, first=number * size, last=(number + 1) * size, drain=10
                )
            )
        assert [each.wait() for each in nurseries] == [0, 0, 0, 0]
    finally:
        for each in nurseries:
            each.__exit__(None, None, None)

    verdict = judge(Path(database), Path(log), range(4 * size))
    assert verdict.complaints == []
    assert verdict.losses == 0
    assert set(begins(Path(log)).values()) == {1}


def test_a_standby_takes_over_at_once_when_the_owner_is_killed(
    nursery: Nursery, tmp_path: Path
) -> None:
    bell = Bell(tmp_path / "bell")
    with Nursery(tmp_path / "errors", "crash.scenes") as other:
        owner = other.bear(scene(tmp_path, "own", bell=bell.path))
        assert bell.wait(20) == b"owner"
        nursery.bear(scene(tmp_path, "stand-by", bell=bell.path))
        assert bell.wait(20) == b"standing-by"
        os.kill(owner, signal.SIGKILL)
        killed = time.time()
        assert other.wait() == KILLED
        assert nursery.wait() == 0
    bell.close()

    since = float(lines(tmp_path / "log", "took-over")[0][1])
    assert since - killed < 2


def test_a_standby_takes_over_from_an_owner_that_is_stopped_and_nothing_it_still_does_counts(
    nursery: Nursery, tmp_path: Path
) -> None:
    """SPEC 4.8: ownership ends with its lease, too; the fencing token refuses what comes later."""
    bell = Bell(tmp_path / "bell")
    with Nursery(tmp_path / "errors", "crash.scenes") as other:
        owner = other.bear(scene(tmp_path, "stopped", bell=bell.path))
        assert bell.wait(20) == b"owner"
        nursery.bear(scene(tmp_path, "stand-by", bell=bell.path))
        assert bell.wait(20) == b"standing-by"
        os.kill(owner, signal.SIGSTOP)
        halted = time.time()
        assert nursery.wait() == 0
        os.kill(owner, signal.SIGCONT)
        assert other.wait() == 0
    bell.close()

    log = tmp_path / "log"
    assert float(lines(log, "took-over")[0][1]) - halted < 10
    assert len(lines(log, "saw")) == 5
    assert set(recorded(tmp_path / "penstock.db").values()) == {1}


def test_an_owner_that_is_stopped_inside_a_commit_is_named_and_taken_over_from_when_it_lets_go(
    nursery: Nursery, tmp_path: Path
) -> None:
    bell = Bell(tmp_path / "bell")
    with Nursery(tmp_path / "errors", "crash.scenes") as other:
        owner = other.bear(scene(tmp_path, "stopped-inside", bell=bell.path))
        assert bell.wait(20) == b"owner"
        nursery.bear(scene(tmp_path, "stand-by-told", bell=bell.path))
        assert bell.wait(20) == b"standing-by"
        os.kill(owner, signal.SIGUSR1)
        assert bell.wait(20) == b"said"
        assert lines(tmp_path / "log", "took-over") == []
        os.kill(owner, signal.SIGKILL)
        killed = time.time()
        assert other.wait() == KILLED
        assert nursery.wait() == 0
    bell.close()

    assert float(lines(tmp_path / "log", "took-over")[0][1]) - killed < 10  # SPEC 4.8


def recorded(database: Path) -> Counter[tuple[int, str]]:
    """How often each task is recorded as completed, by the histories."""
    done: Counter[tuple[int, str]] = Counter()
    with closing(sqlite3.connect(database)) as db:
        for run, payload in db.execute("SELECT run, payload FROM events"):
            event = decode_event(payload)
            if isinstance(event, TaskCompleted):
                done[(run, event.key)] += 1
    return done


def test_a_run_paused_during_a_map_is_resumed_after_a_restart(
    nursery: Nursery, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    assert live(nursery, scene(tmp_path, "pause")) == KILLED
    before = begins(log)
    assert live(nursery, scene(tmp_path, "resume")) == 0

    words = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    resumed = words.index(["resumed", "gated-0"])
    early = Counter(tuple(w[1:]) for w in words[:resumed] if w[0] == "begin" and w[1] == "gated-0")
    assert early == before
    done = {key for run, key, _ in before if run == "gated-0"}
    assert len(done) < len(scenes.GATED)
    assert set(begins(log).values()) == {1}
