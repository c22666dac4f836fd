"""SqliteStore: the port `Store` on one SQLite file.

Writes go through one connection, one at a time, by default on the loop's own thread: a commit takes less than a
hand-over to a thread that starves beside a busy loop (decision: DEPENDENCIES 3). Reads have a connection of their own
and so never see what is not yet on disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import astuple

from penstock.adapters.groups import Group
from penstock.adapters.sqlite import appending, listing, ownership, purging, requesting
from penstock.adapters.sqlite import backup as backups
from penstock.adapters.sqlite import records as documents
from penstock.adapters.sqlite.database import (
    CHECKPOINT_SAFE,
    LOG_BYTES_KEPT,
    SQLITE_OLDEST,
    Locked,
    check,
    configure,
    connect,
    facts,
    migrate,
    translated,
)
from penstock.adapters.sqlite.rows import (
    DEFINITION,
    EVENT,
    RUN,
    chunks,
    definition_of,
    row_of,
    snapshot_of,
    stored_of,
)
from penstock.adapters.sqlite.transactions import SqliteTransactions
from penstock.adapters.sqlite.waiting import Aside, Patience
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

WAL_FRAMES_MAX = 4_000
"""About so many pages in the log, and the owner copies them back into the database; bounds how long that takes."""
APART_BYTES = 1024 * 1024
"""From here on a commit is written by a thread, and the loop goes on meanwhile."""
COUNTS = (
    "commits",
    "appends",
    "events",
    "syncs",
    "conflicts",
    "busy",
    "checkpoints",
    "checkpoints_failed",
)

T = TypeVar("T")


class Unsure(Exception):
    """COMMIT failed: whether it was done has to be looked up."""

    def __init__(self, cause: sqlite3.Error, result: Any) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.result = result
        """What the transaction gave, if it was done."""


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
        self._patience = Patience(self.path, seconds_max=busy_seconds_max)
        self._clock = clock
        self._writing = asyncio.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._beside: sqlite3.Connection | None = None
        self._aside: Aside | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._apart: ThreadPoolExecutor | None = None
        """For what is large, once there is some."""
        self._lock = ownership.Lock(self.path)
        self._owned: Owner | None = None
        self._process = 0
        self._wal_frames = 0.0
        self._counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self.transactions = SqliteTransactions(
            self.path,
            writing=self._writing,
            patience=self._patience,
            kind=lambda: self.connection_class,
            tally=self._tally_one,
        )

    # -- opening and closing

    async def open(self) -> None:
        if self._writer is not None:
            return
        self._check_place()
        async with self._writing:
            if self._writer is None:
                await self._patience.until_done(self._connect)

    def _check_place(self) -> None:
        if sqlite3.sqlite_version_info < SQLITE_OLDEST:
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 is needed")
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise StoreError(
                f"the folder {folder} does not exist", hint=f"create it first: mkdir -p {folder}"
            )
        if os.path.isdir(self.path):
            raise StoreError(
                f"{self.path} is a folder, not a database",
                hint=f"name a file in it: sqlite:///{os.path.join(self.path, 'penstock.db')}",
            )

    def _connect(self) -> None:
        made: list[sqlite3.Connection] = []
        try:
            for _ in range(3):
                made.append(connect(self.path, kind=self.connection_class))
            writer, beside, reader = made
            current = check(writer, self.path)
            configure(writer, self.path, writing=True)
            if not current:
                migrate(writer, self.path)
            configure(beside, self.path)
            configure(reader, self.path)
        except BaseException:
            for db in made:
                db.close()
            raise
        if self._threaded:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite")
        self._writer, self._beside, self._reader = writer, beside, reader
        self._process = os.getpid()

    async def close(self) -> None:
        """Without a `release` before, whoever owns the database next takes it for a process that died."""
        try:
            if self._owned is not None:
                self._owned = None
                self._lock.drop()
        finally:
            async with self._writing:
                self._disconnect()

    def _disconnect(self) -> None:
        for thread in (self._thread, self._apart):
            if thread is not None:
                thread.shutdown()
        if self._aside is not None:
            self._aside.close()
        self.transactions.close()
        # The last one to close copies the log back, so let it be the writer.
        for db in (self._reader, self._beside, self._writer):
            if db is not None:
                db.close()
        self._writer = self._beside = self._reader = self._thread = self._apart = self._aside = None

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
            **facts(self._open(self._reader)),
        }

    # -- one way to write, one way to read

    def _open(self, db: sqlite3.Connection | None) -> sqlite3.Connection:
        if db is None:
            raise StoreError(f"{self.path} is not open", hint="await store.open() first")
        if os.getpid() != self._process:
            raise StoreError(
                f"{self.path} was opened by process {self._process}, of which this one is a fork",
                hint="open a store of its own in each process",
            )
        return db

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """One transaction, on disk on return."""
        async with self._writing:
            try:
                return await self._patience.until_done(
                    lambda: self._transact(work), thread=self._thread
                )
            except Unsure as error:
                raise self._meaning(error.cause) from error.cause

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        db = self._open(self._writer)
        before = db.total_changes
        self._roll_back(db)
        try:
            db.execute("BEGIN IMMEDIATE")
            result = work(db)
        except BaseException as error:
            self._roll_back(db)
            if isinstance(error, sqlite3.Error):
                raise translated(error, self.path) from error
            raise
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            meaning = translated(error, self.path)
            if isinstance(meaning, Locked) and db.in_transaction:
                self._roll_back(db)
                raise meaning from error
            self._roll_back(db)
            raise Unsure(error, result) from error
        self._counts["commits"] += 1
        self._counts["syncs"] += 1
        self._wal_frames += 3 + (db.total_changes - before) / 4
        return result

    def _roll_back(self, db: sqlite3.Connection) -> None:
        # Where even that fails the next transaction begins with another try.
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")

    def _meaning(self, error: sqlite3.Error) -> Exception:
        meaning = translated(error, self.path)
        return StoreError(f"{self.path}: {error}") if isinstance(meaning, Locked) else meaning

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def attempt() -> T:
            try:
                return work(self._open(self._reader))
            except sqlite3.Error as error:
                raise translated(error, self.path) from error

        return await self._patience.until_done(attempt)

    async def _slowly(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """For listings: a filter that no index answers may read a million rows."""
        self._open(self._reader)
        if self._aside is None:
            await self._patience.until_done(self._connect_aside)
        assert self._aside is not None
        return await self._aside.read(work)

    def _connect_aside(self) -> None:
        db = connect(self.path, kind=self.connection_class)
        try:
            configure(db, self.path)
        except BaseException:
            db.close()
            raise
        self._aside = Aside(db, self.path, self._patience)

    async def _all(
        self, make: Callable[[tuple[Any, ...]], T], text: str, values: Sequence[Any] = ()
    ) -> list[T]:
        rows = await self._read(lambda db: db.execute(text, values).fetchall())
        return [make(columns) for columns in rows]

    async def _one(
        self, make: Callable[[tuple[Any, ...]], T], text: str, values: Sequence[Any] = ()
    ) -> T | None:
        columns = await self._read(lambda db: db.execute(text, values).fetchone())
        return None if columns is None else make(columns)

    async def _many(
        self,
        make: Callable[[tuple[Any, ...]], T],
        text: str,
        values: Sequence[Any],
        *first: Any,
        mark: str = "?",
    ) -> list[T]:
        """The rows for any number of values, which take the place of @; the loop gets its turn in between."""
        found: list[T] = []
        for part in chunks(values):
            if found:
                await asyncio.sleep(0)
            marks = ",".join([mark] * (len(part) // mark.count("?")))
            found += await self._all(make, text.replace("@", marks), (*first, *part))
        return found

    # -- appending

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        if not appends:
            return []
        group = Group(appends)
        async with self._writing:
            await self._tidy()
            outcomes = await self._append(group)
        self._tally(group, outcomes)
        return group.answers(outcomes)

    def _tally(self, group: Group, outcomes: list[Appended | Exception]) -> None:
        appends = group.appends
        counts, done, events = self._counts, 0, 0
        for append, outcome in zip(appends, outcomes, strict=True):
            if isinstance(outcome, Appended):
                done += 1
                events += len(append.payloads)
        self._wal_frames += group.size / 4096
        counts["appends"] += done
        counts["events"] += events
        counts["conflicts"] += len(appends) - done
        for outcome in outcomes if done < len(appends) else ():
            if isinstance(outcome, Fenced):
                self._fenced(outcome.token)

    def _tally_one(self, append: Append, outcome: Appended | Exception) -> None:
        """Of an activity's transaction, which is a commit of its own."""
        if isinstance(outcome, Appended):
            self._counts["commits"] += 1
            self._counts["syncs"] += 1
            self._wal_frames += 8
        self._tally(Group([append]), [outcome])

    async def _append(self, group: Group, *, judging: bool = False) -> list[Appended | Exception]:
        try:
            return await self._patience.until_done(
                lambda: self._transact(lambda db: appending.write(db, group, judging=judging)),
                thread=self._thread_for(group.size),
            )
        except appending.Judge as error:
            if judging:
                raise StoreError(f"{self.path} refuses what it should take: {error}") from error
        except Unsure as error:
            # The answer was lost, not necessarily the commit: look for our own append first.
            outcomes: list[Appended | Exception] = error.result
            if await self._read(lambda db: appending.is_there(db, outcomes)):
                return outcomes
            raise self._meaning(error.cause) from error.cause
        return await self._append(group, judging=True)

    def _thread_for(self, size: int) -> ThreadPoolExecutor | None:
        """Where so many bytes are written: on the loop's thread only what takes no longer than a hand-over or two."""
        if self._thread is not None or size < APART_BYTES:
            return self._thread
        if self._apart is None:
            self._apart = ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite-large")
        return self._apart

    async def _tidy(self) -> None:
        """Copy the log back into the database once it is long: the owner alone, and between two commits.

        Versions of SQLite below 3.51.3 may damage the file if a commit starts the log anew during a checkpoint. So the
        write lock is held by one connection while another copies: nobody commits meanwhile. The log's
        file keeps its size and is overwritten by the commits that follow, which makes their syncs a third cheaper
        than those of a file that grows (0.13 against 0.21 ms, measured).
        """
        if self._owned is None or not self._is_long():
            return
        thread = self._thread_for(int(self._wal_frames - 2 * WAL_FRAMES_MAX) * 4096)
        self._wal_frames = 0.0
        try:
            await self._patience.until_done(self._checkpoint, thread=thread)
        except StoreError:
            # Nothing is lost: the log grows on, and the next time is soon enough.
            self._counts["checkpoints_failed"] += 1

    def _is_long(self) -> bool:
        if self._wal_frames < WAL_FRAMES_MAX / 16:
            return False
        if self._wal_frames >= WAL_FRAMES_MAX:
            return True
        # What others write is not in our estimate; the file, which is cut to this when it starts anew, shows it.
        try:
            return os.stat(self.path + "-wal").st_size > LOG_BYTES_KEPT
        except OSError:
            return False

    def _checkpoint(self) -> None:
        db, beside = self._open(self._writer), self._open(self._beside)
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                beside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                self._roll_back(db)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        self._counts["checkpoints"] += 1
        self._counts["syncs"] += (
            3  # the log, the database, and the header of the log that starts anew
        )

    async def save_snapshots(self, snapshots: Sequence[tuple[RunKey, Snapshot]]) -> None:
        if not snapshots:
            return
        rows = [(key, s.revision, s.state, s.hash) for key, s in snapshots]
        text = (
            "INSERT INTO snapshots (run, revision, state, hash) VALUES (?,?,?,?)"
            " ON CONFLICT (run) DO UPDATE SET revision=excluded.revision, state=excluded.state,"
            " hash=excluded.hash WHERE excluded.revision >= revision"
        )
        await self._write(lambda db: db.executemany(text, rows) and None)

    # -- reading

    async def find(self, id: str, generation: int | None = None) -> Row | None:
        if generation is None:
            text = f"SELECT {RUN} FROM runs WHERE id=? ORDER BY generation DESC LIMIT 1"
            return await self._one(row_of, text, (id,))
        return await self._one(
            row_of, f"SELECT {RUN} FROM runs WHERE id=? AND generation=?", (id, generation)
        )

    async def find_newest(self, ids: Sequence[str]) -> dict[str, Row]:
        text = (
            f"SELECT {RUN} FROM runs WHERE id IN (@)"
            " AND generation = (SELECT max(n.generation) FROM runs n WHERE n.id = runs.id)"
        )
        return {row.id: row for row in await self._many(row_of, text, ids)}

    async def find_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Row]:
        text = f"SELECT {RUN} FROM runs WHERE run IN (@)"
        return {row.key: row for row in await self._many(row_of, text, keys)}

    async def events(
        self, key: RunKey, *, after: int = 0, limit: int | None = None
    ) -> list[Stored]:
        text = f"SELECT {EVENT} FROM events WHERE run=? AND seq>? ORDER BY seq LIMIT ?"
        return await self._all(stored_of, text, (key, after, -1 if limit is None else limit))

    async def events_many(self, keys: Mapping[RunKey, int]) -> dict[RunKey, list[Stored]]:
        found: dict[RunKey, list[Stored]] = {key: [] for key in keys}
        text = (
            "WITH wanted (key, after) AS (VALUES @)"
            f" SELECT {EVENT} FROM wanted CROSS JOIN events INDEXED BY events_of_run"
            " ON run=key AND seq>after"
        )
        pairs = [value for pair in keys.items() for value in pair]
        for event in await self._many(stored_of, text, pairs, mark="(?,?)"):
            found[event.key].append(event)
        return found

    async def payloads(self, key: RunKey, seqs: Sequence[int]) -> dict[int, bytes]:
        text = "SELECT seq, payload FROM events WHERE run=? AND seq IN (@)"
        return dict(await self._many(_pair, text, seqs, key))

    async def blobs(self, key: RunKey, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        text = "SELECT digest, bytes FROM blobs WHERE run=? AND digest IN (@)"
        return dict(await self._many(_pair, text, digests, key))

    async def follow(self, *, after: Position, limit: int = 1000) -> list[Stored]:
        text = f"SELECT {EVENT} FROM events WHERE position>? ORDER BY position LIMIT ?"
        return await self._all(stored_of, text, (after, limit))

    async def head(self) -> Position:
        text = "SELECT coalesce(max(position), 0) FROM events"
        return (await self._all(_first, text))[0]

    async def snapshot(self, key: RunKey) -> Snapshot | None:
        return (await self.snapshots_many([key])).get(key)

    async def snapshots_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Snapshot]:
        text = "SELECT run, revision, state, hash FROM snapshots WHERE run IN (@)"
        found = await self._many(lambda row: (row[0], snapshot_of(row[1:])), text, keys)
        return dict(found)

    async def open_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        text = f"SELECT {RUN} FROM runs INDEXED BY runs_open WHERE open=1 AND run>? ORDER BY run LIMIT ?"
        return await self._all(row_of, text, (after, limit))

    async def closed_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        text = f"SELECT {RUN} FROM runs NOT INDEXED WHERE open=0 AND run>? ORDER BY run LIMIT ?"
        rows = await self._slowly(lambda db: db.execute(text, (after, limit)).fetchall())
        return [row_of(columns) for columns in rows]

    async def purge(
        self, keys: Sequence[RunKey], *, token: int | None = None, limit: int = 1000
    ) -> Purged:
        return await self._write(lambda db: purging.purge(db, keys, token=token, limit=limit))

    async def erase(
        self,
        key: RunKey,
        payloads: Mapping[int, bytes],
        *,
        blobs: Sequence[bytes] = (),
        attributes: bool = False,
    ) -> None:
        await self._write(
            lambda db: purging.erase(db, key, payloads, blobs=blobs, attributes=attributes)
        )
        if self._owned is not None:
            # Out of the log, too, as far as nobody reads there: the next commits overwrite it.
            async with self._writing:
                self._wal_frames = WAL_FRAMES_MAX
                await self._tidy()

    async def list(self, query: Query) -> list[Row]:
        rows = await self._slowly(lambda db: db.execute(*listing.page(db, query)).fetchall())
        return [row_of(columns) for columns in rows]

    async def count(self, query: Query) -> int:
        return await self._slowly(lambda db: db.execute(*listing.counting(db, query)).fetchone()[0])

    # -- definitions and global data

    async def publish(self, definition: DefinitionRow) -> DefinitionRow:
        return await self._write(lambda db: _publish(db, definition))

    async def definition(self, id: str, version: str | None = None) -> DefinitionRow | None:
        if version is None:
            text = f"SELECT {DEFINITION} FROM definitions WHERE id=? ORDER BY number DESC LIMIT 1"
            return await self._one(definition_of, text, (id,))
        text = f"SELECT {DEFINITION} FROM definitions WHERE id=? AND version=?"
        return await self._one(definition_of, text, (id, version))

    async def definitions(self) -> list[DefinitionRow]:
        text = f"SELECT {DEFINITION} FROM definitions ORDER BY id, number"
        return await self._all(definition_of, text)

    async def data_global(self) -> dict[str, bytes]:
        return dict(await self._all(_pair, "SELECT name, value FROM globals"))

    async def set_global(self, values: Mapping[str, bytes | None]) -> None:
        kept = [(name, value) for name, value in values.items() if value is not None]
        dropped = [(name,) for name, value in values.items() if value is None]

        def work(db: sqlite3.Connection) -> None:
            db.executemany("DELETE FROM globals WHERE name=?", dropped)
            db.executemany("INSERT OR REPLACE INTO globals (name, value) VALUES (?,?)", kept)

        await self._write(work)

    # -- records

    async def record(self, kind: str, id: str) -> Record | None:
        return await self._one(documents.record_of, documents.ONE, (kind, id))

    async def records(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Record]:
        return await self._all(documents.record_of, documents.BY_ID, (kind, after, limit))

    async def records_due(self, kind: str, *, until: float, limit: int = 1000) -> list[Record]:
        return await self._all(documents.record_of, documents.BY_DUE, (kind, until, limit))

    async def put(self, records: Sequence[Record]) -> list[Record | RevisionConflict]:
        if not records:
            return []
        async with self._writing:
            try:
                return await self._patience.until_done(
                    lambda: self._transact(lambda db: documents.write(db, records)),
                    thread=self._thread,
                )
            except Unsure as error:
                # As with an append: the answer was lost, not necessarily the commit.
                outcomes: list[Record | RevisionConflict] = error.result
                if await self._read(lambda db: documents.are_there(db, outcomes)):
                    return outcomes
                raise self._meaning(error.cause) from error.cause

    async def drop(self, kind: str, ids: Sequence[str]) -> None:
        await self._write(lambda db: documents.drop(db, kind, ids))

    async def drop_expired(self, *, until: float, limit: int = 1000) -> int:
        return await self._write(lambda db: db.execute(documents.EXPIRE, (until, limit)).rowcount)

    async def backup(self, path: str) -> None:
        self._open(self._reader)
        await asyncio.to_thread(backups.copy, self.path, path)

    # -- requests

    async def request(self, connection: Any, request: Request) -> Asked:
        self._open(self._reader)
        return requesting.ask(connection, request, self.path)

    async def requests(self, *, after: int = 0, limit: int = 100) -> list[Request]:
        return await self._all(requesting.request_of, requesting.WAITING, (after, limit))

    async def requested(self, id: str) -> bool:
        return bool((await self._all(_first, requesting.ASKED, (id,)))[0])

    async def drop_requests(self, numbers: Sequence[int]) -> None:
        rows = [(number,) for number in numbers]
        await self._write(lambda db: db.executemany(requesting.DROP, rows) and None)

    # -- ownership

    async def claim(self, node: str, address: str) -> Owner | None:
        self._open(self._reader)
        if self._owned is not None:
            return None
        locked = self._lock.take()
        try:
            # Looked at first: a standby asks often, and must not write for it.
            if await self._read(lambda db: ownership.free(db, locked=locked, now=self._clock())):
                self._owned = await self._write(
                    lambda db: ownership.claim(db, node, address, locked=locked, now=self._clock())
                )
        finally:
            if self._owned is None:
                self._lock.drop()
        return self._owned

    async def renew(self, owner: Owner) -> Owner:
        locked = self._lock.held or self._lock.take()
        try:
            return await self._write(
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
        return await self._read(ownership.shown)

    async def release(self, owner: Owner) -> None:
        try:
            await self._write(lambda db: ownership.release(db, owner))
        finally:
            self._fenced(owner.token)

    def stats(self) -> dict[str, int]:
        return {**self._counts, "busy": self._patience.busy}


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
