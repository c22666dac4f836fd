"""Deletes what has been kept for long enough, in the background (SPEC 6.3): closed runs and expired records.

The owner alone does it, in small commits with a pause of the same length after each, so that others get their turn.
Nothing open is touched, and no closed child whose parent is open. A kill in between leaves whole runs, and events of
deleted runs that the next call of `purge` goes on with.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.errors import Fenced, StoreError
from penstock.model.codec import decode_definition
from penstock.policy.retention import keep_seconds, shortest
from penstock.ports.store import Row

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

SWEEP_SECONDS_MIN = 10.0
SWEEP_SECONDS_MAX = 3600.0
PAGE_RUNS = 500
COMMIT_EVENTS = 400
"""About 2 ms of SQLite (measured): what a start beside it has to wait for."""
RECORDS_AT_ONCE = 500


class Retention:
    """Sweeps when it is due; `sweep` does it now."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._next = 0.0
        self._turn = asyncio.Lock()
        self._looked = self._looking = 0.0
        """Seconds for the last page, and for all pages of a sweep on which nothing was due."""
        self._rules: dict[tuple[str, str], dict[str, object]] = {}
        self.counts = {"purged_runs": 0, "purged_events": 0, "expired_records": 0, "sweeps": 0}

    def tick(self) -> None:
        """Now and then, by the owner's slow timer."""
        engine = self._engine
        if engine.owner is None or engine.recovering or self._turn.locked():
            return
        now = engine.clock.now()
        if now >= self._next:
            self._next = now + SWEEP_SECONDS_MAX
            engine.errands.run(self._background())

    async def _background(self) -> None:
        try:
            await self.sweep()
        except Fenced as error:
            self._engine.lost_ownership(error)
        except StoreError as error:
            log.warning("retention.failed", extra={"error": str(error)})
            self._next = self._engine.clock.now() + SWEEP_SECONDS_MIN

    async def sweep(self) -> None:
        """One pass over all that is kept."""
        async with self._turn:
            clock, before = self._engine.clock, dict(self.counts)
            self._looking = 0.0
            await self._expire()
            earliest = await self._runs()
            self.counts["sweeps"] += 1
            # To look through many runs that are to be kept must not take more than a hundredth of the time.
            pause = min(SWEEP_SECONDS_MAX, max(SWEEP_SECONDS_MIN, 100 * self._looking))
            now = clock.now()
            wanted = now + SWEEP_SECONDS_MAX if earliest is None else earliest
            self._next = min(now + SWEEP_SECONDS_MAX, max(now + pause, wanted))
            gained = {name: count - before[name] for name, count in self.counts.items()}
            if gained["purged_runs"] or gained["expired_records"]:
                log.info("retention.swept", extra=gained)

    async def _expire(self) -> None:
        store, now = self._engine.store, self._engine.clock.now()
        while gone := await store.drop_expired(until=now, limit=RECORDS_AT_ONCE):
            self.counts["expired_records"] += gone
            if gone < RECORDS_AT_ONCE:
                return
            await asyncio.sleep(0)

    async def _runs(self) -> float | None:
        """Delete runs that are due; when the next one will be."""
        engine = self._engine
        await self._delete([])  # what an earlier sweep, or one that was cut off, has left
        youngest = await self._load_rules()
        if youngest is None:
            return None
        now, after = engine.clock.now(), 0
        earliest: float | None = None
        parents: dict[str, bool] = {}
        while rows := await self._page(after):
            after = rows[-1].key
            doomed: list[Row] = []
            for row in rows:
                due = self._due(row)
                if due is None:
                    continue
                if due <= now and not await self.is_needed(row, parents):
                    doomed.append(row)
                elif due > now:
                    earliest = due if earliest is None else min(earliest, due)
            if not doomed:
                self._looking += self._looked
            await self._delete(doomed)
            if rows[-1].created_at > now - youngest:
                # Keys rise as time does: all that follows is younger still.
                first = rows[-1].created_at + youngest
                return first if earliest is None else min(earliest, first)
            await asyncio.sleep(0)
        return earliest

    async def _page(self, after: int) -> list[Row]:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        rows = await self._engine.store.closed_runs(after=after, limit=PAGE_RUNS)
        self._looked = loop.time() - begun
        return rows

    def _due(self, row: Row) -> float | None:
        rules = self._rules.get((row.definition, row.version), {})
        kept = keep_seconds(rules, row.status, self._engine.settings.retention)
        return None if kept is None or row.ended_at is None else row.ended_at + kept

    async def is_needed(self, row: Row, parents: dict[str, bool]) -> bool:
        """A child whose parent is open may still be asked for."""
        if row.parent is None:
            return False
        id = row.parent.split("\n")[0]
        if id not in parents:
            parent = await self._engine.store.find(id)
            parents[id] = parent is not None and parent.open
        return parents[id]

    async def _load_rules(self) -> float | None:
        """The rules of all versions; how old the youngest run is that any of them deletes."""
        default = self._engine.settings.retention
        found = [] if default is None else [default]
        for row in await self._engine.store.definitions():
            key = row.id, row.version
            if key not in self._rules:
                self._rules[key] = decode_definition(row.document).retention
            least = shortest(self._rules[key], default)
            if least is not None:
                found.append(least)
        return min(found, default=None)

    async def _delete(self, rows: list[Row]) -> None:
        """In commits of about the same length, whatever the runs are like."""
        while True:
            keys: list[int] = []
            events = 0
            while rows and (not keys or events + rows[-1].revision <= COMMIT_EVENTS):
                row = rows.pop()
                events += row.revision
                keys.append(row.key)
            left = await self._purge(keys)
            if not rows and not left:
                return

    async def _purge(self, keys: list[int]) -> bool:
        """One commit; whether another is worth while."""
        engine, loop = self._engine, asyncio.get_running_loop()
        if engine.owner is None:
            raise StoreError("this process no longer owns the database; who does deletes")
        begun = loop.time()
        gone = await engine.store.purge(keys, token=engine.owner.token, limit=COMMIT_EVENTS)
        self.counts["purged_runs"] += gone.runs
        self.counts["purged_events"] += gone.events
        await asyncio.sleep(loop.time() - begun)
        return gone.again
