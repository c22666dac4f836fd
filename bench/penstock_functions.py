"""Penstock: workflow functions beside definitions on the same store, and 100,000 steps in one function.

Ratios are taken between neighbours in time, in one process: a round of each after the other, now the one first and now
the other, medians of all rounds. Each is told twice: by the clock, as the questions `sequence`, `latency` and `fanout` are
asked, and by processor time of this process alone, which leaves out the disk, the server of the database and who else
uses the machine.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import penstock
import penstock_app
from measure import Answer, Options, options
from penstock import Context, workflow
from penstock_app import ACTIVITIES, SEQUENCE, SINGLE, double, new_id, one, three, two
from penstock_app import nap as _nap  # noqa: F401  (one of ACTIVITIES)
from store import stores
from workload import FANOUT, check, check_all, check_one, order

ROUNDS = 36
"""On a shared machine three runs of this gave medians from 0.77 to 0.87 with 12 rounds, and from 0.82 to 0.85 with 36."""
CLIENTS, CLIENT_RUNS, SINGLE_RUNS, FANOUT_RUNS = 200, 5, 200, 2
STEPS, SAMPLE = 100_000, 10_000
Dict = dict[str, Any]


@workflow(name="sequence-function")
async def sequence(ctx: Context, data: Dict) -> Dict:
    return await ctx.call(three, await ctx.call(two, await ctx.call(one, data)))


@workflow(name="single-function")
async def single(ctx: Context, data: Dict) -> Dict:
    return await ctx.call(one, data)


@workflow(name="fanout-function")
async def fanout(ctx: Context, items: list[Dict]) -> list[Dict]:
    return await ctx.map(one, items)


class Marks:
    """When and how large the process was, every so many steps of `long`."""

    seen: list[tuple[float, float]] = []

    @classmethod
    def take(cls) -> None:
        cls.seen.append((time.process_time(), _resident()))


@workflow
async def long(ctx: Context, steps: int) -> int:
    value = 1
    for number in range(steps):
        if number % SAMPLE == 0 and not Telling.on:
            Marks.take()
        value = await ctx.call(double, value) % 1000
    if not Telling.on:
        Marks.take()
    await ctx.signal("end")
    return value


class Telling:
    on = False


def _resident() -> float:
    """MiB of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


Work = Callable[[int], Awaitable[None]]


async def _cost(work: Work, count: int, clients: int) -> tuple[float, float]:
    """Seconds, and processor seconds, of so many runs, so many at a time."""
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            await work(number)

    clock, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - clock, time.process_time() - processor


async def beside(answer: Answer, name: str, plain: Work, code: Work, given: Options) -> None:
    """How a function does against its definition: 1 is alike, less is slower."""
    count, clients = {
        "sequence": (CLIENTS * CLIENT_RUNS, CLIENTS), "latency": (SINGLE_RUNS, 1), "fanout": (FANOUT_RUNS, 1),
    }[name]  # fmt: skip
    for work in (plain, code):
        await _cost(work, count, clients)
    shares: list[tuple[float, float]] = []
    for number in range(ROUNDS // 9 if given.quick else ROUNDS):
        turns = (plain, code) if number % 2 == 0 else (code, plain)
        took = {work: await _cost(work, count, clients) for work in turns}
        shares.append((took[plain][0] / took[code][0], took[plain][1] / took[code][1]))
    answer.row(f"functions: {name}", median(each[0] for each in shares), "of definitions")
    processor = median(each[1] for each in shares)
    answer.row(f"functions: {name}, processor", processor, "of definitions")


async def compare(answer: Answer, url: str, given: Options) -> None:
    functions = [sequence, single, fanout]
    async with penstock.open(url, activities=ACTIVITIES, workflows=functions) as engine:
        for definition in (SEQUENCE, SINGLE, penstock_app.FANOUT):
            await engine.register(definition)
        items = [order(number) for number in range(FANOUT)]

        def of(what: Any, input: Any, right: Callable[[int, Any], None]) -> Work:
            async def work(number: int) -> None:
                given = order(number) if input is None else input
                run = await engine.start(what, given, id=new_id())
                right(number, await run.result())

            return work

        def all_right(_number: int, found: Any) -> None:
            check_all(FANOUT, found)

        await beside(
            answer, "sequence", of("sequence", None, check), of(sequence, None, check), given
        )
        await beside(
            answer, "latency", of("single", None, check_one), of(single, None, check_one), given
        )
        await beside(
            answer, "fanout", of("fanout", items, all_right), of(fanout, items, all_right), given
        )


async def long_run(answer: Answer, url: str, given: Options) -> None:
    steps = STEPS // 5 if given.quick else STEPS
    Marks.seen.clear()
    async with penstock.open(url, activities=ACTIVITIES, workflows=[long]) as engine:
        run = await engine.start(long, steps, id="long")
        while len(Marks.seen) <= steps // SAMPLE:  # noqa: ASYNC110 - nobody else says so
            await asyncio.sleep(0.05)
    marks = Marks.seen
    early, late = marks[1][0] - marks[0][0], marks[-1][0] - marks[-2][0]
    grown = (marks[-1][1] - marks[1][1]) * 1024 / (steps - SAMPLE)
    between = list(itertools.pairwise(marks))
    answer.facts["functions: seconds of each 10,000 steps"] = " ".join(
        f"{after[0] - before[0]:.2f}" for before, after in between
    )
    answer.facts["functions: MiB after each 10,000 steps"] = " ".join(
        f"{size:.1f}" for _, size in marks
    )
    answer.row("functions: late step", late / early, "× an early one", reduced=given.quick)
    answer.row("functions: growth", max(grown, 0.0), "KiB/step", reduced=given.quick)
    Telling.on = True
    gc.collect()
    async with penstock.open(url, activities=ACTIVITIES, workflows=[long]) as engine:
        run = await engine.get("long")
        before = time.process_time()
        await run.signal("end")
        await run.result()
        took = time.process_time() - before
    Telling.on = False
    answer.row("functions: replay", steps / took, "steps/s", reduced=given.quick)


async def measure(given: Options) -> Answer:
    answer = Answer()
    with stores(given) as held:
        await compare(answer, held.url("beside"), given)
        await long_run(answer, held.url("long"), given)
    return answer


if __name__ == "__main__":
    asyncio.run(measure(options(__doc__))).emit()
