"""Options of queues as they are kept in the store: changed by any process, in force on the owner (SPEC 4.10, 16).

A change is on disk before it is in force. The owner looks for changes of others whenever it renews; it also writes
down how its queues stand, if that has changed, so that other processes can show it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.engine.queues import Queue
from penstock.engine.records import read, readable, tell, written
from penstock.engine.settings import check_reserves, queue_options
from penstock.errors import Rejected, RevisionConflict, StoreCorrupt
from penstock.model.queue import DECODER, QueueOptions, QueueRecord, QueueView
from penstock.ports.store import Record

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

KIND, STATE, ALL = "queue", "queue-state", "owner"
TRIES_MAX = 20
PAGE = 1000


class _Written(Struct):
    """How the queues stood when the owner looked."""

    at: float
    node: str
    queues: list[QueueView]


_WRITTEN = msgspec.json.Decoder(_Written)


class Queueing:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen: dict[str, int] = {}
        """The revision of each record that is in force."""
        self._written: list[QueueView] | None = None

    async def load(self) -> None:
        """Put in force what the store says."""
        engine = self._engine
        dispatch = engine.attempts.dispatch
        for record in await self._records():
            if self._seen.get(record.id) == record.revision:
                continue
            self._seen[record.id] = record.revision
            try:
                held = read(DECODER, record)
            except StoreCorrupt as error:
                tell(record, error)  # the queue keeps the options it has
                continue
            dispatch.configure(record.id, held.options, by=held.by, reason=held.reason)

    async def change(
        self, name: str, fields: Mapping[str, Any], *, by: str | None, reason: str
    ) -> None:
        """On disk on return, and in force if this process executes the runs."""
        engine = self._engine
        for _ in range(TRIES_MAX):
            record = await engine.store.record(KIND, name)
            before = engine.settings.queues.get(name)
            for _, held in readable(DECODER, [] if record is None else [record]):
                before = held.options
            options = queue_options(name, fields, before)
            check_reserves({**await self._all(), name: options}, engine.settings.tasks_max)
            body = written(DECODER, QueueRecord(options, engine.clock.now(), by, reason))
            revision = 0 if record is None else record.revision
            (kept,) = await engine.store.put([Record(KIND, name, body, revision)])
            if not isinstance(kept, RevisionConflict):
                break
        else:
            raise Rejected(
                "queue-contended", f"others keep changing queue `{name}`", hint="try again"
            )
        log.info("queue.changed", extra={"queue": name, "by": by, "reason": reason, **dict(fields)})
        if engine.owner is not None:
            await self.load()

    async def _records(self) -> list[Record]:
        found = page = await self._engine.store.records(KIND, limit=PAGE)
        while len(page) == PAGE:
            page = await self._engine.store.records(KIND, after=page[-1].id, limit=PAGE)
            found.extend(page)
        return found

    async def _all(self) -> dict[str, QueueOptions]:
        kept = {each.id: held.options for each, held in readable(DECODER, await self._records())}
        return {**self._engine.settings.queues, **kept}

    async def views(self) -> list[QueueView]:
        """As they are, if this process executes the runs; else as its owner wrote down last."""
        engine = self._engine
        if engine.owner is not None:
            return engine.attempts.dispatch.views()
        record = await engine.store.record(STATE, ALL)
        records = [] if record is None else [record]
        found = [view for _, state in readable(_WRITTEN, records) for view in state.queues]
        known = {view.name: view for view in found}
        for each, kept in readable(DECODER, await self._records()):
            view = known.get(each.id)
            if view is None:
                view = Queue(each.id, kept.options).view(engine.clock.now())
                found.append(view)
            for field, value in msgspec.structs.asdict(kept.options).items():
                if field != "reserve" or value is not None:
                    setattr(view, field, value)
            view.by, view.reason = kept.by, kept.reason
        return found

    async def write_down(self) -> None:
        """How the queues stand, for other processes; at most once per renewal, and only what has changed."""
        engine = self._engine
        views = engine.attempts.dispatch.views()
        if views == self._written:
            return
        record = await engine.store.record(STATE, ALL)
        revision = 0 if record is None else record.revision
        value = msgspec.json.encode(_Written(engine.clock.now(), engine.node, views))
        await engine.store.put([Record(STATE, ALL, value, revision)])
        self._written = views
