"""The decorators that application code is written with, and the registry behind them.

A decorated function stays what it was; what was said of it is kept in one attribute. Nothing here executes anything:
`sdk/worker.py` does.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from math import isfinite
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast, overload
from weakref import WeakSet

from penstock.core.vocabulary import PREFIX
from penstock.errors import Rejected, shown
from penstock.model.definition import Retry, Timeouts
from penstock.ports.activities import Served
from penstock.sdk.arguments import Parameters
from penstock.sdk.values import hints_of, unreadable

F = TypeVar("F", bound=Callable[..., Any])

ATTRIBUTE = "__penstock_activity__"
RESERVED = frozenset({"http"})
MARKED: WeakSet[FunctionType] = WeakSet()
CODES: set[CodeType] = set()
"""The functions that are activities, and their code: the guard of tests knows a call of one by it."""


@dataclass(frozen=True)
class Declared:
    """What `@activity` said."""

    name: str | None = None
    retry: Retry | None = None
    start_to_close: float | None = None
    heartbeat: float | None = None
    once: bool = False
    cpu: bool = False
    transactional: bool = False
    simulate: bool = False
    effects: bool | None = None


@dataclass(frozen=True)
class Entry:
    """An activity as registered."""

    served: Served
    function: Callable[..., Any]
    parameters: Parameters

    @property
    def name(self) -> str:
        return self.served.name


@overload
def activity(function: F, /) -> F: ...


@overload
def activity(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: float | timedelta | Timeouts | None = None,
    heartbeat: float | timedelta | None = None,
    once: bool = False,
    cpu: bool = False,
    transactional: bool = False,
    simulate: bool = False,
    effects: bool | None = None,
) -> Callable[[F], F]: ...


def activity(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: float | timedelta | Timeouts | None = None,
    heartbeat: float | timedelta | None = None,
    once: bool = False,
    cpu: bool = False,
    transactional: bool = False,
    simulate: bool = False,
    effects: bool | None = None,
) -> F | Callable[[F], F]:
    """Make a function an activity. `async def` runs in the event loop, plain `def` in a thread, `cpu=True` in a
    process of its own. `timeout` bounds one attempt from start to close, `heartbeat` the silence between two
    heartbeats; `once` never begins it a second time after a crash (SPEC 4.3). `transactional` gives it a connection to
    the store's database, as its parameter `connection`: what it writes there and its result are one transaction.
    For `penstock simulate`: with `simulate` its own code runs there, not a stub; `effects` says whether it changes
    anything outside, which must then be undone if its run fails."""
    if name is not None and not (type(name) is str and name):
        raise _invalid(f"`name` of an activity must be text, not {name!r}")
    if retry is not None and not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _invalid(
            f"`retry` must be a Retry, not {retry!r}", hint="retry=Retry(attempts=5, first=0.2)"
        )
    start_to_close, beat = _timeouts(timeout)
    if heartbeat is not None:
        beat = seconds_of("heartbeat", heartbeat)
    declared = Declared(
        name, retry, start_to_close, beat, once, cpu, transactional, simulate, effects
    )

    def decorate(function: F) -> F:
        _check(function, declared)
        try:
            setattr(function, ATTRIBUTE, declared)
        except AttributeError:
            raise _invalid(
                f"{_described(function)} takes no attributes, so `@activity` cannot mark it",
                hint="decorate the function itself, or the method in its class",
            ) from None
        own = inspect.unwrap(function)
        if inspect.isfunction(own):
            MARKED.add(own)
            CODES.add(own.__code__)
        return function

    return decorate if function is None else decorate(function)


class Registry:
    """The activities that a process serves, by name."""

    def __init__(self, activities: Iterable[Any] = ()) -> None:
        self._entries: dict[str, Entry] = {}
        if not isinstance(activities, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _invalid(
                f"`activities` is a list of functions, not {shown(activities)}",
                hint="activities=[charge]",
            )
        for each in activities:
            entry = entry_of(each)
            if entry.name in RESERVED or entry.name.startswith(PREFIX):
                raise _invalid(
                    f"the name `{entry.name}` belongs to a built-in activity",
                    hint=f"@activity(name=…) gives {_described(each)} another",
                )
            self.add(entry)

    def add(self, entry: Entry) -> None:
        known = self._entries.get(entry.name)
        if known is not None:
            if known.function is entry.function:
                return
            raise _invalid(
                f"two activities are named `{entry.name}`: {_described(known.function)} and "
                f"{_described(entry.function)}",
                hint="@activity(name=…) gives one of them another",
            )
        self._entries[entry.name] = entry

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)


def entry_of(function: Any, *, name: str | None = None) -> Entry:
    """The function as an activity, decorated or not."""
    declared = getattr(function, ATTRIBUTE, None)
    if not isinstance(declared, Declared):
        declared = Declared()
    if name is not None:
        declared = replace(declared, name=name)
    _check(function, declared)
    if declared.cpu:
        _check_importable(function)
    kind = "process" if declared.cpu else "loop" if _is_async(function) else "thread"
    parameters, open_ended = names_of(function)
    wrong = unreadable(hints_of(function)) if "pydantic" in sys.modules else None
    if wrong is not None:
        raise _invalid(f"{_described(function)}: {wrong.message}", hint=wrong.hint)
    given = _connection_of(function) if declared.transactional else ""
    parameters = tuple(each for each in parameters if each != given) if given else parameters
    served = Served(
        name=declared.name or _name_of(function),
        kind=kind,
        retry=declared.retry,
        start_to_close=declared.start_to_close,
        heartbeat=declared.heartbeat,
        once=declared.once,
        cpu=declared.cpu,
        transactional=given,
        parameters=parameters,
        open_ended=open_ended,
    )
    return Entry(served, function, Parameters(function))


def name_of(function: Any) -> str:
    """The name under which an activity, given as a function or by name, is served."""
    if isinstance(function, str):
        return function
    declared = getattr(function, ATTRIBUTE, None)
    given = declared.name if isinstance(declared, Declared) else None
    return given or _name_of(function)


def resolve(module: Any, qualname: str) -> Any:
    """What a dotted name means in a module."""
    return functools.reduce(getattr, qualname.split("."), module)


def _check(function: Any, declared: Declared) -> None:
    if inspect.ismodule(function) or isinstance(function, type) or not callable(function):
        raise _invalid(
            f"{_described(function)} is not an activity: a function or a callable object is needed"
        )
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise _invalid(f"{_described(function)} is a generator; an activity returns one value")
    if declared.cpu and _is_async(function):
        raise _invalid(
            f"{_described(function)} is `async def`, which runs in the event loop; `cpu=True` is for a plain `def`"
        )
    if declared.cpu and "<" in getattr(function, "__qualname__", ""):
        raise _unreachable(function)
    if declared.transactional:
        if declared.cpu:
            raise _invalid(
                f"{_described(function)} cannot be `transactional` and `cpu=True`: a transaction stays in its process"
            )
        _connection_of(function)
    if declared.name is None and _name_of(function) == "<lambda>":
        raise _invalid(
            "a lambda has no name to be served under", hint="@activity(name=…), or use `def`"
        )


def _check_importable(function: Any) -> None:
    """A child process finds the function by its module and name, as it cannot be sent."""
    name, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    module = sys.modules.get(name or "")
    try:
        found = module is not None and resolve(module, qualname) is function
    except AttributeError:
        found = False
    if not found or not inspect.isfunction(function):
        raise _unreachable(function)
    if (
        name == "__main__"
        and getattr(module, "__spec__", None) is None
        and not hasattr(module, "__file__")
    ):
        raise _invalid(
            f"{_described(function)} was typed in, so that no child process can import it",
            hint="`cpu=True` needs the function in a file",
        )


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.iscoroutinefunction(function)


def _connection_of(function: Any) -> str:
    """The parameter that a transactional activity gets its connection by: named so, or annotated as one."""
    try:
        given = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        given = []
    usable = [p for p in given if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for each in usable:
        if each.name == "connection":
            return each.name
    for each in usable:
        said = each.annotation
        said = said if isinstance(said, str) else getattr(said, "__name__", "")
        if said.rpartition(".")[2] in ("Connection", "PoolConnectionProxy"):
            return each.name
    raise _invalid(
        f"{_described(function)} is `transactional` and takes no connection",
        hint="give it a parameter named `connection`",
    )


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    return getattr(function, "__name__", None) or type(function).__name__


def _timeouts(timeout: float | timedelta | Timeouts | None) -> tuple[float | None, float | None]:
    if timeout is None:
        return None, None
    if not isinstance(timeout, Timeouts):
        return seconds_of("timeout", timeout), None
    for name in ("run", "task", "schedule_to_start"):
        if getattr(timeout, name) is not None:
            raise _invalid(
                f"`{name}` is not a timeout of an activity",
                hint="an activity has start_to_close and heartbeat; the others belong in a definition",
            )
    start_to_close, heartbeat = timeout.start_to_close, timeout.heartbeat
    return (
        None if start_to_close is None else seconds_of("start_to_close", start_to_close),
        None if heartbeat is None else seconds_of("heartbeat", heartbeat),
    )


def seconds_of(name: str, value: float | timedelta, code: str = "activity-invalid") -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Rejected(code, f"`{name}` must be seconds or a timedelta, not {shown(value)}")
    if not (isfinite(value) and value > 0):
        raise Rejected(code, f"`{name}` must be more than 0 seconds, not {shown(value)}")
    return float(value)


def _described(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if name is None:
        return f"{function!r}"[:200]
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if module else str(name)


def _invalid(message: str, *, hint: str | None = None) -> Rejected:
    return Rejected("activity-invalid", message, hint=hint)


def _unreachable(function: Any) -> Rejected:
    return _invalid(
        f"{_described(function)} cannot be found by a child process, which `cpu=True` needs",
        hint="define it with `def` at the top level of a module; no lambda, method or nested function",
    )


def names_of(function: Any) -> tuple[tuple[str, ...], bool]:
    """The names that it can be called with, and whether it takes any other name too."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return (), True
    names = tuple(p.name for p in given if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return names, any(p.kind == p.VAR_KEYWORD for p in given)
