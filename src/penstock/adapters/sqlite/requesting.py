"""Requests: runs asked for through the application's own connection, inside its transaction (SPEC 4.3)."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from msgspec.structs import astuple

from penstock.adapters.sqlite.database import CHECKPOINT_SAFE, Locked, translated
from penstock.errors import Rejected, StoreLocked
from penstock.ports.store import Asked, Request

REQUEST = "id, definition, version, input, facts, at, number"
ADD = "INSERT INTO requests (id, definition, version, input, facts, at) VALUES (?,?,?,?,?,?)"
WAITING = f"SELECT {REQUEST} FROM requests WHERE number > ? ORDER BY number LIMIT ?"
ASKED = "SELECT EXISTS (SELECT 1 FROM requests WHERE id = ?)"
DROP = "DELETE FROM requests WHERE number = ?"


def request_of(columns: tuple[Any, ...]) -> Request:
    return Request(*columns)


def ask(connection: Any, request: Request, path: str) -> Asked:
    """Nothing is begun, ended or waited for here but what the connection's own settings say."""
    if not isinstance(connection, sqlite3.Connection):
        raise unfit(f"{type(connection).__name__} is not a connection of SQLite", path)
    try:
        cursor = connection.cursor()
        cursor.row_factory = None
        files = {name: file for _, name, file in cursor.execute("PRAGMA database_list").fetchall()}
    except sqlite3.Error as error:  # closed, or of another thread
        raise unfit(f"the connection cannot be used here: {error}", path) from error
    main = files.get("main") or ""
    if not main or not _same(main, path):
        raise unfit(f"the connection is to {main or 'a database in memory'}", path)
    if sqlite3.sqlite_version_info < CHECKPOINT_SAFE:
        # Before that version a checkpoint beside other writers may damage the file: the owner alone does it.
        cursor.execute("PRAGMA wal_autocheckpoint=0")
    try:
        cursor.execute(ADD, astuple(request)[:-1])
    except sqlite3.Error as error:
        meaning = translated(error, path)
        if isinstance(meaning, Locked):
            meaning = StoreLocked(
                f"{path} is locked by another transaction; nothing was written",
                hint="roll back and try again; begin with BEGIN IMMEDIATE, and give the connection a `timeout`",
            )
        raise meaning from error
    number = cursor.lastrowid or 0

    def is_open() -> bool:
        try:
            return connection.in_transaction
        except sqlite3.Error:  # closed: the transaction is over
            return False

    return Asked(number, is_open)


def unfit(problem: str, path: str) -> Rejected:
    return Rejected(
        "connection-unfit",
        f"{problem}; the run was not asked for",
        hint=f"give the sqlite3 connection to {path} that your transaction is open on",
    )


def _same(file: str, path: str) -> bool:
    try:
        return os.path.samefile(file, path)
    except OSError:
        return False
