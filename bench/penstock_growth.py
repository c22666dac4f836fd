"""Penstock: what a run costs in an empty and in a full database, and an event in a short and in a long run."""

from __future__ import annotations

import asyncio
import time

import penstock
from growth import alternate, full_database, report, runs_of
from growth_postgres import full_database as full_on_postgres
from measure import Answer, options
from penstock_app import ACTIVITIES, LONG, LONG_ITEMS, SEQUENCE, Tock, new_id, url
from store import stores
from workload import check, order

CLIENTS = 200
RUNS_PER_WINDOW = 4_000
RUNS_PER_WINDOW_QUICK = 1_000
EVENTS_SHORT = 1_000
EVENTS_LONG = 101_000
EVENTS_LONG_QUICK = 10_000
EVENTS_PER_PART = 1_000
PARTS_PER_WINDOW = 5
"""A window of the short is five young runs, each from its 1,000th event on."""


async def runs_window(engine: penstock.Engine, runs: int) -> float:
    """Seconds per run."""
    numbers = iter(range(runs))

    async def client() -> None:
        for number in numbers:
            run = await engine.start("sequence", order(number), id=new_id())
            check(number, await run.result())

    begun = time.perf_counter()
    await asyncio.gather(*[client() for _ in range(CLIENTS)])
    return (time.perf_counter() - begun) / runs


async def per_run(answer: Answer, empty: str, full: str, *, quick: bool) -> None:
    runs = RUNS_PER_WINDOW_QUICK if quick else RUNS_PER_WINDOW
    async with (
        penstock.open(empty, activities=ACTIVITIES) as small,
        penstock.open(full, activities=ACTIVITIES) as large,
    ):
        await small.register(SEQUENCE)
        await large.register(SEQUENCE)
        found = await alternate(lambda: runs_window(small, runs), lambda: runs_window(large, runs))
    report(answer, "growth: run, empty", found[0], reduced=quick)
    report(answer, "growth: run, full", found[1], reduced=quick)


async def grow(run: penstock.Run, events: int) -> tuple[int, float]:
    """Let a run pass until it has so many events more; how many and how long it took."""
    before = (await run.show()).revision
    passes = max(1, round(events / (LONG_ITEMS + 3)))
    begun = time.perf_counter()
    for _ in range(passes):
        Tock.heard.clear()
        await run.signal("tick")
        await Tock.heard.wait()
    taken = time.perf_counter() - begun
    return (await run.show()).revision - before, taken


async def per_event(answer: Answer, url: str, *, quick: bool) -> None:
    items = list(range(LONG_ITEMS))
    async with penstock.open(url, activities=ACTIVITIES) as engine:
        await engine.register(LONG)
        old = await engine.start("long", items, id=new_id())
        await grow(old, EVENTS_LONG_QUICK if quick else EVENTS_LONG)
        reached = (await old.show()).revision

        async def short() -> float:
            events, seconds = 0, 0.0
            for _ in range(PARTS_PER_WINDOW):
                young = await engine.start("long", items, id=new_id())
                await grow(young, EVENTS_SHORT)
                part = await grow(young, EVENTS_PER_PART)
                events, seconds = events + part[0], seconds + part[1]
                await young.terminate()
            return seconds / events

        async def long() -> float:
            events, seconds = await grow(old, EVENTS_PER_PART * PARTS_PER_WINDOW)
            return seconds / events

        found = await alternate(short, long)
    answer.facts["events of the long run"] = reached
    report(answer, "growth: event at 1,000", found[0], reduced=quick)
    report(answer, "growth: event at 100,000", found[1], reduced=quick)


def main() -> None:
    given = options(__doc__)
    answer = Answer()
    runs, folder = runs_of(given), given.folder
    with stores(given) as held:
        if held.server is None:
            full = url(full_database(folder, runs))
        else:
            full = full_on_postgres(held.server, folder, runs)
        asyncio.run(per_run(answer, held.url("empty"), full, quick=given.quick))
        asyncio.run(per_event(answer, held.url("long"), quick=given.quick))
    answer.emit()


if __name__ == "__main__":
    main()
