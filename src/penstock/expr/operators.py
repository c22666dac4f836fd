"""Operators as closures: relations, arithmetic, `&&` and `||`.

Shapes that conditions are made of (a value against a constant) have closures of their own. What the
arithmetic itself does is in `library.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from penstock.expr.parse import Binary, ListLiteral, Literal
from penstock.expr.registry import FUNCTIONS
from penstock.expr.values import (
    INT_MAX,
    INT_MIN,
    SAME_CLASS_ORDERED,
    Fault,
    Frame,
    Uint,
    equal,
    kind_of,
    order,
)

Run = Callable[[Frame], Any]
Apply = Callable[[Frame, Any, Any], Any]

# A chain longer than this is worked off in a loop instead of by nested calls.
_NESTED_MAX = 8
_TEXT_CONSTANT_MAX = 100
_EXACT_MAX = 2.0**53
_PLAIN = frozenset({int, Uint, float, bool, type(None)})
# Division is not among them: Python rounds down where CEL goes toward zero.
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def located(fault: Fault, position: int) -> Fault:
    """The fault with its place, unless it already has one."""
    if fault.position is None:
        fault.position = position
    return fault


def compile_binary(first: Run, rights: list[tuple[Binary, Run]]) -> Run:
    """A chain of operators that leans to the left."""
    if len(rights) <= _NESTED_MAX:
        run = first
        for node, right in rights:
            run = _one(node, run, right)
        return run
    steps = [(_applied(node.operator), right, node.position) for node, right in rights]

    def chain(frame: Frame) -> Any:
        value = first(frame)
        for apply, right, position in steps:
            other = right(frame)
            try:
                value = apply(frame, value, other)
            except Fault as fault:
                raise located(fault, position) from None
        return value

    return chain


def _applied(symbol: str) -> Apply:
    if symbol == "==":
        return equal
    if symbol == "!=":
        return lambda frame, a, b: not equal(frame, a, b)
    if symbol in _ORDERS:
        accepted = _accepted(symbol)
        return lambda frame, a, b: order(a, b, symbol) in accepted
    entry = FUNCTIONS[False, symbol if symbol == "in" else f"_{symbol}_", 2]
    return lambda frame, a, b: entry.resolve(a, b)(frame, a, b)


def _accepted(symbol: str) -> tuple[int, ...]:
    return {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (1, 0)}[symbol]


def _one(node: Binary, left: Run, right: Run) -> Run:
    constant = node.right.value if isinstance(node.right, Literal) else None
    match node.operator:
        case "==" | "!=":
            return _equality(node, left, right, constant)
        case "<" | "<=" | ">" | ">=":
            return _relation(node, left, right, constant)
        case "in":
            return _membership(node, left, right)
        case _:
            return _arithmetic(node, left, right)


def _equality(node: Binary, left: Run, right: Run, constant: Any) -> Run:
    wanted = node.operator == "=="
    if constant.__class__ is str and len(constant) <= _TEXT_CONSTANT_MAX:
        # No value of another kind equals a text, in Python as in CEL.
        if wanted:
            return lambda frame: left(frame) == constant
        return lambda frame: left(frame) != constant
    position = node.position

    def compare(frame: Frame) -> Any:
        a = left(frame)
        b = right(frame)
        cls = a.__class__
        if cls is b.__class__ and cls in _PLAIN:
            return (a == b) is wanted
        try:
            return equal(frame, a, b) is wanted
        except Fault as fault:
            raise located(fault, position) from None

    return compare


def _relation(node: Binary, left: Run, right: Run, constant: Any) -> Run:
    symbol, position = node.operator, node.position
    test, accepted = _ORDERS[symbol], _accepted(symbol)

    def compare(frame: Frame) -> Any:
        a = left(frame)
        b = right(frame)
        cls = a.__class__
        if cls is b.__class__ and cls in SAME_CLASS_ORDERED:
            return test(a, b)
        try:
            return order(a, b, symbol) in accepted
        except Fault as fault:
            raise located(fault, position) from None

    if constant.__class__ not in (int, float):
        return compare

    def slow(a: Any) -> bool:
        try:
            return order(a, constant, symbol) in accepted
        except Fault as fault:
            raise located(fault, position) from None

    return _RELATIONS_TO_NUMBER[symbol](left, constant, *_twin(constant), slow)


def _twin(number: Any) -> tuple[Any, Any]:
    """The other class of number that may be compared at once, and with what.

    An int and a double are compared as doubles. Up to 2**53 that is what Python does too.
    """
    if number.__class__ is int:
        return float, float(number)
    return (int, number) if abs(number) < _EXACT_MAX else (None, number)


def _greater(left: Run, number: Any, other: Any, twin: Any, slow: Callable[[Any], bool]) -> Run:
    same = number.__class__

    def compare(frame: Frame) -> Any:
        a = left(frame)
        cls = a.__class__
        return a > number if cls is same else a > twin if cls is other else slow(a)

    return compare


def _greater_equal(
    left: Run, number: Any, other: Any, twin: Any, slow: Callable[[Any], bool]
) -> Run:
    same = number.__class__

    def compare(frame: Frame) -> Any:
        a = left(frame)
        cls = a.__class__
        return a >= number if cls is same else a >= twin if cls is other else slow(a)

    return compare


def _less(left: Run, number: Any, other: Any, twin: Any, slow: Callable[[Any], bool]) -> Run:
    same = number.__class__

    def compare(frame: Frame) -> Any:
        a = left(frame)
        cls = a.__class__
        return a < number if cls is same else a < twin if cls is other else slow(a)

    return compare


def _less_equal(left: Run, number: Any, other: Any, twin: Any, slow: Callable[[Any], bool]) -> Run:
    same = number.__class__

    def compare(frame: Frame) -> Any:
        a = left(frame)
        cls = a.__class__
        return a <= number if cls is same else a <= twin if cls is other else slow(a)

    return compare


_RELATIONS_TO_NUMBER = {">": _greater, ">=": _greater_equal, "<": _less, "<=": _less_equal}


def _membership(node: Binary, left: Run, right: Run) -> Run:
    if isinstance(node.right, ListLiteral):
        values = [
            item.value.value
            for item in node.right.items
            if isinstance(item.value, Literal) and not item.optional
        ]
        if len(values) == len(node.right.items) and all(v.__class__ is str for v in values):
            texts = frozenset(values)

            def one_of(frame: Frame) -> Any:
                value = left(frame)
                return value in texts if isinstance(value, str) else False

            return one_of
    return _called(node, "in", left, right)


def _arithmetic(node: Binary, left: Run, right: Run) -> Run:
    if node.operator not in _PYTHON:
        return _called(node, f"_{node.operator}_", left, right)
    position = node.position
    table = FUNCTIONS[False, f"_{node.operator}_", 2].table
    resolve = FUNCTIONS[False, f"_{node.operator}_", 2].resolve
    python = _PYTHON[node.operator]

    def combine(frame: Frame) -> Any:
        a = left(frame)
        b = right(frame)
        if a.__class__ is int and b.__class__ is int:
            value = python(a, b)
            if INT_MIN <= value <= INT_MAX:
                return value
            raise Fault("integer overflow", position)
        try:
            return (table.get((a.__class__, b.__class__)) or resolve(a, b))(frame, a, b)
        except Fault as fault:
            raise located(fault, position) from None

    return combine


def _called(node: Binary, name: str, left: Run, right: Run) -> Run:
    position = node.position
    table, resolve = FUNCTIONS[False, name, 2].table, FUNCTIONS[False, name, 2].resolve

    def call(frame: Frame) -> Any:
        a = left(frame)
        b = right(frame)
        try:
            return (table.get((a.__class__, b.__class__)) or resolve(a, b))(frame, a, b)
        except Fault as fault:
            raise located(fault, position) from None

    return call


def not_bool(symbol: str, value: Any, position: int) -> Fault:
    """The fault of an operand or a predicate that is no bool."""
    return Fault(f"no such overload: `{symbol}` needs a bool, not {kind_of(value)}", position)


def compile_logic(symbol: str, runs: list[Run], positions: list[int]) -> Run:
    """`&&` or `||` over all operands: one that decides wins, also over an error in another."""
    decisive = symbol == "||"
    if len(runs) == 2:
        return _logic_of_two(symbol, runs[0], runs[1], positions, decisive)
    parts = list(zip(runs, positions, strict=True))

    def decide(frame: Frame) -> Any:
        pending: Fault | None = None
        for run, position in parts:
            try:
                value = run(frame)
            except Fault as fault:
                pending = pending or fault
                continue
            if value is decisive:
                return decisive
            if value.__class__ is not bool:
                pending = pending or not_bool(symbol, value, position)
        if pending is not None:
            raise pending
        return not decisive

    return decide


def _logic_of_two(symbol: str, left: Run, right: Run, positions: list[int], decisive: bool) -> Run:
    def decide(frame: Frame) -> Any:
        try:
            value = left(frame)
        except Fault as fault:
            return absorb(frame, fault)
        if value is decisive:
            return decisive
        if value.__class__ is not bool:
            return absorb(frame, not_bool(symbol, value, positions[0]))
        value = right(frame)
        if value.__class__ is bool:
            return value
        raise not_bool(symbol, value, positions[1])

    def absorb(frame: Frame, pending: Fault) -> Any:
        try:
            value = right(frame)
        except Fault:
            raise pending from None
        if value is decisive:
            return decisive
        raise pending

    return decide
