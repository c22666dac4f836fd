"""The workloads as DBOS applications: steps and workflows with its decorators, its default database.

Its default is SQLite in the current folder. Tracing and Conductor are off unless asked for.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from dbos import DBOS

from lives import nap_seconds
from workload import OPEN_RUNS, step

Dict = dict[str, Any]


@DBOS.step()
def step_one(data: Dict) -> Dict:
    return step(1, data)


@DBOS.step()
def step_two(data: Dict) -> Dict:
    return step(2, data)


@DBOS.step()
def step_three(data: Dict) -> Dict:
    return step(3, data)


@DBOS.workflow()
def sequence(data: Dict) -> Dict:
    return step_three(step_two(step_one(data)))


@DBOS.workflow()
def single(data: Dict) -> Dict:
    return step_one(data)


@DBOS.step()
async def step_one_async(data: Dict) -> Dict:
    return step(1, data)


@DBOS.step()
async def step_two_async(data: Dict) -> Dict:
    return step(2, data)


@DBOS.step()
async def step_three_async(data: Dict) -> Dict:
    return step(3, data)


@DBOS.workflow()
async def sequence_async(data: Dict) -> Dict:
    return await step_three_async(await step_two_async(await step_one_async(data)))


@DBOS.workflow()
async def single_async(data: Dict) -> Dict:
    return await step_one_async(data)


@DBOS.workflow()
async def fanout(items: list[Dict]) -> list[Dict]:
    return await asyncio.gather(*[step_one_async(item) for item in items])


class Progress:
    """How far the runs of this process are; for `dbos_recovery.py`."""

    napping = 0
    all_napping = asyncio.Event()


@DBOS.step()
async def nap(data: Dict) -> Dict:
    Progress.napping += 1
    if Progress.napping == OPEN_RUNS:
        Progress.all_napping.set()
    await asyncio.sleep(nap_seconds())
    return step(2, data)


@DBOS.workflow()
async def sequence_with_nap(data: Dict) -> Dict:
    return await step_three_async(await nap(await step_one_async(data)))


def launch(folder: Path) -> None:
    os.chdir(folder)
    DBOS(config={"name": "bench", "log_level": "ERROR"})
    DBOS.launch()
