"""Payloads: JSON once, and nothing bent in silence."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PayloadInvalid, PayloadTooLarge
from penstock.model.payload import DEPTH_MAX, PAYLOAD_BYTES_MAX, decode_payload, encode_payload

NAN, INFINITY = float("nan"), float("inf")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class Colour(enum.Enum):
    RED = "red"
    WRONG = NAN


class Name(enum.StrEnum):
    FIRST = "first"


@dataclasses.dataclass
class Line:
    price: float
    note: Any = None


class Order(msgspec.Struct):
    lines: list[Line]


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@given(JSON)
def test_what_is_json_comes_back_as_it_was(value: Any) -> None:
    assert decode_payload(encode_payload(value)) == value


def test_the_usual_python_values_have_a_json_form() -> None:
    noon = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    value = {
        "order": Order([Line(1.5)]),
        "when": noon,
        "cents": Decimal("19.99"),
        "colour": Colour.RED,
        Name.FIRST: (1, 2),
        "set": {3},
        "bytes": b"ab",
    }

    assert decode_payload(encode_payload(value)) == {
        "order": {"lines": [{"price": 1.5, "note": None}]},
        "when": "2024-05-01T12:00:00Z",
        "cents": "19.99",
        "colour": "red",
        "first": [1, 2],
        "set": [3],
        "bytes": "YWI=",
    }


class Tagged(msgspec.Struct, rename="camel", frozen=True):
    all_tags: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Noted:
    notes: frozenset[str]


def test_a_set_has_one_order() -> None:
    words = ("pear", "apple", "fig", "kiwi", "plum", "10", "9")
    ordered = sorted(words)
    value = {
        "b": set(words),
        "a": [frozenset(words), (Tagged(frozenset(words)), Noted(frozenset(words)))],
        "mixed": {"b", 1, None, "a"},
        "numbers": {8, 1},
    }

    assert list(decode_payload(encode_payload(value)).items()) == [
        ("b", ordered),
        ("a", [ordered, [{"allTags": ordered}, {"notes": ordered}]]),
        ("mixed", ["a", "b", 1, None]),
        ("numbers", list({8, 1})),
    ]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (NAN, r"^\$ is nan, which JSON cannot hold"),
        ({"a": [1, {"b": INFINITY}]}, r"^\$\.a\[1\]\.b is inf"),
        ({"a": (1, -INFINITY)}, r"^\$\.a\[1\] is -inf"),
        ([Line(NAN)], r"^\$\[0\]\.price is nan"),
        (Order([Line(1, {"x": NAN})]), r"^\$\.lines\[0\]\.note\.x is nan"),
        ({"a": Colour.WRONG}, r"^\$\.a is nan"),
        ({1: "one"}, r"^\$ has the key 1 of type int; keys must be text"),
        ({True: "one"}, r"^\$ has the key True of type bool"),
        ({"a": {None: 1}}, r"^\$\.a has the key None of type NoneType"),
        ({"a b": {(1, 2): 1}}, r"^\$\['a b'\] has the key \(1, 2\) of type tuple"),
        ({"a": [object]}, r"^\$\.a\[0\] cannot be kept as JSON: .* is of type type"),
        ({"a": range(3)}, r"^\$\.a cannot be kept as JSON: range\(0, 3\) is of type range"),
        (Line(1.0, lambda: 1), r"^\$\.note cannot be kept as JSON: .* is of type function"),
        (["\ud800"], r"^\$\[0\] cannot be kept as JSON: the text holds half of a surrogate pair"),
        ({"\ud800": 1}, r"^\$ cannot be kept as JSON: the text holds half of a surrogate pair"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(value: Any, complaint: str) -> None:
    with pytest.raises(PayloadInvalid, match=complaint):
        encode_payload(value)


def test_a_cycle_is_refused_with_its_place() -> None:
    value: dict[str, Any] = {"a": [1]}
    value["a"].append(value)

    with pytest.raises(PayloadInvalid, match=r"^\$\.a\[1\] contains itself"):
        encode_payload(value)


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [Line(1.0)]

    assert len(decode_payload(encode_payload([shared, shared]))) == 2


@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, DEPTH_MAX + 700, 100_000])
def test_nesting_is_bounded_so_that_all_that_is_kept_can_be_read(levels: int) -> None:
    assert decode_payload(encode_payload(nested(DEPTH_MAX))) == nested(DEPTH_MAX)

    with pytest.raises(PayloadInvalid, match=f"nested deeper than {DEPTH_MAX} levels"):
        encode_payload(nested(levels))


def test_a_value_above_the_limit_is_refused_with_both_sizes() -> None:
    assert encode_payload("x" * (PAYLOAD_BYTES_MAX - 2))

    with pytest.raises(PayloadTooLarge, match="67,108,865 bytes as JSON; at most 67,108,864"):
        encode_payload("x" * (PAYLOAD_BYTES_MAX - 1))
    with pytest.raises(PayloadTooLarge, match="takes 12 bytes as JSON; at most 10"):
        encode_payload("x" * 10, limit=10)


def test_large_numbers_keep_every_digit() -> None:
    assert decode_payload(encode_payload([2**70, -(2**64)])) == [2**70, -(2**64)]


def test_an_object_that_cannot_even_be_shown_is_still_named() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise ValueError

    with pytest.raises(PayloadInvalid, match="Shy"):
        encode_payload({"a": Shy()})


@pytest.mark.parametrize("encoded", [b"", b"{", b"NaN", b'"\xff"'])
def test_bytes_that_are_no_json_are_refused(encoded: bytes) -> None:
    with pytest.raises(PayloadInvalid, match="not JSON"):
        decode_payload(encoded)
