"""DataLife: what can be done with stored data as a whole, near or far: `engine/data.py` is near."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from penstock.ports.store import Query, Row


class Archived(Struct):
    """One archive: a file of runs that left the store."""

    path: str
    digest: bytes
    """Of its index, which has the digests of all the rest."""
    runs: int
    made_at: float
    first: float
    last: float
    """When the first and the last of its runs ended."""
    deleted: bool = False
    """All its runs are gone from the store."""


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

    async def archive(
        self, folder: Path, *, older_than: float | timedelta, definition: str | None
    ) -> Archived | None:
        """Move closed runs that ended so long ago into a file in the folder; None if there are none."""
        ...

    async def archives(self) -> list[Archived]: ...

    async def archived(self, query: Query) -> list[Row]:
        """Archived runs that fit."""
        ...

    async def restore(self, id: str) -> int:
        """Put an archived run back into the store; how many generations it was."""
        ...

    async def export(self, path: Path, query: Query) -> int:
        """Copy runs into a file; how many."""
        ...

    async def import_runs(self, path: Path, *, take_open: bool) -> int:
        """Take the runs of a file that are not here yet, all or none; how many."""
        ...

    async def backup(self, path: Path) -> None: ...

    async def sign(self) -> int:
        """Sign the heads of all runs that changed since the last root; how many roots that took."""
        ...
