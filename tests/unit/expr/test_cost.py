"""Cost is bounded, deterministic, and paid before memory is taken."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from penstock.errors import CostExceeded, EvaluationError, ExpressionError
from penstock.expr.compile import compile_expression


def evaluate(text: str, cost_max: int = 100_000, **variables: Any) -> Any:
    return compile_expression(text).evaluate(variables, cost_max=cost_max)


def grown(step: str, times: int = 20, start: str = "'aaaaaaaaaa'", end: str = "a") -> str:
    return f"cel.bind(a, {start}, " + f"cel.bind(a, {step}, " * times + end + ")" * (times + 1)


def test_each_node_counts_one() -> None:
    assert evaluate("1 + 2 * 3", cost_max=5) == 7
    with pytest.raises(CostExceeded, match="more than 4 steps"):
        evaluate("1 + 2 * 3", cost_max=4)


def test_each_element_counts_its_body() -> None:
    items = list(range(1000))

    assert evaluate("xs.all(x, x >= 0)", cost_max=4_002, xs=items) is True
    with pytest.raises(CostExceeded):
        evaluate("xs.all(x, x >= 0)", cost_max=4_000, xs=items)


def test_what_is_not_reached_is_not_walked() -> None:
    assert evaluate("xs.exists(x, x == 3)", cost_max=50, xs=list(range(1000))) is True


def test_a_cost_limit_is_an_evaluation_error_that_nothing_absorbs() -> None:
    text = "xs.all(x, xs.all(y, y >= 0)) || true"
    with pytest.raises(CostExceeded) as caught:
        evaluate(text, xs=list(range(1000)))

    assert isinstance(caught.value, EvaluationError)
    assert caught.value.code == "expression-cost"


BOMBS = [
    "xs.map(x, xs.map(y, xs.map(z, z)))",
    "xs.map(x, xs).map(x, xs).flatten().map(x, xs).flatten()",
    "xs.all(x, big == big2)",
    "xs.all(x, x in big) || xs.all(x, -1 in big)",
    "xs.all(x, text + text != '')",
    "xs.all(x, text.contains('zzz') || true)",
    "xs.all(x, text.matches('zzz') || true)",
    "xs.transformMapEntry(i, v, {string(i) + text: v})",
    "lists.range(1000000000)",
    "lists.range(9223372036854775807).size()",
    "'a'" + ".replace('a', 'aaaaaaaaaa')" * 30,
    "'a'" + ".replace('', 'aaaaaaaaaa')" * 30,
    "text" + ".split('').join('aaaaaaaaaaaaaaaa')" * 30,
    grown("a + a + a + a + a + a + a + a"),
    grown("[a, a, a, a, a, a, a, a].join()"),
    grown("'%s%s%s%s%s%s%s%s'.format([a, a, a, a, a, a, a, a])"),
    grown("[a, a, a, a, a, a, a, a].map(b, b + a).join()"),
    grown("base64.encode(bytes(a + a + a))"),
    grown("strings.quote(a + a + a)"),
    grown("'%x'.format([a + a])", times=40),
    grown("a + a + a + a", start="[1]"),
    grown("[a, a, a, a, a, a, a, a]", start="[1]", end="a == a"),
    grown("[a, a, a, a, a, a, a, a]", start="[1]", end="'%s'.format([a])"),
    grown("[a, a, a, a, a, a, a, a]", start="[1]", end="a.flatten(30)"),
    grown("[a, a, a, a, a, a, a, a]", start="[1]", end="[a, a].distinct()"),
    grown("[a, a, a, a, a, a, a, a]", start="[1]", end="sets.contains([a], [a])"),
    grown("{'x': a, 'y': a, 'z': a}", start="{'w': 1}", end="a == a", times=30),
]


@pytest.mark.parametrize("text", BOMBS, ids=range(len(BOMBS)))
def test_bombs_hit_the_limit_before_they_take_much_memory(text: str) -> None:
    expression = compile_expression(text)
    variables = {
        "xs": list(range(1000)), "big": list(range(5000)), "big2": list(range(5000)), "text": "a" * 5000,
    }  # fmt: skip
    tracemalloc.start()
    try:
        with pytest.raises(CostExceeded):
            expression.evaluate(variables)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 20_000_000


def test_a_bound_error_is_worked_out_once() -> None:
    text = grown("a == 1 || a == 2 || a == 3", times=60, start="1 / zero")
    with pytest.raises(EvaluationError, match="division by zero"):
        evaluate(text, zero=0)


def test_a_result_that_only_json_would_blow_up_hits_the_limit() -> None:
    expression = compile_expression(grown("[a, a, a, a, a, a, a, a]", start="[1]"))

    assert len(expression.evaluate({})) == 8
    with pytest.raises(CostExceeded):
        expression.evaluate_json({}, cost_max=10_000)


def test_a_large_input_may_be_handed_on() -> None:
    items = [{"n": n} for n in range(100_000)]

    assert compile_expression("xs").evaluate_json({"xs": items}) == items


@pytest.mark.parametrize("levels", [251, 500, 5_000])
@pytest.mark.parametrize(
    ("before", "inside", "after"),
    [
        ("(", "1", ")"), ("[", "1", "]"), ("{1:", "1", "}"), ("size(", "1", ")"), ("1+(", "1", ")"),
        ("-", "x", ""), ("!", "x", ""), ("true?1:", "1", ""), ("x[", "1", "]"), ("true&&(", "true", ")"),
        ("", "x", ".a"), ("", "x", "[0]"), ("", "x", ".reverse()"), ("[1].map(x,", "1", ")"),
        ("cel.bind(x,1,", "1", ")"), ("1-(2*", "3", ")"),
    ],
)  # fmt: skip
def test_deep_nesting_is_refused_with_a_clear_error(
    before: str, inside: str, after: str, levels: int
) -> None:
    text = before * levels + inside + after * levels
    with pytest.raises(ExpressionError, match=r"nested deeper than 250|64 KiB"):
        compile_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 245 + "1" + ")" * 245,
        "[" * 245 + "1" + "]" * 245,
        "string(" * 245 + "'1'" + ")" * 245,
        "x" + ".reverse()" * 245,
        "true ? 1 : " * 245 + "1",
        "[1].map(x, " * 120 + "1" + ")" * 120,
        "1+(" * 245 + "1" + ")" * 245,
    ],
)
def test_nesting_below_the_limit_works(text: str) -> None:
    compile_expression(text).evaluate({"x": "abc"})


@pytest.mark.parametrize(("joint", "value"), [("+", 4000), ("&&", True), ("||", True)])
def test_long_chains_are_no_nesting(joint: str, value: Any) -> None:
    part = "1" if joint == "+" else "true"

    assert evaluate(joint.join([part] * 4000)) == value


def test_text_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ExpressionError, match="64 KiB"):
        compile_expression("'" + "é" * 40_000 + "'")


def test_values_nested_too_deep_are_an_error_not_a_crash() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for text in ("x == x", "x.flatten(9999)", "'%s'.format([x])"):
        with pytest.raises(EvaluationError, match="nested too deep"):
            evaluate(text, x=deep)
    with pytest.raises(EvaluationError, match="nested too deep"):
        compile_expression("x").evaluate_json({"x": deep})
