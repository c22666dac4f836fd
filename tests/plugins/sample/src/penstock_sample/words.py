"""A language of plain words: `input.sku begins "A" and tasks.count.output above 3`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock.plugin import ExpressionError, Language, Program

WORDS: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda left, right: left == right,
    "above": lambda left, right: left > right,
    "below": lambda left, right: left < right,
    "begins": lambda left, right: left.startswith(right),
}
PART = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(-?\d+(?:\.\d+)?)|([A-Za-z_][\w.-]*))')


class Words(Language):
    """PATH is|above|below|begins VALUE, joined by `and`."""

    def compile(self, text: str) -> Program:
        tests: list[tuple[tuple[str, ...], str, Any]] = []
        at = 0
        while True:
            path, at = self._part(text, at, 3, "a path such as `input.sku`")
            word, after = self._part(text, at, 3, "a word")
            if word not in WORDS:
                begun = after - len(word)
                raise ExpressionError(
                    f"`{word}` is no word of this language", position=begun, hint=", ".join(WORDS)
                )
            value, at = self._value(text, after)
            tests.append((tuple(path.split(".")), word, value))
            if not text[at:].strip():
                break
            joined, at = self._part(text, at, 3, "`and`")
            if joined != "and":
                raise ExpressionError("`and` joins two tests", position=at - len(joined))
        reads = [path for path, _, _ in tests]

        def evaluate(values: Mapping[str, Any]) -> bool:
            return all(WORDS[word](_at(values, path), value) for path, word, value in tests)

        return Program(reads, evaluate, constants=[value for _, _, value in tests])

    def _part(self, text: str, at: int, group: int, wanted: str) -> tuple[str, int]:
        found = PART.match(text, at)
        if found is None or found[group] is None:
            begun = at + len(text[at:]) - len(text[at:].lstrip())
            raise ExpressionError(f"{wanted} is missing", position=begun)
        return found[group], found.end()

    def _value(self, text: str, at: int) -> tuple[Any, int]:
        found = PART.match(text, at)
        if found is None or found[3] not in (None, "true", "false", "null"):
            raise ExpressionError("a value is missing", position=min(at + 1, len(text)))
        return json.loads(found[0]), found.end()


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    at: Any = values
    for name in path:
        at = at[name]
    return at
