"""What a module keeps that its workflow code must not change, for the guard of tests: globals and what is in them, attributes
of its own classes and objects, defaults of its functions (SPEC 2.8).

What there is to look at is found once, as deep as `DEPTH` and for `PARTS_MAX` parts in all; then it is held at every line
against copies of it, which is quick where nothing has changed.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import FunctionType
from typing import Any, cast

import msgspec

PARTS_MAX = 1000
DEPTH = 4
_VALUES = (int, float, str, bytes, type(None))
_CONTAINERS = (list, dict, set, tuple, deque, bytearray, itertools.count)
_HIDDEN = ("__", "_abc_")
_GONE: Any = object()


class Keeping:
    """What the module of one workflow function keeps, as it was."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._globals: dict[str, Any] = getattr(function, "__globals__", {})
        self._module = self._globals.get("__name__")
        own = [
            each
            for each in (*self._globals.values(), function)
            if isinstance(each, FunctionType) and each.__module__ == self._module
        ]
        self._defaults: dict[str, Any] = {
            f"{each.__qualname__}({name}=…)": value
            for each in own
            for name, value in _defaults(each)
            if isinstance(value, _CONTAINERS)
        }

    def look(self) -> None:
        """It is as it should be now."""
        self._names: dict[str, Any] = {}
        self._held: list[tuple[str, Any, Any, Any]] = []
        """Live containers, and what was in them; of attributes also whose they are."""
        self._read: list[tuple[str, Callable[[], Any], Any]] = []
        """What must be asked for, and what it was."""
        self._left = PARTS_MAX
        roots: list[tuple[str, Any]] = []
        for name, value in list(self._globals.items()):
            if name.startswith("__"):
                continue
            if isinstance(value, _VALUES):
                self._names[name] = value
            elif isinstance(value, _CONTAINERS) or self._own(value):
                self._names[name] = value
                roots.append((name, cast("Any", value)))
        roots += self._defaults.items()
        seen: set[int] = set()
        for path, value in roots:
            self._note(path, value, DEPTH, seen)

    def _own(self, value: Any) -> bool:
        """A class of the module's, or an object of one: of others nobody knows what they do inside."""
        kind: Any = value if isinstance(value, type) else type(value)
        return getattr(kind, "__module__", None) == self._module and not issubclass(kind, Enum)

    def _note(self, path: str, value: Any, depth: int, seen: set[int]) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, itertools.count):
            self._read.append((path, functools.partial(repr, value), repr(cast("Any", value))))
        elif isinstance(value, list | dict | set | deque | bytearray):
            held = cast("Any", value)
            self._held.append((path, held, held.copy(), None))
        elif isinstance(value, msgspec.Struct):
            ask = functools.partial(msgspec.structs.asdict, value)
            self._read.append((path, ask, ask()))
        elif hasattr(value, "__dict__"):
            live = cast("Mapping[str, Any]", vars(value))
            self._held.append((path, live, dict(live), value))
        for step, part in self._parts(value) if depth else ():
            self._left -= 1
            if self._left < 0:
                return
            if isinstance(part, _CONTAINERS) or self._own(part):
                self._note(path + step, part, depth - 1, seen)

    def _parts(self, value: Any) -> Iterable[tuple[str, Any]]:
        if isinstance(value, dict):
            parts = cast("dict[Any, Any]", value)
            return ((f"[{key!r:.60}]", part) for key, part in list(parts.items()))
        if isinstance(value, list | tuple | deque):
            listed = list(cast("Iterable[Any]", value))
            return ((f"[{at}]", part) for at, part in enumerate(listed))
        if isinstance(value, msgspec.Struct):
            return ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
        if self._own(value) and hasattr(value, "__dict__"):
            return (
                (f".{name}", part) for name, part in _shown(value, cast("Any", vars(value))).items()
            )
        return ()

    def changed(self) -> str | None:
        """The path of what is not as it was."""
        names = self._globals
        for name, value in self._names.items():
            now = names.get(name, _GONE)
            if now is not value and not (isinstance(value, _VALUES) and _same(now, value)):
                return name
        for path, live, copied, owner in self._held:
            if not _same(live, copied) and not (
                owner is not None and _same(_shown(owner, live), _shown(owner, copied))
            ):
                return path
        for path, ask, before in self._read:
            if not _same(ask(), before):
                return path
        return None


def _same(now: Any, before: Any) -> bool:
    """Parts that are the same objects are not asked whether they are equal."""
    try:
        return bool(now == before)
    except Exception:  # of a type whose parts cannot be compared, and one of them is another
        return False


def _shown(owner: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Without what Python, or a cached property, keeps there: that is nobody's doing."""
    kind = cast("Any", type(owner))
    return {
        name: value
        for name, value in list(attributes.items())
        if not name.startswith(_HIDDEN)
        and not isinstance(getattr(kind, name, None), functools.cached_property)
    }


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    values = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(names[len(names) - len(values) :], values, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
