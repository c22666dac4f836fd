"""A life that publishes to runs that wait, and is killed on the way; `test_bus.py` starts it again and judges."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec

import penstock
from penstock.engine import points

RUNS = 4
EVENTS = 6
LIFE_SECONDS_MAX = 120
WAITS = {
    "id": "waits",
    "tasks": {
        "all": {
            "type": "loop",
            "until": f"iteration == {EVENTS}",
            "body": {
                "tasks": {
                    "e": {
                        "type": "event",
                        "topic": "orders.paid",
                        "where": "event.data.run == run.id",
                    },
                    "t": {
                        "type": "transform",
                        "set": {"got": "tasks.e.output.n"},
                        "after": "e",
                    },
                }
            },
        }
    },
    "data": {"got": {"merge": "append"}},
    "outputs": {"got": "data.got"},
}
TELLS = {
    "id": "tells",
    "tasks": {
        "tell": {
            "type": "publish",
            "topic": "orders.paid",
            "payload": {"run": "${input.run}", "n": "${input.n}"},
        }
    },
}


class Orders(msgspec.Struct):
    database: str
    log: str
    mode: str
    point: str = ""
    """SIGKILL when it is reached for the `count`th time."""
    count: int = 0


def note(log: str, line: str) -> None:
    with open(log, "a") as file:
        file.write(line + "\n")


def noted(log: str) -> list[str]:
    path = Path(log)
    return path.read_text().split() if path.exists() else []


def arm(point: str, count: int) -> None:
    left = [count]

    def reached(name: str) -> None:
        if name == point:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    if point:
        points.reach = reached


async def live(orders: Orders) -> None:
    log, mode = orders.log, orders.mode
    arm(orders.point, orders.count)
    acknowledged = set(noted(log))
    async with penstock.open(f"sqlite:///{orders.database}") as engine:
        await engine.register(WAITS)
        await engine.register(TELLS)
        runs = [await engine.start("waits", id=f"w{n}") for n in range(RUNS)]
        for n in range(EVENTS):
            ids = [f"w{r}-{n}" for r in range(RUNS)]
            if mode == "batch":
                if ids[0] not in acknowledged:
                    await engine.bus.publish_batch(
                        [
                            {"topic": "orders.paid", "id": id, "data": {"run": f"w{r}", "n": n}}
                            for r, id in enumerate(ids)
                        ]
                    )
                    note(log, "\n".join(ids))
                continue
            for r, id in enumerate(ids):
                if id in acknowledged:
                    continue
                if mode == "run":
                    # Started is acknowledged: what it publishes must arrive, and once.
                    await engine.start("tells", {"run": f"w{r}", "n": n}, id=f"t-{id}")
                    await seen(engine, f"w{r}", n)
                else:
                    await engine.bus.publish("orders.paid", {"run": f"w{r}", "n": n}, id=id)
                note(log, id)
        for run in runs:
            await asyncio.wait_for(run.result(), 20)


async def seen(engine: penstock.Engine, id: str, n: int) -> None:
    """Until the run has it, so that the next one does not come before it waits again."""
    async with asyncio.timeout(20):
        while True:
            history = await (await engine.get(id)).history()
            got = sum(item.type == "event_received" for item in history)
            if got > n:
                return
            await asyncio.sleep(0.005)


def main(orders: Orders) -> int:
    signal.alarm(LIFE_SECONDS_MAX)
    asyncio.run(live(orders))
    return 0
