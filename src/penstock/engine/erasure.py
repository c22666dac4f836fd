"""Erases payloads of closed runs for good; their chains still check (SPEC 6.3).

Who and why is recorded first, then the bytes go, in one commit a run. A kill in between leaves the record: `audit` says
that the erasure was not finished, and erasing again finishes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from penstock.core.functions import FUNCTION
from penstock.engine.bundle import WholeRun
from penstock.errors import NotFound, Rejected, RevisionConflict
from penstock.model.codec import decode_event
from penstock.model.erasure import scrubbed
from penstock.model.events import Event
from penstock.model.packing import erased, is_erased
from penstock.ports.store import Record, Row, Store, Stored

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

KIND = "erasure"


async def erase(
    engine: Engine,
    id: str,
    *,
    by: str,
    reason: str,
    tasks: Sequence[str] | None = None,
    events: Sequence[int] | None = None,
) -> int:
    """Of a whole run with all its generations, or of some tasks or events of its newest; how many events it was."""
    if not by or not reason:
        raise Rejected(
            "who-missing",
            "to erase, say who does it and why",
            hint="by=…, reason=…: it is recorded, as it cannot be undone",
        )
    newest = await engine.store.find(id)
    if newest is None:
        raise NotFound(f"no run {id}", hint="`penstock list` shows the runs")
    whole = tasks is None and events is None
    rows = [newest]
    if whole:
        for generation in range(newest.generation - 1, 0, -1):
            older = await engine.store.find(id, generation)
            rows += [] if older is None else [older]
    if any(row.open for row in rows):
        raise Rejected(
            "run-open",
            f"run {id} is open: what it holds may still be needed",
            hint="cancel or terminate it first",
        )
    count = 0
    for row in rows:
        stored = await engine.store.events(row.key)
        wanted = stored if whole else _chosen(row, stored, tasks or (), events or ())
        count += await _erase(engine, row, wanted, by=by, reason=reason, whole=whole)
    return count


SEE_HISTORY = "`penstock history` shows the events of a run, with their numbers and tasks"


def _chosen(
    row: Row, stored: Sequence[Stored], tasks: Sequence[str], seqs: Sequence[int]
) -> list[Stored]:
    for seq in seqs:
        if not 1 <= seq <= row.revision:
            raise NotFound(
                f"run {row.id} has events 1 to {row.revision}, not {seq}", hint=SEE_HISTORY
            )
    decoded = {each.seq: decode_event(each.payload) for each in stored}
    for task in tasks:
        if not any(_is_of(event, task) for event in decoded.values()):
            raise NotFound(f"run {row.id} has no event of task `{task}`", hint=SEE_HISTORY)
    return [
        each
        for each in stored
        if each.seq in seqs or any(_is_of(decoded[each.seq], task) for task in tasks)
    ]


def _is_of(event: Event, task: str) -> bool:
    key = getattr(event, "key", None)
    return isinstance(key, str) and (key == task or key.startswith((f"{task}[", f"{task}/")))


async def _erase(
    engine: Engine, row: Row, wanted: Sequence[Stored], *, by: str, reason: str, whole: bool
) -> int:
    left = [each for each in wanted if not is_erased(each.payload)]
    if not left and not (whole and row.attributes != b"{}"):
        return 0
    act = {
        "by": by,
        "reason": reason,
        "at": engine.clock.now(),
        "events": [each.seq for each in left],
        "run": (await engine.store.events(row.key, limit=1))[0].hash.hex(),
    }
    payloads: dict[int, bytes] = {}
    blobs: list[bytes] = []
    for each in left:
        event = decode_event(each.payload)
        payloads[each.seq] = erased(each.payload, scrubbed(event, function=row.version == FUNCTION))
        blobs += [bytes.fromhex(digest) for digest, _ in event.beside.values()]
    await _record(engine.store, row, act)
    await engine.store.erase(row.key, payloads, blobs=blobs, attributes=whole)
    return len(left)


def record_id(row: Row) -> str:
    return f"{row.id}/{row.generation}"


async def _record(store: Store, row: Row, act: dict[str, Any]) -> None:
    while True:
        there = await store.record(KIND, record_id(row))
        before: list[Any] = [] if there is None else msgspec.json.decode(there.value)
        wanted = Record(
            KIND,
            record_id(row),
            msgspec.json.encode([*before, act]),
            0 if there is None else there.revision,
        )
        (outcome,) = await store.put([wanted])
        if not isinstance(outcome, RevisionConflict):
            return


async def acts(store: Store, row: Row, events: Sequence[Stored]) -> list[dict[str, Any]]:
    """Who erased what of a run, when and why; not of an earlier run of the same id, which is gone."""
    there = await store.record(KIND, record_id(row))
    if there is None or not events:
        return []
    found: list[dict[str, Any]] = msgspec.json.decode(there.value)
    first = events[0].hash.hex()
    return [
        act
        for act in found
        if (act["run"] == first if "run" in act else act["at"] >= row.created_at)
    ]


async def applied(store: Store, whole: WholeRun) -> WholeRun:
    """A run out of a file that may be older than an erasure: without what was erased."""
    wanted = {n for act in await acts(store, whole.row, whole.events) for n in act["events"]}
    if not wanted:
        return whole
    events: list[Stored] = []
    gone: set[bytes] = set()
    for each in whole.events:
        if each.seq in wanted and not is_erased(each.payload):
            event = decode_event(each.payload)
            gone |= {bytes.fromhex(digest) for digest, _ in event.beside.values()}
            each = replace(
                each,
                payload=erased(
                    each.payload, scrubbed(event, function=whole.row.version == FUNCTION)
                ),
            )
        events.append(each)
    row = whole.row
    if len(wanted) >= row.revision:
        row = replace(row, attributes=b"{}")
    blobs = {digest: raw for digest, raw in whole.blobs.items() if digest not in gone}
    return WholeRun(row, events, blobs)
