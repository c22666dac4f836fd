"""Connections to a PostgreSQL server: how they are made and made anew, what their errors mean, how the schema grows.

The rest of the package sees `Connection`, what we use of asyncpg, and these errors: `Away` (the server or the
connection is gone, whatever was asked may or may not have been done; may be tried again), `Clash` (nothing was done, try
again), and the kinds of StoreError.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import Any, Protocol, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from penstock.errors import (
    Rejected,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreTooNew,
)

SERVER_OLDEST = 13
CONNECT_SECONDS_MAX = 5
STATEMENT_SECONDS_MAX = 30
"""A server that has not answered by then is taken to be away."""
LOCK_SECONDS_MAX = 10
"""The server gives up waiting for another's transaction after so long."""
IDLE_SECONDS_MAX = 5
"""A process that is stopped in the middle of a transaction loses it after so long: the next owner waits for that."""
SPACE = 1885302640
"""The first half of our advisory locks; the second is the schema's hash. Appends take this one, and these:"""
OWNER_LOCK, MIGRATION_LOCK, DEFINITIONS_LOCK = SPACE + 1, SPACE + 2, SPACE + 3


class Connection(Protocol):
    """What we use of asyncpg's connection."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...
    async def fetchrow(self, query: str, *args: Any) -> Any: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    async def execute(self, query: str, *args: Any) -> str: ...
    async def executemany(self, command: str, args: Sequence[Any]) -> None: ...
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    def get_server_pid(self) -> int: ...
    def get_server_version(self) -> Any: ...
    def is_closed(self) -> bool: ...
    async def close(self) -> None: ...
    def terminate(self) -> None: ...


class Away(Exception):
    """The server, or our connection to it, is gone; what was asked last may have been done."""


class Clash(Exception):
    """Nothing was done, because of what others did at the same time; the same may be tried again."""


class Place:
    """Which database, and which schema in it: what a URL says.

    `?schema=NAME` (default `penstock`) and `?unsafe=1` (a server that may lose commits is taken) are ours; all else is
    the driver's.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        self.schema = options.pop("schema", "penstock")
        self.unsafe = options.pop("unsafe", "0") not in ("0", "", "false", "no")
        self.dsn = urlunsplit(parts._replace(scheme="postgresql", query=urlencode(options)))
        self.name = f"{parts.hostname or 'localhost'}:{_port(url) or 5432}{parts.path or '/'}"
        """For people: without user and password."""
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", self.schema):
            raise Rejected(
                "store-url",
                f"`{self.schema}` is no name for a schema",
                hint="lower-case letters, digits and _, as in ?schema=penstock",
            )


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError as error:
        raise Rejected(
            "store-url",
            "the port in the store's URL is no number from 1 to 65535",
            hint="write postgresql://user:password@host:5432/database",
        ) from error


async def connect(place: Place, *, seconds_max: int = STATEMENT_SECONDS_MAX) -> Connection:
    """A connection that sees our schema, and does not wait for ever."""
    settings = {
        "application_name": "penstock",
        "search_path": place.schema,
        "default_transaction_isolation": "read committed",
        "lock_timeout": f"{LOCK_SECONDS_MAX}s",
        "idle_in_transaction_session_timeout": f"{IDLE_SECONDS_MAX}s",
        "jit": "off",
    }
    with translating(place):
        made = await asyncpg.connect(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            place.dsn,
            timeout=CONNECT_SECONDS_MAX,
            command_timeout=seconds_max,
            server_settings=settings,
        )
    return cast("Connection", made)


