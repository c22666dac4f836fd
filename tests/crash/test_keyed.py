"""Key limits and limits on runs over kill -9: never two of one key at a time, and nothing is lost (SPEC 4.10)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import penstock
from crash.keyed import KEYS, RUNS

TESTS = Path(__file__).parents[1]
LIVES_MAX = 60


def life(database: Path, log: Path, seconds: float | None) -> int:
    """One process, killed after a while."""
    path = os.pathsep.join([str(TESTS), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-m", "crash.keyed", str(database), str(log)],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    try:
        before, deadline = _size(log), time.monotonic() + 60
        # It is killed so long after it began to work, not while it is still being imported.
        while process.poll() is None and _size(log) == before and time.monotonic() < deadline:
            time.sleep(0.005)
        return process.wait(seconds if seconds is not None else 60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        return process.wait()


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


async def test_keys_never_overlap_and_nothing_is_lost_over_kills(tmp_path: Path) -> None:
    database, log = tmp_path / "a.db", tmp_path / "log"
    chance = random.Random(7)
    killed = 0
    for number in range(LIVES_MAX):
        status = life(database, log, chance.uniform(0.01, 0.06) if number < 12 else None)
        if status == 0:
            break
        assert status == -signal.SIGKILL, status
        killed += 1
    assert killed >= 3
    under_way: Counter[tuple[str, str]] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    for line in log.read_text().splitlines():
        word, process, *rest = line.split()
        if word == "done":
            continue
        key, run, task, _ = rest
        if word == "begin":
            under_way[process, key] += 1
            assert under_way[process, key] == 1, line
        else:
            under_way[process, key] -= 1
            ended[run, task] += 1
    assert set(ended) == {(f"r{n}", task) for n in range(RUNS) for task in "ab"}
    assert len({key for _, key in under_way}) == KEYS
    async with penstock.open(f"sqlite:///{database}", execute=False) as engine:
        rows = await engine.list(limit=1000)
        assert {row.status for row in rows} == {"COMPLETED"}
        assert len(rows) == RUNS
        for row in rows:
            run = await engine.get(row.id)
            types = Counter(item.type for item in await run.history())
            assert types["task_completed"] == 2
            assert types["run_admitted"] == 1
        assert await engine.audit() == []
