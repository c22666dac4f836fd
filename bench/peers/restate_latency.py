"""Restate: how long a run of one step takes, one at a time."""

from __future__ import annotations

import uvloop

from measure import Answer, Options, latencies, options, percentile
from peers.restate_cluster import VARIANTS, cluster
from workload import check_one, order

SECONDS = 2.0


async def measure(given: Options) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for variant in given.variants:
        folder = given.folder / variant
        folder.mkdir()
        async with cluster(folder, variant) as restate:

            async def work(number: int, restate=restate) -> None:
                check_one(number, await restate.call("/Bench/single", order(number)))

            found[variant] = await latencies(work, seconds=given.seconds(SECONDS), warm=100)
    return found


def main() -> None:
    found = uvloop.run(measure(options(__doc__, VARIANTS, quick=["typescript-24"])))
    best = min(found, key=lambda variant: percentile(found[variant], 0.5))
    answer = Answer(variant=best)
    answer.row("latency p50", percentile(found[best], 0.5) * 1e3, "ms")
    answer.row("latency p99", percentile(found[best], 0.99) * 1e3, "ms")
    answer.emit()


if __name__ == "__main__":
    main()
