"""A life that opens a generation, works on a batch or resumes a definition, and is killed on the way; `test_control.py` judges."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import msgspec

import penstock
from penstock import activity
from penstock.engine import points

LIFE_SECONDS_MAX = 60
RUNS = 9
DEFINITION = {
    "id": "line",
    "tasks": {
        "a": {"do": "work", "inputs": {"name": {"value": "a"}}},
        "s": {"type": "signal", "name": "go", "after": "a"},
        "b": {"do": "work", "inputs": {"name": {"value": "b"}}, "after": "s"},
    },
}


class Orders(msgspec.Struct):
    url: str
    act: str
    point: str
    """SIGKILL when it is reached."""


@activity
async def work(name: str) -> str:
    return name


async def live(orders: Orders) -> None:
    def reach(name: str) -> None:
        if name == orders.point:
            os.kill(os.getpid(), signal.SIGKILL)

    async with penstock.open(orders.url, activities=[work]) as engine:
        await engine.register(DEFINITION)
        for number in range(RUNS):
            await engine.start("line", number, id=f"r{number}")
        for number in range(RUNS):
            while len(await (await engine.get(f"r{number}")).history()) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        run = await engine.get("r0")
        if orders.act == "retry":
            await run.cancel()
            with contextlib.suppress(penstock.RunFailed):
                await run.result()
        points.reach = reach
        match orders.act:
            case "reset":
                preview = await run.preview(1)
                await run.reset(1, token=preview.token, command_id="once")
            case "retry":
                await run.retry(command_id="once")
            case "resume":
                await engine.pause_definition("line", by="ann", reason="incident")
                await run.signal("go")  # `b` waits
                await engine.resume_definition("line", by="bob", reason="over")
            case _:
                await engine.batch("signal", definition="line", arguments={"name": "go"}, id="b")
                await engine.batches.wait("b")


def main(orders: Orders) -> int:
    signal.alarm(LIFE_SECONDS_MAX)
    asyncio.run(live(orders))
    return 0
