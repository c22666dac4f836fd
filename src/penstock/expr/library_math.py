"""The math extension: greatest and least, rounding, tests of doubles, bits, roots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from penstock.expr.registry import function
from penstock.expr.values import (
    NUMERIC_CLASSES,
    Fault,
    Frame,
    Uint,
    checked_int,
    double_of,
    order,
    overload_fault,
    spend,
)


@function("math.greatest(list(A)) -> A")
def greatest_of_list(frame: Frame, values: Sequence[Any]) -> Any:
    return _pick(frame, "math.greatest", values, greatest=True)


@function("math.least(list(A)) -> A")
def least_of_list(frame: Frame, values: Sequence[Any]) -> Any:
    return _pick(frame, "math.least", values, greatest=False)


def _pick(frame: Frame, name: str, values: Sequence[Any], *, greatest: bool) -> Any:
    if not values:
        raise Fault(f"{name}() of nothing")
    spend(frame, len(values))
    best: Any = None
    wanted = 1 if greatest else -1
    for value in values:
        if value.__class__ not in NUMERIC_CLASSES:
            overload_fault(name, value)
        if best is None or order(value, best, "<") == wanted:
            best = value
    return best


@function(
    "math.greatest(int) -> int", "math.greatest(uint) -> uint", "math.greatest(double) -> double",
    "math.least(int) -> int", "math.least(uint) -> uint", "math.least(double) -> double",
    "math.abs(uint) -> uint",
)  # fmt: skip
def itself(frame: Frame, value: Any) -> Any:
    return value


@function("math.abs(int) -> int")
def abs_int(frame: Frame, value: int) -> int:
    return checked_int(abs(value))


@function("math.abs(double) -> double")
def abs_double(frame: Frame, value: float) -> float:
    return abs(value)


@function("math.sign(int) -> int")
def sign_int(frame: Frame, value: int) -> int:
    return (value > 0) - (value < 0)


@function("math.sign(uint) -> uint")
def sign_uint(frame: Frame, value: int) -> Uint:
    return Uint(value > 0)


@function("math.sign(double) -> double")
def sign_double(frame: Frame, value: float) -> float:
    return value if value != value else float((value > 0) - (value < 0))


def _whole(rounding: Callable[[float], int], value: float) -> float:
    if not math.isfinite(value):
        return value
    # A zero keeps the sign of what it came from.
    return math.copysign(float(rounding(value)), value)


@function("math.ceil(double) -> double")
def ceil(frame: Frame, value: float) -> float:
    return _whole(math.ceil, value)


@function("math.floor(double) -> double")
def floor(frame: Frame, value: float) -> float:
    return _whole(math.floor, value)


@function("math.trunc(double) -> double")
def trunc(frame: Frame, value: float) -> float:
    return _whole(math.trunc, value)


@function("math.round(double) -> double")
def round_half_away(frame: Frame, value: float) -> float:
    if not math.isfinite(value) or abs(value) >= 2.0**52:
        return value
    whole = math.floor(abs(value))
    return math.copysign(whole + (abs(value) - whole >= 0.5), value)


@function("math.isNaN(double) -> bool")
def is_nan(frame: Frame, value: float) -> bool:
    return math.isnan(value)


@function("math.isInf(double) -> bool")
def is_inf(frame: Frame, value: float) -> bool:
    return math.isinf(value)


@function("math.isFinite(double) -> bool")
def is_finite(frame: Frame, value: float) -> bool:
    return math.isfinite(value)


@function("math.sqrt(int) -> double", "math.sqrt(uint) -> double", "math.sqrt(double) -> double")
def sqrt(frame: Frame, value: Any) -> float:
    number = double_of(value)
    return math.nan if number < 0 else math.sqrt(number)


# Bits.


@function("math.bitAnd(int, int) -> int")
def bit_and(frame: Frame, a: int, b: int) -> int:
    return a & b


@function("math.bitAnd(uint, uint) -> uint")
def bit_and_uint(frame: Frame, a: int, b: int) -> Uint:
    return Uint(int(a) & int(b))


@function("math.bitOr(int, int) -> int")
def bit_or(frame: Frame, a: int, b: int) -> int:
    return a | b


@function("math.bitOr(uint, uint) -> uint")
def bit_or_uint(frame: Frame, a: int, b: int) -> Uint:
    return Uint(int(a) | int(b))


@function("math.bitXor(int, int) -> int")
def bit_xor(frame: Frame, a: int, b: int) -> int:
    return a ^ b


@function("math.bitXor(uint, uint) -> uint")
def bit_xor_uint(frame: Frame, a: int, b: int) -> Uint:
    return Uint(int(a) ^ int(b))


@function("math.bitNot(int) -> int")
def bit_not(frame: Frame, a: int) -> int:
    return ~a


@function("math.bitNot(uint) -> uint")
def bit_not_uint(frame: Frame, a: int) -> Uint:
    return Uint(int(a) ^ (2**64 - 1))


def _signed(bits: int) -> int:
    bits &= 2**64 - 1
    return bits - 2**64 if bits >= 2**63 else bits


def _distance(b: int, name: str) -> int:
    if b < 0:
        raise Fault(f"{name}(): a negative shift")
    return min(b, 64)


@function("math.bitShiftLeft(int, int) -> int")
def shift_left(frame: Frame, a: int, b: int) -> int:
    return _signed(a << _distance(b, "math.bitShiftLeft"))


@function("math.bitShiftLeft(uint, int) -> uint")
def shift_left_uint(frame: Frame, a: int, b: int) -> Uint:
    return Uint((int(a) << _distance(b, "math.bitShiftLeft")) & (2**64 - 1))


@function("math.bitShiftRight(int, int) -> int")
def shift_right(frame: Frame, a: int, b: int) -> int:
    # Zeros come in from the left, also for a negative number.
    return _signed((a & (2**64 - 1)) >> _distance(b, "math.bitShiftRight"))


@function("math.bitShiftRight(uint, int) -> uint")
def shift_right_uint(frame: Frame, a: int, b: int) -> Uint:
    return Uint(int(a) >> _distance(b, "math.bitShiftRight"))
