"""The life of stored data in this process: what `ports/data.py` promises, on an engine of our own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.values import decode
from penstock.engine.archive import Archives
from penstock.engine.audit import audit
from penstock.engine.erasure import acts, erase
from penstock.engine.history import History, Source
from penstock.engine.roots import check as check_roots
from penstock.engine.settings import SECONDS_MAX
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
        _check_numbers("seq", [seq])
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
        check_known(id)
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
        check_known(id)
        _check_text("by", by)
        _check_text("reason", reason)
        if tasks is not None:
            _check_list("tasks", tasks)
            for task in tasks:
                _check_text("tasks", task)
        if events is not None:
            _check_list("events", events)
            _check_numbers("events", events)
        return await erase(self._engine, id, by=by, reason=reason, tasks=tasks, events=events)

    async def erasures(self, id: str) -> list[dict[str, Any]]:
        row, source = await self.source(id)
        first = await source.events(row.key, limit=1)
        return await acts(self._engine.store, row, first)

    async def archive(
        self, folder: Path, *, older_than: float | timedelta = 0.0, definition: str | None = None
    ) -> Archived | None:
        age = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        if type(age) not in (int, float) or not 0 <= age <= SECONDS_MAX:
            raise Rejected(
                "time-invalid",
                "`older_than` is no duration",
                hint="give seconds, or a timedelta, from 0 on",
            )
        if definition is not None:
            _check_text("definition", definition)
        before = self._engine.clock.now() - age
        return await self.files.archive(folder, ended_before=before, definition=definition)

    async def archives(self) -> list[Archived]:
        return await self.files.archives()

    async def archived(self, query: Query) -> list[Row]:
        return await self.files.list(query)

    async def restore(self, id: str) -> int:
        check_known(id)
        return await self.files.restore(id)

    async def export(self, path: Path, query: Query) -> int:
        return await self.files.export(path, query)

    async def import_runs(self, path: Path, *, take_open: bool = False) -> int:
        if type(take_open) is not bool:
            raise Rejected(
                "wrong-type", "`take_open` is neither True nor False", hint="say take_open=True"
            )
        return await self.files.import_runs(path, take_open=take_open)

    async def backup(self, path: Path) -> None:
        await self._engine.store.backup(str(path))

    async def sign(self) -> int:
        return await self._engine.roots.make()

    async def audit(self, id: str | None) -> list[str]:
        """Chains and what stands beside the events; of all runs also the archives and, with a key, the roots."""
        engine = self._engine
        if id is not None:
            check_known(id)
        problems = await audit(engine.store, id)
        if id is None:
            problems += await self.files.verify()
            if engine.settings.audit_key is not None:
                problems += await check_roots(engine.store, engine.settings.audit_key)
        return problems


def check_known(id: Any) -> None:
    """An id that some run may have: a text that every store can look for."""
    if not _is_text(id):
        raise Rejected(
            "id-invalid",
            f"a {type(id).__name__} is given that cannot be the id of a run",
            hint="give the id as text; `penstock list` shows the runs",
        )


def _check_text(name: str, given: Any) -> None:
    if not _is_text(given):
        raise Rejected(
            "text-invalid",
            f"`{name}` is a {type(given).__name__} that is no text that can be kept",
            hint="give a text, without NUL or halves of surrogate pairs",
        )


def _is_text(given: Any) -> bool:
    if not isinstance(given, str) or "\0" in given:
        return False
    with suppress(UnicodeEncodeError):
        return given.isascii() or bool(given.encode())
    return False


def _check_list(name: str, given: Any) -> None:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise Rejected(
            "wrong-type", f"`{name}` is a {type(given).__name__}, not a list", hint="give a list"
        )


def _check_numbers(name: str, given: Sequence[Any]) -> None:
    if any(type(each) is not int or abs(each) >= 1 << 63 for each in given):
        raise Rejected("wrong-type", f"`{name}` is no number of an event", hint=SEE_HISTORY)
