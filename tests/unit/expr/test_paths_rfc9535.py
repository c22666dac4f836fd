"""`inputs.path` by RFC 9535, compiled once, in bounded time (SPEC 14)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import CostExceeded, ExpressionError
from penstock.expr.paths import MISSING, compile_path

ORDER = {
    "lines": [{"sku": "a-1", "n": 1}, {"sku": "b-2", "n": 5}, {"sku": "a-3", "n": 9, "gift": None}],
    "bill to": {"name": "Ada"},
    "☺": 1,
}


@pytest.mark.parametrize(
    ("path", "singular", "found"),
    [
        ("$", True, ORDER),
        ("$.lines[0].sku", True, "a-1"),
        ("$.lines[-1].n", True, 9),
        ("$['bill to'][\"name\"]", True, "Ada"),
        ("$.☺", True, 1),
        ("$.lines[7]", True, MISSING),
        ("$.nothing.at.all", True, MISSING),
        ("$.lines[2].gift", True, None),
        ("$.lines[*].n", False, [1, 5, 9]),
        ("$.lines[1:].n", False, [5, 9]),
        ("$.lines[::-2].n", False, [9, 1]),
        ("$.lines[0, 2].n", False, [1, 9]),
        ("$..n", False, [1, 5, 9]),
        ("$.lines[?@.n > 4].sku", False, ["b-2", "a-3"]),
        ("$.lines[?@.gift].sku", False, ["a-3"]),
        ("$.lines[?@.n == $.lines[1].n].sku", False, ["b-2"]),
        ("$.lines[?match(@.sku, 'a-.')].n", False, [1, 9]),
        ("$.lines[?search(@.sku, '[23]')].n", False, [5, 9]),
        ("$.lines[?match(@.sku, 'a-[.]')].n", False, []),
        ("$.lines[?length(@.sku) == 3 && count(@.*) > 2].n", False, [9]),
        ("$.lines[?value(@..n) == 5].sku", False, ["b-2"]),
        ("$.nothing[*]", False, []),
    ],
)
def test_a_path(path: str, singular: bool, found: Any) -> None:
    compiled = compile_path(path)

    assert compiled.singular is singular
    assert compiled.read(ORDER) == found


@pytest.mark.parametrize(
    "path",
    ["", "lines", "$.", "$[", "$.lines[", "$[?]", "$[?@.a == ]", "$.a b", "$[01]", "$[?count(1) > 0]",
     "$[?nofunction(@)]", "$" + ".a" * 3000],
)  # fmt: skip
def test_what_is_no_path_is_refused_at_once(path: str) -> None:
    with pytest.raises(ExpressionError):
        compile_path(path)


def test_a_regular_expression_in_a_filter_does_not_explode() -> None:
    assert compile_path("$[?search(@, '(a+)+c')]").read(["a" * 50_000 + "b"]) == []


def test_a_path_visits_a_bounded_number_of_nodes() -> None:
    value: Any = 1
    for _ in range(90):
        value = [value]

    with pytest.raises(CostExceeded, match="visits more than 500000 nodes"):
        compile_path("$..*..*..*..*.nothing").read(value)


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(300):
        value = [value]

    with pytest.raises(CostExceeded, match="deeper"):
        compile_path("$..x").read(value)
