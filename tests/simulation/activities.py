"""The world of simulations: what an activity does follows from its run, its task and its attempt alone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from typing import Any
from zlib import crc32

from penstock import Fail, activity
from penstock.model.codec import decode_event
from penstock.model.events import TaskCompleted
from penstock.sdk.attempt import current
from penstock.testing.simulator import Simulation
from penstock.testing.stores import SqliteDisk


def draw(*what: object) -> float:
    """From 0 to 1, the same for the same things."""
    return crc32(repr(what).encode()) / 0xFFFFFFFF


async def _work(kind: str) -> int:
    here = current()
    chance = draw(here.run_id, here.key, here.attempt, kind)
    if chance < 0.03:
        await asyncio.sleep(8.0)  # past its time
    elif chance < 0.08:
        for beat in range(3):
            here.heartbeat(beat)
            await asyncio.sleep(0.6)
    elif chance < 0.5:
        await asyncio.sleep(chance)
    if chance > 0.985:
        raise Fail("of no use", code="useless")
    if chance > 0.92:
        raise RuntimeError("not now")
    return int(chance * 1000) % 10


@activity(timeout=5)
async def x(n: Any = None, items: Any = None) -> int:
    return await _work("x")


@activity(timeout=5)
async def undo(*given: Any, **named: Any) -> None:
    await _work("undo")


@activity(timeout=5)
async def book(n: Any = None) -> int:
    return await _work("book")


@activity(name="book", transactional=True)
def book_inside(connection: sqlite3.Connection, n: Any = None) -> int:
    """Books in the store's own database, together with its result or not at all."""
    here = current()
    connection.execute("CREATE TABLE IF NOT EXISTS booked (run, generation, key, attempt)")
    connection.execute(
        "INSERT INTO booked VALUES (?, ?, ?, ?)", (here.run_id, here.job.generation, here.key, here.attempt)
    )  # fmt: skip
    chance = draw(here.run_id, here.key, here.attempt)
    if chance > 0.85:
        raise RuntimeError("not now")
    return int(chance * 1000) % 10


def booked(simulation: Simulation) -> list[str]:
    """What is wrong with the bookings: each is there once if its task is complete, and else not."""
    disk, found = simulation.disk, list[str]()
    if not isinstance(disk, SqliteDisk):
        return found
    there = disk.rows("SELECT name FROM sqlite_master WHERE name = 'booked'")
    rows = disk.rows("SELECT run, generation, key FROM booked") if there else []
    for (run, generation), shadow in simulation.judge.shadows.items():
        if generation > 1 or shadow.flow.run.definition not in ("books", "fn_book"):
            continue  # what is done in a later one is copied from the one before
        kept = Counter(row[2] for row in rows if row[:2] == (run, generation))
        events = [decode_event(each) for each in shadow.payloads]
        done = [each.key for each in events if isinstance(each, TaskCompleted)]
        if kept != Counter(key for key in done if key.startswith("book")):
            found.append(f"run {run} has booked {dict(kept)}, and completed {done}")
    return found


ACTIVITIES = [x, undo, book]
INSIDE = [x, undo, book_inside]
