"""Penstock: runs a second of three sequential tasks."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import penstock
from measure import Answer, Options, options, rate, say
from penstock_app import ACTIVITIES, SEQUENCE, new_id, url
from store import Stores, stores
from workload import check, order

SECONDS = 4.0
CLIENTS = [100, 200, 500, 1000]
ALONE = 20
DEPENDENT_COMMITS = 4
COUNTED = "BENCH_COUNTED"
COUNTED_RUNS = 2_000


async def one_run(engine: penstock.Engine, number: int) -> None:
    run = await engine.start("sequence", order(number), id=new_id())
    check(number, await run.result())


async def commits_alone(engine: penstock.Engine, held: Stores) -> float:
    """Commits per run when one run is all there is: none of them can be shared, so these depend on each other."""
    before = held.commits("penstock")
    for number in range(ALONE):
        await one_run(engine, number)
    return (held.commits("penstock") - before) / ALONE


async def measure(given: Options, held: Stores) -> Answer:
    answer = Answer()
    found: dict[str, float] = {}
    counts: dict[str, dict[str, float]] = {}
    async with penstock.open(held.url("penstock"), activities=ACTIVITIES) as engine:
        await engine.register(SEQUENCE)
        alone = await commits_alone(engine, held)
        await rate(lambda number: one_run(engine, number), clients=200, seconds=0.5)
        for variant in given.variants:
            before = engine.stats()
            finished = 0

            async def work(number: int) -> None:
                nonlocal finished
                await one_run(engine, number)
                finished += 1

            seconds = given.seconds(SECONDS)
            found[variant] = await rate(work, clients=int(variant), seconds=seconds)
            counts[variant] = per_run(before, engine.stats(), finished)
        problems = await engine.audit((await engine.list(limit=1))[0].id)
    best = max(found, key=found.__getitem__)
    answer.variant = best
    answer.row("sequence", found[best], "runs/s")
    answer.facts = {
        "commits of a run alone": alone,
        "appends per run": counts[best]["appends"],
        "commits per run": counts[best]["commits"],
        "events per run": counts[best]["events"],
        "variants": found,
    }
    if alone < DEPENDENT_COMMITS or counts[best]["appends"] < DEPENDENT_COMMITS - 0.01:
        raise SystemExit(
            f"fewer than {DEPENDENT_COMMITS} dependent commits per run: {answer.facts}"
        )
    if problems:
        raise SystemExit(f"the hash chain does not check: {problems}")
    return answer


def per_run(before: dict[str, int], after: dict[str, int], runs: int) -> dict[str, float]:
    """What the store counted, per run."""
    return {name: (after[name] - before[name]) / runs for name in ("commits", "appends", "events")}


async def counted(folder: Path) -> None:
    """A fixed number of runs, for who counts the system calls of this process."""
    async with penstock.open(url(folder / "counted.db"), activities=ACTIVITIES) as engine:
        await engine.register(SEQUENCE)
        numbers = iter(range(COUNTED_RUNS))

        async def client() -> None:
            for number in numbers:
                await one_run(engine, number)

        await asyncio.gather(*[client() for _ in range(200)])


def syncs_per_run(folder: Path) -> float | None:
    """fsyncs per run at 200 at a time, as the kernel sees them; None where nobody can look."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    report = folder / "syncs.txt"
    command = [strace, "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(report)]
    try:
        subprocess.run(
            [*command, sys.executable, __file__],
            env={**os.environ, COUNTED: str(folder)},
            check=True,
            timeout=120,
            stdout=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        say(f"syncs were not counted: {error}")
        return None
    lines = re.findall(r"^.*\s(\d+)\s+(?:\d+\s+)?(?:fsync|fdatasync)$", report.read_text(), re.M)
    return sum(map(int, lines)) / COUNTED_RUNS


def main() -> None:
    if folder := os.environ.get(COUNTED):
        asyncio.run(counted(Path(folder)))
        return
    given = options(__doc__, [str(clients) for clients in CLIENTS], quick=["200", "500"])
    with stores(given) as held:
        answer = asyncio.run(measure(given, held))
    if (
        given.store == "sqlite"
        and len(given.variants) > 1
        and (syncs := syncs_per_run(given.folder)) is not None
    ):
        answer.facts["fsyncs per run, 200 at a time"] = syncs
    answer.emit()


if __name__ == "__main__":
    main()
