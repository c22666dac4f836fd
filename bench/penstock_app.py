"""The workloads as Penstock definitions, with everything on: hash chain, run row, snapshots, recovery."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from lives import nap_seconds
from penstock import activity
from workload import step

Dict = dict[str, Any]


@activity
async def one(data: Dict) -> Dict:
    return step(1, data)


@activity
async def two(data: Dict) -> Dict:
    return step(2, data)


@activity
async def three(data: Dict) -> Dict:
    return step(3, data)


class Progress:
    """How far the runs of this process are; for `penstock_recovery.py`."""

    napping = 0
    wanted = 0
    all_napping = asyncio.Event()


@activity
async def nap(data: Dict) -> Dict:
    Progress.napping += 1
    if Progress.napping == Progress.wanted:
        Progress.all_napping.set()
    await asyncio.sleep(nap_seconds())
    return step(2, data)


@activity
async def double(number: int) -> int:
    return number * 2


class Tock:
    """Set when a pass of `long` is over; for `penstock_growth.py`."""

    heard = asyncio.Event()


@activity
async def tock() -> None:
    Tock.heard.set()


ACTIVITIES = [one, two, three, nap, double, tock]


def _chain(name: str, *activities: str) -> Dict:
    tasks: Dict = {}
    before: str | None = None
    for number, called in enumerate(activities, start=1):
        task: Dict = {"do": called, "inputs": {"data": {"from": before or "input"}}}
        if before is not None:
            task["after"] = [before]
        before = f"task{number}"
        tasks[before] = task
    return {"id": name, "version": "1", "tasks": tasks}


SEQUENCE = _chain("sequence", "one", "two", "three")
SINGLE = _chain("single", "one")
NAPPING = _chain("napping", "one", "nap", "three")
FANOUT = {
    "id": "fanout",
    "version": "1",
    "tasks": {
        "all": {
            "type": "map",
            "items": "input",
            "body": {"do": "one", "inputs": {"data": {"from": "item"}}},
        }
    },
}
MANY = {
    "id": "many",
    "version": "1",
    "tasks": {
        "all": {
            "type": "map",
            "items": "input",
            "limit": 100,
            "body": {"do": "double", "inputs": {"number": {"from": "item"}}},
        }
    },
    "outputs": {"count": "size(tasks.all.output)"},
}
WAITING = {
    "id": "waiting",
    "version": "1",
    "tasks": {
        "go": {"type": "signal", "name": "go"},
        "work": {"do": "one", "after": ["go"], "inputs": {"data": {"from": "input"}}},
    },
}
LONG_ITEMS = 100
LONG = {
    "id": "long",
    "version": "1",
    "tasks": {
        "passes": {
            "type": "loop",
            "while": "iteration < 1000000",
            "body": {
                "tasks": {
                    "tick": {"type": "signal", "name": "tick"},
                    "items": {
                        "type": "map",
                        "after": ["tick"],
                        "items": "input",
                        "body": {"do": "double", "inputs": {"number": {"from": "item"}}},
                    },
                    "tock": {"do": "tock", "after": ["items"]},
                }
            },
        }
    },
}


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def new_id() -> str:
    """Random, as the users of `raw` have it."""
    return os.urandom(16).hex()
