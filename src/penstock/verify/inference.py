"""Inference: a JSON Schema that whatever an expression gives will fit, from the schemas of what it reads.

None is a value of which nothing is known, False one that never comes to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from penstock.expr import tree as t
from penstock.expr.compile import Expression
from penstock.verify.samples import resolve
from penstock.verify.substitution import Read, plain_path

DEPTH_MAX = 40
PARTS_MAX = 8
"""Alternatives of one schema; more are one of their types."""
_RELATIONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_CALLS = {
    "size": "integer", "int": "integer", "double": "number", "string": "string", "bool": "boolean",
    "startsWith": "boolean", "endsWith": "boolean", "contains": "boolean", "matches": "boolean",
    "lowerAscii": "string", "upperAscii": "string", "trim": "string",
}  # fmt: skip
_STATIC = {
    "bool": "boolean", "int": "integer", "uint": "integer", "double": "number", "string": "string", "null": "null",
    "list": "array", "map": "object", "timestamp": "string", "duration": "string", "bytes": "string",
}  # fmt: skip

Known = Callable[[Read], Any]
"""The schema of what is at a path."""


def inferred(expression: Expression, known: Known) -> Any:
    """What it gives."""
    found = _inferred(expression.tree, known, 0)
    if found is None and expression.type.name in _STATIC:
        return {"type": _STATIC[expression.type.name]}
    return found


def _inferred(node: t.Node, known: Known, depth: int) -> Any:
    if depth > DEPTH_MAX:
        return None

    def of(part: t.Node) -> Any:
        return _inferred(part, known, depth + 1)

    match node:
        case t.Literal():
            return {"type": "string"} if isinstance(node.value, bytes) else {"const": node.value}
        case t.Logic() | t.Has() | t.Unary(operator="!"):
            return {"type": "boolean"}
        case t.Unary():
            return _number(of(node.operand))
        case t.Binary():
            if node.operator in _RELATIONS:
                return {"type": "boolean"}
            return _reckoned(node.operator, of(node.left), of(node.right))
        case t.Conditional():
            return either([of(node.then), of(node.otherwise)])
        case t.ListLiteral():
            whole = not any(item.optional for item in node.items)
            return _array([of(item.value) for item in node.items], whole=whole)
        case t.MapLiteral():
            return _object(node, of)
        case t.Comprehension(kind="all" | "exists" | "existsOne"):
            return {"type": "boolean"}
        case t.Call():
            found = _CALLS.get(node.function)
            return None if found is None else {"type": found}
        case t.Index(optional=False, key=t.Literal(value=int())):
            return items_of(of(node.operand))
        case _:
            path = plain_path(node)
            return None if path is None else known(path)


def _array(items: Sequence[Any], *, whole: bool) -> dict[str, Any]:
    """A list of such; `whole`: of just as many."""
    found: dict[str, Any] = {"type": "array"}
    one = either(items)
    if one is not None and one is not False:
        found["items"] = one
    if whole:
        found |= {"minItems": len(items), "maxItems": len(items)}
    return found


def _object(node: t.MapLiteral, of: Callable[[t.Node], Any]) -> Any:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for entry in node.entries:
        if not isinstance(entry.key, t.Literal) or not isinstance(entry.key.value, str):
            return {"type": "object"}
        found = of(entry.value)
        properties[entry.key.value] = True if found is None or entry.optional else found
        if not entry.optional:
            required.append(entry.key.value)
    return {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False,
    }  # fmt: skip


def _reckoned(operator: str, left: Any, right: Any) -> Any:
    if left is False or right is False:
        return False
    have, other = kinds(left), kinds(right)
    if have is None or other is None:
        return None
    if have | other <= {"integer"}:
        return {"type": "integer"}
    if have | other <= {"integer", "number"}:
        return {"type": "number"}
    if operator == "+" and have == other and have in ({"string"}, {"array"}):
        return {"type": next(iter(have))}
    return None


def _number(schema: Any) -> Any:
    have = kinds(schema)
    if have is None or not have <= {"integer", "number"}:
        return schema if schema is False else None
    return {"type": "integer" if have <= {"integer"} else "number"}


def kinds(schema: Any) -> set[str] | None:
    """JSON types of what fits; `number` is a number that may have a fraction."""
    found = resolve(schema, schema)
    if found is False:
        return set()
    if not isinstance(found, Mapping):
        return None
    rules = cast("Mapping[str, Any]", found)
    if "const" in rules:
        return {kind_of(rules["const"])}
    if isinstance(rules.get("enum"), list):
        return {kind_of(each) for each in rules["enum"]}
    name = rules.get("type")
    if isinstance(name, str):
        return {name}
    if isinstance(name, list):
        return set(cast("list[str]", name))
    parts = [kinds(each) for each in cast("list[Any]", rules.get("anyOf") or [])]
    if not parts or any(part is None for part in parts):
        return None
    return {kind for part in parts if part is not None for kind in part}


def kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def either(schemas: Sequence[Any]) -> Any:
    """What fits one of them."""
    parts: list[dict[str, Any]] = []
    for schema in schemas:
        if schema is None or schema is True:
            return None
        rules = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
        alone = isinstance(rules.get("anyOf"), list) and len(rules) == 1
        for each in cast("list[Any]", rules["anyOf"] if alone else [schema]):
            if each is not False and each not in parts:
                parts.append(each)
    bare = {each["type"] for each in parts if len(each) == 1 and isinstance(each.get("type"), str)}
    values: list[Any] = []
    others: list[Any] = []
    for each in parts:
        named = [each["const"]] if set(each) == {"const"} else each["enum"] if set(each) == {"enum"} else None  # fmt: skip
        if named is None:
            others.append(each)
            continue
        for value in cast("list[Any]", named):
            known = any(kind_of(v) == kind_of(value) and v == value for v in values)
            if not known and kind_of(value) not in bare:
                values.append(value)
    lists = [each for each in others if each.get("type") == "array" and set(each) <= _ARRAY]
    if lists:
        lists += [_listed(value) for value in values if isinstance(value, list)]
        values = [value for value in values if not isinstance(value, list)]
        others = [each for each in others if each not in lists]
        others.append(lists[0] if len(lists) == 1 else _joined(lists))
    if values:
        others.insert(0, {"const": values[0]} if len(values) == 1 else {"enum": values})
    if not others:
        return False
    found = others[0] if len(others) == 1 else {"anyOf": others}
    return widened(found) if len(others) > PARTS_MAX or len(values) > PARTS_MAX else found


_ARRAY = {"type", "items", "minItems", "maxItems"}


def _listed(values: Any) -> dict[str, Any]:
    return _array([{"const": each} for each in cast("list[Any]", values)], whole=True)


def _joined(lists: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One of these lists."""
    found: dict[str, Any] = {"type": "array"}
    # A list of which nothing says what is in it may be empty, or hold anything.
    items = either([each.get("items", False if each.get("maxItems") == 0 else None) for each in lists])  # fmt: skip
    if items is not None and items is not False:
        found["items"] = items
    if all("minItems" in each for each in lists):
        found["minItems"] = min(each["minItems"] for each in lists)
    if all("maxItems" in each for each in lists):
        found["maxItems"] = max(each["maxItems"] for each in lists)
    return found


