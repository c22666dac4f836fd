"""The shipped laws of a store, held against each of ours."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from penstock.adapters.memory import MemoryStore
from penstock.adapters.postgres import PostgresStore
from penstock.adapters.sqlite import SqliteStore
from penstock.testing.conformance.store import Factory, StoreLaws

_names = count()


class TestMemory(StoreLaws):
    @pytest.fixture
    def factory(self) -> Factory:
        name = f"conformance-{next(_names)}"
        return lambda: MemoryStore(name)


class TestSqlite(StoreLaws):
    @pytest.fixture
    def factory(self, tmp_path: Path) -> Factory:
        return lambda: SqliteStore(tmp_path / "store.db")


class TestSqliteInAThread(StoreLaws):
    @pytest.fixture
    def factory(self, tmp_path: Path) -> Factory:
        return lambda: SqliteStore(tmp_path / "store.db", threaded=True)


class TestPostgres(StoreLaws):
    @pytest.fixture
    def factory(self, postgres_url: str) -> Factory:
        return lambda: PostgresStore(postgres_url)
