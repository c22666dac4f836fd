"""One life of an engine whose schedules fire by a clock that skips, until it is killed; and what must be true afterwards.

Each life goes on at the moment at which the one before was killed. The process, the store and the kill are real.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from penstock.adapters.postgres import PostgresStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine import points
from penstock.policy.zones import iso
from penstock.ports.store import Store
from penstock.testing.harness import NOON, Harness, SkipClock, harness

HOUR = 3_600.0
QUICK = {"id": "quick", "tasks": {"a": {"type": "transform", "set": {"n": "1"}}}}
SLOW = {"id": "slow", "tasks": {"a": {"type": "timer", "delay": "90m"}}}
SCHEDULES: dict[str, dict[str, Any]] = {
    "plain": {"definition": "quick", "cron": "0 * * * *"},
    "late": {"definition": "quick", "every": "1h", "jitter": "30m"},
    "allow": {"definition": "slow", "every": "1h", "overlap": "allow"},
    "line": {"definition": "slow", "every": "1h", "overlap": "buffer", "buffer": 3},
    "newest": {"definition": "slow", "every": "1h", "overlap": "cancel-other"},
}
TRIGGERS_EVERY = 4
BACKFILLED = [NOON - HOUR * n for n in range(24)]
"""Moments of the past that the first life is told to make up for."""


class Orders(msgspec.Struct):
    place: str
    death: str
    """A file that says when the life before was killed, and gets when this one is."""
    kill: str = ""
    """`POINT:n`: SIGKILL when it is reached for the n-th time."""
    hours: float = 24.0
    """How long this life lasts if nobody kills it."""


def store_at(place: str, clock: SkipClock) -> Store:
    if "://" in place:
        return PostgresStore(place, clock=clock.now)
    return SqliteStore(Path(place), clock=clock.now)


def clock_of(death: str) -> SkipClock:
    file = Path(death)
    return SkipClock(float(file.read_text()) if file.exists() else NOON)


def die_at(death: str, moment: float) -> None:
    Path(death).write_text(repr(moment))


async def live(orders: Orders) -> None:
    clock = clock_of(orders.death)
    name, _, number = orders.kill.rpartition(":")
    seen: Counter[str] = Counter()

    def reach(point: str) -> None:
        seen[point] += 1
        if point == name and seen[point] == int(number):
            die_at(orders.death, clock.now())
            os.kill(os.getpid(), signal.SIGKILL)

    async with harness(store=store_at(orders.place, clock), clock=clock) as engine:
        await engine.register(QUICK)
        await engine.register(SLOW)
        for id, words in SCHEDULES.items():
            await engine.schedules.create(id, **words)
        if clock.now() == NOON and not (await engine.schedules.get("plain")).acts[1:]:
            await engine.schedules.backfill("plain", BACKFILLED[-1], BACKFILLED[0])
        points.reach = reach
        end = clock.now() + HOUR * orders.hours
        while clock.now() < end:
            await engine.skip(hours=TRIGGERS_EVERY)
            if orders.kill:
                await engine.schedules.trigger("plain", overlap="allow", by="ann")
        points.reach = None
        die_at(orders.death, clock.now())


def main(orders: Orders) -> int:
    signal.alarm(100)
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(live(orders))
    return 0


async def judge(place: str, death: str) -> list[str]:
    """What is wrong with the whole story; nothing is under way any more but what each schedule starts next."""
    clock = clock_of(death)
    wrong: list[str] = []
    async with harness(store=store_at(place, clock), clock=clock) as engine:
        await engine.settle()
        rows = await _rows(engine)
        hours = [NOON + HOUR * n for n in range(1, int((clock.now() - NOON) // HOUR) + 1)]
        for id in SCHEDULES:
            view = await engine.schedules.get(id)
            mine = sorted((row for row in rows if row.id.startswith(f"{id}/")), key=lambda r: r.id)
            on_time = {iso(hour) for hour in [*hours, *(BACKFILLED if id == "plain" else ())]}
            by_hand = [row for row in mine if row.created_by == "ann"]
            fired = {row.id.partition("/")[2] for row in mine if row.created_by != "ann"}
            started = len(mine)
            if view.counts.started != started:
                wrong.append(f"{id}: {started} runs, and it counts {view.counts.started}")
            if view.counts.missed or view.counts.failed or view.error:
                wrong.append(f"{id}: {view.counts} {view.error}")
            match id:
                case "plain" | "allow":
                    if fired != on_time:
                        wrong.append(f"{id}: lost or too many: {fired ^ on_time}")
                case "late" | "newest":  # the last may be held back still
                    if not on_time - fired <= {max(on_time)} or fired - on_time:
                        wrong.append(f"{id}: lost or too many: {fired ^ on_time}")
                case _:
                    decided = started + view.counts.skipped + len(view.buffered)
                    if decided != len(hours) or fired - on_time:
                        wrong.append(f"{id}: {decided} decided of {len(hours)}; {fired - on_time}")
            triggers = sum(1 for act in view.acts if act.act == "trigger")
            if len(by_hand) < triggers:
                wrong.append(f"{id}: {triggers} triggers, {len(by_hand)} runs of them")
            wrong += _overlaps(id, mine)
        for row in rows:
            run = await engine.get(row.id)
            types = Counter(item.type for item in await run.history())
            if types["run_started"] != 1:
                wrong.append(f"{row.id}: {types}")
        wrong += await engine.audit()
    return wrong


def _overlaps(id: str, rows: list[Any]) -> list[str]:
    if id not in ("line", "newest"):
        return []
    begun = sorted((row.created_at, row.id, row) for row in rows)
    return [
        f"{later[1]} began before {row.id} ended"
        for (_, _, row), later in pairwise(begun)
        if row.ended_at is None or row.ended_at > later[0]
    ]


async def _rows(engine: Harness) -> list[Any]:
    found: list[Any] = []
    after = None
    while page := await engine.list(limit=1000, after=after):
        found += page
        after = page[-1].key
    return found
