"""Bus events to the runs that wait for them (SPEC 2.2 `event`): in a run's history before anybody is told that it arrived.

The owner knows which open runs wait for which topics, from their state. What another process publishes, and batches, are
kept as a record first, which the owner works off: all of a batch, in order, or, after a kill, all of it again. A run takes an
event once, by its id.

What a kill does: before the append, the publisher was not answered and publishes again; after it, the event is in the
history of the run, and the repeat changes nothing. With a record: before it is stored, as above; after, the next owner
finds it; after the runs have it and before it is dropped, they are offered it again, and know its id.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.engine import points
from penstock.engine.records import read
from penstock.errors import Busy, NotFound, PenstockError, Rejected, RevisionConflict, StoreError
from penstock.model import commands as c
from penstock.model.envelope import BATCH, ENCODER, Envelope
from penstock.model.run import Run
from penstock.policy.topics import has_wildcard, topic_matches
from penstock.ports.bus import DeadLetter
from penstock.ports.store import Record

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

KIND = "bus"
PAGE = 100
SLOW = (StoreError, Busy, RevisionConflict)
"""Errors that say nothing of the run: the same may be done a little later."""


class Routing:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._topics: dict[str, dict[str, None]] = {}
        """Runs that wait for a topic, in the order in which they began to."""
        self._patterns: dict[str, dict[str, None]] = {}
        self._runs: dict[str, frozenset[str]] = {}
        self._turn = asyncio.Lock()
        engine.tending.serve(KIND, self._tend, waits=lambda _: True)

    def __bool__(self) -> bool:
        """Some run waits for an event, or may."""
        return bool(self._runs) or self._engine.recovering

    # --- who waits -------------------------------------------------------------------------------------------

    def clear(self) -> None:
        self._topics.clear()
        self._patterns.clear()
        self._runs.clear()

    def seen(self, run: Run) -> None:
        """What the run waits for now, as it is on disk."""
        before = self._runs.get(run.id, frozenset[str]())
        wanted = frozenset(run.listening.values())
        if wanted == before:
            return
        for topic in sorted(before - wanted):
            held = self._held(topic)
            held[topic].pop(run.id, None)
            if not held[topic]:
                del held[topic]
        for topic in sorted(wanted - before):
            self._held(topic).setdefault(topic, {})[run.id] = None
        if wanted:
            self._runs[run.id] = wanted
        else:
            self._runs.pop(run.id, None)

    def _held(self, topic: str) -> dict[str, dict[str, None]]:
        return self._patterns if has_wildcard(topic) else self._topics

    def waiting(self, topic: str) -> list[str]:
        """Runs that wait for what is published there."""
        found = dict(self._topics.get(topic, {}))
        for pattern, runs in self._patterns.items():
            if topic_matches(pattern, topic):
                found.update(runs)
        return list(found)

    # --- what is published -----------------------------------------------------------------------------------

    async def take(self, envelopes: Sequence[Envelope]) -> None:
        """On return whatever belongs to a run is on disk: in its history, or as a record for the owner."""
        engine = self._engine
        here = engine.owner is not None and not engine.recovering
        if here and not any(self.waiting(each.topic) for each in envelopes):
            return
        if here and len(envelopes) == 1:
            await self.deliver(envelopes[0])
            return
        now = engine.clock.now()
        record = Record(
            KIND, f"{now:018.6f}-{uuid.uuid4().hex}", ENCODER.encode(list(envelopes)), due=0.0
        )
        (put,) = await engine.store.put([record])
        if isinstance(put, RevisionConflict):
            raise put
        if points.reach is not None:
            points.reach("route.kept")
        await engine.tending.tell(KIND, record.id)

    async def look_around(self) -> None:
        """As the owner, while runs wait: what others kept and whose hint was lost, as that of a process that ends at once."""
        if self._runs:
            now = self._engine.clock.now()
            for record in await self._engine.store.records_due(KIND, until=now, limit=1):
                self._engine.tending.look(KIND, record.id)

    async def deliver(self, envelope: Envelope) -> None:
        """Offer it to all runs that wait for its topic; on disk on return. StoreError, Busy: not all have it."""
        runs = self.waiting(envelope.topic)
        if not runs:
            return
        if points.reach is not None:
            points.reach("route.before")
        answers = await asyncio.gather(
            *(self._offer(run_id, envelope) for run_id in runs), return_exceptions=True
        )
        if points.reach is not None:
            points.reach("route.after")
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _offer(self, run_id: str, envelope: Envelope) -> None:
        engine = self._engine
        command = c.OfferEvent(
            at=engine.clock.now(), id=envelope.id, topic=envelope.topic, kind=envelope.type, source=envelope.source,
            run=envelope.run, data=bytes(envelope.raw),
        )  # fmt: skip
        try:
            await engine.command(run_id, command)
        except SLOW:
            raise
        except (Rejected, NotFound) as error:
            if error.code == "event-unfit":
                letter = DeadLetter(envelope, f"run:{run_id}", str(error), 1, engine.clock.now())
                engine.bus.bury(letter)
        except PenstockError as error:
            log.error("route.failed", extra={"run": run_id, "error": str(error)})

    async def _tend(self, id: str) -> None:
        """Work off what was kept, in order; those published first come first, whichever was asked for."""
        engine = self._engine
        async with self._turn:
            await engine.until_recovered()
            while page := await engine.store.records(KIND, limit=PAGE):
                for record in page:
                    if engine.owner is None:
                        return
                    envelopes = read(BATCH, record)
                    for envelope in envelopes:
                        await self.deliver(envelope)
                    await engine.store.drop(KIND, [record.id])
                    if points.reach is not None:
                        points.reach("route.dropped")
                    await engine.bus.publish_batch(envelopes, wait=False)
