"""How fast the simulation is: runs of five steps per second of one core, with faults on (SPEC 13; issue 5 asks for 200).

python bench/simulation.py            on the memory store and on SQLite, definitions and functions
python bench/simulation.py --profile  where the time goes
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [
    str(ROOT / "tests"),
    str(ROOT / "src"),
]  # without this folder: it has another `simulation`

from penstock.testing.simulator import Scenario, simulate  # noqa: E402
from simulation.places import folder  # noqa: E402
from simulation.workload import scenario_of, workload_of  # noqa: E402

RUNS = 20
"""Of one scenario."""


def rate(scenarios: list[Scenario]) -> tuple[float, Counter[str]]:
    """Runs per second of processor time, and what happened to them."""
    counts: Counter[str] = Counter()
    workloads = [workload_of(scenario) for scenario in scenarios]
    gc.disable()
    with folder() as place:
        began = time.process_time()
        for scenario, workload in zip(scenarios, workloads, strict=True):
            result = simulate(scenario, workload, place)
            assert not result.problems, (scenario.seed, result.problems)
            counts += result.counts
            gc.collect(1)
        took = time.process_time() - began
    gc.enable()
    return counts["runs"] / took, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("-n", type=int, default=40, help="scenarios of each kind")
    given = parser.parse_args()
    for store in ("memory", "sqlite"):
        for name in ("five", "fn_steps"):
            scenarios = [
                scenario_of(seed, store=store, only=[name], runs=RUNS) for seed in range(given.n)
            ]
            rate(scenarios[:3])
            if given.profile:
                profile = cProfile.Profile()
                profile.runcall(rate, scenarios)
                pstats.Stats(profile).sort_stats("tottime").print_stats(40)
                return
            figure, counts = rate(scenarios)
            rough = ("crashes", "restarts", "store failures", "late results", "answers lost")
            said = ", ".join(f"{counts[what]} {what}" for what in rough)
            print(
                f"{store:<7} {name:<9} {figure:7.0f} runs/s of a core   ({counts['runs']} runs, {said})"
            )


if __name__ == "__main__":
    main()
