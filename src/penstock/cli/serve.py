"""`penstock serve`: a process that executes the database's runs, or stands by, until it is asked to stop."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click

from penstock.cli.session import perform, store_option

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.ports.store import Owner

log = logging.getLogger("penstock.cli")
LOOK_SECONDS = 0.25
"""Between two looks at what happened and at who owns the database."""
CHUNK = 1000
DRAIN_SECONDS = 10.0
"""For attempts that are under way when we are asked to stop."""
ENDS = frozenset({
    "run_completed", "run_failed", "run_cancelled", "run_timed_out", "run_terminated",
})  # fmt: skip


@click.command("serve")
@click.option(
    "--app",
    metavar="FILE|MODULE[:ATTR]",
    required=True,
    help="Where the activities are: a Python file or a module.",
)
@click.option("--retention", metavar="DURATION", help="Delete closed runs so long after their end.")
@click.option("--port", hidden=True)
@store_option
def serve_command(app: str, retention: str | None, port: str | None, url: str) -> int:
    """Execute the database's runs until Ctrl-C.

    \b
    Example:
      penstock serve --app shop.py
      penstock serve --app shop.py --store sqlite:///shop.db

    One process executes the runs of a database; any other stands by and takes over when it is gone. `penstock start`
    gives it runs. Each run that starts or ends is a line on stderr. Ctrl-C lets what is under way end; a second one
    does not wait, and what is lost is done again. HTTP comes with a later release: nothing listens on a port yet.
    """
    if port is not None:
        from penstock.cli.output import Problem

        raise Problem(
            "usage", "HTTP comes with a later release: nothing listens on a port yet", place="--port",
            hint="leave it out; `penstock start` and the other commands reach this process by the database",
        )  # fmt: skip
    return perform(_serve(app, url, None if retention is None else _kept(retention)))


def _kept(text: str) -> float:
    from penstock.cli.output import Problem
    from penstock.policy.durations import Unreadable, seconds

    try:
        return seconds(text)
    except Unreadable as error:
        raise Problem("usage", str(error), place="--retention", hint="--retention 30d") from None


async def _serve(app: str, url: str, retention: float | None) -> int:
    import asyncio

    from penstock.cli.app import load_app, load_workflows
    from penstock.cli.output import COMPLETED, Problem, say
    from penstock.cli.session import Session, engine_of, on_interrupt, settings_of
    from penstock.cli.voice import keep_infos
    from penstock.errors import StoreError

    if url.startswith("memory:"):
        raise Problem(
            "usage", "no other process can give runs to a database in memory", place="--store",
            hint="use sqlite:///file.db",
        )  # fmt: skip
    activities, workflows = load_app(app), load_workflows(app, needed=False)
    keep_infos()
    stop = on_interrupt()
    async with engine_of(
        url,
        activities=activities,
        workflows=workflows,
        settings=settings_of(drain_seconds=DRAIN_SECONDS, retention=retention),
    ) as engine:
        session = Session(engine, url)
        try:
            served = Served(session)
            await served.begin()
            while not stop.is_set():
                try:
                    await served.look()
                except StoreError as error:
                    # The engine tries again by itself, and so do we.
                    log.warning("store.unreachable", extra={"error": str(error)})
                try:
                    await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
                except TimeoutError:
                    continue
            say(f"stopping: what is under way gets {DRAIN_SECONDS:.0f} s to end, and is recorded")
        finally:
            await session.close()
    say("stopped; open runs go on when the next process executes them")
    return COMPLETED


class Served:
    """What is said about a database while we serve it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._position = 0
        self._owner: tuple[str, int] | None = None

    async def begin(self) -> None:
        from penstock.cli.output import say

        store = await self._session.store()
        self._position = await store.head()
        await self._look_at_owner()
        count = len(await self._session.engine.list(status="OPEN", limit=CHUNK))
        if count:
            runs = "1 run is" if count == 1 else f"{count}{'+' if count == CHUNK else ''} runs are"
            say(f"{runs} open")

    async def look(self) -> None:
        """Say what has happened since, whoever wrote it."""
        await self._look_at_owner()
        store = await self._session.store()
        while stored := await store.follow(after=self._position, limit=CHUNK):
            self._position = stored[-1].position
            rows = await store.find_many(list({each.key for each in stored}))
            for each in stored:
                if each.key in rows:
                    self._tell(rows[each.key].id, each.payload)

    def _tell(self, id: str, payload: bytes) -> None:
        from penstock.cli.follow import told
        from penstock.cli.humane import local
        from penstock.cli.output import say, visible
        from penstock.model.codec import decode_event

        event = decode_event(payload)
        if event.type == "run_started" or event.type in ENDS:
            say(f"{local(event.at, event.at)}  {visible(f'{id}: {told(event)}')}")

    async def _look_at_owner(self) -> None:
        from penstock.cli.output import say

        owner = await self._session.owner()
        known = None if owner is None else (owner.node, owner.token)
        if owner is not None and known != self._owner:
            say(_worded(owner, self._session.url))
        self._owner = known


def _worded(owner: Owner, url: str) -> str:
    from penstock.cli.session import owner_text
    from penstock.wiring import shown_url

    place = shown_url(url)
    if owner.pid == os.getpid():
        return f"this process ({owner.pid}) executes the runs of {place}; Ctrl-C stops it"
    return f"{owner_text(owner)}; this one ({os.getpid()}) stands by for {place}"
