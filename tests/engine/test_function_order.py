"""Nothing that a workflow function wants depends on hashes or addresses, which are others in each process (SPEC 2.8)."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import asyncio
import random
import sys
from asyncio import as_completed

from penstock import Context, activity, workflow
from penstock.testing import harness

wanted = []


@activity
async def note(what):
    wanted.append(what)
    return what


async def one(ctx, number):
    return await ctx.call(note, number)


@workflow
async def coroutines(ctx: Context) -> None:
    for each in as_completed([one(ctx, number) for number in range(12)]):
        await each


@workflow
async def steps(ctx: Context) -> None:
    for each in asyncio.as_completed([ctx.call(note, number) for number in range(12)], timeout=60):
        await ctx.call(note, await each)


@workflow
async def gathered(ctx: Context) -> None:
    done, _ = await asyncio.wait([asyncio.gather(ctx.call(note, number)) for number in range(12)])
    for each in done:
        await ctx.call(note, each.result()[0])
    for each in set(done):
        await ctx.call(note, each.result()[0])


@workflow
async def sets(ctx: Context) -> set[str]:
    fruit = {"apple", "pear", "plum", "fig", "kiwi"}
    await ctx.call(note, {"all": fruit, "pairs": {frozenset(("a", "b")), frozenset(("c",))}})
    return fruit


async def main():
    holes = [bytearray(random.randrange(500)) for _ in range(random.randrange(5000))]
    del holes[:: random.randrange(2, 5)]
    for each in (coroutines, steps, gathered, sets):
        async with harness(workflows=[each], activities=[note], guard=False) as engine:
            wanted.append(await engine.finish(await engine.start(each, id=each.__name__)))


asyncio.run(main())
wanted[-1] = sorted(wanted[-1])
print(wanted)
"""


def test_another_process_wants_the_same_in_the_same_order() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={**environment, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert said[0].startswith("[0, 1, 2")
    assert len(set(said)) == 1
