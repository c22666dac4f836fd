"""A small value that a JSON Schema accepts, found without a solver, and what references in a schema mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from penstock.errors import ExpressionError
from penstock.expr.schema import compile_schema
from penstock.verify.texts import texts

DEPTH_MAX = 12
PARTS_MAX = 2_000
TEXT_MAX = 10_000
FORMATS: dict[str, tuple[str, ...]] = {
    "date-time": ("2026-01-01T00:00:00Z",),
    "date": ("2026-01-01",),
    "time": ("12:00:00Z",),
    "duration": ("P1D",),
    "email": ("a@example.org",),
    "idn-email": ("a@example.org",),
    "hostname": ("example.org",),
    "idn-hostname": ("example.org",),
    "ipv4": ("127.0.0.1",),
    "ipv6": ("::1",),
    "uri": ("https://example.org/",),
    "uri-reference": ("/a",),
    "iri": ("https://example.org/",),
    "iri-reference": ("/a",),
    "uri-template": ("/a/{b}",),
    "json-pointer": ("/a",),
    "relative-json-pointer": ("0/a",),
    "regex": ("a",),
    "uuid": ("00000000-0000-4000-8000-000000000000",),
}
_WORDS = {
    "object": ("properties", "required", "minProperties", "propertyNames", "dependentRequired"),
    "array": ("prefixItems", "contains", "minItems", "uniqueItems"),
    "string": ("pattern", "minLength", "format"),
    "number": ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
}
"""Words that say something of one type alone."""
_TEXTS = ("", "a", "abc", "A", "A-1", "0", "123", "ABC-123", "abc-123", "a@example.org", "x1")


def resolve(schema: Any, root: Any) -> Any:
    """Follow references within the document; where one leads nowhere or in a circle, anything is accepted."""
    for _ in range(DEPTH_MAX):
        if not isinstance(schema, Mapping):
            return schema
        rules = cast("Mapping[str, Any]", schema)
        reference = rules.get("$ref")
        if not isinstance(reference, str):
            return rules
        target = pointed(reference, root)
        others = {k: v for k, v in rules.items() if k not in ("$ref", "$defs", "$id", "$schema")}
        if target is None:
            return {**others, "$unresolved": True} if others else True
        schema = {"allOf": [target, others]} if others else target
    return True


def below(schema: Any, names: Iterable[str]) -> Any:
    """What a schema says of the field that these names lead to; None: nothing."""
    root = schema
    for name in names:
        rules = resolve(schema, root)
        if not isinstance(rules, Mapping):
            return None
        properties = cast("Mapping[str, Any]", rules).get("properties")
        schema = cast("Mapping[str, Any]", properties or {}).get(name)
    return schema


def pointed(reference: str, root: Any) -> Any:
    """What `#/…` points to; None for any other reference."""
    if not reference.startswith("#") or (len(reference) > 1 and reference[1] != "/"):
        return None
    here = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping):
            here = cast("Mapping[str, Any]", here).get(key)
        elif isinstance(here, list) and key.isdecimal():
            elements = cast("list[Any]", here)
            here = elements[int(key)] if int(key) < len(elements) else None
        else:
            return None
    return here


def sample(schema: Any, root: Any = None, *, parts: int = PARTS_MAX) -> Any:
    """A value that is likely to be accepted: ask `accepts` to be sure. Beyond so many parts all is null."""
    return _Sampler(schema if root is None else root, parts).sample(schema, 0)


def accepts(schema: Any, value: Any) -> bool:
    """Whether the whole schema accepts the value; None is a schema that accepts anything."""
    if schema is None:
        return True
    try:
        return compile_schema(schema).accepts(value)
    except (ExpressionError, ValueError):
        return False


class _Sampler:
    """One sample; references can share their targets, so that the value of a small schema may be very large."""

    def __init__(self, root: Any, parts: int) -> None:
        self._root, self._left = root, parts

    def sample(self, schema: Any, depth: int) -> Any:
        root = self._root
        self._left -= 1
        schema = resolve(schema, root)
        if not isinstance(schema, Mapping) or depth > DEPTH_MAX or self._left < 0:
            return None
        rules = cast("Mapping[str, Any]", schema)
        if "const" in rules:
            return rules["const"]
        if rules.get("enum"):
            return rules["enum"][0]
        for example in cast("list[Any]", rules.get("examples") or []):
            if accepts({**rules, "$defs": _definitions(root)}, example):
                return example
        merged: dict[str, Any] = {
            k: v for k, v in rules.items() if k not in ("allOf", "anyOf", "oneOf")
        }
        parts = [*cast("list[Any]", rules.get("allOf") or [])]
        for word in ("anyOf", "oneOf"):
            parts += cast("list[Any]", rules.get(word) or [])[:1]
        for part in parts:
            found = resolve(part, root)
            if isinstance(found, Mapping):
                _merge(merged, cast("Mapping[str, Any]", found))
        if "const" in merged:
            return merged["const"]
        if merged.get("enum"):
            return merged["enum"][0]
        if "if" in merged:
            _merge_case(merged, root)
        name = merged.get("type")
        names = cast("list[Any]", name) if isinstance(name, list) else [name]
        if names == [None]:
            names = _kinds(merged)
        made = self._typed(names[0], merged, depth)
        if "not" in merged and not accepts({"not": merged["not"]}, made):
            return self._other(names, merged, made, depth)
        return made

    def _other(self, names: list[Any], rules: Mapping[str, Any], made: Any, depth: int) -> Any:
        """Something else, if what was made is what it must not be."""
        if rules.get("type") is None:
            names = [*names, "null", "boolean", "integer", "string", "object", "array"]
        only = {"not": rules["not"]}
        texts = [text for text in _TEXTS if accepts(_of_texts(rules), text)]
        numbers = [n for n in (0, 1, 2, -1, 0.5) if accepts(_of_numbers(rules), n)]
        more = {"string": texts, "integer": numbers[:4], "number": numbers, "boolean": [True]}
        for name in names:
            for option in (self._typed(name, rules, depth), *more.get(name, ())):
                if accepts(only, option):
                    return option
        return made

    def _typed(self, name: Any, rules: Mapping[str, Any], depth: int) -> Any:
        match name:
            case "object":
                return self._object(rules, depth)
            case "array":
                return self._array(rules, depth)
            case "string":
                return _text(rules)
            case "integer" | "number":
                return _number(rules, whole=name == "integer")
            case "boolean":
                return False
            case _:
                return None

    def _object(self, rules: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = cast("Mapping[str, Any]", rules.get("properties") or {})
        names = dict.fromkeys(cast("list[str]", rules.get("required") or []))
        more = rules.get("additionalProperties", True)
        follow = cast("Mapping[str, list[str]]", rules.get("dependentRequired") or {})
        waiting = list(names)
        while waiting:
            for name in follow.get(waiting.pop(), ()):
                if name not in names:
                    names[name] = None
                    waiting.append(name)
        least = min(int(rules.get("minProperties", 0)), PARTS_MAX)
        naming = rules.get("propertyNames", True)
        for name in (*properties, *_names(resolve(naming, self._root), least)):
            if len(names) >= least:
                break
            if naming is True or accepts(naming, name):
                names.setdefault(name)
        return {n: self.sample(properties.get(n, more), depth + 1) for n in names}

    def _array(self, rules: Mapping[str, Any], depth: int) -> list[Any]:
        least = min(int(rules.get("minItems", 0)), PARTS_MAX)
        prefix = cast("list[Any]", rules.get("prefixItems") or [])
        each = rules.get("items", True)
        made = [self.sample(one, depth + 1) for one in [*prefix, *[each] * least][:least]]
        if "contains" in rules:
            count = min(int(rules.get("minContains", 1)), PARTS_MAX)
            place = min(len(prefix), len(made))
            held = [self.sample(rules["contains"], depth + 1) for _ in range(count)]
            made[place : place + count] = held
        if rules.get("uniqueItems"):
            self._apart(made, prefix, each)
        return made

    def _apart(self, made: list[Any], prefix: list[Any], each: Any) -> None:
        """Other elements where there are equal ones, as far as they are simple."""
        for place, value in enumerate(made):
            if value not in made[:place]:
                continue
            rules: Any = resolve(prefix[place] if place < len(prefix) else each, self._root)
            options: list[Any] = [*range(place + 1, 2 * len(made) + 2), *(f"a{n}" for n in range(place + 1))]  # fmt: skip
            if isinstance(rules, Mapping):
                known = cast("Mapping[str, Any]", rules)
                options = [*cast("list[Any]", known.get("enum") or []), *options]
                options += [value + "a" * place] if isinstance(value, str) else []
            for option in options:
                if option not in made and accepts(rules, option):
                    made[place] = option
                    break


def _definitions(root: Any) -> Any:
    return cast("Mapping[str, Any]", root).get("$defs", {}) if isinstance(root, Mapping) else {}


def _kinds(rules: Mapping[str, Any]) -> list[Any]:
    """Which type is likely meant where none is said."""
    for name, words in _WORDS.items():
        if any(word in rules for word in words):
            return [name]
    return ["null"]


def _names(naming: Any, least: int) -> list[str]:
    """Names of properties that may be there."""
    rules = cast("Mapping[str, Any]", naming if isinstance(naming, Mapping) else {})
    named = [str(name) for name in cast("list[Any]", rules.get("enum") or [])]
    pattern = rules.get("pattern")
    made = list(texts(pattern)) if isinstance(pattern, str) else []
    numbered = [f"{base}{n}" for base in dict.fromkeys([*made[:1], "a"]) for n in range(1, least + 1)]  # fmt: skip
    return [*named, *made, *numbered]


def _merge_case(rules: dict[str, Any], root: Any) -> None:
    """What `then` asks for, with what `if` says so that it is asked for."""
    for word in ("if", "then"):
        part = resolve(rules.get(word), root)
        if isinstance(part, Mapping):
            _merge(rules, cast("Mapping[str, Any]", part))


def _merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    for word, value in part.items():
        if word == "required":
            into[word] = [*into.get(word, []), *value]
        elif word == "properties":
            into[word] = {**into.get(word, {}), **value}
        else:
            into.setdefault(word, value)


def _text(rules: Mapping[str, Any]) -> str:
    known = FORMATS.get(str(rules.get("format")))
    if known:
        return known[0]
    least = min(int(rules.get("minLength", 0)), TEXT_MAX)
    only, pattern = _of_texts(rules), rules.get("pattern")
    made = texts(pattern, least) if isinstance(pattern, str) else ()
    for text in (*_TEXTS, "a" * least, "A" * least, "0" * least, *made):
        if accepts(only, text):
            return text
    return "a" * least


def _of_texts(rules: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in rules.items() if k in ("minLength", "maxLength", "pattern")}


def _of_numbers(rules: Mapping[str, Any]) -> dict[str, Any]:
    words = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    return {k: v for k, v in rules.items() if k in words}


def _number(rules: Mapping[str, Any], *, whole: bool) -> float | int:
    step = rules.get("multipleOf")
    low = max(rules.get("minimum", -(2**53)), rules.get("exclusiveMinimum", -(2**53)))
    high = min(rules.get("maximum", 2**53), rules.get("exclusiveMaximum", 2**53))
    only = _of_numbers(rules)
    options: list[float | int] = [0, 1, low, high, low + 1, high - 1, (low + high) / 2]
    if isinstance(step, int | float) and step > 0:
        options += [step, -(-low // step) * step, (high // step) * step]
    for option in options:
        if whole or option == int(option):
            option = int(option)
        if accepts(only, option):
            return option
    return 0
