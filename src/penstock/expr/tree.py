"""The tree of an expression: what the parser gives, and all later passes read.

Macros are nodes of their own, so that whoever reads a tree sees `all` and `filter` as written. Positions
count characters from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """null, true, 1, 1u, 1.5, "text" or b"bytes", as its Python value."""

    position: int
    value: Any


@dataclass(frozen=True, slots=True)
class Ident:
    """A variable, a loop variable or a type's name; `absolute` (`.x`) never means a loop variable."""

    position: int
    name: str
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`, or `operand.?field` when optional."""

    position: int
    operand: Node
    field: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """`operand[key]`, or `operand[?key]` when optional."""

    position: int
    operand: Node
    key: Node
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """`function(args)` or `target.function(args)`; a namespace (`math.abs`) is a target here."""

    position: int
    function: str
    target: Node | None
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """An element of a list literal; an optional one is left out when it is none."""

    value: Node
    optional: bool


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[a, ?b]`"""

    position: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a map literal; an optional one is left out when it is none."""

    key: Node
    value: Node
    optional: bool


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """`{k: v, ?k: v}`"""

    position: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """`!x` or `-x`"""

    position: int
    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """`+ - * / %`, a relation, or `in`; chains lean to the left and may be long."""

    position: int
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """`a && b && c` or `a || b || c`: two or more operands of one operator."""

    position: int
    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    """`condition ? then : otherwise`"""

    position: int
    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Has:
    """`has(operand.field)`"""

    position: int
    operand: Node
    field: str


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A macro over a list, a map or an optional.

    `kind` is all, exists, existsOne, map, filter, sortBy, transformList, transformMap,
    transformMapEntry, optMap or optFlatMap. With `second` the first variable is the index or key and the
    second the value; alone it is the element, or the key of a map.
    """

    position: int
    kind: str
    source: Node
    variable: str
    second: str | None
    condition: Node | None
    body: Node


@dataclass(frozen=True, slots=True)
class Bind:
    """`cel.bind(variable, value, body)`"""

    position: int
    variable: str
    value: Node
    body: Node


Node = (
    Literal
    | Ident
    | Select
    | Index
    | Call
    | ListLiteral
    | MapLiteral
    | Unary
    | Binary
    | Logic
    | Conditional
    | Has
    | Comprehension
    | Bind
)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below, in the order they are written."""
    match node:
        case Literal() | Ident():
            return ()
        case Select() | Unary() | Has():
            return (node.operand,)
        case Index():
            return (node.operand, node.key)
        case Call():
            return node.args if node.target is None else (node.target, *node.args)
        case ListLiteral():
            return tuple(item.value for item in node.items)
        case MapLiteral():
            return tuple(part for entry in node.entries for part in (entry.key, entry.value))
        case Binary():
            return (node.left, node.right)
        case Logic():
            return node.operands
        case Conditional():
            return (node.condition, node.then, node.otherwise)
        case Comprehension():
            if node.condition is None:
                return (node.source, node.body)
            return (node.source, node.condition, node.body)
        case Bind():
            return (node.value, node.body)
