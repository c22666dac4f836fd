"""What a CEL value is in Python, and what holds of all values: kinds, equality, order, cost.

A value is an ordinary JSON value, `Uint`, `bytes`, an aware `datetime`, a `timedelta`, `Optional` or
`TypeValue`. Any `Mapping` is a map and any `Sequence` a list, read one key at a time. Functions by name
live in `library.py`; nothing here knows a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from penstock.errors import EvaluationError

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
UINT_MAX = 2**64 - 1
# Durations are 64 bits of nanoseconds, some 292 years either way.
DURATION_NANOS_MIN, DURATION_NANOS_MAX = INT_MIN, INT_MAX
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MICROSECOND = timedelta(microseconds=1)
_TIMESTAMP_NANOS_MIN = ((datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND) * 1000
_TIMESTAMP_NANOS_MAX = ((datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND) * 1000 + 999

# An evaluation's frame: what is left of its cost, the variables, then a slot for each loop variable.
Frame = list[Any]


class Fault(EvaluationError):
    """An error of the expression itself; the only kind that `&&` and `||` absorb.

    What a variable's mapping raises is not one, nor is an exceeded cost: both pass through.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class Exhausted(Exception):
    """The cost limit is reached; `CostExceeded` outside. Nothing absorbs it."""


class Uint(int):
    """An unsigned 64-bit integer; a plain `int` is signed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class FineTimestamp(datetime):
    """A timestamp with nanoseconds below the microsecond, which `datetime` alone cannot hold."""

    nanos: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, datetime) and timestamp_nanos(self) == timestamp_nanos(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(timestamp_nanos(self))


class FineDuration(timedelta):
    """A duration with nanoseconds below the microsecond, which `timedelta` alone cannot hold."""

    nanos: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, timedelta) and duration_nanos(self) == duration_nanos(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(duration_nanos(self))


class Optional:
    """A value that may be absent; `NONE` is the absent one."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any, present: bool = True) -> None:
        self.value = value
        self.present = present

    def __repr__(self) -> str:
        return f"optional.of({self.value!r})" if self.present else "optional.none()"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optional) or self.present is not other.present:
            return False
        return not self.present or bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((self.present, self.value))


NONE = Optional(None, False)


class TypeValue:
    """A type as a value, as `type(x)` and the names of types give it; equal by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class BoolKeyed(Mapping[Any, Any]):
    """A map with a bool among its keys: a `dict` would take `true` and `1` for one key."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[tuple[bool, Any], Any]) -> None:
        self._entries = entries

    def __getitem__(self, key: Any) -> Any:
        return self._entries[key.__class__ is bool, key]

    def __iter__(self) -> Iterator[Any]:
        return (key for _, key in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(dict(self.items()))


TYPE_VALUES: dict[str, TypeValue] = {
    name: TypeValue(name)
    for name in ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "type")
} | {
    "null_type": TypeValue("null_type"),
    "optional_type": TypeValue("optional_type"),
    "google.protobuf.Timestamp": TypeValue("google.protobuf.Timestamp"),
    "google.protobuf.Duration": TypeValue("google.protobuf.Duration"),
}

# The kind of a value: the outer name of its type.
_KIND_OF_CLASS: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null",
    list: "list",
    tuple: "list",
    dict: "map",
    datetime: "timestamp",
    FineTimestamp: "timestamp",
    timedelta: "duration",
    FineDuration: "duration",
    Optional: "optional",
    TypeValue: "type",
}
_TYPE_NAME_OF_KIND = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "optional": "optional_type",
}
SAME_CLASS_ORDERED = frozenset({int, float, str, bytes, bool, Uint})
NUMERIC_CLASSES = frozenset({int, Uint, float})
_NUMERIC_KINDS = frozenset({"int", "uint", "double"})


