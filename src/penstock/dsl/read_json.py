"""JSON into a tree with places: exactly RFC 8259, which YAML's flow style is not.

Recursion is safe: it stops at DEPTH_MAX.
"""

from __future__ import annotations

import json
import re

from penstock.dsl.tree import (
    AS_INPUT,
    DEPTH_MAX,
    VALUES_MAX,
    Node,
    Problem,
    Reading,
    Stop,
    duplicate,
    is_unicode,
    number,
    number_problem,
)

_TOKEN = re.compile(
    r"""(?P<mark>[{}\[\]:,])
      | (?P<text>"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*")
      | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![0-9A-Za-z.+-]))
      | (?P<word>(?:true|false|null)(?![0-9A-Za-z_]))
      | (?P<end>\Z)
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r"[^\s,:{}\[\]]{1,40}")
_WORDS = {"true": True, "false": False, "null": None}


def read_json(text: str) -> Reading:
    """One document; never raises."""
    reading = Reading()
    reader = _Reader(text, reading.problems)
    try:
        root = reader.value(depth=0)
        reader.end()
        reading.root = root
    except Stop as stop:
        reading.problems.append(stop.problem)
    return reading


class _Reader:
    def __init__(self, text: str, problems: list[Problem]) -> None:
        self._text = text
        self._problems = problems
        self._values = 0
        self._offset = 0
        self._kind = self._token = ""
        self._at = 0
        self._step()

    def value(self, depth: int, *, of_tasks: bool = False) -> Node:
        self._values += 1
        if self._values > VALUES_MAX:
            raise Stop("document-too-large", self._at, f"more than {VALUES_MAX} values", AS_INPUT)
        if depth > DEPTH_MAX:
            raise Stop(
                "document-too-large", self._at, f"nested deeper than {DEPTH_MAX} levels", AS_INPUT
            )
        at, token = self._at, self._token
        match self._kind:
            case "text":
                node = Node(at, self._text_of(token, at))
            case "word":
                node = Node(at, _WORDS[token])
            case "number":
                node = Node(at, self._number(token, at))
            case "mark" if token == "{":
                return self._object(depth, of_tasks=of_tasks)
            case "mark" if token == "[":
                return self._array(depth)
            case _:
                raise self._unexpected("a value")
        self._step()
        return node

    def end(self) -> None:
        if self._kind != "end":
            raise self._unexpected("the end of the text")

    def _object(self, depth: int, *, of_tasks: bool) -> Node:
        entries: dict[str, Node] = {}
        node = Node(self._at, entries=entries)
        self._step()
        while self._token != "}":
            if entries or node.key_at:
                self._take(",", "`,` or `}`")
            if self._kind != "text":
                raise self._unexpected("a key in double quotes")
            key_at = self._at
            key = self._text_of(self._token, key_at)
            self._step()
            self._take(":", "`:`")
            child = self.value(depth + 1, of_tasks=key == "tasks")
            if key in entries:
                self._problems.append(duplicate(key, key_at, node.key_at[key], is_id=of_tasks))
                continue
            entries[key] = child
            node.key_at[key] = key_at
        self._step()
        return node

    def _array(self, depth: int) -> Node:
        items: list[Node] = []
        node = Node(self._at, items=items)
        self._step()
        while not (self._kind == "mark" and self._token == "]"):
            if items:
                self._take(",", "`,` or `]`")
            items.append(self.value(depth + 1))
        self._step()
        return node

    def _text_of(self, token: str, at: int) -> str:
        text: str = json.loads(token)
        if "\\u" in token and not is_unicode(text):
            raise Stop("syntax", at, "half of a surrogate pair stands for no character")
        return text

    def _number(self, token: str, at: int) -> int | float:
        value = number(token)
        if value is None:
            self._problems.append(number_problem(token, at))
            return 0
        return value

    def _take(self, mark: str, wanted: str) -> None:
        if self._kind != "mark" or self._token != mark:
            raise self._unexpected(wanted)
        self._step()

    def _step(self) -> None:
        space = _SPACE.match(self._text, self._offset)
        assert space is not None
        self._at = space.end()
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self._kind, self._token = "", ""
            return
        self._kind, self._token, self._offset = found.lastgroup or "", found.group(), found.end()

    def _unexpected(self, wanted: str) -> Stop:
        if self._kind == "end":
            return Stop("syntax", self._at, f"the text ends where {wanted} should stand")
        word = _WORD.match(self._text, self._at)
        shown = word.group() if word else self._text[self._at : self._at + 1]
        hint = None
        if shown.startswith("'"):
            hint = "JSON takes double quotes"
        elif shown in ("}", "]"):
            hint = "JSON allows no comma before a closing bracket"
        return Stop("syntax", self._at, f"`{shown}` where {wanted} should stand", hint)
