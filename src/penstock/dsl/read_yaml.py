"""YAML into a tree with places, without its traps.

Of plain words only these are not text: `true`, `false`, `null`, `~`, nothing, and what JSON calls a
number. So `on`, `no`, `12:30:00`, `0123` and `2024-01-01` are what they look like. Keys are always text.
Aliases and merges are bounded by what they stand for; tags that would build objects are refused.
"""

from __future__ import annotations

import re
from typing import Any, cast

import yaml

from penstock.dsl.tree import (
    AS_INPUT,
    DEPTH_MAX,
    VALUES_MAX,
    Node,
    Problem,
    Reading,
    Stop,
    duplicate,
    number,
    number_problem,
)

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"
QUOTE = "put quotes around a key or a value that begins with `{`, `[`, `*` or `&`"


def read_yaml(text: str) -> Reading:
    """One document; never raises."""
    reading = Reading()
    loader = yaml.CSafeLoader(text)
    try:
        reading.root = _Builder(reading.problems).build(loader)
    except Stop as stop:
        reading.problems.append(stop.problem)
    except yaml.YAMLError as error:
        reading.problems.append(_syntax(error, text))
    finally:
        loader.dispose()  # pyright: ignore[reportUnknownMemberType] (untyped in the stubs)
    return reading


class _Frame:
    """A collection that is still open."""

    __slots__ = ("anchor", "inside_tasks", "key", "merges", "node")

    def __init__(self, node: Node, anchor: str | None, *, inside_tasks: bool) -> None:
        self.node = node
        self.anchor = anchor
        self.inside_tasks = inside_tasks
        self.key: tuple[str, int] | None = None
        self.merges: list[Node] = []