def kind_of(value: Any) -> str:
    """The kind of a value, or a fault for a Python object that is no CEL value."""
    found = _KIND_OF_CLASS.get(value.__class__)
    return found if found is not None else kind_of_class(value.__class__)


def kind_of_class(cls: type) -> str:
    """The kind that every value of this class has."""
    found = _KIND_OF_CLASS.get(cls)
    if found is not None:
        return found
    for base, kind in _FOREIGN_BASES:
        if issubclass(cls, base):
            _KIND_OF_CLASS[cls] = kind
            return kind
    raise Fault(f"a Python {cls.__name__} is not a CEL value")


_FOREIGN_BASES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (Uint, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (datetime, "timestamp"),
    (timedelta, "duration"),
    (Mapping, "map"),
    (Sequence, "list"),
)


def type_value(value: Any) -> TypeValue:
    """What `type(x)` gives."""
    kind = kind_of(value)
    return TYPE_VALUES[_TYPE_NAME_OF_KIND.get(kind, kind)]


def spend(frame: Frame, amount: int) -> None:
    """Take from what is left of the cost; past the limit the evaluation ends."""
    left = frame[0] - amount
    frame[0] = left
    if left < 0:
        raise Exhausted


def overload_fault(what: str, *values: Any) -> NoReturn:
    """Say that no overload of an operator or function takes values of these kinds."""
    raise Fault(f"no such overload: {what}({', '.join(kind_of(value) for value in values)})")


def checked_int(value: int) -> int:
    """The value, if it fits 64 signed bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise Fault("integer overflow")


def int_text(value: int) -> str:
    """A whole number in decimal; one too long for 64 bits, as JSON may have it, is a fault."""
    if INT_MIN <= value <= UINT_MAX:
        return str(int(value))
    raise Fault("this number does not fit 64 bits")


def integral(value: float) -> float:
    """A double as an int, if it is whole and within 64 bits: `4.0` of a schema's `integer`; else as it is."""
    if value.is_integer() and INT_MIN <= value <= INT_MAX:
        found = int(value)
        return found if found <= INT_MAX else value
    return value


def double_of(value: float) -> float:
    """A number as a double; one too large for any double, as JSON may have it, is a fault."""
    try:
        return float(value)
    except OverflowError:
        raise Fault("this number does not fit 64 bits") from None