def widened(schema: Any) -> Any:
    """The types alone; None where even those are not known. Lists keep their length, if it is always the same."""
    if schema is False:
        return False
    rules = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    if isinstance(rules.get("const"), list):
        rules = _listed(rules["const"])
    if rules.get("type") == "array" and set(rules) <= _ARRAY:
        items = widened(rules["items"]) if "items" in rules else None
        flat = None if items is None else _flat(items)
        kept = {"type": "array"} if flat is None else {"type": "array", "items": flat}
        if "minItems" in rules and rules["minItems"] == rules.get("maxItems"):
            kept |= {"minItems": rules["minItems"], "maxItems": rules["maxItems"]}
        return kept
    found = kinds(schema)
    if found is None:
        return None
    names = sorted(found)
    return {"type": names[0] if len(names) == 1 else names}


def _flat(schema: Any) -> Any:
    """Of what is in a list, the types alone: lists in lists need not come to an end."""
    found = kinds(schema)
    if found is None or not found:
        return None
    names = sorted(found)
    return {"type": names[0] if len(names) == 1 else names}


def part(schema: Any, path: Sequence[str]) -> Any:
    """The schema of what is at a path, if there is anything; it stands alone. None: not known."""
    root: Any = schema
    for name in path:
        found = resolve(schema, root)
        if not isinstance(found, Mapping):
            return None
        rules = cast("Mapping[str, Any]", found)
        if isinstance(rules.get("anyOf"), list) and "properties" not in rules:
            return None
        properties = cast("Mapping[str, Any]", rules.get("properties") or {})
        if name in properties:
            schema = properties[name]
        elif isinstance(rules.get("additionalProperties"), Mapping):
            schema = rules["additionalProperties"]
        else:
            return False if rules.get("additionalProperties") is False else None
    return inlined(schema, root)


def items_of(schema: Any) -> Any:
    """What is in a list that fits; None: not known."""
    found = resolve(schema, schema)
    if not isinstance(found, Mapping):
        return None
    rules = cast("Mapping[str, Any]", found)
    if "const" in rules or "enum" in rules:
        lists = cast("list[Any]", [rules["const"]] if "const" in rules else rules["enum"])
        if all(isinstance(each, list) for each in lists):
            return either([{"const": value} for each in lists for value in each])
        return None
    if rules.get("prefixItems"):
        return None
    items = rules.get("items")
    return None if items is None or items is True else inlined(items, schema)


def inlined(schema: Any, root: Any, depth: int = 0) -> Any:
    """The schema with what it refers to in it; None if that does not come to an end, or is not there."""
    if schema is True or schema is None or depth > DEPTH_MAX:
        return None
    if "$ref" not in repr(schema):
        return schema
    if depth > 8:  # it refers to itself
        return None
    found = resolve(schema, root)
    if not isinstance(found, Mapping) or "$unresolved" in found:
        return None
    made: dict[str, Any] = {}
    for word, value in cast("Mapping[str, Any]", found).items():
        if word in ("$defs", "$id", "$schema"):
            continue
        if word == "properties":
            parts = {n: inlined(each, root, depth + 1) for n, each in value.items()}
            made[word] = {n: True if each is None else each for n, each in parts.items()}
        elif word in ("allOf", "anyOf", "oneOf", "prefixItems"):
            parts = [inlined(each, root, depth + 1) for each in value]
            made[word] = [True if each is None else each for each in parts]
        elif word in ("items", "additionalProperties"):
            each = inlined(value, root, depth + 1)
            made[word] = True if each is None else each
        elif "$ref" in repr(value):
            return None
        else:
            made[word] = value
    return made
