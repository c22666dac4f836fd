"""For what schemas commonly say a value is found that they accept (SPEC 3)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dsl.load import load
from penstock.verify.samples import accepts, sample
from penstock.verify.texts import texts
from penstock.verify.verification import verify

SCHEMAS: list[Any] = [
    {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$"},
    {"type": "string", "pattern": r"^\+?[1-9]\d{7,14}$"},
    {"type": "string", "pattern": r"^(?:EUR|USD) [^a]\w+(-x){2,}$"},
    {"type": "string", "pattern": r"^[a-z]+$", "minLength": 30},
    {"pattern": r"^x\.y$", "type": "string"},
    {"type": "string", "minLength": 50},
    {"type": "string", "format": "email"},
    {"type": "array", "minItems": 10, "uniqueItems": True, "items": {"type": "integer"}},
    {"type": "array", "minItems": 3, "uniqueItems": True, "items": {"type": "string"}},
    {"type": "array", "minItems": 2, "uniqueItems": True, "items": {"enum": ["x", "y"]}},
    {"not": {"type": ["string", "null", "integer"]}},
    {"type": "integer", "not": {"const": 0}},
    {"type": "string", "not": {"enum": ["", "a"]}},
    {"type": "array", "contains": {"const": 7}},
    {"type": "array", "contains": {"const": 7}, "minContains": 2, "minItems": 4},
    {"type": "integer", "multipleOf": 7, "exclusiveMinimum": 0},
    {"type": "object", "allOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"type": "object", "minProperties": 2, "propertyNames": {"pattern": "^x"}},
    {"type": "object", "minProperties": 3},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False, "minItems": 2},
    {"type": "object", "required": ["a"], "dependentRequired": {"a": ["b"], "b": ["c"]}},
    {"type": "object", "required": ["a"], "properties": {"a": {}}, "unevaluatedProperties": False},
    {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": ["card", "cash"]}},
        "if": {"properties": {"kind": {"const": "card"}}},
        "then": {"required": ["number"], "properties": {"number": {"type": "string"}}},
    },
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_a_sample_is_accepted(schema: Any) -> None:
    assert accepts(schema, sample(schema))
    whole = {"type": "object", "required": ["k"], "properties": {"k": schema}}
    assert accepts(whole, sample(whole))


def test_texts_of_what_cannot_be_read_are_none() -> None:
    assert list(texts(r"\p{Letter}")) == []
    assert list(texts("(")) == []
    assert all(len(text) <= 2_000 for text in texts("(a{1000}){1000}"))


def test_an_input_with_a_pattern_is_found() -> None:
    found = verify(
        load("""\
id: q
inputSchema: {type: object, required: [sku], properties: {sku: {type: string, pattern: '^[A-Z]{2}[0-9]{4}$'}}}
tasks:
  a: {do: a}
""")
    )
    assert not found.findings


HARD = """\
id: q
inputSchema: {type: object, required: [sku], properties: {sku: {type: string, pattern: '^(?=b)[a-c]x$'%s}}}
tasks:
  a: {do: a}
"""


def test_where_no_input_is_found_that_is_said_and_an_example_helps() -> None:
    found = verify(load(HARD % "")).findings
    assert found
    for finding in found:
        assert "no input was found that the `inputSchema` accepts" in finding.message
        assert "`examples`" in (finding.hint or "")
    assert not verify(load(HARD % ", examples: [bx]")).findings
