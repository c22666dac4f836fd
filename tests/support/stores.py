"""The same test on every store: `make_store(name)` gives one, the same name the same data.

    async def test_mine(make_store: Make) -> None:
        async with harness(store=make_store("a")) as engine: ...

On PostgreSQL each name is a database of its own, copied from one that was migrated once a session, and emptied after the test
for the next: to create and drop one takes ten times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest

from penstock.adapters.memory import MemoryStore
from penstock.adapters.postgres import PostgresStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.ports.store import Store
from support.postgres import Server

STORES = ("memory", "sqlite", "postgres")
TEMPLATE = "penstock_template"
EMPTY = """
SET lock_timeout = '10s';
SET session_replication_role = replica;  -- no triggers: they keep what a store must not lose
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
    WHERE schemaname NOT IN ('pg_catalog', 'information_schema') AND tablename <> 'meta'
  LOOP EXECUTE 'DELETE FROM ' || name; END LOOP;
END $$
"""


class Make(Protocol):
    def __call__(self, name: str = "store", /, **options: Any) -> Store: ...


class Databases:
    """Empty databases of a server whose schema is in place."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._free: list[str] = []
        self._names = count(1)
        asyncio.run(_migrate(server.create(TEMPLATE)))

    def take(self) -> str:
        if self._free:
            return self._free.pop()
        return self._server.create(f"made_{next(self._names)}", template=TEMPLATE)

    def give_back(self, url: str) -> None:
        self._server.execute(EMPTY, url)
        self._free.append(url)


async def _migrate(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


@pytest.fixture(scope="session")
def databases(postgres: Server) -> Databases:
    return Databases(postgres)


@pytest.fixture(params=STORES)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    urls: dict[str, str] = {}

    def make(name: str = "store", /, **options: Any) -> Store:
        if request.param == "memory":
            return MemoryStore(f"{name}-{tmp_path}", **options)
        if request.param == "sqlite":
            return SqliteStore(tmp_path / f"{name}.db", **options)
        if name not in urls:
            urls[name] = databases.take()
        return PostgresStore(urls[name], **options)

    # Asked for before the test has a loop: to migrate takes one of its own.
    databases: Databases = (
        request.getfixturevalue("databases") if request.param == "postgres" else None
    )
    yield make
    for url in urls.values():
        databases.give_back(url)
