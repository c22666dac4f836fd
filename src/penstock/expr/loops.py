"""Macros over lists, maps and optionals, as closures.

Each element pays for the body before the body runs. `all` and `exists` absorb errors as `&&` and `||`
do; the others end at the first error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cmp_to_key
from typing import Any, Protocol

from penstock.expr.operators import located, not_bool
from penstock.expr.parse import Comprehension, Node
from penstock.expr.values import NONE, Fault, Frame, Optional, kind_of, map_of, order, spend

Run = Callable[[Frame], Any]
Set = Callable[[Frame, Any], None]


class Compiles(Protocol):
    """What a macro needs of the compiler."""

    scope: dict[str, int]

    def compile(self, node: Node) -> Run: ...
    def compile_region(self, node: Node) -> tuple[Run, int]: ...
    def slot(self) -> int: ...


def compile_comprehension(compiler: Compiles, node: Comprehension) -> Run:
    """The closure of a macro; its variables live in slots of the frame."""
    source = compiler.compile(node.source)
    outer = compiler.scope
    slot = compiler.slot()
    inner = {**outer, node.variable: slot}
    second = None
    if node.second is not None:
        second = compiler.slot()
        inner[node.second] = second
    compiler.scope = inner
    condition, condition_cost = None, 0
    if node.condition is not None:
        condition, condition_cost = compiler.compile_region(node.condition)
    body, body_cost = compiler.compile_region(node.body)
    compiler.scope = outer
    step = 1 + condition_cost + body_cost
    if node.kind in ("optMap", "optFlatMap"):
        return _optional(node, source, slot, body, step)
    walk = (
        _walk_pairs(node, source, slot, second, step) if second else _walk(node, source, slot, step)
    )
    match node.kind:
        case "all" | "exists":
            return _quantifier(node, walk, body)
        case "existsOne":
            return _exactly_one(node, walk, body)
        case "filter":
            return _filter(node, walk, body)
        case "sortBy":
            return _sort_by(node, walk, body)
        case "transformMap" | "transformMapEntry":
            return _to_map(node, walk, condition, body)
        case _:
            return _to_list(node, walk, condition, body)


Walk = Callable[[Frame], Iterator[Any]]


def _elements(value: Any, node: Comprehension) -> Iterable[Any]:
    if value.__class__ is list or value.__class__ is dict:
        return value
    if kind_of(value) in ("list", "map"):
        return value
    raise Fault(f"no such overload: {node.kind}() over {kind_of(value)}", node.position)


def _walk(node: Comprehension, source: Run, slot: int, step: int) -> Walk:
    """Each element, or each key of a map, put into the slot and paid for."""

    def walk(frame: Frame) -> Iterator[Any]:
        for item in _elements(source(frame), node):
            left = frame[0] - step
            frame[0] = left
            if left < 0:
                spend(frame, 0)
            frame[slot] = item
            yield item

    return walk


def _walk_pairs(node: Comprehension, source: Run, slot: int, second: int, step: int) -> Walk:
    """Each index and element, or key and value, put into their slots and paid for."""

    def walk(frame: Frame) -> Iterator[Any]:
        value = source(frame)
        elements = _elements(value, node)
        if isinstance(value, Mapping):
            for key in elements:
                spend(frame, step)
                frame[slot] = key
                frame[second] = value[key]
                yield key
        else:
            for at, item in enumerate(elements):
                spend(frame, step)
                frame[slot] = at
                frame[second] = item
                yield at

    return walk


def _quantifier(node: Comprehension, walk: Walk, body: Run) -> Run:
    decisive = node.kind == "exists"
    kind, position = node.kind, node.body.position

    def decide(frame: Frame) -> Any:
        pending: Fault | None = None
        for _ in walk(frame):
            try:
                value = body(frame)
            except Fault as fault:
                pending = pending or fault
                continue
            if value is decisive:
                return decisive
            if value.__class__ is not bool:
                pending = pending or not_bool(kind, value, position)
        if pending is not None:
            raise pending
        return not decisive

    return decide


def _tested(value: Any, kind: str, position: int) -> bool:
    if value.__class__ is bool:
        return value
    raise not_bool(kind, value, position)


def _exactly_one(node: Comprehension, walk: Walk, body: Run) -> Run:
    position = node.body.position

    def decide(frame: Frame) -> Any:
        count = 0
        for _ in walk(frame):
            count += _tested(body(frame), "exists_one", position)
        return count == 1

    return decide


def _filter(node: Comprehension, walk: Walk, body: Run) -> Run:
    position = node.body.position

    def build(frame: Frame) -> Any:
        return [item for item in walk(frame) if _tested(body(frame), "filter", position)]

    return build


def _to_list(node: Comprehension, walk: Walk, condition: Run | None, body: Run) -> Run:
    if condition is None:
        return lambda frame: [body(frame) for _ in walk(frame)]
    position = node.body.position

    def build(frame: Frame) -> Any:
        return [body(frame) for _ in walk(frame) if _tested(condition(frame), "map", position)]

    return build


def _to_map(node: Comprehension, walk: Walk, condition: Run | None, body: Run) -> Run:
    whole_entry = node.kind == "transformMapEntry"
    position = node.body.position

    def build(frame: Frame) -> Any:
        pairs: list[tuple[Any, Any]] = []
        for key in walk(frame):
            if condition is not None and not _tested(condition(frame), node.kind, position):
                continue
            value = body(frame)
            if not whole_entry:
                pairs.append((key, value))
            elif kind_of(value) == "map":
                spend(frame, len(value))
                pairs.extend(value.items())
            else:
                raise Fault(f"transformMapEntry() needs a map, not {kind_of(value)}", position)
        try:
            return map_of(pairs)
        except Fault as fault:
            raise located(fault, node.position) from None

    return build


def _sort_by(node: Comprehension, walk: Walk, body: Run) -> Run:
    def build(frame: Frame) -> Any:
        keyed = [(body(frame), item) for item in walk(frame)]
        try:
            return [item for _, item in sorted_by_key(frame, keyed)]
        except Fault as fault:
            raise located(fault, node.position) from None

    return build


def sorted_by_key(frame: Frame, keyed: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Pairs in the order of their keys, which must all be of one kind that has an order."""
    spend(frame, len(keyed) * max(1, len(keyed).bit_length()))
    kinds = {kind_of(key) for key, _ in keyed}
    if len(kinds) > 1:
        raise Fault(f"cannot sort {' and '.join(sorted(kinds))} together")
    if len(keyed) == 1:
        order(keyed[0][0], keyed[0][0], "<")

    def compare(a: tuple[Any, Any], b: tuple[Any, Any]) -> int:
        found = order(a[0], b[0], "<")
        return 0 if found == 2 else found

    return sorted(keyed, key=cmp_to_key(compare))


def _optional(node: Comprehension, source: Run, slot: int, body: Run, step: int) -> Run:
    flat = node.kind == "optFlatMap"

    def build(frame: Frame) -> Any:
        value = source(frame)
        if value.__class__ is not Optional:
            raise Fault(f"no such overload: {node.kind}() over {kind_of(value)}", node.position)
        if not value.present:
            return NONE
        spend(frame, step)
        frame[slot] = value.value
        result = body(frame)
        if not flat:
            return Optional(result)
        if result.__class__ is Optional:
            return result
        raise Fault(f"optFlatMap() needs an optional, not {kind_of(result)}", node.position)

    return build
