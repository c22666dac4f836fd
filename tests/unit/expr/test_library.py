"""Functions at their edges: odd values from JSON, long numbers, clauses that nobody writes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest

from penstock.errors import EvaluationError, ExpressionError
from penstock.expr.compile import compile_expression
from penstock.expr.template import compile_template
from penstock.expr.values import BoolKeyed, FineDuration, FineTimestamp, Optional, TypeValue, Uint

HUGE = 10**5000
SURROGATE = "\ud800"


def evaluate(text: str, /, **variables: Any) -> Any:
    return compile_expression(text).evaluate(variables)


@pytest.mark.parametrize(
    "text",
    [
        "string(xs.first().value())", "double(xs.first().value())", "math.sqrt(xs.first().value())",
        "'%d'.format(xs)", "'%s'.format(xs)", "'%s'.format([xs])", "'%f'.format(xs)", "xs[0] + 1",
        "xs.map(x, x)", "-xs.first().value()", "math.abs(xs.last().value())", "timestamp(xs.first().value())",
        "xs.first().value() * xs.first().value()",
    ],
)  # fmt: skip
def test_a_number_of_any_length_is_an_error_not_a_crash(text: str) -> None:
    with pytest.raises(EvaluationError):
        evaluate(text, xs=[HUGE])


def test_a_literal_of_any_length_is_refused() -> None:
    for text in ("1" * 5000, "1" * 5000 + "u", "0x" + "f" * 5000, "1e999", "-1e999"):
        with pytest.raises(ExpressionError, match="too large"):
            compile_expression(text)


def test_half_a_character_is_an_error_not_a_crash() -> None:
    for text in ("x.matches('a')", "'a'.matches(x)", "bytes(x)"):
        with pytest.raises(EvaluationError):
            evaluate(text, x=SURROGATE)
    with pytest.raises(EvaluationError):
        compile_template("${[x]}").render({"x": SURROGATE})
    with pytest.raises(ExpressionError, match="surrogate") as caught:
        compile_expression(f"a == b'{SURROGATE}'")
    assert caught.value.position == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'%s'.format([b'hi'])", "hi"),
        ("'%s'.format([at])", "2024-01-02T03:04:05Z"),
        ("'%X'.format(['hi'])", "6869"),
        ("'%d'.format([2.0])", "2"),
        ("optional.ofNonZeroValue(b'').hasValue()", False),
        ("optional.ofNonZeroValue({}).hasValue()", False),
        ("optional.ofNonZeroValue(optional.none()).hasValue()", False),
        ("optional.ofNonZeroValue(at).hasValue()", True),
        ("optional.ofNonZeroValue(duration('0s')).hasValue()", False),
        ("math.bitAnd(6u, 3u)", Uint(2)),
        ("math.bitXor(6u, 3u)", Uint(5)),
        ("math.bitShiftLeft(1u, 63)", Uint(2**63)),
        ("''.split('')", []),
        ("1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 - 1 * 2", 53),
        ("1 < 2 == true == true == true == true == true == true == true == true != false", True),
        ("1 == 1 == true == true == true == true == true == true == true == true > false", True),
        ("'a' + 'b' + 'c' + 'd' + 'e' + 'f' + 'g' + 'h' + 'i' + 'j' in ['abcdefghij']", True),
        ("cel.bind(n, big, n.x)", 1),
        ("'a' in proxy", True),
        ("proxy == {'a': 1}", True),
        ("proxy.map(k, proxy[k])", [1]),
        ("pair.map(p, p + 1)", [2, 3]),
        ("pair + [3]", [1, 2, 3]),
        ("pair == [1, 2]", True),
        ("text == text2", True),
        ("text < text2", False),
        ("{double('NaN') in {1: 1}: 1}.size()", 1),
        ("{true: 'a', 1: 'b', 'c': 'd'}.map(k, k)", [True, 1, "c"]),
        ("true in {true: 1, 'a': 2}", True),
        ("timestamp('0001-01-01T00:00:00Z').getFullYear('-05:00')", 0),
    ],
)
def test_edges(text: str, value: Any) -> None:
    found = evaluate(
        text,
        at=datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
        big={"x": 1},
        proxy=MappingProxyType({"a": 1}),
        pair=(1, 2),
        text="x" * 500,
        text2="x" * 499 + "x",
    )

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("'%.101f'.format([1.5])", "bad precision"),
        ("'%.99999f'.format([1.5])", "bad precision"),
        ("'%.2d'.format([1])", "bad precision"),
        ("'%f'.format(['a'])", "does not take string"),
        ("'%o'.format([1.5])", "does not take double"),
        ("'%x'.format([1.5])", "does not take double"),
        ("[1].unwrapOpt()", "list of optionals"),
        ("base64.decode('a')", "not base64"),
        ("timestamp('2024-01-01T00:00:00+24:00')", "zone offset"),
        ("at.getHours('+24:00')", "time zone"),
        ("[1, 2].sortBy(x, [x])", "no such overload"),
        ("[1, 2].sortBy(x, x == 1 ? dyn(1) : dyn('a'))", "cannot sort"),
        ("1.optMap(x, x)", "over int"),
        ("optional.of(1).optFlatMap(x, x)", "needs an optional"),
        ("1.orValue(2)", "orValue() of int"),
        ("optional.none().or(1)", "or(int)"),
        ("1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 'a'", "no such overload"),
        ("true && 1 && true", "needs a bool"),
        ("uint('18446744073709551616')", "out of range"),
        ("int.x", "no such field"),
        ("cel.bind(n, [big], n[0].x)", "64 bits"),
        ("cel.bind(n, huge, n)", "64 bits"),
    ],
)
def test_errors_at_the_edges(text: str, words: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate(text, at=datetime(2024, 1, 2, tzinfo=UTC), big={"x": 2**63}, huge=2**63)

    assert words in caught.value.message


def test_values_look_like_what_they_are() -> None:
    assert repr(evaluate("5u")) == "5u"
    assert repr(evaluate("optional.of(1)")) == "optional.of(1)"
    assert repr(evaluate("optional.none()")) == "optional.none()"
    assert repr(evaluate("int")) == "int"
    assert repr(evaluate("{true: 1}")) == "{True: 1}"
    assert repr(compile_expression("1")) == "Expression('1')"
    assert repr(compile_template("a")) == "Template('a')"


def test_values_can_be_kept_in_sets() -> None:
    assert len({Optional(1), Optional(1), TypeValue("int"), TypeValue("int")}) == 2
    assert Optional(1) != Optional(2)
    assert Optional(1) != 1


def test_results_are_ordinary_python_values() -> None:
    assert isinstance(evaluate("{true: 1}"), BoolKeyed)
    assert isinstance(evaluate("{true: 1}"), Mapping)
    assert isinstance(evaluate("[1] + [2]"), Sequence)
    assert isinstance(evaluate("5u"), int)


def test_nanoseconds_ride_along() -> None:
    fine = evaluate("timestamp('2024-01-01T00:00:00.000000001Z')")
    short = evaluate("duration('1ns')")

    assert isinstance(fine, FineTimestamp)
    assert isinstance(short, FineDuration)
    assert fine != datetime(2024, 1, 1, tzinfo=UTC)
    assert short != timedelta(0)
    assert len({fine, evaluate("timestamp('2024-01-01T00:00:00.000000001Z')")}) == 1
    assert len({short, evaluate("duration('1ns')")}) == 1
    assert evaluate("x + duration('999ns')", x=fine) == datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert type(copy.deepcopy(fine)) is FineTimestamp
    assert evaluate("x + d > x", x=copy.deepcopy(fine), d=copy.deepcopy(short)) is False
