"""A copy of a database while it is in use, and back (SPEC 18)."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from penstock.adapters.sqlite.database import check, connect, translated
from penstock.errors import FileUnwritable, Rejected, StoreCorrupt, StoreError

ANOTHER = "take another backup; the database that it was made of is not touched"


def copy(source: str, target: str) -> None:
    """Copy one moment of a database into a new file, whole or not at all; blocks, so it wants a thread.

    One step of SQLite's backup: a reader's view of the database, so that nobody waits for it, and the copy does not
    begin anew with every commit.
    """
    place = Path(target)
    try:
        there = place.exists()
    except OSError as error:
        raise _unwritable(target, error) from error
    if there:
        raise Rejected("file-exists", f"{target} exists already", hint="choose another name")
    if not place.parent.is_dir():
        raise FileUnwritable(
            f"the folder {place.parent} does not exist", hint=f"mkdir -p {place.parent}"
        )
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        _copy(source, str(part))
        os.rename(part, place)
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except sqlite3.Error as error:
        raise translated(error, source) from error
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        part.unlink(missing_ok=True)


def _unwritable(target: str, error: OSError) -> FileUnwritable:
    return FileUnwritable(
        f"{target[-500:]!a} cannot be written: {error.strerror}",
        hint="choose a place that can be written to, with room for a copy of the database",
    )


def _copy(source: str, target: str) -> None:
    here, there = connect(source), sqlite3.connect(target, isolation_level=None)
    try:
        check(here, source)  # ours, and not newer than we know
        if not here.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreCorrupt(f"{source} is empty: it is no database of Penstock", hint=ANOTHER)
        here.backup(there)
        there.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
        (fine,) = there.execute("PRAGMA quick_check(1)").fetchone()
        if fine != "ok":
            raise StoreCorrupt(f"the copy of {source} is damaged: {fine}", hint=ANOTHER)
    finally:
        there.close()
        here.close()
    with open(target, "rb") as file:
        os.fsync(file.fileno())


def restore(backup: str, target: str) -> None:
    """Make a backup the database of that name, which must not exist. Attempts that were under way are recorded as lost."""
    if not Path(backup).is_file():
        raise StoreError(
            f"there is no file {backup}", hint="give the file that `penstock backup` made"
        )
    copy(backup, target)
