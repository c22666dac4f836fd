"""Conditions in a language that is not CEL (SPEC 2.1): what it sees, and what its faults become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.errors import CostExceeded, EvaluationError, ExpressionError
from penstock.expr.compile import Environment, compile_expression
from penstock.expr.language import TEXT_CHARACTERS_MAX, Language, Program, compile_foreign
from penstock.expr.types import DYN
from penstock.verify.solver import Impossible, Solution, Solver, Unknown
from penstock.verify.types import Types


class Given(Language):
    """Makes the program that it was given, whatever the text."""

    def __init__(self, program: Any) -> None:
        self._program = program

    def compile(self, text: str) -> Program:
        if isinstance(self._program, Exception):
            raise self._program
        return self._program


def made(reads: list[Any], evaluate: Callable[[Any], Any], constants: tuple[Any, ...] = ()) -> Any:
    return compile_foreign("odd", Given(Program(reads, evaluate, constants)), "a text")


def test_it_sees_what_it_said_it_reads_and_nothing_else() -> None:
    seen: list[Any] = []
    found = made(["input.a", ("data", "x.y"), "input.gone.deeper", "now"], lambda v: seen.append(v))

    found.evaluate(
        {
            "input": {"a": [1], "b": 2},
            "data": {"x.y": None, "z": 3},
            "now": datetime(2026, 1, 2, tzinfo=UTC),
            "run": {"id": "r"},
        }
    )

    assert seen == [{"input": {"a": [1]}, "data": {"x.y": None}, "now": "2026-01-02T00:00:00Z"}]
    assert found.reads == {("input", "a"), ("data", "x.y"), ("input", "gone", "deeper"), ("now",)}
    assert found.text == "odd: a text"


def test_it_cannot_change_what_it_is_given() -> None:
    values = {"input": {"a": [1]}}

    def change(given: Mapping[str, Any]) -> bool:
        given["input"]["a"].append(2)
        return True

    made(["input", "input.a"], change).evaluate(values)

    assert values == {"input": {"a": [1]}}


def test_what_it_raises_is_a_failed_expression() -> None:
    def fail(values: Mapping[str, Any]) -> bool:
        raise KeyError("sku")

    with pytest.raises(EvaluationError, match=r"KeyError: 'sku' \(in `odd: a text`\)"):
        made([], fail).evaluate({})


def test_what_it_reads_is_bounded() -> None:
    with pytest.raises(CostExceeded):
        made(["input"], bool).evaluate({"input": list(range(2_000))}, cost_max=100)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (ValueError("at sea"), "`odd` cannot read this: ValueError: at sea"),
        (None, "made None of this"),
        (Program([()], bool), "is no path"),
        (Program(["a..b"], bool), "is no path"),
        (Program([7], bool), "is no path"),  # type: ignore[list-item]
        (Program(["tasks"], bool), "by the id of a task"),
        (Program([f"data.a{n}" for n in range(200)], bool), "more than 100"),
        (Program(7, bool), "does not say what it reads"),  # type: ignore[arg-type]
    ],
)
def test_a_language_that_goes_wrong_is_named(program: Any, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        compile_foreign("odd", Given(program), "a text")


def test_an_error_has_its_column_and_one_outside_of_the_text_has_none() -> None:
    for position, expected in ((2, 2), (-1, 0), (99, 0)):
        with pytest.raises(ExpressionError) as caught:
            compile_foreign("odd", Given(ExpressionError("no", position=position)), "a text")
        assert (caught.value.position, caught.value.text) == (expected, "a text")
    with pytest.raises(ExpressionError, match="longer than"):
        compile_foreign("odd", Given(None), "x" * (TEXT_CHARACTERS_MAX + 1))


def test_the_solver_says_that_it_does_not_read_it_and_tries_values() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    types = Types(Environment({"input": DYN}), schema)
    above = made(["input.n"], lambda values: values["input"]["n"] > 41, (41,))
    never = made(["input.n"], lambda values: False)
    solver = Solver()

    found = solver.solve([(above, True)], types)
    assert isinstance(found, Solution)
    assert found.input["n"] > 41
    unknown = solver.solve([(never, True)], types)
    assert isinstance(unknown, Unknown)
    assert unknown.reason == "the solver does not read the language `odd`"
    no = compile_expression("input.n < 1 && input.n > 1")
    assert isinstance(solver.solve([(above, True), (no, True)], types), Impossible)
