"""`@workflow`: what was said of a function, kept in one attribute; nothing heavy is imported for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, cast, overload

from penstock.errors import Rejected, shown
from penstock.sdk.workflow import seconds_of

F = TypeVar("F", bound=Callable[..., Any])
ATTRIBUTE = "__penstock_workflow__"


@dataclass(frozen=True)
class Declared:
    """What `@workflow` said."""

    name: str | None = None
    timeout: float | None = None
    signals: frozenset[str] | None = None
    types: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of their payloads, where they were said."""


@overload
def workflow(function: F, /) -> F: ...


@overload
def workflow(
    *,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    signals: Iterable[str] | Mapping[str, Any] | None = None,
) -> Callable[[F], F]: ...


def workflow(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    signals: Iterable[str] | Mapping[str, Any] | None = None,
) -> F | Callable[[F], F]:
    """Make an `async def` a workflow: its steps are awaited calls of its Context, and a finished one is never executed
    again. `timeout` bounds the run, in all its generations together. With `signals`, the names of the signals and updates that it takes, any other is
    refused; without, all are kept until they are awaited. As a mapping of names to types (`{"approve": Approval, "amount": int}`) it also says what
    their payloads are: one that does not fit is refused."""
    if name is not None and not (type(name) is str and name):
        raise invalid(f"`name` of a workflow must be text, not {shown(name)}")
    names = None if signals is None else _names(signals)
    types = dict(cast("Mapping[str, Any]", signals)) if isinstance(signals, Mapping) else {}
    within = None if timeout is None else seconds_of("timeout", timeout)
    declared = Declared(name, within, names, types)

    def decorate(function: F) -> F:
        check(function)
        try:
            setattr(function, ATTRIBUTE, declared)
        except AttributeError:
            name = getattr(function, "__qualname__", shown(function))
            raise invalid(
                f"{name} is a bound method, so `@workflow` cannot mark it",
                hint="a workflow is a function: `async def order(ctx: Context, …)`",
            ) from None
        return function

    return decorate if function is None else decorate(function)


def _names(signals: Any) -> frozenset[str]:
    given = (
        ()
        if isinstance(signals, str) or not isinstance(signals, Iterable)
        else tuple(cast("Iterable[Any]", signals))
    )
    if not given or not all(isinstance(each, str) and each for each in given):
        raise invalid(
            f"`signals` of a workflow are names, not {shown(signals)}", hint='signals=["approve"]'
        )
    return frozenset(given)


def is_workflow(function: Any) -> bool:
    return isinstance(getattr(function, ATTRIBUTE, None), Declared)


def check(function: Any) -> None:
    if not inspect.iscoroutinefunction(function):
        name = getattr(function, "__qualname__", shown(function))
        raise invalid(
            f"{name} is not a workflow: an `async def` is needed", hint="write `async def`"
        )
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind in (
        inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD,
    ):  # fmt: skip
        raise invalid(
            f"{function.__qualname__} takes no Context",
            hint="its first parameter is its Context: `async def order(ctx: Context, …)`",
        )


def invalid(message: str, *, hint: str | None = None) -> Rejected:
    return Rejected("workflow-invalid", message, hint=hint)
