"""Do the histories still say what they said? The hash chain of every run against its stored bytes (SPEC 6.3)."""

from __future__ import annotations

from typing import Any

from penstock.engine.erasure import acts
from penstock.errors import NotFound
from penstock.model.chain import link, prefix
from penstock.model.codec import decode_event
from penstock.model.packing import digest_of, is_erased
from penstock.ports.store import Query, Row, Store, Stored

PAGE = 200
_BESIDE = b'"beside"'


async def audit(store: Store, id: str | None = None) -> list[str]:
    """What does not fit together, run by run and event by event; empty if all is well."""
    if id is not None:
        row = await store.find(id)
        if row is None:
            raise NotFound(f"no run {id}", hint="`penstock list` shows the runs")
        return await _run(store, row)
    problems: list[str] = []
    after: int | None = None
    while rows := await store.list(Query(after=after, limit=PAGE)):
        for row in rows:
            problems.extend(await _run(store, row))
        after = rows[-1].key
    return problems


async def _run(store: Store, row: Row) -> list[str]:
    head = prefix(row.id, row.generation)
    previous, seq = b"", 0
    events = await store.events(row.key)
    recorded = {n for act in await acts(store, row, events) for n in act["events"]}
    for stored in events:
        seq += 1
        if stored.seq != seq:
            return [f"run {row.id}: event {seq} is missing"]
        found: list[Any] = [stored.payload, stored.hash]  # changed by hand they may be anything
        whole = all(isinstance(each, bytes) for each in found)
        previous = link(previous, head, seq, stored.payload) if whole else b""
        if not whole or previous != stored.hash:
            return [f"run {row.id}: event {seq} is not what was written"]
        if is_erased(stored.payload) != (seq in recorded):
            if seq in recorded:
                return [f"run {row.id}: the erasure of event {seq} was not finished; do it again"]
            return [f"run {row.id}: event {seq} was erased, and nothing says by whom"]
        if problem := await _beside(store, row, stored):
            return [problem]
    if seq != row.revision:
        return [f"run {row.id}: its row says {row.revision} events, its history has {seq}"]
    if previous != row.hash:
        return [f"run {row.id}: the head of its chain is not what its row says"]
    return []


async def _beside(store: Store, row: Row, stored: Stored) -> str | None:
    """Is what the event names beside it still there, byte for byte?"""
    if len(stored.payload) < len(_BESIDE) or (
        _BESIDE not in stored.payload and stored.payload.startswith(b"{")
    ):
        return None
    for digest, _ in decode_event(stored.payload).beside.values():
        found = await store.blobs(row.key, [bytes.fromhex(digest)])
        if not found:
            return f"run {row.id}: a payload of event {stored.seq} is missing"
        if any(digest_of(each) != wanted for wanted, each in found.items()):
            return f"run {row.id}: a payload of event {stored.seq} is not what was written"
    return None
