"""Runs asked for inside the application's own transaction (SPEC 4.3, decision 13).

A request is a row that the application's connection wrote; once it is committed the owner makes it the run's first append
and deletes it. Killed before the append, the next owner finds the request; killed after it, the run is there, so
that starting it again is attaching to it, and only the request goes. What cannot be started any more is kept as a
record with its reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.core.decide import decide
from penstock.core.flow import Flow
from penstock.core.plan import Plan
from penstock.core.values import decode
from penstock.engine import points
from penstock.errors import (
    Busy,
    NotFound,
    PenstockError,
    PluginError,
    Rejected,
    RevisionConflict,
    StoreError,
    ValueUnfit,
)
from penstock.model import commands as c
from penstock.model.codec import decode_event
from penstock.model.events import RunStarted
from penstock.model.run import REF_SHIFT, Run
from penstock.ports.hints import REQUESTS
from penstock.ports.runs import RequestView
from penstock.ports.store import Record, Request, Row

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

REFUSED = "refused-request"
"""The kind of record that keeps what could not be started."""
REFUSED_SECONDS = 30 * 86400.0
AT_ONCE = 100
PENDING_MAX = 10_000
PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX = 0.001, 0.1
TRACK_SECONDS_MAX = 60.0
"""Who keeps a transaction open for longer than this has its request found by the owner's look around."""


class Facts(Struct, omit_defaults=True):
    """What a request keeps of its start beside definition and input."""

    priority: int | None = None
    deadline: float | None = None
    delay: float | None = None
    created_by: str | None = None
    metadata: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    start_key: str = ""


class Refusal(Struct):
    """A request that could not become a run, as it is kept."""

    id: str
    definition: str
    version: str
    at: float
    code: str
    reason: str


class Requested(str):
    """The id of a run that was asked for, and by which request: several may ask for one id, and each has its answer."""

    __slots__ = ("number",)

    def __new__(cls, id: str, number: int) -> Requested:
        made = super().__new__(cls, id)
        made.number = number
        return made

    number: int


class Pending(Struct, frozen=True):
    id: str
    definition: str
    digest: bytes
    """Of its input, as it is compared."""
    is_open: Callable[[], bool]
    """Also of a later transaction on the same connection."""


