"""Transactions of activities: each on a connection of its own, beside each other and beside all appends (SPEC 4.3).

Until its append a transaction holds nothing of ours, however long it takes. The append takes the lock that gives positions,
which the commit right after it lets go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import getrandbits
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from penstock.adapters.groups import Group
from penstock.adapters.postgres import appending
from penstock.adapters.postgres.database import (
    CONNECT_SECONDS_MAX,
    IDLE_SECONDS_MAX,
    LOCK_SECONDS_MAX,
    STATEMENT_SECONDS_MAX,
    Away,
    Clash,
    Place,
    check_settings,
    meaning_of,
    translating,
)
from penstock.errors import Fenced, Rejected, RevisionConflict, StoreError
from penstock.ports.store import Append, Appended

CONNECTIONS_MAX = 16
"""Transactional attempts at a time; more wait for a connection before they begin."""
IDLE_SECONDS = 60
"""A transaction whose process says nothing for so long is ended: its locks hold up nobody for ever."""
CLOSE_SECONDS_MAX = 2.0
XACT = "SELECT pg_current_xact_id()::text"


class PostgresTransactions:
    """What `ports/transactions.py` promises."""

    activities = "async"

    def __init__(
        self, place: Place, *, tally: Callable[[Append, Appended | Exception], None]
    ) -> None:
        self.place, self.tally = place, tally
        self._pool: Any = None
        self._making = asyncio.Lock()

    async def begin(self, *, seconds_max: float) -> PostgresTransaction:
        try:
            return await self._begin(seconds_max)
        except (Away, Clash) as error:
            raise StoreError(f"no transaction for an activity: {error}") from error

    async def _begin(self, seconds_max: float) -> PostgresTransaction:
        with translating(self.place):
            pool = await self._connections()
            db = await pool.acquire()
            try:
                transaction = db.transaction(isolation="read_committed")
                await transaction.start()
                idle = max(IDLE_SECONDS, int(seconds_max))
                await db.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{idle}s'")
                number = await db.fetchval(XACT)
            except BaseException:
                db.terminate()
                await pool.release(db)
                raise
        return PostgresTransaction(self, pool, db, transaction, number)

    async def _connections(self) -> Any:
        async with self._making:
            if self._pool is None:
                # Not our search path: the activity's tables are the application's.
                self._pool = await asyncpg.create_pool(  # pyright: ignore[reportUnknownMemberType]
                    self.place.dsn, min_size=0, max_size=CONNECTIONS_MAX, init=self._check,
                    timeout=CONNECT_SECONDS_MAX, command_timeout=None,
                    server_settings={"application_name": "penstock activity", "jit": "off"},
                )  # fmt: skip
            return self._pool

    async def _check(self, db: Any) -> None:
        await check_settings(db, self.place)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await pool.close()
            except Exception:
                pool.terminate()


class PostgresTransaction:
    def __init__(
        self, store: PostgresTransactions, pool: Any, db: Any, transaction: Any, number: str
    ) -> None:
        self._store, self._pool, self._db, self._transaction = store, pool, db, transaction
        self._number = number
        self._over = False

    @property
    def connection(self) -> Any:
        return self._db

    async def ready(self) -> None:
        async with asyncio.timeout(STATEMENT_SECONDS_MAX):
            await self._ready()

    async def _ready(self) -> None:
        db, schema = self._db, self._store.place.schema
        ended = db.is_closed() or not db.is_in_transaction()
        if not ended:
            ended = await db.fetchval(XACT) != self._number
        if ended:
            raise Rejected(
                "transaction-ended",
                "the activity has ended its own transaction, or closed its connection",
                hint="leave COMMIT and ROLLBACK to the engine: raise to have all of it rolled back;"
                " `connection.transaction()` makes a savepoint",
            )
        # Deferred checks now, not while the append's lock is held; and the append as durable as any.
        await db.execute(
            f'SET CONSTRAINTS ALL IMMEDIATE; SET LOCAL search_path TO "{schema}";'
            " SET LOCAL synchronous_commit TO DEFAULT;"
            f" SET LOCAL lock_timeout = '{LOCK_SECONDS_MAX}s';"
            f" SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS_MAX}s'"
        )

    async def append(self, append: Append) -> Appended | Exception:
        try:
            async with asyncio.timeout(STATEMENT_SECONDS_MAX):
                outcome = await self._append(append)
        except Exception as error:
            await self.roll_back()
            outcome = meaning_of(error, self._store.place)
            if isinstance(outcome, Away | Clash):
                outcome = StoreError(str(outcome))
        self._store.tally(append, outcome)
        return outcome

    async def _append(self, append: Append) -> Appended | Exception:
        group = Group([append])
        if group.problems:
            await self.roll_back()
            return group.problems[0]
        batch = appending.Batch(group, {})
        try:
            outcomes = await appending.write(self._db, batch, getrandbits(63))
        except appending.Judge:
            await self.roll_back()
            return await self._why(append)
        await appending.write_blobs(self._db, group, outcomes)
        await self._transaction.commit()
        self._over = True
        await self._release()
        return outcomes[0]

    async def _why(self, append: Append) -> Exception:
        """Which of the two: a newer owner, or another writer."""
        newest = 0
        async with self._pool.acquire() as db:
            newest = await db.fetchval(
                f'SELECT coalesce((SELECT token FROM "{self._store.place.schema}".owner), 0)'
            )
        if append.token is not None and append.token < newest:
            return Fenced(token=append.token, newest=newest)
        return RevisionConflict(append.row.id, expected=append.expected)

    async def roll_back(self) -> None:
        """By ending the connection: code that still has it can do nothing more with it."""
        if not self._over:
            self._over = True
            self._db.terminate()
            await self._release()

    async def _release(self) -> None:
        with suppress(Exception):
            await self._pool.release(self._db)
