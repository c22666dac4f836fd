"""Control in this process: what `ports/control.py` promises, on an engine of our own.

Each act is one command to one run, decided by the core; what opens generations is in `engine/generations.py`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from penstock.core.identity import digest_of
from penstock.core.plan import Plan
from penstock.core.values import decode
from penstock.core.waits import heard, undeclared
from penstock.engine.batches import LocalBatches
from penstock.engine.checks import check_texts, kept
from penstock.engine.generations import Generations
from penstock.engine.inbox import Item
from penstock.engine.migration import Migration
from penstock.engine.pausing import Pausing
from penstock.errors import NotFound, Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.codec import decode_event
from penstock.model.failure import Failure
from penstock.model.migration import Move
from penstock.model.packing import is_erased
from penstock.model.payload import encode_payload
from penstock.model.preview import Preview
from penstock.model.token import token_of
from penstock.ports.control import DefinitionAct, PausedDefinition
from penstock.ports.store import Query, Row

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.engine.runs import LocalRuns

LOOK_SECONDS = 0.1
LOOK_SECONDS_MAX = 1.0
NET_SECONDS = 5.0
IF_EXISTS = ("attach", "reject", "replace", "after-close")


def identified(command: c.Command, id: str) -> c.Command:
    """The command under its id; without one it is decided each time anew."""
    if not id:
        return command
    body = msgspec.json.encode([type(command).__name__, replace(command, at=0.0)])
    return c.Identified(at=command.at, id=id, digest=digest_of(body), command=command)


class LocalControl:
    """See the module's docstring."""

    def __init__(self, engine: Engine, runs: LocalRuns) -> None:
        self._engine, self._runs = engine, runs
        self.generations = Generations(engine)
        self.batches = LocalBatches(engine, runs)
        self.pausing = Pausing(engine)
        self._migration = Migration(engine)

    # --- generations -----------------------------------------------------------------------------------------

    async def retry(
        self,
        id: str,
        task: str | None,
        *,
        by: str | None = None,
        reason: str = "",
        command_id: str = "",
    ) -> int:
        check_texts(task=task, by=by, reason=reason, command_id=command_id)
        command = _command(command_id, "retry", id, task, by, reason)
        return await self.generations.retry(id, task, by=by, reason=reason, command=command)

    async def preview(self, id: str, to: int) -> Preview:
        return await self.generations.preview(id, to)

    async def reset(
        self, id: str, to: int, *, token: str, by: str | None = None, reason: str = "", exclude: Sequence[str] = (),
        undo: bool = False, command_id: str = "",
    ) -> int:  # fmt: skip
        check_texts(by=by, reason=reason, command_id=command_id)
        _check_names(exclude)
        command = _command(command_id, "reset", id, to, by, reason, sorted(exclude), undo)
        return await self.generations.reset(
            id, to, token=token, by=by, reason=reason, exclude=exclude, undo=undo, command=command
        )

    # --- versions --------------------------------------------------------------------------------------------

    async def migrate(
        self, id: str, version: str | None, *, mapping: Mapping[str, str], by: str | None = None, reason: str = "",
        command_id: str = "",
    ) -> None:  # fmt: skip
        check_texts(by=by, reason=reason, command_id=command_id)
        command = await self._migration.command(id, version, mapping, by, reason)
        await self._engine.command(id, identified(command, command_id))

    async def preview_migration(
        self, id: str, version: str | None, *, mapping: Mapping[str, str]
    ) -> Move:
        return await self._migration.preview(id, version, mapping)

    # --- operators' hands ------------------------------------------------------------------------------------

    async def wait(
        self,
        id: str,
        key: str,
        act: str,
        *,
        by: str | None = None,
        reason: str = "",
        command_id: str = "",
    ) -> None:
        check_texts(key=key, by=by, reason=reason, command_id=command_id)
        command = c.HandleWait(at=self._now(), key=key, act=act, by=by, reason=reason)
        await self._engine.command(id, identified(command, command_id))

    async def undo(
        self,
        id: str,
        key: str,
        act: str,
        *,
        by: str | None = None,
        reason: str = "",
        command_id: str = "",
    ) -> None:
        check_texts(key=key, by=by, reason=reason, command_id=command_id)
        command = c.ResolveUndo(at=self._now(), key=key, act=act, by=by, reason=reason)
        await self._engine.command(id, identified(command, command_id))

    async def attributes(
        self,
        id: str,
        values: Mapping[str, Any],
        *,
        by: str | None = None,
        reason: str = "",
        command_id: str = "",
    ) -> None:
        check_texts(by=by, reason=reason, command_id=command_id)
        command = c.ChangeAttributes(at=self._now(), values=kept(values), by=by, reason=reason)
        await self._engine.command(id, identified(command, command_id))

    # --- attempts that are completed from outside ------------------------------------------------------------

    async def complete(self, token: str, value: Any = None) -> None:
        named, raw = token_of(token), encode_payload(value)
        command = c.CompleteTask(
            at=self._now(), key=named.key, attempt=named.attempt, output=raw, generation=named.generation
        )  # fmt: skip
        self._engine.heavy.weigh(named.run_id, raw)
        await self._engine.command(named.run_id, command)

    async def fail(
        self,
        token: str,
        message: str,
        *,
        code: str = "failed",
        details: Any = None,
        final: bool = False,
    ) -> None:
        named = token_of(token)
        check_texts(message=message, code=code)
        details = None if details is None else decode(encode_payload(details))
        command = c.FailTask(
            at=self._now(), key=named.key, attempt=named.attempt, generation=named.generation, final=final,
            failure=Failure(code=code, message=message, details=details),
        )  # fmt: skip
        await self._engine.command(named.run_id, command)

    # --- messages --------------------------------------------------------------------------------------------

    async def update(
        self,
        id: str,
        name: str,
        payload: Any = None,
        *,
        by: str | None = None,
        command_id: str = "",
    ) -> Any:
        """A message that is answered: by the reply of the task that takes it, whichever process that happens in."""
        engine = self._engine
        raw = encode_payload(payload)
        check_texts(name=name, by=by, command_id=command_id)
        update_id = command_id or uuid.uuid4().hex
        observers = engine.observers
        answer, closed = observers.answering(id, update_id), observers.closing(id)
        search = _Search(self._engine, id, update_id)
        try:
            command = c.SendSignal(
                at=self._now(), name=name, payload=raw, by=by, id=update_id, update=True
            )
            engine.heavy.weigh(id, raw)
            await engine.command(id, command)
            pause = 0.0 if command_id else LOOK_SECONDS  # a repeat may have its answer already
            while True:
                if engine.owner is not None and pause:
                    pause = NET_SECONDS
                await asyncio.wait(
                    [answer, closed], timeout=pause, return_when=asyncio.FIRST_COMPLETED
                )
                if answer.done():
                    return decode(answer.result())
                found = await search.look()
                if found is not None:
                    return decode(found)
                pause = min(LOOK_SECONDS_MAX, max(LOOK_SECONDS, pause * 1.3))
        finally:
            observers.unanswered(id, update_id, answer)
            observers.unheard(id, closed)

    async def signal_with_start(
        self, definition: str, input: Any, name: str, payload: Any = None, *, id: str, by: str | None = None,
        message_id: str = "", if_exists: str = "attach", start: Mapping[str, Any] | None = None,
    ) -> str:  # fmt: skip
        engine = self._engine
        raw = encode_payload(payload)
        check_texts(name=name, by=by, message_id=message_id)
        check_if_exists(if_exists)
        begin, plan = await self._runs.start_command(definition, input, id=id, **(start or {}))
        if plan.check is not None:
            plan.check(begin.input)
        message_id = message_id or begin.start_key
        signal = c.SendSignal(at=self._now(), name=name, payload=raw, by=by, id=message_id)
        if not plan.takes(name):
            raise undeclared(plan, definition, name)  # before anything is started for it
        if plan.fits is not None:
            plan.fits(name, raw)
        row = None if if_exists == "attach" else await engine.store.find(id)
        if row is None:
            if await self._start_with(begin, plan, signal):
                return id
            row = await self._runs.find(id)
        elif if_exists == "reject":
            if await engine.read(id, lambda flow: heard(flow.run, signal)):
                return id  # a repeat gets the answer of the first
            raise Rejected(
                "id-taken", f"run {id} exists already", hint="choose another id", run_id=id
            )
        await self.generations.start(
            row, begin, plan, replace_open=if_exists == "replace", signal=signal
        )
        return id

    async def _start_with(self, begin: c.StartRun, plan: Plan, signal: c.SendSignal) -> bool:
        """Start the run if there is none, and send it the signal, in one append; False if it has ended before."""
        engine = self._engine
        await engine.admission.check(plan, begin.id)
        engine.check_room()
        loop = asyncio.get_running_loop()
        started: asyncio.Future[Any] = loop.create_future()
        sent: asyncio.Future[Any] = loop.create_future()
        engine.admission.begin(begin.definition, 1)
        engine.heavy.weigh(begin.id, begin.input)
        engine.heavy.weigh(begin.id, signal.payload)
        try:
            engine.post(begin.id, Item(begin, started, plan))
            engine.post(begin.id, Item(signal, sent))  # in the same mail
            outcomes = await asyncio.gather(started, sent, return_exceptions=True)
        finally:
            engine.admission.end(begin.definition, 1)
        refused, unsent = outcomes
        if isinstance(refused, BaseException) and getattr(refused, "code", "") != "id-taken":
            raise refused
        if isinstance(unsent, BaseException) and getattr(unsent, "code", "") != "run-closed":
            raise unsent
        return unsent is None

    async def message(
        self, name: str, payload: Any = None, *, attributes: Mapping[str, Any], definition: str | None = None,
        by: str | None = None, message_id: str = "",
    ) -> str:  # fmt: skip
        if not attributes:
            raise Rejected(
                "receiver-missing", "it is not said which run", hint="add key=…, or attributes=…"
            )
        wanted = kept(attributes)
        query = Query(status="OPEN", definition=definition, attributes=wanted, limit=2)
        rows = await self._engine.store.list(query)
        told = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
        if not rows:
            raise Rejected(
                "receiver-unknown",
                f"no open run has {told}",
                hint="`start(…, key=…)` gives a run its key",
            )
        if len(rows) > 1:
            raise Rejected(
                "receiver-ambiguous",
                f"several open runs have {told}, among them {rows[0].id} and {rows[1].id}",
                hint="name the definition too, or signal the run by its id",
            )
        await self._runs.signal(rows[0].id, name, payload, by=by, message_id=message_id)
        return rows[0].id

    # --- definitions -----------------------------------------------------------------------------------------

    async def pause_definition(
        self, definition: str, *, by: str | None = None, reason: str = ""
    ) -> None:
        """No attempt of any of its runs begins; new runs are taken, and wait like the others."""
        await self.pausing.pause(definition, by=by, reason=reason)

    async def resume_definition(
        self, definition: str, *, by: str | None = None, reason: str = ""
    ) -> None:
        await self.pausing.resume(definition, by=by, reason=reason)

    async def paused_definitions(self) -> list[PausedDefinition]:
        return await self.pausing.paused()

    async def definition_acts(self, definition: str) -> list[DefinitionAct]:
        return await self.pausing.acts(definition)

    def _now(self) -> float:
        return self._engine.clock.now()


