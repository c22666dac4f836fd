"""Closed runs in files: archive, restore, export, import (SPEC 6.1, 6.2, 18). The format: `engine/bundle.py`.

To archive is to write a file, to read it back, to record it in the store, and only then to delete the runs there. A kill
before the record leaves a file that nobody knows and all runs where they were; after it, runs that are in both places,
which the next archive deletes. So a run is never in neither place.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from penstock.core.functions import FUNCTION, FunctionPlan
from penstock.core.plan import Plan
from penstock.engine.bundle import (
    SUFFIX,
    Header,
    Indexed,
    Reader,
    WholeRun,
    Writer,
    outside,
    versions_of,
)
from penstock.engine.erasure import acts, applied
from penstock.engine.importing import check_takeable, head_of, taken_over
from penstock.engine.plugins import plan_of
from penstock.engine.sizes import COMMIT_BYTES_MAX
from penstock.errors import (
    BundleDamaged,
    FileUnwritable,
    NotFound,
    PenstockError,
    Rejected,
    RevisionConflict,
    StoreCorrupt,
)
from penstock.model.codec import decode_event
from penstock.ports.data import Archived
from penstock.ports.store import Append, Appended, Query, Record, Row, RunKey, Snapshot, Stored

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.ports.plugins import Plugins

log = logging.getLogger("penstock.engine")

KIND = "archive"
PAGE = 500
NAME_CHARACTERS_MAX = 500
PURGE_EVENTS = 400
IMPORT_RUNS = 50


class ArchivedRun:
    """One run out of a file, read as from a store."""

    def __init__(self, whole: WholeRun) -> None:
        self._whole = whole

    async def events(
        self, key: RunKey, *, after: int = 0, limit: int | None = None
    ) -> list[Stored]:
        return self._whole.events[after : None if limit is None else after + limit]

    async def events_many(self, keys: Mapping[RunKey, int]) -> dict[RunKey, list[Stored]]:
        return {key: await self.events(key, after=after) for key, after in keys.items()}

    async def payloads(self, key: RunKey, seqs: Sequence[int]) -> dict[int, bytes]:
        return {seq: self._whole.events[seq - 1].payload for seq in seqs}

    async def blobs(self, key: RunKey, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return {
            digest: self._whole.blobs[digest] for digest in digests if digest in self._whole.blobs
        }

    async def snapshots_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Snapshot]:
        return {}


class Archives:
    """The archives of one store; their indexes are kept in memory once they were read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers: dict[tuple[str, bytes], Reader] = {}

    # --- writing ---------------------------------------------------------------------------------------------

    async def archive(
        self, folder: Path, *, ended_before: float, definition: str | None = None
    ) -> Archived | None:
        """Move closed runs into a new file in the folder; None if there are none."""
        _check_folder(folder)
        await self.finish()
        engine = self._engine
        rows = [row async for row in self._closed(ended_before, definition)]
        if not rows:
            return None
        now = engine.clock.now()
        path = folder / f"penstock-{int(now * 1000):013d}-{os.urandom(3).hex()}{SUFFIX}"
        await self._write(path, rows)
        reader = await asyncio.to_thread(self._opened, path)
        ends = [row.ended_at or row.updated_at for row in rows]
        archived = Archived(_whole_name(path), reader.digest, len(rows), now, min(ends), max(ends))
        await self._record(archived, 0)
        await self.finish()
        return archived

    async def _closed(self, ended_before: float, definition: str | None) -> AsyncIterator[Row]:
        store, after = self._engine.store, 0
        newest = await store.list(Query(limit=1))
        parents: dict[str, bool] = {}
        while rows := await store.closed_runs(after=after, limit=PAGE):
            after = rows[-1].key
            for row in rows:
                fits = definition in (None, row.definition) and row.ended_at is not None
                if not fits or (row.ended_at or 0) > ended_before or row.key == newest[0].key:
                    continue
                if not await self._engine.retention.is_needed(row, parents):
                    yield row

    async def export(self, path: Path, query: Query) -> int:
        """Copy runs into a file; they stay where they are."""
        _check_new(path)
        rows: list[Row] = []
        store, after = self._engine.store, query.after
        while page := await store.list(replace(query, after=after, limit=PAGE)):
            rows += page
            after = page[-1].key
        await self._write(path, rows[::-1])
        return len(rows)

    async def _write(self, path: Path, rows: Sequence[Row]) -> None:
        engine = self._engine
        _check_folder(path.parent)
        try:
            writer = Writer(path, Header("runs", 1, engine.clock.now(), engine.node))
        except (OSError, ValueError) as error:
            raise _unwritable(path, error) from error
        try:
            for row in rows:
                whole = await self._whole(row)
                for version in versions_of(whole):
                    if writer.knows(row.definition, version):
                        continue
                    found = await engine.store.definition(row.definition, version)
                    if found is None:
                        raise StoreCorrupt(f"no version {version} of `{row.definition}`")
                    writer.define(found)
                await asyncio.to_thread(writer.add, whole)
            await asyncio.to_thread(writer.finish, engine.settings.audit_key)
            await asyncio.to_thread(lambda: Reader(path, engine.settings.audit_key).verify())
        except OSError as error:
            writer.drop()
            raise _unwritable(path, error) from error
        except BaseException:
            writer.drop()
            raise

    async def _whole(self, row: Row) -> WholeRun:
        store = self._engine.store
        events = (await store.events(row.key))[: row.revision]
        named = {
            bytes.fromhex(digest)
            for each in events
            for digest, _ in decode_event(each.payload).beside.values()
        }
        return WholeRun(outside(row), events, await store.blobs(row.key, sorted(named)))

    async def _record(self, archived: Archived, revision: int) -> None:
        record = Record(KIND, Path(archived.path).name, msgspec.json.encode(archived), revision)
        (outcome,) = await self._engine.store.put([record])
        if isinstance(outcome, RevisionConflict):
            raise outcome

    async def finish(self) -> None:
        """Delete from the store what is in a file for certain, also of an archive that was cut off."""
        for record, archived in await self._records():
            if archived.deleted:
                continue
            try:
                reader = await asyncio.to_thread(self._reader, archived)
                await asyncio.to_thread(reader.verify)
            except BundleDamaged as error:
                _skipped(error)  # what is not in it for certain stays in the store
                continue
            for indexed in reader.index.runs:
                row = await self._engine.store.find(indexed.row.id, indexed.row.generation)
                if row is None or row.hash != indexed.row.hash or row.open:
                    continue
                if not await self._erased_since(row, archived.made_at):
                    await self._purge([row.key])
            await self._record(replace(archived, deleted=True), record.revision)

    async def _erased_since(self, row: Row, at: float) -> bool:
        """The file still has what was erased here: the run stays, and the next archive has it without."""
        store = self._engine.store
        found = await acts(store, row, await store.events(row.key, limit=1))
        return any(act["at"] >= at for act in found)

    async def _purge(self, keys: list[RunKey]) -> None:
        owner = self._engine.owner
        while True:
            gone = await self._engine.store.purge(
                keys, token=None if owner is None else owner.token, limit=PURGE_EVENTS
            )
            await asyncio.sleep(0)
            if not gone.again:
                return
            keys = []

    # --- reading ---------------------------------------------------------------------------------------------

    async def _records(self) -> list[tuple[Record, Archived]]:
        """Newest first."""
        found: list[Record] = []
        while page := await self._engine.store.records(KIND, after=found[-1].id if found else ""):
            found += page
        return [(each, msgspec.json.decode(each.value, type=Archived)) for each in reversed(found)]

    async def archives(self) -> list[Archived]:
        return [archived for _, archived in await self._records()]

    def _opened(self, path: Path) -> Reader:
        return Reader(path, self._engine.settings.audit_key)

    def _reader(self, archived: Archived) -> Reader:
        """BundleDamaged if it is not the file that was written."""
        key = archived.path, archived.digest
        reader = self._readers.get(key)
        if reader is None:
            reader = self._opened(Path(archived.path))
            if reader.digest != archived.digest:
                raise reader.damaged("it is not the file that was recorded")
            self._readers[key] = reader
        return reader

    async def _readable(self) -> tuple[list[Reader], BundleDamaged | None]:
        """The newest first; one that is lost or damaged keeps nobody from the others."""
        readers: list[Reader] = []
        problem: BundleDamaged | None = None
        for archived in await self.archives():
            try:
                readers.append(await asyncio.to_thread(self._reader, archived))
            except BundleDamaged as error:
                problem = error
                _skipped(error)
        return readers, problem

    async def list(self, query: Query) -> list[Row]:
        """Archived runs that fit, the newest archive first."""
        rows: list[Row] = []
        for reader in (await self._readable())[0]:
            for indexed in reversed(reader.index.runs):
                if len(rows) >= query.limit:
                    return rows
                if fits(indexed.row, query):
                    rows.append(replace(indexed.row, key=ARCHIVED_KEY))
        return rows

    async def find(self, id: str, generation: int | None = None) -> tuple[Row, ArchivedRun] | None:
        """A generation of a run that is in an archive; the newest if none is named."""
        found: tuple[Reader, Indexed] | None = None
        readers, problem = await self._readable()
        for reader in readers:
            for indexed in reader.index.runs:
                newer = found is None or indexed.row.generation > found[1].row.generation
                wanted = generation in (None, indexed.row.generation)
                if indexed.row.id == id and wanted and newer:
                    found = reader, indexed
        if found is None and problem is not None:
            raise problem  # it may be in there
        if found is None:
            return None
        whole = await applied(self._engine.store, await asyncio.to_thread(found[0].run, found[1]))
        return replace(whole.row, key=ARCHIVED_KEY), ArchivedRun(whole)

    async def verify(self) -> list[str]:
        """What is wrong with any archive."""
        problems: list[str] = []
        for archived in await self.archives():
            try:
                await asyncio.to_thread(self._verify, archived)
            except Exception as error:
                problems.append(f"archive {error}")
        return problems

    def _verify(self, archived: Archived) -> None:
        self._readers.pop(
            (archived.path, archived.digest), None
        )  # the file, not what was read of it
        self._reader(archived).verify()

    # --- back ------------------------------------------------------------------------------------------------

    async def restore(self, id: str) -> int:
        """Put all archived generations of a run back into the store; how many."""
        count = 0
        readers, problem = await self._readable()
        for reader in readers:
            wanted = [indexed for indexed in reader.index.runs if indexed.row.id == id]
            count += await self._take(reader, wanted)
        if not count and await self._engine.store.find(id) is None:
            if problem is not None:
                raise problem  # it may be in there
            raise NotFound(
                f"no archive has a run {id}", hint="`engine.data.archived(…)` lists what they have"
            )
        return count

    async def import_runs(self, path: Path, *, take_open: bool = False) -> int:
        """Take all runs of a file that are not here yet; refused as a whole if one is here with another history."""
        key = self._engine.settings.audit_key
        reader = await asyncio.to_thread(importable, path, key, take_open=take_open)
        return await self._take(reader, reader.index.runs)

    async def _take(self, reader: Reader, wanted: Sequence[Indexed]) -> int:
        engine = self._engine
        fresh: list[Indexed] = []
        for indexed in wanted:
            row = await engine.store.find(indexed.row.id, indexed.row.generation)
            if row is None:
                fresh.append(indexed)
            elif not await self._goes_on(row, indexed.row):
                raise Rejected(
                    "id-taken",
                    f"run {row.id} is here already, with another history; nothing was taken",
                    hint="both cannot be kept in one database",
                )
        activities = engine.activities
        await check_open(
            reader, fresh, served=lambda name: activities.get(name) is not None, plugins=self._engine.plugins
        )  # fmt: skip
        if fresh:
            for definition in await asyncio.to_thread(lambda: list(reader.definitions())):
                await engine.store.publish(definition)
        for some in _commits(fresh):
            part = [
                await applied(engine.store, await asyncio.to_thread(reader.run, one))
                for one in some
            ]
            appends = [await self._append(each) for each in part]
            outcomes = await engine.store.append(appends)
            for each, append, outcome in zip(part, appends, outcomes, strict=True):
                if not isinstance(outcome, Appended):
                    raise outcome
                if outcome.hash != (head_of(append) if each.row.open else each.row.hash):
                    raise StoreCorrupt(
                        f"run {each.row.id} was not stored as it is in {reader.path}"
                    )
                if each.row.open and engine.owner is not None:
                    engine.refresh(each.row.id)
        return len(fresh)

    async def _goes_on(self, here: Row, there: Row) -> bool:
        """What is here is what is in the file, or has begun with it."""
        if here.hash == there.hash:
            return True
        found = await self._engine.store.events(here.key, after=there.revision - 1, limit=1)
        return bool(found) and found[0].hash == there.hash

    async def _append(self, run: WholeRun) -> Append:
        if run.row.open:
            return await taken_over(self._engine, run, ArchivedRun(run))
        return Append(
            row=replace(run.row, hash=b""),
            expected=0,
            payloads=[each.payload for each in run.events],
            blobs=run.blobs,
        )


