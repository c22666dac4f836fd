"""How values are reached: variables, fields, elements, optionals, and which paths a tree reads.

A read asks for one key and for nothing else, so its time does not depend on how much there is. The first
try is the plain Python one; only when that fails is it taken step by step, to say what was missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.expr.parse import (
    Bind,
    Comprehension,
    Has,
    Ident,
    Index,
    Literal,
    Node,
    Select,
    children,
)
from penstock.expr.typecheck import Checked
from penstock.expr.values import (
    INT_MAX,
    INT_MIN,
    MISSING,
    NONE,
    Fault,
    Frame,
    Optional,
    integral,
    kind_of,
    lookup,
)

Run = Callable[[Frame], Any]
Path = list[tuple[str, int]]


def static_reads(tree: Node, checked: Checked) -> frozenset[tuple[str, ...]]:
    """The longest constant paths from a variable that the tree reads; loop variables are none."""
    found: set[tuple[str, ...]] = set()
    stack: list[tuple[Node, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, local = stack.pop()
        if id(node) in checked.type_names:
            continue
        if isinstance(node, Ident | Select | Index | Has):
            root, path, rest = _constant_path(node)
            stack.extend((other, local) for other in rest)
            if not isinstance(root, Ident):
                stack.append((root, local))
            elif id(root) not in checked.type_names and (root.absolute or root.name not in local):
                found.add((root.name, *path))
            continue
        resolved = checked.functions.get(id(node))
        below = children(node)
        if resolved is not None and not resolved[1] and getattr(node, "target", None) is not None:
            below = below[1:]  # a namespace is no variable
        if isinstance(node, Comprehension):
            names = {node.variable, node.second or node.variable}
            stack.append((node.source, local))
            stack.extend((other, local | names) for other in below[1:])
        elif isinstance(node, Bind):
            stack.append((node.value, local))
            stack.append((node.body, local | {node.variable}))
        else:
            stack.extend((other, local) for other in below)
    return frozenset(found)


def _constant_path(node: Node) -> tuple[Node, tuple[str, ...], list[Node]]:
    """The root of a chain, the constant keys that follow it, and the other expressions in it."""
    keys: list[str] = []
    rest: list[Node] = []
    while True:
        match node:
            case Select() | Has():
                keys.append(node.field)
                node = node.operand
            case Index(key=Literal(value=str() as key)):
                keys.append(key)
                node = node.operand
            case Index():
                # What lies behind a computed key is not a constant path.
                keys.clear()
                rest.append(node.key)
                node = node.operand
            case _:
                return node, tuple(reversed(keys)), rest


def compile_variable(name: str, reads: str, position: int, type_value: Any) -> Run:
    """A variable by name; a type's name only where no variable has it."""
    double, whole = reads == "double", reads == "int"

    def read(frame: Frame) -> Any:
        try:
            value = frame[1][name]
        except KeyError:
            if type_value is not None:
                return type_value
            raise Fault(f"no such variable `{name}`", position) from None
        if value.__class__ is int:
            if double or not INT_MIN <= value <= INT_MAX:
                return _whole(value, double, position)
        elif whole and value.__class__ is float:
            return integral(value)
        return value

    return read


def compile_local(slot: int, reads: str, position: int) -> Run:
    """A loop variable or a bound one."""
    double, whole = reads == "double", reads == "int"

    def read(frame: Frame) -> Any:
        value = frame[slot]
        if value.__class__ is int:
            if double or not INT_MIN <= value <= INT_MAX:
                return _whole(value, double, position)
        elif whole and value.__class__ is float:
            return integral(value)
        return value

    return read


class _Failed:
    """Why a bound variable has no value."""

    __slots__ = ("fault",)

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


# What a bound variable's slot holds before its first read.
UNREAD: Any = object()


def compile_bound(slot: int, value_run: Run, reads: str, position: int) -> Run:
    """A variable of `cel.bind`: evaluated when it is first read, if ever, and only once.

    So an error in it is an error of the place that reads it, and absorbed there like any other.
    """
    double, whole = reads == "double", reads == "int"

    def read(frame: Frame) -> Any:
        value = frame[slot]
        if value is UNREAD:
            try:
                value = frame[slot] = value_run(frame)
            except Fault as fault:
                frame[slot] = _Failed(fault)
                raise
        elif value.__class__ is _Failed:
            raise value.fault
        if value.__class__ is int:
            if double or not INT_MIN <= value <= INT_MAX:
                return _whole(value, double, position)
        elif whole and value.__class__ is float:
            return integral(value)
        return value

    return read


def _whole(value: int, double: bool, position: int) -> Any:
    if INT_MIN <= value <= INT_MAX:
        return float(value) if double else value
    if double:
        try:
            return float(value)
        except OverflowError:
            pass
    raise Fault("this number does not fit 64 bits", position)


