"""A life that opens a generation, works on a batch, resumes a definition or moves runs to a new version, and is killed on the way;
`test_control.py` and `test_migration.py` judge."""

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


def line(*names: str) -> dict[str, object]:
    """One after the other; `s` waits for a signal."""
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
        await engine.register(ONE)
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
        if orders.act.startswith("migrate"):
            await engine.register(TWO)
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
            case "migrate":
                await run.migrate("2", by="ann", command_id="once")
            case "migrate all":
                await engine.batch("migrate", definition="line", arguments={"version": "2"}, id="b")
                await engine.batches.wait("b")
            case _:
                await engine.batch("signal", definition="line", arguments={"name": "go"}, id="b")
                await engine.batches.wait("b")


def main(orders: Orders) -> int:
    signal.alarm(LIFE_SECONDS_MAX)
    asyncio.run(live(orders))
    return 0
