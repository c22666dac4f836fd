"""Singleton starts: at most one open run per key (SPEC 4.6).

A record names the run of a key by compare-and-set before it begins. Whoever finds that run missing (its starter died, or is
about to start it) starts it under that very id, so that two starters make one run; whoever finds it closed names the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.engine import points
from penstock.engine.debounce import check_key
from penstock.engine.records import read, written
from penstock.engine.schedules import TRIES_MAX
from penstock.errors import Busy, Rejected, RevisionConflict
from penstock.model.schedule import SINGLETON, SINGLETON_DECODER, Held
from penstock.ports.store import Record

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

LOOK_SECONDS = 3_600.0
"""How long after its start a key's record is looked at, and taken away if its run is closed."""


class Singletons:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.tending.serve(SINGLETON, self.tend)

    async def start(
        self, key: str, id: str, attach: bool, begin: Callable[[str], Awaitable[str]]
    ) -> str:
        """The id of the key's open run: begun now under `id`, or the one that was there."""
        check_key(key)
        engine = self._engine
        for _ in range(TRIES_MAX):
            record = await engine.store.record(SINGLETON, key)
            if record is not None and record.expires is None:
                named = read(SINGLETON_DECODER, record).run
                row = await engine.store.find(named)
                if row is None:
                    return await self._begin(key, named, attach, begin)
                if row.open:
                    return _there(key, named, attach)
            wanted = Record(
                kind=SINGLETON, id=key, value=written(SINGLETON_DECODER, Held(key, id)),
                revision=0 if record is None else record.revision, due=engine.clock.now() + LOOK_SECONDS,
            )  # fmt: skip
            kept = (await engine.store.put([wanted]))[0]
            if not isinstance(kept, RevisionConflict):
                if points.reach is not None:
                    points.reach("singleton.named")
                return await self._begin(key, id, attach, begin)
        raise Busy(f"key `{key}` is written to without end", hint="try again in a moment")

    async def _begin(
        self, key: str, id: str, attach: bool, begin: Callable[[str], Awaitable[str]]
    ) -> str:
        try:
            return await begin(id)
        except Rejected as error:
            if error.code != "id-taken":
                raise
            return _there(key, id, attach)  # another was a moment faster, with another input

    async def tend(self, key: str) -> None:
        """Take the record away once its run is closed; found by the look around, never by a timer."""
        engine = self._engine
        record = await engine.store.record(SINGLETON, key)
        if record is None or record.expires is not None:
            return
        row = await engine.store.find(read(SINGLETON_DECODER, record).run)
        now = engine.clock.now()
        closed = row is not None and not row.open
        wanted = Record(
            kind=SINGLETON, id=key, value=record.value, revision=record.revision,
            due=None if closed else now + LOOK_SECONDS, expires=now + LOOK_SECONDS if closed else None,
        )  # fmt: skip
        await engine.store.put([wanted])


def _there(key: str, id: str, attach: bool) -> str:
    if attach:
        return id
    raise Rejected(
        "singleton-open",
        f"run {id} of key `{key}` is open",
        hint="wait for its end, or attach to it",
    )
