"""What the solver answers, and what it needs to be loaded."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from penstock.core.plan import ROOTS
from penstock.expr.compile import Environment, compile_expression
from penstock.expr.typecheck import DYN, type_of_schema
from penstock.verify import solver
from penstock.verify.solver import Impossible, Solution, Unknown, Wanted, solve
from penstock.verify.types import TaskType, Types

ORDER = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0},
        "x": {"type": "number"},
        "s": {"enum": ["a", "b"]},
        "t": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"},
        "l": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["n", "s", "t", "mail"],
}
DONE = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def ask(*asks: tuple[str, Wanted], schema: Any = ORDER, **types: Any) -> solver.Answer:
    environment = Environment({**dict.fromkeys(ROOTS, DYN), "input": type_of_schema(schema)})
    tasks = {"a": TaskType(DONE, ("COMPLETED",)), "b": TaskType(DONE, ("COMPLETED", "SKIPPED"))}
    known = Types(environment, schema, tasks, **types)
    return solve([(compile_expression(text, environment), wanted) for text, wanted in asks], known)


@pytest.mark.parametrize(
    "asks",
    [
        [("input.n < 0", True)],
        [("input.n > 5", "error")],
        [("input.n > 5", False), ("input.n < 6", False)],
        [("input.n + 1 > input.n", False)],
        [("input.n / 2 * 2 + input.n % 2 == input.n", False)],
        [("input.s == 'a'", False), ("input.s == 'b'", False)],
        [("input.t.matches('^[a-z]')", True)],
        [("size(input.t) < 5", True)],
        [("tasks.a.output.ok", "error")],
        [("tasks.b.status == 'COMPLETED' && tasks.b.output.ok", "error")],
        [("has(input.x) && input.x > 2.0", "error")],
        [("input.?x.orValue(3.0) > 2.0", "error")],
        [("!has(input.x) || input.x <= 2.0", False), ("!has(input.x) || input.x > 2.0", False)],
        [("input.t.lowerAscii() == 'abc-1'", True), ("input.t.lowerAscii() == 'abc-1'", False)],
        [("now - run.start > duration('1h')", True), ("now - run.start <= duration('1h')", True)],
        [("input.n in [1, 2, 3, 4, 5, 6, 7]", True), ("input.n in [8]", True)],
        [("input.l.all(i, i > 3)", True), ("input.l[0] < 2", True)],
        [("iteration > 0", False)],
        [("true || input.nothing", "error")],
    ],
)
def test_impossible(asks: list[tuple[str, Wanted]]) -> None:
    assert isinstance(ask(*asks), Impossible)


@pytest.mark.parametrize(
    "asks",
    [
        [("input.n > 5", True)],
        [("input.x > 5.0", "error")],
        [("input.n + 1 > input.n", "error")],
        [("input.t.startsWith('ABC')", True), ("input.t.endsWith('7')", True)],
        [("tasks.a.output.ok", False)],
        [("tasks.b.output.ok", "error")],
        [("input.l.all(i, i > 3)", True), ("size(input.l) > 2", True)],
        [("input.l[2] > 3", "error"), ("has(input.l)", True)],
        [("data.missing > 3", "error")],
        [("input.x * 2.0 > 10.0", True)],
        [("input.n % 3 == 1", True), ("input.n > 100", True)],
        [("input.n in [8, 9, 10, 11, 12, 13]", True), ("input.n > 12", True)],
        [("iteration == 7", True)],
        [("input.n", "value"), ("input.n == 4", True)],
        [("1 / (input.n - 3) > 0", "error")],
    ],
)
def test_solved(asks: list[tuple[str, Wanted]]) -> None:
    answer = ask(*asks)

    assert isinstance(answer, Solution), answer
    assert {"n", "s", "t", "mail"} <= answer.input.keys()


def test_what_cannot_be_said_is_named() -> None:
    answer = ask(("input.t.lowerAscii() == 'abc-1'", True))

    assert answer == Unknown("`lowerAscii()`")


def test_doubles_round_so_what_holds_for_real_numbers_only_is_not_impossible() -> None:
    answer = ask(("0.1 + 0.2 == 0.3", False))
    assert isinstance(answer, Solution)

    answer = ask(("input.x + 0.1 - 0.1 == input.x", False), ("has(input.x)", True))
    assert not isinstance(answer, Impossible)


@pytest.mark.parametrize(
    ("schema", "asks"),
    [
        ({"oneOf": [{"const": 1}, {"const": "b"}]}, [("input == 1", False), ("input == 'b'", False)]),
        ({"type": "integer", "not": {"minimum": 5}}, [("input >= 5", True)]),
        (
            {
                "type": "object",
                "properties": {"kind": {"enum": ["card", "cash"]}, "card": {"type": "string"}},
                "required": ["kind"],
                "if": {"properties": {"kind": {"const": "card"}}},
                "then": {"required": ["card"]},
            },
            [("input.kind == 'card' && input.card == ''", "error")],
        ),
        (
            {"$defs": {"n": {"maximum": 3}}, "allOf": [{"type": "integer"}, {"$ref": "#/$defs/n"}]},
            [("input > 3", True)],
        ),
        ({"type": "object", "additionalProperties": False}, [("'a' in input", True)]),
        ({"type": "array", "maxItems": 2}, [("size(input) > 2", True)]),
        ({"type": "array", "items": {"type": "integer", "minimum": 1}}, [("0 in input", True), ("size(input) < 5", True)]),
    ],
)  # fmt: skip
def test_schemas_say_what_is_impossible(schema: Any, asks: list[tuple[str, Wanted]]) -> None:
    assert isinstance(ask(*asks, schema=schema), Impossible)


@pytest.mark.parametrize(
    ("schema", "asks"),
    [
        ({"type": "object", "properties": {"a": False}}, [("has(input.a)", False)]),
        ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"next": {"$ref": "#/$defs/t"}}}}},
         [("has(input.next.next.next)", True)]),
        ({"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}, "n": {"type": "integer"}},
          "required": ["at", "n"]}, [("input.n > 3", True)]),
        ({"type": "object", "minProperties": 2, "properties": {"n": {"type": "integer"}, "m": True}, "required": ["m"]},
         [("input.n > 3", True)]),
        (True, [("input.a.b[0].c == 'd'", True)]),
        (None, [("input == null", False)]),
    ],
)  # fmt: skip
def test_schemas_are_met_by_solutions(schema: Any, asks: list[tuple[str, Wanted]]) -> None:
    assert isinstance(ask(*asks, schema=schema), Solution)


def test_without_z3_a_search_may_still_find_a_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "available", lambda: False)

    assert isinstance(ask(("input.n > 5", True), ("tasks.a.output.ok", False)), Solution)
    assert isinstance(ask(("input.x > 1.0", "error")), Solution)
    answer = ask(("input.n < 0", True))
    assert answer == Unknown("the solver z3 is not installed", "pip install 'penstock[verify]'")


def test_a_question_has_a_budget() -> None:
    text = " && ".join(f"input.n * input.m * {i} % 7919 == {i * 7 % 7919}" for i in range(2, 9))

    answer = ask((f"{text} && input.n > 1000000 && input.m > 1000000", True), schema=True)

    assert isinstance(answer, Solution | Unknown)


def test_importing_penstock_does_not_import_the_solver() -> None:
    code = (
        "import sys, penstock, penstock.wiring, penstock.cli.main, penstock.verify.solver;"
        "sys.exit(any(name.split('.')[0] == 'z3' for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    "part",
    [True, {"$ref": "#/$defs/node"}],
    ids=["untyped", "of-itself"],
)
def test_values_that_may_be_nested_without_end_are_compared(part: Any) -> None:
    node = {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}}  # fmt: skip
    schema = {
        "$defs": {"node": node}, "type": "object", "required": ["a", "b"], "properties": {"a": part, "b": part},
    }  # fmt: skip

    assert isinstance(ask(("input.a == input.b", True), schema=schema), Solution | Unknown)
    assert isinstance(ask(("input.a == input.a", False), schema=schema), Impossible | Unknown)
