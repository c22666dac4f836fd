"""Mistakes of the kinds that such engines have had, planted on purpose: the simulation finds each of them.

A patch is applied to a copy of the source; `hunt.py` then plays the seed that found it before, and if that finds nothing
seeds from 0 on until one fails. One that does not apply any more is to be made anew: the mistake it plants is its name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
SEEDS_MAX = 1000
FOUND = {
    "a-fenced-owner-that-writes": (0, "has no token"),
    "a-lost-wake-up": (4, "does not end"),
    "a-message-taken-twice": (0, "is received twice"),
    "a-recorded-task-again": (17, "begins twice"),
    "a-result-without-its-transaction": (71, "has booked"),
    "a-run-that-waits-for-nothing": (9, "waits for nothing"),
    "a-schedule-that-forgets": (105, "has decided"),
    "a-stale-attempt-accepted": (8, "whose attempt is"),
    "a-state-that-is-not-the-fold": (0, "is not the fold"),
    "a-task-before-its-commit": (0, "on disk"),
    "a-timer-before-its-time": (46, "fired before its time"),
    "a-timer-fired-twice": (22, "fired, and nobody waits for it"),
    "an-answer-before-its-commit": (0, "is not on disk"),
    "an-event-after-the-end": (7, "terminal is final"),
    "an-off-by-one-in-the-snapshots-tail": (21, "run.unreadable"),
}
"""The first seed that finds it, and what is said of it."""


def test_every_patch_is_known() -> None:
    assert sorted(path.stem for path in (HERE / "planted").glob("*.patch")) == sorted(FOUND)


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_planted_mistake_is_found(name: str, tmp_path: Path) -> None:
    seed, said = FOUND[name]
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    patch = HERE / "planted" / f"{name}.patch"
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True)
    paths = os.pathsep.join([str(tmp_path / "src"), str(HERE.parent)])
    hunted = subprocess.run(
        [sys.executable, str(HERE / "hunt.py"), str(SEEDS_MAX), str(seed)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert hunted.returncode == 0, hunted.stderr or "not found"
    assert said in hunted.stdout, hunted.stdout
