"""Two lives of one subject: the first is killed with all its runs inside task 2, the second goes on.

In its first life task 2 never ends, so that every run is certainly open and inside it when `kill -9`
comes, however slow the engine is at starting; in the second it sleeps the 2 s that the question says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

NAP_SECONDS = 2.0
NAP_SECONDS_FIRST = 3600.0
LIFE = "BENCH_LIFE"


def nap_seconds() -> float:
    """How long task 2 sleeps in this life."""
    return NAP_SECONDS_FIRST if os.environ.get(LIFE) == "first" else NAP_SECONDS


def recovery(command: Sequence[str]) -> float:
    """Seconds from the start of the second process until it says that all runs are complete."""
    first = _start(command, "first")
    try:
        _wait_for(first, "ready")
    finally:
        _kill(first)
    begun = time.perf_counter()
    second = _start(command, "second")
    try:
        _wait_for(second, "done")
        taken = time.perf_counter() - begun
        _wait_for(second, "checked")
        return taken
    finally:
        _kill(second)


def _start(command: Sequence[str], life: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, LIFE: life},
        stdout=subprocess.PIPE,
        text=True,
    )


def _wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    raise SystemExit(f"the process ended before it was {word}")


def _kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
