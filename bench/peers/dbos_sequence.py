"""DBOS: runs a second of three sequential steps."""

from __future__ import annotations

import asyncio
import itertools
import time
from concurrent.futures import ThreadPoolExecutor

from measure import Answer, options, rate
from peers.dbos_app import launch, sequence, sequence_async
from workload import check, order

SECONDS = 4.0


def in_threads(clients: int, seconds: float) -> float:
    numbers = itertools.count()
    begun = time.perf_counter()

    def client(_: int) -> int:
        finished = 0
        while time.perf_counter() - begun < seconds:
            number = next(numbers)
            check(number, sequence(order(number)))
            finished += 1
        return finished

    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(client, range(clients))) / (time.perf_counter() - begun)


async def in_the_loop(clients: list[int], seconds: float) -> list[float]:
    async def work(number: int) -> None:
        check(number, await sequence_async(order(number)))

    return [await rate(work, clients=count, seconds=seconds) for count in clients]


def main() -> None:
    given = options(__doc__, ["def-1", "def-8", "def-16", "async-4"], quick=["def-8"])
    seconds = given.seconds(SECONDS)
    launch(given.folder, given.store)
    found: dict[str, float] = {}
    loops: list[int] = []
    for variant in given.variants:
        style, _, clients = variant.partition("-")
        if style == "def":
            found[variant] = in_threads(int(clients), seconds)
        else:
            loops.append(int(clients))
    if loops:  # last, and in one loop: DBOS keeps the first loop that it sees
        measured = asyncio.run(in_the_loop(loops, seconds))
        found |= {f"async-{c}": figure for c, figure in zip(loops, measured, strict=True)}
    answer = Answer(variant=max(found, key=found.__getitem__), facts={"variants": found})
    answer.row("sequence", max(found.values()), "runs/s")
    answer.emit()


if __name__ == "__main__":
    main()
