"""SqliteStore: the port `Store` on one SQLite file.

Its connections, and how one writes and reads with them: `connections.py`.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import astuple

from penstock.adapters.groups import Group
from penstock.adapters.sqlite import appending, listing, ownership, purging, requesting
from penstock.adapters.sqlite import backup as backups
from penstock.adapters.sqlite import records as documents
from penstock.adapters.sqlite.connections import Connections, Unsure
from penstock.adapters.sqlite.database import (
    CHECKPOINT_SAFE,
    facts,
)
from penstock.adapters.sqlite.rows import (
    DEFINITION,
    EVENT,
    RUN,
    definition_of,
    row_of,
    snapshot_of,
    stored_of,
)
from penstock.adapters.sqlite.transactions import SqliteTransactions
from penstock.adapters.store_rules import published
from penstock.errors import Fenced, RevisionConflict, StoreError
from penstock.ports.store import (
    Append,
    Appended,
    Asked,
    DefinitionRow,
    Owner,
    Position,
    Pulse,
    Purged,
    Query,
    Record,
    Request,
    Row,
    RunKey,
    Snapshot,
    Stored,
)

T = TypeVar("T")


class SqliteStore:
    """See `ports/store.py` for what each method promises."""

    connection_class: type[sqlite3.Connection] = sqlite3.Connection
    """For tests that break the connection."""

    def __init__(
        self,
        path: str | Path,
        *,
        threaded: bool = False,
        busy_seconds_max: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = os.path.realpath(path)
        self._threaded = threaded
        self._clock = clock
        self._db = Connections(
            self.path,
            threaded=threaded,
            busy_seconds_max=busy_seconds_max,
            kind=lambda: self.connection_class,
        )
        self._lock = ownership.Lock(self.path)
        self._owned: Owner | None = None
        self.transactions = SqliteTransactions(
            self.path,
            writing=self._db.writing,
            patience=self._db.patience,
            kind=lambda: self.connection_class,
            tally=self._tally_one,
        )

    # -- opening and closing

    async def open(self) -> None:
        await self._db.open()

    async def close(self) -> None:
        """Without a `release` before, whoever owns the database next takes it for a process that died."""
        try:
            if self._owned is not None:
                self._owned = None
                self._lock.drop()
        finally:
            async with self._db.writing:
                self.transactions.close()
                self._db.disconnect()

    def describe(self) -> dict[str, Any]:
        """What this store stands on and what was chosen because of it; for the log and for bug reports."""
        safe = sqlite3.sqlite_version_info >= CHECKPOINT_SAFE
        chosen = "the owner alone, holding the write lock"
        return {
            "store": "sqlite",
            "path": self.path,
            "sqlite": sqlite3.sqlite_version,
            "commits": "in a writer thread" if self._threaded else "on the loop's thread",
            "checkpoints": f"{chosen}; others past a larger size" if safe else chosen,
            **facts(self._db.live(self._db.reader)),
        }

    # -- appending

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        if not appends:
            return []
        group = Group(appends)
        async with self._db.writing:
            if self._owned is not None:
                await self._db.tidy()
            outcomes = await self._append(group)
        self._tally(group, outcomes)
        return group.answers(outcomes)

    def _tally(self, group: Group, outcomes: list[Appended | Exception]) -> None:
        appends = group.appends
        counts, done, events = self._db.counts, 0, 0
        for append, outcome in zip(appends, outcomes, strict=True):
            if isinstance(outcome, Appended):
                done += 1
                events += len(append.payloads)
        self._db.wal_frames += group.size / 4096
        counts["appends"] += done
        counts["events"] += events
        counts["conflicts"] += len(appends) - done
        for outcome in outcomes if done < len(appends) else ():
            if isinstance(outcome, Fenced):
                self._fenced(outcome.token)

    def _tally_one(self, append: Append, outcome: Appended | Exception) -> None:
        """Of an activity's transaction, which is a commit of its own."""
        if isinstance(outcome, Appended):
            self._db.counts["commits"] += 1
            self._db.counts["syncs"] += 1
            self._db.wal_frames += 8
        self._tally(Group([append]), [outcome])

    async def _append(self, group: Group, *, judging: bool = False) -> list[Appended | Exception]:
        try:
            return await self._db.patience.until_done(
                lambda: self._db.transact(lambda db: appending.write(db, group, judging=judging)),
                thread=self._db.thread_for(group.size),
            )
        except appending.Judge as error:
            if judging:
                raise StoreError(f"{self.path} refuses what it should take: {error}") from error
        except Unsure as error:
            # The answer was lost, not necessarily the commit: look for our own append first.
            outcomes: list[Appended | Exception] = error.result
            if await self._db.read(lambda db: appending.is_there(db, outcomes)):
                return outcomes
            raise self._db.meaning(error.cause) from error.cause
        return await self._append(group, judging=True)

    async def save_snapshots(self, snapshots: Sequence[tuple[RunKey, Snapshot]]) -> None:
        if not snapshots:
            return
        rows = [(key, s.revision, s.state, s.hash) for key, s in snapshots]
        text = (
            "INSERT INTO snapshots (run, revision, state, hash) VALUES (?,?,?,?)"
            " ON CONFLICT (run) DO UPDATE SET revision=excluded.revision, state=excluded.state,"
            " hash=excluded.hash WHERE excluded.revision >= revision"
        )
        await self._db.write(lambda db: db.executemany(text, rows) and None)

    # -- reading

    async def find(self, id: str, generation: int | None = None) -> Row | None:
        if generation is None:
            text = f"SELECT {RUN} FROM runs WHERE id=? ORDER BY generation DESC LIMIT 1"
            return await self._db.one(row_of, text, (id,))
        return await self._db.one(
            row_of, f"SELECT {RUN} FROM runs WHERE id=? AND generation=?", (id, generation)
        )

    async def find_newest(self, ids: Sequence[str]) -> dict[str, Row]:
        text = (
            f"SELECT {RUN} FROM runs WHERE id IN (@)"
            " AND generation = (SELECT max(n.generation) FROM runs n WHERE n.id = runs.id)"
        )
        return {row.id: row for row in await self._db.many(row_of, text, ids)}

    async def find_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Row]:
        text = f"SELECT {RUN} FROM runs WHERE run IN (@)"
        return {row.key: row for row in await self._db.many(row_of, text, keys)}

    async def events(
        self, key: RunKey, *, after: int = 0, limit: int | None = None
    ) -> list[Stored]:
        text = f"SELECT {EVENT} FROM events WHERE run=? AND seq>? ORDER BY seq LIMIT ?"
        return await self._db.all(stored_of, text, (key, after, -1 if limit is None else limit))

    async def events_many(self, keys: Mapping[RunKey, int]) -> dict[RunKey, list[Stored]]:
        found: dict[RunKey, list[Stored]] = {key: [] for key in keys}
        text = (
            "WITH wanted (key, after) AS (VALUES @)"
            f" SELECT {EVENT} FROM wanted CROSS JOIN events INDEXED BY events_of_run"
            " ON run=key AND seq>after"
        )
        pairs = [value for pair in keys.items() for value in pair]
        for event in await self._db.many(stored_of, text, pairs, mark="(?,?)"):
            found[event.key].append(event)
        return found

    async def payloads(self, key: RunKey, seqs: Sequence[int]) -> dict[int, bytes]:
        text = "SELECT seq, payload FROM events WHERE run=? AND seq IN (@)"
        return dict(await self._db.many(_pair, text, seqs, key))

    async def blobs(self, key: RunKey, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        text = "SELECT digest, bytes FROM blobs WHERE run=? AND digest IN (@)"
        return dict(await self._db.many(_pair, text, digests, key))

    async def follow(self, *, after: Position, limit: int = 1000) -> list[Stored]:
        text = f"SELECT {EVENT} FROM events WHERE position>? ORDER BY position LIMIT ?"
        return await self._db.all(stored_of, text, (after, limit))

    async def head(self) -> Position:
        text = "SELECT coalesce(max(position), 0) FROM events"
        return (await self._db.all(_first, text))[0]

    async def snapshot(self, key: RunKey) -> Snapshot | None:
        return (await self.snapshots_many([key])).get(key)

    async def snapshots_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Snapshot]:
        text = "SELECT run, revision, state, hash FROM snapshots WHERE run IN (@)"
        found = await self._db.many(lambda row: (row[0], snapshot_of(row[1:])), text, keys)
        return dict(found)

    async def open_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        text = f"SELECT {RUN} FROM runs INDEXED BY runs_open WHERE open=1 AND run>? ORDER BY run LIMIT ?"
        return await self._db.all(row_of, text, (after, limit))

    async def closed_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        text = f"SELECT {RUN} FROM runs NOT INDEXED WHERE open=0 AND run>? ORDER BY run LIMIT ?"
        rows = await self._db.slowly(lambda db: db.execute(text, (after, limit)).fetchall())
        return [row_of(columns) for columns in rows]

    async def purge(
        self, keys: Sequence[RunKey], *, token: int | None = None, limit: int = 1000
    ) -> Purged:
        return await self._db.write(lambda db: purging.purge(db, keys, token=token, limit=limit))

    async def erase(
        self,
        key: RunKey,
        payloads: Mapping[int, bytes],
        *,
        blobs: Sequence[bytes] = (),
        attributes: bool = False,
    ) -> None:
        await self._db.write(
            lambda db: purging.erase(db, key, payloads, blobs=blobs, attributes=attributes)
        )
        # Out of the log, too, as far as nobody reads there: the next commits overwrite it.
        async with self._db.writing:
            if self._owned is not None:
                await self._db.tidy(now=True)

    async def list(self, query: Query) -> list[Row]:
        rows = await self._db.slowly(lambda db: db.execute(*listing.page(db, query)).fetchall())
        return [row_of(columns) for columns in rows]

    async def count(self, query: Query) -> int:
        return await self._db.slowly(
            lambda db: db.execute(*listing.counting(db, query)).fetchone()[0]
        )

    # -- definitions and global data

    async def publish(self, definition: DefinitionRow) -> DefinitionRow:
        return await self._db.write(lambda db: _publish(db, definition))

    async def definition(self, id: str, version: str | None = None) -> DefinitionRow | None:
        if version is None:
            text = f"SELECT {DEFINITION} FROM definitions WHERE id=? ORDER BY number DESC LIMIT 1"
            return await self._db.one(definition_of, text, (id,))
        text = f"SELECT {DEFINITION} FROM definitions WHERE id=? AND version=?"
        return await self._db.one(definition_of, text, (id, version))

    async def definitions(self) -> list[DefinitionRow]:
        text = f"SELECT {DEFINITION} FROM definitions ORDER BY id, number"
        return await self._db.all(definition_of, text)

    async def data_global(self) -> dict[str, bytes]:
        return dict(await self._db.all(_pair, "SELECT name, value FROM globals"))

    async def set_global(self, values: Mapping[str, bytes | None]) -> None:
        kept = [(name, value) for name, value in values.items() if value is not None]
        dropped = [(name,) for name, value in values.items() if value is None]

        def work(db: sqlite3.Connection) -> None:
            db.executemany("DELETE FROM globals WHERE name=?", dropped)
            db.executemany("INSERT OR REPLACE INTO globals (name, value) VALUES (?,?)", kept)

        await self._db.write(work)

    # -- records

    async def record(self, kind: str, id: str) -> Record | None:
        return await self._db.one(documents.record_of, documents.ONE, (kind, id))

    async def records(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Record]:
        return await self._db.all(documents.record_of, documents.BY_ID, (kind, after, limit))

    async def records_due(self, kind: str, *, until: float, limit: int = 1000) -> list[Record]:
        return await self._db.all(documents.record_of, documents.BY_DUE, (kind, until, limit))

    async def put(self, records: Sequence[Record]) -> list[Record | RevisionConflict]:
        if not records:
            return []
        async with self._db.writing:
            try:
                return await self._db.patience.until_done(
                    lambda: self._db.transact(lambda db: documents.write(db, records)),
                    thread=self._db.thread_for(0),
                )
            except Unsure as error:
                # As with an append: the answer was lost, not necessarily the commit.
                outcomes: list[Record | RevisionConflict] = error.result
                if await self._db.read(lambda db: documents.are_there(db, outcomes)):
                    return outcomes
                raise self._db.meaning(error.cause) from error.cause

    async def drop(self, kind: str, ids: Sequence[str]) -> None:
        await self._db.write(lambda db: documents.drop(db, kind, ids))

    async def drop_expired(self, *, until: float, limit: int = 1000) -> int:
        return await self._db.write(
            lambda db: db.execute(documents.EXPIRE, (until, limit)).rowcount
        )

    async def backup(self, path: str) -> None:
        self._db.live(self._db.reader)
        await asyncio.to_thread(backups.copy, self.path, path)

    # -- requests

    async def request(self, connection: Any, request: Request) -> Asked:
        self._db.live(self._db.reader)
        return requesting.ask(connection, request, self.path)

    async def requests(self, *, after: int = 0, limit: int = 100) -> list[Request]:
        return await self._db.all(requesting.request_of, requesting.WAITING, (after, limit))

    async def requested(self, id: str) -> bool:
        return bool((await self._db.all(_first, requesting.ASKED, (id,)))[0])

    async def drop_requests(self, numbers: Sequence[int]) -> None:
        rows = [(number,) for number in numbers]
        await self._db.write(lambda db: db.executemany(requesting.DROP, rows) and None)

    # -- ownership

    async def claim(self, node: str, address: str) -> Owner | None:
        self._db.live(self._db.reader)
        if self._owned is not None:
            return None
        locked = self._lock.take()
        try:
            # Looked at first: a standby asks often, and must not write for it.
            if await self._db.read(lambda db: ownership.free(db, locked=locked, now=self._clock())):
                self._owned = await self._db.write(
                    lambda db: ownership.claim(db, node, address, locked=locked, now=self._clock())
                )
        finally:
            if self._owned is None:
                self._lock.drop()
        return self._owned

    async def renew(self, owner: Owner) -> Owner:
        locked = self._lock.held or self._lock.take()
        try:
            return await self._db.write(
                lambda db: ownership.renew(db, owner, locked=locked, now=self._clock())
            )
        except Fenced:
            self._fenced(owner.token)
            raise

    def _fenced(self, token: int) -> None:
        """A newer owner exists, and may want the lock."""
        if self._owned is not None and self._owned.token == token:
            self._owned = None
            self._lock.drop()

    async def pulse(self, owner: Owner) -> Pulse:
        renewed = await self.renew(owner)
        waiting = bool(await self.requests(limit=1))
        return Pulse(renewed, await self.head(), await self.data_global(), waiting)

    async def owner(self) -> Owner | None:
        return await self._db.read(ownership.shown)

    async def release(self, owner: Owner) -> None:
        try:
            await self._db.write(lambda db: ownership.release(db, owner))
        finally:
            self._fenced(owner.token)

    def stats(self) -> dict[str, int]:
        return {**self._db.counts, "busy": self._db.patience.busy}


def _pair(columns: tuple[Any, ...]) -> tuple[Any, Any]:
    return columns[0], columns[1]


def _first(columns: tuple[Any, ...]) -> Any:
    return columns[0]


def _publish(db: sqlite3.Connection, wanted: DefinitionRow) -> DefinitionRow:
    text = f"SELECT {DEFINITION} FROM definitions WHERE id=? ORDER BY number"
    kept = [definition_of(columns) for columns in db.execute(text, (wanted.id,))]
    row = published(kept, wanted)
    if row not in kept:
        db.execute(f"INSERT INTO definitions ({DEFINITION}) VALUES (?,?,?,?,?,?,?)", astuple(row))
    return row
