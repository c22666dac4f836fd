"""Transactions of activities: one at a time, on a connection of its own, under the store's one write lock (SPEC 4.3).

What an activity may do with the connection is decided by SQLite's own authorizer, which sees every statement: it cannot
end the transaction, reach another file, or touch our tables. Once its time is over the connection takes nothing more from
it, not even the next row of a statement that is under way.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from penstock.adapters.groups import Group
from penstock.adapters.sqlite import appending
from penstock.adapters.sqlite.database import Locked, configure, connect, migrations, translated
from penstock.adapters.sqlite.waiting import Patience
from penstock.errors import Rejected, StoreError
from penstock.ports.store import Append, Appended

STEPS = 10_000
"""Of SQLite's machine between two looks at the clock: well under a millisecond."""
READABLE = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list", "database_list"}  # fmt: skip
ENDING = {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
BY_FIRST = {
    sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE,
}  # fmt: skip
"""Whose first argument is the table."""
BY_SECOND = {
    sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_CREATE_TRIGGER, sqlite3.SQLITE_DROP_INDEX,
    sqlite3.SQLITE_DROP_TRIGGER, sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
}  # fmt: skip


@cache
def our_tables() -> frozenset[str]:
    return frozenset(
        name.lower()
        for script in migrations().values()
        for name in re.findall(r"CREATE TABLE (\w+)", script)
    )


class Guarded:
    """A connection that one thread at a time may use, ours in full and the activity's within limits."""

    def __init__(self, path: str, kind: type[sqlite3.Connection]) -> None:
        # Nothing stays prepared: what we may do must not be lent to an activity that says the same.
        self.db = connect(path, kind=kind, cached=0)
        self._ours = threading.get_ident()
        self._lent = False
        self._until = 0.0
        try:
            configure(self.db, path, writing=True)
            self.db.set_authorizer(self._allow)
            self.db.set_progress_handler(self._is_late, STEPS)
        except BaseException:
            self.db.close()
            raise

    def lend(self, seconds_max: float) -> None:
        self._lent, self._until = True, time.monotonic() + seconds_max

    def take_back(self) -> None:
        self._lent = False

    def discard(self) -> None:
        """Whoever still has it gets nothing more done: what it has prepared is expired, what runs is interrupted."""
        self._lent = False
        with suppress(sqlite3.Error):
            self.db.interrupt()
            self.db.set_authorizer(self._allow)
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    def close_if_free(self) -> bool:
        """Not under the hands of a thread that is late with it."""
        if sys.getrefcount(self.db) > 2:
            return False
        with suppress(sqlite3.Error):
            self.db.close()
        return True

    def _is_late(self) -> int:
        if threading.get_ident() == self._ours:
            return 0
        return int(not self._lent or time.monotonic() > self._until)

    def _allow(
        self, action: int, first: str | None, second: str | None, database: str | None, by: str | None
    ) -> int:  # fmt: skip
        if threading.get_ident() == self._ours:
            return sqlite3.SQLITE_OK
        if not self._lent or action in ENDING:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA:
            return sqlite3.SQLITE_OK if first in READABLE else sqlite3.SQLITE_DENY
        table = first if action in BY_FIRST else second if action in BY_SECOND else None
        if table is not None and table.lower() in our_tables():
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


class SqliteTransactions:
    """What `ports/transactions.py` promises."""

    activities = "def"

    def __init__(
        self,
        path: str,
        *,
        writing: asyncio.Lock,
        patience: Patience,
        kind: Callable[[], type[sqlite3.Connection]],
        tally: Callable[[Append, Appended | Exception], None],
    ) -> None:
        self.path, self.writing, self.tally = path, writing, tally
        self._patience, self._kind = patience, kind
        self._idle: Guarded | None = None
        self._left: list[Guarded] = []
        """Rolled back, and perhaps still in the hands of an activity."""

    async def begin(self, *, seconds_max: float) -> SqliteTransaction:
        await self.writing.acquire()
        try:
            guarded = await self._patience.until_done(self._begin)
        except BaseException:
            self.writing.release()
            raise
        guarded.lend(seconds_max)
        return SqliteTransaction(self, guarded)

    def _begin(self) -> Guarded:
        guarded, self._idle = self._idle, None
        try:
            if guarded is None:
                guarded = Guarded(self.path, self._kind())
            guarded.db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            meaning = translated(error, self.path)
            if guarded is not None:
                if isinstance(meaning, Locked):
                    self._idle = guarded
                else:
                    self.leave(guarded)
            raise meaning from error
        return guarded

    def leave(self, guarded: Guarded) -> None:
        guarded.discard()
        self._left = [each for each in (*self._left, guarded) if not each.close_if_free()]

    def keep(self, guarded: Guarded) -> None:
        """For the next one."""
        self._idle = guarded

    def close(self) -> None:
        if self._idle is not None:
            self._idle.db.close()
            self._idle = None
        self._left = [each for each in self._left if not each.close_if_free()]


class SqliteTransaction:
    def __init__(self, store: SqliteTransactions, guarded: Guarded) -> None:
        self._store, self._guarded = store, guarded
        self._over = False

    @property
    def connection(self) -> sqlite3.Connection:
        return self._guarded.db

    async def ready(self) -> None:
        self._guarded.take_back()
        try:
            fine = self._guarded.db.in_transaction
        except sqlite3.Error:
            fine = False
        if not fine:
            raise Rejected(
                "transaction-ended",
                "the activity has ended its own transaction, or closed its connection",
                hint="leave COMMIT, ROLLBACK and close() to the engine: raise to have all of it rolled back",
            )

    async def append(self, append: Append) -> Appended | Exception:
        outcome = await self._append(append)
        self._store.tally(append, outcome)
        return outcome

    async def _append(self, append: Append) -> Appended | Exception:
        db = self._guarded.db
        try:
            outcome = appending.write(db, Group([append]), judging=True)[0]
            if isinstance(outcome, Appended):
                db.execute("COMMIT")
                self._end(whole=True)
            else:
                await self.roll_back()
            return outcome
        except (sqlite3.Error, appending.Judge) as error:
            await self.roll_back()
            meaning: Exception = StoreError(f"{self._store.path}: {error}")
            if isinstance(error, sqlite3.Error):
                known = translated(error, self._store.path)
                meaning = meaning if isinstance(known, Locked) else known
            return meaning

    async def roll_back(self) -> None:
        if not self._over:
            self._store.leave(self._guarded)
            self._end(whole=False)

    def _end(self, *, whole: bool) -> None:
        self._over = True
        if whole:
            self._store.keep(self._guarded)
        self._store.writing.release()
