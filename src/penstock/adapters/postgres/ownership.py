"""Who owns a database: a row with a rising token decides, a session lock makes it quick (SPEC 4.8).

The lock is held by a connection of its own, so that it is gone at once with its process. A process that is stopped, not dead,
keeps its connection: there the lease decides, by the database's clock. Who takes over writes the next token under the lock
that every append takes too, and ends the session of the one before if it can.
"""

from __future__ import annotations

import asyncio
import os

from msgspec.structs import replace

from penstock.adapters.postgres.appending import LOCK
from penstock.adapters.postgres.database import (
    OWNER_LOCK,
    Away,
    Connection,
    Link,
    Place,
    translating,
)
from penstock.adapters.postgres.rows import OWNER, owner_of
from penstock.errors import Fenced
from penstock.ports.store import Owner, Pulse

LEASE_SECONDS = 6.0
SHOWN = f"SELECT {OWNER} FROM owner"
NOW = "extract(epoch FROM clock_timestamp())::double precision"
TAKE = f"pg_try_advisory_lock({OWNER_LOCK}, hashtext(current_schema()))"
TRY = f"SELECT {TAKE}, coalesce((SELECT {NOW} - renewed_at > {LEASE_SECONDS} AND pid <> 0 FROM owner), false)"
EXPIRED = f"SELECT {NOW} - renewed_at > {LEASE_SECONDS} FROM owner"
WRITE = (
    f"INSERT INTO owner (one, {OWNER}) SELECT 1, $1, coalesce((SELECT max(token) FROM owner), 0) + 1,"
    f" $2, now, now, $3 FROM (SELECT {NOW} AS now) t"
    " ON CONFLICT (one) DO UPDATE SET node = excluded.node, token = excluded.token,"
    " address = excluded.address, since = excluded.since, renewed_at = excluded.renewed_at,"
    f" pid = excluded.pid RETURNING {OWNER}"
)
PULSE = (
    f"UPDATE owner SET renewed_at = {NOW}, address = $2 WHERE token = $1 RETURNING {OWNER},"
    " (SELECT coalesce(max(position), 0) FROM events),"
    " ARRAY(SELECT g.name FROM globals g ORDER BY 1), ARRAY(SELECT g.value FROM globals g ORDER BY g.name),"
    " EXISTS (SELECT FROM requests)"
)
RELEASE = "UPDATE owner SET address = '', pid = 0 WHERE token = $1"
END_HOLDER = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    f" AND classid::bigint = {OWNER_LOCK} AND objid = hashtext(current_schema())::oid AND objsubid = 2"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND pid <> pg_backend_pid()"
)
TRIES_MAX = 10
WAIT_SECONDS_MAX = 8


class Ownership:
    """The session that holds the lock, and what it does."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._link = Link(place, seconds_max=WAIT_SECONDS_MAX)
        self._token: int | None = None

    async def claim(self, node: str, address: str) -> Owner | None:
        async with self._link.turn:
            if self._token is not None:
                return None
            try:
                with translating(self._place):
                    return await self._claim(node, address)
            except BaseException:
                self._link.drop()  # and with it the lock, should we have got it
                raise

    async def _claim(self, node: str, address: str) -> Owner | None:
        db = await self._link.get()
        locked, expired = await db.fetchrow(TRY)
        if not locked and not expired:
            return None
        async with db.transaction():
            await db.execute(LOCK)
            if not locked and not await db.fetchval(EXPIRED):
                return None
            clean = await db.fetchval("SELECT pid = 0 FROM owner")
            owner = owner_of(await db.fetchrow(WRITE, node, address, os.getpid()))
            owner = replace(owner, clean=clean is not False)
        self._token = owner.token
        if not locked:
            await self._evict(db)
        return owner

    async def _evict(self, db: Connection) -> None:
        """The one before is stopped with the lock in its hand: end its session. Without the right to do so
        the row decides alone: whoever comes after us waits for our lease then."""
        try:
            with translating(self._place):
                await db.fetch(END_HOLDER)
                for _ in range(TRIES_MAX):
                    if await db.fetchval(f"SELECT {TAKE}"):
                        return
                    await asyncio.sleep(0.02)
        except Away:
            raise
        except Exception:
            return

    async def pulse(self, owner: Owner) -> Pulse:
        """Renew, and what else an owner wants to know, in one statement."""
        async with self._link.turn:
            try:
                with translating(self._place):
                    alive = self._link.alive
                    db = await self._link.get()
                    if not alive and self._token is not None:
                        await db.fetchval(f"SELECT {TAKE}")  # it went with the session we lost
                    row = await db.fetchrow(PULSE, owner.token, owner.address)
                    if row is not None:
                        *columns, head, names, values, requests = row
                        data = dict(zip(names, values, strict=True))
                        return Pulse(owner_of(columns), head, data, requests)
                    newest = await db.fetchval("SELECT token FROM owner")
            except BaseException:
                self._link.drop()
                raise
        await self.lost(owner.token)
        raise Fenced(token=owner.token, newest=newest or 0)

    async def release(self, owner: Owner) -> None:
        async with self._link.turn:
            try:
                with translating(self._place):
                    db = await self._link.get()
                    await db.execute(RELEASE, owner.token)
            except BaseException:
                self._link.drop()
                raise
        await self.lost(owner.token)

    async def lost(self, token: int) -> None:
        """We are not the owner with that token any more: let go of the lock, too."""
        if self._token == token:
            self._token = None
            await self._let_go()

    async def _let_go(self) -> None:
        async with self._link.turn:
            if self._link.alive:
                try:
                    db = await self._link.get()
                    await db.execute("SELECT pg_advisory_unlock_all()")
                except Exception:
                    self._link.drop()

    async def close(self) -> None:
        self._token = None
        await self._let_go()
        await self._link.close()
