"""A disk that forgets: what SQLite wrote, truncated and synced, recorded, and the files as a power loss may leave them.

The engine's own `SqliteStore` is recorded, with its own statements and pragmas. The standard library's SQLite takes no VFS
written in Python, so the store is given connections of another make (`connection_class`): apsw's, whose SQLite goes
through the VFS below and then to real files. Which pages are written where, and what is synced before what, is decided
by SQLite's pager and its write-ahead log, whose protocol is the same in both libraries; afterwards the files are
opened by the standard library's SQLite, as after a real power loss. That is closer to the truth than copies of files
taken now and then, and needs neither a file system of our own, nor a compiler, nor privileges.

What a power loss leaves: all that was synced; of what was written since, any subset, also in another order, also single
sectors of a page (SQLite's own assumption: a sector that was not written to is not harmed). Names of files are durable
once their directory is synced, which SQLite does with the first sync of a log or journal that it created. The `-shm`
file is shared memory, never synced, and is not there afterwards.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
Op = tuple[Any, ...]
"""(what, file, …): `create`, `write`, `truncate`, `sync`, `names` (the directory is synced), `delete`; or a `note`."""


class Recorder:
    """Everything in the order in which it happened."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.names: dict[str, int] = {}
        self._count = 0

    def note(self, *words: Any) -> None:
        self.ops.append(("note", *words))

    def opened(self, name: str) -> tuple[int, bool]:
        """The file's number, and whether it is new."""
        if name in self.names:
            return self.names[name], False
        self._count += 1
        self.names[name] = self._count
        self.ops.append(("create", self._count, name))
        return self._count, True

    def deleted(self, name: str, *, synced: bool) -> None:
        if self.names.pop(name, None) is not None:
            self.ops.append(("delete", 0, name))
            if synced:
                self.ops.append(("names", 0))


class Vfs(apsw.VFS):
    NAME = "penstock-recorder"

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        super().__init__(self.NAME, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return File(self._recorder, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._recorder.deleted(Path(filename).name, synced=syncdir)


class File(apsw.VFSFile):
    def __init__(self, recorder: Recorder, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._recorder = recorder
        self._number, new = recorder.opened(Path(path).name) if path else (0, False)
        logs = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
        self._names_owed = new and bool(flags[0] & logs)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._recorder.ops.append(("write", self._number, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._recorder.ops.append(("truncate", self._number, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._recorder.ops.append(("sync", self._number))
        if self._names_owed:
            self._names_owed = False
            self._recorder.ops.append(("names", 0))


class Cursor:
    """What the store uses of the standard library's cursors."""

    def __init__(self, cursor: apsw.Cursor, rowcount: int) -> None:
        self._cursor, self.rowcount = cursor, rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        with _Translated():
            return self._cursor.fetchone()

    def fetchall(self) -> list[tuple[Any, ...]]:
        with _Translated():
            return self._cursor.fetchall()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        with _Translated():
            yield from self._cursor


class Connection:
    """What the store uses of the standard library's connections, made of apsw's."""

    def __init__(self, path: str, **_: Any) -> None:
        with _Translated():
            self._db = apsw.Connection(path, vfs=Vfs.NAME)

    def execute(self, text: str, values: Sequence[Any] = ()) -> Cursor:
        before = self._db.total_changes()
        with _Translated():
            cursor = self._db.execute(text, tuple(values))
        return Cursor(cursor, self._db.total_changes() - before)

    def executemany(self, text: str, values: Iterable[Sequence[Any]]) -> Cursor:
        before = self._db.total_changes()
        with _Translated():
            cursor = self._db.executemany(text, [tuple(each) for each in values])
        return Cursor(cursor, self._db.total_changes() - before)

    def interrupt(self) -> None:
        self._db.interrupt()

    @property
    def total_changes(self) -> int:
        return self._db.total_changes()

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def close(self) -> None:
        self._db.close()


class _Translated:
    """apsw's errors as those of the standard library."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, apsw.Error):
            constraint = isinstance(error, apsw.ConstraintError)
            same = (
                sqlite3.IntegrityError(str(error))
                if constraint
                else sqlite3.OperationalError(str(error))
            )
            same.sqlite_errorcode = getattr(error, "extendedresult", getattr(error, "result", 0))
            raise same from error


class Platter:
    """Files as far as they are certain, and what is still on its way; moves forward through the operations."""

    def __init__(self, ops: Sequence[Op], *, lying: bool = False) -> None:
        self._ops, self._place, self._lying = ops, 0, lying
        self._files: dict[int, bytearray] = {}
        self._pending: dict[int, list[Op]] = {}
        self._names: dict[str, int] = {}
        self._names_pending: list[Op] = []

    def forward(self, cut: int) -> None:
        """Everything before operation `cut` has been asked for. A lying disk takes no sync seriously."""
        for op in self._ops[self._place : cut]:
            match op[0]:
                case "create":
                    self._files[op[1]] = bytearray()
                    self._pending[op[1]] = []
                    self._names_pending.append(op)
                case "delete":
                    self._names_pending.append(op)
                case "names":
                    _name(self._names, self._names_pending)
                    self._names_pending = []
                case "write" | "truncate" if op[1]:
                    self._pending[op[1]].append(op)
                case "sync" if op[1] and not self._lying:
                    for each in self._pending[op[1]]:
                        _apply(self._files[op[1]], each)
                    self._pending[op[1]] = []
                case _:
                    pass
        self._place = max(self._place, cut)

    def leave(self, folder: Path, dice: random.Random) -> None:
        """Write the files as a power loss now may leave them."""
        names = dict(self._names)
        _name(names, self._names_pending[: dice.randint(0, len(self._names_pending))])
        # Nothing of what was on its way, anything of it, or almost all.
        share = dice.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        for name, number in names.items():
            image = bytearray(self._files[number])
            for op in self._pending[number]:
                for part in _torn(op, dice) if dice.random() < 0.3 else (op,):
                    if dice.random() < share:
                        _apply(image, part)
            (folder / name).write_bytes(image)


def _name(names: dict[str, int], ops: Sequence[Op]) -> None:
    for what, number, name in ops:
        if what == "create":
            names[name] = number
        else:
            names.pop(name, None)


def _apply(image: bytearray, op: Op) -> None:
    if op[0] == "truncate":
        size = op[2]
        del image[size:]
        image.extend(bytes(size - len(image)))
        return
    _, _, offset, data = op
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


def _torn(op: Op, dice: random.Random) -> Iterator[Op]:
    """The sectors of a write, in any order."""
    if op[0] != "write":
        yield op
        return
    what, number, offset, data = op
    parts: list[Op] = []
    place = 0
    while place < len(data):
        size = SECTOR - (offset + place) % SECTOR
        parts.append((what, number, offset + place, data[place : place + size]))
        place += size
    dice.shuffle(parts)
    yield from parts
