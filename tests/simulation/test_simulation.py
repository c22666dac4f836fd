"""The engine under faults: no invariant is broken, every run ends, and a seed says all of it (SPEC 13)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

from penstock.testing.simulator import simulate
from simulation.places import folder
from simulation.workload import scenario_of, workload_of

SEEDS = range(193, 217)
"""In which all that can break does."""
SAME = "7, 30, 97"
"""Seeds that are played in two processes."""


def test_no_invariant_is_broken_whatever_breaks() -> None:
    counts: Counter[str] = Counter()
    with folder() as place:
        for seed in SEEDS:
            scenario = scenario_of(seed)
            result = simulate(scenario, workload_of(scenario), place)
            assert result.problems == [], f"seed {seed}"
            counts += result.counts
    # It was rough.
    for what in (
        "crashes", "restarts", "orderly restarts", "power losses", "stalls", "clock jumps forth", "clock jumps back",
        "late results", "answers lost", "callers cut off", "store failures", "slow answers", "disk full", "hints lost",
        "nodes cut off", "commits done whose answer was lost", "commits failed", "appends refused: Fenced",
        "appends refused: RevisionConflict", "schedules", "act update", "transactions",
    ):  # fmt: skip
        assert counts[what] > 0, what


def test_a_seed_gives_the_same_histories_in_every_process() -> None:
    code = (
        "from simulation.places import folder\n"
        "from simulation.workload import scenario_of, workload_of\n"
        "from penstock.testing.simulator import simulate\n"
        "with folder() as place:\n"
        f"    for seed in ({SAME}):\n"
        "        scenario = scenario_of(seed)\n"
        "        result = simulate(scenario, workload_of(scenario), place)\n"
        "        print(seed, result.digest, sorted(result.counts.items()))\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": chance, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for chance in ("1", "4711")
    ]
    assert told[0] == told[1]
    assert told[0].count("\n") == 3
