"""Values by chance, from types: what an activity may give and a workflow may be started with."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any, cast

import msgspec

from penstock.expr.schema import Schema, compile_schema
from penstock.sdk.signatures import schema_of
from penstock.sdk.values import decoder_of_hint
from penstock.verify.samples import DEPTH_MAX, FORMATS, resolve, sample
from penstock.verify.texts import texts

ITEMS_MAX = 3
NUMBER_MAX = 12
"""Numbers are small: a workflow may count to one."""
MENDED_MAX = 20
HINTED = 0.25
"""How often a value is one that the code compares with."""


class Shape:
    """A JSON Schema, looked at once."""

    def __init__(self, schema: Any, read: Callable[[bytes], Any] | None = None) -> None:
        """`read` says more than the schema can: what is a moment, or a decimal."""
        self.schema, self._read = schema, read
        self._check: Schema | None
        try:
            self._check = compile_schema(schema)
        except Exception:  # a schema of which only the engine can say what is wrong with it
            self._check = None

    def accepts(self, value: Any) -> bool:
        return self._check is None or self._check.accepts(value)

    def draw(self, chance: Random, word: str, known: Sequence[Any] = ()) -> Any:
        """A value that fits; texts begin with `word`, and `known` are values that are worth trying."""
        for _ in range(3):
            value = _Drawer(self.schema, chance, word, known).draw(self.schema, 0)
            if self.accepts(value):
                return value if self._read is None else _mended(value, self._read, chance)
        return sample(self.schema)


_PARTS = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def _mended(value: Any, read: Callable[[bytes], Any], chance: Random) -> Any:
    """Where reading says that a text is no moment, decimal, …: one that is."""
    for _ in range(MENDED_MAX):
        try:
            read(msgspec.json.encode(value))
        except Exception as error:
            text = str(error)
            told = next((make for words, make in _TEXTS if words in text), None)
            if told is None:
                return value
            value = _with(value, text, told(chance))
        else:
            return value
    return value


def _with(value: Any, said: str, other: Any) -> Any:
    """The value with another text at the place that an error names: `$.when`, `$.items[...]`, or a key of `$`."""
    at = re.search(r"`\$([^`]*)`", said)
    path = [] if at is None else [(name, index) for name, index in _PARTS.findall(at[1])]
    return _put(value, path, other, key="`key` in" in said)


def _put(value: Any, path: list[tuple[str, str]], other: Any, *, key: bool) -> Any:
    if not path:
        if key and isinstance(value, dict):
            return {str(n): each for n, each in enumerate(cast("dict[str, Any]", value).values())}
        return other
    (name, index), rest = path[0], path[1:]
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        names = [name] if name in held else list(held)
        return {n: _put(v, rest, other, key=key) if n in names else v for n, v in held.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        places = range(len(items)) if index == "..." else [int(index or 0)]
        return [_put(v, rest, other, key=key) if n in places else v for n, v in enumerate(items)]
    return value


_TEXTS: tuple[tuple[str, Callable[[Random], Any]], ...] = (
    ("encoded datetime", lambda chance: f"2026-01-{chance.randint(1, 28):02}T12:00:00Z"),
    ("encoded date", lambda chance: f"2026-01-{chance.randint(1, 28):02}"),
    ("encoded time", lambda chance: f"{chance.randint(0, 23):02}:00:00Z"),
    ("decimal", lambda chance: f"{chance.randint(0, 99)}.5"),
    ("base64", lambda chance: "AAAA" * chance.randint(0, 3)),
    ("duration", lambda chance: f"P{chance.randint(1, 9)}D"),
    ("UUID", lambda chance: f"00000000-0000-4000-8000-{chance.randrange(10**12):012}"),
    ("Expected `int`, got `str` - at `key`", lambda chance: ""),
)
"""What an error says of a text, and one that is right."""
_FORMATS = dict(
    zip(("date-time", "date", "time", "decimal", "byte", "duration", "uuid"), (make for _, make in _TEXTS), strict=False)
)  # fmt: skip


@lru_cache(maxsize=4096)
def _shape_of_type(annotation: Any) -> Shape | None:
    return _shaped(annotation)


def _shaped(annotation: Any) -> Shape | None:
    schema = schema_of(annotation)
    if schema is None and "pydantic" in sys.modules:
        try:
            schema = sys.modules["pydantic"].TypeAdapter(annotation).json_schema()
        except Exception:  # pydantic knows nothing of it either
            schema = None
        if not schema:
            return None
    return None if schema is None else Shape(schema, decoder_of_hint(annotation))


def shape_of(annotation: Any) -> Shape | None:
    """Of an annotation; None where it says nothing."""
    try:
        return _shape_of_type(annotation)
    except TypeError:  # unhashable
        return _shaped(annotation)


class _Drawer:
    def __init__(self, root: Any, chance: Random, word: str, known: Sequence[Any]) -> None:
        self._root, self._chance, self._word, self._known = root, chance, word, known

    def draw(self, schema: Any, depth: int) -> Any:
        chance = self._chance
        schema = resolve(schema, self._root)
        if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
            return None
        rules = cast("Mapping[str, Any]", schema)
        if "const" in rules:
            return rules["const"]
        if rules.get("enum"):
            return chance.choice(cast("list[Any]", rules["enum"]))
        for word in ("anyOf", "oneOf"):
            options = cast("list[Any]", rules.get(word) or [])
            if options:
                return self.draw(self._chosen(options, depth), depth + 1)
        if "allOf" in rules or "if" in rules or "not" in rules:
            return sample(schema, self._root)
        name = rules.get("type")
        if isinstance(name, list):
            name = chance.choice(cast("list[Any]", name))
        if name is None:
            name = "object" if "properties" in rules else None
        match name:
            case "object":
                return self._object(rules, depth)
            case "array":
                return self._array(rules, depth)
            case "string":
                return self._text(rules)
            case "integer" | "number":
                return self._number(rules, whole=name == "integer")
            case "boolean":
                return chance.random() < 0.5
            case _:
                return None

    def _chosen(self, options: list[Any], depth: int) -> Any:
        """Deep down the first that ends; null less often than something."""
        nulls: list[Any] = [each for each in options if each == {"type": "null"}]
        if nulls and (depth > 4 or self._chance.random() < 0.25):
            return nulls[0]
        return self._chance.choice([o for o in options if o not in nulls] or options)

    def _object(self, rules: Mapping[str, Any], depth: int) -> dict[str, Any]:
        chance = self._chance
        properties = cast("Mapping[str, Any]", rules.get("properties") or {})
        required = cast("list[str]", rules.get("required") or [])
        made = {
            name: self.draw(each, depth + 1)
            for name, each in properties.items()
            if name in required or (depth <= 4 and chance.random() < 0.7)
        }
        more = rules.get("additionalProperties", True)
        for name in required:
            made.setdefault(name, self.draw(more, depth + 1))
        if isinstance(more, Mapping) and not properties:
            for number in range(chance.randint(0, 2)):
                made[f"{self._word}-{number}"] = self.draw(more, depth + 1)
        return made

    def _array(self, rules: Mapping[str, Any], depth: int) -> list[Any]:
        least = int(rules.get("minItems", 0))
        most = int(rules.get("maxItems", least + (ITEMS_MAX if depth <= 4 else 0)))
        prefix = cast("list[Any]", rules.get("prefixItems") or [])
        count = max(least, min(most, self._chance.randint(least, least + ITEMS_MAX)))
        if prefix and rules.get("items") is False:
            count = len(prefix)
        each = rules.get("items", True)
        schemas = [*prefix, *[each] * count][:count]
        made = [self.draw(one, depth + 1) for one in schemas]
        if rules.get("uniqueItems"):
            made = [value for place, value in enumerate(made) if value not in made[:place]]
        return made

    def _text(self, rules: Mapping[str, Any]) -> str:
        chance = self._chance
        named = str(rules.get("format"))
        if named in _FORMATS:
            return _FORMATS[named](chance)
        if named in FORMATS:
            return chance.choice(FORMATS[named])
        if isinstance(rules.get("pattern"), str):
            made = list(texts(rules["pattern"], int(rules.get("minLength", 0))))[:5]
            return chance.choice(made) if made else str(sample(rules, self._root))
        hinted = [each for each in self._known if isinstance(each, str)]
        if hinted and chance.random() < HINTED:
            return chance.choice(hinted)
        text = f"{self._word}-{chance.randint(1, 99)}"
        least, most = int(rules.get("minLength", 0)), rules.get("maxLength")
        text = text.ljust(least, "x")
        return text if most is None else text[: int(most)]

    def _number(self, rules: Mapping[str, Any], *, whole: bool) -> float | int:
        chance = self._chance
        hinted = [
            each
            for each in self._known
            if isinstance(each, int | float)
            and not isinstance(each, bool)
            and (not whole or each == int(each))
        ]
        if hinted and chance.random() < HINTED:
            value = chance.choice(hinted) + chance.choice((-1, 0, 1))
            return int(value) if whole else value
        low = rules.get("minimum", rules.get("exclusiveMinimum", 0))
        high = rules.get("maximum", rules.get("exclusiveMaximum", low + NUMBER_MAX))
        if "exclusiveMinimum" in rules and whole:
            low += 1
        step = rules.get("multipleOf")
        if step:
            return int(low // step + 1 + chance.randint(0, 3)) * step
        if high < low:
            low = high
        drawn = chance.uniform(low, min(high, low + 1000 * NUMBER_MAX))
        return int(drawn) if whole else round(drawn, 2)
