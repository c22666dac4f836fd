"""Templates: text with expressions in it."""

from __future__ import annotations

import html
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.errors import CostExceeded, EvaluationError, ExpressionError
from penstock.expr.template import compile_template
from penstock.expr.typecheck import Environment
from penstock.expr.types import STRING

VARIABLES: dict[str, Any] = {
    "name": "Ada",
    "n": 3,
    "total": 1500000.0,
    "rate": 0.25,
    "ok": True,
    "none": None,
    "tags": ["a", {"b": 1}],
    "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
    "wait": timedelta(seconds=90),
}


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("", ""),
        ("no expressions", "no expressions"),
        ("Hello ${name}!", "Hello Ada!"),
        ("${name}${n}", "Ada3"),
        ("${n}", "3"),
        ("${total}", "1500000"),
        ("${rate}", "0.25"),
        ("${ok} ${none}", "true null"),
        ("${tags}", '["a",{"b":1}]'),
        ("${at} ${wait}", "2024-01-02T03:04:05Z 90s"),
        ("${ {'a': {'b': '}'}}.a.b }", "}"),
        ("${'${'}", "${"),
        ('${"}" + r"\\" + \'}\'}', "}\\}"),
        ("${name == 'x' ? 'a' : 'b'}", "b"),
        ("$${name} costs $5 and $", "${name} costs $5 and $"),
        ("a $ {b} ${ n // not the end }\n }", "a $ {b} 3"),
        ("${bytes('hi')}", "aGk="),
        ("${optional.none()}", "null"),
        ("{${n}}", "{3}"),
    ],
)
def test_rendering_gives_text(text: str, rendered: str) -> None:
    assert compile_template(text).render(VARIABLES) == rendered


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("abc ${", 4),
        ("x ${1 +} y", 7),
        ("${}", 0),
        ("${ 'a }", 3),
        ("ab ${nope(1)}", 5),
        ("${{}", 0),
    ],
)
def test_positions_count_in_the_template(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_template(text)

    assert caught.value.position == position
    assert caught.value.text == text


def test_an_environment_holds_for_every_part() -> None:
    with pytest.raises(ExpressionError, match="no such variable `nmae`") as caught:
        compile_template("Dear ${nmae}", Environment({"name": STRING}))

    assert caught.value.position == 7
    assert caught.value.hint == "did you mean `name`?"


def test_errors_are_raised_not_rendered() -> None:
    with pytest.raises(EvaluationError, match="no such variable `gone`"):
        compile_template("a ${gone} b").render({})
    with pytest.raises(EvaluationError, match="no JSON value"):
        compile_template("${type(1)}").render({})


def test_only_values_are_escaped() -> None:
    rendered = compile_template("<b>${x}</b>").render({"x": "<i>"}, escape=html.escape)

    assert rendered == "<b>&lt;i&gt;</b>"


def test_reads_are_those_of_all_parts() -> None:
    assert compile_template("${a.b} ${c}").reads == {("a", "b"), ("c",)}


def test_cost_and_size_are_bounded() -> None:
    with pytest.raises(CostExceeded):
        compile_template("${xs.map(x, x)}").render({"xs": list(range(100))}, cost_max=50)
    with pytest.raises(EvaluationError, match="at most"):
        compile_template("${x}" * 20).render({"x": "a" * 100_000})