class translating:
    """Errors of the driver leave this block as ours."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception):
            meaning = meaning_of(error, self._place)
            if meaning is not error:
                raise meaning from error


def meaning_of(error: Exception, place: Place) -> Exception:
    """`Away`, `Clash`, or a kind of StoreError that says what to do; others, and our own, as they are."""
    code: str = getattr(error, "sqlstate", None) or ""
    if isinstance(error, OSError | TimeoutError) or code[:2] == "08" or code in _AWAY:
        return Away(f"{place.name}: {_text(error)}")
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        # `connection is closed`, `another operation is in progress`: this connection is of no more use.
        return Away(f"{place.name}: {_text(error)}")
    if not isinstance(error, asyncpg.PostgresError):
        return error
    match code:
        case "40001" | "40P01":
            return Clash(f"{place.name}: {error}")
        case "53100":
            return StoreFull(
                f"the disk of {place.name} is full; nothing was written, nothing was lost",
                hint="free some space; the store goes on by itself",
            )
        case "55P03":
            return StoreLocked(
                f"{place.name} stayed locked for {LOCK_SECONDS_MAX} s; nothing was written",
                hint="which other program has a transaction open on it?",
            )
        case "XX001" | "XX002":
            return StoreCorrupt(
                f"{place.name} is damaged: {error}", hint="keep it as it is and restore a backup"
            )
        case "28P01" | "28000":
            return StoreError(
                f"{place.name} does not let us in: {error}",
                hint="check user and password in the store's URL",
            )
        case "3D000":
            name = unquote(urlsplit(place.dsn).path.strip("/"))
            return StoreError(
                f"{place.name}: {error}",
                hint=f"create it first: createdb {name or 'NAME'}, or CREATE DATABASE in psql",
            )
        case "42501":
            return StoreError(
                f"{place.name}: {error}",
                hint=f"GRANT CREATE ON DATABASE, or the rights on schema {place.schema}, to our user",
            )
        case "42704" if "configuration parameter" in str(error):
            return StoreError(
                f"{place.name}: {error}",
                hint="what stands behind ? in the store's URL is a setting; ours are schema and unsafe",
            )
        case "25006":
            return StoreError(
                f"{place.name} takes no writes: {error}", hint="is it a standby? give the primary"
            )
        case _:
            return StoreError(f"{place.name}: {_text(error)}")


_AWAY = {"57P01", "57P02", "57P03", "57P05", "57014", "53300", "25P03", "25P04"}
"""Shut down, crashed, starting, too many connections, cancelled; or we were stopped for too long."""


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


class Link:
    """One connection, made when it is first needed and made anew when it was lost; for one user at a time."""

    def __init__(
        self, place: Place, *, check: bool = False, seconds_max: int = STATEMENT_SECONDS_MAX
    ) -> None:
        self._place = place
        self._seconds_max = seconds_max
        self._check = check
        self._db: Connection | None = None
        self.session: tuple[int, Any] = (0, None)
        """Process and start of the server's side: what is left of a lost connection is known by it."""
        self.turn = asyncio.Lock()

    @property
    def alive(self) -> bool:
        return self._db is not None and not self._db.is_closed()

    async def get(self) -> Connection:
        db = self._db
        if db is not None and not db.is_closed():
            return db
        db = await connect(self._place, seconds_max=self._seconds_max)
        try:
            if self._check:
                with translating(self._place):
                    await check_settings(db, self._place)
                    self.session = tuple(await db.fetchrow(SESSION))
        except BaseException:
            db.terminate()
            raise
        self._db = db
        return db

    def drop(self) -> None:
        """Let it go at once; the next `get` makes another."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(Exception):
                db.terminate()

    async def close(self) -> None:
        db, self._db = self._db, None
        if db is not None and not db.is_closed():
            try:
                async with asyncio.timeout(2):
                    await db.close()
            except Exception:
                db.terminate()


SESSION = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"


class Links:
    """Connections for reading and small writes: the warm one first, up to a bound."""

    def __init__(self, place: Place, *, count_max: int) -> None:
        self._place = place
        self._free: list[Link] = []
        self._turn, self._reserve = asyncio.Semaphore(count_max), asyncio.Semaphore(1)

    def turn(self, *, reserve: bool) -> asyncio.Semaphore:
        """Held by whoever uses `one`, and while it tries again: when the server is away the others wait in line, and do
        not fall upon it with a connection each. The reserve is for what must not wait behind everybody."""
        return self._reserve if reserve and self._turn.locked() else self._turn

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Connection]:
        link = self._free.pop() if self._free else Link(self._place)
        try:
            yield await link.get()
        except BaseException as error:
            # Cancelled in the middle of a statement, or broken: what it still has to say is nobody's.
            if not isinstance(error, StoreError):
                link.drop()
            raise
        finally:
            if link.alive:
                self._free.append(link)

    def forget(self) -> None:
        """After one was found dead the others probably are."""
        for link in self._free:
            link.drop()
        self._free.clear()

    async def close(self) -> None:
        free, self._free = self._free, []
        for link in free:
            await link.close()


# -- what the server promises

_PROMISES = {
    "fsync": "a power failure may destroy the whole database",
    "full_page_writes": "a power failure in the middle of a write may destroy pages",
    "synchronous_commit": "what was answered may be lost when the server crashes",
}


async def check_settings(db: Connection, place: Place) -> None:
    """A server that may lose what it has confirmed is refused (SPEC 4.2), unless the URL says that it may."""
    rows = await db.fetch(
        "SELECT name, setting FROM pg_settings WHERE name = ANY($1)",
        [*_PROMISES, "server_encoding"],
    )
    settings: Mapping[str, str] = {row[0]: row[1] for row in rows}
    if db.get_server_version().major < SERVER_OLDEST:
        raise StoreError(
            f"{place.name} is PostgreSQL {db.get_server_version().major}, which is too old",
            hint=f"PostgreSQL {SERVER_OLDEST} or newer is needed",
        )
    if settings.get("server_encoding") != "UTF8":
        raise StoreError(
            f"{place.name} is encoded in {settings.get('server_encoding')}",
            hint="create the database with ENCODING 'UTF8'",
        )
    for name, danger in _PROMISES.items():
        if settings.get(name) == "off" and not place.unsafe:
            raise StoreError(
                f"{place.name} runs with {name}=off: {danger}",
                hint=f"turn {name} on (server, database and role), or accept it with ?unsafe=1",
            )


# -- the schema


@cache
def migrations() -> dict[int, str]:
    """The schema's steps by number, as shipped in `migrations/`."""
    steps: dict[int, str] = {}
    for file in files("penstock.adapters.postgres").joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            steps[int(file.name.split("_", 1)[0])] = file.read_text(encoding="utf-8")
    return dict(sorted(steps.items()))