class Requests:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = asyncio.Lock()
        self._again = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: OrderedDict[int, Pending] = OrderedDict()
        """Those made by this process, by number, until it is known what became of them."""
        self._numbers: dict[str, int] = {}
        """The newest of them by the run's id, for who has only that."""

    # --- asking ----------------------------------------------------------------------------------------------

    async def ask(
        self, connection: Any, command: c.StartRun, plan: Plan, if_exists: str = "attach"
    ) -> str:
        """Refused at once as far as that can be known now; the rest is the application's commit."""
        engine = self._engine
        if if_exists != "attach":
            raise Rejected(
                "not-yet",
                f"a start inside a transaction attaches to a run of its id: if_exists cannot be `{if_exists}`",
                hint="leave if_exists out, and choose an id that is free",
            )
        flow = Flow(Run(id=command.id), plan)
        decide(flow, command)  # its input is checked before anything is written
        row = await engine.store.find(command.id)
        if row is not None:
            await self._check_same(row, command.definition, _digest(command.input))
            return command.id
        facts = Facts(
            command.priority, command.deadline, command.delay, command.created_by, command.metadata,
            command.attributes, command.start_key,
        )  # fmt: skip
        request = Request(
            command.id, command.definition, command.version, command.input, msgspec.json.encode(facts), command.at
        )  # fmt: skip
        asked = await engine.store.request(connection, request)
        self._pending[asked.number] = Pending(
            command.id, command.definition, _digest(command.input), asked.is_open
        )
        self._numbers[command.id] = asked.number
        if len(self._pending) > PENDING_MAX:
            self._forget(next(iter(self._pending)))
        if engine.hints is None or not engine.hints.in_append:
            self._spawn(self._track(asked.is_open))
        return Requested(command.id, asked.number)

    def _forget(self, number: int) -> None:
        gone = self._pending.pop(number, None)
        if gone is not None and self._numbers.get(gone.id) == number:
            del self._numbers[gone.id]

    async def _track(self, is_open: Callable[[], bool]) -> None:
        """Where a commit tells nobody: look at the connection, which costs nothing, and tell once its transaction is
        over."""
        pause, left = PAUSE_SECONDS_FIRST, TRACK_SECONDS_MAX
        await asyncio.sleep(0)
        while is_open() and left > 0:
            await asyncio.sleep(pause)
            left -= pause
            pause = min(pause * 1.5, PAUSE_SECONDS_MAX)
        await self._tell()

    async def _tell(self) -> None:
        engine = self._engine
        if engine.owner is not None:
            self.wake()
            return
        try:
            owner = await engine.store.owner()
        except StoreError:
            return  # a lost hint costs a moment
        if owner is not None and owner.address and engine.hints is not None:
            engine.hints.tell(owner.address, REQUESTS)

    async def begun(self, id: str) -> None:
        """Until the request that this process made for that run has become one; or why it has not."""
        number = id.number if isinstance(id, Requested) else self._numbers.get(id, 0)
        if number not in self._pending:
            await self._check_refused(id, number)
            return
        asked, store, pause = self._pending[number], self._engine.store, PAUSE_SECONDS_FIRST
        while True:
            # In this order: what was open may be committed next, and what is carried out leaves the run behind.
            waits = asked.is_open() or await store.requested(id)
            row = await store.find(id)
            if not waits or row is not None:
                break
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, PAUSE_SECONDS_MAX)
        if not waits:
            self._forget(number)
        await self._check_refused(id, number)
        if row is None:
            raise NotFound(
                f"run {id} was never started: the transaction that asked for it was rolled back",
                hint="start it again",
            )
        if waits and isinstance(id, Requested):
            # Another's transaction on that connection, or ours, while the run is there already: as it will be judged.
            await self._check_same(row, asked.definition, asked.digest)

    async def _check_refused(self, id: str, number: int) -> None:
        kept = await self._engine.store.record(REFUSED, f"{number}")
        if kept is not None and isinstance(id, Requested):
            refusal = msgspec.json.decode(kept.value, type=Refusal)
            if refusal.id == id:
                raise Rejected(refusal.code, refusal.reason)

    async def started(self, id: str) -> Row | None:
        """The run of that id; if another process asked for it inside a transaction, once it is one."""
        store, pause = self._engine.store, PAUSE_SECONDS_FIRST
        while (row := await store.find(id)) is None and await store.requested(id):
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, PAUSE_SECONDS_MAX)
        return row or await store.find(id)

    def concerns(self, id: str) -> bool:
        """Whether to ask for what became of it before the run is looked at."""
        return isinstance(id, Requested) or id in self._numbers

    # --- carrying out ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Requests may be there: the owner looks."""
        if self._engine.owner is None or self._engine.stopping:
            return
        if self._turn.locked():
            self._again = True
        else:
            self._spawn(self._look())

    async def _look(self) -> None:
        try:
            await self.carry_out()
        except StoreError as error:
            log.warning("requests.failed", extra={"error": str(error)})

    async def carry_out(self) -> None:
        """All that are committed: by the owner, on a hint, when it takes over, and every time that it looks around."""
        async with self._turn:
            self._again = True
            while self._again and self._engine.owner is not None:
                self._again = False
                after = 0
                # To the last one: some that must wait (Busy) hold up none of those behind them.
                while found := await self._engine.store.requests(after=after, limit=AT_ONCE):
                    after = found[-1].number
                    await self._carry_out_all(found)
                    if len(found) < AT_ONCE:
                        break

    async def _carry_out_all(self, found: list[Request]) -> None:
        if points.reach is not None:
            points.reach("request.found")
        done = await asyncio.gather(*map(self._carry_out, found))
        if points.reach is not None:
            points.reach("request.started")
        numbers = [r.number for r, over in zip(found, done, strict=True) if over]
        if numbers:
            await self._engine.store.drop_requests(numbers)
            if points.reach is not None:
                points.reach("request.dropped")

    async def _carry_out(self, request: Request) -> bool:
        """Whether nothing is left to be done about it."""
        engine = self._engine
        try:
            plan = await engine.plan(request.definition, request.version)
            await engine.admission.check(plan, request.id)  # Busy: it waits where it is
            facts = msgspec.json.decode(request.facts, type=Facts)
            command = c.StartRun(
                at=engine.clock.now(), id=request.id, definition=request.definition, version=request.version,
                input=request.input, priority=facts.priority, deadline=facts.deadline, delay=facts.delay,
                created_by=facts.created_by, metadata=facts.metadata, attributes=facts.attributes,
                start_key=facts.start_key,
            )  # fmt: skip
            try:
                with engine.admission.start(request.definition):
                    await engine.command(request.id, command, plan)
            except Rejected as error:
                row = await engine.store.find(request.id) if error.code == "id-taken" else None
                if row is None:
                    raise
                await self._check_same(row, request.definition, _digest(request.input))
        except ValueUnfit as error:
            return await self._refuse(request, error)
        except (StoreError, Busy, RevisionConflict, PluginError) as error:
            log.warning("request.waits", extra={"run": request.id, "error": str(error)})
            return False  # says nothing of the request: the next look takes it again
        except (PenstockError, msgspec.MsgspecError) as error:
            return await self._refuse(request, error)
        return True

    async def _refuse(self, request: Request, error: Exception) -> bool:
        code = getattr(error, "code", "error")
        log.error("request.refused", extra={"run": request.id, "code": code, "error": str(error)})
        refusal = Refusal(
            request.id, request.definition, request.version, request.at, code, str(error)
        )
        record = Record(
            REFUSED, f"{request.number}", msgspec.json.encode(refusal),
            expires=self._engine.clock.now() + REFUSED_SECONDS,
        )  # fmt: skip
        try:
            await self._engine.store.put([record])  # one that is there already says the same
        except StoreError:
            return False
        return True

    async def _check_same(self, row: Row, definition: str, digest: bytes) -> None:
        """The run of that id was started with the same: then asking for it is attaching to it."""
        engine = self._engine
        first = decode_event((await engine.store.events(row.key, limit=1))[0].payload)
        assert isinstance(first, RunStarted)
        given = await engine.history.raw(row.key, 1 << REF_SHIFT)
        if first.definition != definition or _digest(given) != digest:
            raise Rejected(
                "id-taken",
                f"run {row.id} exists already, with another definition or input",
                hint="choose another id, or start it with the same input to attach to it",
            )

    # --- showing ---------------------------------------------------------------------------------------------

    async def list(self, *, limit: int = 1000) -> list[RequestView]:
        """Those that wait to become runs, and those that were refused and why."""
        store = self._engine.store
        views = [
            RequestView(r.id, r.definition, r.version, r.at) for r in await store.requests(limit=limit)
        ]  # fmt: skip
        for record in await store.records(REFUSED, limit=limit):
            kept = msgspec.json.decode(record.value, type=Refusal)
            views.append(
                RequestView(kept.id, kept.definition, kept.version, kept.at, kept.code, kept.reason)
            )
        return views

    # --- life ------------------------------------------------------------------------------------------------

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _digest(raw: Any) -> bytes:
    """Of a value so that only what is the same is equal: in Python 1 is True."""
    return sha256(msgspec.json.encode(decode(bytes(raw)), order="sorted")).digest()
