"""What runs publish leaves by following the log: after it is on disk, in its order, from a position of its own (SPEC 7.3).

The owner reads what was written since the last position only if somebody subscribes here or some run waits for an event;
otherwise there is nobody to tell, and the position moves on by itself. It is stored every other second, so that after a
kill the runs that wait are offered what they may have missed; what they had before they know by its id.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from penstock.engine import points
from penstock.errors import Busy, RevisionConflict, StoreError
from penstock.model.codec import decode_event
from penstock.model.envelope import RUN, Envelope
from penstock.model.events import Published, RunReset
from penstock.policy.topics import is_topic
from penstock.ports.bus import DeadLetter
from penstock.ports.store import Record, Row, Stored

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

KIND, ID = "outbox", "bus"
PAGE = 1000
AGAIN_SECONDS = 0.5
END_SECONDS_MAX = 1.0
BEHIND_MAX = 50_000
"""Events that a new owner may have to read, though none of them was published."""


class Outbox:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._position = 0
        """All that was published up to here is handed on."""
        self._saved = 0
        self._revision = 0
        self._woken = False
        self._spoke = False
        """Something was published since the position was stored."""
        self._copies = (0, 0)
        """A generation, and the place of its reset: what stands before is copied."""
        self._task: asyncio.Task[None] | None = None

    # --- when ------------------------------------------------------------------------------------------------

    async def own(self, head: int) -> None:
        """This process owns the database: go on where the owner before was."""
        engine = self._engine
        record = await engine.store.record(KIND, ID)
        if record is None:
            self._position, self._revision, self._saved = head, 0, -1
            await self.save()
        else:
            self._position = self._saved = min(head, msgspec.json.decode(record.value, type=int))
            self._revision = record.revision
        if self._position < head:
            self.wake()

    def wake(self) -> None:
        """Something may have been published."""
        self._woken = self._spoke = True
        if self._task is None and self._engine.owner is not None and not self._engine.stopping:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="penstock.outbox")

    def quiet(self) -> bool:
        return self._task is None

    async def tick(self) -> None:
        """Now and then: remember how far we are."""
        if not self._woken and self._task is None:
            self._position = max(self._position, self._engine.position)
        behind = self._position - self._saved
        if behind and (self._spoke or self._engine.routing or behind > BEHIND_MAX):
            self._spoke = False
            await self.save()

    async def save(self) -> None:
        raw = msgspec.json.encode(self._position)
        (put,) = await self._engine.store.put([Record(KIND, ID, raw, self._revision)])
        if isinstance(put, RevisionConflict):
            record = await self._engine.store.record(KIND, ID)
            self._revision = 0 if record is None else record.revision
            return
        self._revision, self._saved = put.revision, self._position
        if points.reach is not None:
            points.reach("outbox.saved")

    async def close(self) -> None:
        """Hand on what there is, and remember how far we are."""
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=END_SECONDS_MAX)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._engine.owner is not None and self._engine.broken is None:
            try:
                await self.tick()
            except StoreError as error:
                log.warning("outbox.unsaved", extra={"error": str(error)})

    # --- what ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        engine = self._engine
        try:
            while self._woken and engine.owner is not None:
                self._woken = False
                if not engine.routing and not engine.bus.status().subscribers:
                    self._position = max(self._position, engine.position)
                    continue
                try:
                    while await self._page() == PAGE:
                        pass
                except (StoreError, Busy, RevisionConflict) as error:
                    log.warning("outbox.behind", extra={"error": str(error)})
                    self._woken = True
                    await engine.clock.sleep(AGAIN_SECONDS)
        finally:
            self._task = None

    async def _page(self) -> int:
        engine = self._engine
        page = await engine.store.follow(after=self._position, limit=PAGE)
        told = [(each, event) for each in page if (event := _published(each)) is not None]
        if told:
            await engine.until_recovered()
            rows = await engine.store.find_many(list({each.key for each, _ in told}))
            if points.reach is not None:
                points.reach("outbox.before")
            for stored, event in told:
                row = rows.get(stored.key)
                if row is not None and not await self._copied(row, stored.seq):
                    await self._hand_on(envelope_of(row, stored.seq, event))
        if page:
            self._position = page[-1].position
        return len(page)

    async def _hand_on(self, envelope: Envelope) -> None:
        engine = self._engine
        if not is_topic(envelope.topic):
            said = f"`{envelope.topic:.80}` is no topic"
            engine.bus.bury(DeadLetter(envelope, "", said, 0, engine.clock.now()))
            return
        await engine.routing.deliver(envelope)
        await engine.bus.publish(envelope, wait=False)

    async def _copied(self, row: Row, seq: int) -> bool:
        """It was published by the generation before, of which this one is a copy up to a point (decision 10)."""
        if row.generation == 1:
            return False
        if self._copies[0] != row.key:
            to = 0
            for stored in await self._engine.store.events(row.key):
                event = decode_event(stored.payload)
                if isinstance(event, RunReset):
                    to = stored.seq
            self._copies = (row.key, to)
        return seq < self._copies[1]


def _published(stored: Stored) -> Published | None:
    payload = stored.payload
    if payload.startswith(b"{") and b'"published"' not in payload[:60]:
        return None  # its tag comes first
    event = decode_event(payload)
    gone = event.beside or event.erased  # too large for the bus, or nobody's any more
    return event if isinstance(event, Published) and not gone else None


def envelope_of(row: Row, seq: int, event: Published) -> Envelope:
    return Envelope(
        id=f"{row.id}/{row.generation}/{seq}",
        topic=event.topic,
        type=event.topic,
        time=event.at,
        source=f"run:{row.id}/{event.key}",
        raw=event.payload,
        metadata={RUN: row.id, "definition": row.definition},
    )
