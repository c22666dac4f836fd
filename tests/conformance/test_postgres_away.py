"""Many who ask a PostgreSQL that is away for a moment: they wait in line, and waiting in line is not being out of reach."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from penstock.adapters.postgres import PostgresStore
from penstock.adapters.postgres.store import CONNECTIONS_MAX
from penstock.errors import StoreError
from penstock.testing.conformance.store import new, put
from support.postgres import serving

MANY = 200


async def test_who_waited_in_line_is_tried_again_when_the_connection_is_cut(
    postgres_url: str,
) -> None:
    store = PostgresStore(postgres_url, away_seconds_max=0.5)
    await store.open()
    do = store._do  # pyright: ignore[reportPrivateUsage]
    tries = 0

    async def cut_once(db: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            await db.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return await db.fetchval("SELECT 7")

    slow = [
        asyncio.ensure_future(do(lambda db: db.execute("SELECT pg_sleep(1)")))
        for _ in range(CONNECTIONS_MAX)
    ]
    await asyncio.sleep(0)
    assert await do(cut_once) == 7
    assert tries == 2
    await asyncio.gather(*slow)
    await store.close()


async def test_what_the_engine_needs_does_not_wait_behind_all_who_look(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    await store.open()
    (row,) = await put(store, new("a", b"1"))
    do = store._do  # pyright: ignore[reportPrivateUsage]
    over = asyncio.Event()

    async def look(db: Any) -> None:
        await db.execute("SELECT 1")
        await over.wait()

    looking = [asyncio.ensure_future(do(look)) for _ in range(3 * CONNECTIONS_MAX)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert await store.find_newest(["a"]) == {"a": row}
        assert await store.snapshots_many([row.key]) == {}
        events = (await store.events_many({row.key: 0}))[row.key]
    assert [each.payload for each in events] == [b"1"]
    assert not any(each.done() for each in looking)
    over.set()
    await asyncio.gather(*looking)
    await store.close()


async def test_many_who_wait_do_not_fall_upon_a_server_that_starts() -> None:
    with serving() as server:
        store = PostgresStore(server.create(), away_seconds_max=30)
        await store.open()
        server.kill()
        asked = [asyncio.ensure_future(store.head()) for _ in range(MANY)]
        await asyncio.sleep(1)
        await asyncio.to_thread(server.start)
        assert await asyncio.gather(*asked) == [0] * MANY
        assert store.stats()["reconnects"] < MANY
        await store.close()


async def test_all_of_many_are_told_in_time_that_the_server_is_away() -> None:
    with serving() as server:
        store = PostgresStore(server.create(), away_seconds_max=0.5)
        await store.open()
        server.kill()
        begun = time.monotonic()
        told = await asyncio.gather(*(store.head() for _ in range(MANY)), return_exceptions=True)
        took = time.monotonic() - begun
        assert all(isinstance(each, StoreError) for each in told)
        assert took < 10  # not half a second for each four of them
        server.start()
        assert await store.head() == 0
        await store.close()
