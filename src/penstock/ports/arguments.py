"""Arguments of public functions, held against what their signatures say, before anything is done with them (SPEC 4.4).

Who calls may be wrong about a type; then they are told which argument it is, what it is and what it should be, and not
where in our code it went astray. What an argument means (whether there is such a run) is not looked at here.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, TypeVar, cast

from penstock.errors import Rejected, shown

C = TypeVar("C", bound=type[Any])
Fits = Callable[[Any], bool]

_CALLABLE = typing.get_origin(Callable[[Any], Any])
INT_MAX = 2**63 - 1
SECONDS_MAX = 2.5e11
"""Times and durations up to there are before the year 10000."""
CODES = {
    "id": "id-invalid", "definition": "id-invalid", "inputs": "starts-invalid", "ids": "starts-invalid", "exclude": "exclude-invalid",
    "if_exists": "if-exists-unknown", "priority": "priority-unknown", "listener": "listener-invalid",
    "types": "listener-invalid", "singleton": "debounce-invalid", "debounce": "debounce-invalid", "token": "token-invalid",
    "arguments": "batch-invalid",
}  # fmt: skip
"""Arguments whose errors have a code of their own; those of others tell of their type."""
SAID: dict[Any, str] = {
    str: "a text", int: "a whole number", float: "a number of seconds", bool: "True or False", datetime: "a datetime",
    timedelta: "a timedelta", type(None): "None",
}  # fmt: skip


def checked(cls: C) -> C:
    """The class, its public methods taking only what their signatures say."""
    for name, function in list(vars(cls).items()):
        takes = inspect.isfunction(function) and len(inspect.signature(function).parameters) > 1
        if takes and not name.startswith("_"):
            setattr(cls, name, _guarded(function))
    return cls


def check(name: str, value: Any, annotation: Any, *, code: str) -> None:
    """Rejected if the value is none of these."""
    if not _fits(annotation)(value):
        raise _wrong(name, value, annotation, code)


def _wrong(name: str, value: Any, annotation: Any, code: str = "") -> Rejected:
    kinds = _kinds(annotation)
    wanted = " or ".join(dict.fromkeys(_said(kind) for kind in kinds))
    said, hint = f"`{name}` is {shown(value)}, not {wanted}", f"give {wanted}"
    if isinstance(value, str) and str in kinds:
        said = f"`{name}` is {shown(value)}, not a text that can be kept"
        hint = "leave out NUL and halves of surrogate pairs"
    return Rejected(code or CODES.get(name) or _code(kinds), said, hint=hint)


def clean(text: str) -> bool:
    """Whether every store can keep and look for it: no half of a surrogate pair, no NUL."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    names, more = list[str](), ""
    for name, parameter in [*inspect.signature(function).parameters.items()][1:]:
        if parameter.kind == parameter.VAR_POSITIONAL:
            more = name  # what is given by position from here on is that
            break
        names.append(name)
    rules: dict[str, Rule] = {}
    shapes: dict[tuple[Any, ...], list[int]] = {}

    def look(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Every start comes through here: of a shape that was good before, only the texts are looked at."""
        values = (*arguments, *named.values())
        shape = (*named, *map(type, values))
        texts = shapes.get(shape)
        if texts is not None:
            for place in texts:
                if not values[place].isascii() or "\0" in values[place]:
                    break
            else:
                return
        if not rules:
            rules.update(_rules(function))
        places = names if not more else [*names, *[more] * len(arguments)]
        given = [*zip(places, arguments, strict=False), *named.items()]
        for name, value in given:
            fits, annotation = rules.get(name, ANY_RULE)
            if not fits(value):
                raise _wrong(name, value, annotation)
        if len(shapes) < SHAPES_MAX and all(
            rules.get(name, ANY_RULE) is ANY_RULE or type(value) in PLAIN for name, value in given
        ):
            shapes[shape] = [
                place
                for place, (name, value) in enumerate(given)
                if name in rules and type(value) is str
            ]

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waited(self: Any, *arguments: Any, **named: Any) -> Any:
            look(arguments, named)
            return await function(self, *arguments, **named)

        return waited

    @functools.wraps(function)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        look(arguments, named)
        return function(self, *arguments, **named)

    return called


def _rules(function: Callable[..., Any]) -> dict[str, Rule]:
    hints = typing.get_type_hints(function)
    found: dict[str, Rule] = {"self": ANY_RULE}
    for name, parameter in inspect.signature(function).parameters.items():
        plain = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if plain and name in hints and hints[name] is not Any:
            found[name] = _fits(hints[name]), hints[name]
    return found


# --- one annotation ----------------------------------------------------------------------------------------------


def _kinds(annotation: Any) -> list[Any]:
    """The alternatives."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [kind for each in typing.get_args(annotation) for kind in _kinds(each)]
    return [annotation]


def _fits(annotation: Any) -> Fits:
    tests = [_test(kind) for kind in _kinds(annotation)]
    if len(tests) == 1:
        return tests[0]

    def one_of_them(value: Any) -> bool:
        for test in tests:  # noqa: SIM110 - a third of the cost of `any`
            if test(value):
                return True
        return False

    return one_of_them


def _test(kind: Any) -> Fits:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or kind is object or isinstance(kind, TypeVar):
        return _anything
    if kind in _TESTS:
        return _TESTS[kind]
    if origin is _CALLABLE:
        return callable
    if origin is not None and issubclass(origin, collections.abc.Mapping):
        return _is_mapping
    if origin is not None and issubclass(origin, collections.abc.Collection):
        each = _fits(parts[0]) if parts else _anything
        return lambda value: _is_many(value, origin) and all(map(each, value))
    if origin is not None and issubclass(origin, collections.abc.Iterable):
        return lambda value: _is_many(value, collections.abc.Iterable)
    cls = origin or kind
    return lambda value: isinstance(value, cls)


def _anything(value: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and ((value.isascii() and "\0" not in value) or clean(value))


def _is_number(value: Any) -> bool:
    return type(value) is int and -INT_MAX <= value <= INT_MAX


def _is_seconds(value: Any) -> bool:
    if type(value) is int:
        return -SECONDS_MAX <= value <= SECONDS_MAX
    return isinstance(value, float) and isfinite(value) and -SECONDS_MAX <= value <= SECONDS_MAX


def _is_span(value: Any) -> bool:
    return isinstance(value, timedelta) and _is_seconds(value.total_seconds())


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, cast("Mapping[Any, Any]", value)))


