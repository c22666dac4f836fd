"""The life of stored data in this process: what `ports/data.py` promises, on an engine of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.values import decode
from penstock.engine.erasure import acts, erase
from penstock.errors import NotFound, NotOwner
from penstock.model.codec import LARGE_FIELDS, decode_event
from penstock.model.run import REF_SHIFT
from penstock.ports.store import Row

if TYPE_CHECKING:
    from penstock.engine.engine import Engine


class LocalData:
    """See the module's docstring."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

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
        row = await self._find(id)
        if not 1 <= seq <= row.revision:
            raise NotFound(f"run {id} has events 1 to {row.revision}, not {seq}")
        (stored,) = await self._engine.store.events(row.key, after=seq - 1, limit=1)
        event = decode_event(stored.payload)
        if not any(hasattr(event, name) for name in LARGE_FIELDS):
            raise NotFound(f"event {seq} of run {id}, `{event.type}`, has no payload")
        return decode(await self._engine.history.raw(row.key, seq << REF_SHIFT))

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
        return await acts(self._engine.store, await self._find(id))

    async def _find(self, id: str) -> Row:
        row = await self._engine.store.find(id)
        if row is None:
            raise NotFound(f"no run {id}", hint="`penstock list` shows the runs")
        return row
