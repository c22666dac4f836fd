"""Trees: shapes and positions that other passes rely on, and no text that crashes anything."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import EvaluationError, ExpressionError
from penstock.expr.compile import compile_expression
from penstock.expr.parse import parse
from penstock.expr.template import compile_template
from penstock.expr.tree import (
    Binary,
    Bind,
    Call,
    Comprehension,
    Conditional,
    Has,
    Ident,
    Index,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Select,
    Unary,
    children,
)
from penstock.expr.typecheck import Environment
from penstock.expr.types import DOUBLE, DYN, INT, STRING, list_of, object_of


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a.b", Select(2, Ident(0, "a"), "b")),
        ("a.?b", Select(3, Ident(0, "a"), "b", optional=True)),
        ("a[?0]", Index(1, Ident(0, "a"), Literal(3, 0), optional=True)),
        (".a", Ident(0, "a", absolute=True)),
        ("a && b && c", Logic(2, "&&", (Ident(0, "a"), Ident(5, "b"), Ident(10, "c")))),
        ("(a && b) || c", Logic(9, "||", (Logic(3, "&&", (Ident(1, "a"), Ident(6, "b"))), Ident(12, "c")))),
        ("1 - 2 - 3", Binary(6, "-", Binary(2, "-", Literal(0, 1), Literal(4, 2)), Literal(8, 3))),
        ("-1", Literal(0, -1)),
        ("-a", Unary(0, "-", Ident(1, "a"))),
        ("f(1)", Call(0, "f", None, (Literal(2, 1),))),
        ("a.f(1)", Call(2, "f", Ident(0, "a"), (Literal(4, 1),))),
        ("has(a.b)", Has(0, Ident(4, "a"), "b")),
        ("a ? b : c", Conditional(2, Ident(0, "a"), Ident(4, "b"), Ident(8, "c"))),
        ("a.all(x, y)", Comprehension(2, "all", Ident(0, "a"), "x", None, None, Ident(9, "y"))),
        ("a.map(x, y, z)", Comprehension(2, "map", Ident(0, "a"), "x", None, Ident(9, "y"), Ident(12, "z"))),
        ("a.all(i, v, y)", Comprehension(2, "all", Ident(0, "a"), "i", "v", None, Ident(12, "y"))),
        ("cel.bind(x, 1, x)", Bind(4, "x", Literal(12, 1), Ident(15, "x"))),
    ],
)  # fmt: skip
def test_a_text_has_its_tree(text: str, tree: Any) -> None:
    assert parse(text) == tree


def test_children_are_in_the_order_written() -> None:
    texts = [
        "[a, b]",
        "{a: b}",
        "a ? b : c",
        "a.map(x, b, c)",
        "f(a, b)",
        "a.f(b)",
        "a[b]",
        "a + b",
    ]
    for text in texts:
        tree = parse(text)
        names = [child.name for child in children(tree) if isinstance(child, Ident)]
        assert names == sorted(names), text
    assert isinstance(parse("[]"), ListLiteral)
    assert isinstance(parse("{}"), MapLiteral)


TOKENS = st.sampled_from(
    [
        "1",
        "2u",
        "1.5",
        "-1",
        "0",
        "'a'",
        '"b"',
        "b'c'",
        "r'\\d'",
        "true",
        "false",
        "null",
        "x",
        "xs",
        "m",
        "s",
        "n",
        ".",
        ".?",
        "[",
        "[?",
        "]",
        "(",
        ")",
        "{",
        "}",
        ",",
        ":",
        "?",
        "&&",
        "||",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "in",
        "size",
        "(",
        "has(",
        ".size()",
        ".map(",
        ".all(",
        ".exists(",
        ".filter(",
        ".transformMap(",
        "x,",
        "y,",
        ".contains(",
        ".matches(",
        "'a')",
        ".split(",
        ".join(",
        ".format([",
        "])",
        ".sortBy(",
        ".optMap(",
        "optional.of(",
        "optional.none()",
        ".orValue(",
        ".value()",
        "math.greatest(",
        "timestamp(",
        "duration(",
        "'1h'",
        "int(",
        "string(",
        "double(",
        "type(",
        "dyn(",
        "cel.bind(",
        "lists.range(",
        ".flatten()",
        ".distinct()",
        ".sort()",
        ".first()",
        ".a",
        ".b",
        '["a"]',
        "[0]",
        "{'a':1}",
        "[1,2]",
        "timestamp('2020-01-01T00:00:00Z')",
        ".getHours(",
        "9223372036854775807",
    ]
)
VARIABLES: dict[str, Any] = {
    "x": 5, "y": 2.5, "xs": [1, 2, 3], "m": {"a": 1, "b": {"c": None}}, "s": "text", "n": None,
}  # fmt: skip
ENV = Environment(
    {"x": INT, "y": DOUBLE, "xs": list_of(INT), "m": object_of({"a": INT, "b": DYN}), "s": STRING, "n": DYN}
)  # fmt: skip


@settings(max_examples=800, deadline=None, derandomize=True, database=None)
@given(st.lists(TOKENS, min_size=1, max_size=14), st.booleans())
def test_no_row_of_tokens_crashes(tokens: list[str], typed: bool) -> None:
    text = " ".join(tokens)
    with contextlib.suppress(ExpressionError, EvaluationError):
        compile_expression(text, ENV if typed else None).evaluate_json(VARIABLES, cost_max=10_000)


@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(st.text(max_size=30))
def test_no_text_crashes(text: str) -> None:
    for attempt in (compile_expression, compile_template):
        try:
            attempt(text)
        except ExpressionError as error:
            position = error.position
        else:
            position = 0
        assert 0 <= position <= len(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
UNARY_TEXTS = [
    "x", "-x", "!x", "size(x)", "x.a", "x[0]", "x['a']", "x.map(e, e)", "x.all(e, e)", "x == x", "x < x",
    "x + x", "x in x", "string(x)", "int(x)", "double(x)", "type(x) == type(x)", "x.?a", "'%s'.format([x])",
    "[x].distinct()", "[x, x].sort()", "optional.ofNonZeroValue(x)", "timestamp(x)", "duration(x)", "x.join()",
    "x.flatten()", "math.greatest(x)", "{x: 1}", "{'a': x}[x]", "x ? 1 : 2", "x && true", "x % x", "x / x",
    "x.transformMapEntry(k, v, {k: v})", "sets.equivalent(x, x)", "x.reverse()", "x.matches(x)", "uint(x)",
]  # fmt: skip


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(JSON, st.sampled_from(UNARY_TEXTS))
def test_no_json_value_crashes(value: Any, text: str) -> None:
    with contextlib.suppress(EvaluationError):
        compile_expression(text).evaluate_json({"x": value})


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(JSON, JSON)
def test_equality_is_symmetric_and_its_negation_is_its_opposite(a: Any, b: Any) -> None:
    def ask(text: str) -> Any:
        return compile_expression(text).evaluate({"m": {"a": a, "b": b}})

    try:
        equal = ask("m.a == m.b")
    except EvaluationError:
        return
    assert ask("m.b == m.a") is equal
    assert ask("m.a != m.b") is (not equal)
    assert ask("[m.a] == [m.b]") is equal
    assert ask("{'k': m.a} == {'k': m.b}") is equal
    assert ask("m.a in [m.b]") is equal
