"""Batches on this engine: a record says how far one has come, and the owner goes on from there (SPEC 4.4).

The runs of a step are written down before the act is done to them, and the act has a command id made of batch and run: a
crash in between repeats commands that were accepted, which changes nothing. What the batch has not come to when it
begins, by the order of keys, is all that it comes to: runs that are started later are not its business.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from penstock.engine import points
from penstock.engine.checks import check_texts, check_times, checked_id, kept
from penstock.engine.records import read, readable, written
from penstock.errors import NotFound, PenstockError, Rejected, RevisionConflict, StoreError, shown
from penstock.ports.batches import ACTS, DONE, RUNNING, STOPPED, Batch, Refusal
from penstock.ports.store import Query, Record

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.engine.runs import LocalRuns

log = logging.getLogger("penstock.engine")

KIND = "batch"
STEP = 100
"""Runs between two writings of the record."""
EXAMPLES_MAX = 20
KEPT_SECONDS = 30 * 86_400.0
"""How long one that has ended can be looked at."""
LOOK_SECONDS = 0.05
LOOK_SECONDS_MAX = 1.0
TRIES_MAX = 20
_DECODER = msgspec.json.Decoder(Batch)


class LocalBatches:
    """See the module's docstring."""

    def __init__(self, engine: Engine, runs: LocalRuns) -> None:
        self._engine, self._runs = engine, runs
        engine.tending.serve(KIND, self._tend, waits=lambda record: record.due is not None)

    async def start(
        self, act: str, query: Query, *, arguments: Mapping[str, Any], by: str | None = None, reason: str = "",
        id: str | None = None,
    ) -> Batch:  # fmt: skip
        _check_act(act, arguments)
        check_texts(by=by, reason=reason)
        name = checked_id(id) if id is not None else uuid.uuid4().hex[:12]
        query = _checked(query)
        batch = Batch(
            name, act, query, arguments=kept(arguments), by=by, reason=reason, started_at=self._engine.clock.now(),
            total=await self._engine.store.count(query),
        )  # fmt: skip
        existing = await self._engine.store.record(KIND, name)
        if existing is not None:
            return _same(_batch_of(existing), batch)
        (outcome,) = await self._engine.store.put([self._record(batch, 0)])
        if isinstance(outcome, RevisionConflict):
            return _same(await self.get(name), batch)
        await self._engine.tending.tell(KIND, name)
        return batch

    async def get(self, id: str) -> Batch:
        record = await self._engine.store.record(KIND, checked_id(id))
        if record is None:
            raise NotFound(f"no batch {id}", hint="`penstock batches` lists them")
        return _batch_of(record)

    async def list(self) -> list[Batch]:
        records = await self._engine.store.records(KIND)
        found = [batch for _, batch in readable(_DECODER, records)]
        return sorted(found, key=lambda batch: -batch.started_at)

    async def stop(self, id: str) -> Batch:
        return await self._change(id, RUNNING, STOPPED)

    async def resume(self, id: str) -> Batch:
        batch = await self._change(id, STOPPED, RUNNING)
        await self._engine.tending.tell(KIND, id)
        return batch

    async def wait(self, id: str) -> Batch:
        pause = LOOK_SECONDS
        while True:
            batch = await self.get(id)
            if batch.state != RUNNING:
                return batch
            await asyncio.sleep(pause)
            pause = min(LOOK_SECONDS_MAX, pause * 1.3)

    async def _change(self, id: str, before: str, after: str) -> Batch:
        for _ in range(TRIES_MAX):
            record = await self._engine.store.record(KIND, checked_id(id))
            if record is None:
                raise NotFound(f"no batch {id}", hint="`penstock batches` lists them")
            batch = _batch_of(record)
            if batch.state == after:
                return batch
            if batch.state != before:
                raise Rejected(
                    "batch-over", f"batch {id} is {batch.state} already", hint="begin another"
                )
            changed = replace(batch, state=after)
            if after == RUNNING:
                changed.resumed_at, changed.resumed_from = self._engine.clock.now(), batch.seen
            (outcome,) = await self._engine.store.put([self._record(changed, record.revision)])
            if not isinstance(outcome, RevisionConflict):
                return changed
        raise StoreError(f"batch {id} changes too fast")

    # --- what the owner does ---------------------------------------------------------------------------------

    async def _tend(self, id: str) -> None:
        """Go on with a batch until it is done or stopped; killed anywhere, it goes on from the record."""
        engine = self._engine
        while engine.owner is not None and not engine.stopping:
            record = await engine.store.record(KIND, id)
            if record is None:
                return
            batch = _batch_of(record)
            if batch.state != RUNNING:
                return
            if not batch.page:
                if await self._turn_page(batch):
                    await self._put(batch, record.revision)  # and read it again
                    continue
                batch.state, batch.ended_at = DONE, engine.clock.now()
                await self._put(batch, record.revision)
                return
            if points.reach is not None:
                points.reach("batch.page")
            await self._act(batch)
            if points.reach is not None:
                points.reach("batch.acted")
            batch.page = []
            await self._turn_page(batch)  # one write for what is done and what comes next
            await self._put(batch, record.revision)

    async def _turn_page(self, batch: Batch) -> bool:
        """The next runs, by the order of their keys; False if there are none left."""
        rows = await self._engine.store.list(replace(batch.query, after=batch.after))
        if not rows:
            return False
        batch.page, batch.after = [row.id for row in rows], rows[-1].key
        return True

    async def _act(self, batch: Batch) -> None:
        """All runs of a page at once, so that one commit holds many of them; each is counted by what became of it."""
        outcomes = await asyncio.gather(
            *(self._one(batch, id) for id in batch.page), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, StoreError) or not isinstance(outcome, Exception | None):
                raise outcome  # says nothing of the run; the page is done again
        for id, outcome in zip(batch.page, outcomes, strict=True):
            if outcome is None:
                batch.done += 1
            elif isinstance(outcome, PenstockError):
                _refused(batch, id, outcome.code, outcome.message)
            else:  # one run that cannot be acted upon must not hold up the others
                log.error("batch.failed", extra={"batch": batch.id, "run": id}, exc_info=outcome)
                _refused(batch, id, "internal", shown(outcome, 200))

    async def _one(self, batch: Batch, id: str) -> None:
        runs, control = self._runs, self._runs.control
        given: dict[str, Any] = {
            "by": batch.by, "reason": batch.reason, "command_id": f"batch/{batch.id}/{id}",
        }  # fmt: skip
        arguments = batch.arguments
        match batch.act:
            case "pause":
                await runs.pause(id, **given)
            case "resume":
                await runs.resume(id, **given)
            case "cancel":
                await runs.cancel(id, **given)
            case "terminate":
                await runs.terminate(id, **given)
            case "retry":
                await control.retry(id, arguments.get("task"), **given)
            case "signal":
                await runs.signal(
                    id,
                    arguments["name"],
                    arguments.get("payload"),
                    by=batch.by,
                    message_id=given["command_id"],
                )
            case "undo":
                await control.undo(id, arguments["key"], arguments["act"], **given)
            case "migrate":
                await control.migrate(
                    id, arguments["version"], mapping=arguments.get("mapping") or {}, **given
                )
            case "attributes":
                await control.attributes(id, arguments["values"], **given)
            case _:
                await control.wait(id, arguments["key"], batch.act, **given)

    async def _put(self, batch: Batch, revision: int) -> None:
        """Another may have written meanwhile, to stop it: what was done stays counted."""
        for _ in range(TRIES_MAX):
            (outcome,) = await self._engine.store.put([self._record(batch, revision)])
            if not isinstance(outcome, RevisionConflict):
                return
            now = await self._engine.store.record(KIND, batch.id)
            if now is None:
                return
            batch, revision = replace(batch, state=_batch_of(now).state), now.revision

    def _record(self, batch: Batch, revision: int) -> Record:
        now = self._engine.clock.now()
        running = batch.state == RUNNING
        return Record(
            KIND, batch.id, written(_DECODER, batch), revision,
            due=now if running else None, expires=now + KEPT_SECONDS if batch.state == DONE else None,
        )  # fmt: skip


