"""A bench that is ended, by whatever, leaves nothing behind: no measuring script, no server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

RUN = Path(__file__).resolve().parents[2] / "bench" / "run.py"
START_SECONDS_MAX = 90.0
END_SECONDS_MAX = 12.0
"""The question takes 14 s from where it is ended."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that measures on a server of its own, in a process group of its own, as `timeout` makes it."""
    with (tmp_path / "talk").open("wb") as talk:
        process = subprocess.Popen(
            [sys.executable, RUN, "--quick", "--only", "idle", "--subjects", "penstock-postgres"],
            stdout=talk,
            stderr=talk,
            process_group=0,
        )
    family: list[psutil.Process] = []
    try:
        family += under_way(process, tmp_path / "talk")
        yield process
    finally:
        for each in [*family, psutil.Process(process.pid)] if process.poll() is None else family:
            if each.is_running():
                each.kill()
        process.wait()


def under_way(process: subprocess.Popen[bytes], talk: Path) -> list[psutil.Process]:
    """Its processes, once somebody works on the database `idle` of its server."""
    end = time.monotonic() + START_SECONDS_MAX
    while True:
        family = psutil.Process(process.pid).children(recursive=True)
        if any(title_of(each).startswith("postgres: postgres idle") for each in family):
            return family
        assert process.poll() is None, talk.read_text()
        assert time.monotonic() < end, (family, talk.read_text())
        time.sleep(0.05)


def title_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.parametrize(
    "signals",
    [
        [signal.SIGINT],
        # From `timeout` to its group and from `make` to what it runs: twice.
        [signal.SIGTERM, signal.SIGTERM],
        [signal.SIGKILL],
    ],
    ids=lambda signals: signals[0].name,
)
def test_nothing_is_left_of_a_bench_that_is_ended(
    bench: subprocess.Popen[bytes], signals: list[signal.Signals]
) -> None:
    family = psutil.Process(bench.pid).children(recursive=True)
    script = psutil.Process(bench.pid).children()[0].cmdline()
    folder = Path(script[script.index("--folder") + 1])
    assert folder.exists()

    for each in signals:
        os.kill(bench.pid, each)

    assert bench.wait(END_SECONDS_MAX) != 0
    _, alive = psutil.wait_procs(family, timeout=END_SECONDS_MAX)
    assert [title_of(each) for each in alive] == []
    if signal.SIGKILL in signals:
        shutil.rmtree(folder.parent)  # nobody was left to do it
    assert not folder.exists()
