"""Runs started inside the application's own transaction (SPEC 4.3), on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

import penstock
from penstock import activity
from penstock.errors import NotFound, Rejected
from penstock.testing.harness import SkipClock

ECHO = {
    "id": "echo",
    "inputSchema": {"type": "integer"},
    "tasks": {"say": {"do": "echo", "inputs": {"value": {"from": "input"}}}},
}


@activity
async def echo(value: int) -> int:
    return value


class Shop:
    """An application with a table of its own in the store's database."""

    def __init__(self, url: str, driver: str) -> None:
        self.url, self.driver = url, driver

    async def connect(self) -> Any:
        if self.driver == "sqlite":
            return sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)
        if self.driver == "asyncpg":
            return await asyncpg.connect(self.url)
        if self.driver == "psycopg":
            return psycopg.connect(self.url, autocommit=True)
        return await psycopg.AsyncConnection.connect(self.url, autocommit=True)

    async def do(self, connection: Any, text: str) -> Any:
        done = connection.execute(text)
        return await done if hasattr(done, "__await__") else done

    async def close(self, connection: Any) -> None:
        done = connection.close()
        if done is not None:
            await done

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Any]:
        connection = await self.connect()
        try:
            yield connection
        finally:
            await self.close(connection)

    @asynccontextmanager
    async def engine(self, **options: Any) -> AsyncGenerator[penstock.Engine]:
        async with penstock.open(self.url, activities=[echo], **options) as engine:
            await engine.register(ECHO)
            yield engine


