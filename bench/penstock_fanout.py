"""Penstock: one run that maps over 1,000 items at once."""

from __future__ import annotations

import asyncio
import time

import penstock
import penstock_app
from measure import Answer, Options, options
from penstock_app import ACTIVITIES, new_id
from store import stores
from workload import FANOUT, check_all, order

WARM = 3


async def measure(given: Options) -> float:
    with stores(given) as held:
        return await _measure(held.url("penstock"))


async def _measure(url: str) -> float:
    items = [order(number) for number in range(FANOUT)]
    async with penstock.open(url, activities=ACTIVITIES) as engine:
        await engine.register(penstock_app.FANOUT)
        for _ in range(WARM):
            run = await engine.start("fanout", items, id=new_id())
            await run.result()
        begun = time.perf_counter()
        run = await engine.start("fanout", items, id=new_id())
        results = await run.result()
        taken = time.perf_counter() - begun
    check_all(FANOUT, results)
    return FANOUT / taken


def main() -> None:
    given = options(__doc__)
    answer = Answer()
    answer.row("fanout", asyncio.run(measure(given)), "tasks/s")
    answer.emit()


if __name__ == "__main__":
    main()
