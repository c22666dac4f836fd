"""Texts that a regular expression finds itself in, made from its parts: classes, repeats, choices and groups.

What is made is a guess to be held against the schema: look-arounds are passed over, and names of Unicode properties
are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, cast

LETTERS = "aA0b1 -_.@/xyz"
"""What is tried first where many letters fit."""
PATTERN_MAX = 1_000
TEXT_MAX = 2_000
_PARSE: Any = cast("Any", import_module("re._parser")).parse
_CLASSES = {
    "CATEGORY_DIGIT": "0", "CATEGORY_NOT_DIGIT": "a", "CATEGORY_SPACE": " ", "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_WORD": "a", "CATEGORY_NOT_WORD": "-",
}  # fmt: skip
"""A letter of each class."""
_TESTS = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip


def texts(pattern: str, least: int = 0) -> Iterator[str]:
    """A few texts that the pattern is likely to find itself in, the shortest first, then those of `least` letters."""
    if len(pattern) > PATTERN_MAX:
        return
    try:
        tree = _PARSE(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError):
        return
    for longer in (0, 1, 2, 5, least):
        for choice in (0, 1, 2):
            made = _Maker(longer, choice).of(tree)
            if len(made) <= TEXT_MAX:
                yield made


class _Maker:
    """One text: how much longer than they must be repeats are, and which of the ways is taken."""

    def __init__(self, longer: int, choice: int) -> None:
        self._longer, self._choice = longer, choice
        self._groups: dict[int, str] = {}
        self._left = TEXT_MAX

    def of(self, parts: Iterable[Any]) -> str:
        made: list[str] = []
        for part in parts:
            if self._left < 0:
                break
            made.append(self._one(str(part[0]), part[1]))
            self._left -= len(made[-1])
        return "".join(made)

    def _one(self, kind: str, given: Any) -> str:
        match kind:
            case "LITERAL":
                return chr(given)
            case "NOT_LITERAL":
                return next(c for c in LETTERS if ord(c) != given)
            case "ANY":
                return "a"
            case "IN":
                return self._class(given)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                low, high, inner = given
                count = min(int(high), int(low) + self._longer, TEXT_MAX)
                return "".join(self.of(inner) for _ in range(count) if self._left >= 0)
            case "BRANCH":
                ways = given[1]
                return self.of(ways[min(self._choice, len(ways) - 1)])
            case "SUBPATTERN":
                made = self.of(given[3])
                if given[0] is not None:
                    self._groups[given[0]] = made
                return made
            case "ATOMIC_GROUP":
                return self.of(given)
            case "GROUPREF":
                return self._groups.get(given, "")
            case _:
                return ""

    def _class(self, parts: Any) -> str:
        """A letter that is, or is not, in the class."""
        away = str(parts[0][0]) == "NEGATE"
        if away:
            return next((c for c in LETTERS if not any(_in(c, part) for part in parts[1:])), "~")
        kind, given = str(parts[0][0]), parts[0][1]
        if kind == "CATEGORY":
            return _CLASSES[str(given)]
        return chr(given[0] if kind == "RANGE" else given)


def _in(letter: str, part: Any) -> bool:
    match str(part[0]):
        case "LITERAL":
            return ord(letter) == part[1]
        case "RANGE":
            return part[1][0] <= ord(letter) <= part[1][1]
        case _:
            return re.match(_TESTS[str(part[1])], letter, re.ASCII) is not None
