"""The same test on every store: `make_store(name)` gives one, the same name the same data.

    async def test_mine(make_store: Make) -> None:
        async with harness(store=make_store("a")) as engine: ...

On PostgreSQL each name is a database of its own, copied from one that was migrated once a session; all are dropped after
the test.
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
_names = count(1)


class Make(Protocol):
    def __call__(self, name: str = "store", /, **options: Any) -> Store: ...


@pytest.fixture(scope="session")
def postgres_template(postgres: Server) -> str:
    """The name of a database whose schema is in place."""

    async def migrate() -> None:
        store = PostgresStore(postgres.create(TEMPLATE))
        await store.open()
        await store.close()

    asyncio.run(migrate())
    return TEMPLATE


@pytest.fixture(params=STORES)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    urls: dict[str, str] = {}
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        template: str = request.getfixturevalue("postgres_template")

    def make(name: str = "store", /, **options: Any) -> Store:
        if request.param == "memory":
            return MemoryStore(f"{name}-{tmp_path}", **options)
        if request.param == "sqlite":
            return SqliteStore(tmp_path / f"{name}.db", **options)
        if name not in urls:
            urls[name] = server.create(f"made_{next(_names)}", template=template)
        return PostgresStore(urls[name], **options)

    yield make
    for url in urls.values():
        server.drop(url)
