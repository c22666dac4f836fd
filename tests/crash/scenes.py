"""Lives with a story of their own: activities that end their process, a standby, a pause that outlives its process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

import penstock
from crash import workload
from crash.victim import Connection, ring
from crash.workload import trace
from penstock import activity
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine import points
from penstock.engine.engine import Settings
from penstock.errors import RunFailed
from penstock.ports.store import Owner
from penstock.sdk.attempt import current

LIFE_SECONDS_MAX = 60
BAD = 9
"""The status with which a bad activity ends the whole process."""


class Orders(msgspec.Struct):
    scene: str
    database: str
    log: str
    bell: str = ""
    """A pipe by name, to tell the parent where we are."""


@activity
async def ends_the_engine() -> None:
    here = current()
    trace("begin", here.run_id, here.key, here.attempt)
    os._exit(BAD)


@activity(once=True)
async def ends_the_engine_once() -> None:
    here = current()
    trace("begin", here.run_id, here.key, here.attempt)
    os._exit(BAD)


@activity(cpu=True)
def ends_its_child(log: str) -> None:
    here = current()
    workload.trace_to(log)
    trace("begin", here.run_id, here.key, here.attempt)
    os.kill(os.getpid(), signal.SIGKILL)


@activity(cpu=True)
def adds(value: int) -> int:
    return value + 1


gate: asyncio.Event


@activity
async def through_the_gate(value: int) -> int:
    here = current()
    trace("begin", here.run_id, here.key, here.attempt)
    if value >= 5:
        await gate.wait()
    return value + 1


ACTIVITIES = [
    *workload.ACTIVITIES, ends_the_engine, ends_the_engine_once, ends_its_child, adds, through_the_gate,
]  # fmt: skip
DEFINITIONS: list[dict[str, Any]] = [
    *workload.DEFINITIONS,
    {"id": "bad", "tasks": {"bad": {"do": "ends_the_engine"}}},
    {"id": "once", "tasks": {"bad": {"do": "ends_the_engine_once"}}},
    {
        "id": "once-by-task",
        "tasks": {"bad": {"type": "activity", "activity": "ends_the_engine", "once": True}},
    },
    {
        "id": "child",
        "tasks": {"bad": {"do": "ends_its_child", "inputs": {"log": {"from": "input"}}}},
    },
    {"id": "adds", "tasks": {"a": {"do": "adds", "inputs": {"value": {"from": "input"}}}}},
    {
        "id": "gated",
        "tasks": {
            "each": {
                "type": "map",
                "items": "input",
                "limit": 3,
                "body": {"do": "through_the_gate", "inputs": {"value": {"from": "item"}}},
            },
            "sum": {"do": "total", "after": ["each"], "inputs": {"values": {"from": "each"}}},
        },
    },
]
GATED = list(range(20))


async def ended(run: penstock.Run) -> str:
    """The code of its failure, or nothing."""
    try:
        await run.result()
    except RunFailed as error:
        return "" if error.failure is None else error.failure.code
    return ""


async def all_end(engine: penstock.Engine, orders: Orders) -> None:
    """Bad runs among good ones; all are to end."""
    bad = "bad" if orders.scene == "poison" else orders.scene
    runs = [await engine.start(bad, id="the-bad")]
    for number in range(17):
        want = workload.wanted(number)
        runs.append(await engine.start(want.definition, want.input, id=want.id))
        for place, (name, payload) in enumerate(want.signals):
            await runs[-1].signal(name, payload, message_id=f"{want.id}:{place}")
    for run in runs:
        if not run.id.startswith("quits"):
            trace("end-of", run.id, await ended(run) or "COMPLETED")
    await (await engine.get("quits-15")).cancel()
    trace("end-of", "quits-15", await ended(await engine.get("quits-15")))


async def own(engine: penstock.Engine, orders: Orders) -> None:
    """Own the database, with attempts that do not end, until killed."""
    for number in range(5):
        await engine.start("gated", GATED, id=f"gated-{number}")
    await begun(engine, 5)
    ring(orders.bell, "owner")
    await asyncio.Event().wait()


async def stopped(engine: penstock.Engine, orders: Orders) -> None:
    """Own the database, be stopped by the parent; once continued, end all attempts, which nobody wants any more."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, gate.set)
    for number in range(5):
        await engine.start("gated", GATED, id=f"gated-{number}")
    await begun(engine, 5)
    ring(orders.bell, "owner")
    for number in range(5):
        trace("saw", await (await engine.get(f"gated-{number}")).result())
    trace("owner-now", (await engine.owner() or owner_missing()).pid == os.getpid())


