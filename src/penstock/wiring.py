"""Puts adapters and plugins in place; the only importer of adapters."""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from penstock.engine.engine import Settings
    from penstock.ports.clock import Clock
    from penstock.ports.hints import Hints
    from penstock.ports.plugins import Plugins
    from penstock.ports.store import Store
    from penstock.sdk.client import Engine


def shown_url(url: str) -> str:
    """A store's URL for people: a password is never shown, wherever it stands."""
    head, mark, options = url.partition("?")
    head = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", head, flags=re.DOTALL)
    return head + mark + re.sub(r"(?i)((?:^|&)[^=&]*password=)[^&]*", r"\1***", options)


def sqlite_file(url: str) -> str:
    """The file of an SQLite URL."""
    place = url.partition(":")[2].partition("?")[0]
    path = place[3:] if place.startswith("///") else place.lstrip("/")
    if not path:
        raise Rejected("store-url", f"`{url}` names no file", hint="write sqlite:///file.db")
    if place.startswith("//") and not place.startswith("///"):
        raise Rejected(
            "store-url",
            f"`{url}` names a host, and an SQLite database is a file",
            hint=f"write sqlite:///{path}",
        )
    return path


def store_of(url: str, clock: Callable[[], float]) -> tuple[Store, Hints | None]:
    """The store that a URL names, and how its processes tell each other."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        from penstock.adapters.memory import MemoryStore
        from penstock.adapters.memory_hints import MemoryHints

        return MemoryStore(rest, clock=clock), MemoryHints()
    if scheme == "sqlite":
        from penstock.adapters.sqlite.hints import DatagramHints
        from penstock.adapters.sqlite.store import SqliteStore

        path = sqlite_file(url)
        options = rest.partition("?")[2]
        return SqliteStore(
            path, threaded="thread=1" in options.split("&"), clock=clock
        ), DatagramHints()
    if scheme in ("postgresql", "postgres"):
        try:
            from penstock.adapters.postgres.hints import NotifyHints
            from penstock.adapters.postgres.store import PostgresStore
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise Rejected(
                "driver-missing",
                "the driver for PostgreSQL is not installed",
                hint="pip install 'penstock[postgres]'",
            ) from error
        return PostgresStore(url, clock=clock), NotifyHints(url)
    raise Rejected(
        "store-url",
        f"`{shown_url(url)}` is no store that we know",
        hint="write sqlite:///file.db, postgresql://user:password@host/database or memory:",
    )


def installed_plugins(given: Mapping[str, Any] | None = None) -> Plugins:
    """What plugins add here; none of them is imported before it is mentioned."""
    from penstock.adapters.entry_points import InstalledPlugins

    return InstalledPlugins(given)


async def is_there(url: str) -> bool:
    """Whether a database exists already; asks without making it."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return Path(sqlite_file(url)).exists()  # noqa: ASYNC240 - one look, before anything runs
    if scheme in ("postgresql", "postgres"):
        store_of(url, lambda: 0.0)  # the driver may be missing
        from penstock.adapters.postgres.database import Place
        from penstock.adapters.postgres.database import is_there as schema_is_there

        return await schema_is_there(Place(url))
    return scheme != "memory"


def restore(url: str, backup: str) -> None:
    """Make a backup the database that a URL names, which must not exist yet."""
    store, _ = store_of(url, lambda: 0.0)
    from penstock.adapters.sqlite.store import SqliteStore

    if not isinstance(store, SqliteStore):
        raise Rejected("backup-unsupported", "only a SQLite database is restored from a file")
    from penstock.adapters.sqlite.backup import restore as restore_file

    restore_file(backup, store.path)


@asynccontextmanager
async def open(
    url: str,
    *,
    activities: Iterable[Any] = (),
    workflows: Iterable[Any] = (),
    secrets: Mapping[str, str] | Callable[[str], str] | None = None,
    settings: Settings | None = None,
    execute: bool = True,
    clock: Clock | None = None,
    threads: int | None = None,
    processes: int | None = None,
    node: str | None = None,
    plugins: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Engine]:
    """An engine in this process: `async with penstock.open("sqlite:///shop.db", activities=[…]) as engine`.

    With `execute=False` it never owns the database: it gives commands and reads, whoever executes the runs. Plugins that
    are installed are found by themselves; `plugins` adds classes by name, `{"slug": Slug}`.
    """
    from penstock.adapters.clock import SystemClock
    from penstock.adapters.memory_bus import MemoryBus
    from penstock.engine.engine import Engine as Core
    from penstock.engine.recovery import Ownership
    from penstock.engine.runs import LocalRuns
    from penstock.sdk.client import Engine
    from penstock.sdk.functions import Functions
    from penstock.sdk.worker import LocalActivities
    from penstock.sdk.workflow import Registry

    clock = clock or SystemClock()
    store, hints = store_of(url, clock.now)
    limits: dict[str, Any] = {}
    if threads is not None:
        limits["threads"] = threads
    added = installed_plugins(plugins)
    worker = LocalActivities(
        Registry(activities),
        clock,
        processes=processes,
        secrets=secrets,
        plugins=added,
        **limits,
    )
    name = node or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    core = Core(
        store, worker, clock, bus=MemoryBus(clock), hints=hints, functions=Functions(workflows), node=name,
        settings=settings, plugins=added,
    )  # fmt: skip
    ownership = Ownership(core)
    runs = LocalRuns(core, ownership)
    await core.open()
    try:
        if execute:
            await ownership.open()
        yield Engine(runs)
    finally:
        await runs.close()