class _Search:
    """Looks for the answer of an update in what is stored: in the newest generation, and in those before it that took it."""

    def __init__(self, engine: Engine, id: str, update_id: str) -> None:
        self._engine, self._id, self._update = engine, id, update_id
        self._newest = _Seen()

    async def look(self) -> bytes | None:
        """The answer, or None; Rejected if there will be none."""
        row = await self._engine.store.find(self._id)
        if row is None:
            raise NotFound(f"no run {self._id}", hint="`penstock list` shows the runs")
        if row.key != self._newest.key:
            self._newest = _Seen(row.key)
        answer = await self._read(self._newest)
        if answer is None and self._newest.knew:
            self._newest.knew = False  # those before it have ended: once is enough
            answer = await self._earlier(row)
        if answer is None and not row.open and row.revision <= self._newest.after:
            raise Rejected(
                "update-unanswered", f"run {self._id} has ended without taking the update"
            )
        return answer

    async def _earlier(self, row: Row) -> bytes | None:
        """It came before the run went on in another generation: what it was answered there."""
        for generation in range(row.generation - 1, 0, -1):
            older = await self._engine.store.find(self._id, generation)
            if older is None:
                break  # it has been cleared away
            seen = _Seen(older.key)
            answer = await self._read(seen)
            if answer is not None:
                return answer
            if not seen.knew:
                break
        if self._newest.came:
            return None
        raise Rejected(
            "update-unanswered",
            f"run {self._id} has gone on in generation {row.generation} without an answer to the update",
        )

    async def _read(self, seen: _Seen) -> bytes | None:
        """What there is of it in one generation that was not read yet."""
        for stored in await self._engine.store.events(seen.key, after=seen.after):
            seen.after = stored.seq
            if is_erased(stored.payload):
                continue
            event = decode_event(stored.payload)
            match event:
                case e.UpdateAnswered(id=self._update):
                    if event.refused:
                        raise Rejected("update-failed", event.refused)
                    return bytes(event.output)
                case e.RunStarted() | e.RunReset() if self._update in event.known:
                    seen.knew = True
                case e.SignalReceived(id=self._update, update=True):
                    seen.came = True
                case _:
                    pass
        return None


class _Seen:
    """What one generation says of an update, as far as it was read."""

    __slots__ = ("after", "came", "key", "knew")

    def __init__(self, key: int = 0) -> None:
        self.key, self.after = key, 0
        self.knew = False
        """It came to one before it."""
        self.came = False
        """It is there to be answered; also if that is a copy, or it was given again."""


def _command(id: str, *body: Any) -> tuple[str, str] | None:
    return (id, digest_of(msgspec.json.encode(body))) if id else None


def check_if_exists(if_exists: str) -> None:
    if if_exists not in IF_EXISTS:
        raise Rejected(
            "if-exists-unknown",
            f"`{if_exists:.80}` is no answer to a run that exists",
            hint=f"take one of: {', '.join(IF_EXISTS)}",
        )


def _check_names(exclude: Any) -> None:
    given = cast("Collection[Any]", exclude) if isinstance(exclude, Collection) else (None,)
    if isinstance(exclude, str) or not all(isinstance(each, str) for each in given):
        raise Rejected(
            "exclude-invalid",
            f"`exclude` is {exclude!r:.80}, not a list of names of signals",
            hint=f"say exclude=[{exclude!r:.80}]" if isinstance(exclude, str) else "give names",
        )
