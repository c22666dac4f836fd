"""DBOS: one workflow that gathers 1,000 steps."""

from __future__ import annotations

import asyncio
import time

from measure import Answer, options
from peers.dbos_app import fanout, launch
from workload import FANOUT, check_all, order


async def measure(tasks: int) -> float:
    items = [order(number) for number in range(tasks)]
    await fanout(items[:50])
    begun = time.perf_counter()
    results = await fanout(items)
    taken = time.perf_counter() - begun
    check_all(tasks, results)
    return tasks / taken


def main() -> None:
    given = options(__doc__)
    launch(given.folder, given.store)
    answer = Answer()
    answer.row("fanout", asyncio.run(measure(FANOUT)), "tasks/s")
    answer.emit()


if __name__ == "__main__":
    main()