def checked_uint(value: int) -> Uint:
    """The value, if it fits 64 unsigned bits."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise Fault("unsigned integer overflow")


def timestamp_nanos(value: datetime) -> int:
    """Nanoseconds since 1970; a timestamp without a zone is refused."""
    if value.tzinfo is None:
        raise Fault("a timestamp needs a time zone")
    nanos = ((value - EPOCH) // _MICROSECOND) * 1000
    return nanos + value.nanos if isinstance(value, FineTimestamp) else nanos


def timestamp_of(nanos: int) -> datetime:
    """The timestamp so many nanoseconds after 1970, in UTC."""
    if not _TIMESTAMP_NANOS_MIN <= nanos <= _TIMESTAMP_NANOS_MAX:
        raise Fault("timestamp out of range: years 1 to 9999")
    micros, rest = divmod(nanos, 1000)
    plain = EPOCH + timedelta(microseconds=micros)
    if not rest:
        return plain
    fine = FineTimestamp.combine(plain.date(), plain.timetz())
    assert isinstance(fine, FineTimestamp)
    fine.nanos = rest
    return fine


def duration_nanos(value: timedelta) -> int:
    """A duration in nanoseconds."""
    nanos = (value // _MICROSECOND) * 1000
    return nanos + value.nanos if isinstance(value, FineDuration) else nanos


def duration_of(nanos: int) -> timedelta:
    """The duration of so many nanoseconds; beyond 64 bits is refused."""
    if not DURATION_NANOS_MIN <= nanos <= DURATION_NANOS_MAX:
        raise Fault("duration out of range: 292 years either way")
    micros, rest = divmod(nanos, 1000)
    if not rest:
        return timedelta(microseconds=micros)
    fine = FineDuration(microseconds=micros)
    fine.nanos = rest
    return fine


def equal(frame: Frame, a: Any, b: Any) -> bool:
    """CEL equality: numbers by value whatever their type, otherwise false between kinds."""
    kind_a, kind_b = kind_of(a), kind_of(b)
    if kind_a != kind_b:
        if kind_a not in _NUMERIC_KINDS or kind_b not in _NUMERIC_KINDS:
            return False
        if kind_a == "double" or kind_b == "double":
            return double_of(a) == double_of(b)
        return bool(a == b)
    match kind_a:
        case "list":
            size = len(a)
            if size != len(b):
                return False
            spend(frame, size)
            return all(equal(frame, x, y) for x, y in zip(a, b, strict=True))
        case "map":
            return _equal_maps(frame, a, b)
        case "timestamp":
            return timestamp_nanos(a) == timestamp_nanos(b)
        case "duration":
            return duration_nanos(a) == duration_nanos(b)
        case "optional":
            if a.present is not b.present:
                return False
            return not a.present or equal(frame, a.value, b.value)
        case "string" | "bytes":
            size = len(a)
            if size != len(b):
                return False
            if size > 64:
                spend(frame, size // 10)
            return bool(a == b)
        case _:
            return bool(a == b)


def _equal_maps(frame: Frame, a: Mapping[Any, Any], b: Mapping[Any, Any]) -> bool:
    size = len(a)
    if size != len(b):
        return False
    spend(frame, size)
    for key in a:
        other = lookup(b, key)
        if other is MISSING or not equal(frame, a[key], other):
            return False
    return True


class _Missing:
    """What `lookup` gives for a key that is not there; never a CEL value."""


MISSING: Any = _Missing()


def lookup(mapping: Any, key: Any) -> Any:
    """The entry under a key, or `MISSING`; reads that one entry only."""
    cls = key.__class__
    if cls is bool and mapping.__class__ is dict:
        return MISSING
    if cls is float and key != key:
        return MISSING
    try:
        return mapping[key]
    except KeyError:
        return MISSING


def order(a: Any, b: Any, symbol: str) -> int:
    """-1, 0 or 1; 2 where neither is less (NaN); a fault between kinds that have no order."""
    kind_a, kind_b = kind_of(a), kind_of(b)
    if kind_a in _NUMERIC_KINDS and kind_b in _NUMERIC_KINDS:
        if kind_a != kind_b and (kind_a == "double" or kind_b == "double"):
            # As doubles, which beyond 2**53 is not exact: so CEL's conformance tests want it.
            a, b = double_of(a), double_of(b)
    elif kind_a != kind_b or kind_a not in ("string", "bytes", "bool", "timestamp", "duration"):
        overload_fault(f"_{symbol}_", a, b)
    elif kind_a == "timestamp":
        a, b = timestamp_nanos(a), timestamp_nanos(b)
    elif kind_a == "duration":
        a, b = duration_nanos(a), duration_nanos(b)
    if a < b:
        return -1
    if a > b:
        return 1
    return 0 if a == b else 2


def map_of(pairs: list[tuple[Any, Any]]) -> Mapping[Any, Any]:
    """A map from its entries; a key given twice, or of a kind that keys may not have, is a fault."""
    entries: dict[Any, Any] = {}
    has_bool = False
    for key, _ in pairs:
        kind = kind_of(key)
        if kind == "bool":
            has_bool = True
        elif kind not in ("string", "int", "uint"):
            raise Fault(f"a map key is a string, an int, a uint or a bool, not {kind}")
    if has_bool:
        for key, value in pairs:
            entries[key.__class__ is bool, key] = value
    else:
        for key, value in pairs:
            entries[key] = value
    if len(entries) != len(pairs):
        raise Fault("a map has the same key twice")
    return BoolKeyed(entries) if has_bool else entries
