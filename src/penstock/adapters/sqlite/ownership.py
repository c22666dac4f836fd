"""Who owns a database: a POSIX lock on the file `<database>-owner` beside it, and a row with its token and lease.

The kernel drops the lock with its process, however that ends, and forked children do not inherit it. But it
belongs to the process, not to the descriptor: closing ANY descriptor of the file would drop it. So the file
is opened here and nowhere else, and one table for the whole process says which ones are held.

A process that is stopped keeps its lock: there the lease decides (SPEC 4.8). Who takes over from it owns without the lock,
which `meta` says, until it gets that too; meanwhile a free lock gives nobody the right to claim.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import threading

from msgspec.structs import astuple, replace

from penstock.errors import Fenced, StoreError
from penstock.ports.store import Owner

_held: dict[tuple[int, int], int] = {}
"""Descriptors of the locks that this process holds, by device and inode."""
_guard = threading.Lock()


def _after_fork() -> None:
    # The child has the descriptors but not the locks; closing them there harms nobody.
    global _guard
    _guard = threading.Lock()
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)


class Lock:
    """The lock of one database; at most one in the world is held."""

    def __init__(self, database: str) -> None:
        self.path = database + "-owner"
        self._key: tuple[int, int] | None = None

    @property
    def held(self) -> bool:
        return self._key is not None and self._key in _held

    def take(self) -> bool:
        """True if it is ours now; False while another process, or another store in this one, has it."""
        with _guard:
            try:
                key = _identity(os.stat(self.path))
            except FileNotFoundError:
                key = None
            if key in _held:
                return False
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise self._failed(error) from error
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    return False
                raise self._failed(error) from error
            self._key = _identity(os.fstat(descriptor))
            _held[self._key] = descriptor
            return True

    def drop(self) -> None:
        with _guard:
            if self._key is not None and (descriptor := _held.pop(self._key, None)) is not None:
                os.close(descriptor)
            self._key = None

    def _failed(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self.path} cannot be locked: {error.strerror}",
            hint="the database needs a local disk with POSIX locks, in a folder that we may write to",
        )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# The row: for showing, for the lease, and for refusing what an older owner still wants to write.

LEASE_SECONDS = 6.0
UNLOCKED = "owner-without-lock"
"""In `meta`: the token of an owner that has not got the lock."""
COLUMNS = "node, token, address, since, renewed_at, pid"


def shown(db: sqlite3.Connection) -> Owner | None:
    columns = db.execute(f"SELECT {COLUMNS} FROM owner").fetchone()
    return None if columns is None else Owner(*columns)


def free(db: sqlite3.Connection, *, locked: bool, now: float) -> bool:
    """Whether one who holds the lock, or does not, may be the next owner."""
    before = shown(db)
    if before is None or before.pid == 0:
        return locked
    if abs(now - before.renewed_at) > LEASE_SECONDS:
        return True
    return locked and not _unlocked(db, before.token)


def _unlocked(db: sqlite3.Connection, token: int) -> bool:
    found = db.execute("SELECT value FROM meta WHERE name=?", (UNLOCKED,)).fetchone()
    return found is not None and found[0] == str(token)


def claim(
    db: sqlite3.Connection, node: str, address: str, *, locked: bool, now: float
) -> Owner | None:
    """Write the next token, if it is still free."""
    if not free(db, locked=locked, now=now):
        return None
    before = shown(db)
    token = 1 if before is None else before.token + 1
    if not locked:
        db.execute("INSERT OR REPLACE INTO meta VALUES (?,?)", (UNLOCKED, str(token)))
    owner = Owner(node, token, address, since=now, renewed_at=now, pid=os.getpid())
    text = f"INSERT OR REPLACE INTO owner (one, {COLUMNS}) VALUES (1,?,?,?,?,?,?)"
    db.execute(text, astuple(owner)[:6])
    return replace(owner, clean=before is None or before.pid == 0)


def renew(db: sqlite3.Connection, owner: Owner, *, locked: bool, now: float) -> Owner:
    text = "UPDATE owner SET renewed_at=?, address=? WHERE token=?"
    if db.execute(text, (now, owner.address, owner.token)).rowcount == 0:
        newest = shown(db)
        raise Fenced(token=owner.token, newest=0 if newest is None else newest.token)
    if locked and _unlocked(db, owner.token):
        db.execute("DELETE FROM meta WHERE name=?", (UNLOCKED,))
    return replace(owner, renewed_at=now, clean=False)


def release(db: sqlite3.Connection, owner: Owner) -> None:
    """The row stays, as the next token counts from it; but nobody is to be told anything there."""
    db.execute("UPDATE owner SET address='', pid=0 WHERE token=?", (owner.token,))
