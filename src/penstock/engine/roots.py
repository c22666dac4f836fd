"""Signed roots: what the heads of all histories were at a time, so that whoever changes one later is found (SPEC 6.3).

A chain alone does not help against somebody who writes a whole history anew: its hashes fit. A root names the heads of
all runs that changed since the root before, and is signed with a key that the database does not have. Kept as records.

Old roots go once they say nothing that is still to be checked: each of their runs is gone, or a later root has it. A root
says which is the oldest that is left, and those before it go only after that is stored: who deletes others is found.
"""

from __future__ import annotations

import hmac
import logging
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from penstock.errors import PenstockError, Rejected, RevisionConflict
from penstock.ports.store import Record, Store, Stored

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

KIND = "root"
EVENTS_MAX = 20_000
"""A root covers so many events at most; then comes the next one."""
PAGE = 1000
DROP_MAX = 50
"""So many old roots are looked at with each new one, at most."""


class Head(Struct, frozen=True, array_like=True):
    id: str
    generation: int
    revision: int
    hash: bytes


class Root(Struct):
    number: int
    at: float
    after: int
    """The position up to which the root before went."""
    position: int
    previous: bytes
    """The signature of the root before."""
    heads: list[Head]
    signature: bytes = b""
    oldest: int = 1
    """The number of the oldest root that is still to be there."""

    def signed(self, key: bytes) -> bytes:
        fields = asdict(replace(self, signature=b""))
        if self.oldest == 1:
            del fields["oldest"]  # as it was signed before there was such a field
        body = msgspec.json.encode(fields)
        return hmac.new(key, sha256(body).digest(), sha256).digest()


class Roots:
    """Makes a root now and then, as the owner, if there is a key."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._next = 0.0
        self.count = 0

    def tick(self) -> None:
        engine = self._engine
        now = engine.clock.now()
        if engine.settings.audit_key is not None and engine.owner is not None and now >= self._next:
            self._next = now + engine.settings.roots_every
            engine.errands.run(self._background())

    async def _background(self) -> None:
        try:
            await self.make()
        except PenstockError as error:  # the next time is soon enough
            log.warning("roots.failed", extra={"error": str(error)})

    async def make(self) -> int:
        """Sign all that is new since the last root; how many roots that took."""
        engine, key = self._engine, self._engine.settings.audit_key
        if key is None:
            raise Rejected(
                "audit-key-missing", "to sign roots takes a key", hint="Settings(audit_key=…)"
            )
        made, last = 0, await _newest(engine.store)
        while True:
            after = 0 if last is None else last.position
            events = await _events(engine.store, after)
            if not events:
                return made
            last = Root(
                number=1 if last is None else last.number + 1, at=engine.clock.now(), after=after,
                position=events[-1].position, previous=b"" if last is None else last.signature,
                heads=await _heads(engine.store, events), oldest=await _oldest(engine.store, last),
            )  # fmt: skip
            last.signature = last.signed(key)
            record = Record(KIND, _id(last.number), msgspec.json.encode(last))
            (outcome,) = await engine.store.put([record])
            if isinstance(outcome, RevisionConflict):
                return made  # another process was at it
            made += 1
            self.count += 1
            await _drop_before(engine.store, last.oldest)


async def _events(store: Store, after: int) -> list[Stored]:
    events: list[Stored] = []
    while page := await store.follow(after=after, limit=PAGE):
        events += page
        after = page[-1].position
        if len(events) >= EVENTS_MAX:
            break
    return events


async def _heads(store: Store, events: list[Stored]) -> list[Head]:
    newest = {each.key: each for each in events}
    rows = await store.find_many(list(newest))
    return [
        Head(rows[key].id, rows[key].generation, each.seq, each.hash)
        for key, each in newest.items()
        if key in rows
    ]


async def roots(store: Store) -> list[Root]:
    """All of them, oldest first."""
    found: list[Record] = []
    while page := await store.records(KIND, after=found[-1].id if found else "", limit=100):
        found += page
    return [msgspec.json.decode(each.value, type=Root) for each in found]


async def _oldest(store: Store, newest: Root | None) -> int:
    """From which root on they are still needed, looked at from the oldest on, so that no gaps arise."""
    if newest is None:
        return 1
    number = newest.oldest
    while number < min(newest.number, newest.oldest + DROP_MAX):
        record = await store.record(KIND, _id(number))
        if record is not None:
            root = msgspec.json.decode(record.value, type=Root)
            for head in root.heads:
                row = await store.find(head.id, head.generation)
                later = row is None or row.revision > head.revision
                if not later or (row is not None and row.position > newest.position):
                    return number
        number += 1
    return number


async def _drop_before(store: Store, oldest: int) -> None:
    """All at once, so that those that stay have no gaps; cut off before, the next root takes it up."""
    gone: list[str] = []
    while page := await store.records(KIND, after=gone[-1] if gone else "", limit=20):
        old = [each.id for each in page if int(each.id) < oldest]
        gone += old
        if len(old) < len(page):
            break
    if gone:
        await store.drop(KIND, gone)


def _id(number: int) -> str:
    return f"{number:012d}"


async def _newest(store: Store) -> Root | None:
    first = await store.records(KIND, limit=1)
    if not first:
        return None
    # From here on numbers have no gaps, so that the newest is found by doubling and halving.
    low, step = int(first[0].id), 1
    while await store.record(KIND, _id(low + step)) is not None:
        low, step = low + step, 2 * step
    high = low + step
    while low + 1 < high:
        middle = (low + high) // 2
        if await store.record(KIND, _id(middle)) is None:
            high = middle
        else:
            low = middle
    record = await store.record(KIND, _id(low))
    return None if record is None else msgspec.json.decode(record.value, type=Root)


async def check(store: Store, key: bytes) -> list[str]:
    """What is not as the roots say; runs that were deleted or archived since are not looked for."""
    problems: list[str] = []
    previous: Root | None = None
    found = await roots(store)
    sound = {
        root.number: root for root in found if hmac.compare_digest(root.signature, root.signed(key))
    }
    oldest = sound[max(sound)].oldest if sound else 1
    for root in found:
        name = f"root {root.number}"
        if root.number < oldest:
            continue  # about to be deleted
        if root.number not in sound:
            problems.append(f"{name}: its signature is not of this key")
            previous = root
            continue
        if previous is None:
            follows = root.number == oldest and (oldest > 1 or root.previous == b"")
        else:
            follows = (root.number, root.previous) == (previous.number + 1, previous.signature)
        if not follows:
            problems.append(f"{name}: the root before it is missing or another")
        for head in root.heads:
            problem = await _differs(store, root, head)
            if problem is not None:
                problems.append(f"{problem}, as {name} says")
        previous = root
    if previous is not None and await store.head() < previous.position:
        problems.append(
            f"the store ends before root {previous.number}: an older copy is in its place"
        )
    return problems


async def _differs(store: Store, root: Root, head: Head) -> str | None:
    row = await store.find(head.id, head.generation)
    if row is None:
        return None
    if row.created_at > root.at:
        first = await store.events(row.key, limit=1)
        if first and first[0].position > root.position:
            return None  # the run that the root names is gone, and its id was used again
    if row.revision < head.revision:
        return f"run {head.id}: it has {row.revision} events, but had {head.revision}"
    found = await store.events(row.key, after=head.revision - 1, limit=1)
    if not found or found[0].hash != head.hash:
        return f"run {head.id}: its history up to event {head.revision} is not what it was"
    return None