def _is_many(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, str | bytes | Mapping)


_TESTS: dict[Any, Fits] = {
    str: _is_text,
    int: _is_number,
    float: _is_seconds,
    timedelta: _is_span,
    bool: lambda value: type(value) is bool,
    type(None): lambda value: value is None,
}


Rule = tuple[Fits, Any]
"""Whether a value fits, and what the signature says."""
ANY_RULE: Rule = _anything, Any
PLAIN = frozenset({str, bool, type(None), types.FunctionType})
"""With one value of theirs all others fit too, but for texts that not every store can keep."""
SHAPES_MAX = 64
"""Of so many sets of names and types a function remembers that they are good."""


def _said(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if kind in SAID:
        return SAID[kind]
    if origin is _CALLABLE:
        return "something that can be called"
    if origin is not None and issubclass(origin, Mapping):
        return "a mapping of names to values"
    if origin is not None and issubclass(origin, collections.abc.Iterable):
        parts = typing.get_args(kind)
        return f"a list, each {_said(parts[0])}" if parts and parts[0] is not Any else "a list"
    return f"a {getattr(kind, '__name__', kind)}"


def _code(kinds: list[Any]) -> str:
    if any(kind in (float, datetime, timedelta) for kind in kinds):
        return "time-invalid"
    if str in kinds:
        return "text-invalid"
    if any(typing.get_origin(kind) is collections.abc.Mapping for kind in kinds):
        return "payload-invalid"
    return "wrong-type"
