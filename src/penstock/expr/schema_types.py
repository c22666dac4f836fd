"""Types from JSON Schema: what is known of a value that a schema accepts.

Validation is not done here; a type only says what the checker may rely on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from penstock.expr.types import (
    BOOL,
    BY_NAME,
    DOUBLE,
    DYN,
    INT,
    INTEGER_OR_NULL,
    NULL,
    NUMBER_OR_NULL,
    STRING,
    Type,
    join,
    list_of,
    map_of,
)
from penstock.expr.values import kind_of

_DEPTH_MAX = 40
_PARTS_MAX = 10_000
_JSON_TYPES = {"integer": INT, "number": DOUBLE, "string": STRING, "boolean": BOOL, "null": NULL}


def type_of_schema(schema: Any) -> Type:
    """The type of every value that a JSON Schema accepts; DYN where a schema says too little.

    `number` is DOUBLE, also for values written without a fraction, `integer` is INT, also for `4.0`. References within the document are
    followed; one that leads back to itself is DYN there.
    """
    return _Reader(schema).read(schema, ())


class _Reader:
    def __init__(self, root: Any) -> None:
        self._root = root
        # References can share their targets: the types of a small schema may be a very large tree.
        self._left = _PARTS_MAX

    def read(self, schema: Any, path: tuple[str, ...]) -> Type:
        self._left -= 1
        if not isinstance(schema, Mapping) or len(path) > _DEPTH_MAX or self._left < 0:
            return DYN
        rules = cast("Mapping[str, Any]", schema)
        reference = rules.get("$ref")
        if isinstance(reference, str):
            if reference in path:
                return DYN
            return self.read(self._resolve(reference), (*path, reference))
        if "const" in rules:
            return _value_type(rules["const"], rules)
        if isinstance(rules.get("enum"), list):
            return _joined(_value_type(value, rules) for value in rules["enum"])
        for word in ("oneOf", "anyOf"):
            if isinstance(rules.get(word), list) and "type" not in rules:
                return _joined(self.read(one, (*path, word)) for one in rules[word])
        if isinstance(rules.get("allOf"), list) and "type" not in rules:
            known = [self.read(part, (*path, "allOf")) for part in rules["allOf"]]
            known = [part for part in known if not part.dynamic]
            return known[0] if len(known) == 1 else DYN
        return self._named(rules.get("type"), rules, path)

    def _named(self, name: Any, rules: Mapping[str, Any], path: tuple[str, ...]) -> Type:
        if isinstance(name, list):
            names = cast("list[Any]", name)
            return _joined(self._named(one, rules, path) for one in names)
        if name == "array":
            return list_of(self.read(rules.get("items"), (*path, "items")))
        if name == "object" or (name is None and "properties" in rules):
            return self._object(rules, path)
        return _JSON_TYPES.get(name, DYN) if isinstance(name, str) else DYN

    def _object(self, rules: Mapping[str, Any], path: tuple[str, ...]) -> Type:
        properties = cast("Mapping[str, Any]", rules.get("properties") or {})
        more = rules.get("additionalProperties", True)
        patterned = bool(rules.get("patternProperties"))
        rest = DYN if patterned else self.read(more, (*path, "additionalProperties"))
        if not properties and more is not False:
            return map_of(STRING, rest)
        fields = {key: self.read(value, (*path, f".{key}")) for key, value in properties.items()}
        required = frozenset(cast("list[str]", rules.get("required") or []))
        return Type("map", (STRING, rest), fields, required, more is False and not patterned)

    def _resolve(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            return None  # by an `$anchor` or an `$id`: what is there is checked, but not known here
        here = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(here, Mapping):
                return None
            here = cast("Mapping[str, Any]", here).get(key)
        return here


def _value_type(value: Any, rules: Mapping[str, Any]) -> Type:
    if rules.get("type") == "number":
        return DOUBLE
    if rules.get("type") == "integer":
        return INT
    match value:
        case bool() | int() | float() | str() | None:
            return BY_NAME[kind_of(value)]
        case _:
            return DYN


def _joined(types: Iterable[Type]) -> Type:
    found = list(types)
    if not found:
        return DYN
    rest = [one for one in found if one.name != "null"]
    if rest and all(one.name in ("double", "int") for one in rest) and DOUBLE in rest:
        return DOUBLE if len(rest) == len(found) else NUMBER_OR_NULL
    if rest and len(rest) < len(found) and all(one.name == "int" for one in rest):
        return INTEGER_OR_NULL
    result = found[0]
    for one in found[1:]:
        result = join(result, one)
    return result
