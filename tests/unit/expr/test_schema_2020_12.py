"""JSON Schema 2020-12, keyword by keyword, with `$ref`, `$id`, formats, and messages that say where (SPEC 14)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ExpressionError
from penstock.expr.schema import compile_schema

TREE = {
    "$id": "https://example.org/tree",
    "$dynamicAnchor": "node",
    "type": "object",
    "properties": {"value": {"type": "integer"}, "below": {"type": "array", "items": {"$dynamicRef": "#node"}}},
}  # fmt: skip
EMBEDDED = {
    "$id": "https://example.org/order.json",
    "properties": {"line": {"$ref": "line.json"}, "total": {"$ref": "money.json#/$defs/cents"}},
    "$defs": {
        "line": {"$id": "line.json", "type": "object", "required": ["sku"], "properties": {"price": {"$ref": "#/$defs/p"}},
                 "$defs": {"p": {"minimum": 0}}},
        "money": {"$id": "money.json", "$defs": {"cents": {"type": "integer"}}},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (True, [1, None], []),
        (False, [], [1, None]),
        ({"type": "integer"}, [1, 1.0, -(2**70)], [1.5, "1", True, None]),
        ({"type": ["string", "null"]}, ["", None], [0, []]),
        ({"enum": [1, {"a": [True]}]}, [1, 1.0, {"a": [True]}], [True, {"a": [1]}]),
        ({"const": 0}, [0, 0.0], [False, None]),
        ({"multipleOf": 0.01}, [0.07, 3], [0.075]),
        ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9], [0.9, 3]),
        ({"exclusiveMinimum": 1, "maximum": 3}, [1.1, 3], [1, 3.1]),
        ({"$comment": "c", "title": "t", "description": "d", "default": 1, "examples": [1], "deprecated": True, "readOnly": True, "writeOnly": True}, [1, "a"], []),
        ({"$vocabulary": {}, "contentSchema": {"type": "integer"}}, ["a"], []),
        ({"minLength": 2, "maxLength": 2}, ["ab", "😀😀"], ["a", "abc"]),
        ({"pattern": "^[a-z]+$"}, ["abc", 7], ["", "Abc"]),
        ({"pattern": "^(?=.*[0-9]).{3}$"}, ["a1b"], ["abc"]),
        ({"pattern": "^\\p{L}+$"}, ["äß"], ["a1"]),
        ({"required": ["a"], "minProperties": 2, "maxProperties": 2}, [{"a": 1, "b": 2}], [{"a": 1}, {"b": 1, "c": 1}]),
        ({"properties": {"a": {"type": "null"}}, "additionalProperties": False}, [{"a": None}, {}], [{"b": 1}]),
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
         [{"x1": 1, "y": "s"}], [{"x1": "s"}, {"y": 1}]),
        ({"propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
        ({"dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}, {}], [{"a": 1}]),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{"b": 1}], [{"a": 1}]),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [[1, "a"], []], [["a"], [1, 2]]),
        ({"items": False}, [[]], [[1]]),
        ({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}, [[1, 1]], [[1], [1, 1, 1, 1]]),
        ({"uniqueItems": True, "minItems": 1, "maxItems": 3}, [[1, True, "1"]], [[], [1, 1.0], [1, 2, 3, 4]]),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2], [0, 3]),
        ({"anyOf": [{"type": "string"}, {"minimum": 2}]}, ["a", 2], [1]),
        ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, [2, 3], [6, 1]),
        ({"not": {"type": "string"}}, [1], ["a"]),
        ({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"minimum": 1}}, ["a", 1], ["", 0]),
        ({"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
        ({"prefixItems": [True], "unevaluatedItems": False}, [[1]], [[1, 2]]),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}, [1], ["1"]),
        ({"$ref": "#/$defs/a%25b", "$defs": {"a%b": {"type": "integer"}}}, [1], ["1"]),
        ({"$ref": "#/$defs/n", "maximum": 3, "$defs": {"n": {"type": "integer"}}}, [3], [4, "a"]),
        ({"$ref": "#name", "$defs": {"n": {"$anchor": "name", "type": "integer"}}}, [1], ["1"]),
        ({"properties": {"next": {"$ref": "#"}}, "required": ["v"]}, [{"v": 1, "next": {"v": 2}}], [{"v": 1, "next": {}}]),
        (EMBEDDED, [{"line": {"sku": "a", "price": 1}, "total": 5}], [{"line": {}}, {"total": "5"}, {"line": {"sku": "a", "price": -1}}]),
        (TREE, [{"below": [{"value": 1}]}], [{"below": [{"value": "1"}]}, {"below": [1]}]),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, [{"type": "object"}], [{"type": "no"}]),
        ({"contentMediaType": "application/json", "contentEncoding": "base64"}, ["{not"], []),  # says, does not check
        ({"format": "no-such-format"}, ["anything"], []),  # as the specification wants it
    ],
)  # fmt: skip
def test_a_keyword(schema: Any, good: list[Any], bad: list[Any]) -> None:
    compiled = compile_schema(schema)

    assert [value for value in good if compiled.problems(value)] == []
    assert [value for value in bad if not compiled.problems(value)] == []


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2026-01-31T23:59:60Z", "2026-01-31 23:59"),
        ("date", "2028-02-29", "2026-02-29"),
        ("time", "12:00:00+01:00", "12:00:00"),
        ("duration", "P1DT12H", "1D"),
        ("email", "a@example.org", "a@"),
        ("idn-email", "ä@example.org", "ä"),
        ("hostname", "example.org", "-a.org"),
        ("idn-hostname", "ä.org", "-ä"),
        ("ipv4", "127.0.0.1", "127.0.0.256"),
        ("ipv6", "fe80::1", "fe80:::1"),
        ("uri", "https://example.org/a?b#c", "/a"),
        ("uri-reference", "/a?b", "\\a b"),
        ("iri", "https://example.org/ä", "ä"),
        ("iri-reference", "/ä", "\\ä b"),
        ("uri-template", "/a/{b}", "/a/{b"),
        ("json-pointer", "/a~1b", "a"),
        ("relative-json-pointer", "1/a", "/a"),
        ("regex", "^a+$", "a("),
        ("uuid", "00000000-0000-4000-8000-000000000000", "00000000"),
    ],
)
def test_a_format_is_checked(name: str, good: str, bad: str) -> None:
    compiled = compile_schema({"format": name})

    assert compiled.problems(good) == ""
    assert compiled.problems(bad)
    assert compiled.problems(7) == ""  # formats speak of texts only


def test_messages_say_where() -> None:
    lines = {"items": {"type": "object", "properties": {"sku": {"type": "string"}}}}
    compiled = compile_schema({"properties": {"lines": lines, "bill to": {"type": "object"}}})

    found = compiled.problems({"lines": [{"sku": "a"}, {"sku": 7}], "bill to": 1})

    assert '$.lines[1].sku: 7 is not of type "string"' in found
    assert "$['bill to']: 1 is not of type \"object\"" in found


def test_a_message_stays_short_however_large_the_value() -> None:
    found = compile_schema({"type": "string"}).problems([["x" * 100_000]])

    assert found.startswith("$: [[")
    assert len(found) < 400


def test_what_is_wrong_in_several_ways_is_said_once() -> None:
    found = compile_schema({"$ref": "https://json-schema.org/draft/2020-12/schema"}).problems(1)

    assert found == '$: 1 is not of types "boolean", "object"'


def test_a_dynamic_reference_leads_to_the_outermost() -> None:
    lists = {
        "$id": "list",
        "$defs": {"any": {"$dynamicAnchor": "item"}},
        "items": {"$dynamicRef": "#item"},
    }
    numbers = {"$id": "https://example.org/numbers", "$ref": "list", "$defs": {"of": {"$dynamicAnchor": "item", "type": "number"}, "list": lists}}  # fmt: skip
    compiled = compile_schema(numbers)

    assert compiled.accepts([1, 2.5])
    assert compiled.problems([1, "a"]) == '$[1]: "a" is not of type "number"'


def test_of_a_large_value_the_first_problem_is_said() -> None:
    found = compile_schema({"items": {"type": "string"}}).problems(list(range(100_000)))

    assert found == '$[0]: 0 is not of type "string"'


@pytest.mark.parametrize(
    ("schema", "circle"),
    [
        ({"$ref": "#"}, "# -> #"),
        ({"allOf": [{"$ref": "#"}]}, "# -> #/allOf/0 -> #"),
        ({"$anchor": "me", "$ref": "#me"}, "# -> #"),
        ({"$dynamicAnchor": "me", "$dynamicRef": "#me"}, "# -> #"),
        ({"$ref": "#x", "$defs": {"a": {"$anchor": "x", "not": {"$ref": "#x"}}}}, "#/$defs/a -> #/$defs/a/not -> #/$defs/a"),
        ({"properties": {"n": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}},
         "#/$defs/a -> #/$defs/b -> #/$defs/b/not -> #/$defs/a"),
    ],
)  # fmt: skip
def test_a_schema_that_only_refers_to_itself_is_refused(schema: Any, circle: str) -> None:
    with pytest.raises(ExpressionError, match="refers to itself without end") as caught:
        compile_schema(schema)

    _, _, round_trip = caught.value.message.rpartition(": ")
    assert set(round_trip.split(" -> ")) == set(circle.split(" -> "))


@pytest.mark.parametrize("address", ["https://example.org/x.json", "x.json", "file:///x.json"])
def test_nothing_is_fetched(address: str) -> None:
    with pytest.raises(ExpressionError, match="not a JSON Schema"):
        compile_schema({"$ref": address})


def test_a_pattern_that_explodes_is_given_up() -> None:
    linear = compile_schema({"pattern": "^(a+)+$"})
    assert linear.problems("a" * 100_000 + "b")

    backtracking = compile_schema({"pattern": "^(?=(a|a)+$)(a|a|b)*\\1c$"})
    assert "Max limit for backtracking" in backtracking.problems("a" * 40 + "b")


def test_a_schema_that_leads_to_its_parts_by_ever_more_ways_is_refused() -> None:
    def doubling(depth: int) -> dict[str, Any]:
        defs: dict[str, Any] = {f"x{depth}": {"type": "integer"}}
        for i in range(depth):
            defs[f"x{i}"] = {
                "anyOf": [{"$ref": f"#/$defs/x{i + 1}"}, {"$ref": f"#/$defs/x{i + 1}"}]
            }
        return {"$ref": "#/$defs/x0", "$defs": defs}

    assert compile_schema(doubling(8)).problems("a")
    with pytest.raises(ExpressionError, match="more than 20000 times") as caught:
        compile_schema(doubling(40))
    assert caught.value.hint


def test_a_schema_of_the_same_content_is_compiled_once() -> None:
    properties = {f"p{i}": {"type": "integer"} for i in range(2_000)}
    for schema in ({"type": "integer"}, {"type": "object", "properties": properties}):
        assert compile_schema(schema) is compile_schema(dict(schema))

    assert compile_schema({"const": 1}) is not compile_schema({"const": 1.0})
    assert not compile_schema({"const": 1}).accepts(2)
    assert compile_schema({"const": 2}).accepts(2)
