"""The workloads as a Restate service, with its Python SDK; served by Granian.

Its documentation serves with Hypercorn, which was slower in our trials. `restate_service.cjs` is the same with
the SDK for TypeScript.
"""

from __future__ import annotations

import asyncio
from typing import Any

import restate

from lives import nap_seconds
from workload import OPEN_RUNS, step

Dict = dict[str, Any]
bench = restate.Service("Bench")
nap = restate.Workflow("Nap")


@bench.handler()
async def sequence(ctx: restate.Context, data: Dict) -> Dict:
    for stage in (1, 2, 3):
        data = await ctx.run_typed(f"step-{stage}", step, stage=stage, data=data)
    return data


@bench.handler()
async def single(ctx: restate.Context, data: Dict) -> Dict:
    return await ctx.run_typed("step-1", step, stage=1, data=data)


@bench.handler()
async def fanout(ctx: restate.Context, items: list[Dict]) -> list[Dict]:
    steps = [
        ctx.run_typed(f"step-{number}", step, stage=1, data=item)
        for number, item in enumerate(items)
    ]
    await restate.gather(*steps)
    return [await one for one in steps]


class Progress:
    napping = 0
    finished = 0


async def sleep(data: Dict) -> Dict:
    Progress.napping += 1
    if Progress.napping == OPEN_RUNS:
        print("napping", flush=True)
    await asyncio.sleep(nap_seconds())
    return step(2, data)


@nap.main()
async def run(ctx: restate.WorkflowContext, data: Dict) -> Dict:
    data = await ctx.run_typed("step-1", step, stage=1, data=data)
    data = await ctx.run_typed("step-2", sleep, data=data)
    data = await ctx.run_typed("step-3", step, stage=3, data=data)
    Progress.finished += 1
    if Progress.finished == OPEN_RUNS:
        print("finished", flush=True)
    return data


app = restate.app([bench, nap])
