"""DataLife: what can be done with stored data as a whole, near or far: `engine/data.py` is near."""

from __future__ import annotations

from typing import Protocol


class DataLife(Protocol):
    async def sweep(self) -> None:
        """Delete now what has been kept for long enough, instead of when the owner's timer says so."""
        ...