async def stopped_inside(engine: penstock.Engine, orders: Orders) -> None:
    """Own the database, and be stopped in the middle of a commit once the parent says so."""
    go = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go.set)
    for number in range(5):
        await engine.start("gated", GATED, id=f"gated-{number}")
    await begun(engine, 5)
    ring(orders.bell, "owner")
    await go.wait()

    def reach(name: str) -> None:
        if name == "sqlite.written":
            os.kill(os.getpid(), signal.SIGSTOP)

    points.reach = reach
    await engine.start("gated", GATED, id="gated-9")


def owner_missing() -> Owner:
    raise AssertionError("nobody owns the database")


class Told(logging.Handler):
    """Rings when the standby says that the owner is silent."""

    def __init__(self, bell: str) -> None:
        super().__init__()
        self._bell = bell

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("engine.owner_silent"):
            ring(self._bell, "said")


async def stand_by_told(engine: penstock.Engine, orders: Orders) -> None:
    logging.getLogger("penstock.engine").addHandler(Told(orders.bell))
    await stand_by(engine, orders)


async def stand_by(engine: penstock.Engine, orders: Orders) -> None:
    """Stand by until the owner is gone; then end what it began."""
    owner = await engine.owner()
    assert owner is not None
    assert owner.pid != os.getpid()
    ring(orders.bell, "standing-by")
    gate.set()
    runs = [await engine.get(f"gated-{number}") for number in range(5)]
    for run in runs:
        assert await run.result() == sum(GATED) + len(GATED)
    owner = await engine.owner()
    assert owner is not None
    assert owner.pid == os.getpid()
    trace("took-over", "at", owner.since)


async def begun(engine: penstock.Engine, runs: int) -> None:
    """Until each of the runs has ended the items that need no gate."""
    for number in range(runs):
        done = 0
        async for change in (await engine.get(f"gated-{number}")).watch():
            done += change.type == "task_completed"
            if done == 5:
                break


async def pause(engine: penstock.Engine, orders: Orders) -> None:
    """Pause in the middle of a map, and die."""
    run = await engine.start("gated", GATED, id="gated-0")
    await begun(engine, 1)
    await run.pause()
    os.kill(os.getpid(), signal.SIGKILL)


async def resume(engine: penstock.Engine, orders: Orders) -> None:
    run = await engine.get("gated-0")
    assert await run.status() == "PAUSED"
    assert "pause" in [reason.kind for reason in await run.why()]
    gate.set()
    # All that recovery has to do is done before a second command is answered.
    other = await engine.start("sequence", {"n": 1}, id="other")
    assert await other.result() == 112
    trace("resumed", "gated-0")
    await run.resume()
    assert await run.result() == sum(GATED) + len(GATED)


SCENES: dict[str, Callable[[penstock.Engine, Orders], Awaitable[None]]] = {
    "poison": all_end,
    "once": all_end,
    "once-by-task": all_end,
    "own": own,
    "stand-by": stand_by,
    "stand-by-told": stand_by_told,
    "stopped": stopped,
    "stopped-inside": stopped_inside,
    "pause": pause,
    "resume": resume,
}


async def live(orders: Orders) -> None:
    global gate
    gate = asyncio.Event()
    workload.trace_to(orders.log)
    if orders.scene == "stopped-inside":
        points.reach = lambda name: None
        SqliteStore.connection_class = Connection
    async with penstock.open(
        f"sqlite:///{orders.database}", activities=ACTIVITIES, settings=Settings(drain_seconds=0.1)
    ) as engine:
        for definition in DEFINITIONS:
            await engine.register(definition)
        await SCENES[orders.scene](engine, orders)


def main(orders: Orders) -> int:
    signal.alarm(LIFE_SECONDS_MAX)
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(live(orders))
    return 0
