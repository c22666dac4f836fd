"""Lives of an application that shares its transactions with the engine: orders start runs, activities pay (SPEC 4.3).

Its tables say what it did; the histories say what was done. After any kill the two must agree.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
from collections import Counter
from contextlib import suppress
from typing import Any

import asyncpg
import msgspec

import penstock
from penstock import Context, Fail, Retry, activity, current, workflow
from penstock.engine import points
from penstock.engine.engine import Settings
from penstock.errors import RunFailed

LIFE_SECONDS_MAX = 60
APP_POINTS = {
    "app.inserted": "an order and its request are written, nothing is committed",
    "app.committed": "an order is committed; nobody knows",
    "app.paid": "an activity has written, and not returned",
}
ORDER: dict[str, Any] = {
    "id": "order",
    "tasks": {
        "pay": {"do": "pay", "inputs": {"amount": {"from": "input"}}, "compensate": "refund"},
        "book": {"do": "book", "after": ["pay"], "inputs": {"amount": {"from": "input"}}},
        "ship": {"do": "ship", "after": ["book"], "inputs": {"amount": {"from": "input"}}},
    },
}


@workflow
async def coded(ctx: Context, amount: int) -> int:
    """The same as a function: every other order is one."""
    await ctx.call("pay", amount, undo="refund")
    await ctx.call("book", amount)
    return await ctx.call("ship", amount)


TABLES = ("orders", "effects")
CREATE = (
    "CREATE TABLE IF NOT EXISTS orders (run text PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS effects (run text, task text)",
)
ADD_EFFECT = "INSERT INTO effects VALUES (?, ?)"


class Orders(msgspec.Struct):
    url: str
    last: int = 12
    kill: str = ""
    """`POINT:n`: SIGKILL when it is reached for the n-th time."""


class Points:
    def __init__(self, kill: str) -> None:
        self.seen: Counter[str] = Counter()
        self._kill = kill

    def reach(self, name: str) -> None:
        self.seen[name] += 1
        if f"{name}:{self.seen[name]}" == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)


def _reach(name: str) -> None:
    if points.reach is not None:
        points.reach(name)


def _made(name: str, task: str, *, plain: bool) -> Any:
    """An activity that writes one row for each time that it counts."""

    @activity(name=name, transactional=True, retry=Retry(attempts=3, first=0.001))
    def in_thread(amount: int, connection: sqlite3.Connection) -> int:
        connection.execute(ADD_EFFECT, (current().run_id, task))
        _reach("app.paid")
        return amount

    @activity(name=name, transactional=True, retry=Retry(attempts=3, first=0.001))
    async def beside(amount: int, connection: asyncpg.Connection) -> int:
        await connection.execute("INSERT INTO effects VALUES ($1, $2)", current().run_id, task)
        _reach("app.paid")
        return amount

    return in_thread if plain else beside


@activity
async def ship(amount: int) -> int:
    if amount % 3 == 2:
        raise Fail("out of stock")
    return amount


def activities(url: str) -> list[Any]:
    plain = url.startswith("sqlite")
    names = (("pay", "pay"), ("book", "book"), ("refund", "undo pay"))
    return [ship, *(_made(name, task, plain=plain) for name, task in names)]


class App:
    """The application's own connection."""

    def __init__(self, url: str) -> None:
        self.url, self.plain = url, url.startswith("sqlite")
        self.db: Any = None

    async def open(self) -> None:
        if self.plain:
            path = self.url.removeprefix("sqlite:///")
            self.db = sqlite3.connect(path, isolation_level=None, timeout=10)
        else:
            self.db = await asyncpg.connect(self.url)

    async def do(self, text: str) -> None:
        if self.plain:
            self.db.execute(text)
        else:
            await self.db.execute(text)

    async def rows(self, text: str) -> list[tuple[Any, ...]]:
        found = self.db.execute(text).fetchall() if self.plain else await self.db.fetch(text)
        return [tuple(row) for row in found]

    async def close(self) -> None:
        closing = self.db.close()
        if closing is not None:
            await closing


async def live(orders: Orders) -> None:
    points.reach = Points(orders.kill).reach
    settings = Settings(drain_seconds=0.01)
    async with penstock.open(
        orders.url, activities=activities(orders.url), workflows=[coded], settings=settings
    ) as engine:
        await engine.register(ORDER)
        app = App(orders.url)
        await app.open()
        for text in CREATE:
            await app.do(text)
        placed = {run for (run,) in await app.rows("SELECT run FROM orders")}
        for number in range(orders.last):
            if f"order-{number}" not in placed:
                await _place(engine, app, number)
        for number in range(orders.last):
            with suppress(RunFailed):
                await penstock.Run(engine._runs, f"order-{number}").result()
        await app.close()


async def _place(engine: penstock.Engine, app: App, number: int) -> None:
    """An order and its run: both or neither."""
    await app.do("BEGIN IMMEDIATE" if app.plain else "BEGIN")
    await app.do(f"INSERT INTO orders VALUES ('order-{number}')")
    workflow = "coded" if number % 2 else "order"
    await engine.start(workflow, number, id=f"order-{number}", connection=app.db)
    _reach("app.inserted")
    await app.do("COMMIT")
    _reach("app.committed")
    if number % 4 == 3:
        await asyncio.sleep(0.005)


async def judge(url: str, *, ended: bool) -> list[str]:
    """What the application's tables say against the histories; nothing if they agree."""
    wrong: list[str] = []
    app = App(url)
    await app.open()
    async with penstock.open(url, execute=False) as engine:
        try:
            placed = {run for (run,) in await app.rows("SELECT run FROM orders")}
            effects = Counter(await app.rows("SELECT run, task FROM effects"))
        except (sqlite3.OperationalError, asyncpg.UndefinedTableError):
            placed, effects = set[str](), Counter[tuple[Any, ...]]()
        requests = [each.id for each in await engine.requests()]
        runs = {row.id: row for row in await engine.list(limit=1000)}
        if placed != {*requests, *runs}:
            wrong.append(f"orders {sorted(placed)}, requests {requests}, runs {sorted(runs)}")
        said: Counter[tuple[Any, ...]] = Counter()
        for id, row in runs.items():
            for item in await (await engine.get(id)).history():
                task = getattr(item.event, "key", "").removesuffix("#1")
                if item.type == "task_completed" and task in ("pay", "book"):
                    said[id, task] += 1
                if item.type == "undo_completed":
                    said[id, f"undo {task}"] += 1
            if ended and row.open:
                wrong.append(f"{id} is open")
        if said != effects:
            wrong.append(f"histories {said - effects} more, tables {effects - said} more")
        if max(effects.values(), default=0) > 1:
            wrong.append(f"twice: {effects}")
        if ended and requests:
            wrong.append(f"requests are left: {requests}")
        wrong += await engine.audit()
    await app.close()
    return wrong


def main(orders: Orders) -> int:
    signal.alarm(LIFE_SECONDS_MAX)
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(live(orders))
    return 0
