"""A command's way to the database: opened beside whoever owns it, closed again when the command is done."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.output import INTERRUPTED, UNREACHABLE, Problem, say
from penstock.errors import NotFound

if TYPE_CHECKING:
    import asyncio

    from penstock.core.plan import Plan
    from penstock.engine.settings import Settings
    from penstock.model.definition import Definition
    from penstock.ports.store import DefinitionRow, Owner, Store
    from penstock.sdk.client import Engine, Run

STORE = "sqlite:///penstock.db"
LEASE_SECONDS = 6.0
"""An owner that has not renewed for so long is gone (SPEC 4.8)."""
PATIENCE_SECONDS = 1.0
"""After so long the reader is told what is waited for."""
NEAR_RUNS = 500
"""So many of the newest runs are looked through for the id that was probably meant."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def store_option(function: F) -> F:
    return click.option(
        "--store", "url", metavar="URL", default=STORE, envvar="PENSTOCK_STORE", show_envvar=True, show_default=True,
        help="The database.",
    )(function)  # fmt: skip


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for programs.")(
        function
    )


def perform(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work in a loop of its own."""
    import asyncio  # late, as all that --help does not need

    from penstock.cli.voice import heard

    with heard():
        return asyncio.run(work)


def file_of(url: str) -> Path | None:
    """The file of an SQLite URL."""
    from penstock.wiring import sqlite_file

    return Path(sqlite_file(url)) if url.partition(":")[0] == "sqlite" else None


def settings_of(**given: Any) -> Settings:
    """Settings of an engine, with what the environment says."""
    from penstock.engine.settings import Settings

    return Settings(audit_key=os.environ.get("PENSTOCK_AUDIT_KEY") or None, **given)


def store_flag(url: str) -> str:
    """What to write after a command so that it means this database."""
    if url == (os.environ.get("PENSTOCK_STORE") or STORE):
        return ""
    from penstock.wiring import shown_url

    return f" --store {shlex.quote(shown_url(url))}"


class Session:
    """An engine that only asks, and the store beneath it for what the engine does not show."""

    def __init__(self, engine: Engine, url: str) -> None:
        self.engine, self.url = engine, url
        self._store: Store | None = None

    async def store(self) -> Store:
        if self._store is None:
            from penstock.wiring import store_of

            self._store = store_of(self.url, time.time)[0]
            await self._store.open()
        return self._store

    async def plan(self, definition: str, version: str) -> Plan:
        """A version as it was registered, compiled; of a workflow function what all its runs have in common."""
        from msgspec.structs import replace

        from penstock.core.functions import FUNCTION, FunctionPlan
        from penstock.core.plan import Plan
        from penstock.engine.plugins import vocabulary_of
        from penstock.model.codec import decode_definition
        from penstock.wiring import installed_plugins

        if version == FUNCTION:
            return FunctionPlan(definition)
        row = await self._row(definition, version)
        found = replace(decode_definition(row.document), version=row.version)
        store, plugins = await self.store(), installed_plugins()
        plan = Plan(found, await vocabulary_of(store, plugins, found, row))
        plan.join({}, version)
        return plan

    async def definition(self, definition: str, version: str) -> Definition:
        """A version as it was registered."""
        from msgspec.structs import replace

        from penstock.model.codec import decode_definition

        row = await self._row(definition, version)
        return replace(decode_definition(row.document), version=row.version)

    async def _row(self, definition: str, version: str) -> DefinitionRow:
        store = await self.store()
        row = await store.definition(definition, version)
        if row is None:
            rows = await store.definitions()
            known = [each.version for each in rows if each.id == definition]
            hint = f"it has: {', '.join(known[-10:])}" if known else None
            raise NotFound(f"no version {version} of definition `{definition}`", hint=hint)
        return row

    async def get(self, id: str) -> Run:
        """A run, or the id that was probably meant."""
        try:
            return await self.engine.get(id)
        except NotFound as error:
            from penstock.cli.words import did_you_mean
            from penstock.wiring import shown_url

            known = [row.id for row in await self.engine.list(limit=NEAR_RUNS)]
            hint = did_you_mean(id, known) or (
                f"`penstock list{store_flag(self.url)}` shows the runs"
                if known
                else f"it has no runs; `penstock start FILE{store_flag(self.url)}` starts one"
            )
            raise NotFound(f"no run `{id}` in {shown_url(self.url)}", hint=hint) from error

    async def owner(self) -> Owner | None:
        """Who executes the runs now, if anybody lives."""
        owner = await self.engine.owner()
        return owner if owner is not None and alive(owner) else None

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()


@contextmanager
def patience(url: str) -> Generator[Callable[[], None]]:
    """Says, if it takes long, which database is waited for; until the function that it gives is called."""
    import asyncio

    from penstock.wiring import shown_url

    loop = asyncio.get_running_loop()
    later = loop.call_later(PATIENCE_SECONDS, lambda: say(f"waiting for {shown_url(url)}"))
    try:
        yield later.cancel
    finally:
        later.cancel()


def _secret(name: str) -> str | None:
    """`{secret: NAME}` is the variable PENSTOCK_SECRET_NAME of the environment, looked up when it is wanted."""
    return os.environ.get(f"PENSTOCK_SECRET_{name}")


@asynccontextmanager
async def engine_of(url: str, **options: Any) -> AsyncGenerator[Engine]:
    """As `penstock.open` gives it, with the secrets of the environment."""
    from penstock.wiring import open

    options.setdefault("secrets", _secret)
    with patience(url) as arrived:
        async with open(url, **options) as engine:
            arrived()
            yield engine


@asynccontextmanager
async def opened(url: str, *, create: bool = False) -> AsyncGenerator[Session]:
    """Beside whoever owns the database; a command that only reads never makes a new one."""
    from penstock.wiring import is_there, shown_url
    from penstock.wiring import open as open_engine

    if url.startswith("memory:") and not create:
        raise Problem(
            "store-missing", "a database in memory ends with its process; there is nothing to look at",
            status=UNREACHABLE, hint="use sqlite:///file.db",
        )  # fmt: skip
    with patience(url) as arrived:
        if not create and not await is_there(url):
            raise Problem(
                "store-missing", f"there is no database {file_of(url) or shown_url(url)}", status=UNREACHABLE,
                hint="--store URL names another; `penstock run` makes one",
            )  # fmt: skip
        async with open_engine(url, execute=False, settings=settings_of()) as engine:
            arrived()
            session = Session(engine, url)
            try:
                yield session
            finally:
                await session.close()


def alive(owner: Owner) -> bool:
    """It has renewed of late and, if it is on this machine, its process exists."""
    if not owner.pid or time.time() - owner.renewed_at > LEASE_SECONDS:
        return False
    import socket

    if not owner.node.startswith(socket.gethostname() + "-"):
        return True
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def on_interrupt() -> asyncio.Event:
    """Set when we are asked to stop; asked twice, the process ends at once: whatever is lost is recovered."""
    import asyncio
    import signal

    stop = asyncio.Event()

    def interrupted() -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)
        stop.set()

    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, interrupted)
    return stop


def serve_text(url: str) -> str:
    """The command that executes this database's runs."""
    return f"penstock serve --app FILE{store_flag(url)}"


def owner_text(owner: Owner | None) -> str:
    if owner is None:
        return "no process executes its runs now"
    return f"process {owner.pid} ({owner.node}) executes its runs"
