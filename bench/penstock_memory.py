"""Penstock: resident memory with 100,000 waiting runs, and of one run with 100,000 tasks."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import penstock
from measure import Answer, options
from penstock_app import ACTIVITIES, MANY, WAITING, url
from workload import check_one, order

WAITING_RUNS = 100_000
TASKS = 100_000
QUICK = 10
"""The quick bench takes a tenth."""
CLIENTS = 1_000
ALONE = "BENCH_TASKS"


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mib() -> float:
    """The most that was ever resident; of this process alone, which `getrusage` does not give."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1]) / 1024


async def each(count: int, work) -> float:
    """Calls a second."""
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            await work(number)

    begun = time.perf_counter()
    await asyncio.gather(*[client() for _ in range(CLIENTS)])
    return count / (time.perf_counter() - begun)


async def waiting(answer: Answer, folder: Path, *, quick: bool) -> None:
    runs = WAITING_RUNS // (QUICK if quick else 1)
    async with penstock.open(url(folder / "waiting.db"), activities=ACTIVITIES) as engine:
        await engine.register(WAITING)

        async def start(number: int) -> None:
            await engine.start("waiting", order(number), id=f"run-{number}")

        async def signal(number: int) -> None:
            run = await engine.get(f"run-{number}")
            await run.signal("go")
            check_one(number, await run.result())

        answer.facts["starts of waiting runs a second"] = await each(runs, start)
        await asyncio.sleep(1)
        answer.row("memory: waiting runs", resident_mib(), "MiB", reduced=quick)
        answer.row("signals", await each(runs, signal), "runs/s", reduced=quick)
        answer.facts["peak MiB after signalling all"] = peak_mib()


async def tasks(folder: Path, count: int) -> None:
    async with penstock.open(url(folder / "tasks.db"), activities=ACTIVITIES) as engine:
        await engine.register(MANY)
        begun = time.perf_counter()
        run = await engine.start("many", list(range(count)), id="many")
        result = await run.result()
        seconds = time.perf_counter() - begun
    if result != {"count": count}:
        raise SystemExit(f"wrong result: {result!r}")
    print(peak_mib(), seconds)


def main() -> None:
    if alone := os.environ.get(ALONE):
        asyncio.run(tasks(Path(sys.argv[1]), int(alone)))
        return
    given = options(__doc__)
    answer = Answer()
    count = TASKS // (QUICK if given.quick else 1)
    asyncio.run(waiting(answer, given.folder, quick=given.quick))
    done = subprocess.run(
        [sys.executable, __file__, str(given.folder)],
        env={**os.environ, ALONE: str(count)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    peak, seconds = map(float, done.stdout.split())
    answer.row("memory: tasks of one run", peak, "MiB", reduced=given.quick)
    answer.facts["tasks a second of one run"] = count / seconds
    answer.emit()


if __name__ == "__main__":
    main()
