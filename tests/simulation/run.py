"""`make sim`: seeds on all cores, until stopped or until `N` of them are played; a seed that fails is shrunk and shown.

python tests/simulation/run.py                     until stopped, from a seed that the clock gives
python tests/simulation/run.py -n 10000 --from 0   seeds 0 to 9999
python tests/simulation/run.py --seed 4711         one seed, with its histories
python tests/simulation/run.py --scenario FILE     a shrunk scenario, as it was printed
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

import msgspec  # noqa: E402

from penstock.testing.shrinking import Shrinking  # noqa: E402
from penstock.testing.simulator import Result, Scenario, simulate  # noqa: E402
from simulation.places import folder  # noqa: E402
from simulation.workload import scenario_of, workload_of  # noqa: E402

TELL_SECONDS = 10.0
FAILURES_MAX = 5
COLLECT_EVERY = 20


def play(scenario: Scenario) -> Result:
    try:
        with folder() as place:
            return simulate(scenario, workload_of(scenario), place)
    except Exception as error:
        text = f"the simulation broke: {type(error).__name__}: {error}"
        return Result("", [text], Counter(), {})


def _played(seed: int) -> tuple[int, list[str], Counter[str], float]:
    began = time.process_time()
    if not seed % COLLECT_EVERY:
        gc.collect()
    result = play(scenario_of(seed))
    return seed, result.problems, result.counts, time.process_time() - began


def shown(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in sorted(counts.items()))


def search(seeds: Iterator[int], jobs: int) -> int:
    """Play them; the number of those that failed."""
    counts: Counter[str] = Counter()
    played, busy, failed, told = 0, 0.0, 0, time.monotonic()
    began = told
    try:
        with get_context("spawn").Pool(jobs, initializer=gc.disable) as pool:
            for seed, problems, happened, seconds in pool.imap_unordered(
                _played, seeds, chunksize=4
            ):
                played += 1
                counts += happened
                busy += seconds
                if problems:
                    failed += 1
                    fail(seed, problems)
                    if failed >= FAILURES_MAX:
                        break
                if time.monotonic() > told + TELL_SECONDS:
                    told = time.monotonic()
                    print(f"{played:,} seeds, {failed} failed", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        pass
    print(f"{played:,} seeds in {time.monotonic() - began:.0f} s, {failed} failed")
    print(f"what happened: {shown(counts)}")
    if busy:
        print(
            f"{counts['runs'] / busy:.0f} runs, {counts['attempts'] / busy:.0f} attempts per second of a core"
        )
    return failed


def fail(seed: int, problems: list[str]) -> None:
    print(f"\nseed {seed} fails: {problems[0]}")
    print(f"  replay: python tests/simulation/run.py --seed {seed}")
    smaller = Shrinking(play).shrink(scenario_of(seed), problems[0])
    print(
        f"  shrunk to {len(smaller.starts)} runs, {len(smaller.deeds)} acts, {len(smaller.faults)} faults,"
        f" {smaller.nodes} nodes; put this into a file for --scenario:"
    )
    print(f"  {msgspec.json.encode(smaller).decode()}\n", flush=True)


def replay(scenario: Scenario) -> int:
    result = play(scenario)
    for name, payloads in result.histories.items():
        print(name)
        for number, payload in enumerate(payloads, 1):
            print(f"  {number:3} {payload.decode()[:240]}")
    print(f"digest {result.digest}\nwhat happened: {shown(result.counts)}")
    for problem in result.problems:
        print(f"problem: {problem}")
    return len(result.problems)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Deterministic simulation of the engine under faults."
    )
    parser.add_argument("-n", type=int, help="how many seeds; until stopped if left out")
    parser.add_argument("--from", type=int, dest="first", help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one and show its histories")
    parser.add_argument("--scenario", type=Path, help="play the scenario in this file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.scenario is not None:
        return replay(msgspec.json.decode(given.scenario.read_bytes(), type=Scenario))
    if given.seed is not None:
        return replay(scenario_of(given.seed))
    first = int(time.time()) % 1_000_000 * 1000 if given.first is None else given.first
    seeds = itertools.count(first) if given.n is None else iter(range(first, first + given.n))
    return 1 if search(seeds, given.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
