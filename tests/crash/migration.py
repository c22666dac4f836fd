"""A life that moves runs to a new version and is killed on the way; `test_migration.py` judges."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec

import penstock
from penstock import activity
from penstock.engine import points

LIFE_SECONDS_MAX = 60
RUNS = 5


def line(*names: str) -> dict[str, object]:
    tasks: dict[str, object] = {}
    for before, name in zip((None, *names), names, strict=False):
        task: dict[str, object] = {"do": "work", "inputs": {"name": {"value": name}}}
        if name == "s":
            task = {"type": "signal", "name": "go"}
        tasks[name] = task if before is None else {**task, "after": before}
    return {"id": "line", "tasks": tasks}


ONE, TWO = line("a", "s", "b"), line("a", "s", "n", "b")


class Orders(msgspec.Struct):
    url: str
    point: str
    """SIGKILL when it is reached."""
    many: bool
    """All runs by a batch, or one."""


@activity
async def work(name: str) -> str:
    return name


async def live(orders: Orders) -> None:
    def reach(name: str) -> None:
        if name == orders.point:
            os.kill(os.getpid(), signal.SIGKILL)

    async with penstock.open(orders.url, activities=[work]) as engine:
        await engine.register(ONE)
        for number in range(RUNS):
            run = await engine.start("line", number, id=f"r{number}")
            async for change in run.watch():
                if change.event.type == "task_completed":
                    break
        await engine.register(TWO)
        points.reach = reach
        if orders.many:
            await engine.batch("migrate", definition="line", arguments={"version": "2"}, id="b")
            await engine.batches.wait("b")
        else:
            await (await engine.get("r0")).migrate("2", by="ann", command_id="once")


def main(orders: Orders) -> int:
    signal.alarm(LIFE_SECONDS_MAX)
    asyncio.run(live(orders))
    return 0
