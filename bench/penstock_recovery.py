"""Penstock: open runs inside task 2, `kill -9`, a new process: seconds until all are complete."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import penstock
from lives import LIFE, recovery
from measure import Answer, options
from penstock.engine.engine import Settings
from penstock_app import ACTIVITIES, NAPPING, Progress, url
from workload import OPEN_RUNS, check, order

OPEN_RUNS_MANY = 10_000
CLIENTS = 500


async def each(runs: int, work) -> None:
    numbers = iter(range(runs))

    async def client() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*[client() for _ in range(CLIENTS)])


async def first(engine: penstock.Engine, runs: int) -> None:
    async def start(number: int) -> None:
        await engine.start("napping", order(number), id=f"run-{number}")

    await engine.register(NAPPING)
    await each(runs, start)
    await Progress.all_napping.wait()
    print("ready", flush=True)
    await asyncio.sleep(60)


async def second(engine: penstock.Engine, runs: int) -> None:
    handles = [await engine.get(f"run-{number}") for number in range(runs)]
    results = await asyncio.gather(*[run.result() for run in handles])
    print("done", flush=True)
    for number, result in enumerate(results):
        check(number, result)
    print("checked", flush=True)


async def live(folder: Path, runs: int) -> None:
    Progress.wanted = runs
    settings = Settings(max_concurrent_tasks_per_node=max(1_000, runs))
    async with penstock.open(
        url(folder / f"penstock-{runs}.db"), activities=ACTIVITIES, settings=settings
    ) as engine:
        await (first if os.environ[LIFE] == "first" else second)(engine, runs)


def main() -> None:
    if LIFE in os.environ:
        asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2])))
        return
    given = options(__doc__)
    folder = str(given.folder)
    answer = Answer()
    answer.row("recovery", recovery([__file__, folder, str(OPEN_RUNS)]), "s")
    many = recovery([__file__, folder, str(OPEN_RUNS_MANY)])
    answer.row("recovery of 10,000", many, "s")
    answer.emit()


if __name__ == "__main__":
    main()
