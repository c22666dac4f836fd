"""Functions by name: their overloads, and which one takes which values.

The functions themselves are in `library.py` and its neighbours; they register here when imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.expr.types import BY_NAME, Type
from penstock.expr.values import kind_of, overload_fault

Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function; `run` takes the frame first, and spends there what it costs."""

    params: tuple[Type, ...]
    result: Type
    run: Run


class Function:
    """All overloads of one name and number of arguments; a method's target is its first argument."""

    def __init__(self, name: str, arity: int) -> None:
        self.name = name
        self.arity = arity
        self.overloads: list[Overload] = []
        # Filled as values come by: from the class of the argument, or the classes of several, to run.
        self.table: dict[Any, Run] = {}

    @property
    def generic(self) -> bool:
        """Its result may be one of its arguments, or a part of one."""
        return any(overload.result.name.isupper() for overload in self.overloads)

    def resolve(self, *args: Any) -> Run:
        """What to run for these values, remembered by their classes; a fault if nothing fits."""
        kinds = [kind_of(arg) for arg in args]
        for overload in self.overloads:
            if all(
                param.name in (kind, "dyn") or param.name.isupper()
                for param, kind in zip(overload.params, kinds, strict=True)
            ):
                classes = tuple(arg.__class__ for arg in args)
                self.table[classes if len(classes) != 1 else classes[0]] = overload.run
                return overload.run
        overload_fault(self.name, *args)


# (is it a method, name, number of arguments with the target)
FUNCTIONS: dict[tuple[bool, str, int], Function] = {}
NAMES: dict[str, set[int]] = {}

_SIGNATURE = re.compile(
    r"(?:\((?P<target>.+?)\)\.)?(?P<name>[\w.%*/+-]+)\((?P<params>.*)\) -> (?P<result>.+)"
)


def function(*signatures: str) -> Callable[[Run], Run]:
    """Register an overload, as in `(string).charAt(int) -> string` or `math.abs(int) -> int`."""

    def register(run: Run) -> Run:
        for signature in signatures:
            match = _SIGNATURE.fullmatch(signature)
            assert match is not None, signature
            params = _types(match["params"])
            if match["target"] is not None:
                params = [*_types(match["target"]), *params]
            key = (match["target"] is not None, match["name"], len(params))
            entry = FUNCTIONS.setdefault(key, Function(match["name"], len(params)))
            entry.overloads.append(Overload(tuple(params), _types(match["result"])[0], run))
            NAMES.setdefault(match["name"], set()).add(len(params) - (key[0]))
        return run

    return register


def _types(text: str) -> list[Type]:
    """`list(A), int` as types; a single capital is a type variable."""
    parts: list[str] = []
    depth, start = 0, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    found: list[Type] = []
    for part in (part.strip() for part in parts):
        if not part:
            continue
        if "(" in part:
            name, inner = part[:-1].split("(", 1)
            found.append(Type(name, tuple(_types(inner))))
        else:
            found.append(BY_NAME.get(part) or Type(part))
    return found
