"""The disks of a simulation: what nodes share, and what is left of it when they die or the power goes."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from urllib.parse import quote

from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite import ownership
from penstock.adapters.sqlite.store import SqliteStore
from penstock.ports.store import Append, Appended, Owner, Row
from penstock.testing.faults import Trouble

LEASE_SECONDS = 6.0
UNSURE = 0.5
"""Of the commits that fail: how many are done all the same."""
PAGE_BYTES = 1024
"""Small: what is written is little, and every commit writes whole pages."""
CLAIMING = "INSERT OR REPLACE INTO owner"
"""How a statement begins that makes somebody the owner."""
_numbers = count()


class Disk(Protocol):
    """What all nodes of a simulation share."""

    def store(self, clock: Callable[[], float]) -> Any:
        """A store on it, for one node."""
        ...

    def crashed(self, store: Any) -> None:
        """Its node is dead."""
        ...

    def synced(self) -> None:
        """Somebody was told of what is there."""
        ...

    def power_lost(self) -> list[Append]:
        """All nodes are dead, and what nobody was told of may be gone: it is given, the newest first."""
        ...

    def token(self) -> int:
        """Of the newest owner."""
        ...

    def holds(self, append: Append) -> bool:
        """The newest of its run, whatever its writer was told, who asks at once."""
        ...

    def close(self) -> None: ...


# --- in memory -----------------------------------------------------------------------------------------------


class LeasedMemory(MemoryStore):
    """As the other stores: whoever has not renewed its lease may be taken over from (SPEC 4.8)."""

    untold: list[tuple[Append, Appended, Row | None]]
    """Commits that nobody was told of; shared by all stores of a disk."""

    async def claim(self, node: str, address: str) -> Owner | None:
        kept = self._kept
        if (
            kept.held_by is not None
            and kept.owner is not None
            and abs(self._clock() - kept.owner.renewed_at) > LEASE_SECONDS
        ):
            kept.held_by = None
        return await super().claim(node, address)

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        every = [*appends, *(each.also for each in appends if each.also is not None)]
        if len(every) > len(appends):
            self.untold.clear()  # several runs in one append: on disk at once
            return await super().append(appends)
        before = [self._kept.rows.get(each.row.key) for each in appends]
        outcomes = await super().append(appends)
        self.untold += [
            (append, outcome, row)
            for append, outcome, row in zip(appends, outcomes, before, strict=True)
            if isinstance(outcome, Appended)
        ]
        return outcomes

    def take_back(self) -> list[Append]:
        """Undo what nobody was told of."""
        gone: list[Append] = []
        kept = self._kept
        while self.untold:
            append, outcome, before = self.untold.pop()
            number, key = len(append.payloads), outcome.key
            del kept.log[-number:], kept.histories[key][-number:]
            if before is None:
                row = kept.rows.pop(key)
                del kept.histories[key], kept.generations[row.id][row.generation]
                if not kept.generations[row.id]:
                    del kept.generations[row.id]
                kept.open.pop(key, None)
                kept.newest_key -= 1
            else:
                kept.rows[key] = before
                kept.open[key] = None
            gone.append(append)
        return gone

    def dead(self) -> None:
        if self._kept.held_by is self:
            self._kept.held_by = None

    def token(self) -> int:
        return 0 if self._kept.owner is None else self._kept.owner.token


class MemoryDisk:
    def __init__(self) -> None:
        self._name = f"simulated-{next(_numbers)}"
        self._untold: list[tuple[Append, Appended, Row | None]] = []
        self._first = self.store(lambda: 0.0)

    def store(self, clock: Callable[[], float]) -> LeasedMemory:
        store = LeasedMemory(self._name, clock=clock)
        store.untold = self._untold
        return store

    def crashed(self, store: LeasedMemory) -> None:
        store.dead()

    def synced(self) -> None:
        self._untold.clear()

    def power_lost(self) -> list[Append]:
        return self._first.take_back()

    def token(self) -> int:
        return self._first.token()

    def holds(self, append: Append) -> bool:
        return False  # there are no transactions whose answer could be lost

    def close(self) -> None:
        MemoryStore.forget(self._name)


# --- SQLite, inline ------------------------------------------------------------------------------------------


class Shaky(sqlite3.Connection):
    """A connection whose commits fail now and then, done or not."""

    trouble: Trouble
    disk: SqliteDisk
    lent = False
    """A process has it, and gives it back when it closes it or dies."""

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:  # type: ignore[override]
        trouble = self.trouble
        if sql.startswith(CLAIMING):
            self.disk.claimed()
        elif sql == "COMMIT" and (trouble.unsure or trouble.full):
            if trouble.full:
                trouble.counts["disk full"] += 1
                raise _error("database or disk is full", sqlite3.SQLITE_FULL)
            if trouble.chance.random() < trouble.unsure:
                if trouble.chance.random() < UNSURE:
                    super().execute(sql, *rest)
                    trouble.counts["commits done whose answer was lost"] += 1
                else:
                    trouble.counts["commits failed"] += 1
                raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
        return super().execute(sql, *rest)

    def close(self) -> None:
        if not self.disk.take_back(self):
            super().close()


def _error(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


class ShakySqlite(SqliteStore):
    """The real store, inline, that can die."""

    def dead(self) -> None:
        """As the kernel leaves it: no lock, no descriptors, the log as it is."""
        self._lock.drop()
        with suppress(sqlite3.Error):
            self.transactions.close()
            self._db.disconnect()


class SqliteDisk:
    """Files in a folder. A connection of our own stays open, so that no close copies the log back: a kill would not."""

    def __init__(self, folder: str, trouble: Trouble) -> None:
        self._folder = folder
        self._number = next(_numbers)
        self._lives = 0
        self._connections = type("Shaken", (Shaky,), {"trouble": trouble, "disk": self})
        self._idle: list[Shaky] = []
        """Connections that no process has at this moment."""
        self._token: int | None = None
        """Of the newest owner, unless somebody has claimed the database since it was read."""
        with open(self.path, "wb") as file:
            file.write(_template(folder))
        self._keeper = self._kept()

    @property
    def path(self) -> str:
        return os.path.join(
            self._folder, f"simulated-{os.getpid()}-{self._number}-{self._lives}.db"
        )

    def store(self, clock: Callable[[], float]) -> ShakySqlite:
        store = ShakySqlite(self.path, clock=clock)
        store.connection_class = self._lend  # type: ignore[assignment]
        return store

    def _kept(self) -> sqlite3.Connection:
        db = sqlite3.connect(_alone(self.path), uri=True)
        db.execute("SELECT count(*) FROM runs").fetchone()
        return db

    def _lend(self, path: str, *, cached_statements: int, **named: Any) -> Shaky:
        """A connection that the process before has left, if there is one."""
        if not self._idle or not cached_statements:
            db = self._connections(
                _alone(path), uri=True, cached_statements=cached_statements, **named
            )
            db.lent = bool(cached_statements)
            return db
        db = self._idle.pop()
        db.lent = True
        db.execute("PRAGMA query_only=OFF")
        return db

    def take_back(self, db: Shaky) -> bool:
        """Its process has closed it, or is dead: nothing of it is under way any more, and another may have it."""
        if not db.lent:
            return False
        db.lent = False
        if db.in_transaction:
            db.execute("ROLLBACK")
        self._idle.append(db)
        return True

    def _close_all(self, path: str) -> None:
        """The file is gone first: the last one to close would copy a log back that nobody reads any more."""
        _remove(path)
        for db in self._idle:
            db.close()
        self._idle.clear()
        self._keeper.close()

    def crashed(self, store: ShakySqlite) -> None:
        store.dead()

    def synced(self) -> None:
        """Every commit is, before anybody knows of it."""

    def power_lost(self) -> list[Append]:
        """What is left is the database and its log; what was shared in memory is gone. Every commit was synced before its
        store went on, so that nothing of them is lost; what an unsynced file loses is tried in `tests/crash`."""
        before = self.path
        self._lives += 1
        for end in ("", "-wal"):
            if os.path.exists(before + end):
                shutil.copyfile(before + end, self.path + end)
        self._close_all(before)
        self._keeper = self._kept()
        return []

    def claimed(self) -> None:
        """Somebody is about to own the database, or will be told that it failed."""
        self._token = None

    def token(self) -> int:
        token = self._token
        if token is None:
            owner = ownership.shown(self._keeper)
            token = self._token = 0 if owner is None else owner.token
        return token

    def holds(self, append: Append) -> bool:
        row = append.row
        text = "SELECT revision FROM runs WHERE id = ? AND generation = ?"
        found = self.rows(text, row.id, row.generation)
        return found == [(row.revision,)]

    def rows(self, text: str, *given: Any) -> list[tuple[Any, ...]]:
        """What is in the database."""
        return self._keeper.execute(text, given).fetchall()

    def close(self) -> None:
        self._close_all(self.path)


def _alone(path: str) -> str:
    """No other process has the file: SQLite need not ask the kernel for its locks, those between connections are its own."""
    return f"file:{quote(path)}?vfs=unix-excl"


_templates: list[bytes] = []


def _template(folder: str) -> bytes:
    """An empty database, made once."""
    if not _templates:
        _templates.append(_made(folder))
    return _templates[0]


def _made(folder: str) -> bytes:
    with TemporaryDirectory(prefix="empty-", dir=folder) as place:
        path = os.path.join(place, "empty.db")
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA page_size={PAGE_BYTES}")
            db.execute("VACUUM")
        store = SqliteStore(path)
        store._db._connect()  # pyright: ignore[reportPrivateUsage]
        store._db.disconnect()  # pyright: ignore[reportPrivateUsage]
        with open(path, "rb") as file:
            return file.read()


def _remove(path: str) -> None:
    for end in ("", "-wal", "-shm", "-owner"):
        with suppress(FileNotFoundError):
            os.remove(path + end)


def disk_of(kind: str, folder: str | None, trouble: Trouble) -> Disk:
    if kind == "memory":
        return MemoryDisk()
    assert kind == "sqlite", kind
    assert folder is not None, "a simulation on SQLite needs a folder"
    return SqliteDisk(folder, trouble)