def compile_path(name: str, position: int, path: Path, reads: str) -> Run:
    """`variable.a.b.c` in one closure."""
    double, whole = reads == "double", reads == "int"
    keys = [key for key, _ in path]
    last = path[-1][1]

    def careful(frame: Frame) -> Any:
        try:
            value = frame[1][name]
        except KeyError:
            raise Fault(f"no such variable `{name}`", position) from None
        for key, at in path:
            value = select(value, key, at)
        return value

    if len(keys) == 1:
        (a,) = keys

        def one(frame: Frame) -> Any:
            try:
                value = frame[1][name][a]
            except (KeyError, TypeError, IndexError, AttributeError):
                value = careful(frame)
            if value.__class__ is int:
                if double or not INT_MIN <= value <= INT_MAX:
                    return _whole(value, double, last)
            elif whole and value.__class__ is float:
                return integral(value)
            return value

        return one
    if len(keys) == 3:
        a, b, c = keys

        def three(frame: Frame) -> Any:
            try:
                value = frame[1][name][a][b][c]
            except (KeyError, TypeError, IndexError, AttributeError):
                value = careful(frame)
            if value.__class__ is int:
                if double or not INT_MIN <= value <= INT_MAX:
                    return _whole(value, double, last)
            elif whole and value.__class__ is float:
                return integral(value)
            return value

        return three

    def many(frame: Frame) -> Any:
        try:
            value = frame[1][name]
            for key in keys:
                value = value[key]
        except (KeyError, TypeError, IndexError, AttributeError):
            value = careful(frame)
        if value.__class__ is int:
            if double or not INT_MIN <= value <= INT_MAX:
                return _whole(value, double, last)
        elif whole and value.__class__ is float:
            return integral(value)
        return value

    return many


def compile_select(operand: Run, path: Path, reads: str) -> Run:
    """`operand.a.b.c`, the operand being anything but a variable."""
    double, whole = reads == "double", reads == "int"
    keys = [key for key, _ in path]
    last = path[-1][1]

    def read(frame: Frame) -> Any:
        first = operand(frame)
        try:
            value = first
            for key in keys:
                value = value[key]
        except (KeyError, TypeError, IndexError, AttributeError):
            value = first
            for key, at in path:
                value = select(value, key, at)
        if value.__class__ is int:
            if double or not INT_MIN <= value <= INT_MAX:
                return _whole(value, double, last)
        elif whole and value.__class__ is float:
            return integral(value)
        return value

    return read


def select(value: Any, key: str, position: int) -> Any:
    """One field, with a fault that says what is missing; of an optional, an optional."""
    kind = kind_of(value)
    if kind == "map":
        found = lookup(value, key)
        if found is MISSING:
            raise Fault(f"no such key `{key}`", position)
        return found
    if kind == "optional":
        if not value.present:
            return NONE
        return optional_select(value.value, key, position)
    raise Fault(f"no such field `{key}`: this is {_a(kind)}", position)


def optional_select(value: Any, key: Any, position: int) -> Optional:
    """`value.?key` and `value[?key]` for a present value."""
    kind = kind_of(value)
    if kind == "map":
        _check_key(key, position)
        found = lookup(value, key)
        return NONE if found is MISSING else Optional(found)
    if kind == "list":
        at = _list_index(key, position)
        return Optional(value[at]) if 0 <= at < len(value) else NONE
    if kind == "optional":
        return optional_select(value.value, key, position) if value.present else NONE
    raise Fault(f"no such key: this is {_a(kind)}", position)


def _a(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def compile_has(operand: Run, field: str, position: int) -> Run:
    """`has(operand.field)`: whether a map has the key; its value is not looked at."""

    def has(frame: Frame) -> Any:
        value = operand(frame)
        if value.__class__ is dict:
            return field in value
        while value.__class__ is Optional:
            if not value.present:
                return False
            value = value.value
        if isinstance(value, Mapping):
            return field in value
        raise Fault(f"no such field `{field}`: this is {_a(kind_of(value))}", position)

    return has


def compile_index(operand: Run, key_run: Run, position: int, reads: str) -> Run:
    """`operand[key]`"""
    double, whole = reads == "double", reads == "int"

    def read(frame: Frame) -> Any:
        value, key = operand(frame), key_run(frame)
        found = index(value, key, position)
        if found.__class__ is int:
            if double or not INT_MIN <= found <= INT_MAX:
                return _whole(found, double, position)
        elif whole and found.__class__ is float:
            return integral(found)
        return found

    return read


def index(value: Any, key: Any, position: int) -> Any:
    """One element or entry, with a fault that says what is missing; of an optional, an optional."""
    kind = kind_of(value)
    if kind == "list":
        at = _list_index(key, position)
        if 0 <= at < len(value):
            return value[at]
        raise Fault(f"index out of bounds: {at} in a list of {len(value)}", position)
    if kind == "map":
        _check_key(key, position)
        found = lookup(value, key)
        if found is MISSING:
            raise Fault(f"no such key `{key}`", position)
        return found
    if kind == "optional":
        return optional_select(value.value, key, position) if value.present else NONE
    raise Fault(f"no such overload: {_a(kind)} cannot be indexed", position)


def _check_key(key: Any, position: int) -> None:
    kind = kind_of(key)
    if kind not in ("string", "int", "uint", "bool", "double"):
        raise Fault(f"no such overload: {_a(kind)} is no map key", position)


def _list_index(key: Any, position: int) -> int:
    kind = kind_of(key)
    if kind in ("int", "uint"):
        return int(key)
    if kind == "double" and key == key and abs(key) < 2.0**63 and key == int(key):
        return int(key)
    raise Fault(f"no such overload: a list's index is an int, not {_a(kind)}", position)


def compile_optional_index(operand: Run, key_run: Run, position: int, *, select: bool) -> Run:
    """`operand.?key` and `operand[?key]`"""

    def read(frame: Frame) -> Any:
        value, key = operand(frame), key_run(frame)
        if value.__class__ is Optional and not value.present:
            return NONE
        if select and kind_of(value) == "list":
            raise Fault(f"no such field `{key}`: this is a list", position)
        return optional_select(value, key, position)

    return read
