"""Extensions over lists, sets, optionals and base64.

`sortBy`, `optMap` and the like take an expression, so they are macros: see `loops.py`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any

from penstock.expr.loops import sorted_by_key
from penstock.expr.registry import function
from penstock.expr.values import NONE, Fault, Frame, Optional, equal, kind_of, spend

# Lists.


@function("(list(A)).slice(int, int) -> list(A)")
def slice_list(frame: Frame, items: Sequence[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise Fault(f"slice({start}, {end}) is out of range: the list has {len(items)}")
    spend(frame, end - start)
    return list(items[start:end])


@function("(list(A)).flatten() -> list(dyn)")
def flatten(frame: Frame, items: Sequence[Any]) -> list[Any]:
    return flatten_depth(frame, items, 1)


@function("(list(A)).flatten(int) -> list(dyn)")
def flatten_depth(frame: Frame, items: Sequence[Any], depth: int) -> list[Any]:
    if depth < 0:
        raise Fault("flatten() needs a depth of zero or more")
    out: list[Any] = []
    _flatten_into(frame, out, items, depth)
    return out


def _flatten_into(frame: Frame, out: list[Any], items: Sequence[Any], depth: int) -> None:
    spend(frame, len(items))
    for item in items:
        if depth > 0 and kind_of(item) == "list":
            _flatten_into(frame, out, item, depth - 1)
        else:
            out.append(item)


@function("(list(A)).distinct() -> list(A)")
def distinct(frame: Frame, items: Sequence[Any]) -> list[Any]:
    spend(frame, len(items))
    out: list[Any] = []
    seen: set[str] = set()
    others: list[Any] = []
    for item in items:
        if item.__class__ is str:
            # Text equals text alone, so a set tells; the rest is compared as CEL compares.
            if item not in seen:
                seen.add(item)
                out.append(item)
        elif not _among(frame, item, others):
            others.append(item)
            out.append(item)
    return out


def _among(frame: Frame, item: Any, items: Sequence[Any]) -> bool:
    for other in items:
        spend(frame, 1)
        if equal(frame, item, other):
            return True
    return False


@function("(list(A)).reverse() -> list(A)")
def reverse_list(frame: Frame, items: Sequence[Any]) -> list[Any]:
    spend(frame, len(items))
    return list(items)[::-1]


@function("(list(A)).sort() -> list(A)")
def sort(frame: Frame, items: Sequence[Any]) -> list[Any]:
    return [item for _, item in sorted_by_key(frame, [(item, item) for item in items])]


@function("lists.range(int) -> list(int)")
def range_list(frame: Frame, count: int) -> list[int]:
    if count > 0:
        spend(frame, count)
    return list(range(count))


@function("(list(A)).first() -> optional(A)")
def first(frame: Frame, items: Sequence[Any]) -> Optional:
    return Optional(items[0]) if len(items) else NONE


@function("(list(A)).last() -> optional(A)")
def last(frame: Frame, items: Sequence[Any]) -> Optional:
    return Optional(items[len(items) - 1]) if len(items) else NONE


# Sets.


@function("sets.contains(list(A), list(A)) -> bool")
def sets_contains(frame: Frame, items: Sequence[Any], wanted: Sequence[Any]) -> bool:
    return all(_among(frame, item, items) for item in wanted)


@function("sets.equivalent(list(A), list(A)) -> bool")
def sets_equivalent(frame: Frame, a: Sequence[Any], b: Sequence[Any]) -> bool:
    return sets_contains(frame, a, b) and sets_contains(frame, b, a)


@function("sets.intersects(list(A), list(A)) -> bool")
def sets_intersects(frame: Frame, a: Sequence[Any], b: Sequence[Any]) -> bool:
    return any(_among(frame, item, b) for item in a)


# Optionals.


@function("optional.of(A) -> optional(A)")
def optional_of(frame: Frame, value: Any) -> Optional:
    return Optional(value)


@function("optional.none() -> optional(free)")
def optional_none(frame: Frame) -> Optional:
    return NONE


@function("optional.ofNonZeroValue(A) -> optional(A)")
def optional_of_non_zero(frame: Frame, value: Any) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _is_zero(value: Any) -> bool:
    match kind_of(value):
        case "null":
            return True
        case "bool" | "int" | "uint" | "double" | "duration":
            return not value
        case "string" | "bytes" | "list" | "map":
            return len(value) == 0
        case "optional":
            return not value.present
        case _:
            return False


@function("(optional(A)).hasValue() -> bool")
def has_value(frame: Frame, value: Optional) -> bool:
    return value.present


@function("(optional(A)).value() -> A")
def value_of(frame: Frame, value: Optional) -> Any:
    if value.present:
        return value.value
    raise Fault("value() of optional.none()")


# Evaluated by the compiler, so that the alternative is looked at only when it is needed.
@function("(optional(A)).or(optional(A)) -> optional(A)")
def or_optional(frame: Frame, value: Optional, other: Optional) -> Optional:
    return value if value.present else other


@function("(optional(A)).orValue(A) -> A")
def or_value(frame: Frame, value: Optional, other: Any) -> Any:
    return value.value if value.present else other


@function(
    "optional.unwrap(list(optional(A))) -> list(A)", "(list(optional(A))).unwrapOpt() -> list(A)"
)
def unwrap(frame: Frame, items: Sequence[Any]) -> list[Any]:
    spend(frame, len(items))
    for item in items:
        if item.__class__ is not Optional:
            raise Fault(f"unwrap() needs a list of optionals, not of {kind_of(item)}")
    return [item.value for item in items if item.present]


# Base64.


@function("base64.encode(bytes) -> string")
def base64_encode(frame: Frame, value: bytes) -> str:
    spend(frame, len(value) // 10)
    return base64.b64encode(value).decode()


_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


@function("base64.decode(string) -> bytes")
def base64_decode(frame: Frame, text: str) -> bytes:
    spend(frame, len(text) // 10)
    try:
        if _BASE64.fullmatch(text) is not None:
            # Padding may be left out.
            bare = text.rstrip("=")
            return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        pass
    raise Fault("base64.decode(): not base64")
