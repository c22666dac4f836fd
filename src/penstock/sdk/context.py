"""Context: all that workflow code may touch (SPEC 2.8).

Each awaited call is a step: recorded, executed by the engine, and read back after a crash. What is not awaited here is not
durable, and what does not come from here (the clock, chance, the network) is not the same when history is told again.
"""

from __future__ import annotations

import asyncio
import random
import sys
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec
from msgspec import Raw

from penstock.core.hands import changed_attributes
from penstock.errors import Rejected, StepFailed, shown
from penstock.model import intents as i
from penstock.model.definition import Retry, Timeouts
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX
from penstock.ports.arguments import check, clean
from penstock.sdk.functions import workflow_of
from penstock.sdk.marks import ATTRIBUTE as WORKFLOW
from penstock.sdk.replay import ContinueAsNew, Pending, Place, Read, Step, Update, here, keyed
from penstock.sdk.values import decoder_of_hint, encode_value, result_decoder
from penstock.sdk.workflow import name_of, names_of, seconds_of

if TYPE_CHECKING:
    from penstock.sdk.replay import Replay

T = TypeVar("T")
_PLAIN = msgspec.json.Decoder().decode
_PRIORITIES = ("high", "normal", "low")
_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]


class Context:
    """What a workflow function gets as its first argument."""

    __slots__ = ("_program",)

    def __init__(self, program: Replay) -> None:
        self._program = program

    # --- about the run ---------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        return self._program.run_id

    @property
    def generation(self) -> int:
        """1, and one more for each `continue_as_new`, retry and reset."""
        return self._program.generation

    @property
    def parent(self) -> str | None:
        """The run that started this one, if one did."""
        return self._program.parent

    @property
    def attributes(self) -> Mapping[str, Any]:
        """By which the run is found."""
        return dict(self._program.attributes)

    # --- steps -----------------------------------------------------------------------------------------------

    @overload
    def call(
        self, activity: Callable[..., Awaitable[T]], /, *args: Any, undo: Any = None, retry: Retry | None = None,
        timeout: float | timedelta | Timeouts | None = None, queue: str | None = None, priority: str | None = None,
        undo_retry: Retry | None = None, **named: Any,
    ) -> Coroutine[Any, Any, T]: ...  # fmt: skip

    @overload
    def call(
        self, activity: Callable[..., T], /, *args: Any, undo: Any = None, retry: Retry | None = None,
        timeout: float | timedelta | Timeouts | None = None, queue: str | None = None, priority: str | None = None,
        undo_retry: Retry | None = None, **named: Any,
    ) -> Coroutine[Any, Any, T]: ...  # fmt: skip

    @overload
    def call(
        self, activity: str, /, *args: Any, undo: Any = None, retry: Retry | None = None,
        timeout: float | timedelta | Timeouts | None = None, queue: str | None = None, priority: str | None = None,
        undo_retry: Retry | None = None, **named: Any,
    ) -> Coroutine[Any, Any, Any]: ...  # fmt: skip

    def call(self, activity: Any, /, *args: Any, **named: Any) -> Any:
        """Execute an activity: its result, or StepFailed once it has failed for good.

        `undo` is an activity that takes it back, called with the result if the run fails or is cancelled later. `retry`
        and `timeout` (of one attempt; `Timeouts` for the others) take the place of the activity's own."""
        program = self._program
        frame = _frame(1)  # as `here` does
        if named:
            step, read = _call(program, activity, args, **named)
            return Step(program, (frame.f_code, frame.f_lasti), step, read)
        # As most calls are, without a call of Python's for it: the hot path.
        try:
            name, read, known, key = _looked_at(activity)
        except TypeError:
            raise _no_activity(activity) from None
        counts = program.counts  # as `key` does
        if known in counts:
            count = counts[known] = counts[known] + 1
            key = f"{known}#{count}"
        else:
            counts[known] = 1
        step = i.Call(key, name, Raw(encode_value(args)))
        return Step(program, (frame.f_code, frame.f_lasti), step, read)

    def map(
        self, activity: Callable[..., Awaitable[T]] | Callable[..., T], items: Iterable[Any], *, limit: int | None = None,
        **options: Any,
    ) -> Coroutine[Any, Any, list[T]]:  # fmt: skip
        """Execute an activity for each item, `limit` at a time: the results in the order of the items. The first that
        fails ends it, and the others are given up."""
        if limit is not None and (type(limit) is not int or limit < 1):
            raise Rejected("limit-invalid", f"`limit` must be a number from 1, not {shown(limit)}")
        place = here(1)
        given = list(items)

        def work() -> Generator[Any, Any, Any]:
            return self._map(activity, given, limit, options).__await__()

        return cast("Any", Pending(self._program, place, work))

    async def _map(
        self, activity: Any, items: list[Any], limit: int | None, options: dict[str, Any]
    ) -> list[Any]:
        results: list[Any] = [None] * len(items)
        rest = iter(range(len(items)))

        async def work() -> None:
            for place in rest:
                results[place] = await self.call(activity, items[place], **options)

        workers = [
            asyncio.get_running_loop().create_task(work())
            for _ in range(min(limit or len(items), len(items)))
        ]
        try:
            await asyncio.gather(*workers)
        except BaseException:
            for each in workers:
                each.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            raise
        return results

    def sleep(self, delay: float | timedelta) -> Coroutine[Any, Any, None]:
        """Seconds, hours or months: a durable timer. `asyncio.sleep` is the same. `math.inf` is no timer: it ends when something
        else ends it."""
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not isinstance(seconds, Real) or seconds != seconds:
            raise Rejected(
                "time-invalid", f"a function sleeps for seconds or a timedelta, not {shown(delay)}"
            )
        return asyncio.sleep(seconds)

    def sleep_until(self, when: datetime) -> Coroutine[Any, Any, None]:
        if not isinstance(when, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Rejected("time-invalid", f"`when` is a datetime, not {shown(when)}")
        if when.tzinfo is None:
            raise Rejected(
                "time-invalid", f"{when.isoformat()} has no zone", hint="datetime(…, tzinfo=UTC)"
            )
        return asyncio.sleep(max(0.0, when.timestamp() - self._program.at))

    @overload
    def signal(
        self, name: str, *, timeout: float | timedelta | None = None
    ) -> Coroutine[Any, Any, Any]: ...

    @overload
    def signal(
        self, name: str, *, type: type[T], timeout: float | timedelta | None = None
    ) -> Coroutine[Any, Any, T | None]: ...

    def signal(
        self, name: str, *, type: Any = Any, timeout: float | timedelta | None = None
    ) -> Coroutine[Any, Any, Any]:
        """The payload of the next signal of that name, which may have come before; None if none came in time."""
        return cast("Any", self._await(name, type, timeout, update=False))

    def update(
        self, name: str, *, type: Any = Any, timeout: float | timedelta | None = None
    ) -> Coroutine[Any, Any, Update | None]:
        """The next update of that name: `payload`, and `answer(value)` or `refuse(reason)`; None if none came in time."""
        return cast("Any", self._await(name, type, timeout, update=True))

    def _await(
        self, name: str, type: Any, timeout: float | timedelta | None, *, update: bool
    ) -> Pending:
        _check_name("a signal", name)
        program = self._program
        place = here(2)
        due = (
            None if timeout is None else program.at + seconds_of("timeout", timeout, "time-invalid")
        )
        key = program.key(f"{'update' if update else 'signal'}:{name}")
        step = i.Await(key, name, due, update)
        read = program.workflow.signals.get(name) if type is Any else None
        read = read or decoder_of_hint(type)
        return Pending(program, place, lambda: self._in_time(step, read, place))

    def _in_time(self, step: i.Await, read: Read, place: Place) -> Generator[Any, Any, Any]:
        try:
            return (yield from self._program.wait(step, read, place))
        except StepFailed as failed:
            if failed.code == "timeout" and failed.key == step.key:
                return None
            raise

    def query(self, name: str, answer: Callable[..., Any]) -> None:
        """Answer a query of the run by a function that reads what the workflow has in its variables."""
        program = self._program
        program.queries = {**(program.queries or {}), name: answer}

    # --- other runs ------------------------------------------------------------------------------------------

    @overload
    def child(
        self, workflow: Callable[..., Awaitable[T]], /, *args: Any, id: str = "", keep: bool = False, **named: Any
    ) -> Coroutine[Any, Any, T]: ...  # fmt: skip

    @overload
    def child(
        self, workflow: str, /, *args: Any, id: str = "", keep: bool = False, version: str | None = None, **named: Any
    ) -> Coroutine[Any, Any, Any]: ...  # fmt: skip

    def child(
        self, workflow: Any, /, *args: Any, id: str = "", keep: bool = False, version: str | None = None, **named: Any
    ) -> Any:  # fmt: skip
        """Start a run of a workflow function, or of a definition by its id, and wait for its result. It is cancelled with
        this run unless `keep` is set."""
        return self._child(workflow, args, named, id, version, keep=keep, detached=False)

    def start(
        self, workflow: Any, /, *args: Any, id: str = "", version: str | None = None, **named: Any
    ) -> Coroutine[Any, Any, str]:
        """Start a run that goes its own way; its id, once it exists."""
        return cast(
            "Any", self._child(workflow, args, named, id, version, keep=True, detached=True)
        )

    def _child(
        self, workflow: Any, args: tuple[Any, ...], named: dict[str, Any], id: str, version: str | None, *, keep: bool,
        detached: bool,
    ) -> Pending:  # fmt: skip
        program = self._program
        place = here(2)
        if id != "" or version is not None:
            check("id", id, str, code="id-invalid")
            check("version", version, str | None, code="text-invalid")
        if isinstance(workflow, str):
            _check_name("a workflow", workflow)
            name, read = workflow, cast("Read", _PLAIN)
            given = args[0] if args else named or None
        else:
            if not hasattr(workflow, WORKFLOW):
                raise Rejected(
                    "workflow-invalid",
                    f"{shown(workflow)} is not a workflow",
                    hint="@workflow makes it one",
                )
            made = workflow_of(workflow)
            name, read, given = made.name, made.read_result, made.input_of(args, named)
        step = i.Child(
            program.key(f"child:{name}"),
            name,
            Raw(encode_value(given)),
            version,
            id,
            detached,
            bool(keep),
        )
        return Step(program, place, step, _started if detached else read)

    def send(self, run_id: str, name: str, payload: Any = None) -> None:
        """A signal to another run; sent once this is on disk."""
        check("run_id", run_id, str, code="id-invalid")
        _check_name("a signal", name)
        program = self._program
        program.want(
            i.Send(program.key("send"), run_id, name, Raw(encode_value(payload))),
            here(1),
        )

    def publish(self, topic: str, payload: Any = None) -> None:
        """An event for whoever listens."""
        check("topic", topic, str, code="topic-invalid")
        program = self._program
        step = i.Publish(program.key("publish"), topic, Raw(encode_value(payload)))
        program.want(step, here(1))

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Change attributes by which the run is found; None removes one."""
        program = self._program
        check("values", values, Mapping[str, Any], code="payload-invalid")
        kept = _PLAIN(encode_value(dict(values), limit=INLINE_PAYLOAD_BYTES_MAX))
        after = changed_attributes(program.attributes, kept)
        program.want(i.Tag(kept), here(1))
        program.attributes = after

    def undo(self, activity: Any, /, *args: Any, retry: Retry | None = None, **named: Any) -> None:
        """Have that activity called if the run fails or is cancelled, before what was to be undone until now."""
        program = self._program
        name = _known(activity)[0]
        if retry is not None:
            _check_options(retry, None, None, None)
        raw = Raw(encode_value(_arguments(activity, args, named)))
        program.want(
            i.Push(
                program.key(f"undo:{name}"), name, raw, None if retry is None else _as_stored(retry)
            ),
            here(1),
        )

    def continue_as_new(self, *args: Any, **named: Any) -> Any:
        """End here and go on in another generation, with a history that begins anew. What is to be undone, signals that
        nobody has read and attributes go along, and `result()` follows."""
        raise ContinueAsNew(encode_value(self._program.workflow.input_of(args, named)))

    # --- what is the same each time --------------------------------------------------------------------------

    def changed(self, name: str) -> bool:
        """Guard for changed code: True for runs that have not come here before the change."""
        _check_name("a change", name)
        return self._program.changed(name, here(1))

    def now(self) -> datetime:
        """The time of what woke the function."""
        return self._program.now()

    def uuid(self) -> uuid.UUID:
        return self._program.uuid()

    @property
    def random(self) -> random.Random:
        """Chance that falls the same way each time."""
        return self._program.chance

    def side_effect(self, make: Callable[[], T], *, type: Any = Any) -> T:
        """A value that is made once, here and now, and read back ever after; for what is quick and cannot fail."""
        program = self._program
        raw = program.note(program.key("note"), make, here(1))
        return decoder_of_hint(type)(raw)


def _started(raw: bytes) -> str:
    """The id of a run that was started and is not waited for."""
    return msgspec.json.decode(raw)["run"]


def _call(
    program: Replay, activity: Any, args: tuple[Any, ...], /, *, undo: Any = None, retry: Retry | None = None,
    timeout: float | timedelta | Timeouts | None = None, queue: str | None = None, priority: str | None = None,
    undo_retry: Retry | None = None, **named: Any,
) -> tuple[i.Call, Read]:  # fmt: skip
    """A call about which something is said, or with names."""
    name, read = _known(activity)
    given = _arguments(activity, args, named) if named else args
    if retry is not None or queue is not None or priority is not None or undo_retry is not None:
        _check_options(retry, undo_retry, queue, priority)
    key = program.key(name)  # before all else that may be refused, as in histories from before
    step = i.Call(
        key, name, Raw(encode_value(given)), None if retry is None else _as_stored(retry), None if timeout is None else _timeouts(timeout),
        queue, priority, "" if undo is None else _known(undo)[0], None if undo_retry is None else _as_stored(undo_retry),
    )  # fmt: skip
    return step, read


def _known(activity: Any) -> tuple[str, Read]:
    """The name of an activity, and how its result is read."""
    try:
        return _looked_at(activity)[:2]
    except TypeError:  # unhashable, as a list is
        raise _no_activity(activity) from None


@lru_cache(maxsize=4096)
def _looked_at(activity: Any) -> tuple[str, Read, str, str]:
    """And its name in keys, and the key of its first call."""
    if hasattr(activity, WORKFLOW):
        raise _no_activity(activity, "`ctx.child(…)` runs a workflow")
    if not callable(activity) and not (isinstance(activity, str) and activity):
        raise _no_activity(activity)
    read: Read = _PLAIN if isinstance(activity, str) else result_decoder(activity)
    name = name_of(activity)
    if name == "<lambda>":
        raise _no_activity(activity, "a lambda has no name to be served under: use `def`")
    if not clean(name):
        raise _no_activity(activity, "leave out NUL and halves of surrogate pairs")
    return name, read, keyed(name), f"{keyed(name)}#1"


def _check_name(of: str, name: Any) -> None:
    if not (isinstance(name, str) and name and clean(name)):
        raise Rejected("name-invalid", f"the name of {of} is text, not {shown(name)}")


def _no_activity(
    given: Any, hint: str = "give the function, or the name under which it is served"
) -> Rejected:
    return Rejected("activity-invalid", f"{shown(given)} is not an activity", hint=hint)


def _check_options(retry: Any, undo_retry: Any, queue: Any, priority: Any) -> None:
    for name, given in (("retry", retry), ("undo_retry", undo_retry)):
        if given is not None and not isinstance(given, Retry):
            raise Rejected(
                "activity-invalid", f"`{name}` must be a Retry, not {shown(given)}",
                hint="retry=Retry(attempts=5, first=0.2)",
            )  # fmt: skip
    if queue is not None and not (isinstance(queue, str) and queue and clean(queue)):
        raise Rejected("activity-invalid", f"`queue` is the name of a queue, not {shown(queue)}")
    if priority is not None and not (isinstance(priority, str) and priority in _PRIORITIES):
        raise Rejected(
            "priority-unknown", f"{shown(priority)} is no priority", hint="take high, normal or low"
        )


def _as_stored(given: T) -> T:
    try:
        return _stored(given)
    except TypeError:  # a list in it
        return _stored.__wrapped__(given)


@lru_cache(maxsize=4096)
def _stored(given: T) -> T:
    """A policy as it is read back: a whole number where one may have a fraction is none, so that the state is the same."""
    try:
        return msgspec.json.decode(encode_value(given), type=type(given))
    except msgspec.ValidationError as error:
        raise Rejected("activity-invalid", f"{shown(given)} cannot be kept: {error}") from None


def _timeouts(timeout: float | timedelta | Timeouts) -> Timeouts:
    if isinstance(timeout, Timeouts):
        return _as_stored(timeout)
    return Timeouts(start_to_close=float(seconds_of("timeout", timeout)))


def _arguments(activity: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
    """By position, or, as soon as one is named, all by name."""
    if not named:
        return list(args)
    if args:
        names = () if isinstance(activity, str) else names_of(activity)[0]
        if len(args) > len(names):
            raise Rejected(
                "arguments-invalid",
                f"`{name_of(activity)}` is called by position and by name, and its names are not known",
                hint="give all by name, or all by position",
            )
        named = {**dict(zip(names, args, strict=False)), **named}
    return named