def _batch_of(record: Record) -> Batch:
    return read(_DECODER, record)


def _same(there: Batch, wanted: Batch) -> Batch:
    """A repeat finds the batch of the first."""
    if (there.act, there.query, there.arguments) != (wanted.act, wanted.query, wanted.arguments):
        raise Rejected(
            "key-reused",
            f"batch {there.id} exists, with another act or filter",
            hint="choose another id",
        )
    return there


def _refused(batch: Batch, id: str, code: str, message: str) -> None:
    batch.refused = {**batch.refused, code: batch.refused.get(code, 0) + 1}
    if len(batch.examples) < EXAMPLES_MAX:
        batch.examples = [*batch.examples, Refusal(id, code, message)]


def _check_act(act: str, arguments: Mapping[str, Any]) -> None:
    takes = ACTS.get(act) if isinstance(act, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if takes is None:
        raise Rejected(
            "act-unknown", f"{shown(act)} is no act on runs", hint=f"there are: {', '.join(ACTS)}"
        )
    takes_text = f"it takes {', '.join(takes)}" if takes else "it takes none"
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Rejected(
            "batch-invalid", f"the arguments of `{act}` are {shown(arguments)}, not an object",
            hint=takes_text,
        )  # fmt: skip
    unknown = set(arguments) - set(takes)
    missing = {name for name in takes if name not in ("task", "payload", "mapping")} - set(
        arguments
    )
    if unknown or missing:
        what = (
            f"takes no {', '.join(sorted(unknown))}"
            if unknown
            else f"needs {', '.join(sorted(missing))}"
        )
        raise Rejected("batch-invalid", f"a batch of `{act}` {what:.200}", hint=takes_text)
    for name, value in arguments.items():
        match name:
            case "payload":
                fits = True
            case "values" | "mapping":
                fits = isinstance(value, Mapping)
            case "task":
                fits = value is None or isinstance(value, str)
            case _:
                fits = isinstance(value, str)
        if not fits:
            wanted = "an object" if name in ("values", "mapping") else "a text"
            raise Rejected(
                "batch-invalid", f"`{name}` is {shown(value, 80)}, not {wanted}", hint=takes_text
            )


def _checked(query: Query) -> Query:
    """The filter as it is kept; each of its words is of the type that it must have."""
    if not isinstance(query, Query):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Rejected("wrong-type", f"{shown(query)} is no filter", hint="give a Query")
    for name in ("status", "definition", "version", "id_prefix", "parent"):
        if getattr(query, name) is not None:
            check_texts(**{name: getattr(query, name)})
    check_times(created_after=query.created_after, created_before=query.created_before)
    query = replace(query, after=None, limit=STEP, newest_generation=True)
    if not isinstance(query.attributes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Rejected(
            "wrong-type", f"`attributes` of the filter is {shown(query.attributes)}",
            hint="give an object such as {'customer': 7}",
        )  # fmt: skip
    query = replace(query, attributes=kept(query.attributes))
    if any("\0" in name for name in query.attributes):
        raise Rejected(
            "filter-invalid", "an attribute's name has no NUL in it", hint="look at the filter's `attributes`"
        )  # fmt: skip
    try:
        return msgspec.convert(msgspec.to_builtins(query), Query, strict=True)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
        raise Rejected(
            "wrong-type",
            f"the filter cannot be kept: {error}",
            hint="its fields are those of `Query`",
        ) from None