@pytest.fixture(params=["sqlite", "asyncpg", "psycopg", "psycopg-async"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'shop.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
    return Shop(url, request.param)


async def test_a_run_is_started_once_its_transaction_is_committed(shop: Shop) -> None:
    clock = SkipClock()  # stands still, so that nothing is found by looking around
    async with shop.engine(clock=clock) as engine, shop.connected() as db:
        await shop.do(db, "CREATE TABLE orders (id int)")
        await shop.do(db, "BEGIN")
        await shop.do(db, "INSERT INTO orders VALUES (7)")
        run = await engine.start("echo", 7, id="order-7", attributes={"a": 1}, connection=db)
        await asyncio.sleep(0.05)
        with pytest.raises(NotFound):
            await engine.get("order-7")
        result = asyncio.ensure_future(run.result())
        await asyncio.sleep(0.01)
        await shop.do(db, "COMMIT")

        async with asyncio.timeout(60):
            assert await result == 7
        assert [row.id for row in await engine.list(attributes={"a": 1})] == ["order-7"]
        await asyncio.sleep(0.02)
        assert await engine.requests() == []


async def test_a_rolled_back_transaction_leaves_nothing(shop: Shop) -> None:
    async with shop.engine() as engine, shop.connected() as db:
        await shop.do(db, "BEGIN")
        run = await engine.start("echo", 7, id="order-7", connection=db)
        await shop.do(db, "ROLLBACK")

        with pytest.raises(NotFound, match="rolled back"):
            await run.result()
        assert await engine.requests() == []
        assert await engine.list() == []


async def test_the_owner_is_told_by_a_process_that_is_not(shop: Shop) -> None:
    clock = SkipClock()  # of the owner: it stands still, so that nothing is found by looking around
    async with (
        shop.engine(clock=clock),
        shop.engine(execute=False) as other,
        shop.connected() as db,
    ):
        await shop.do(db, "BEGIN")
        run = await other.start("echo", 3, connection=db)
        await shop.do(db, "COMMIT")

        async with asyncio.timeout(60):
            assert await run.result() == 3


async def test_requests_wait_for_an_owner_and_survive(shop: Shop) -> None:
    async with shop.engine(execute=False) as engine, shop.connected() as db:
        await shop.do(db, "BEGIN")
        for number in range(5):
            await engine.start("echo", number, id=f"r{number}", connection=db)
        await shop.do(db, "COMMIT")
        waiting = await engine.requests()
        assert [(each.id, each.code) for each in waiting] == [(f"r{n}", "") for n in range(5)]

    async with shop.engine() as engine:
        async with asyncio.timeout(60):
            while await engine.requests():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert [await (await engine.get(f"r{n}")).result() for n in range(5)] == list(range(5))


async def test_what_can_be_refused_is_refused_before_anything_is_written(shop: Shop) -> None:
    async with shop.engine() as engine, shop.connected() as db:
        await (await engine.start("echo", 1, id="taken")).result()
        await shop.do(db, "BEGIN")
        for bad, code in (
            (engine.start("echo", "seven", connection=db), "input-invalid"),
            (engine.start("echo", 2, id="taken", connection=db), "id-taken"),
            (engine.start("echo", 2, id="\n", connection=db), "id-invalid"),
        ):
            with pytest.raises(Rejected) as caught:
                await bad
            assert caught.value.code == code
        with pytest.raises(NotFound):
            await engine.start("no-such", 1, connection=db)
        same = await engine.start("echo", 1, id="taken", connection=db)
        assert await same.result() == 1
        await shop.do(db, "COMMIT")
        assert await engine.requests() == []


async def test_an_id_that_was_taken_meanwhile_is_a_refused_request_with_its_reason(
    shop: Shop,
) -> None:
    async with shop.engine(execute=False) as engine, shop.connected() as db:
        await shop.do(db, "BEGIN")
        first = await engine.start("echo", 1, id="x", connection=db)
        again = await engine.start("echo", 1, id="x", connection=db)
        other = await engine.start("echo", 2, id="x", connection=db)
        await shop.do(db, "COMMIT")
        async with shop.engine() as owner:
            with pytest.raises(Rejected, match="another definition or input"):
                await other.result()
            assert [await first.result(), await again.result()] == [1, 1]
            async with asyncio.timeout(10):  # those carried out go a moment later
                while len(refused := await owner.requests()) > 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert [(each.id, each.code) for each in refused] == [("x", "id-taken")]
            assert len(await owner.list()) == 1


async def test_a_connection_that_cannot_carry_it_is_refused(shop: Shop, tmp_path: Path) -> None:
    stranger: Any
    async with shop.engine() as engine:
        closed = await shop.connect()
        await shop.close(closed)
        for bad in (object(), "sqlite:///x.db", closed):
            with pytest.raises(Rejected) as caught:
                await engine.start("echo", 1, connection=bad)
            assert caught.value.code == "connection-unfit"
            assert caught.value.hint
        if shop.driver == "sqlite":
            for place in (tmp_path / "other.db", ":memory:"):
                stranger = sqlite3.connect(place)
                with pytest.raises(Rejected, match="the connection is to"):
                    await engine.start("echo", 1, connection=stranger)
                stranger.close()
        assert await engine.requests() == []


async def test_a_failed_transaction_and_another_database_are_refused(postgres: Any) -> None:
    url, elsewhere = postgres.create(), postgres.create()
    here, there = Shop(url, "asyncpg"), Shop(elsewhere, "asyncpg")
    async with here.engine() as engine:
        async with here.connected() as db:
            await db.execute("BEGIN")
            with pytest.raises(asyncpg.PostgresError):
                await db.execute("SELECT 1/0")
            with pytest.raises(Rejected, match="has failed") as caught:
                await engine.start("echo", 1, connection=db)
            assert caught.value.code == "connection-unfit"
            await db.execute("ROLLBACK")
            await db.execute("BEGIN READ ONLY")
            with pytest.raises(Rejected, match="read-only"):
                await engine.start("echo", 1, connection=db)
            await db.execute("ROLLBACK")
        async with there.connected() as db, db.transaction():
            with pytest.raises(Rejected, match="another database"):
                await engine.start("echo", 1, connection=db)
            assert await db.fetchval("SELECT 1") == 1  # the transaction is as it was
        async with there.engine(), there.connected() as db, db.transaction():
            with pytest.raises(Rejected, match="another database"):
                await engine.start("echo", 1, connection=db)
        assert await engine.requests() == []
    postgres.drop(url)
    postgres.drop(elsewhere)


async def test_a_transaction_left_open_delays_and_hides_nobody(postgres_url: str) -> None:
    """1,000 runs start and complete beside it, and a follower sees every event, then those of the late one."""
    shop = Shop(postgres_url, "asyncpg")
    async with shop.engine() as engine, shop.connected() as db:
        store = engine._runs.engine.store
        closed, seen = asyncio.Event(), list[int]()

        async def follow() -> None:
            after = 0
            while True:
                found = await store.follow(after=after)
                seen.extend(each.position for each in found)
                after = seen[-1] if seen else 0
                if not found:
                    if closed.is_set():
                        return
                    await asyncio.sleep(0.005)

        following = asyncio.ensure_future(follow())
        await shop.do(db, "BEGIN")
        late = await engine.start("echo", 0, id="late", connection=db)
        runs = await asyncio.gather(*(engine.start("echo", n) for n in range(1000)))
        assert await asyncio.gather(*(run.result() for run in runs)) == list(range(1000))
        async with asyncio.timeout(10):
            while not seen or seen[-1] < await store.head():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        before = seen[-1]
        await shop.do(db, "COMMIT")
        assert await late.result() == 0
        assert min(item.position for item in await late.history()) > before
        closed.set()
        await following
        assert seen == list(range(1, await store.head() + 1))


async def test_on_sqlite_others_wait_for_the_lock_and_lose_nothing(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path / 'shop.db'}", "sqlite")
    async with shop.engine() as engine, shop.connected() as db:
        await shop.do(db, "BEGIN IMMEDIATE")
        asked = await engine.start("echo", 1, connection=db)
        waiting = asyncio.ensure_future(engine.start("echo", 2))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await shop.do(db, "COMMIT")

        assert await (await waiting).result() == 2
        assert await asked.result() == 1


async def test_memory_has_no_transactions_to_share() -> None:
    async with penstock.open("memory:", activities=[echo]) as engine:
        await engine.register(ECHO)
        with pytest.raises(Rejected, match="in memory"):
            await engine.start("echo", 1, connection=object())


async def test_requests_that_must_wait_hold_up_none_behind_them(shop: Shop) -> None:
    waits = {"a": {"type": "signal", "config": {"name": "go"}}}
    full = {"id": "full", "limits": {"runs": 1, "over": "refuse"}, "tasks": waits}
    async with shop.engine(execute=False) as engine, shop.connected() as db:
        await engine.register(full)
        await shop.do(db, "BEGIN")
        for n in range(120):  # more than are looked at together; all but one have to wait
            await engine.start("full", id=f"full{n}", connection=db)
        await engine.start("echo", 7, id="behind", connection=db)
        await shop.do(db, "COMMIT")

    async with shop.engine() as engine:
        async with asyncio.timeout(10):
            while not await engine.list(id_prefix="behind"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert await (await engine.get("behind")).result() == 7


async def test_each_request_for_one_id_has_its_own_answer(shop: Shop) -> None:
    async with shop.engine() as engine, shop.connected() as db:
        await shop.do(db, "BEGIN")
        first = await engine.start("echo", 1, id="x", connection=db)
        other = await engine.start("echo", 2, id="x", connection=db)
        await shop.do(db, "COMMIT")
        assert await first.result() == 1
        for _ in range(2):
            with pytest.raises(Rejected, match="another definition or input"):
                await other.result()
        assert await first.result() == 1
        assert await (await engine.get("x")).result() == 1


async def test_a_result_does_not_wait_for_a_strangers_transaction(shop: Shop) -> None:
    async with shop.engine() as engine, shop.connected() as db:
        await shop.do(db, "BEGIN")
        run = await engine.start("echo", 1, id="x", connection=db)
        await shop.do(db, "COMMIT")
        await shop.do(db, "BEGIN")  # somebody else's, on the same connection
        async with asyncio.timeout(60):
            assert await run.result() == 1
        await shop.do(db, "ROLLBACK")


async def test_without_a_transaction_it_is_started_at_once(shop: Shop) -> None:
    async with shop.engine() as engine, shop.connected() as db:
        run = await engine.start("echo", 1, connection=db)  # each statement is a transaction
        assert await run.result() == 1


async def test_a_failed_transaction_takes_no_request_whatever_the_driver(shop: Shop) -> None:
    async with shop.engine() as engine, shop.connected() as db:
        await shop.do(db, "BEGIN")
        with pytest.raises(Exception, match=r"zero|no such table"):
            await shop.do(db, "SELECT 1 FROM none" if shop.driver == "sqlite" else "SELECT 1/0")
        if shop.driver == "sqlite":  # where a statement that fails leaves its transaction whole
            run = await engine.start("echo", 1, connection=db)
            await shop.do(db, "COMMIT")
            assert await run.result() == 1
            return
        with pytest.raises(Rejected, match="has failed") as caught:
            await engine.start("echo", 1, connection=db)
        assert caught.value.code == "connection-unfit"
        assert caught.value.hint
        await shop.do(db, "ROLLBACK")
        assert await engine.requests() == []


async def test_what_the_store_can_never_keep_is_refused_and_not_tried_for_ever(
    postgres_url: str,
) -> None:
    shop = Shop(postgres_url, "asyncpg")
    async with shop.engine() as engine, shop.connected() as db:
        await shop.do(db, "BEGIN")
        unfit = await engine.start("echo", 1, id="u", created_by="me", connection=db)
        await engine.start("echo", 2, id="behind", connection=db)
        # As a version wrote it that did not look for NUL.
        await shop.do(
            db,
            "UPDATE penstock.requests SET facts = convert_to("
            "replace(convert_from(facts, 'UTF8'), '\"me\"', '\"\\u0000\"'), 'UTF8')",
        )
        await shop.do(db, "COMMIT")
        async with asyncio.timeout(10):
            with pytest.raises(Rejected) as caught:
                await unfit.result()
            assert caught.value.code == "value-unfit"
            assert await (await _there(engine, "behind")).result() == 2
            while len(left := await engine.requests()) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert [(each.id, each.code) for each in left] == [("u", "value-unfit")]


async def _there(engine: penstock.Engine, id: str) -> penstock.Run:
    while not await engine.list(id_prefix=id):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return await engine.get(id)
