"""Engine as applications see it: register, start and find runs, and all that concerns more than one (SPEC 15). One run:
`sdk/run.py`.

Only translates: what it asks for is done behind `ports/runs.py`, here or elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast, overload

from penstock.errors import Rejected, shown
from penstock.model.definition import Definition
from penstock.model.queue import QueueView
from penstock.ports.arguments import checked
from penstock.ports.batches import Batch, Batches
from penstock.ports.bus import EngineBus
from penstock.ports.control import DefinitionAct, PausedDefinition
from penstock.ports.projections import EventBatch, ProjectionView
from penstock.ports.runs import (
    Change,
    Listening,
    Progress,
    Registered,
    RequestView,
    Runs,
)
from penstock.ports.schedules import Debounce, Schedules, Singleton
from penstock.ports.store import Owner, Row
from penstock.sdk.data import Data
from penstock.sdk.filters import checked_query
from penstock.sdk.marks import is_workflow
from penstock.sdk.projection import Projection
from penstock.sdk.run import Run

if TYPE_CHECKING:
    from penstock.sdk.functions import Workflow

__all__ = ["Engine", "Run", "StartOptions"]

R = TypeVar("R")


class StartOptions(TypedDict, total=False):
    """What a start takes by name."""

    input: Any
    id: str | None
    version: str | None
    priority: str | None
    deadline: datetime | timedelta | None
    delay: float | timedelta | None
    metadata: Mapping[str, Any] | None
    attributes: Mapping[str, Any] | None
    created_by: str | None
    singleton: str | Singleton | None
    debounce: Debounce | None
    key: str | None
    idempotency_key: str
    if_exists: str
    connection: Any


@checked
class Engine:
    """What `penstock.open` gives."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.data = Data(runs.data)
        """Retention, erasure, archives, export, backup."""

    async def register(
        self,
        source: Any,
        *,
        name: str = "<definition>",
        by: str | None = None,
        force: str | None = None,
        strict: bool = False,
    ) -> Registered:
        """A definition by path, text, dict or algebra: verified, versioned, kept. The same content again is a no-op.

        What is refuted is refused with its counterexamples; what is unknown is in `findings`. `force`, a reason that is
        kept (`definition_acts`), registers it all the same; `strict` refuses what is unknown as well."""
        return await self._runs.register(source, name=name, by=by, force=force, strict=strict)

    @overload
    async def start(
        self, definition: Callable[..., Awaitable[R]], *args: Any, **options: Unpack[StartOptions]
    ) -> Run[R]: ...

    @overload
    async def start(
        self, definition: str, *args: Any, **options: Unpack[StartOptions]
    ) -> Run[Any]: ...

    async def start(
        self,
        definition: str | Callable[..., Any],
        *args: Any,
        input: Any = None,
        id: str | None = None,
        version: str | None = None,
        priority: str | None = None,
        deadline: datetime | timedelta | None = None,
        delay: float | timedelta | None = None,
        metadata: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        created_by: str | None = None,
        singleton: str | Singleton | None = None,
        debounce: Debounce | None = None,
        key: str | None = None,
        idempotency_key: str = "",
        if_exists: str = "attach",
        connection: Any = None,
    ) -> Run[Any]:
        """Start a run; on disk on return. With an id, starting it twice with the same input starts it once.

        `if_exists` says what to do with a run of that id: `attach` to it if its input is the same, `reject`, `replace`
        it (it is terminated), or start `after-close` of it. With an `idempotency_key` a repeat within 24 h gets the
        run of the first. `key` is a business key, by which `message` finds the run.

        With `singleton` at most one run of that key is open, and a second start attaches to it; with `debounce` the
        starts of a key within a window become one run with the last input, which exists when the window has ended.

        With a `connection` of your own to the store's database the run is asked for inside its open transaction: it is
        started if, and as soon as, you commit (SPEC 4.3)."""
        definition, input, read = _asked(definition, args, input)
        if key is not None:
            attributes = {**(attributes or {}), "key": key}
        if singleton is not None or debounce is not None:
            if singleton is not None and debounce is not None:
                raise Rejected(
                    "debounce-invalid", "a start is held by one key: singleton or debounce",
                    hint="give one of them",
                )  # fmt: skip
            if idempotency_key or if_exists != "attach":
                raise Rejected(
                    "debounce-invalid",
                    "the key of a singleton or debounced start says already what to do with a second one",
                    hint="leave out idempotency_key and if_exists, or the singleton or debounce",
                )
            if connection is not None:
                raise Rejected(
                    "not-yet", "a start inside a transaction takes neither singleton nor debounce"
                )
            given: Any = debounce if singleton is None else singleton
            by_key = Singleton(given) if isinstance(given, str) else given
            options = {
                "version": version, "priority": priority, "deadline": _moment(deadline),
                "delay": delay.total_seconds() if isinstance(delay, timedelta) else delay, "metadata": metadata or {},
                "attributes": attributes or {}, "created_by": created_by,
            }  # fmt: skip
            keyed = await self._runs.start_keyed(
                _id_of(definition), input, id=id, by_key=by_key, options=options
            )
            return Run(self._runs, keyed, read)
        run_id = await self._runs.start(
            _id_of(definition), input, id=id, version=version, priority=priority, deadline=_moment(deadline),
            delay=delay.total_seconds() if isinstance(delay, timedelta) else delay, metadata=metadata or {},
            attributes=attributes or {}, created_by=created_by, idempotency_key=idempotency_key, if_exists=if_exists,
            connection=connection,
        )  # fmt: skip
        return Run(self._runs, run_id, read)

    async def start_many(
        self,
        definition: str,
        inputs: Iterable[Any],
        *,
        ids: Iterable[str] | None = None,
        version: str | None = None,
        priority: str | None = None,
        deadline: datetime | timedelta | None = None,
        delay: float | timedelta | None = None,
        metadata: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        created_by: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> list[Run]:
        """Start a run for each input; all on disk on return. Far faster than as many calls of `start`.

        All is checked before anything is started. With `ids`, one for each input, the same call again, after an error or a
        crash, starts what is missing. `progress` is called after each group with how many are started."""
        started = await self._runs.start_many(
            _id_of(definition), _many(inputs), ids=None if ids is None else _many(ids), version=version,
            priority=priority, deadline=_moment(deadline),
            delay=delay.total_seconds() if isinstance(delay, timedelta) else delay, metadata=metadata or {},
            attributes=attributes or {}, created_by=created_by, progress=progress,
        )  # fmt: skip
        return [Run(self._runs, id) for id in started]

    @property
    def schedules(self) -> Schedules:
        """When runs start by themselves: create, get, list, pause, resume, trigger, backfill, update, delete."""
        return self._runs.schedules

    async def signal_with_start(
        self,
        definition: str,
        input: Any,
        signal: str,
        payload: Any = None,
        *,
        id: str,
        by: str | None = None,
        message_id: str = "",
        version: str | None = None,
        priority: str | None = None,
        deadline: datetime | timedelta | None = None,
        delay: float | timedelta | None = None,
        metadata: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        created_by: str | None = None,
        key: str | None = None,
        idempotency_key: str = "",
        if_exists: str = "attach",
    ) -> Run:
        """Send a signal to run `id`; if it does not exist, or has ended, it is started with it, in one commit.

        The rest is as of `start`, for the run that is started. With `if_exists` an open run does not just get the
        signal: `reject` it, `replace` the run, or refuse until `after-close` of it. A repeat with the same `message_id`
        (or `idempotency_key`) changes nothing."""
        if key is not None:
            attributes = {**(attributes or {}), "key": key}
        start = {
            "version": version, "priority": priority, "deadline": _moment(deadline),
            "delay": delay.total_seconds() if isinstance(delay, timedelta) else delay, "metadata": metadata or {},
            "attributes": attributes or {}, "created_by": created_by, "idempotency_key": idempotency_key,
        }  # fmt: skip
        run_id = await self._runs.control.signal_with_start(
            _id_of(definition), input, signal, payload, id=id, by=by, message_id=message_id, if_exists=if_exists,
            start=start,
        )  # fmt: skip
        return Run(self._runs, run_id)

    async def message(
        self, name: str, payload: Any = None, *, key: str | None = None, attributes: Mapping[str, Any] | None = None,
        definition: str | None = None, by: str | None = None, message_id: str = "",
    ) -> Run:  # fmt: skip
        """Send a signal to the one open run that was started with this `key`, or has these attributes."""
        wanted = {**(attributes or {}), **({} if key is None else {"key": key})}
        run_id = await self._runs.control.message(
            name, payload, attributes=wanted, definition=definition, by=by, message_id=message_id
        )
        return Run(self._runs, run_id)

    async def complete(self, token: str, value: Any = None) -> None:
        """Complete an attempt that waits for it from outside; a token of an old attempt is refused."""
        await self._runs.control.complete(token, value)

    async def fail(
        self,
        token: str,
        message: str,
        *,
        code: str = "failed",
        details: Any = None,
        final: bool = False,
    ) -> None:
        """Fail an attempt from outside; it is retried by its policy, unless it is `final`."""
        await self._runs.control.fail(token, message, code=code, details=details, final=final)

    async def batch(
        self, act: str, *, by: str | None = None, reason: str = "", id: str | None = None,
        arguments: Mapping[str, Any] | None = None, **wanted: Any,
    ) -> Batch:  # fmt: skip
        """Do one act to every run that the fields of `Query` find (status, definition, attributes, …), in steps that go
        on after a crash: `engine.batch("cancel", definition="order", status="OPEN", by="ann")`. It goes on by itself;
        `batches` looks at it, waits for it, stops it."""
        return await self._runs.control.batches.start(
            act,
            checked_query(wanted),
            arguments={} if arguments is None else arguments,
            by=by,
            reason=reason,
            id=id,
        )

    @property
    def batches(self) -> Batches:
        """Acts on many runs: get, list, wait, stop, resume."""
        return self._runs.control.batches

    async def pause_definition(
        self, definition: str, *, by: str | None = None, reason: str = ""
    ) -> None:
        """Begin no attempt of any run of a definition; new runs are taken, and wait."""
        await self._runs.control.pause_definition(definition, by=by, reason=reason)

    async def resume_definition(
        self, definition: str, *, by: str | None = None, reason: str = ""
    ) -> None:
        await self._runs.control.resume_definition(definition, by=by, reason=reason)

    async def paused_definitions(self) -> list[PausedDefinition]:
        """Those that are paused now, by whom and why."""
        return await self._runs.control.paused_definitions()

    async def definition_acts(self, definition: str) -> list[DefinitionAct]:
        """Who paused, resumed or forced a definition, when and why, the oldest first; the last 100."""
        return await self._runs.control.definition_acts(definition)

    async def definition(self, id: str, version: str | None = None) -> Definition:
        """A registered definition, expanded; the newest version if none is named."""
        return await self._runs.definition(id, version)

    async def get(self, id: str) -> Run:
        """A handle to any run; NotFound if there is none."""
        await self._runs.find(id)
        return Run(self._runs, id)

    async def list(self, **wanted: Any) -> list[Row]:
        """Runs by status, definition, attributes, time: the fields of `Query`."""
        return await self._runs.list(checked_query(wanted))

    async def requests(self) -> list[RequestView]:
        """Runs asked for inside transactions: those that wait to be started, and those that were refused and why."""
        return await self._runs.requests()

    async def set_global(self, **values: Any) -> None:
        """Write global data of the namespace, seen by expressions as `global.NAME`; None removes it."""
        await self._runs.set_global(values)

    async def global_data(self) -> dict[str, Any]:
        return await self._runs.global_data()

    def on(
        self,
        types: Sequence[str] | str | None,
        listener: Callable[[Change], Any],
        *,
        definition: str | None = None,
        run: Run | str | None = None,
        limit: int = 10_000,
    ) -> Listening:
        """Call `listener(change)` after an event of these types (None: any) is on disk, whichever process wrote it; in
        order, by itself, so that it never harms a run. Past `limit` waiting events it misses some (`dropped`)."""
        wanted = [types] if isinstance(types, str) else types
        run_id = run.id if isinstance(run, Run) else run
        return self._runs.on(wanted, listener, definition=definition, run=run_id, limit=limit)

    @property
    def bus(self) -> EngineBus:
        """Publish to runs that wait and to whoever subscribes; subscribe to what runs and others publish (SPEC 7.1)."""
        return self._runs.bus

    async def project(
        self,
        name: str,
        handler: Callable[[EventBatch], Any],
        *,
        types: Sequence[str] | None = None,
        batch: int = 500,
        position: Callable[[int], Any] | None = None,
        swap: Callable[[int], Any] | None = None,
    ) -> Projection:
        """A read model of your own: `handler(batch)` is given all events of the log in commit order, at least once each;
        of all processes that serve `name` one follows. With `position(target)`, which tells the position that the handler
        keeps in its own transaction, it is exactly once. `swap(target)` puts a rebuilt target in use."""
        await self._runs.projections.add(
            name, handler, types=types, batch=batch, position=position, swap=swap
        )
        return Projection(self._runs.projections, name)

    async def projections(self) -> list[ProjectionView]:
        """Every projection of this database: who follows it, how far it is, what keeps it."""
        return await self._runs.projections.views()

    async def queues(self) -> list[QueueView]:
        """Every queue: its limits, what is under way and what waits; of the process that executes the runs."""
        return await self._runs.queues()

    async def set_queue(
        self, name: str, *, by: str | None = None, reason: str = "", **options: Any
    ) -> None:
        """Change a queue while it works: `limit`, `rate`, `burst`, `depth`, `reserve`, `reserve_high`,
        `longest_wait`, `weight`; None puts one back to what holds if nothing is said. Kept in the store."""
        await self._runs.set_queue(name, options, by=by, reason=reason)

    async def owner(self) -> Owner | None:
        """Who executes this database's runs."""
        return await self._runs.owner()

    async def audit(self, id: str | None = None) -> list[str]:
        """Check the hash chains; what does not fit, or nothing."""
        return await self._runs.audit(id)

    def stats(self) -> dict[str, int]:
        return self._runs.stats()

    async def close(self) -> None:
        await self._runs.close()


def _asked(definition: Any, args: tuple[Any, ...], input: Any) -> tuple[Any, Any, Any]:
    """What is to be started, with what, and how its result is read: a workflow function with its arguments, or a
    definition with one input."""
    if callable(definition) and is_workflow(definition):
        made = _known_workflow(definition)
        given = input if input is not None and not args else made.input_of(args, {})
        return made.name, given, made.read_result
    if len(args) > 1 or (args and input is not None):
        raise Rejected(
            "arguments-invalid",
            f"a run of `{definition}` has one input, and {len(args) + (input is not None)} are given",
            hint="give one value: an object holds many",
        )
    return definition, args[0] if args else input, None


@lru_cache(maxsize=4096)
def _known_workflow(function: Any) -> Workflow:
    """What is known of a workflow function; who has none pays nothing for what knows it."""
    from penstock.sdk.functions import workflow_of

    return workflow_of(function)


def _id_of(definition: Any) -> str:
    if isinstance(definition, str):
        return definition
    raise Rejected(
        "id-invalid",
        f"{shown(definition)} is not the id of a definition",
        hint="give its id",
    )


def _many(values: Any) -> Sequence[Any]:
    """Each a run's; a text or an object is one input, not many."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        return [*cast("Iterable[Any]", values)]
    raise Rejected(
        "starts-invalid",
        f"{shown(values)} is one value, not a list with one for each run",
        hint="give a list",
    )


def _moment(deadline: Any) -> float | None:
    if deadline is None:
        return None
    if isinstance(deadline, timedelta):
        return (datetime.now().astimezone() + deadline).timestamp()
    if not isinstance(deadline, datetime):
        raise Rejected(
            "time-invalid",
            f"`deadline` is {shown(deadline)}, not a time",
            hint="a datetime with its zone, or a timedelta from now",
        )
    if deadline.tzinfo is None:
        raise Rejected(
            "zone-missing", "a deadline needs a time zone", hint="as datetime.now(UTC) has one"
        )
    return deadline.timestamp()
