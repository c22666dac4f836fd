"""Connections to a SQLite file: how they are set up, what their errors mean, how the schema grows.

Nothing here waits: a busy database raises `Locked`, and who called decides when to try again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.errors import StoreCorrupt, StoreError, StoreFull, StoreTooNew

SQLITE_OLDEST = (3, 35, 0)
"""RETURNING and upserts as used here."""
CHECKPOINT_SAFE = (3, 51, 3)
"""From here on a checkpoint beside a writer is safe; below it was reported to damage files, rarely."""
FRAMES_UNTIL_CHECKPOINT = 16_000
"""Where it is safe: how many pages a process that does not own the database lets the log grow to."""
LOG_BYTES_KEPT = 64 * 1024 * 1024
"""A log that had to grow beyond this (somebody read for long) is cut when it starts anew."""
CACHE_KIB = 32 * 1024
"""Of the writer, whose index of ids is touched at random; others live well with a quarter."""
STATEMENTS_CACHED = 400


class Locked(Exception):
    """The database is busy: nothing was changed, and the same may be tried again."""


def connect(
    path: str,
    *,
    kind: type[sqlite3.Connection] = sqlite3.Connection,
    cached: int = STATEMENTS_CACHED,
) -> sqlite3.Connection:
    """A connection that never waits and starts no transaction by itself."""
    try:
        return sqlite3.connect(
            path,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,  # one thread at a time, which is the store's business
            cached_statements=cached,
            factory=kind,
        )
    except sqlite3.Error as error:
        raise translated(error, path) from error


def configure(db: sqlite3.Connection, path: str, *, writing: bool = False) -> None:
    """A write-ahead log, every commit synced, and nobody checkpoints by the way where that is not safe."""
    safe = sqlite3.sqlite_version_info >= CHECKPOINT_SAFE
    try:
        db.execute(f"PRAGMA wal_autocheckpoint={FRAMES_UNTIL_CHECKPOINT if safe else 0}")
        mode = db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(
                f"{path}: SQLite cannot keep a write-ahead log here (its journal mode is {mode})",
                hint="put the database on a local disk that the process may write to",
            )
        db.execute("PRAGMA synchronous=FULL")
        db.execute(f"PRAGMA journal_size_limit={LOG_BYTES_KEPT}")
        db.execute(f"PRAGMA cache_size=-{CACHE_KIB if writing else CACHE_KIB // 4}")
        db.execute("PRAGMA temp_store=MEMORY")
        # Some builds overwrite whatever is deleted with zeros; who erases asks for it explicitly.
        db.execute("PRAGMA secure_delete=OFF")
        if not writing:
            db.execute("PRAGMA query_only=ON")
    except sqlite3.Error as error:
        raise translated(error, path) from error


def translated(error: sqlite3.Error, path: str) -> Exception:
    """What an error of SQLite means to us: `Locked`, or a kind of StoreError that says what to do."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    match code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return Locked(str(error))
        case sqlite3.SQLITE_FULL:
            return _full(path)
        case sqlite3.SQLITE_IOERR if _space_left(path) < 64 * 1024:
            return _full(path)
        case sqlite3.SQLITE_IOERR:
            name = getattr(error, "sqlite_errorname", "SQLITE_IOERR")
            return StoreError(
                f"{path}: the disk reports an error ({name}); nothing was written",
                hint="look at the disk and at the limits of the process; the store goes on once it works",
            )
        case sqlite3.SQLITE_NOTADB:
            return StoreCorrupt(
                f"{path} is not a SQLite database",
                hint="give the path of a Penstock database, or of a file that does not exist yet",
            )
        case sqlite3.SQLITE_CORRUPT:
            return StoreCorrupt(
                f"{path} is damaged: {error}",
                hint="keep the file and its -wal as they are and restore a backup",
            )
        case sqlite3.SQLITE_CANTOPEN:
            return StoreError(
                f"{path} cannot be opened", hint="does the folder exist, and may we write to it?"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return StoreError(f"{path} may not be written to", hint="check its owner and mode")
        case _:
            return StoreError(f"{path}: {error}")


def _full(path: str) -> StoreFull:
    return StoreFull(
        f"the disk of {path} is full; nothing was written, nothing was lost",
        hint="free some space; the store goes on by itself",
    )


def _space_left(path: str) -> int:
    try:
        disk = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return 1 << 62
    return disk.f_bavail * disk.f_frsize


@cache
def migrations() -> dict[int, str]:
    """The schema's steps by number, as shipped in `migrations/`."""
    steps: dict[int, str] = {}
    for file in files("penstock.adapters.sqlite").joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            steps[int(file.name.split("_", 1)[0])] = file.read_text(encoding="utf-8")
    return dict(sorted(steps.items()))


def check(db: sqlite3.Connection, path: str) -> bool:
    """Whether the schema is the newest; refuses what is not ours or too new before anything is touched."""
    try:
        db.execute("BEGIN")
        try:
            return _version(db, path) == max(migrations())
        finally:
            db.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise translated(error, path) from error


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Bring the schema to the newest version; whole, or not at all.

    Under the write lock, so that of several processes on a fresh file one does it and the others see it
    done.
    """
    steps = migrations()
    newest = max(steps)
    try:
        db.execute("BEGIN IMMEDIATE")
        try:
            for number in range(_version(db, path) + 1, newest + 1):
                for statement in _statements(steps[number]):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version={newest}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise translated(error, path) from error


def _version(db: sqlite3.Connection, path: str) -> int:
    newest = max(migrations())
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    ours = {"meta", "events", "runs", "owner"}
    foreign = tables if version == 0 else not ours <= tables
    if foreign:
        raise StoreError(
            f"{path} is a database of another application",
            hint="give Penstock a file of its own",
        )
    if version > newest:
        raise StoreTooNew(
            f"{path} has schema version {version}; this Penstock knows {newest} and touches nothing",
            hint="run the newer Penstock that wrote it, or upgrade this one",
        )
    return version


def _statements(script: str) -> Iterator[str]:
    """One statement at a time: `executescript` would commit what is open before it begins."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def facts(db: sqlite3.Connection) -> dict[str, Any]:
    """What `describe` and a bug report want to know of a connection."""
    return {
        name: db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in (
            "journal_mode",
            "synchronous",
            "page_size",
            "wal_autocheckpoint",
            "user_version",
        )
    }
