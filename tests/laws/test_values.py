"""Values of functions and activities are written as every payload is, whoever looks at them (SPEC 2.8, 6.3)."""

from __future__ import annotations

import dataclasses
import enum
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock import Context, workflow
from penstock.errors import PenstockError, Rejected
from penstock.model.payload import DEPTH_MAX, encode_payload
from penstock.sdk.functions import workflow_of
from penstock.sdk.values import encode_value


class Colour(enum.Enum):
    RED = "red"
    MANY = frozenset({"a", "b"})


class Label(str, enum.Enum):  # noqa: UP042
    """Its text is one thing, its value another."""

    def __new__(cls, text: str, value: str) -> Label:
        made = str.__new__(cls, text)
        made._value_ = value
        return made

    RED = "r", "red"


class Coded(enum.Enum):
    RED = 1

    @property
    def value(self) -> Any:
        raise AttributeError("use .code")


class Endless(enum.Enum):
    RED = 1

    @property
    def value(self) -> Any:
        return self


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclasses.dataclass
class Line:
    sku: Any


class Order(msgspec.Struct):
    lines: Any


class Name(str):
    __slots__ = ()


plain = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["null", "[[[{{", "e+17", "\ud800", 1e17, -0.0])
)  # fmt: skip
odd = (
    st.sets(st.text(max_size=3), max_size=4) | st.frozensets(st.integers(0, 9), max_size=4) | st.sampled_from(Colour)
    | st.binary(max_size=4) | st.just(date(2026, 1, 2)) | st.just(Decimal("1.5")) | st.just(UUID(int=7)) | st.builds(Name)
    | st.just(object) | st.just(1j) | st.sampled_from([Label.RED, Coded.RED, Endless.RED])
    | st.sampled_from([b"{oops", b"1e400", b'"\xff"', b"1", b'{"a":[null]}']).map(msgspec.Raw)
)  # fmt: skip
keys = (
    st.text(max_size=4)
    | st.text(max_size=4)
    | st.text(max_size=4)
    | st.integers(0, 3)
    | st.builds(Name)
)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.tuples(inner, inner)
            | st.builds(Pair, inner, inner) | st.builds(Line, inner) | st.builds(Order, inner)
        ),
        max_leaves=12,
    )  # fmt: skip


def told(encode: Any, value: Any) -> Any:
    try:
        return encode(value)
    except PenstockError as error:
        return error.code, error.message
    except Exception as error:  # of the value's own code
        return type(error), str(error)


@given(nested(plain) | nested(plain | odd))
def test_a_value_is_written_or_refused_as_every_payload(value: Any) -> None:
    assert told(encode_value, value) == told(encode_payload, value)


@given(st.integers(DEPTH_MAX - 3, DEPTH_MAX + 80), st.booleans(), st.booleans())
def test_what_is_nested_too_deeply_is_refused_in_the_same_words(
    depth: int, named: bool, beside: bool
) -> None:
    value: Any = {"n": float("nan")} if beside else 1
    for _ in range(depth):
        value = {"a": value} if named else [value]
    assert told(encode_value, value) == told(encode_payload, value)


@given(st.integers(1, 300), st.integers(20, 400))
def test_a_value_that_is_too_large_is_refused_with_its_size(lines: int, limit: int) -> None:
    value = [{"sku": "gasket"}] * lines
    assert told(partial(encode_value, limit=limit), value) == told(
        partial(encode_payload, limit=limit), value
    )


@workflow  # pyright: ignore
async def takes(
    ctx: Context, some: dict,  # pyright: ignore
    by_name: dict[str, Any], anything: Any, many: list[int], plain: Any = None, number: int = 1,
) -> None:  # fmt: skip
    raise NotImplementedError


_VALUES: list[Any] = [None, 1, 1.5, "a", [], [1], ["a"], {}, {"a": 1}, {"a": {"b": [None, {}]}}]
values = st.sampled_from(_VALUES)
fits: dict[str, Any] = {"some": {}, "by_name": {"a": 1}, "anything": None, "many": [1]}


@given(st.dictionaries(st.sampled_from([*fits, "plain", "number", "other"]), values), st.booleans())
def test_an_input_is_refused_at_the_start_if_and_only_if_the_function_cannot_read_it(
    given: dict[str, Any], filled: bool
) -> None:
    known = workflow_of(takes)  # pyright: ignore
    raw = msgspec.json.encode({**fits, **given} if filled else given)
    try:
        called: Any = known.called(None, raw)
        called.close()
        read = True
    except Rejected:
        read = False
    try:
        known.check_input(raw)
        accepted = True
    except Rejected:
        accepted = False
    assert accepted == read


@given(st.binary(max_size=6))
def test_ready_made_json_is_kept_if_it_is_json(raw: bytes) -> None:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = told(encode_value, {"a": [msgspec.Raw(raw)]})
        assert found[0] == "payload-invalid"
        assert found[1].startswith("$.a[0] is not JSON: ")
    else:
        assert encode_value({"a": [msgspec.Raw(raw)]}) == b'{"a":[' + raw + b"]}"
