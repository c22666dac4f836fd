"""One life of an engine with key limits, killed from outside; `python -m crash.keyed DATABASE LOG` goes on until all is done."""

from __future__ import annotations

import asyncio
import os
import sys

import penstock
from crash.workload import trace, trace_to
from penstock import activity
from penstock.engine.settings import Settings
from penstock.sdk.attempt import current

RUNS, KEYS = 90, 5
DOCUMENT = """
id: keyed
limits: {runs: 20}
tasks:
  a: {do: hold, queue: narrow, inputs: {key: {from: input}}, limits: {key: input, name: account}}
  b: {do: hold, after: a, inputs: {key: {from: input}}, limits: {key: input, name: account}}
"""


@activity
async def hold(key: str) -> str:
    """Begins and ends are traced with the process: no two of one key may overlap in it."""
    here = current()
    trace("begin", os.getpid(), key, here.run_id, here.key, here.attempt)
    await asyncio.sleep(0.003)
    trace("end", os.getpid(), key, here.run_id, here.key, here.attempt)
    return key


async def main(database: str, log: str) -> None:
    trace_to(log)
    settings = Settings(queues={"narrow": {"limit": 3}}, drain_seconds=0.01)
    async with penstock.open(
        f"sqlite:///{database}", activities=[hold], settings=settings
    ) as engine:
        await engine.register(DOCUMENT)
        for number in range(RUNS):
            await engine.start("keyed", f"k{number % KEYS}", id=f"r{number}")
        for number in range(RUNS):
            assert await (await engine.get(f"r{number}")).result() == f"k{number % KEYS}"
        trace("done", os.getpid())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
