"""The connections of this process to one SQLite file: one to write with, one to read with, and the log beside the file.

Writes go one at a time, by default on the loop's own thread: a commit takes less than a hand-over to a thread that starves
beside a busy loop (decision: DEPENDENCIES 3). Reads have a connection of their own and so never see what is not yet on disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from penstock.adapters.sqlite.database import (
    LOG_BYTES_KEPT,
    SQLITE_OLDEST,
    Locked,
    check,
    configure,
    connect,
    migrate,
    translated,
)
from penstock.adapters.sqlite.rows import (
    chunks,
)
from penstock.adapters.sqlite.waiting import Aside, Patience
from penstock.errors import StoreError

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


class Connections:
    def __init__(
        self,
        path: str,
        *,
        threaded: bool,
        busy_seconds_max: float,
        kind: Callable[[], type[sqlite3.Connection]],
    ) -> None:
        self.path = path
        self._threaded, self._kind = threaded, kind
        self.patience = Patience(path, seconds_max=busy_seconds_max)
        self.writing = asyncio.Lock()
        self.writer: sqlite3.Connection | None = None
        self.reader: sqlite3.Connection | None = None
        self._beside: sqlite3.Connection | None = None
        self._aside: Aside | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._apart: ThreadPoolExecutor | None = None
        """For what is large, once there is some."""
        self._process = 0
        self.wal_frames = 0.0
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)

    async def open(self) -> None:
        if self.writer is not None:
            return
        self._check_place()
        async with self.writing:
            if self.writer is None:
                await self.patience.until_done(self._connect)

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
                made.append(connect(self.path, kind=self._kind()))
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
        self.writer, self._beside, self.reader = writer, beside, reader
        self._process = os.getpid()

    def disconnect(self) -> None:
        for thread in (self._thread, self._apart):
            if thread is not None:
                thread.shutdown()
        if self._aside is not None:
            self._aside.close()
            # The last one to close copies the log back, so let it be the writer.
        for db in (self.reader, self._beside, self.writer):
            if db is not None:
                db.close()
        self.writer = self._beside = self.reader = self._thread = self._apart = self._aside = None

    def live(self, db: sqlite3.Connection | None) -> sqlite3.Connection:
        if db is None:
            raise StoreError(f"{self.path} is not open", hint="await store.open() first")
        if os.getpid() != self._process:
            raise StoreError(
                f"{self.path} was opened by process {self._process}, of which this one is a fork",
                hint="open a store of its own in each process",
            )
        return db

    # -- one way to write, one way to read

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """One transaction, on disk on return."""
        async with self.writing:
            try:
                return await self.patience.until_done(
                    lambda: self.transact(work), thread=self._thread
                )
            except Unsure as error:
                raise self.meaning(error.cause) from error.cause

    def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        db = self.live(self.writer)
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
        self.counts["commits"] += 1
        self.counts["syncs"] += 1
        self.wal_frames += 3 + (db.total_changes - before) / 4
        return result

    def _roll_back(self, db: sqlite3.Connection) -> None:
        # Where even that fails the next transaction begins with another try.
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")

    def meaning(self, error: sqlite3.Error) -> Exception:
        meaning = translated(error, self.path)
        return StoreError(f"{self.path}: {error}") if isinstance(meaning, Locked) else meaning

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def attempt() -> T:
            try:
                return work(self.live(self.reader))
            except sqlite3.Error as error:
                raise translated(error, self.path) from error

        return await self.patience.until_done(attempt)

    async def slowly(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """For listings: a filter that no index answers may read a million rows."""
        self.live(self.reader)
        if self._aside is None:
            await self.patience.until_done(self._connect_aside)
        assert self._aside is not None
        return await self._aside.read(work)

    def _connect_aside(self) -> None:
        db = connect(self.path, kind=self._kind())
        try:
            configure(db, self.path)
        except BaseException:
            db.close()
            raise
        self._aside = Aside(db, self.path, self.patience)

    async def all(
        self, make: Callable[[tuple[Any, ...]], T], text: str, values: Sequence[Any] = ()
    ) -> list[T]:
        rows = await self.read(lambda db: db.execute(text, values).fetchall())
        return [make(columns) for columns in rows]

    async def one(
        self, make: Callable[[tuple[Any, ...]], T], text: str, values: Sequence[Any] = ()
    ) -> T | None:
        columns = await self.read(lambda db: db.execute(text, values).fetchone())
        return None if columns is None else make(columns)

    async def many(
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
            found += await self.all(make, text.replace("@", marks), (*first, *part))
        return found

    # -- what is large, and the log

    def thread_for(self, size: int) -> ThreadPoolExecutor | None:
        """Where so many bytes are written: on the loop's thread only what takes no longer than a hand-over or two."""
        if self._thread is not None or size < APART_BYTES:
            return self._thread
        if self._apart is None:
            self._apart = ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite-large")
        return self._apart

    async def tidy(self, *, now: bool = False) -> None:
        """Copy the log back into the database once it is long: by the owner alone, between two commits.

        Versions of SQLite below 3.51.3 may damage the file if a commit starts the log anew during a checkpoint. So the
        write lock is held by one connection while another copies: nobody commits meanwhile. The log's
        file keeps its size and is overwritten by the commits that follow, which makes their syncs a third cheaper
        than those of a file that grows (0.13 against 0.21 ms, measured).
        """
        if not now and not self._is_long():
            return
        thread = self.thread_for(int(self.wal_frames - 2 * WAL_FRAMES_MAX) * 4096)
        self.wal_frames = 0.0
        try:
            await self.patience.until_done(self._checkpoint, thread=thread)
        except StoreError:
            # Nothing is lost: the log grows on, and the next time is soon enough.
            self.counts["checkpoints_failed"] += 1

    def _is_long(self) -> bool:
        if self.wal_frames < WAL_FRAMES_MAX / 16:
            return False
        if self.wal_frames >= WAL_FRAMES_MAX:
            return True
        # What others write is not in our estimate; the file, which is cut to this when it starts anew, shows it.
        try:
            return os.stat(self.path + "-wal").st_size > LOG_BYTES_KEPT
        except OSError:
            return False

    def _checkpoint(self) -> None:
        db, beside = self.live(self.writer), self.live(self._beside)
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                beside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                self._roll_back(db)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        self.counts["checkpoints"] += 1
        self.counts["syncs"] += (
            3  # the log, the database, and the header of the log that starts anew
        )
