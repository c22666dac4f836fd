"""Static checks with an environment, and types from JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ExpressionError
from penstock.expr.compile import compile_expression
from penstock.expr.typecheck import Environment, type_of_schema
from penstock.expr.types import (
    BOOL,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    NUMBER_OR_NULL,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    object_of,
)

INPUT = object_of(
    {
        "name": STRING,
        "total": DOUBLE,
        "count": INT,
        "vip": BOOL,
        "tags": list_of(STRING),
        "lines": list_of(object_of({"sku": STRING, "n": INT})),
        "extra": map_of(STRING, INT),
        "anything": DYN,
    }
)
ENV = Environment(
    {
        "input": INPUT,
        "tasks": object_of({"charge": object_of({"output": object_of({"id": STRING}), "status": STRING})}),
        "now": TIMESTAMP,
        "wait": DURATION,
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("input.name + 'x'", STRING),
        ("input.total > 100", BOOL),
        ("input.total * 1.5", DOUBLE),
        ("input.count + 1", INT),
        ("input.lines.map(l, l.n)", list_of(INT)),
        ("input.lines.filter(l, l.n > 1).size()", INT),
        ("input.lines[0].sku", STRING),
        ("input['name']", STRING),
        ("input.extra.map(k, k)", list_of(STRING)),
        ("input.extra.transformMap(k, v, v > 1)", map_of(STRING, BOOL)),
        ("input.anything.deep + 1", INT),
        ("input.anything", DYN),
        ("input.tags.join(',')", STRING),
        ("now + wait", TIMESTAMP),
        ("now - now", DURATION),
        ("input.vip ? 1 : 2", INT),
        ("input.vip ? 1 : 'a'", DYN),
        ("tasks.charge.output == null", BOOL),
        ("input.count == 1.0", BOOL),
        ("[1, 'a']", list_of(DYN)),
        ("input.?name", Type("optional", (STRING,))),
        ("input.?name.orValue('x')", STRING),
        ("math.greatest(1, 2)", INT),
        ("'x' in input.tags", BOOL),
        ("'x' in input", BOOL),
        ("type(1) == int", BOOL),
        ("{'a': 1}", map_of(STRING, INT)),
        ("input.tags == []", BOOL),
        ("input.extra == {}", BOOL),
        ("dyn(1) + dyn('a')", DYN),
        ("[]", list_of(DYN)),
        ("{}", map_of(DYN, DYN)),
        ("[[], [[]], [[[]]]]", list_of(list_of(list_of(list_of(DYN))))),
        ("[[[]], []]", list_of(list_of(list_of(DYN)))),
        ("[] + input.tags + []", list_of(STRING)),
        ("[dyn(1)] + [1]", list_of(DYN)),
        ("[].map(x, x)[0].foo", DYN),
        ("[optional.none(), optional.of(1)]", list_of(Type("optional", (INT,)))),
        ("[optional.of(1), optional.of(dyn(1))]", list_of(Type("optional", (DYN,)))),
        ("optional.none().orValue(5)", INT),
    ],
)
def test_the_type_of_the_result_is_known(text: str, type_: Type) -> None:
    assert compile_expression(text, ENV).type == type_


@pytest.mark.parametrize(
    ("text", "words", "marked", "hint"),
    [
        ("inptu.name", "no such variable `inptu`", "inptu", "did you mean `input`?"),
        ("input.nmae", "no such field `nmae`", "nmae", "did you mean `name`?"),
        ("tasks.chrge.output", "no such field `chrge`", "chrge", "did you mean `charge`?"),
        ("tasks['chrge'].output", "no such field `chrge`", "'chrge'", "did you mean `charge`?"),
        ("has(tasks.charge.outptu)", "no such field `outptu`", "has", "did you mean `output`?"),
        (
            "input.lines.all(l, l.skuu == 'x')",
            "no such field `skuu`",
            "skuu",
            "did you mean `sku`?",
        ),
        ("input.total + 1", "no such overload", "+", "1.0"),
        ("input.name + 1", "no such overload", "+", None),
        ("input.name > 1", "no such overload", ">", None),
        ("input.name == 1", "never equals", "==", None),
        ("input.name && true", "needs a bool", "name", None),
        ("input.name ? 1 : 2", "needs a bool", "name", None),
        ("!input.name", "needs a bool", "name", None),
        ("-input.name", "no such overload", "-", None),
        ("input.name.x", "string has no fields", "x", None),
        ("input.count[0]", "cannot be indexed", "[", None),
        ("input.tags['a']", "index is an int", "'a'", None),
        ("input.extra[1]", "no int keys", "1", None),
        ("input.count.map(x, x)", "needs a list or a map", "map", None),
        ("input.tags.all(t, t)", "needs a bool", "t)", None),
        ("1 in input.tags", "no such overload", "in input", None),
        ("input.name.startsWith(1)", "no such overload", "startsWith", None),
        (
            "input.name.startWith('a')",
            "no such function",
            "startWith",
            "did you mean `startsWith`?",
        ),
        ("startsWith('a', 'b')", "no such function", "startsWith", "write x.startsWith(...)"),
        ("input.name.int()", "no such function", "int", "write int(x)"),
        ("size(1)", "no such overload", "size", None),
        ("now + 1", "no such overload", "+", None),
        ("{1.5: 1}", "map key", "1.5", None),
        ("[?1]", "needs an optional", "1", None),
        ("input.name.optMap(x, x)", "needs an optional", "optMap", None),
        ("math.greatest('a', 'b')", "needs numbers", "greatest", None),
    ],
)
def test_what_cannot_be_right_is_refused_where_it_stands(
    text: str, words: str, marked: str, hint: str | None
) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, ENV)

    assert words in caught.value.message
    assert caught.value.position == text.index(marked)
    assert caught.value.text == text
    if hint is not None:
        assert caught.value.hint is not None
        assert hint in caught.value.hint


def test_without_an_environment_the_run_decides() -> None:
    assert compile_expression("whatever.is.there + 1").type == INT
    assert compile_expression("1 == 'a'").evaluate({}) is False


def test_an_environment_may_allow_unknown_variables() -> None:
    open_env = Environment({"input": INPUT}, allow_unknown=True)

    assert compile_expression("other.x", open_env).evaluate({"other": {"x": 1}}) == 1
    with pytest.raises(ExpressionError):
        compile_expression("input.nope", open_env)


def test_a_variable_hides_a_type_and_a_namespace() -> None:
    assert compile_expression("int + 1", Environment({"int": INT})).evaluate({"int": 4}) == 5
    env = Environment({"math": object_of({"pi": DOUBLE})})
    assert compile_expression("math.pi", env).evaluate({"math": {"pi": 3}}) == 3.0
    assert compile_expression("int").evaluate({"int": 4}) == 4


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ({"type": "integer"}, INT),
        ({"type": "number"}, DOUBLE),
        ({"type": "string", "format": "date-time"}, STRING),
        ({"type": "boolean"}, BOOL),
        ({"type": "null"}, NULL),
        (True, DYN),
        (False, DYN),
        ({}, DYN),
        (None, DYN),
        ({"type": "array", "items": {"type": "integer"}}, list_of(INT)),
        ({"type": "array"}, list_of(DYN)),
        ({"type": "object"}, map_of(STRING, DYN)),
        ({"type": "object", "additionalProperties": {"type": "number"}}, map_of(STRING, DOUBLE)),
        ({"type": ["string", "null"]}, DYN),
        ({"type": ["number", "null"]}, NUMBER_OR_NULL),
        ({"type": ["integer", "number"]}, DOUBLE),
        ({"enum": ["a", "b"]}, STRING),
        ({"enum": ["a", 1]}, DYN),
        ({"enum": [1, 2.5]}, DOUBLE),
        ({"type": "number", "enum": [1, 2]}, DOUBLE),
        ({"const": 5}, INT),
        ({"const": {"a": 1}}, DYN),
        ({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}, STRING),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, DYN),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, STRING),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, INT),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}, INT),
        ({"$ref": "#/$defs/gone"}, DYN),
        ({"$ref": "https://example.com/x"}, DYN),
        ({"$ref": "#"}, DYN),
    ],
)
def test_schemas_become_types(schema: Any, type_: Type) -> None:
    assert type_of_schema(schema) == type_


def test_an_object_knows_its_fields() -> None:
    found = type_of_schema(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "string"}}},
            "required": ["a"],
            "additionalProperties": False,
        }
    )  # fmt: skip

    assert found.fields == {"a": INT, "b": list_of(STRING)}
    assert found.required == {"a"}
    assert found.closed


def test_an_open_object_allows_other_fields() -> None:
    env = Environment({"x": type_of_schema({"properties": {"a": {"type": "integer"}}})})

    assert compile_expression("x.other", env).type == DYN
    with pytest.raises(ExpressionError):
        compile_expression("x.a + 'text'", env)


def test_a_schema_that_contains_itself_ends() -> None:
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}},
            }
        },
    }
    found = type_of_schema(schema)

    assert found.fields == {"next": DYN, "v": INT}


def test_a_schema_that_shares_its_parts_does_not_explode() -> None:
    defs: dict[str, Any] = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(30)
    }  # fmt: skip

    assert type_of_schema({"$ref": "#/$defs/d0", "$defs": defs}).fields is not None


def test_a_nullable_number_is_read_as_a_double() -> None:
    env = Environment({"x": type_of_schema({"type": ["number", "null"]})})
    expression = compile_expression("x == null ? 0.0 : x / 2.0", env)

    assert expression.evaluate({"x": 5}) == 2.5
    assert expression.evaluate({"x": None}) == 0.0
