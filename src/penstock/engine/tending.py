"""Records that must be looked at again: schedules, starts that wait (SPEC 4.6). Nothing polls.

A timer is armed for the moment a record is due, another process that changes one sends a hint (its kind, a newline, its id:
no run's id has a newline), and a slow look around is the net beneath. To tend a record must be safe at any time and twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.engine.records import tell
from penstock.errors import Busy, PenstockError, RevisionConflict, StoreCorrupt, StoreError
from penstock.ports.store import Record

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

Tend = Callable[[str], Awaitable[None]]

AGAIN_SECONDS = 0.5
AGAIN_SECONDS_MAX = 30.0
PAGE = 500
LOOK_ROUNDS = 2
"""The owner looks around every so many of its renewals, at one kind of record at a time."""


class Tending:
    """Whose a record is, is said by its kind."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tend: dict[str, Tend] = {}
        self._waits: dict[str, Callable[[Record], bool]] = {}
        self._whole = True
        """False while not all records were looked at since this process owns the database."""
        self._armed: dict[tuple[str, str], float] = {}
        self._busy: set[tuple[str, str]] = set()
        self._again: set[tuple[str, str]] = set()
        self._tries: dict[tuple[str, str], int] = {}
        self._rounds = 0

    def serve(
        self, kind: str, tend: Tend, *, waits: Callable[[Record], bool] | None = None
    ) -> None:
        """Tend records of that kind when they are due; `waits` tells which others are looked at by a new owner. Without
        it no timers are armed: they are found by the look around."""
        self._tend[kind] = tend
        if waits is not None:
            self._waits[kind] = waits

    # --- what the owner calls --------------------------------------------------------------------------------

    def owned(self) -> None:
        """This process owns the database from now on, and has not looked at anything yet."""
        self._whole = False

    async def take(self) -> None:
        """This process owns the database from now on: all records are looked at once."""
        self._armed.clear()
        self._whole = False
        now = self._engine.clock.now()
        for kind, waits in self._waits.items():
            after = ""
            while page := await self._engine.store.records(kind, after=after, limit=PAGE):
                after = page[-1].id
                for record in page:
                    if record.expires is not None:
                        continue
                    try:
                        at_once = waits(record) or (record.due is not None and record.due <= now)
                    except StoreCorrupt as error:
                        tell(record, error)  # it costs the others nothing
                        continue
                    if at_once:
                        self.look(kind, record.id)
                    else:
                        self.arm(kind, record.id, record.due)
                await asyncio.sleep(0)
        self._whole = True

    async def look_around(self) -> None:
        """The net: records that others wrote and whose hint was lost."""
        if not self._whole:
            await self.take()  # the store failed in the middle of it
        self._rounds += 1
        turn, rest = divmod(self._rounds, LOOK_ROUNDS)
        if rest or not self._tend:
            return
        kind = list(self._tend)[turn % len(self._tend)]
        now = self._engine.clock.now()
        for record in await self._engine.store.records_due(kind, until=now, limit=PAGE):
            self.look(kind, record.id)

    def heard(self, hint: str) -> bool:
        """A hint from another process, if it is about a record."""
        kind, newline, id = hint.partition("\n")
        if newline and kind in self._tend:
            self.look(kind, id)
        return bool(newline)

    # --- what those who tend call ----------------------------------------------------------------------------

    def look(self, kind: str, id: str) -> None:
        """Tend it now, in the background; if it is being tended already, once more after that."""
        engine, key = self._engine, (kind, id)
        if engine.owner is None or engine.stopping:
            return
        if key in self._busy:
            self._again.add(key)
            return
        self._busy.add(key)
        engine.errands.run(self._work(kind, id))

    async def _work(self, kind: str, id: str) -> None:
        key = (kind, id)
        try:
            await self._tend[kind](id)
            self._tries.pop(key, None)
        except StoreCorrupt as error:  # trying again makes it no better
            log.error("record.corrupt", extra={"kind": kind, "record": id, "error": str(error)})
        except (StoreError, Busy, RevisionConflict) as error:
            tries = self._tries[key] = self._tries.get(key, 0) + 1
            log.warning("record.again", extra={"kind": kind, "record": id, "error": str(error)})
            pause = min(AGAIN_SECONDS_MAX, AGAIN_SECONDS * 2 ** min(tries - 1, 10))
            self._engine.timers.after(pause, self.look, kind, id)
        except PenstockError as error:
            log.error("record.failed", extra={"kind": kind, "record": id, "error": str(error)})
        finally:
            self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.look(kind, id)

    def arm(self, kind: str, id: str, due: float | None) -> None:
        """Tend it then."""
        key = (kind, id)
        if due is None:
            self._armed.pop(key, None)
        elif self._engine.owner is not None and self._armed.get(key) != due:
            self._armed[key] = due
            self._engine.timers.add(due, self._due, kind, id, due)

    def _due(self, kind: str, id: str, due: float) -> None:
        if self._armed.get((kind, id)) == due:
            del self._armed[(kind, id)]
            self.look(kind, id)

    async def tell(self, kind: str, id: str) -> None:
        """It has changed: whoever owns the database looks at it, here or elsewhere."""
        engine = self._engine
        if engine.owner is not None:
            self.look(kind, id)
        elif engine.hints is not None:
            try:
                owner = await engine.store.owner()
            except StoreError:
                return  # a lost hint costs a moment
            if owner is not None and owner.address:
                engine.hints.tell(owner.address, f"{kind}\n{id}")
