"""The standard library: operators, size, text tests, conversions.

Each function takes the frame first and spends there before it builds anything large. Times are in
`library_times.py`, the extensions in `library_strings.py`, `library_math.py`, `library_lists.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import re2 as _untyped_re2  # pyright: ignore[reportMissingTypeStubs]: it ships none

from penstock.expr.registry import function
from penstock.expr.values import (
    INT_MAX,
    INT_MIN,
    MISSING,
    UINT_MAX,
    Fault,
    Frame,
    Uint,
    checked_int,
    checked_uint,
    double_of,
    equal,
    int_text,
    kind_of,
    lookup,
    spend,
    type_value,
)

re2: Any = _untyped_re2

# Arithmetic.


@function("_+_(int, int) -> int")
def add_ints(frame: Frame, a: int, b: int) -> int:
    return checked_int(a + b)


@function("_+_(uint, uint) -> uint")
def add_uints(frame: Frame, a: int, b: int) -> Uint:
    return checked_uint(int(a) + int(b))


@function("_+_(double, double) -> double")
def add_doubles(frame: Frame, a: float, b: float) -> float:
    return a + b


@function("_+_(string, string) -> string", "_+_(bytes, bytes) -> bytes")
def add_texts(frame: Frame, a: Any, b: Any) -> Any:
    spend(frame, (len(a) + len(b)) // 10)
    return a + b


@function("_+_(list(A), list(A)) -> list(A)")
def add_lists(frame: Frame, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    spend(frame, len(a) + len(b))
    return [*a, *b]


@function("_-_(int, int) -> int")
def subtract_ints(frame: Frame, a: int, b: int) -> int:
    return checked_int(a - b)


@function("_-_(uint, uint) -> uint")
def subtract_uints(frame: Frame, a: int, b: int) -> Uint:
    return checked_uint(int(a) - int(b))


@function("_-_(double, double) -> double")
def subtract_doubles(frame: Frame, a: float, b: float) -> float:
    return a - b


@function("_*_(int, int) -> int")
def multiply_ints(frame: Frame, a: int, b: int) -> int:
    return checked_int(a * b)


@function("_*_(uint, uint) -> uint")
def multiply_uints(frame: Frame, a: int, b: int) -> Uint:
    return checked_uint(int(a) * int(b))


@function("_*_(double, double) -> double")
def multiply_doubles(frame: Frame, a: float, b: float) -> float:
    return a * b


@function("_/_(int, int) -> int")
def divide_ints(frame: Frame, a: int, b: int) -> int:
    if b == 0:
        raise Fault("division by zero")
    # Toward zero, where Python's // goes down.
    quotient = abs(a) // abs(b)
    return checked_int(quotient if (a < 0) == (b < 0) else -quotient)


@function("_/_(uint, uint) -> uint")
def divide_uints(frame: Frame, a: int, b: int) -> Uint:
    if b == 0:
        raise Fault("division by zero")
    return Uint(int(a) // int(b))


@function("_/_(double, double) -> double")
def divide_doubles(frame: Frame, a: float, b: float) -> float:
    if b != 0.0:
        return a / b
    if a == 0.0 or a != a or b != b:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


@function("_%_(int, int) -> int")
def modulo_ints(frame: Frame, a: int, b: int) -> int:
    if b == 0:
        raise Fault("modulus by zero")
    if a == INT_MIN and b == -1:
        raise Fault("integer overflow")
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


@function("_%_(uint, uint) -> uint")
def modulo_uints(frame: Frame, a: int, b: int) -> Uint:
    if b == 0:
        raise Fault("modulus by zero")
    return Uint(int(a) % int(b))


@function("-_(int) -> int")
def negate_int(frame: Frame, a: int) -> int:
    return checked_int(-a)


@function("-_(double) -> double")
def negate_double(frame: Frame, a: float) -> float:
    return -a


# Membership and size.

_KEY_KINDS = frozenset({"string", "int", "uint", "bool", "double"})


@function("in(A, list(A)) -> bool")
def in_list(frame: Frame, item: Any, items: Sequence[Any]) -> bool:
    for other in items:
        spend(frame, 1)
        if equal(frame, item, other):
            return True
    return False


@function("in(A, map(A, B)) -> bool")
def in_map(frame: Frame, key: Any, entries: Mapping[Any, Any]) -> bool:
    # A list or a map is no key of any map.
    return kind_of(key) in _KEY_KINDS and lookup(entries, key) is not MISSING


@function(
    "size(string) -> int", "(string).size() -> int",
    "size(bytes) -> int", "(bytes).size() -> int",
    "size(list(A)) -> int", "(list(A)).size() -> int",
    "size(map(A, B)) -> int", "(map(A, B)).size() -> int",
)  # fmt: skip
def size(frame: Frame, value: Any) -> int:
    return len(value)


# Text.


@function("(string).contains(string) -> bool")
def contains(frame: Frame, text: str, part: str) -> bool:
    spend(frame, len(text) // 10)
    return part in text


@function("(string).startsWith(string) -> bool")
def starts_with(frame: Frame, text: str, prefix: str) -> bool:
    return text.startswith(prefix)


@function("(string).endsWith(string) -> bool")
def ends_with(frame: Frame, text: str, suffix: str) -> bool:
    return text.endswith(suffix)


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise Fault(f"bad regular expression: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


@function("matches(string, string) -> bool", "(string).matches(string) -> bool")
def matches(frame: Frame, text: str, pattern: str) -> bool:
    # RE2 needs time linear in text times pattern, and so does what is charged.
    spend(frame, (len(text) // 10 + 1) * (len(pattern) // 10 + 1))
    try:
        return _pattern(pattern).search(text) is not None
    except UnicodeEncodeError:
        raise Fault("matches(): the text has a lone surrogate") from None


# Conversions.


@function("dyn(A) -> dyn")
def dyn(frame: Frame, value: Any) -> Any:
    return value


@function("type(A) -> type(A)")
def type_of(frame: Frame, value: Any) -> Any:
    return type_value(value)


@function(
    "int(int) -> int", "uint(uint) -> uint", "double(double) -> double", "bool(bool) -> bool",
    "string(string) -> string", "bytes(bytes) -> bytes",
)  # fmt: skip
def same(frame: Frame, value: Any) -> Any:
    return value


@function("int(uint) -> int")
def int_of_uint(frame: Frame, value: int) -> int:
    if value > INT_MAX:
        raise Fault("int(): out of range")
    return int(value)


@function("int(double) -> int")
def int_of_double(frame: Frame, value: float) -> int:
    # The doubles nearest to the limits lie outside them: both ends are excluded.
    if not -(2.0**63) < value < 2.0**63:
        raise Fault("int(): out of range")
    return int(value)


_INT = re.compile(r"[+-]?[0-9]{1,40}")
_DOUBLE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)


@function("int(string) -> int")
def int_of_string(frame: Frame, text: str) -> int:
    if _INT.fullmatch(text) is None:
        raise Fault(f"int(): not a whole number: {text[:40]!r}")
    value = int(text)
    if not INT_MIN <= value <= INT_MAX:
        raise Fault("int(): out of range")
    return value


@function("uint(int) -> uint")
def uint_of_int(frame: Frame, value: int) -> Uint:
    if value < 0:
        raise Fault("uint(): out of range")
    return Uint(value)


@function("uint(double) -> uint")
def uint_of_double(frame: Frame, value: float) -> Uint:
    if not 0.0 <= value < 2.0**64:
        raise Fault("uint(): out of range")
    return Uint(int(value))


@function("uint(string) -> uint")
def uint_of_string(frame: Frame, text: str) -> Uint:
    if _INT.fullmatch(text) is None or text.startswith("-"):
        raise Fault(f"uint(): not a whole number of zero or more: {text[:40]!r}")
    value = int(text)
    if value > UINT_MAX:
        raise Fault("uint(): out of range")
    return Uint(value)


@function("double(int) -> double", "double(uint) -> double")
def double_of_int(frame: Frame, value: int) -> float:
    return double_of(value)


@function("double(string) -> double")
def double_of_string(frame: Frame, text: str) -> float:
    spend(frame, len(text) // 10)
    if _DOUBLE.fullmatch(text) is None and _SPECIAL.fullmatch(text) is None:
        raise Fault(f"double(): not a number: {text[:40]!r}")
    return float(text)


_BOOLS = {
    "1": True, "t": True, "true": True, "TRUE": True, "True": True,
    "0": False, "f": False, "false": False, "FALSE": False, "False": False,
}  # fmt: skip


@function("bool(string) -> bool")
def bool_of_string(frame: Frame, text: str) -> bool:
    try:
        return _BOOLS[text]
    except KeyError:
        raise Fault(f"bool(): not a bool: {text[:40]!r}") from None


@function("string(int) -> string", "string(uint) -> string")
def string_of_int(frame: Frame, value: int) -> str:
    return int_text(value)


@function("string(bool) -> string")
def string_of_bool(frame: Frame, value: bool) -> str:
    return "true" if value else "false"


def double_text(value: float) -> str:
    """A double in the fewest digits that read back as the same, by exponent from a million on.

    `1`, `0.1`, `123456.5`, `1e+06`: what the other implementations of CEL write.
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return repr(value).removesuffix(".0")
    # repr() knows the fewest digits; only where it puts the point differs.
    digits = len(repr(abs(value)).partition("e")[0].replace(".", "").strip("0"))
    return f"{value:.{digits - 1}e}"


@function("string(double) -> string")
def string_of_double(frame: Frame, value: float) -> str:
    return double_text(value)


@function("string(bytes) -> string")
def string_of_bytes(frame: Frame, value: bytes) -> str:
    spend(frame, len(value) // 10)
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fault("string(): the bytes are not UTF-8") from None


@function("bytes(string) -> bytes")
def bytes_of_string(frame: Frame, text: str) -> bytes:
    spend(frame, len(text) // 10)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Fault("bytes(): the text has a lone surrogate") from None
