"""JSONPath (RFC 9535) for `inputs.path`; a plain `$.a.b[0]` takes a short cut.

A singular path gives the value or `MISSING`; any other gives the list of what it finds.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast

import jsonpath_rfc9535 as jsonpath

from penstock.errors import ExpressionError

MISSING = object()
# Our own patterns, linear in the text; patterns of users go to RE2.
_PLAIN = re.compile(r"\$(?:\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]{1,9}\])*")
_PART = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[([0-9]+)\]")


class Path:
    """A compiled path."""

    __slots__ = ("_parts", "_query", "singular", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts: list[str | int] | None = None
        self._query: Any = None
        if _PLAIN.fullmatch(text):
            self._parts = [
                m.group(1) if m.group(1) is not None else int(m.group(2))
                for m in _PART.finditer(text)
            ]
            self.singular = True
            return
        try:
            self._query = jsonpath.compile(text)
        except (
            Exception
        ) as error:  # the library's errors share no public base that covers its lexer too
            raise ExpressionError(f"not a JSONPath: {error}", text=text) from error
        self.singular = bool(self._query.singular_query())

    @property
    def plain(self) -> tuple[str | int, ...] | None:
        """Names and numbers, if it is made of nothing else."""
        return None if self._parts is None else tuple(self._parts)

    def read(self, value: Any) -> Any:
        if self._parts is not None:
            for part in self._parts:
                if isinstance(part, str):
                    if not isinstance(value, dict) or part not in value:
                        return MISSING
                    value = cast("dict[str, Any]", value)[part]
                else:
                    if not isinstance(value, list) or part >= len(cast("list[Any]", value)):
                        return MISSING
                    value = cast("list[Any]", value)[part]
            return value
        found = [node.value for node in self._query.find(value)]
        if self.singular:
            return found[0] if found else MISSING
        return found


@lru_cache(maxsize=4096)
def compile_path(text: str) -> Path:
    """Compiled once; ExpressionError if it is not a JSONPath."""
    return Path(text)
