"""A Run from its snapshot and tail, in bulk; values that left the memory, by reference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.owed import leaves, references
from penstock.core.plan import NeedPlan, Plan
from penstock.core.program import Program
from penstock.core.values import decode
from penstock.errors import StoreCorrupt, StoreError
from penstock.model.chain import link, prefix
from penstock.model.codec import Beside, decode_event, decode_run, value_at
from penstock.model.packing import digest_of, unpack
from penstock.model.run import REF_SHIFT, Ref, Run
from penstock.ports.store import Row, RunKey, Snapshot, Stored


class Entry:
    """A run in memory, as far as it is on disk (or about to be)."""

    __slots__ = (
        "armed", "attributes", "flow", "hash", "program", "row", "snapshot_at", "snapshot_bytes", "tail", "tail_bytes",
    )  # fmt: skip

    def __init__(self, flow: Flow, row: Row) -> None:
        self.flow, self.row = flow, row
        self.hash = row.hash
        self.attributes = flow.run.attributes
        """As the row has them; a change makes another mapping."""
        self.armed: float | None = None
        """When the timers will wake it."""
        self.program: Program | None = None
        """Of a workflow function: what `engine/programs.py` keeps of it."""
        self.tail = self.tail_bytes = self.snapshot_bytes = 0
        self.snapshot_at = row.created_at


class Source(Protocol):
    """Where histories are read from: a store, or an archived run."""

    async def events(
        self, key: RunKey, *, after: int = 0, limit: int | None = None
    ) -> list[Stored]: ...

    async def events_many(self, keys: Mapping[RunKey, int]) -> dict[RunKey, list[Stored]]: ...

    async def payloads(self, key: RunKey, seqs: Sequence[int]) -> dict[int, bytes]: ...

    async def blobs(self, key: RunKey, digests: Sequence[bytes]) -> dict[bytes, bytes]: ...

    async def snapshots_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Snapshot]: ...


class History:
    """Loads runs; `plans` gives the plan of a version, from memory or from the store."""

    def __init__(self, store: Source, plans: Callable[[str, str], Any]) -> None:
        self._store = store
        self._plans = plans

    async def load(self, rows: Iterable[Row]) -> dict[str, Entry | Exception]:
        """Each run by its id; a history that cannot be read harms only its own run."""
        by_key = {row.key: row for row in rows}
        snapshots = await self._store.snapshots_many(list(by_key))
        tails = await self._store.events_many(
            {key: snapshots[key].revision if key in snapshots else 0 for key in by_key}
        )
        loaded: dict[str, Entry | Exception] = {}
        for key, row in by_key.items():
            try:
                plan: Plan = await self._plans(row.definition, row.version)
                snapshot, tail = snapshots.get(key), tails.get(key, [])
                if snapshot is not None and not follows(row, snapshot, tail):
                    snapshot, tail = None, await self._store.events(key)
                entry = await self._fold(row, plan, snapshot, tail)
                wanted = references(entry.flow.run)
                if wanted:
                    await self.bring(entry.flow, row.key, wanted)
            except Exception as error:
                if isinstance(error, StoreError) and not isinstance(error, StoreCorrupt):
                    raise  # busy, full, out of reach: that says nothing of the run
                loaded[row.id] = error
                continue
            loaded[row.id] = entry
        return loaded

    async def _fold(
        self, row: Row, plan: Plan, snapshot: Snapshot | None, tail: Sequence[Stored]
    ) -> Entry:
        """One that was migrated goes through several versions; each is compiled when it is come to."""
        while True:
            try:
                return fold(row, plan, snapshot, tail)
            except NeedPlan as need:
                await self._plans(row.definition, need.version)

    async def bring(self, flow: Flow, key: RunKey, refs: set[int]) -> None:
        """Load the values behind references and hold them in memory."""
        for ref, raw in (await self._raws(key, refs)).items():
            flow.hold(ref, decode(raw), len(raw))

    async def value(self, key: RunKey, ref: Ref) -> Any:
        """The value behind a reference, loaded for this once."""
        refs: set[int] = set()
        leaves(ref, refs)
        refs.discard(0)
        raws = await self._raws(key, refs)
        return _filled(ref, {each: decode(raw) for each, raw in raws.items()})

    async def raw(self, key: RunKey, ref: int) -> bytes:
        """The JSON behind one reference."""
        return (await self._raws(key, {ref}))[ref]

    async def _raws(self, key: RunKey, refs: set[int]) -> dict[int, bytes]:
        """From the events, or from beside them."""
        seqs = sorted({ref >> REF_SHIFT for ref in refs})
        payloads: dict[int, bytes] = {}
        for start in range(0, len(seqs), 5000):
            payloads.update(await self._store.payloads(key, seqs[start : start + 5000]))
        found: dict[int, bytes] = {}
        for ref in refs:
            payload = payloads.get(ref >> REF_SHIFT)
            if payload is None:
                raise StoreCorrupt(f"event {ref >> REF_SHIFT} of run {key} is missing")
            raw = value_at(payload, ref)
            found[ref] = await self._beside(key, raw) if isinstance(raw, Beside) else raw
        return found

    async def _beside(self, key: RunKey, where: Beside) -> bytes:
        stored = (await self._store.blobs(key, [where.digest])).get(where.digest)
        if stored is None:
            raise StoreCorrupt(f"a payload of run {key} is missing: {where.digest.hex()}")
        return await asyncio.to_thread(_checked, key, stored, where)  # it is large


def _checked(key: RunKey, stored: bytes, where: Beside) -> bytes:
    if digest_of(stored) != where.digest:
        raise StoreCorrupt(f"a payload of run {key} is damaged: {where.digest.hex()}")
    return unpack(stored)


def follows(row: Row, snapshot: Snapshot, tail: Sequence[Stored]) -> bool:
    """The snapshot stands where the chain of the run's events says it does."""
    if not tail:
        return snapshot.hash == row.hash
    first = tail[0]
    head = prefix(row.id, row.generation)
    return link(snapshot.hash, head, first.seq, first.payload) == first.hash


def fold(row: Row, plan: Plan, snapshot: Snapshot | None, tail: Sequence[Stored]) -> Entry:
    """The run as its events say; StoreCorrupt if one is missing."""
    run = Run(id=row.id) if snapshot is None else decode_run(snapshot.state)
    if snapshot is not None and run.version != row.version:
        plan = plan.of(run.version)  # it was migrated since
    flow = Flow(run, plan)
    size = 0
    for stored in tail:
        if stored.seq != run.revision + 1:
            raise StoreCorrupt(f"run {row.id}: event {run.revision + 1} is missing")
        evolve(flow, decode_event(stored.payload))
        size += len(stored.payload)
    if run.revision < row.revision:
        raise StoreCorrupt(f"run {row.id}: events {run.revision + 1} to {row.revision} are missing")
    flow.effects = []
    entry = Entry(flow, row)
    if tail:
        entry.hash = tail[-1].hash
    elif snapshot is not None:
        entry.hash = snapshot.hash
    row.revision, row.version = run.revision, run.version or row.version
    entry.tail, entry.tail_bytes = len(tail), size
    if snapshot is not None:
        entry.snapshot_bytes = len(snapshot.state)
    return entry


def _filled(ref: Ref, values: dict[int, Any]) -> Any:
    if isinstance(ref, dict):
        return {k: _filled(v, values) for k, v in ref.items()}  # type: ignore[reportUnknownVariableType]
    if isinstance(ref, list):
        return [_filled(v, values) for v in ref]  # type: ignore[reportUnknownVariableType]
    return values[ref] if ref else None
