"""A life that writes, erases, deletes and archives runs with large payloads until it is killed; `test_data.py` judges."""

from __future__ import annotations

import asyncio
import signal

import msgspec

import penstock
from crash.victim import ring
from crash.workload import trace, trace_to
from penstock import activity
from penstock.engine.engine import Settings

LIFE_SECONDS_MAX = 120
MADE = {"id": "made", "tasks": {"a": {"do": "make", "inputs": {"size": {"from": "input"}}}}}
BRIEF = {
    "id": "brief",
    "retention": {"keep": 0},
    "tasks": {"a": {"do": "make", "inputs": {"size": {"value": 9}}}},
}


class Orders(msgspec.Struct):
    database: str
    folder: str
    """Of archives."""
    part: int
    log: str
    """Gets the id of every run whose result was told."""
    bell: str
    """A pipe by name, to say that the engine is open."""


@activity
async def make(size: int) -> str:
    return "x" * size


async def live(orders: Orders) -> None:
    trace_to(orders.log)
    async with penstock.open(
        f"sqlite:///{orders.database}", activities=[make], settings=Settings(retention=3600)
    ) as engine:
        await engine.register(MADE)
        await engine.register(BRIEF)
        ring(orders.bell)
        for n in range(1000):
            for size in (10, 6000, 1200000):
                id = f"{orders.part}-{n}-{size}"
                await (await engine.start("made", size, id=id)).result()
                trace(id)
                await (await engine.start("brief")).result()
            await engine.data.erase(f"{orders.part}-{n}-6000", by="t", reason="t")
            await engine.data.sweep()
            if n % 3 == 2:
                await engine.data.archive(orders.folder)


def main(orders: Orders) -> int:
    signal.alarm(LIFE_SECONDS_MAX)
    asyncio.run(live(orders))
    return 0
