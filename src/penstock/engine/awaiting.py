"""The end of a run, and what happens on the way to it, for whoever waits: in the process that executes it, or in another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from penstock.core.values import decode
from penstock.engine.data import LocalData
from penstock.engine.engine import Engine
from penstock.engine.following import ASK_SECONDS
from penstock.engine.history import Entry, History
from penstock.engine.observers import Noticed
from penstock.errors import (
    Fenced,
    NotFound,
    RunFailed,
    StoreCorrupt,
)
from penstock.model.codec import decode_event
from penstock.model.events import RunReset
from penstock.model.run import COMPLETED
from penstock.ports.runs import (
    Change,
)
from penstock.ports.store import Row

LOOK_SECONDS = 0.1
"""How often who does not own the database and is told nothing looks for what becomes of a run."""
NET_SECONDS = 5.0


class Awaiting:
    def __init__(self, engine: Engine, data: LocalData) -> None:
        self._engine, self._data = engine, data

    async def result(self, id: str) -> Any:
        """The output of a completed run; RunFailed for one that ended otherwise. Waits for the end."""
        engine = self._engine
        if engine.requests.concerns(id):
            await engine.requests.begun(id)
        if engine.in_memory(id):
            with contextlib.suppress(Fenced):  # another process executes it now
                return await self._outcome(await engine.observers.closing(id))
        with engine.following.run(id):
            while True:
                try:
                    ended = await self._ended(id)
                except NotFound:
                    if await engine.requests.started(id) is None:
                        raise
                    continue  # it was asked for inside a transaction, and is a run now
                if ended is not None:
                    return await self._outcome(*ended)

    async def _ended(self, id: str) -> tuple[Entry, History] | None:
        """The run if it is closed, or is before it is worth while to look again."""
        engine = self._engine
        owner, waiting = engine.owner, engine.observers.closing(id)
        poked = engine.observers.poked(id)
        try:
            row, source = await self._data.source(id)
            if not row.open:
                history = History(source, engine.plan)
                entry = (await history.load([row]))[id]
                if isinstance(entry, StoreCorrupt):
                    await self._data.check_gone(row)
                    return None  # deleted while it was read: look again
                if isinstance(entry, Exception):
                    raise entry
                return entry, history
            # Who owned the database before it looked learns of the end itself, or that it owns no more.
            here = (
                owner is not None and engine.owner is not None and engine.owner.token == owner.token
            )
            pause = None if here else self._net
            wanted = [waiting] if here else [waiting, poked]
            await asyncio.wait(wanted, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(Fenced):  # another process executes it now
                return (waiting.result(), engine.history) if waiting.done() else None
            return None
        finally:
            engine.observers.unheard(id, waiting)
            engine.observers.unpoked(id, poked)

    async def _outcome(self, entry: Entry, history: History | None = None) -> Any:
        run = entry.flow.run
        if run.status != COMPLETED:
            raise RunFailed(run.id, run.status, run.failure)
        if run.result is not None:
            return decode(run.result)
        return await (history or self._engine.history).value(entry.row.key, run.result_ref)

    @property
    def _net(self) -> float:
        """How long to wait for word of a run before looking for oneself: words can be lost."""
        if self._engine.owner is not None:
            return NET_SECONDS
        return LOOK_SECONDS if self._engine.hints is None else ASK_SECONDS

    async def watch(self, id: str) -> AsyncIterator[Change]:
        """What has happened so far, then what happens, in order, until the run is closed."""
        engine = self._engine
        if engine.requests.concerns(id):
            await engine.requests.begun(id)
        queue = engine.observers.watch(id)
        seq = 0
        try:
            with engine.following.run(id):
                row, source = await self._data.source(id)
                while True:
                    stored = await source.events(row.key, after=seq)
                    for each in stored:
                        seq = each.seq
                        event = decode_event(each.payload)
                        yield Change(id, each.seq, event.type, row.status, event)
                    again = (await self._data.source(id))[0]
                    if again.key != row.key:
                        # Another generation was opened: the end of this one, then that one after its copies.
                        for each in await engine.store.events(row.key, after=seq):
                            event = decode_event(each.payload)
                            yield Change(id, each.seq, event.type, again.status, event)
                        row, seq = again, await self._copied(again)
                        continue
                    row = again
                    if not row.open and row.revision <= seq:
                        return
                    if row.revision > seq:
                        continue
                    noticed: Noticed | None
                    try:
                        noticed = await asyncio.wait_for(queue.get(), self._net)
                    except TimeoutError:
                        continue
                    while noticed is not None and noticed.seq == seq + 1:
                        seq = noticed.seq
                        yield Change(id, seq, noticed.type, noticed.status, noticed.event)
                        noticed = queue.get_nowait() if not queue.empty() else None
        finally:
            engine.observers.unwatch(id, queue)

    async def _copied(self, row: Row) -> int:
        """How many events of the generation are copies of the one before."""
        for each in reversed(await self._engine.store.events(row.key)):
            event = decode_event(each.payload)
            if isinstance(event, RunReset) and event.generation == row.generation:
                return event.to
        return 0
