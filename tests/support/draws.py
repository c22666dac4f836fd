"""Draws: values that a schema allows, near to the constants of a definition, where its conditions change."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any


class Draw:
    """Values that a schema allows, from a seed; the same for the same question."""

    def __init__(self, constants: list[Any]) -> None:
        self._numbers = sorted({n + d for n in constants if isinstance(n, int) for d in (-1, 0, 1)})
        self._texts = [text for text in constants if isinstance(text, str)]

    def value(self, schema: Any, dice: random.Random) -> Any:
        if not isinstance(schema, Mapping):
            return dice.choice([None, 1, "a", {}, {"a": 1}])
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return dice.choice(schema["enum"])
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            kind = dice.choice(kind)
        match kind:
            case "object":
                must = schema.get("required", [])
                return {
                    name: self.value(part, dice)
                    for name, part in schema.get("properties", {}).items()
                    if name in must or dice.random() < 0.5
                }
            case "array":
                most = min(schema.get("maxItems", 3), 3)
                count = dice.randint(min(schema.get("minItems", 0), most), most)
                return [self.value(schema.get("items"), dice) for _ in range(count)]
            case "boolean":
                return dice.random() < 0.5
            case "integer":
                return self._number(schema, dice)
            case "number":
                return self._number(schema, dice) + dice.choice([0, 0.5])
            case "string":
                return self._text(schema, dice)
            case _:
                return None

    def _number(self, schema: Mapping[str, Any], dice: random.Random) -> int:
        low, high = schema.get("minimum", -100), schema.get("maximum", 1000)
        near = [n for n in [*self._numbers, low, high] if low <= n <= high]
        return dice.choice(near) if dice.random() < 0.7 else dice.randint(low, high)

    def _text(self, schema: Mapping[str, Any], dice: random.Random) -> str:
        options = [*self._texts, "", "a", "long enough"]
        least = schema.get("minLength", 0)
        return dice.choice([text for text in options if len(text) >= least] or ["a" * least])


def constants(document: Any) -> list[Any]:
    """Numbers and texts that expressions have in them, as far as a glance tells."""
    text = json.dumps(document)
    numbers = [int(n) for n in re.findall(r"(?<![\w.\"-])\d{1,7}(?![\w.])", text)]
    texts = re.findall(r"(?:\\\"|')([A-Za-z-]+)(?:\\\"|')", text)
    return [*dict.fromkeys(numbers), *dict.fromkeys(texts)]
