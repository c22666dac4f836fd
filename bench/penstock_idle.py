"""Penstock: statements a second of an engine that has nothing to do, as the server counts them."""

from __future__ import annotations

import asyncio

import penstock
from measure import Answer, Options, options
from penstock_app import ACTIVITIES, SEQUENCE, WAITING, new_id
from store import Stores, stores
from workload import check, order

WINDOW_SECONDS = 10.0
SETTLE_SECONDS = 4.0
COUNT = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = 'idle'"
RUNS = 100


async def measure(given: Options, held: Stores) -> Answer:
    assert held.server is not None
    counter = held.server
    counter.execute("CREATE EXTENSION pg_stat_statements")  # in another database than the engine's
    async with penstock.open(held.url("idle"), activities=ACTIVITIES) as engine:
        await engine.register(SEQUENCE)
        await engine.register(WAITING)
        for number in range(RUNS):  # it has worked, and has runs that wait
            run = await engine.start("sequence", order(number), id=new_id())
            check(number, await run.result())
            await engine.start("waiting", order(number), id=new_id())
        await asyncio.sleep(SETTLE_SECONDS)
        before = int(await asyncio.to_thread(counter.execute, COUNT))
        await asyncio.sleep(WINDOW_SECONDS)
        after = int(await asyncio.to_thread(counter.execute, COUNT))
    answer = Answer()
    if before < RUNS:
        raise SystemExit(f"only {before} statements were counted while it worked")
    answer.row("idle", (after - before) / WINDOW_SECONDS, "statements/s")
    return answer


def main() -> None:
    given = options(__doc__)
    with stores(given, shared_preload_libraries="pg_stat_statements") as held:
        asyncio.run(measure(given, held)).emit()


if __name__ == "__main__":
    main()
