"""Results as JSON."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.errors import EvaluationError
from penstock.expr.compile import compile_expression

VARIABLES: dict[str, Any] = {
    "at": datetime(2024, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC),
    "wait": timedelta(seconds=1.5),
    "nan": math.nan,
    "m": {"a": [1, None, {"b": True}]},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None), ("true", True), ("1", 1), ("1.5", 1.5), ("2.0", 2.0), ("'é'", "é"), ("5u", 5),
        ("at", "2024-01-02T03:04:05.6Z"), ("wait", "1.5s"), ("duration('-1ns')", "-0.000000001s"),
        ("b'hi'", "aGk="), ("optional.none()", None), ("optional.of(at)", "2024-01-02T03:04:05.6Z"),
        ("[at, wait]", ["2024-01-02T03:04:05.6Z", "1.5s"]), ("{'a': 1u}", {"a": 1}),
        ("{1: 'a', true: 'b'}", {"1": "a", "true": "b"}), ("m", {"a": [1, None, {"b": True}]}),
    ],
)  # fmt: skip
def test_every_value_has_its_json(text: str, value: Any) -> None:
    found = compile_expression(text).evaluate_json(VARIABLES)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["nan", "1.0 / 0.0", "[-1.0 / 0.0]", "type(1)", "{'a': int}", "{1: 1, '1': 2}"]
)
def test_what_json_cannot_hold_is_an_error(text: str) -> None:
    with pytest.raises(EvaluationError):
        compile_expression(text).evaluate_json(VARIABLES)


def test_a_number_beyond_64_bits_is_an_error_inside_a_result_too() -> None:
    with pytest.raises(EvaluationError, match="64 bits"):
        compile_expression("m").evaluate_json({"m": {"n": [2**64]}})
