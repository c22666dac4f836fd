"""Restate: one run that gathers 1,000 steps."""

from __future__ import annotations

import time

import uvloop

from measure import Answer, Options, options
from peers.restate_cluster import VARIANTS, cluster
from workload import FANOUT, check_all, order

WARM = 3


async def measure(given: Options) -> dict[str, float]:
    found: dict[str, float] = {}
    items = [order(number) for number in range(FANOUT)]
    for variant in given.variants:
        folder = given.folder / variant
        folder.mkdir()
        async with cluster(folder, variant) as restate:
            for _ in range(WARM):
                await restate.call("/Bench/fanout", items)
            begun = time.perf_counter()
            results = await restate.call("/Bench/fanout", items)
            taken = time.perf_counter() - begun
            check_all(FANOUT, results)
            found[variant] = FANOUT / taken
    return found


def main() -> None:
    found = uvloop.run(measure(options(__doc__, VARIANTS, quick=["typescript-2"])))
    answer = Answer(variant=max(found, key=found.__getitem__), facts={"variants": found})
    answer.row("fanout", max(found.values()), "tasks/s")
    answer.emit()


if __name__ == "__main__":
    main()
