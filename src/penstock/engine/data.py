"""The life of stored data in this process: what `ports/data.py` promises, on an engine of our own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.values import decode
from penstock.engine.archive import Archives
from penstock.engine.audit import audit
from penstock.engine.erasure import acts, erase
from penstock.engine.history import History, Source
from penstock.engine.roots import check as check_roots
from penstock.errors import NotFound, NotOwner, Rejected, StoreCorrupt
from penstock.model.codec import LARGE_FIELDS, decode_event
from penstock.model.run import REF_SHIFT
from penstock.ports.data import Archived
from penstock.ports.store import Query, Row, Stored

if TYPE_CHECKING:
    from penstock.engine.engine import Engine


SEE_HISTORY = "`penstock history` numbers the events of a run"


class LocalData:
    """See the module's docstring."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.files = Archives(engine)

    async def sweep(self) -> None:
        engine = self._engine
        if engine.owner is None:
            owner = await engine.store.owner()
            who = (
                f"{owner.node} (process {owner.pid})"
                if owner is not None and owner.pid
                else "nobody"
            )
            raise NotOwner(
                f"only who owns the database deletes; {who} does", hint="it does so by itself"
            )
        await engine.retention.sweep()

    async def payload(self, id: str, seq: int) -> Any:
        row, source = await self.source(id)
        if not 1 <= seq <= row.revision:
            raise NotFound(f"run {id} has events 1 to {row.revision}, not {seq}", hint=SEE_HISTORY)
        (stored,) = await source.events(row.key, after=seq - 1, limit=1)
        event = decode_event(stored.payload)
        if not any(hasattr(event, name) for name in LARGE_FIELDS):
            raise NotFound(
                f"event {seq} of run {id}, `{event.type}`, has no payload", hint=SEE_HISTORY
            )
        history = History(source, self._engine.plan)
        return decode(await history.raw(row.key, seq << REF_SHIFT))

    async def source(self, id: str, generation: int | None = None) -> tuple[Row, Source]:
        """A run and where its history is read from: the store, or an archive."""
        row = await self._engine.store.find(id, generation)
        if row is not None:
            return row, self._engine.store
        found = await self.files.find(id, generation)
        if found is None:
            which = "" if generation is None else f" of generation {generation}"
            raise NotFound(f"no run {id}{which}", hint="`penstock list` shows the runs")
        return found

    async def whole(self, id: str, generation: int | None = None) -> tuple[Row, list[Stored]]:
        """A run with all its events; NotFound if it was deleted while they were read."""
        while True:
            row, source = await self.source(id, generation)
            stored = await source.events(row.key)
            if len(stored) >= row.revision:
                return row, stored
            await self.check_gone(row)

    async def check_gone(self, row: Row) -> None:
        """Events are missing: because the run was deleted since, or else the store is damaged."""
        again = await self._engine.store.find(row.id, row.generation)
        if again is not None and again.key == row.key:
            raise StoreCorrupt(f"run {row.id}: some of its {row.revision} events are missing")

    async def erase(
        self,
        id: str,
        *,
        by: str,
        reason: str,
        tasks: Sequence[str] | None = None,
        events: Sequence[int] | None = None,
    ) -> int:
        return await erase(self._engine, id, by=by, reason=reason, tasks=tasks, events=events)

    async def erasures(self, id: str) -> list[dict[str, Any]]:
        row, source = await self.source(id)
        first = await source.events(row.key, limit=1)
        return await acts(self._engine.store, row, first)

    async def archive(
        self, folder: Path, *, older_than: float | timedelta = 0.0, definition: str | None = None
    ) -> Archived | None:
        age = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        if not isfinite(age) or age < 0:
            raise Rejected(
                "time-invalid",
                f"`older_than` is {older_than}, not a duration",
                hint="give seconds, or a timedelta, from 0 on",
            )
        before = self._engine.clock.now() - age
        return await self.files.archive(folder, ended_before=before, definition=definition)

    async def archives(self) -> list[Archived]:
        return await self.files.archives()

    async def archived(self, query: Query) -> list[Row]:
        return await self.files.list(query)

    async def restore(self, id: str) -> int:
        return await self.files.restore(id)

    async def export(self, path: Path, query: Query) -> int:
        return await self.files.export(path, query)

    async def import_runs(self, path: Path, *, take_open: bool = False) -> int:
        return await self.files.import_runs(path, take_open=take_open)

    async def backup(self, path: Path) -> None:
        await self._engine.store.backup(str(path))

    async def sign(self) -> int:
        return await self._engine.roots.make()

    async def audit(self, id: str | None) -> list[str]:
        """Chains and what stands beside the events; of all runs also the archives and, with a key, the roots."""
        engine = self._engine
        problems = await audit(engine.store, id)
        if id is None:
            problems += await self.files.verify()
            if engine.settings.audit_key is not None:
                problems += await check_roots(engine.store, engine.settings.audit_key)
        return problems
