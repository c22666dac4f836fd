"""The solver never disagrees with evaluation (SPEC 3.3)."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

from penstock.core.plan import ROOTS
from penstock.errors import EvaluationError, ExpressionError
from penstock.expr.compile import Environment, Expression, compile_expression
from penstock.expr.typecheck import DYN, type_of_schema
from penstock.verify.samples import accepts
from penstock.verify.solver import Impossible, Solution, Unknown, Wanted, has_outcome, solve
from penstock.verify.types import TaskType, Types, Values

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": -3, "maximum": 12},
        "m": {"type": "integer"},
        "x": {"type": "number"},
        "s": {"type": "string", "maxLength": 3},
        "e": {"enum": ["a", "b", 1]},
        "b": {"type": "boolean"},
        "z": {"type": ["integer", "null"]},
        "w": {"type": ["number", "null"]},
        "l": {"type": "array", "items": {"type": "integer"}, "maxItems": 6},
        "o": {
            "type": "object",
            "properties": {"k": {"type": "string"}, "v": {"$ref": "#/$defs/v"}},
            "required": ["k"],
            "additionalProperties": False,
        },
        "any": True,
    },
    "required": ["n", "s", "l"],
    "$defs": {"v": {"anyOf": [{"type": "integer", "minimum": 5}, {"type": "boolean"}]}},
}
OUTPUT = {"type": "object", "properties": {"ok": {"type": "boolean"}, "d": {"type": "number"}}}
ENVIRONMENT = Environment({**dict.fromkeys(ROOTS, DYN), "input": type_of_schema(SCHEMA)})
TYPES = Types(
    ENVIRONMENT,
    SCHEMA,
    {"t": TaskType(OUTPUT, ("COMPLETED", "SKIPPED"))},
    {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
)

small = st.integers(-4, 13)
numbers = st.one_of(small, st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, -(2**63)]))
reals = st.sampled_from([-1.5, 0.0, 0.1, 0.3, 2.5, 7.0, 1e300, 5e-324])
texts = st.sampled_from(["", "a", "ab", "abc", "b", "7", "A-1", "é"])
scalars = st.one_of(st.none(), st.booleans(), numbers, reals, texts)


def _fields(**parts: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return parts


inputs = st.fixed_dictionaries(
    {"n": st.integers(-3, 12), "s": st.sampled_from(["", "a", "ab", "abc"]), "l": st.lists(small, max_size=6)},
    optional=_fields(
        m=numbers,
        x=st.one_of(small, reals),
        e=st.sampled_from(["a", "b", 1]),
        b=st.booleans(),
        z=st.none() | small,
        w=st.none() | small | reals,
        o=st.fixed_dictionaries({"k": texts}, optional=_fields(v=st.integers(5, 8) | st.booleans())),
        any=st.one_of(scalars, st.lists(scalars, max_size=2), st.dictionaries(texts, scalars, max_size=2)),
    ),
)  # fmt: skip
outputs = st.fixed_dictionaries({}, optional=_fields(ok=st.booleans(), d=small | reals))


@st.composite
def worlds(draw: st.DrawFn) -> Values:
    done = draw(st.booleans())
    task = {
        "output": draw(outputs) if done else None,
        "status": "COMPLETED" if done else "SKIPPED",
        "attempts": draw(st.integers(0, 3)),
        "error": None,
    }
    data: dict[str, Any] = {"count": draw(numbers)}
    if draw(st.booleans()):
        data["other"] = draw(scalars)
    return Values(
        input=draw(inputs), has_input=True, data=data, has_data=True, tasks={"t": task},
        iteration=draw(st.integers(1, 4)),
    )  # fmt: skip


whole = st.sampled_from(
    ["input.n", "input.m", "input.z", "data.count", "iteration", "size(input.l)", "size(input.s)", "input.l[0]",
     "input.l[input.n]", "input.o.v", "1", "2", "-3", "10", "9223372036854775807", "tasks.t.attempts", "input.any",
     "data.other", "input.?m.orValue(4)", "int(input.x)", "size(input.l.filter(i, i > 2))", "input.any.a"]
)  # fmt: skip
double = st.sampled_from(
    ["input.x", "input.w", "0.3", "2.5", "0.0", "tasks.t.output.d", "double(input.n)", "input.any"]
)
text = st.sampled_from(
    ["input.s", "input.e", "input.o.k", "'a'", "''", "'abc'", "tasks.t.status", "input.any", "'COMPLETED'"]
)  # fmt: skip


def _extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("cel.bind(b, {}, b || {})".format, inner, inner),
    )


arithmetic = st.recursive(
    whole, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner), max_leaves=3
)  # fmt: skip
reckoned = st.recursive(
    double, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner), max_leaves=2
)  # fmt: skip
atoms = st.one_of(
    st.builds("{} {} {}".format, arithmetic, st.sampled_from(["<", "<=", "==", "!=", ">"]), arithmetic),
    st.builds("{} {} {}".format, reckoned, st.sampled_from(["<", ">=", "=="]), reckoned),
    st.builds("{} {} {}".format, whole, st.sampled_from(["<", ">=", "=="]), double),
    st.builds("{} {} {}".format, text, st.sampled_from(["==", "!=", "<"]), text),
    st.builds("{}.{}({})".format, text, st.sampled_from(["startsWith", "endsWith", "contains"]), text),
    st.builds("{}.matches({})".format, text, st.sampled_from(["'^a+$'", "'[ab]'", "'^.b|c$'", "'a{2}'", "'[0-9]'"])),
    st.builds("{} in input.l".format, whole),
    st.builds("{} in [1, 2, 3, 4, 5, 'a']".format, whole),
    st.builds("input.l.{}(i, i {} {})".format, st.sampled_from(["all", "exists", "exists_one"]), st.sampled_from("<>"), whole),
    st.sampled_from(
        ["has(input.x)", "has(input.o.v)", "has(tasks.t.output.ok)", "tasks.t.output.ok", "input.b", "input.o.v",
         "'x' in input.any", "input.l == [1]", "input.any == null", "tasks.t.output == null", "has(data.other)",
         "input.s.lowerAscii() == 'a'", "input.o == {'k': 'a'}", "input.z == null", "true", "input.x == input.n",
         "input.l.map(i, i + 1) == [2]", "type(input.any) == int"]
    ),
)  # fmt: skip
conditions = st.recursive(atoms, _extend, max_leaves=4)


PHASES = (
    Phase.explicit,
    Phase.reuse,
    Phase.generate,
)  # z3 makes shrinking slow, and cases are small


def compiled(text: str) -> Expression:
    try:
        return compile_expression(text, ENVIRONMENT)
    except ExpressionError:
        assume(False)
        raise


def outcome(expression: Expression, values: Values) -> Wanted:
    try:
        found = expression.evaluate(values.variables())
    except EvaluationError:
        return "error"
    return found if found is True or found is False else "error"


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(st.lists(conditions, min_size=1, max_size=2), worlds())
def test_what_evaluation_shows_is_never_impossible(texts: list[str], values: Values) -> None:
    assert accepts(SCHEMA, values.input), values.input
    asks = [(expression, outcome(expression, values)) for expression in map(compiled, texts)]

    answer = solve(asks, TYPES)

    match answer:
        case Impossible():
            raise AssertionError(
                f"{texts} on {values}: {[wanted for _, wanted in asks]} is possible"
            )
        case Unknown():
            event("unknown")
        case Solution():
            event("solution")
            assert all(
                has_outcome(expression, wanted, answer.values) for expression, wanted in asks
            )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(
    conditions, st.sampled_from([True, False, "error"]), st.lists(worlds(), min_size=8, max_size=8)
)
def test_an_outcome_that_is_impossible_is_never_seen(text: str, wanted: Wanted, tries: list[Values]) -> None:  # fmt: skip
    expression = compiled(text)

    answer = solve([(expression, wanted)], TYPES)

    event(type(answer).__name__)
    if isinstance(answer, Impossible):
        assert all(outcome(expression, values) != wanted for values in tries)
    elif isinstance(answer, Solution):
        assert accepts(SCHEMA, answer.input)
        assert outcome(expression, answer.values) == wanted
