"""Where a Penstock subject keeps its runs: databases on SQLite, or on a PostgreSQL server of the script's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import wal
from measure import Options
from server import Server, serving


class Stores:
    """Databases by name, all on the store that was asked for."""

    def __init__(self, folder: Path, server: Server | None) -> None:
        self._folder, self.server = folder, server

    def path(self, name: str) -> Path:
        return self._folder / f"{name}.db"

    def url(self, name: str) -> str:
        if self.server is not None:
            return self.server.database(name)
        return f"sqlite:///{self.path(name)}"

    def commits(self, name: str) -> int:
        """How many transactions have written so far, without asking who wrote them: only differences count."""
        if self.server is None:
            return wal.commits(self.path(name))
        return int(self.server.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())", name))


@contextmanager
def stores(given: Options, **settings: str) -> Iterator[Stores]:
    """`settings` are the server's, where there is one."""
    if given.store == "sqlite":
        yield Stores(given.folder, None)
        return
    with serving(given.folder, **settings) as server:
        yield Stores(given.folder, server)
