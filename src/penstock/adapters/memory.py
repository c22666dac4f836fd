"""MemoryStore: the port `Store` in plain dictionaries; the reference behaviour, and as fast as a test wants it.

Nothing survives the process. Stores of one name share what they keep, as two processes share a database.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any

from msgspec.structs import replace

from penstock.adapters.store_rules import (
    OPEN,
    attribute_text,
    attributes_of,
    check_erasure,
    published,
    refusal,
    written,
)
from penstock.errors import Fenced, Rejected, RevisionConflict, StoreError
from penstock.model.chain import link, prefix
from penstock.ports.store import (
    Append,
    Appended,
    Asked,
    DefinitionRow,
    Owner,
    Position,
    Pulse,
    Purged,
    Query,
    Record,
    Request,
    Row,
    RunKey,
    Snapshot,
    Stored,
)


class _Kept:
    """All that stores of one name keep."""

    def __init__(self) -> None:
        self.log: list[Stored | None] = []
        """By position, from `base + 1` on; None where one was deleted."""
        self.base = 0
        self.newest_key = 0
        self.leftovers: dict[RunKey, None] = {}
        """Deleted runs whose events are not all deleted yet."""
        self.rows: dict[RunKey, Row] = {}
        self.histories: dict[RunKey, list[Stored]] = {}
        self.generations: dict[str, dict[int, RunKey]] = {}
        self.open: dict[RunKey, None] = {}
        self.snapshots: dict[RunKey, Snapshot] = {}
        self.blobs: dict[RunKey, dict[bytes, bytes]] = {}
        self.definitions: dict[str, list[DefinitionRow]] = {}
        self.globals: dict[str, bytes] = {}
        self.records: dict[str, dict[str, Record]] = {}
        self.owner: Owner | None = None
        self.held_by: MemoryStore | None = None

    @property
    def head(self) -> Position:
        return self.base + len(self.log)


_shared: dict[str, _Kept] = {}


class MemoryStore:
    """See `ports/store.py` for what each method promises; "on disk" means here that all can read it."""

    def __init__(self, name: str = "", *, clock: Callable[[], float] = time.time) -> None:
        """Without a name it is alone; those of one name share everything until `forget(name)`."""
        self.name = name
        self._clock = clock
        self._kept = _shared.setdefault(name, _Kept()) if name else _Kept()
        self._counts = {
            "commits": 0,
            "appends": 0,
            "events": 0,
            "syncs": 0,
            "conflicts": 0,
            "busy": 0,
        }

    transactions = None
    """No database, no transactions."""

    @staticmethod
    def forget(name: str) -> None:
        """Let go of what stores of that name share; those that exist keep it among themselves."""
        _shared.pop(name, None)

    async def open(self) -> None: ...

    async def close(self) -> None:
        if self._kept.held_by is self:
            self._kept.held_by = None

    def describe(self) -> dict[str, object]:
        return {"store": "memory", "name": self.name}

    # -- appending

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        if not appends:
            return []
        outcomes = [self._append_all(append) for append in appends]
        done = [o for o in outcomes if isinstance(o, Appended)]
        self._counts["commits"] += 1
        self._counts["appends"] += len(done)
        self._counts["conflicts"] += len(outcomes) - len(done)
        return outcomes

    def _append_all(self, append: Append) -> Appended | Exception:
        if append.also is None:
            return self._append(append)
        for each in (append, append.also):
            refused = self._append(each, only_check=True)
            if isinstance(refused, Exception):
                return refused
        outcome = self._append(append)
        self._append(append.also)
        return outcome

    def _append(self, append: Append, *, only_check: bool = False) -> Appended | Exception:
        kept, row, key = self._kept, append.row, append.row.key
        if reason := refusal(append):
            return StoreError(f"the append to run {row.id} makes no sense: {reason}")
        newest = kept.owner.token if kept.owner is not None else 0
        if append.token is not None and append.token < newest:
            return Fenced(token=append.token, newest=newest)
        if key == 0:
            taken = kept.generations.get(row.id, {}).get(row.generation)
            if taken is not None:
                return RevisionConflict(row.id, expected=0, actual=kept.rows[taken].revision)
        else:
            now = kept.rows.get(key)
            if now is None or now.revision != append.expected:
                actual = None if now is None else now.revision
                return RevisionConflict(row.id, expected=append.expected, actual=actual)
            if now.hash != append.previous:
                return RevisionConflict(row.id, expected=append.expected)
        try:
            hashes = self._hashes(append)
            attributes_of(row.attributes)
        except (TypeError, ValueError) as error:
            problem = StoreError(f"run {row.id!a} has a value that cannot be stored: {error}")
            problem.__cause__ = error
            return problem
        if only_check:
            return Appended(key, 0, b"")
        if key == 0:
            key = kept.newest_key = kept.newest_key + 1
            kept.generations.setdefault(row.id, {})[row.generation] = key
            kept.histories[key] = []
        history, seq = kept.histories[key], append.expected
        for payload, hash in zip(append.payloads, hashes, strict=True):
            seq += 1
            event = Stored(kept.head + 1, key, seq, payload, hash)
            kept.log.append(event)
            history.append(event)
        if append.blobs:
            kept.blobs.setdefault(key, {}).update(append.blobs)
        kept.rows[key] = replace(row, key=key, hash=hashes[-1], position=kept.head)
        if row.open:
            kept.open[key] = None
        else:
            kept.open.pop(key, None)
        self._counts["events"] += len(hashes)
        return Appended(key, kept.head, hashes[-1])

    def _hashes(self, append: Append) -> list[bytes]:
        head, start = append.previous, prefix(append.row.id, append.row.generation)
        hashes: list[bytes] = []
        for seq, payload in enumerate(append.payloads, append.expected + 1):
            head = link(head, start, seq, payload)
            hashes.append(head)
        return hashes

    async def save_snapshots(self, snapshots: Sequence[tuple[RunKey, Snapshot]]) -> None:
        for key, snapshot in snapshots:
            kept = self._kept.snapshots.get(key)
            if kept is None or kept.revision <= snapshot.revision:
                self._kept.snapshots[key] = snapshot

    # -- reading

    async def find(self, id: str, generation: int | None = None) -> Row | None:
        generations = self._kept.generations.get(id)
        if not generations:
            return None
        key = generations.get(max(generations) if generation is None else generation)
        return None if key is None else copy(self._kept.rows[key])

    async def find_newest(self, ids: Sequence[str]) -> dict[str, Row]:
        found = {id: await self.find(id) for id in ids}
        return {id: row for id, row in found.items() if row is not None}

    async def find_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Row]:
        rows = self._kept.rows
        return {key: copy(rows[key]) for key in keys if key in rows}

    async def events(
        self, key: RunKey, *, after: int = 0, limit: int | None = None
    ) -> list[Stored]:
        history = self._kept.histories.get(key, [])
        return history[after : None if limit is None else after + limit]

    async def events_many(self, keys: Mapping[RunKey, int]) -> dict[RunKey, list[Stored]]:
        return {key: await self.events(key, after=after) for key, after in keys.items()}

    async def payloads(self, key: RunKey, seqs: Sequence[int]) -> dict[int, bytes]:
        history = self._kept.histories.get(key, [])
        return {seq: history[seq - 1].payload for seq in seqs if 0 < seq <= len(history)}

    async def blobs(self, key: RunKey, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        kept = self._kept.blobs.get(key, {})
        return {digest: kept[digest] for digest in digests if digest in kept}

    async def follow(self, *, after: Position, limit: int = 1000) -> list[Stored]:
        kept, found = self._kept, list[Stored]()
        for place in range(max(0, after - kept.base), len(kept.log)):
            if len(found) >= limit:
                break
            event = kept.log[place]
            if event is not None:
                found.append(event)
        return found

    async def head(self) -> Position:
        return self._kept.head

    async def snapshot(self, key: RunKey) -> Snapshot | None:
        return self._kept.snapshots.get(key)

    async def snapshots_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Snapshot]:
        snapshots = self._kept.snapshots
        return {key: snapshots[key] for key in keys if key in snapshots}

    async def open_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        keys = sorted(key for key in self._kept.open if key > after)
        return [copy(self._kept.rows[key]) for key in keys[:limit]]

    async def closed_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        rows = (row for key, row in self._kept.rows.items() if key > after and not row.open)
        return [copy(row) for row in islice(rows, limit)]

    async def purge(
        self, keys: Sequence[RunKey], *, token: int | None = None, limit: int = 1000
    ) -> Purged:
        kept, runs, events = self._kept, 0, 0
        newest = kept.owner.token if kept.owner is not None else 0
        if token is not None and token < newest:
            raise Fenced(token=token, newest=newest)
        for key in keys:
            row = kept.rows.get(key)
            if row is None or row.open or key == kept.newest_key:
                continue
            del kept.rows[key], kept.generations[row.id][row.generation]
            if not kept.generations[row.id]:
                del kept.generations[row.id]
            kept.snapshots.pop(key, None)
            kept.leftovers[key] = None
            runs += 1
        for key in sorted(kept.leftovers):
            history = kept.histories[key]
            while history and events < limit and history[0].position != kept.head:
                kept.log[history.pop(0).position - 1 - kept.base] = None
                events += 1
            if not history:
                del kept.histories[key], kept.leftovers[key]
                kept.blobs.pop(key, None)
        gone = 0
        while gone < len(kept.log) and kept.log[gone] is None:
            gone += 1
        del kept.log[:gone]
        kept.base += gone
        self._counts["commits"] += 1
        return Purged(runs, events, bool(kept.leftovers))

    async def erase(
        self,
        key: RunKey,
        payloads: Mapping[int, bytes],
        *,
        blobs: Sequence[bytes] = (),
        attributes: bool = False,
    ) -> None:
        kept, row = self._kept, self._kept.rows.get(key)
        before = await self.payloads(key, list(payloads))
        check_erasure(None if row is None else row.open, before, payloads)
        for seq, payload in payloads.items():
            event = replace(kept.histories[key][seq - 1], payload=payload)
            kept.histories[key][seq - 1] = kept.log[event.position - 1 - kept.base] = event
        for digest in blobs:
            kept.blobs.get(key, {}).pop(digest, None)
        kept.snapshots.pop(key, None)
        if attributes and row is not None:
            kept.rows[key] = replace(row, attributes=b"{}")
        self._counts["commits"] += 1

    async def list(self, query: Query) -> list[Row]:
        rows: list[Row] = []
        for row in self._matching(query):
            if len(rows) >= query.limit:
                break
            if query.after is None or row.key < query.after:
                rows.append(copy(row))
        return rows

    async def count(self, query: Query) -> int:
        return sum(1 for _ in self._matching(query))

    def _matching(self, query: Query) -> Iterator[Row]:
        """Newest first."""
        wanted = {name: attribute_text(value) for name, value in query.attributes.items()}
        kept = self._kept
        opens = query.status == "PAUSED" or query.status in ("OPEN", *OPEN)
        keys = sorted(kept.open, reverse=True) if opens else reversed(kept.rows)
        for row in map(kept.rows.__getitem__, keys):
            newest = max(self._kept.generations[row.id])
            if (
                _in_status(row, query.status)
                and query.definition in (None, row.definition)
                and query.version in (None, row.version)
                and row.id.startswith(query.id_prefix or "")
                and (query.parent is None or (row.parent or "").split("\n")[0] == query.parent)
                and (query.created_after is None or row.created_at >= query.created_after)
                and (query.created_before is None or row.created_at < query.created_before)
                and (not query.newest_generation or row.generation == newest)
                and (not wanted or wanted.items() <= attributes_of(row.attributes).items())
            ):
                yield row

    # -- definitions and global data

    async def publish(self, definition: DefinitionRow) -> DefinitionRow:
        kept = self._kept.definitions.get(definition.id, [])
        row = published(kept, definition)
        if row not in kept:
            self._kept.definitions[definition.id] = [*kept, row]
        return row

    async def definition(self, id: str, version: str | None = None) -> DefinitionRow | None:
        kept = self._kept.definitions.get(id, [])
        return next((row for row in reversed(kept) if version in (None, row.version)), None)

    async def definitions(self) -> list[DefinitionRow]:
        return [row for _, kept in sorted(self._kept.definitions.items()) for row in kept]

    async def data_global(self) -> dict[str, bytes]:
        return dict(self._kept.globals)

    async def set_global(self, values: Mapping[str, bytes | None]) -> None:
        for name, value in values.items():
            if value is None:
                self._kept.globals.pop(name, None)
            else:
                self._kept.globals[name] = value

    # -- records

    async def record(self, kind: str, id: str) -> Record | None:
        return self._kept.records.get(kind, {}).get(id)

    async def records(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Record]:
        found = sorted(self._kept.records.get(kind, {}).items())
        return [record for id, record in found if id > after][:limit]

    async def records_due(self, kind: str, *, until: float, limit: int = 1000) -> list[Record]:
        kept = self._kept.records.get(kind, {}).values()
        found = [(r.due, r.id, r) for r in kept if r.due is not None and r.due <= until]
        return [record for _, _, record in sorted(found)[:limit]]

    async def put(self, records: Sequence[Record]) -> list[Record | RevisionConflict]:
        outcomes: list[Record | RevisionConflict] = []
        for wanted in records:
            kept = self._kept.records.setdefault(wanted.kind, {})
            outcome = written(kept.get(wanted.id), wanted)
            if isinstance(outcome, Record):
                kept[wanted.id] = outcome
            outcomes.append(outcome)
        self._counts["commits"] += 1 if records else 0
        return outcomes

    async def drop(self, kind: str, ids: Sequence[str]) -> None:
        for id in ids:
            self._kept.records.get(kind, {}).pop(id, None)

    async def drop_expired(self, *, until: float, limit: int = 1000) -> int:
        found = sorted(
            (record.expires, record.kind, record.id)
            for kept in self._kept.records.values()
            for record in kept.values()
            if record.expires is not None and record.expires <= until
        )[:limit]
        for _, kind, id in found:
            del self._kept.records[kind][id]
        return len(found)

    async def backup(self, path: str) -> None:
        raise Rejected(
            "backup-unsupported",
            "a store in memory ends with its process",
            hint="export what you want to keep",
        )

    # -- ownership

    # -- requests: there is no database that an application could have a connection to

    async def request(self, connection: Any, request: Request) -> Asked:
        raise Rejected(
            "connection-unfit",
            "a store in memory has no transactions that an application could share",
            hint="open sqlite:///file.db or postgresql://…, or start the run without `connection`",
        )

    async def requests(self, *, after: int = 0, limit: int = 100) -> list[Request]:
        return []

    async def requested(self, id: str) -> bool:
        return False

    async def drop_requests(self, numbers: Sequence[int]) -> None: ...

    async def claim(self, node: str, address: str) -> Owner | None:
        kept = self._kept
        if kept.held_by is not None:
            return None
        token = kept.owner.token + 1 if kept.owner is not None else 1
        clean = kept.owner is None or kept.owner.pid == 0
        now = self._clock()
        kept.held_by, kept.owner = self, Owner(node, token, address, now, now, os.getpid())
        return replace(kept.owner, clean=clean)

    async def renew(self, owner: Owner) -> Owner:
        kept = self._kept
        if kept.owner is None or kept.owner.token != owner.token:
            newest = 0 if kept.owner is None else kept.owner.token
            raise Fenced(token=owner.token, newest=newest)
        kept.owner = replace(kept.owner, address=owner.address, renewed_at=self._clock())
        return kept.owner

    async def pulse(self, owner: Owner) -> Pulse:
        renewed = await self.renew(owner)
        return Pulse(renewed, await self.head(), await self.data_global())

    async def owner(self) -> Owner | None:
        return self._kept.owner

    async def release(self, owner: Owner) -> None:
        kept = self._kept
        if kept.owner is not None and kept.owner.token == owner.token:
            kept.owner = replace(kept.owner, address="", pid=0)
            kept.held_by = None

    def stats(self) -> dict[str, int]:
        return dict(self._counts)


def _in_status(row: Row, status: str | None) -> bool:
    match status:
        case None:
            return True
        case "OPEN":
            return row.open
        case "CLOSED":
            return not row.open
        case "PAUSED":
            return row.open and row.paused
        case _:
            return row.status == status and row.open == (status in OPEN)
