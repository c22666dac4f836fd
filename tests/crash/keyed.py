"""One life of an engine with key limits, killed from outside; it goes on until all is done."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec

import penstock
from crash.victim import ring
from crash.workload import trace, trace_to
from penstock import activity
from penstock.engine.settings import Settings
from penstock.sdk.attempt import current

LIFE_SECONDS_MAX = 60
RUNS, KEYS = 90, 5
DOCUMENT = """
id: keyed
limits: {runs: 20}
tasks:
  a: {do: hold, queue: narrow, inputs: {key: {from: input}}, limits: {key: input, name: account}}
  b: {do: hold, after: a, inputs: {key: {from: input}}, limits: {key: input, name: account}}
"""


class Orders(msgspec.Struct):
    database: str
    log: str
    bell: str
    """A pipe by name, to say that the first attempt has ended: a life that is killed has done something."""


bells: list[str] = []


@activity
async def hold(key: str) -> str:
    """Begins and ends are traced with the process: no two of one key may overlap in it."""
    here = current()
    trace("begin", os.getpid(), key, here.run_id, here.key, here.attempt)
    await asyncio.sleep(0.003)
    trace("end", os.getpid(), key, here.run_id, here.key, here.attempt)
    while bells:
        ring(bells.pop())
    return key


async def live(orders: Orders) -> None:
    trace_to(orders.log)
    bells.append(orders.bell)
    settings = Settings(queues={"narrow": {"limit": 3}}, drain_seconds=0.01)
    async with penstock.open(
        f"sqlite:///{orders.database}", activities=[hold], settings=settings
    ) as engine:
        await engine.register(DOCUMENT)
        for number in range(RUNS):
            await engine.start("keyed", f"k{number % KEYS}", id=f"r{number}")
        for number in range(RUNS):
            assert await (await engine.get(f"r{number}")).result() == f"k{number % KEYS}"
        trace("done", os.getpid())


def main(orders: Orders) -> int:
    signal.alarm(LIFE_SECONDS_MAX)
    asyncio.run(live(orders))
    return 0
