"""Restate: 500 workflows inside step 2, `kill -9` of server and service, both again: seconds until all are complete."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import uvloop

from lives import LIFE
from measure import Answer, Options, options
from peers.restate_cluster import VARIANTS, cluster
from workload import OPEN_RUNS, check, order

NUMBERS = range(OPEN_RUNS)


async def measure_one(folder: Path, variant: str) -> float:
    os.environ[LIFE] = "first"
    async with cluster(folder, variant) as restate:
        sends = [restate.call(f"/Nap/run-{n}/run/send", order(n)) for n in NUMBERS]
        await asyncio.gather(*sends)
        await restate.said("napping")
    # Leaving the block killed both with SIGKILL.
    os.environ[LIFE] = "second"
    begun = time.perf_counter()
    async with cluster(folder, variant, register=False) as restate:
        await restate.said("finished")
        taken = time.perf_counter() - begun
        attached = [restate.attach(f"/restate/workflow/Nap/run-{n}/attach") for n in NUMBERS]
        results = await asyncio.gather(*attached)
    for number, result in zip(NUMBERS, results, strict=True):
        check(number, result)
    return taken


async def measure(given: Options) -> dict[str, float]:
    found: dict[str, float] = {}
    for variant in given.variants:
        folder = given.folder / variant
        folder.mkdir()
        found[variant] = await measure_one(folder, variant)
    return found


def main() -> None:
    found = uvloop.run(measure(options(__doc__, VARIANTS[:2], quick=VARIANTS[:1])))
    answer = Answer(variant=min(found, key=found.__getitem__), facts={"variants": found})
    answer.row("recovery", min(found.values()), "s")
    answer.emit()


if __name__ == "__main__":
    main()
