"""Restate: runs a second of three sequential steps."""

from __future__ import annotations

from pathlib import Path

import uvloop

from measure import Answer, Options, options, rate
from peers.restate_cluster import VARIANTS, Cluster, cluster
from workload import check, order

SECONDS = 4.0
WARM_SECONDS = 2.0
CLIENTS = [64, 256]
CHOICES = [f"{variant}-{clients}" for variant in VARIANTS for clients in CLIENTS]


async def measure_one(restate: Cluster, clients: int, seconds: float) -> float:
    async def work(number: int) -> None:
        check(number, await restate.call("/Bench/sequence", order(number)))

    return await rate(work, clients=clients, seconds=seconds)


async def measure(given: Options) -> dict[str, float]:
    found: dict[str, float] = {}
    for variant in VARIANTS:
        chosen = [name for name in given.variants if name.rpartition("-")[0] == variant]
        if not chosen:
            continue
        folder = Path(given.folder) / variant
        folder.mkdir()
        async with cluster(folder, variant) as restate:
            await measure_one(restate, 64, WARM_SECONDS)
            for name in chosen:
                clients = int(name.rpartition("-")[2])
                found[name] = await measure_one(restate, clients, given.seconds(SECONDS))
    return found


def main() -> None:
    found = uvloop.run(measure(options(__doc__, CHOICES, quick=["typescript-2-256"])))
    answer = Answer(variant=max(found, key=found.__getitem__), facts={"variants": found})
    answer.row("sequence", max(found.values()), "runs/s")
    answer.emit()


if __name__ == "__main__":
    main()
