"""Play seeds until one fails: `python tests/simulation/hunt.py SEEDS_MAX [FIRST]`, for whatever `penstock` is on the path.

`FIRST` is played before all others. Prints the seed and what was found, or nothing.
"""

from __future__ import annotations

import sys

from penstock.testing.simulator import simulate
from simulation.places import folder
from simulation.workload import scenario_of, workload_of


def main(seeds: int, first: int = 0) -> int:
    with folder() as place:
        for seed in (first, *range(seeds)):
            scenario = scenario_of(seed)
            problems = simulate(scenario, workload_of(scenario), place).problems
            if problems:
                print(seed, problems[0])
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
