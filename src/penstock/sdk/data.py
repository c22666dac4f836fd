"""`engine.data`: the life of stored data as applications see it; only translates to `ports/data.py`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.errors import Rejected
from penstock.ports.data import Archived, DataLife
from penstock.ports.store import Row
from penstock.sdk.filters import checked_query


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

    async def archive(
        self,
        folder: str | Path,
        *,
        older_than: float | timedelta = 0.0,
        definition: str | None = None,
    ) -> Archived | None:
        """Move closed runs that ended so long ago (seconds) out of the store into a new file in the folder. They can still
        be listed (`archived`), shown and read; None if there are none."""
        return await self._life.archive(_path(folder), older_than=older_than, definition=definition)

    async def archives(self) -> list[Archived]:
        """The archives of this store, the newest first."""
        return await self._life.archives()

    async def archived(self, **wanted: Any) -> list[Row]:
        """Archived runs by status, definition, attributes, time: the fields of `Query`."""
        return await self._life.archived(checked_query(wanted))

    async def restore(self, id: str) -> int:
        """Put an archived run back into the store; its file keeps it too. How many generations that was."""
        return await self._life.restore(id)

    async def export(self, path: str | Path, **wanted: Any) -> int:
        """Copy runs (all, or those that fit the fields of `Query`) into a new file; how many."""
        return await self._life.export(_path(path), checked_query(wanted))

    async def import_runs(self, path: str | Path, *, take_open: bool = False) -> int:
        """Take the runs of an exported or archived file that are not here yet, all or none; how many. Open runs go on
        here, so they are taken only with `take_open`, once the engine they come from is stopped."""
        return await self._life.import_runs(_path(path), take_open=take_open)

    async def backup(self, path: str | Path) -> None:
        """Copy the whole database, of one moment, into a new file, while the engine works."""
        await self._life.backup(_path(path))

    async def sign(self) -> int:
        """Sign the heads of all runs that changed since the last root, with the `audit_key` of the settings."""
        return await self._life.sign()


def _path(given: Any) -> Path:
    """A place in the file system, as the operating system can take it."""
    try:
        if isinstance(given, str | Path) and str(given) and b"\0" not in bytes(Path(given)):
            return Path(given)
    except UnicodeEncodeError:
        pass
    raise Rejected(
        "text-invalid",
        f"a {type(given).__name__} is given that is no path",
        hint="give the path of a file or folder, as text or pathlib.Path",
    )