class _Builder:
    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._anchors: dict[str, Node | None] = {}
        """None while the anchored collection is still open."""
        self._stack: list[_Frame] = []
        self._root: Node | None = None

    def build(self, loader: Any) -> Node | None:
        documents = 0
        while True:
            event: Any = loader.get_event()
            at = cast("int", event.start_mark.index)
            match event:
                case yaml.ScalarEvent():
                    self._scalar(event, at)
                case yaml.MappingStartEvent():
                    self._open(event, Node(at, entries={}))
                case yaml.SequenceStartEvent():
                    self._open(event, Node(at, items=[]))
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._close()
                case yaml.AliasEvent():
                    self._place(self._resolve(event.anchor, at))
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        raise Stop(
                            "syntax",
                            at,
                            "a second document begins here",
                            "one file holds one definition",
                        )
                case yaml.StreamEndEvent():
                    return self._root
                case _:
                    pass

    def _scalar(self, event: Any, at: int) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.node.entries is not None and frame.key is None:
            frame.key = (event.value, at)
            return
        node = Node(at, self._value(event, at))
        if event.anchor:
            self._anchors[event.anchor] = node
        self._place(node)

    def _value(self, event: Any, at: int) -> Any:
        text: str = event.value
        tag: str | None = event.tag
        if tag is None or tag == "!":
            return self._plain(text, at) if event.implicit[0] else text
        if tag == _TAG + "str":
            return text
        if tag.removeprefix(_TAG) in ("int", "float", "bool", "null"):
            return self._plain(text, at)
        self._refuse_tag(tag, at)
        return text

    def _plain(self, text: str, at: int) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if not _NUMBER.match(text):
            return text
        value = number(text)
        if value is None:
            self._problems.append(number_problem(text, at))
            return 0
        return value

    def _open(self, event: Any, node: Node) -> None:
        if event.tag and event.tag not in (_TAG + "map", _TAG + "seq", "!"):
            self._refuse_tag(event.tag, node.at)
        if len(self._stack) >= DEPTH_MAX:
            raise Stop(
                "document-too-large", node.at, f"nested deeper than {DEPTH_MAX} levels", AS_INPUT
            )
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.node.entries is not None and frame.key is None:
            raise Stop("syntax", node.at, "a key must be text, not a list or an object", QUOTE)
        inside_tasks = False
        if frame is not None and frame.key is not None:
            inside_tasks = frame.key[0] == "tasks"
            if not event.flow_style:
                node.at = frame.key[1]  # a block begins on the next line; its key says more
        if event.anchor:
            self._anchors[event.anchor] = None
        self._stack.append(_Frame(node, event.anchor, inside_tasks=inside_tasks))

    def _close(self) -> None:
        frame = self._stack.pop()
        for merged in frame.merges:
            self._merge(frame.node, merged)
        if frame.anchor:
            self._anchors[frame.anchor] = frame.node
        self._place(frame.node)

    def _place(self, node: Node) -> None:
        """Put a finished value into the collection that is open."""
        self._count(node)
        if not self._stack:
            self._root = node
            return
        frame = self._stack[-1]
        if frame.node.items is not None:
            frame.node.items.append(node)
        else:
            assert frame.node.entries is not None
            if frame.key is None:
                raise Stop("syntax", node.at, "a key must be text, not an alias", QUOTE)
            key, at = frame.key
            frame.key = None
            if key == _MERGE:
                frame.merges.extend([node] if node.items is None else node.items)
                return
            if key in frame.node.entries:
                self._problems.append(
                    duplicate(key, at, frame.node.key_at[key], is_id=frame.inside_tasks)
                )
                return
            frame.node.entries[key] = node
            frame.node.key_at[key] = at
        frame.node.size += node.size

    def _count(self, node: Node) -> None:
        if node.size > VALUES_MAX:
            raise Stop(
                "document-too-large",
                node.at,
                f"its aliases stand for more than {VALUES_MAX} values",
                AS_INPUT,
            )

    def _merge(self, into: Node, merged: Node) -> None:
        assert into.entries is not None
        if merged.entries is None:
            raise Stop(
                "syntax", merged.at, "`<<` takes an object, or a list of them", "write `<<: *NAME`"
            )
        for key, child in merged.entries.items():
            if key not in into.entries:
                into.entries[key] = child
                into.key_at[key] = merged.key_at[key]
                into.size += child.size
        self._count(into)

    def _resolve(self, anchor: str, at: int) -> Node:
        if anchor not in self._anchors:
            raise Stop(
                "syntax", at, f"no anchor `&{anchor}` before this alias", f"put `&{anchor}` before what it names"
            )  # fmt: skip
        node = self._anchors[anchor]
        if node is None:
            raise Stop(
                "syntax", at, f"`*{anchor}` stands inside of what it names", "name a part of it, or write it out"
            )  # fmt: skip
        return node.alias(at)

    def _refuse_tag(self, tag: str, at: int) -> None:
        written = tag.replace(_TAG, "!!")
        self._problems.append(
            Problem("syntax", at, f"the YAML tag `{written}` is not allowed", "write plain values")
        )


def _syntax(error: yaml.YAMLError, text: str) -> Problem:
    mark: Any = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    context = getattr(error, "context", None)
    message = f"{reason} {context}" if context else str(reason)
    at = min(mark.index if mark is not None else getattr(error, "position", 0), len(text))
    return Problem("syntax", at, message, _mend(error, text, at))


def _mend(error: yaml.YAMLError, text: str, at: int) -> str:
    """What to do about it, as far as that can be seen."""
    begun: Any = getattr(error, "context_mark", None)
    context = str(getattr(error, "context", "") or "")
    here = text[at : at + 1]
    if here == "\t":
        return "indent with spaces: YAML takes no tabs there"
    if begun is not None and "flow" in context:
        bracket = text[begun.index : begun.index + 1]
        close = {"{": "}", "[": "]"}.get(bracket, "bracket")
        return f"the `{bracket}` of {begun.line + 1}:{begun.column + 1} is not closed: a `{close}` or a `,` is missing before here"
    if begun is not None and "quoted scalar" in context:
        return f"the quote of {begun.line + 1}:{begun.column + 1} is not closed"
    if "block" in context:
        return "look at the indentation: what belongs together begins in the same column"
    if here in ("@", "`", "%", "*", "&", "!", "|", ">"):
        return "put the value in quotes: this character means something in YAML"
    if "mapping values" in str(getattr(error, "problem", "")):
        return "put text that has `: ` in it into quotes, or begin a new line"
    if here and not here.isprintable():
        return "remove this character: it cannot be seen, and YAML does not take it"
    return "write `key: value`, one in a line, what belongs to it indented by two spaces"
