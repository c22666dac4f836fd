"""Penstock: starts a second, awaited one by one, and 100,000 in one call."""

from __future__ import annotations

import asyncio
import time

import penstock
from measure import Answer, Options, options, say
from penstock_app import ACTIVITIES, WAITING, new_id
from store import stores
from workload import order

RUNS = 100_000
RUNS_QUICK = 5_000
SECONDS = 4.0
"""One by one, half of it before and half of it after: the database is larger then."""


async def one_by_one(engine: penstock.Engine, seconds: float) -> tuple[int, float]:
    count, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        await engine.start("waiting", order(count), id=new_id())
        count += 1
    return count, elapsed


async def in_one_call(engine: penstock.Engine, runs: int) -> float:
    inputs = [order(number) for number in range(runs)]
    ids = [f"run-{number}" for number in range(runs)]
    begun = time.perf_counter()
    started = await engine.start_many("waiting", inputs, ids=ids)
    taken = time.perf_counter() - begun
    for number in range(0, runs, max(1, runs // 20)):
        shown = await started[number].show()
        if (shown.input, shown.status) != (order(number), "WAITING"):
            raise SystemExit(f"run {number} is not as it was started: {shown}")
    return taken


async def measure(given: Options, url: str) -> Answer:
    answer, runs = Answer(), RUNS_QUICK if given.quick else RUNS
    async with penstock.open(url, activities=ACTIVITIES) as engine:
        await engine.register(WAITING)
        before = await one_by_one(engine, given.seconds(SECONDS) / 2)
        say(f"bulk: {before[0] / before[1]:,.0f} a second one by one")
        taken = await in_one_call(engine, runs)
        after = await one_by_one(engine, given.seconds(SECONDS) / 2)
        rows = await engine.list(definition="waiting", limit=before[0] + after[0] + runs + 1)
        if len(rows) != before[0] + after[0] + runs:
            raise SystemExit(f"{len(rows)} runs exist")
    singly = (before[0] + after[0]) / (before[1] + after[1])
    answer.row("bulk: one by one", singly, "runs/s", reduced=given.quick)
    answer.row("bulk: in one call", runs / taken, "runs/s", reduced=given.quick)
    return answer


def main() -> None:
    given = options(__doc__)
    with stores(given) as held:
        asyncio.run(measure(given, held.url("bulk"))).emit()


if __name__ == "__main__":
    main()
