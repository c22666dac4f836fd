"""Runs in this process: what `ports/runs.py` promises, on an engine of our own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.json import encode

from penstock.core.decide import PRIORITIES
from penstock.core.flow import Flow
from penstock.core.functions import FUNCTION
from penstock.core.hands import changed_attributes
from penstock.core.identity import REMEMBERED_SECONDS, digest_of
from penstock.core.plan import Plan
from penstock.core.values import Need, Variables
from penstock.engine.awaiting import Awaiting
from penstock.engine.bulk import BulkStart
from penstock.engine.bus import LocalBus
from penstock.engine.checks import check_texts, check_times, checked_id, kept
from penstock.engine.control import LocalControl, check_if_exists, identified
from penstock.engine.data import LocalData
from penstock.engine.engine import Engine
from penstock.engine.keyed import KeyedStarts
from penstock.engine.listeners import checked_types
from penstock.engine.origins import input_digest, origin_of
from penstock.engine.recovery import Ownership
from penstock.engine.registration import register
from penstock.engine.schedule_acts import ScheduleActs
from penstock.engine.schedules import Schedules
from penstock.engine.show import count_until
from penstock.engine.show import shown as shown_run
from penstock.engine.why import why
from penstock.errors import (
    EvaluationError,
    NotFound,
    Rejected,
    shown,
)
from penstock.model import commands as c
from penstock.model.codec import decode_definition, decode_event
from penstock.model.definition import Definition
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX, encode_payload
from penstock.model.queue import QueueView
from penstock.ports.runs import (
    Change,
    HistoryItem,
    Listening,
    Moment,
    Progress,
    Registered,
    RequestView,
    RunView,
    WhyView,
)
from penstock.ports.schedules import Debounce, Singleton
from penstock.ports.store import Owner, Query, Row


class LocalRuns:
    """See the module's docstring."""

    def __init__(self, engine: Engine, ownership: Ownership) -> None:
        self.engine, self.ownership = engine, ownership
        keeper = Schedules(engine, self.start)
        self.schedules = ScheduleActs(engine, keeper, self._plan, check_texts)
        self._keyed = KeyedStarts(engine, self.start, self._plan)
        self.data = LocalData(engine)
        awaiting = Awaiting(engine, self.data)
        self.result, self.watch = awaiting.result, awaiting.watch
        self.control = LocalControl(engine, self)
        self.projections = engine.projections
        self.bus = LocalBus(engine)

    # --- definitions and starts ------------------------------------------------------------------------------

    async def register(
        self,
        source: Any,
        *,
        name: str = "<definition>",
        by: str | None = None,
        force: str | None = None,
        strict: bool = False,
    ) -> Registered:
        registered = await register(
            self.engine, source, name=name, by=by, force=force, strict=strict
        )
        newest = await self.engine.store.definition(registered.id)
        if newest is not None and newest.version == registered.version:
            # Also if it was registered before: that process may have died before it came to this.
            await self.schedules.follow(decode_definition(newest.document), by=by)
        return registered

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
        idempotency_key: str = "",
        if_exists: str = "attach",
        connection: Any = None,
    ) -> str:
        """On disk on return. The same id with the same definition and input is the same run, started once. With a
        `connection`, asked for within its transaction, and started once that is committed."""
        engine = self.engine
        command, plan = await self.start_command(
            definition, input, id=id, version=version, priority=priority, deadline=deadline, delay=delay,
            metadata=metadata, attributes=attributes, created_by=created_by, idempotency_key=idempotency_key,
        )  # fmt: skip
        if plan.check is not None:
            plan.check(command.input)
        check_if_exists(if_exists)
        if connection is not None:
            return await engine.requests.ask(connection, command, plan, if_exists)
        admission = engine.admission
        if (
            engine.open_runs + admission.starting >= engine.settings.runs_max
            or plan.runs_max is not None
            or engine.attempts.dispatch.waiting
            or engine.owner is None
        ):
            await admission.check(plan, id)
        taken = False
        try:
            admission.starting += 1
            engine.heavy.weigh(command.id, command.input)
            if plan.runs_max is None:
                await engine.command(command.id, command, plan)
            else:
                with admission.start(definition):
                    await engine.command(command.id, command, plan)
        except Rejected as error:
            if error.code != "id-taken":
                raise
            taken = True
        finally:
            admission.starting -= 1
        if taken:
            await self._taken(command, plan, if_exists)
        return command.id

    async def start_command(
        self, definition: str, input: Any, *, id: str | None = None, version: str | None = None,
        priority: str | None = None, deadline: float | None = None, delay: float | None = None,
        metadata: Mapping[str, Any] | None = None, attributes: Mapping[str, Any] | None = None,
        created_by: str | None = None, idempotency_key: str = "",
    ) -> tuple[c.StartRun, Plan]:  # fmt: skip
        """What a start asks for, checked, and the plan that it follows."""
        _check_priority(priority)
        if idempotency_key:
            check_texts(idempotency_key=idempotency_key)
            id = id or f"key-{digest_of(idempotency_key.encode())}"
        run_id = checked_id(id) if id is not None else uuid.uuid4().hex
        raw = encode_payload(input)
        check_texts(created_by=created_by)
        check_times(deadline=deadline, delay=delay)
        tags = kept(attributes)
        changed_attributes({}, tags)
        number, plan = await self._plan(definition, version)
        command = c.StartRun(
            at=self.engine.clock.now(), id=run_id, definition=definition, version=number, input=raw,
            priority=None if priority is None else PRIORITIES[priority], deadline=deadline, delay=delay,
            metadata=kept(metadata), attributes=tags, created_by=created_by,
            start_key=idempotency_key,
        )  # fmt: skip
        return command, plan

    async def start_many(
        self, definition: str, inputs: Sequence[Any], *, ids: Sequence[str] | None = None,
        progress: Callable[[Progress], None] | None = None, **options: Any,
    ) -> Sequence[str]:  # fmt: skip
        """All are checked first, then started in group commits; `options` as of `start`, the same for all."""
        one, plan = await self.start_command(definition, None, **options)
        bulk = BulkStart(self.engine, self._taken)
        bulk.check(inputs, ids, plan)
        return await bulk.run(one, plan, progress)

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
        check_texts(created_by=options.get("created_by"))
        check_times(deadline=options.get("deadline"), delay=options.get("delay"))
        _check_priority(options.get("priority"))
        checked = None if id is None else checked_id(id)
        return await self._keyed.start(
            definition, input, id=checked, by_key=by_key, options=options
        )

    async def _plan(self, definition: str, version: str | None) -> tuple[str, Plan]:
        engine = self.engine
        if version == FUNCTION or (
            version is None and engine.functions.plan(definition) is not None
        ):
            plan = engine.plans.get((definition, FUNCTION))
            if plan is not None and engine.functions.plan(definition) is not None:
                return FUNCTION, plan
            return FUNCTION, await engine.known.plan(definition)
        if version is None:
            newest = engine.newest.get(definition)
            if newest is None or engine.owner is None:
                row = await engine.store.definition(definition)
                if row is None:
                    return FUNCTION, await engine.known.plan(definition)
                version = engine.newest[definition] = row.version
            else:
                version = newest
        return version, await engine.plan(definition, version)

    async def _taken(self, command: c.StartRun, plan: Plan, if_exists: str) -> None:
        """A run of that id exists: attach to it, start in its place, or refuse."""
        row = await self.find(command.id)
        start = await origin_of(self.engine, row)
        same = row.definition == command.definition and start.digest == input_digest(command.input)
        key = command.start_key
        if key and start.start_key == key and start.at > command.at - REMEMBERED_SECONDS:
            if same:
                return  # the answer of the first
            raise Rejected(
                "key-reused",
                f"run {command.id} was started with this idempotency key, and another definition or input",
                hint="give each start a key of its own; repeat one only with the same content",
            )
        if if_exists == "replace":
            await self.control.generations.start(row, command, plan, replace_open=True)
        elif if_exists == "after-close" or (key and if_exists == "attach" and not row.open):
            await self.control.generations.start(row, command, plan, replace_open=False)
        elif if_exists == "reject" or not same:
            raise Rejected(
                "id-taken",
                f"run {command.id} exists already"
                + ("" if if_exists == "reject" else ", with another definition or input"),
                hint="choose another id, or start it with the same input to attach to it",
                run_id=command.id,
            )

    # --- reading ---------------------------------------------------------------------------------------------

    async def definition(self, id: str, version: str | None = None) -> Definition:
        """One version, or the newest."""
        row = await self.engine.store.definition(id, version)
        if row is None:
            raise NotFound(
                f"no definition `{id:.80}`" + (f" version {version:.80}" if version else ""),
                hint="`engine.register(…)` adds one",
            )
        return decode_definition(row.document)

    async def find(self, id: str, generation: int | None = None) -> Row:
        return (await self.data.source(id, generation))[0]

    async def show(
        self, id: str, at: Moment | None = None, generation: int | None = None
    ) -> RunView:
        """The run as it is, or as it was: after event n, at a time, or at a named snapshot (SPEC 4.7)."""
        row, stored = await self.data.whole(id, generation)
        events = [decode_event(each.payload) for each in stored]
        if at is not None:
            events = events[: count_until(id, events, at)]
        plan = await self.engine.plan(row.definition, row.version)
        return await self.engine.folded(row.definition, lambda: shown_run(row, plan, events))

    async def why(self, id: str) -> list[WhyView]:
        return await why(self.engine, id)

    async def history(self, id: str, generation: int | None = None) -> list[HistoryItem]:
        _, stored = await self.data.whole(id, generation)
        return [
            HistoryItem(each.seq, each.position, decode_event(each.payload), each.hash.hex())
            for each in stored
        ]

    async def list(self, query: Query) -> list[Row]:
        return await self.engine.store.list(query)

    async def requests(self) -> list[RequestView]:
        return await self.engine.requests.list()

    async def query(self, id: str, name: str, *args: Any) -> Any:
        """A named expression of the definition over the run as it is, or what a workflow function answers."""
        row = await self.find(id)
        if row.version == FUNCTION:
            return await self.engine.programs.query(row, name, args)
        if args:
            raise Rejected(
                "arguments-invalid", f"query `{name:.80}` of `{row.definition}` takes nothing",
                hint="only queries of a workflow function take arguments",
            )  # fmt: skip
        held: dict[int, tuple[Any, int]] = {}

        def ask(flow: Flow) -> tuple[bool, Any]:
            formula = flow.plan.queries.get(name)
            if formula is None:
                known = ", ".join(flow.plan.queries) or "none"
                return False, Rejected(
                    "query-unknown",
                    f"`{flow.run.definition}` has no query `{name:.80}`",
                    hint=f"it has: {known}",
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
        check_texts(name=name, by=by, message_id=message_id)
        self.engine.heavy.weigh(id, raw)
        await self.engine.command(
            id,
            c.SendSignal(at=self.engine.clock.now(), name=name, payload=raw, by=by, id=message_id),
        )

    async def snapshot(self, id: str, name: str, *, by: str | None = None) -> None:
        """Give this moment of the run a name, and keep its state."""
        if not name or not name.isprintable():
            raise Rejected(
                "name-invalid",
                "a snapshot needs a name of printable characters",
                hint="give another name",
            )
        check_texts(by=by)
        engine = self.engine
        engine.snapshots.after_next(id)
        await engine.command(id, c.NameSnapshot(at=engine.clock.now(), name=name, by=by))

    async def pause(
        self, id: str, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        check_texts(by=by, reason=reason, command_id=command_id)
        command = c.PauseRun(at=self.engine.clock.now(), by=by, reason=reason)
        await self.engine.command(id, identified(command, command_id))

    async def resume(
        self, id: str, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        check_texts(by=by, reason=reason, command_id=command_id)
        command = c.ResumeRun(at=self.engine.clock.now(), by=by, reason=reason)
        await self.engine.command(id, identified(command, command_id))

    async def cancel(
        self, id: str, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        check_texts(by=by, reason=reason, command_id=command_id)
        command = c.CancelRun(at=self.engine.clock.now(), by=by, reason=reason)
        await self.engine.command(id, identified(command, command_id))

    async def terminate(
        self, id: str, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        check_texts(by=by, reason=reason, command_id=command_id)
        command = c.TerminateRun(at=self.engine.clock.now(), by=by, reason=reason)
        await self.engine.command(id, identified(command, command_id))

    async def form(
        self,
        id: str,
        key: str,
        act: str,
        *,
        by: str | None = None,
        data: Any = None,
        to: str | None = None,
        command_id: str = "",
    ) -> None:
        at = self.engine.clock.now()
        check_texts(key=key, by=by, to=to, command_id=command_id)
        command: c.Command
        if act == "submit":
            command = c.SubmitForm(at=at, key=key, output=encode_payload(data), by=by)
        elif by is None:
            raise Rejected("who-missing", f"to {act} a form, say who does", hint="add by=…")
        elif act == "claim":
            command = c.ClaimForm(at=at, key=key, by=by)
        elif act == "release":
            command = c.ReleaseForm(at=at, key=key, by=by)
        elif act == "delegate" and to:
            command = c.DelegateForm(at=at, key=key, by=by, to=to)
        else:
            raise Rejected(
                "act-unknown",
                f"`{act}` is not submit, claim, release or delegate (with to=…)",
                hint="take one of these; to delegate, say to whom",
            )
        await self.engine.command(id, identified(command, command_id))

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

    def on(
        self,
        types: Sequence[str] | None,
        listener: Callable[[Change], Any],
        *,
        definition: str | None = None,
        run: str | None = None,
        limit: int = 10_000,
    ) -> Listening:
        if not callable(listener):
            raise Rejected(
                "listener-invalid",
                f"{shown(listener)} cannot be called with a change",
                hint="give a function of one argument",
            )
        if limit < 1:
            raise Rejected(
                "listener-invalid",
                f"a listener's limit is at least 1, not {limit}",
                hint="leave it out",
            )
        return self.engine.listeners.add(
            listener, types=checked_types(types), definition=definition, run=run, limit=limit
        )

    async def queues(self) -> list[QueueView]:
        return await self.engine.queueing.views()

    async def set_queue(
        self, name: str, options: Mapping[str, Any], *, by: str | None = None, reason: str = ""
    ) -> None:
        check_texts(name=name, by=by, reason=reason)
        await self.engine.queueing.change(name, options, by=by, reason=reason)

    async def owner(self) -> Owner | None:
        return await self.engine.store.owner()

    async def audit(self, id: str | None = None) -> list[str]:
        return await self.data.audit(id)

    def stats(self) -> dict[str, int]:
        return self.engine.stats()

    async def close(self) -> None:
        await self.ownership.close()
        await self.engine.close()
        await self.ownership.release()
        await self.engine.store.close()


def _check_priority(priority: Any) -> None:
    if priority is not None and not (isinstance(priority, str) and priority in PRIORITIES):
        raise Rejected(
            "priority-unknown", f"{shown(priority)} is no priority", hint="take high, normal or low"
        )
