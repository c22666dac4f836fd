"""DataLife: what can be done with stored data as a whole, near or far: `engine/data.py` is near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class DataLife(Protocol):
    async def sweep(self) -> None:
        """Delete now what has been kept for long enough, instead of when the owner's timer says so."""
        ...

    async def payload(self, id: str, seq: int) -> Any:
        """The input, output or payload of one event of a run, in full, wherever it is kept."""
        ...

    async def erase(
        self,
        id: str,
        *,
        by: str,
        reason: str,
        tasks: Sequence[str] | None,
        events: Sequence[int] | None,
    ) -> int:
        """Erase payloads of a closed run for good: of all of it, or of some tasks or events; how many events it was."""
        ...

    async def erasures(self, id: str) -> list[dict[str, Any]]:
        """Who erased what of the run, when and why."""
        ...
