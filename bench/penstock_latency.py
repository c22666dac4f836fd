"""Penstock: how long a run of one task takes, one at a time."""

from __future__ import annotations

import asyncio

import penstock
from measure import Answer, Options, latencies, options, percentile
from penstock_app import ACTIVITIES, SINGLE, new_id
from store import stores
from workload import check_one, order

SECONDS = 2.0


async def measure(given: Options) -> list[float]:
    with stores(given) as held:
        return await _measure(given, held.url("penstock"))


async def _measure(given: Options, url: str) -> list[float]:
    async with penstock.open(url, activities=ACTIVITIES) as engine:
        await engine.register(SINGLE)

        async def work(number: int) -> None:
            run = await engine.start("single", order(number), id=new_id())
            check_one(number, await run.result())

        return await latencies(work, seconds=given.seconds(SECONDS))


def main() -> None:
    taken = asyncio.run(measure(options(__doc__)))
    answer = Answer()
    answer.row("latency p50", percentile(taken, 0.5) * 1e3, "ms")
    answer.row("latency p99", percentile(taken, 0.99) * 1e3, "ms")
    answer.emit()


if __name__ == "__main__":
    main()
