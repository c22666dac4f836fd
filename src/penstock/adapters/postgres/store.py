"""PostgresStore: the port `Store` on a schema of a PostgreSQL database.

Appends go through one connection, one group at a time, each one statement that is one transaction. Reads and the rest have a
few connections of their own. A connection that is lost is made anew; whoever was in the middle of something tries again for
`away_seconds_max`, and an append whose answer was lost is looked for first (SPEC 4.2).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import getrandbits, random
from typing import Any, TypeVar

from msgspec.structs import astuple

from penstock.adapters.groups import Group
from penstock.adapters.postgres import appending, listing, ownership, purging, requesting
from penstock.adapters.postgres import records as documents
from penstock.adapters.postgres.database import (
    DEFINITIONS_LOCK,
    Away,
    Clash,
    Connection,
    Link,
    Links,
    Place,
    migrate,
    migrations,
    translating,
)
from penstock.adapters.postgres.rows import (
    DEFINITION,
    EVENT,
    RECORD,
    RUN,
    definition_of,
    owner_of,
    record_of,
    row_of,
    snapshot_of,
    stored_of,
)
from penstock.adapters.postgres.sending import Sending, whole
from penstock.adapters.postgres.transactions import PostgresTransactions
from penstock.adapters.store_rules import published
from penstock.errors import Rejected, RevisionConflict, StoreError
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

CONNECTIONS_MAX = 4
"""For reading and small writes; beside them one for loading runs while all of these are taken, one for appends, one
for ownership, one that listens."""
PAUSE_SECONDS_FIRST = 0.02
PAUSE_SECONDS_MAX = 0.5
COUNTS = ("commits", "appends", "events", "syncs", "conflicts", "busy", "reconnects")

T = TypeVar("T")


class PostgresStore:
    """See `ports/store.py` for what each method promises."""

    def __init__(
        self,
        url: str,
        *,
        away_seconds_max: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.place = Place(url)
        self._seconds_max = away_seconds_max
        self._clock = clock
        self._writer = Link(self.place, check=True)
        self._links = Links(self.place, count_max=CONNECTIONS_MAX)
        self._ownership = ownership.Ownership(self.place)
        self._process = 0
        self._identity = ""
        self._answered_at = 0.0
        """When the server last did what it was asked for."""
        self._facts: dict[str, Any] = {}
        self._counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self.transactions = PostgresTransactions(self.place, tally=self._tally_one)

    # -- opening and closing

    async def open(self) -> None:
        if self._process:
            return
        async with self._writer.turn:
            if not self._process:
                await self._until_done(self._migrate)
                self._process = os.getpid()

    async def _migrate(self) -> None:
        try:
            db = await self._writer.get()
            with translating(self.place):
                await migrate(db, self.place)
        except BaseException:
            self._writer.drop()
            raise
        self._facts = {"postgresql": str(db.get_server_version().major)}

    async def close(self) -> None:
        """Without a `release` before, whoever owns the database next takes it for a process that died."""
        self._process = 0
        await self._ownership.close()
        await self.transactions.close()
        async with self._writer.turn:
            await self._writer.close()
        await self._links.close()

    def describe(self) -> dict[str, Any]:
        """What this store stands on; for the log and for bug reports."""
        return {
            "store": "postgresql",
            "place": self.place.name,
            "schema": self.place.schema,
            "version": max(migrations()),
            "unsafe": self.place.unsafe,
            **self._facts,
        }

    def _check(self) -> None:
        if not self._process:
            raise StoreError(f"{self.place.name} is not open", hint="await store.open() first")
        if os.getpid() != self._process:
            raise StoreError(
                f"{self.place.name} was opened by process {self._process}, of which this one is a fork",
                hint="open a store of its own in each process",
            )

    # -- trying again

    async def _until_done(
        self, work: Callable[[], Awaitable[T]], asked_at: float | None = None
    ) -> T:
        """Do it, and again while the server is away; until it has been tried for so long, or nobody has had an answer
        for so long since it was asked for: to wait in line does not count while others are served."""
        begun, pause = time.monotonic(), PAUSE_SECONDS_FIRST
        asked = begun if asked_at is None else asked_at
        while True:
            try:
                result = await work()
                self._answered_at = time.monotonic()
                return result
            except Clash as error:
                self._counts["busy"] += 1
                reason: Exception = error
            except Away as error:
                self._counts["reconnects"] += 1
                self._links.forget()
                reason = error
            since = min(begun, max(asked, self._answered_at))
            left = since + self._seconds_max - time.monotonic()
            if left <= 0:
                raise self._away(reason) from reason
            await asyncio.sleep(min(pause * (0.5 + random()), left))  # not in step with others
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _away(self, reason: Exception) -> StoreError:
        return StoreError(
            f"the database was out of reach for {self._seconds_max:g} s ({reason})",
            hint="is the server running, and is the store's URL right? the engine goes on by itself once it is back",
        )

    async def _do(self, work: Callable[[Connection], Awaitable[T]], *, loading: bool = False) -> T:
        """Read, or write what may be written twice."""
        self._check()

        async def attempt() -> T:
            with translating(self.place):
                async with self._links.one() as db:
                    return await work(db)

        asked_at = time.monotonic()
        async with self._links.turn(reserve=loading):
            return await self._until_done(attempt, asked_at)

    async def _all(self, make: Callable[[Any], T], text: str, *values: Any) -> list[T]:
        rows = await self._do(lambda db: db.fetch(text, *values))
        return [make(columns) for columns in rows]

    async def _load(self, make: Callable[[Any], T], text: str, *values: Any) -> list[T]:
        """What the engine needs to go on: not behind all who merely look."""
        rows = await self._do(lambda db: db.fetch(text, *values), loading=True)
        return [make(columns) for columns in rows]

    async def _one(self, make: Callable[[Any], T], text: str, *values: Any) -> T | None:
        columns = await self._do(lambda db: db.fetchrow(text, *values))
        return None if columns is None else make(columns)

    async def _transact(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """One transaction of what may be done twice, on disk on return."""

        async def attempt(db: Connection) -> T:
            async with db.transaction():
                return await work(db)

        result = await self._do(attempt)
        self._counts["commits"] += 1
        self._counts["syncs"] += 1
        return result

    # -- appending

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        if not appends:
            return []
        self._check()
        group = Group(appends)
        async with self._writer.turn:
            # Whole, whoever is cancelled meanwhile: what is sent may be written.
            outcomes = await whole(self._append(group))
        self._tally(group.appends, outcomes)
        return group.answers(outcomes)

    async def _append(self, group: Group) -> list[Appended | Exception]:
        return await self._until_done(Sending(self._writer, self.place, group))

    def _tally(self, appends: Sequence[Append], outcomes: list[Appended | Exception]) -> None:
        counts, done = self._counts, 0
        for append, outcome in zip(appends, outcomes, strict=True):
            if isinstance(outcome, Appended):
                done += 1
                counts["events"] += len(append.payloads)
        counts["commits"] += 1
        counts["syncs"] += 1
        counts["appends"] += done
        counts["conflicts"] += len(appends) - done

    def _tally_one(self, append: Append, outcome: Appended | Exception) -> None:
        """Of an activity's transaction, which is a commit of its own."""
        self._tally([append], [outcome])

    async def save_snapshots(self, snapshots: Sequence[tuple[RunKey, Snapshot]]) -> None:
        if not snapshots:
            return
        newest: dict[RunKey, Snapshot] = {}
        for key, snapshot in snapshots:
            if key not in newest or newest[key].revision <= snapshot.revision:
                newest[key] = snapshot
        columns = [
            list(c) for c in zip(*((k, *astuple(s)) for k, s in newest.items()), strict=True)
        ]
        await self._do(
            lambda db: db.execute(
                "INSERT INTO snapshots AS now (run, revision, state, hash)"
                " SELECT * FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[])"
                " ON CONFLICT (run) DO UPDATE SET revision = excluded.revision, state = excluded.state,"
                " hash = excluded.hash WHERE excluded.revision >= now.revision",
                *columns,
            )
        )
        self._counts["commits"] += 1
        self._counts["syncs"] += 1

    # -- reading

    async def find(self, id: str, generation: int | None = None) -> Row | None:
        if appending.text_problem(id):
            return None
        if generation is None:
            text = f"SELECT {RUN} FROM runs r WHERE r.id = $1 ORDER BY r.generation DESC LIMIT 1"
            return await self._one(row_of, text, id)
        text = f"SELECT {RUN} FROM runs r WHERE r.id = $1 AND r.generation = $2"
        return await self._one(row_of, text, id, generation)

    async def find_newest(self, ids: Sequence[str]) -> dict[str, Row]:
        text = (
            f"SELECT {RUN} FROM unnest($1::text[]) w (id) CROSS JOIN LATERAL"
            " (SELECT * FROM runs n WHERE n.id = w.id ORDER BY n.generation DESC LIMIT 1) r"
        )
        known = [id for id in ids if not appending.text_problem(id)]
        return {row.id: row for row in await self._load(row_of, text, known)}

    async def find_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Row]:
        text = f"SELECT {RUN} FROM runs r WHERE r.run = ANY($1::bigint[])"
        return {row.key: row for row in await self._load(row_of, text, list(keys))}

    async def events(
        self, key: RunKey, *, after: int = 0, limit: int | None = None
    ) -> list[Stored]:
        text = f"SELECT {EVENT} FROM events WHERE run = $1 AND seq > $2 ORDER BY seq LIMIT $3"
        return await self._all(stored_of, text, key, after, limit)

    async def events_many(self, keys: Mapping[RunKey, int]) -> dict[RunKey, list[Stored]]:
        found: dict[RunKey, list[Stored]] = {key: [] for key in keys}
        text = (
            "SELECT e.position, e.run, e.seq, e.payload, e.hash"
            " FROM unnest($1::bigint[], $2::integer[]) w (run, after)"
            f" CROSS JOIN LATERAL (SELECT {EVENT} FROM events"
            " WHERE run = w.run AND seq > w.after ORDER BY seq) e"
        )
        for event in await self._load(stored_of, text, list(keys), list(keys.values())):
            found[event.key].append(event)
        return found

    async def payloads(self, key: RunKey, seqs: Sequence[int]) -> dict[int, bytes]:
        text = "SELECT seq, payload FROM events WHERE run = $1 AND seq = ANY($2::integer[])"
        return dict(await self._load(tuple[int, bytes], text, key, list(seqs)))

    async def blobs(self, key: RunKey, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        text = "SELECT digest, bytes FROM blobs WHERE run = $1 AND digest = ANY($2::bytea[])"
        return dict(await self._load(tuple[bytes, bytes], text, key, list(digests)))

    async def follow(self, *, after: Position, limit: int = 1000) -> list[Stored]:
        text = f"SELECT {EVENT} FROM events WHERE position > $1 ORDER BY position LIMIT $2"
        return await self._all(stored_of, text, after, limit)

    async def head(self) -> Position:
        text = "SELECT coalesce(max(position), 0) FROM events"
        return (await self._all(_first, text))[0]

    async def snapshot(self, key: RunKey) -> Snapshot | None:
        return (await self.snapshots_many([key])).get(key)

    async def snapshots_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Snapshot]:
        text = "SELECT run, revision, state, hash FROM snapshots WHERE run = ANY($1::bigint[])"
        found = await self._load(lambda row: (row[0], snapshot_of(row[1:])), text, list(keys))
        return dict(found)

    async def open_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        text = (
            f"SELECT {RUN} FROM runs r WHERE r.closed_as IS NULL AND r.run > $1"
            " ORDER BY r.run LIMIT $2"
        )
        return await self._all(row_of, text, after, limit)

    async def list(self, query: Query) -> list[Row]:
        rows = await self._do(lambda db: listing.page(db, query))
        return [row_of(columns) for columns in rows]

    async def count(self, query: Query) -> int:
        return await self._do(lambda db: listing.counting(db, query))

    # -- deleting

    async def closed_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        text = (
            f"SELECT {RUN} FROM runs r WHERE r.closed_as IS NOT NULL AND r.run > $1"
            " ORDER BY r.run LIMIT $2"
        )
        return await self._all(row_of, text, after, limit)

    async def purge(
        self, keys: Sequence[RunKey], *, token: int | None = None, limit: int = 1000
    ) -> Purged:
        return await self._transact(lambda db: purging.purge(db, keys, token=token, limit=limit))

    async def erase(
        self,
        key: RunKey,
        payloads: Mapping[int, bytes],
        *,
        blobs: Sequence[bytes] = (),
        attributes: bool = False,
    ) -> None:
        await self._transact(
            lambda db: purging.erase(db, key, payloads, blobs=blobs, attributes=attributes)
        )

    # -- definitions and global data

    async def publish(self, definition: DefinitionRow) -> DefinitionRow:
        async def work(db: Connection) -> DefinitionRow:
            lock = f"SELECT pg_advisory_xact_lock({DEFINITIONS_LOCK}, hashtext(current_schema()))"
            await db.execute(lock)
            text = f"SELECT {DEFINITION} FROM definitions WHERE id = $1 ORDER BY number"
            kept = [definition_of(columns) for columns in await db.fetch(text, definition.id)]
            row = published(kept, definition)
            if row not in kept:
                text = f"INSERT INTO definitions ({DEFINITION}) VALUES ($1,$2,$3,$4,$5,$6,$7)"
                await db.execute(text, *astuple(row))
            return row

        return await self._transact(work)

    async def definition(self, id: str, version: str | None = None) -> DefinitionRow | None:
        if appending.text_problem(id) or appending.text_problem(version or ""):
            return None
        if version is None:
            text = (
                f"SELECT {DEFINITION} FROM definitions WHERE id = $1 ORDER BY number DESC LIMIT 1"
            )
            return await self._one(definition_of, text, id)
        text = f"SELECT {DEFINITION} FROM definitions WHERE id = $1 AND version = $2"
        return await self._one(definition_of, text, id, version)

    async def definitions(self) -> list[DefinitionRow]:
        text = f"SELECT {DEFINITION} FROM definitions ORDER BY id, number"
        return await self._all(definition_of, text)

    async def data_global(self) -> dict[str, bytes]:
        return dict(await self._all(tuple[str, bytes], "SELECT name, value FROM globals"))

    async def set_global(self, values: Mapping[str, bytes | None]) -> None:
        async def work(db: Connection) -> None:
            dropped = [name for name, value in values.items() if value is None]
            kept = sorted((name, value) for name, value in values.items() if value is not None)
            await db.execute("DELETE FROM globals WHERE name = ANY($1::text[])", dropped)
            await db.execute(
                "INSERT INTO globals SELECT * FROM unnest($1::text[], $2::bytea[])"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                [name for name, _ in kept],
                [value for _, value in kept],
            )

        await self._transact(work)

    # -- records

    async def record(self, kind: str, id: str) -> Record | None:
        text = f"SELECT {RECORD} FROM records WHERE kind = $1 AND id = $2"
        return await self._one(record_of, text, kind, id)

    async def records(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Record]:
        text = f"SELECT {RECORD} FROM records WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3"
        return await self._all(record_of, text, kind, after, limit)

    async def records_due(self, kind: str, *, until: float, limit: int = 1000) -> list[Record]:
        text = (
            f"SELECT {RECORD} FROM records WHERE kind = $1 AND due <= $2 ORDER BY due, id LIMIT $3"
        )
        return await self._all(record_of, text, kind, until, limit)

    async def put(self, records: Sequence[Record]) -> list[Record | RevisionConflict]:
        if not records:
            return []
        nonce = getrandbits(63)
        return await whole(self._transact(lambda db: documents.write(db, records, nonce)))

    async def drop(self, kind: str, ids: Sequence[str]) -> None:
        text = "DELETE FROM records WHERE kind = $1 AND id = ANY($2::text[])"
        await self._transact(lambda db: db.execute(text, kind, list(ids)))

    async def drop_expired(self, *, until: float, limit: int = 1000) -> int:
        return await self._transact(lambda db: documents.expire(db, until, limit))

    # -- requests

    async def request(self, connection: Any, request: Request) -> Asked:
        self._check()
        if not self._identity:
            text = "SELECT value FROM meta WHERE name = 'store'"
            self._identity = (await self._all(_first, text))[0]
        return await requesting.ask(connection, request, self.place, self._identity)

    async def requests(self, *, after: int = 0, limit: int = 100) -> list[Request]:
        return await self._all(requesting.request_of, requesting.WAITING, after, limit)

    async def requested(self, id: str) -> bool:
        return (await self._all(_first, requesting.ASKED, id))[0]

    async def drop_requests(self, numbers: Sequence[int]) -> None:
        await self._transact(lambda db: db.execute(requesting.DROP, list(numbers)))

    # -- ownership

    async def backup(self, path: str) -> None:
        raise Rejected(
            "backup-unsupported",
            "PostgreSQL has its own tools for backups",
            hint="pg_basebackup, or pg_dump while engines work; `penstock export` copies runs",
        )

    async def claim(self, node: str, address: str) -> Owner | None:
        self._check()
        return await self._until_done(lambda: self._ownership.claim(node, address))

    async def renew(self, owner: Owner) -> Owner:
        self._check()
        return (await self.pulse(owner)).owner

    async def pulse(self, owner: Owner) -> Pulse:
        self._check()
        return await self._until_done(lambda: self._ownership.pulse(owner))

    async def owner(self) -> Owner | None:
        return await self._one(owner_of, ownership.SHOWN)

    async def release(self, owner: Owner) -> None:
        self._check()
        await self._until_done(lambda: self._ownership.release(owner))

    def stats(self) -> dict[str, int]:
        return dict(self._counts)


def _first(columns: Any) -> Any:
    return columns[0]