def importable(path: Path, key: bytes | None, *, take_open: bool) -> Reader:
    """A file whose runs may be taken, as far as it alone can tell; needs no database."""
    reader = Reader(path, key)
    if key is not None and not reader.signed:
        raise Rejected(
            "bundle-unsigned",
            f"{path} is not signed, and this engine has an audit_key; nothing was imported",
            hint="export it with the same audit_key; or, if you trust it, import it with an engine that has none",
        )
    reader.verify()
    for indexed in reader.index.runs:
        if indexed.row.open and not take_open:
            raise Rejected(
                "run-open",
                f"run {indexed.row.id} in {path} is open; nothing was imported",
                hint="where it came from it may still be executed; stop that engine, then say take_open",
            )
    return reader


async def check_open(
    reader: Reader, wanted: Sequence[Indexed], *, served: Callable[[str], bool], plugins: Plugins
) -> None:
    """Whether those that are open can be taken over where these activities are served; needs no database."""
    taken = [indexed for indexed in wanted if indexed.row.open]
    if not taken:
        return
    rows = await asyncio.to_thread(lambda: list(reader.definitions()))
    found = {(row.id, row.version): row for row in rows}
    kept: dict[tuple[str, str], Plan] = {}

    async def plans(definition: str, version: str) -> Plan:
        key = definition, version
        if version == FUNCTION:
            return kept.setdefault(key, FunctionPlan(definition))
        if key not in kept:
            if key not in found:
                raise BundleDamaged(reader.path, f"version {version} of `{definition}` is missing")
            kept[key] = await plan_of(None, plugins, found[key])
            kept[key].join(kin.setdefault(definition, {}), version)
        return kept[key]

    kin: dict[str, dict[str, Plan]] = {}
    for indexed in taken:
        whole = await asyncio.to_thread(reader.run, indexed)
        await check_takeable(whole, ArchivedRun(whole), plans, served)


