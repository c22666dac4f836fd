"""A document as a tree that remembers where each value was written.

`read_yaml.py` and `read_json.py` build it; `Places` answers where a path of the document, or of its
expansion, stands in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.dsl.finding import Path

BYTES_MAX = 10 * 1024 * 1024
AS_INPUT = "pass large data to the run as input"
"""A hint."""
VALUES_MAX = 1_000_000
DEPTH_MAX = 100
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_BREAK = re.compile(r"\r\n|\r|\n")


class Node:
    """A value and where it begins: an offset into the text. A scalar, or `items`, or `entries`."""

    __slots__ = ("at", "entries", "items", "key_at", "scalar", "size")

    def __init__(
        self,
        at: int,
        scalar: Any = None,
        *,
        items: list[Node] | None = None,
        entries: dict[str, Node] | None = None,
    ) -> None:
        self.at = at
        self.scalar = scalar
        self.items = items
        self.entries = entries
        self.key_at: dict[str, int] = {}
        self.size = 1
        """How many values it holds, itself and whatever its aliases stand for included."""

    def alias(self, at: int) -> Node:
        """The same value, written again elsewhere."""
        twin = Node(at, self.scalar, items=self.items, entries=self.entries)
        twin.key_at, twin.size = self.key_at, self.size
        return twin

    def plain(self) -> Any:
        """The value without its places. Recursion is safe: readers stop at DEPTH_MAX."""
        if self.entries is not None:
            return {key: child.plain() for key, child in self.entries.items()}
        if self.items is not None:
            return [child.plain() for child in self.items]
        return self.scalar


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a reader met: at an offset, as it knows no paths."""

    code: str
    at: int
    message: str
    hint: str | None = None
    first_at: int | None = None
    """Where the first of two stands."""


@dataclass(slots=True)
class Reading:
    """What a reader made of a text: no root where it could not go on."""

    root: Node | None = None
    problems: list[Problem] = field(default_factory=list[Problem])


class Stop(Exception):
    """A reader can't go on; ends its work and never leaves it."""

    def __init__(self, code: str, at: int, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(code, at, message, hint)


def is_unicode(text: str) -> bool:
    """Whether it can be written as UTF-8: no half of a surrogate pair is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def number(text: str) -> int | float | None:
    """What a JSON number stands for, or None if it fits neither 64 bits nor a double."""
    if _INTEGER.match(text):
        if len(text) > 20:
            return None
        value = int(text)
        return value if INTEGER_MIN <= value <= INTEGER_MAX else None
    real = float(text)
    return None if real in (float("inf"), float("-inf")) else real


def number_problem(text: str, at: int) -> Problem:
    shown = text if len(text) <= 40 else text[:37] + "..."
    return Problem(
        "number-out-of-range",
        at,
        f"the number {shown} does not fit",
        "integers have 64 bits and others are doubles; put quotes around it to keep it as text",
    )


def duplicate(key: str, at: int, first_at: int, *, is_id: bool) -> Problem:
    if is_id:
        message, hint = f"two tasks are called `{key}`", "give one of them another id"
        return Problem("duplicate-id", at, message, hint, first_at=first_at)
    message, hint = f"`{key}` is written twice", "keep one of the two"
    return Problem("duplicate-key", at, message, hint, first_at=first_at)


class Lines:
    """Offsets into lines and columns, both from 1."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in _BREAK.finditer(text))]

    def position(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


class Places(Mapping[Path, tuple[int, int]]):
    """Where each path of a document was written, as (line, column).

    Paths of the expanded document are led back to the shorthand that they came from.
    """

    def __init__(self, root: Node | None = None, text: str = "") -> None:
        self._root = root
        self._lines = Lines(text)
        self._moved: Mapping[Path, Path] = {}

    def led_back(self, moved: Mapping[Path, Path]) -> Places:
        """The same text, asked with the paths of its expansion."""
        places = Places(self._root)
        places._lines, places._moved = self._lines, moved
        return places

    def original(self, path: Path) -> Path:
        """The path as it was written."""
        for length in range(len(path), 0, -1):
            written = self._moved.get(path[:length])
            if written is not None:
                return written + path[length:]
        return path

    def nearest(self, path: Path, *, key: bool = False) -> tuple[int, int]:
        """Where `path`, or the closest thing around it that was written, stands.

        With `key`, where its key stands instead of its value. (0, 0) if there was never a text.
        """
        if self._root is None:
            return 0, 0
        return self._lines.position(self.offset(path, key=key))

    def offset(self, path: Path, *, key: bool = False) -> int:
        """As `nearest`, as an offset into the text."""
        return 0 if self._root is None else _walk(self._root, self.original(path), key=key)[0]

    def __getitem__(self, path: Path) -> tuple[int, int]:
        if self._root is None:
            raise KeyError(path)
        offset, whole = _walk(self._root, self.original(path), key=False)
        if not whole:
            raise KeyError(path)
        return self._lines.position(offset)

    def __iter__(self) -> Iterator[Path]:
        if self._root is None:
            return
        yield from self._moved
        stack: list[tuple[Path, Node]] = [((), self._root)]
        while stack:
            path, node = stack.pop()
            if path not in self._moved:
                yield path
            for key, child in (node.entries or {}).items():
                stack.append(((*path, key), child))
            for index, child in enumerate(node.items or ()):
                stack.append(((*path, index), child))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _walk(node: Node, path: Path, *, key: bool) -> tuple[int, bool]:
    """The offset of `path` or of the last step towards it that exists, and whether it is `path`."""
    offset = node.at
    for step in path:
        if isinstance(step, str) and node.entries is not None and step in node.entries:
            offset = node.key_at[step] if key else node.entries[step].at
            node = node.entries[step]
        elif isinstance(step, int) and node.items is not None and step < len(node.items):
            node = node.items[step]
            offset = node.at
        else:
            return offset, False
    return offset, True
