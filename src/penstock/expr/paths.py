"""JSONPath (RFC 9535) for `inputs.path`; a plain `$.a.b[0]` takes a short cut.

A singular path gives the value or `MISSING`; any other gives the list of what it finds.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast

import jsonpath_rfc9535 as jsonpath
import re2 as _untyped_re2  # pyright: ignore[reportMissingTypeStubs]: it ships none
from iregexp_check import check as is_iregexp
from jsonpath_rfc9535.function_extensions import ExpressionType, FilterFunction

from penstock.errors import CostExceeded, ExpressionError

re2: Any = _untyped_re2
MISSING = object()
STEPS_MAX = 500_000
"""Nodes that one reading may visit."""
TEXT_CHARACTERS_MAX = 4_096
# Our own patterns, linear in the text; patterns of users go to RE2.
_PLAIN = re.compile(r"\$(?:\.[A-Za-z_][A-Za-z0-9_]*|\[(?:0|[1-9][0-9]{0,8})\])*")
_PART = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[([0-9]+)\]")


class Path:
    """A compiled path."""

    __slots__ = ("_parts", "_query", "singular", "text")

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ExpressionError(f"a path has at most {TEXT_CHARACTERS_MAX} characters", text=text)
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
            self._query = _environment.compile(text)
        except (
            Exception
        ) as error:  # the library's errors share no public base that covers its lexer too
            # Its own words without its place, which counts columns from 0: ours is given with the error.
            said = str(error.args[0]) if error.args else str(error)
            at = getattr(getattr(error, "token", None), "index", 0)
            position = max(0, min(at, len(text)))
            raise ExpressionError(
                f"not a JSONPath: {said}", text=text, position=position
            ) from error
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
        found = self._found(value)
        if self.singular:
            return found[0] if found else MISSING
        return found

    def _found(self, value: Any) -> list[Any]:
        nodes: Any = [_Node(value=value, location=(), parent=None, root=value)]
        nodes[0].steps = [STEPS_MAX]
        for segment in self._query.segments:
            nodes = segment.resolve(nodes)
        try:
            return [node.value for node in nodes]
        except (jsonpath.JSONPathRecursionError, RecursionError):
            raise CostExceeded(f"`{self.text}` goes deeper than values may be nested") from None


class _Node(jsonpath.JSONPathNode):
    """A node that counts those below it."""

    __slots__ = ("steps",)

    steps: list[int]

    def new_child(self, value: object, key: int | str, parent: Any) -> _Node:
        steps = self.steps
        steps[0] -= 1
        if steps[0] < 0:
            raise CostExceeded(f"a path visits more than {STEPS_MAX} nodes")
        child = _Node(value=value, location=(*self.location, key), parent=parent, root=self.root)
        child.steps = steps
        return child


class _Matching(FilterFunction):
    """`match` and `search` by RE2, whose time is linear in the text."""

    @property
    def arg_types(self) -> list[ExpressionType]:
        return [ExpressionType.VALUE, ExpressionType.VALUE]

    @property
    def return_type(self) -> ExpressionType:
        return ExpressionType.LOGICAL

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole

    def __call__(self, text: Any, pattern: Any) -> bool:
        if not isinstance(text, str) or not isinstance(pattern, str):
            return False
        compiled = _pattern(pattern)
        if compiled is None:
            return False
        found = compiled.fullmatch(text) if self._whole else compiled.search(text)
        return found is not None


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> Any:
    """None if it is no I-Regexp (RFC 9485), or too large for RE2: such a one matches nothing."""
    if not is_iregexp(pattern):
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(
            _DOT.sub(lambda m: "[^\\n\\r]" if m[0] == "." else m[0], pattern), options
        )
    except re2.error:
        return None


# A dot by itself, but neither one that is escaped nor one in a class.
_DOT = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\.", re.DOTALL)


class _Environment(jsonpath.JSONPathEnvironment):
    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _Matching(whole=True)
        self.function_extensions["search"] = _Matching(whole=False)


_environment = _Environment()


@lru_cache(maxsize=4096)
def compile_path(text: str) -> Path:
    """Compiled once; ExpressionError if it is not a JSONPath."""
    return Path(text)
