"""Bus events over kill -9: what was acknowledged reaches the runs that wait, once and in order (SPEC 2.2, 7.1)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from crash.bus import EVENTS, RUNS

TESTS = Path(__file__).parents[1]
POINTS = {
    "one": ("route.before", "route.after", "decided.event_received", "stored.event_received", "append.after"),
    "batch": ("route.kept", "route.before", "route.after", "route.dropped", "stored.event_received"),
    "run": ("outbox.before", "route.after", "stored.published", "outbox.saved", "stored.event_received"),
}  # fmt: skip


def live(database: Path, log: Path, point: str, count: int, mode: str) -> int:
    path = os.pathsep.join([str(TESTS), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "crash.bus", str(database), str(log), point, str(count), mode],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.parametrize("mode", sorted(POINTS))
async def test_what_was_acknowledged_is_there_once_and_in_order(tmp_path: Path, mode: str) -> None:
    for number, point in enumerate(POINTS[mode]):
        database, log = tmp_path / f"{point}.db", tmp_path / f"{point}.log"
        count = 1 if number % 2 else 3
        assert live(database, log, point, count, mode) != 0, point
        assert live(database, log, "-", 0, mode) == 0
        async with penstock.open(f"sqlite:///{database}", execute=False) as engine:
            for n in range(RUNS):
                run = await engine.get(f"w{n}")
                history = await run.history()
                ids = [item.event.id for item in history if item.type == "event_received"]
                assert len(ids) == len(set(ids)) == EVENTS, (point, ids)
                assert (await run.result()) == {"got": list(range(EVENTS))}, point
