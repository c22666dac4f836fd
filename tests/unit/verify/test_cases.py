"""Which outcomes of conditions go together."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.plan import Guard
from penstock.verify.cases import ABSENT, Cases, Outcome, assembled

OBJECT = {"type": "object", "required": ["n", "k"], "properties": {"n": {"type": "integer"}, "k": {"enum": ["a", "b"]}}}  # fmt: skip


def possible(asks: dict[str, Outcome], schemas: dict[tuple[str, ...], Any] | None = None) -> bool:
    """Whether the last comes to that after the others have come to theirs."""
    guards = {text: Guard(text, None) for text in asks}
    *before, last = asks
    facts = {text: (guards[text], asks[text]) for text in before}
    return Cases(schemas or {}).possible(facts, guards[last], asks[last])


@pytest.mark.parametrize(
    ("asks", "so"),
    [
        ({"input.n > 3": True, "input.n <= 3": True}, False),
        ({"input.n > 3": False, "input.n <= 3": False}, False),
        ({"input.n > 3": True, "input.n > 5": False}, True),
        ({"input.n > 3": False, "input.n > 5": True}, False),
        ({"input.n > 3": True, "input.m <= 3": True}, True),
        ({"input.ok": True, "!input.ok": True}, False),
        ({"input.k == 'a'": True, "input.k in ['b', 'c']": True}, False),
        ({"input.k == 'a'": False, "input.k in ['b', 'c']": False}, True),
        ({"has(input.x)": False, "input.x == 1": True}, False),
        ({"iteration < 3": False, "iteration >= 3": False}, False),
        ({"input.n % 2 == 0": True, "input.n % 2 == 1": True}, True),
        ({"input.n > 3 && input.n < 2": True}, False),
    ],
)
def test_what_excludes_itself_is_known(asks: dict[str, Outcome], so: bool) -> None:
    assert possible(asks) is so


def test_schemas_rule_values_out() -> None:
    schemas = {("input",): OBJECT}
    neither: dict[str, Outcome] = {"input.k == 'a'": False, "input.k == 'b'": False}
    assert possible(neither)
    assert not possible(neither, schemas)
    assert possible({"input.n > 3": "error"})
    assert not possible({"input.n > 3": "error"}, schemas)
    between: dict[str, Outcome] = {"input.n > 3": True, "input.n < 4": True}
    assert possible(between)
    assert not possible(between, schemas)


def test_values_are_found() -> None:
    first, second = Guard("input.n > 3", None), Guard("tasks.a.output.ok", None)
    values = Cases({}).values([(first, True), (second, False)])
    assert values is not None
    tree = assembled(values)
    assert tree["input"]["n"] > 3
    assert tree["tasks"]["a"]["output"]["ok"] is False
    assert Cases({}).values([(first, True), (Guard("input.n < 2", None), True)]) is None
    assert assembled({("input", "x"): ABSENT}) == {"input": {}}


RARE: list[tuple[dict[str, Any], str]] = [
    # a schema, and a condition that holds for few of the values it allows
    ({"type": "string", "pattern": "^[A-Z]{3}$"}, "input.v != 'ABC'"),
    ({"type": "string", "minLength": 5}, "input.v > 'abc'"),
    ({"type": "string", "format": "date"}, "input.v > '2020-01-01'"),
    ({"type": "string"}, "input.v > 'abc' && input.v < 'abc!'"),
    ({"type": "integer", "minimum": 5, "maximum": 20, "multipleOf": 7}, "input.v > 8"),
    ({"type": "integer", "exclusiveMinimum": 100, "maximum": 200}, "input.v != 200"),
    ({"type": "integer", "not": {"enum": [3, 4, 5, 6, 7]}}, "input.v > 5"),
    ({"type": "array", "items": {"type": "string"}}, "'red' in input.v"),
    ({"type": "array", "items": {"type": "integer"}}, "input.v != []"),
    ({"type": "object"}, "'k' in input.v"),
]


@pytest.mark.parametrize(("schema", "condition"), RARE)
def test_what_holds_for_a_value_that_was_not_tried_is_not_impossible(
    schema: dict[str, Any], condition: str
) -> None:
    whole = {"type": "object", "required": ["v"], "properties": {"v": schema}}

    assert Cases({("input",): whole}).possible({}, Guard(condition, None), True)


def test_has_of_what_may_not_be_an_object_may_fail() -> None:
    part = {"type": "object", "properties": {"b": {"type": "integer"}}}
    whole: dict[str, Any] = {"type": "object", "properties": {"a": part}}
    asked = Guard("has(input.a.b)", None)

    assert Cases({}).possible({}, asked, "error")
    assert Cases({("input",): whole}).possible({}, asked, "error")
    assert not Cases({("input",): {**whole, "required": ["a"]}}).possible({}, asked, "error")
