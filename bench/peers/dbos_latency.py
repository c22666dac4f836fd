"""DBOS: how long a run of one step takes, one at a time."""

from __future__ import annotations

import asyncio

from measure import Answer, latencies, options, percentile
from peers.dbos_app import launch, single, single_async
from workload import check_one, order

SECONDS = 2.0


async def direct(number: int) -> None:
    check_one(number, single(order(number)))


async def awaited(number: int) -> None:
    check_one(number, await single_async(order(number)))


def main() -> None:
    given = options(__doc__, ["def", "async"], quick=["def"])
    launch(given.folder, given.store)
    works = {"def": direct, "async": awaited}
    seconds = given.seconds(SECONDS)

    async def measure() -> dict[str, list[float]]:
        found = {}
        for variant in given.variants:
            found[variant] = await latencies(works[variant], seconds=seconds)
        return found

    found = asyncio.run(measure())
    best = min(found, key=lambda variant: percentile(found[variant], 0.5))
    answer = Answer(variant=best)
    answer.row("latency p50", percentile(found[best], 0.5) * 1e3, "ms")
    answer.row("latency p99", percentile(found[best], 0.99) * 1e3, "ms")
    answer.emit()


if __name__ == "__main__":
    main()
