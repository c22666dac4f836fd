"""Mistakes of the kinds that such engines have had, planted on purpose: the simulation finds each of them.

A patch is applied to a copy of the source; `hunt.py` then plays seeds from 0 on until one fails. One that does not apply any
more is to be made anew: the mistake it plants is its name.
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
SAID = {
    "a-lost-wake-up": "does not end",
    "a-stale-attempt-accepted": "whose attempt is",
    "a-timer-fired-twice": "fired, and nobody waits for it",
    "an-answer-before-its-commit": "is not on disk",
    "an-off-by-one-in-the-snapshots-tail": "run.unreadable",
}
"""What is said of each."""


def test_every_patch_is_known() -> None:
    assert sorted(path.stem for path in (HERE / "planted").glob("*.patch")) == sorted(SAID)


@pytest.mark.parametrize("name", sorted(SAID))
def test_a_planted_mistake_is_found(name: str, tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    patch = HERE / "planted" / f"{name}.patch"
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True)
    paths = os.pathsep.join([str(tmp_path / "src"), str(HERE.parent)])
    hunted = subprocess.run(
        [sys.executable, str(HERE / "hunt.py"), str(SEEDS_MAX)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert hunted.returncode == 0, hunted.stderr or "not found"
    assert SAID[name] in hunted.stdout, hunted.stdout
