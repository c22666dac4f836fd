"""A group of appends on its way to the disk: sent once more after each failure, looked for first where the answer was lost
(SPEC 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import getrandbits
from typing import Any, TypeVar

from penstock.adapters.groups import Group
from penstock.adapters.postgres import appending
from penstock.adapters.postgres.database import (
    STATEMENT_SECONDS_MAX,
    Away,
    Clash,
    Connection,
    Link,
    Place,
    translating,
)
from penstock.ports.store import Appended

END_SESSION = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2"

T = TypeVar("T")


class Sending:
    """One group on its way to the disk; called again after each failure, until it is there or refused."""

    def __init__(self, link: Link, place: Place, group: Group) -> None:
        self._link, self._place, self._group = link, place, group
        self._nonce = getrandbits(63)
        # What stands beside the events is written in the same transaction, which takes more than one statement.
        self._judging = any(append.blobs for append in group.appends)
        self._sent: appending.Batch | None = None
        """What was sent without an answer, and by which session."""
        self._session: tuple[int, Any] = (0, None)

    async def __call__(self) -> list[Appended | Exception]:
        try:
            with translating(self._place):
                db = await self._link.get()
                if self._sent is not None:
                    outcomes = await self._look(db, self._sent)
                    if outcomes is not None:
                        return outcomes
                    self._sent = None
                self._session = self._link.session
                if not self._judging:
                    try:
                        return await self._write(db)
                    except appending.Judge:
                        self._judging, self._sent = True, None
                return await self._write_judged(db)
        except (Away, TimeoutError):
            self._link.drop()
            raise
        except Clash:
            self._sent = None
            raise

    async def _write(self, db: Connection) -> list[Appended | Exception]:
        batch = self._sent = appending.Batch(self._group, self._group.problems)
        return await appending.write(db, batch, self._nonce)

    async def _write_judged(self, db: Connection) -> list[Appended | Exception]:
        async with asyncio.timeout(STATEMENT_SECONDS_MAX), db.transaction():
            batch = await appending.judged(db, self._group)
            self._sent = batch
            outcomes = await appending.write_judged(db, batch, self._nonce)
            await appending.write_blobs(db, self._group, outcomes)
            return outcomes

    async def _look(
        self, db: Connection, sent: appending.Batch
    ) -> list[Appended | Exception] | None:
        """The session that did not answer may still be at it: it is ended first, and its end waited for."""
        pid, start = self._session
        for _ in range(50):
            if not await db.fetchval(END_SESSION, pid, start):
                return await appending.find(db, sent, self._group, self._nonce)
            await asyncio.sleep(0.1)
        raise Away(f"{self._place.name}: a lost session ({pid}) does not end")


async def whole(work: Awaitable[T]) -> T:
    """Not left behind in the middle: who is cancelled waits for the end first."""
    future = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not future.done():
            await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # seen: who was cancelled is not told what became of it
        raise
