"""`engine.data`: the life of stored data as applications see it; only translates to `ports/data.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.ports.data import DataLife


class Data:
    """See the module's docstring."""

    __slots__ = ("_life",)

    def __init__(self, life: DataLife) -> None:
        self._life = life

    async def sweep(self) -> None:
        """Delete now what has been kept for long enough (SPEC 6.3); the owner does so by itself now and then."""
        await self._life.sweep()

    async def payload(self, id: str, seq: int) -> Any:
        """The input, output or payload of one event of a run, in full, also where it is kept beside the event."""
        return await self._life.payload(id, seq)

    async def erase(
        self,
        id: str,
        *,
        by: str,
        reason: str,
        tasks: Sequence[str] | None = None,
        events: Sequence[int] | None = None,
    ) -> int:
        """Erase payloads of a closed run for good: of all of it, or of some tasks or events. Its chain still checks."""
        return await self._life.erase(id, by=by, reason=reason, tasks=tasks, events=events)

    async def erasures(self, id: str) -> list[dict[str, Any]]:
        """Who erased what of the run, when and why."""
        return await self._life.erasures(id)