async def migrate(db: Connection, place: Place) -> None:
    """Bring the schema to the newest version; whole, or not at all.

    Of several processes one does it, and the others see it done. Steps only add, and no statement
    waits long for a table: an older Penstock goes on working meanwhile.
    """
    steps = migrations()
    newest = max(steps)
    if await _version(db, place) == newest:
        return
    async with db.transaction():
        await db.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK}, hashtext($1))", place.schema)  # fmt: skip
        version = await _version(db, place)
        if version == 0:
            await db.execute(f'CREATE SCHEMA IF NOT EXISTS "{place.schema}"')
        await db.execute("SET LOCAL lock_timeout = '2s'")
        for number in range(version + 1, newest + 1):
            await db.execute(steps[number])
        await db.execute(
            "INSERT INTO meta (name, value) VALUES ('version', $1)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            str(newest),
        )


async def is_there(place: Place) -> bool:
    """Whether the schema has anything in it; a server that is away has not said no."""
    try:
        db = await connect(place)
    except Away:
        return True
    try:
        with translating(place):
            return await _version(db, place) > 0
    except Away:
        return True
    finally:
        db.terminate()


async def _version(db: Connection, place: Place) -> int:
    tables = {
        row[0]
        for row in await db.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1", place.schema
        )
    }
    if not tables:
        return 0
    version = None
    if {"meta", "events", "runs", "owner"} <= tables:
        version = await db.fetchval("SELECT value FROM meta WHERE name = 'version'")
    if version is None:
        raise StoreError(
            f"the schema {place.schema} of {place.name} belongs to another application",
            hint="give Penstock a schema of its own with ?schema=NAME",
        )
    newest = max(migrations())
    if int(version) > newest:
        raise StoreTooNew(
            f"{place.name} has schema version {version}; this Penstock knows {newest} and touches nothing",
            hint="run the newer Penstock that wrote it, or upgrade this one",
        )
    return int(version)
