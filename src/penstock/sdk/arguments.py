"""From a job's JSON arguments to a call: binding, and conversion by annotations.

What a function is annotated with is looked at once, at its first call; a function with plain annotations, or none,
pays nothing afterwards.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.errors import PenstockError

_PLAIN: frozenset[Any] = frozenset(
    {str, int, float, bool, None, type(None), Any, object, dict, list, inspect.Parameter.empty}
)
_TRANSPARENT: frozenset[Any] = frozenset(
    {
        dict,
        list,
        typing.Union,
        types.UnionType,
        collections.abc.Mapping,
        collections.abc.MutableMapping,
        collections.abc.Sequence,
        collections.abc.MutableSequence,
        collections.abc.Collection,
        collections.abc.Iterable,
    }
)
_CONVERTED = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
    enum.Enum,
    bytes,
    bytearray,
    set,
    frozenset,
    tuple,
    msgspec.Struct,
)


class BadArguments(PenstockError):
    """The arguments do not fit the activity's parameters."""

    code = "bad-arguments"

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.details = {"parameter": parameter} if parameter else None


class Parameters:
    """What a function takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._known = False
        self._converted: dict[str, Any] = {}
        self._positions: tuple[str, ...] = ()
        self._takes_none = False

    def call(self, arguments: Any, secrets: dict[str, Any] | None = None) -> Any:
        """Call the function (of an `async def` that makes the coroutine). A dict becomes keyword arguments, a list
        positional ones, anything else the one argument."""
        if not self._known:
            self._look()
        if self._converted or secrets:
            arguments = self._convert(arguments, secrets)
        function = self._function
        try:
            if type(arguments) is dict:
                return function(**arguments)
            if type(arguments) is list:
                return function(*arguments)
            if type(arguments) is _Call:
                return function(*arguments.positional, **arguments.named)
            if arguments is None and self._takes_none:
                return function()
            return function(arguments)
        except TypeError as error:
            wrong = self._mismatch(arguments)
            if wrong is None:
                raise
            raise wrong from error

    def _look(self) -> None:
        try:
            signature = inspect.signature(self._function)
        except (TypeError, ValueError):
            self._known = True
            return
        parameters = signature.parameters.values()
        annotations = _annotations(self._function)
        self._takes_none = not parameters
        self._positions = tuple(
            each.name
            for each in parameters
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        )
        for each in parameters:
            annotation = annotations.get(each.name, each.annotation)
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and _needs(annotation):
                self._converted[each.name] = annotation
        self._known = True

    def _convert(self, arguments: Any, secrets: dict[str, Any] | None) -> Any:
        call = _call_of(arguments, self._takes_none)
        for name, annotation in self._converted.items():
            if name in call.named:
                call.named[name] = _converted(name, call.named[name], annotation)
                continue
            position = (
                self._positions.index(name) if name in self._positions else len(call.positional)
            )
            if position < len(call.positional):
                call.positional[position] = _converted(name, call.positional[position], annotation)
        if secrets:
            call.named.update(secrets)
        return call

    def _mismatch(self, arguments: Any) -> BadArguments | None:
        """Why the arguments cannot be bound, or None if they can and the TypeError is the function's own."""
        try:
            signature = inspect.signature(self._function)
        except (TypeError, ValueError):
            return None
        call = _call_of(arguments, self._takes_none)
        try:
            signature.bind(*call.positional, **call.named)
        except TypeError as error:
            named = str(error).split("'")
            parameter = named[1] if len(named) > 2 else None
            return BadArguments(f"{error}; the activity takes {signature}", parameter)
        return None


class _Call:
    __slots__ = ("named", "positional")

    def __init__(self, positional: list[Any], named: dict[str, Any]) -> None:
        self.positional, self.named = positional, named


def _call_of(arguments: Any, takes_none: bool) -> _Call:
    if isinstance(arguments, _Call):
        return arguments
    if type(arguments) is dict:
        return _Call([], dict(arguments))  # pyright: ignore[reportUnknownArgumentType]
    if type(arguments) is list:
        return _Call(list(arguments), {})  # pyright: ignore[reportUnknownArgumentType]
    return _Call([] if arguments is None and takes_none else [arguments], {})


def _converted(name: str, value: Any, annotation: Any) -> Any:
    try:
        return msgspec.convert(value, annotation, str_keys=True)
    except msgspec.ValidationError as error:
        raise BadArguments(f"argument '{name}': {error}", name) from None


def _annotations(function: Any) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    target: Any = function if inspect.isroutine(function) else type(function).__call__  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:
        # Names that exist for the type checker only: nothing to convert by.
        return {}


def _needs(annotation: Any) -> bool:
    """Whether values must be converted from JSON to fit the annotation, and can be."""
    try:
        if annotation in _PLAIN:
            return False
    except TypeError:
        return False
    origin = typing.get_origin(annotation)
    if origin in _TRANSPARENT:
        return any(_needs(each) for each in typing.get_args(annotation))
    if origin is typing.Literal:
        return False
    if origin is typing.Annotated:
        return True
    target = origin or annotation
    return isinstance(target, type) and (
        dataclasses.is_dataclass(target)
        or issubclass(target, _CONVERTED)
        or typing.is_typeddict(target)
    )