def _commits(runs: Sequence[Indexed]) -> Iterator[list[Indexed]]:
    """Of so many runs and bytes at most; a larger run goes alone."""
    some: list[Indexed] = []
    size = 0
    for each in runs:
        if some and (len(some) == IMPORT_RUNS or size + each.frame.length > COMMIT_BYTES_MAX):
            yield some
            some, size = [], 0
        some.append(each)
        size += each.frame.length
    if some:
        yield some


ARCHIVED_KEY = -1
"""In place of a store's key."""


def _whole_name(path: Path) -> str:
    return str(path.resolve())


def _skipped(error: BundleDamaged) -> None:
    log.warning("archive.unreadable", extra={"error": str(error)})


def _unwritable(path: Path, error: Exception) -> PenstockError:
    name = str(path) if len(str(path)) < NAME_CHARACTERS_MAX else f"…{str(path)[-40:]}"
    return FileUnwritable(
        f"{name!a} cannot be written: {getattr(error, 'strerror', None) or error}",
        hint="choose a place that can be written to",
    )


def _check_folder(folder: Path) -> None:
    try:
        there = folder.is_dir()
        in_the_way = not there and folder.exists()
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from error
    if in_the_way:
        raise NotFound(f"{folder} is a file, not a folder", hint="name the folder for archives")
    if not there:
        raise NotFound(f"there is no folder {folder}", hint=f"create it first: mkdir -p {folder}")


def _check_new(path: Path) -> None:
    try:
        there = path.exists()
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    if there:
        raise Rejected("file-exists", f"{path} exists already", hint="choose another name")


def fits(row: Row, query: Query) -> bool:
    """Whether an archived run is asked for; of those that are not newest it cannot know."""
    attributes = msgspec.json.decode(row.attributes)
    return (
        query.status in (None, "CLOSED", row.status)
        and query.definition in (None, row.definition)
        and query.version in (None, row.version)
        and row.id.startswith(query.id_prefix or "")
        and (query.parent is None or (row.parent or "").split("\n")[0] == query.parent)
        and (query.created_after is None or row.created_at >= query.created_after)
        and (query.created_before is None or row.created_at < query.created_before)
        and all(attributes.get(name) == value for name, value in query.attributes.items())
    )
