"""`engine.data`: the life of stored data as applications see it; only translates to `ports/data.py`."""

from __future__ import annotations

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
