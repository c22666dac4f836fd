"""The workloads as DBOS applications: steps and workflows with its decorators, its default database.

Its default is SQLite in the current folder; the same on PostgreSQL by its URL alone. Tracing and Conductor are off unless asked for.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig

from lives import nap_seconds
from server import serving
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


def launch(folder: Path, store: str = "sqlite") -> None:
    """On its default database, or on a PostgreSQL that ends with this process."""
    os.chdir(folder)
    config: DBOSConfig = {"name": "bench", "log_level": "ERROR"}
    if store == "postgres":
        server = serving(folder)
        config["system_database_url"] = server.__enter__().database("dbos")
        atexit.register(server.__exit__, None, None, None)
    DBOS(config=config)
    DBOS.launch()
