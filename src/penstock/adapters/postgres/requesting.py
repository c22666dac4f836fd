"""Requests: runs asked for through the application's own connection, inside its transaction (SPEC 4.3).

The application brings its driver: asyncpg, or psycopg 3, sync or async, which is never imported here. The owner is told by
a NOTIFY inside the same transaction, delivered at its commit.
"""

from __future__ import annotations

import re
import sys
from inspect import isawaitable
from typing import Any, Protocol

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from msgspec.structs import astuple

from penstock.adapters.postgres.appending import text_problem
from penstock.adapters.postgres.database import Place
from penstock.errors import Rejected, StoreError
from penstock.ports.hints import REQUESTS
from penstock.ports.store import Asked, Request

REQUEST = "id, definition, version, input, facts, at, number"
WAITING = f"SELECT {REQUEST} FROM requests WHERE number > $1 ORDER BY number LIMIT $2"
ASKED = "SELECT EXISTS (SELECT FROM requests WHERE id = $1)"
DROP = "DELETE FROM requests WHERE number = ANY($1::bigint[])"
IS_HERE = "SELECT to_regclass($1::text) IS NOT NULL"
ADD = (
    "WITH made AS (INSERT INTO {schema}.requests (id, definition, version, input, facts, at)"
    " SELECT $1::text, $2::text, $3::text, $4::bytea, $5::bytea, $6::double precision"
    " WHERE EXISTS (SELECT FROM {schema}.meta WHERE name = 'store' AND value = $7::text)"
    " RETURNING number) SELECT number, pg_notify($8::text, $9::text) FROM made"
)


class Driver(Protocol):
    """An application's connection, whichever driver it is of."""

    async def row(self, text: str, *values: Any) -> Any: ...
    def is_open(self) -> bool: ...


class Asyncpg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def row(self, text: str, *values: Any) -> Any:
        return await self._connection.fetchrow(text, *values)

    def is_open(self) -> bool:
        try:
            return not self._connection.is_closed() and self._connection.is_in_transaction()
        except asyncpg.InterfaceError:  # given back to its pool: the transaction is over
            return False


class Psycopg:
    def __init__(self, connection: Any, tuples: Any) -> None:
        self._connection, self._tuples = connection, tuples

    async def row(self, text: str, *values: Any) -> Any:
        cursor = self._connection.cursor(row_factory=self._tuples)
        await _got(cursor.execute(re.sub(r"\$\d+", "%s", text), values))
        return await _got(cursor.fetchone())

    def is_open(self) -> bool:
        return not self._connection.closed and self._connection.info.transaction_status != 0


async def _got(value: Any) -> Any:
    return await value if isawaitable(value) else value


def request_of(columns: Any) -> Request:
    return Request(*columns)


async def ask(connection: Any, request: Request, place: Place, identity: str) -> Asked:
    driver = _driver(connection, place)
    for text in (request.id, request.definition, request.version):
        if problem := text_problem(text):
            raise Rejected("text-invalid", f"the request for run {request.id!a}: {problem}")
    schema = f'"{place.schema}"'
    values = *astuple(request)[:-1], identity, f"{place.schema}.hints", REQUESTS
    try:
        there = await driver.row(IS_HERE, f"{schema}.requests")
        made = there[0] and await driver.row(ADD.format(schema=schema), *values)
    except Exception as error:
        raise _meaning(error, place) from error
    if not made:
        raise _unfit("the connection is to another database", place)
    return Asked(made[0], driver.is_open)


def _driver(connection: Any, place: Place) -> Driver:
    pool: Any = asyncpg.pool
    if isinstance(connection, asyncpg.Connection | pool.PoolConnectionProxy):
        return Asyncpg(connection)
    psycopg: Any = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return Psycopg(connection, psycopg.rows.tuple_row)
    raise _unfit(f"{type(connection).__name__} is not a connection of asyncpg or psycopg", place)


def _meaning(error: Exception, place: Place) -> Exception:
    code: str = getattr(error, "sqlstate", None) or ""
    match code:
        case "25P02":
            return _unfit(
                "the connection's transaction has failed, and takes no more statements", place
            )
        case "25006":
            return _unfit("the connection's transaction is read-only", place)
        case "42501":
            hint = (
                f"GRANT USAGE ON SCHEMA {place.schema}, SELECT ON {place.schema}.meta and INSERT, SELECT ON"
                f" {place.schema}.requests to the application's user"
            )
            return Rejected("connection-unfit", f"the run was not asked for: {error}", hint=hint)
        case "":
            return _unfit(f"the connection cannot be used: {error}", place)
        case _:
            return StoreError(f"{place.name}: {error}")


def _unfit(problem: str, place: Place) -> Rejected:
    return Rejected(
        "connection-unfit",
        f"{problem}; the run was not asked for",
        hint=f"give the connection to {place.name} that your transaction is open on",
    )
