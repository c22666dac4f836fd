"""Runs in this process: what `ports/runs.py` promises, on an engine of our own."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec import Raw
from msgspec.json import encode

from penstock.core.decide import PRIORITIES
from penstock.core.flow import Flow
from penstock.core.plan import Plan
from penstock.core.values import Need, Variables, decode
from penstock.engine.audit import audit
from penstock.engine.data import LocalData
from penstock.engine.engine import Engine
from penstock.engine.history import Entry
from penstock.engine.keyed import KeyedStarts
from penstock.engine.observers import Noticed
from penstock.engine.recovery import Ownership
from penstock.engine.registration import register
from penstock.engine.schedule_acts import ScheduleActs
from penstock.engine.schedules import Schedules
from penstock.engine.show import shown
from penstock.engine.why import why
from penstock.errors import EvaluationError, Fenced, NotFound, Rejected, RunFailed
from penstock.model import commands as c
from penstock.model.codec import decode_definition, decode_event
from penstock.model.definition import Definition
from penstock.model.events import Event, RunStarted, SnapshotTaken
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX, encode_payload
from penstock.model.queue import QueueView
from penstock.model.run import COMPLETED, REF_SHIFT
from penstock.ports.runs import Change, HistoryItem, Moment, Registered, RunView, WhyView
from penstock.ports.schedules import Debounce, Singleton
from penstock.ports.store import Owner, Query, Row

ID_CHARACTERS_MAX = 512
LOOK_SECONDS = 0.1
LOOK_SECONDS_MAX = 1.0
NET_SECONDS = 5.0
"""How often a process that does not own the database looks for the end of a run that it waits for."""


class LocalRuns:
    """See the module's docstring."""

    def __init__(self, engine: Engine, ownership: Ownership) -> None:
        self.engine, self.ownership = engine, ownership
        keeper = Schedules(engine, self.start)
        self.schedules = ScheduleActs(engine, keeper, self._plan, _check_texts)
        self._keyed = KeyedStarts(engine, self.start, self._plan)
        self.data = LocalData(engine)

    # --- definitions and starts ------------------------------------------------------------------------------

    async def register(
        self, source: Any, *, name: str = "<definition>", by: str | None = None
    ) -> Registered:
        return await register(self.engine, source, name=name, by=by)

    async def start(
        self,
        definition: str,
        input: Any,
        *,
        id: str | None = None,
        version: str | None = None,
        priority: str | None = None,
        deadline: float | None = None,
        delay: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        created_by: str | None = None,
    ) -> str:
        """On disk on return. The same id with the same definition and input is the same run, started once."""
        engine = self.engine
        if priority is not None and priority not in PRIORITIES:
            raise Rejected(
                "priority-unknown", f"`{priority}` is no priority; take high, normal or low"
            )
        run_id = _checked_id(id) if id is not None else uuid.uuid4().hex
        raw = encode_payload(input)
        _check_texts(created_by=created_by)
        _check_times(deadline=deadline, delay=delay)
        number, plan = await self._plan(definition, version)
        admission = engine.admission
        if (
            engine.open_runs + admission.starting >= engine.settings.runs_max
            or plan.runs_max is not None
            or engine.attempts.dispatch.waiting
            or engine.owner is None
        ):
            await admission.check(plan, id)
        command = c.StartRun(
            at=engine.clock.now(), id=run_id, definition=definition, version=number, input=raw,
            priority=None if priority is None else PRIORITIES[priority], deadline=deadline, delay=delay,
            metadata=_kept(metadata), attributes=_kept(attributes), created_by=created_by,
        )  # fmt: skip
        try:
            admission.starting += 1
            if plan.runs_max is None:
                await engine.command(run_id, command, plan)
            else:
                with admission.start(definition):
                    await engine.command(run_id, command, plan)
        except Rejected as error:
            if error.code != "id-taken":
                raise
            await self._same(run_id, definition, raw)
        finally:
            admission.starting -= 1
        return run_id

    async def start_keyed(
        self,
        definition: str,
        input: Any,
        *,
        id: str | None,
        by_key: Singleton | Debounce,
        options: Mapping[str, Any],
    ) -> str:
        """A start that a key holds together with others (SPEC 4.6)."""
        _check_texts(created_by=options.get("created_by"))
        _check_times(deadline=options.get("deadline"), delay=options.get("delay"))
        checked = None if id is None else _checked_id(id)
        return await self._keyed.start(
            definition, input, id=checked, by_key=by_key, options=options
        )

    async def _plan(self, definition: str, version: str | None) -> tuple[str, Plan]:
        engine = self.engine
        if version is None:
            newest = engine.newest.get(definition)
            if newest is None or engine.owner is None:
                row = await engine.store.definition(definition)
                if row is None:
                    known = sorted({each.id for each in await engine.store.definitions()})
                    raise NotFound(
                        f"no definition `{definition}` is registered",
                        hint=f"registered: {', '.join(known[:10]) or 'none'}; `engine.register(…)` adds one",
                    )
                version = engine.newest[definition] = row.version
            else:
                version = newest
        return version, await engine.plan(definition, version)

    async def _same(self, run_id: str, definition: str, raw: bytes) -> None:
        row = await self.find(run_id)
        first = decode_event((await self.engine.store.events(row.key, limit=1))[0].payload)
        assert isinstance(first, RunStarted)
        input = await self.engine.history.raw(row.key, 1 << REF_SHIFT)
        if first.definition != definition or _form(input) != _form(raw):
            raise Rejected(
                "id-taken",
                f"run {run_id} exists already, with another definition or input",
                hint="choose another id, or start it with the same input to attach to it",
            )

    # --- reading ---------------------------------------------------------------------------------------------

    async def definition(self, id: str, version: str | None = None) -> Definition:
        """One version, or the newest."""
        row = await self.engine.store.definition(id, version)
        if row is None:
            raise NotFound(f"no definition `{id}`" + (f" version {version}" if version else ""))
        return decode_definition(row.document)

    async def find(self, id: str) -> Row:
        row = await self.engine.store.find(id)
        if row is None:
            raise NotFound(f"no run {id}", hint="`penstock list` shows the runs")
        return row

    async def show(self, id: str, at: Moment | None = None) -> RunView:
        """The run as it is, or as it was: after event n, at a time, or at a named snapshot (SPEC 4.7)."""
        row = await self.find(id)
        events = [decode_event(each.payload) for each in await self.engine.store.events(row.key)]
        if at is not None:
            events = events[: _count_until(id, events, at)]
        plan = await self.engine.plan(row.definition, row.version)
        return shown(row, plan, events)

    async def why(self, id: str) -> list[WhyView]:
        return await why(self.engine, id)

    async def history(self, id: str) -> list[HistoryItem]:
        row = await self.find(id)
        return [
            HistoryItem(each.seq, each.position, decode_event(each.payload), each.hash.hex())
            for each in await self.engine.store.events(row.key)
        ]

    async def result(self, id: str) -> Any:
        """The output of a completed run; RunFailed for one that ended otherwise. Waits for the end."""
        engine = self.engine
        if engine.in_memory(id):
            with contextlib.suppress(Fenced):  # another process executes it now
                return await self._outcome(await engine.observers.closing(id))
        pause = LOOK_SECONDS
        while True:
            waiting = engine.observers.closing(id)
            row = await self.find(id)
            if not row.open:
                engine.observers.unheard(id, waiting)
                entry = (await engine.history.load([row]))[id]
                if isinstance(entry, Exception):
                    raise entry
                return await self._outcome(entry)
            try:
                if engine.owner is not None:
                    return await self._outcome(await waiting)
                return await self._outcome(await asyncio.wait_for(waiting, pause))
            except Fenced:
                continue
            except TimeoutError:
                engine.observers.unheard(id, waiting)
                pause = min(LOOK_SECONDS_MAX, pause * 1.3)

    async def _outcome(self, entry: Entry) -> Any:
        run = entry.flow.run
        if run.status != COMPLETED:
            raise RunFailed(run.id, run.status, run.failure)
        if run.result is not None:
            return decode(run.result)
        return await self.engine.history.value(entry.row.key, run.result_ref)

    async def watch(self, id: str) -> AsyncIterator[Change]:
        """What has happened so far, then what happens, in order, until the run is closed."""
        engine = self.engine
        queue = engine.observers.watch(id)
        seq = 0
        try:
            row = await self.find(id)
            while True:
                stored = await engine.store.events(row.key, after=seq)
                for each in stored:
                    seq = each.seq
                    event = decode_event(each.payload)
                    yield Change(id, each.seq, event.type, row.status, event)
                row = await self.find(id)
                if not row.open and row.revision <= seq:
                    return
                if row.revision > seq:
                    continue
                noticed: Noticed | None
                try:
                    # The owner is told what others write; it looks, too, in case a hint was lost.
                    pause = LOOK_SECONDS if engine.owner is None else NET_SECONDS
                    noticed = await asyncio.wait_for(queue.get(), pause)
                except TimeoutError:
                    continue
                while noticed is not None and noticed.seq == seq + 1:
                    seq = noticed.seq
                    yield Change(id, seq, noticed.type, noticed.status, noticed.event)
                    noticed = queue.get_nowait() if not queue.empty() else None
        finally:
            engine.observers.unwatch(id, queue)

    async def list(self, query: Query) -> list[Row]:
        return await self.engine.store.list(query)

    async def query(self, id: str, name: str) -> Any:
        """A named expression of the definition over the run as it is."""

        held: dict[int, tuple[Any, int]] = {}

        def ask(flow: Flow) -> tuple[bool, Any]:
            formula = flow.plan.queries.get(name)
            if formula is None:
                known = ", ".join(flow.plan.queries) or "none"
                return False, Rejected(
                    "query-unknown",
                    f"`{flow.run.definition}` has no query `{name}`; it has: {known}",
                )
            if flow.run.closed:
                return False, Rejected("run-closed", f"run {id} has ended {flow.run.status}")
            for ref, (brought, size) in held.items():
                if ref not in flow.values:
                    flow.hold(ref, brought, size)
            try:
                flow.at = self.engine.clock.now()
                return True, formula(Variables(flow, ""))
            except EvaluationError as error:
                return False, error
            except Need as need:
                return False, need
            except Exception as error:  # a reader that raised would cost what shares its turn
                return False, EvaluationError(f"query `{name}` failed: {error!r}")

        while True:
            good, value = await self.engine.read(id, ask)
            if good:
                return value
            if not isinstance(value, Need):
                raise value
            # Held here: what another process, or the next turn, drops from memory is not asked for again.
            key, refs = (await self.find(id)).key, sorted(value.refs)
            for ref, each in zip(refs, await self.engine.history.value(key, refs), strict=True):
                held[ref] = each, len(encode(each))

    # --- commands --------------------------------------------------------------------------------------------

    async def signal(
        self,
        id: str,
        name: str,
        payload: Any = None,
        *,
        by: str | None = None,
        message_id: str = "",
    ) -> None:
        raw = encode_payload(payload)
        _check_texts(name=name, by=by, message_id=message_id)
        await self.engine.command(
            id,
            c.SendSignal(at=self.engine.clock.now(), name=name, payload=raw, by=by, id=message_id),
        )

    async def update(
        self, id: str, name: str, payload: Any = None, *, by: str | None = None
    ) -> Any:
        """A message that is answered: by the reply of the task that takes it."""
        engine = self.engine
        update_id = uuid.uuid4().hex
        raw = encode_payload(payload)
        _check_texts(name=name, by=by)
        answer = engine.observers.answering(update_id)
        closed = engine.observers.closing(id)
        try:
            await engine.command(
                id,
                c.SendSignal(
                    at=engine.clock.now(), name=name, payload=raw, by=by, id=update_id, update=True
                ),
            )
            await asyncio.wait([answer, closed], return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return decode(answer.result())
            raise Rejected(
                "update-unanswered", f"run {id} has ended without taking update `{name}`"
            )
        finally:
            answer.cancel()
            engine.observers.unanswered(update_id)
            engine.observers.unheard(id, closed)

    async def snapshot(self, id: str, name: str, *, by: str | None = None) -> None:
        """Give this moment of the run a name, and keep its state."""
        if not name or not name.isprintable():
            raise Rejected("name-invalid", "a snapshot needs a name of printable characters")
        _check_texts(by=by)
        engine = self.engine
        engine.snapshot_with(id)
        await engine.command(id, c.NameSnapshot(at=engine.clock.now(), name=name, by=by))

    async def pause(self, id: str, *, by: str | None = None, reason: str = "") -> None:
        _check_texts(by=by, reason=reason)
        await self.engine.command(id, c.PauseRun(at=self.engine.clock.now(), by=by, reason=reason))

    async def resume(self, id: str, *, by: str | None = None, reason: str = "") -> None:
        _check_texts(by=by, reason=reason)
        await self.engine.command(id, c.ResumeRun(at=self.engine.clock.now(), by=by, reason=reason))

    async def cancel(self, id: str, *, by: str | None = None, reason: str = "") -> None:
        _check_texts(by=by, reason=reason)
        await self.engine.command(id, c.CancelRun(at=self.engine.clock.now(), by=by, reason=reason))

    async def terminate(self, id: str, *, by: str | None = None, reason: str = "") -> None:
        _check_texts(by=by, reason=reason)
        await self.engine.command(
            id, c.TerminateRun(at=self.engine.clock.now(), by=by, reason=reason)
        )

    async def form(
        self,
        id: str,
        key: str,
        act: str,
        *,
        by: str | None = None,
        data: Any = None,
        to: str | None = None,
    ) -> None:
        at = self.engine.clock.now()
        _check_texts(key=key, by=by, to=to)
        command: c.Command
        if act == "submit":
            command = c.SubmitForm(at=at, key=key, output=encode_payload(data), by=by)
        elif by is None:
            raise Rejected("who-missing", f"to {act} a form, say who does: by=…")
        elif act == "claim":
            command = c.ClaimForm(at=at, key=key, by=by)
        elif act == "release":
            command = c.ReleaseForm(at=at, key=key, by=by)
        elif act == "delegate" and to:
            command = c.DelegateForm(at=at, key=key, by=by, to=to)
        else:
            raise Rejected(
                "form-act-unknown", f"`{act}` is not submit, claim, release or delegate (with to=…)"
            )
        await self.engine.command(id, command)

    async def set_global(self, values: Mapping[str, Any]) -> None:
        """Global data of the namespace; None removes a name. Runs see it from now on, the owner's within seconds."""
        raw = {
            name: None if value is None else encode_payload(value, limit=INLINE_PAYLOAD_BYTES_MAX)
            for name, value in values.items()
        }
        await self.engine.store.set_global(raw)
        await self.engine.load_globals()

    async def global_data(self) -> dict[str, Any]:
        await self.engine.load_globals()
        return dict(self.engine.globals)

    # --- the rest --------------------------------------------------------------------------------------------

    def on(self, types: Sequence[str] | None, listener: Callable[[Change], Any]) -> None:
        self.engine.observers.listen(
            None if types is None else frozenset(types),
            lambda noticed: listener(
                Change(noticed.run_id, noticed.seq, noticed.type, noticed.status, noticed.event)
            ),
        )

    async def queues(self) -> list[QueueView]:
        return await self.engine.queueing.views()

    async def set_queue(
        self, name: str, options: Mapping[str, Any], *, by: str | None = None, reason: str = ""
    ) -> None:
        _check_texts(name=name, by=by, reason=reason)
        await self.engine.queueing.change(name, options, by=by, reason=reason)

    async def owner(self) -> Owner | None:
        return await self.engine.store.owner()

    async def audit(self, id: str | None = None) -> list[str]:
        return await audit(self.engine.store, id)

    def stats(self) -> dict[str, int]:
        return self.engine.stats()

    async def close(self) -> None:
        await self.ownership.close()
        await self.engine.close()
        await self.ownership.release()
        await self.engine.store.close()


def _count_until(id: str, events: Sequence[Event], at: Moment) -> int:
    """How many of the events had happened by then."""
    if isinstance(at, str):
        for count, event in enumerate(events, 1):
            if isinstance(event, SnapshotTaken) and event.name == at:
                return count
        raise NotFound(f"run {id} has no snapshot `{at}`")
    if isinstance(at, int):
        if not 1 <= at <= len(events):
            raise NotFound(f"run {id} has events 1 to {len(events)}, not {at}")
        return at
    count = sum(1 for event in events if event.at <= at.timestamp())
    if not count:
        raise NotFound(f"run {id} did not exist at {at.isoformat()}")
    return count


def _checked_id(id: str) -> str:
    if not id or len(id) > ID_CHARACTERS_MAX or not id.isprintable():
        raise Rejected(
            "id-invalid", f"an id has 1 to {ID_CHARACTERS_MAX} printable characters, not {id!r:.80}"
        )
    return id


def _kept(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata and attributes as they will be read back; PayloadInvalid for what cannot be kept."""
    return decode(encode_payload(dict(values), limit=INLINE_PAYLOAD_BYTES_MAX)) if values else {}


def _form(raw: bytes | Raw) -> Any:
    """A value so that only what is the same is equal: in Python 1 is True."""
    return encode(decode(bytes(raw)), order="sorted")


def _check_texts(**texts: Any) -> None:
    """What goes into an event as text must be one that can be kept: one bad word must not cost the others a commit."""
    for name, text in texts.items():
        if text is None or (type(text) is str and text.isascii()):
            continue
        try:
            text.encode()
            if isinstance(text, str):
                continue
        except (AttributeError, UnicodeEncodeError):
            pass
        raise Rejected("text-invalid", f"`{name}` is {text!r:.80}, not a text that can be kept")


def _check_times(**seconds: float | None) -> None:
    for name, value in seconds.items():
        if value is not None and not isfinite(value):
            raise Rejected("time-invalid", f"`{name}` is {value}, not a time")
