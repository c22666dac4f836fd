"""From a job's JSON arguments to a call: binding, and conversion by annotations.

What a function is annotated with is looked at once, at its first call; a function with plain annotations, or none,
pays nothing for it afterwards.
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
from typing import Any, cast

import msgspec

from penstock.errors import PenstockError
from penstock.sdk.results import Result
from penstock.sdk.values import encode_value, has_models, of_models, validated

_ATOMS: frozenset[Any] = frozenset({str, int, float, bool, type(None)})
_PLAIN: frozenset[Any] = _ATOMS | {None, Any, object, dict, list, inspect.Parameter.empty}
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

    code = "arguments-invalid"

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.details = {"parameter": parameter} if parameter else None


class Parameters:
    """What a function takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._known = False
        self._result: Result | None = None
        self._converted: dict[str, Any] = {}
        self._positions: tuple[str, ...] = ()
        self._takes_none = False

    def call(self, arguments: Any, secrets: dict[str, Any] | None = None) -> Any:
        """Call the function (of an `async def` that makes the coroutine). A dict becomes keyword arguments, a list
        positional ones, anything else the one argument, and null none where there is no place for it."""
        if not self._known:
            self._look()
        function = self._function
        kind = type(arguments)  # pyright: ignore[reportUnknownVariableType]  (of Any)
        try:
            if self._converted or secrets:
                call = self._convert(arguments, secrets)
                return function(*call.positional, **call.named)
            if kind is dict:
                return function(**arguments)
            if kind is list:
                return function(*arguments)
            if arguments is None and self._takes_none:
                return function()
            return function(arguments)
        except TypeError as error:
            wrong = self._mismatch(arguments, secrets)
            if wrong is None:
                raise
            raise wrong from error

    @property
    def result(self) -> Result:
        """What the function gives, looked at when first asked."""
        found = self._result
        if found is None:
            found = self._result = Result(self._function)
        return found

    def _look(self) -> None:
        """Read the function's signature, once."""
        self._known = True
        try:
            parameters = inspect.signature(self._function).parameters.values()
        except (TypeError, ValueError):  # some are written in C
            return
        annotations = _annotations(self._function)
        self._takes_none = not parameters
        self._positions = tuple(
            each.name
            for each in parameters
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        )
        for each in parameters:
            annotation = annotations.get(each.name)
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and _needs(annotation):
                self._converted[each.name] = annotation

    def _convert(self, arguments: Any, secrets: dict[str, Any] | None) -> _Call:
        call = self._placed(arguments, secrets)
        for name, annotation in self._converted.items():
            if secrets and name in secrets:
                continue
            if name in call.named:
                call.named[name] = _converted(name, call.named[name], annotation)
            elif name in self._positions:
                position = self._positions.index(name)
                if position < len(call.positional):
                    value = call.positional[position]
                    call.positional[position] = _converted(name, value, annotation)
        return call

    def _placed(self, arguments: Any, secrets: dict[str, Any] | None) -> _Call:
        """The arguments, and what the engine gives, which is left out when those given by position are counted."""
        call = _call_of(arguments, self._takes_none or bool(secrets))
        if not secrets:
            return call
        left = dict(secrets)
        if call.positional:
            given, call.positional = iter(call.positional), []
            for name in self._positions:
                if name in left:
                    call.positional.append(left.pop(name))
                    continue
                try:
                    call.positional.append(next(given))
                except StopIteration:
                    break
            call.positional.extend(given)
        call.named.update(left)
        return call

    def _mismatch(self, arguments: Any, secrets: dict[str, Any] | None) -> BadArguments | None:
        """Why the arguments cannot be bound, or None if they can and the TypeError is the function's own."""
        try:
            signature = inspect.signature(self._function)
        except (TypeError, ValueError):
            return None
        call = self._placed(arguments, secrets)
        try:
            signature.bind(*call.positional, **call.named)
        except TypeError as error:
            # What is written wrong says more than what is missing because of it.
            known = signature.parameters
            wrong = next((name for name in call.named if name not in known), None)
            if wrong is not None and not any(
                each.kind == each.VAR_KEYWORD for each in known.values()
            ):
                return BadArguments(f"no parameter is named '{wrong}'; it takes {signature}", wrong)
            named = str(error).split("'")
            parameter = named[1] if len(named) > 2 else None
            return BadArguments(f"{error}; it takes {signature}", parameter)
        return None


@dataclasses.dataclass
class _Call:
    positional: list[Any]
    named: dict[str, Any]


def _call_of(arguments: Any, takes_none: bool) -> _Call:
    if type(arguments) is dict:
        return _Call([], dict(cast("dict[str, Any]", arguments)))
    if type(arguments) is list:
        return _Call(list(cast("list[Any]", arguments)), {})
    return _Call([] if arguments is None and takes_none else [arguments], {})


def _converted(name: str, value: Any, annotation: Any) -> Any:
    try:
        return msgspec.convert(value, annotation, str_keys=True, dec_hook=validated)
    except msgspec.ValidationError as error:
        raise BadArguments(f"argument '{name}': {error}", name) from None
    except TypeError:  # a union that msgspec cannot tell apart
        read = of_models(annotation)
        if read is None:
            raise
        try:
            return read(encode_value(value))
        except ValueError as error:
            raise BadArguments(f"argument '{name}': {error}", name) from None


def _annotations(function: Any) -> dict[str, Any]:
    """The parameters' types, as far as their names can be resolved."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    target: Any = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # a name for the type checker only, or one that is local to a function
        return _annotations_one_by_one(target)


def _annotations_one_by_one(target: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    target = inspect.unwrap(getattr(target, "__func__", target))
    names = getattr(target, "__globals__", {})
    cells: dict[str, Any] = {}
    if inspect.isfunction(target):
        cells.update(inspect.getclosurevars(target).nonlocals)
    for name, annotation in getattr(target, "__annotations__", {}).items():
        alone: Any = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found |= typing.get_type_hints(alone, names, cells, include_extras=True)
        except Exception:
            continue
    return found


def _needs(annotation: Any) -> bool:
    """Whether values must be converted from JSON to fit the annotation, and can be."""
    if not _differs(annotation):
        return False
    try:
        msgspec.json.Decoder(annotation)
    except Exception:  # a union that cannot be told apart, a type of which msgspec knows nothing
        return has_models(annotation)
    return True


def _differs(annotation: Any) -> bool:
    try:
        if annotation in _PLAIN:
            return False
    except TypeError:  # unhashable, so none of ours
        return False
    origin = typing.get_origin(annotation)
    if origin in _TRANSPARENT:
        return any(_differs(each) for each in typing.get_args(annotation))
    if origin is typing.Annotated:
        return True
    target: Any = origin or annotation
    return isinstance(target, type) and (
        dataclasses.is_dataclass(cast("Any", target))
        or issubclass(target, _CONVERTED)
        or hasattr(cast("Any", target), "model_validate")
        or typing.is_typeddict(cast("Any", target))
    )
