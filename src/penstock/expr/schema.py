"""JSON Schema 2020-12, compiled once: is a value as the schema says, and if not, where not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

import jsonschema_rs
from msgspec.json import encode

from penstock.errors import ExpressionError

PROBLEMS_MAX = 5
TIMES_MAX = 20_000
"""Schemas that one value may be held against: those that `anyOf`, `$ref` and the like lead to."""
PARTS_MAX = 1_000
"""Parts of a value of which all problems are looked for; of a larger one, the first."""
MESSAGE_CHARACTERS_MAX = 300
LARGE_BYTES = 16_384
"""Of larger schemas few are kept."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TABLES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


class Schema:
    """A compiled schema."""

    __slots__ = ("_validator", "document")

    def __init__(self, document: Any) -> None:
        self.document = document
        following = _following(document)
        circle = _circle(following)
        if circle:
            raise ExpressionError(f"not a JSON Schema: it refers to itself without end: {circle}")
        if _times(following) > TIMES_MAX:
            raise ExpressionError(
                f"not a JSON Schema that can be checked: a value would be held against its parts more than {TIMES_MAX} times",
                hint="name a part once, instead of leading to it by ever more ways",
            )
        try:
            self._validator: Any = cast("Any", jsonschema_rs).Draft202012Validator(
                document, validate_formats=True, retriever=_refuse
            )
        except Exception as error:  # ValidationError, ReferencingError and ValueError by turns
            raise ExpressionError(f"not a JSON Schema: {error}") from error

    def accepts(self, value: Any) -> bool:
        return bool(self._validator.is_valid(value))

    def problems(self, value: Any) -> str:
        """Empty if valid; else what is wrong and where, for people."""
        if self._validator.is_valid(value):
            return ""
        found: list[str] = []
        for error in self._errors(value):
            told = f"{_path(error.instance_path)}: {_short(error.message)}"
            if told in found:
                continue  # the same by another way through the schema
            found.append(told)
            if len(found) == PROBLEMS_MAX:
                found.append("…")
                break
        return "; ".join(found)

    def errors(self, value: Any) -> Iterable[Any]:
        """Each with `instance_path`, `instance`, `kind` and `message`, as the validator gives them."""
        return () if self._validator.is_valid(value) else self._errors(value)

    def _errors(self, value: Any) -> Iterable[Any]:
        """All errors are made at once, so that of a large value only the first is asked for."""
        if not _large(value):
            return self._validator.iter_errors(value)
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


def _large(value: Any) -> bool:
    count, stack = 0, [value]
    while stack:
        part = stack.pop()
        count += 1
        if count > PARTS_MAX:
            return True
        if isinstance(part, dict):
            stack.extend(cast("dict[str, Any]", part).values())
        elif isinstance(part, list):
            stack.extend(cast("list[Any]", part))
    return False


def _path(parts: Iterable[str | int]) -> str:
    """Where in the value, as RFC 9535 writes it."""
    found = "$"
    for part in parts:
        if isinstance(part, int):
            found += f"[{part}]"
        elif _NAME.fullmatch(part):
            found += f".{part}"
        else:
            escaped = part.replace("\\", "\\\\").replace("'", "\\'")
            found += f"['{escaped}']"
    return _short(found)


def _short(text: str) -> str:
    """A message may quote the value, however large."""
    if len(text) <= MESSAGE_CHARACTERS_MAX:
        return text
    half = MESSAGE_CHARACTERS_MAX // 2
    return f"{text[:half]} … {text[-half:]}"


def _following(document: Any) -> dict[str, list[str]]:
    """By pointer: the schemas that the same value is held against next."""
    following: dict[str, list[str]] = {}
    waiting: list[tuple[str, Any]] = [("#", document)]
    seen: set[str] = set()
    anchors = _anchors(document)
    while waiting:
        at, schema = waiting.pop()
        if at in seen or not isinstance(schema, dict):
            continue
        seen.add(at)
        rules = cast("dict[str, Any]", schema)
        if "$id" in rules and at != "#":
            return {}  # a document of its own: its references are not ours to follow
        targets = following[at] = list[str]()
        for word in ("$ref", "$dynamicRef"):
            reference = rules.get(word)
            if isinstance(reference, str):
                reference = anchors.get(reference, reference)
                if reference == "#" or reference.startswith("#/"):
                    targets.append(reference)
                    waiting.append((reference, _pointed(document, reference)))
        for pointer, inner, in_place in _inner(at, rules):
            if in_place:
                targets.append(pointer)
            waiting.append((pointer, inner))
    return following


def _times(following: dict[str, list[str]]) -> int:
    """How many schemas one value is held against at most; there are no circles."""
    known: dict[str, int] = {}
    for first in following:
        waiting = [first]
        while waiting:
            at = waiting[-1]
            missing = [each for each in following[at] if each in following and each not in known]
            if at in known or not missing:
                waiting.pop()
                known[at] = 1 + sum(known.get(each, 0) for each in following[at])
            else:
                waiting += missing
    return max(known.values(), default=0)


def _anchors(document: Any) -> dict[str, str]:
    """Pointers by what refers to them by name."""
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("#", document)]
    while waiting:
        at, schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        rules = cast("dict[str, Any]", schema)
        for word in ("$anchor", "$dynamicAnchor"):
            if isinstance(rules.get(word), str):
                found[f"#{rules[word]}"] = at
        waiting.extend((pointer, inner) for pointer, inner, _ in _inner(at, rules))
    return found


def _inner(at: str, rules: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Schemas inside of a schema, and whether they look at the same value."""
    for word, value in rules.items():
        name = word.replace("~", "~0").replace("/", "~1")
        if word in ("not", "if", "then", "else"):
            yield f"{at}/{name}", value, True
        elif word in ("allOf", "anyOf", "oneOf", "prefixItems") and isinstance(value, list):
            for index, part in enumerate(cast("list[Any]", value)):
                yield f"{at}/{name}/{index}", part, word != "prefixItems"
        elif word in ("items", "additionalProperties", "contains", "propertyNames"):
            yield f"{at}/{name}", value, False
        elif word in _TABLES and isinstance(value, dict):
            for key, part in cast("dict[str, Any]", value).items():
                escaped = key.replace("~", "~0").replace("/", "~1")
                yield f"{at}/{name}/{escaped}", part, word == "dependentSchemas"


def _pointed(document: Any, reference: str) -> Any:
    here = document
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = cast("dict[str, Any]", here).get(key)
        elif isinstance(here, list) and key.isdecimal():
            parts = cast("list[Any]", here)
            here = parts[int(key)] if int(key) < len(parts) else None
        else:
            return None
    return here


def _circle(following: dict[str, list[str]]) -> str:
    done: set[str] = set()
    for first in following:
        way: list[tuple[str, Iterator[str]]] = [(first, iter(following[first]))]
        on_way = {first}
        while way and first not in done:
            at, rest = way[-1]
            step = next((one for one in rest if one in following and one not in done), None)
            if step is None:
                way.pop()
                on_way.discard(at)
                done.add(at)
            elif step in on_way:
                names = [one for one, _ in way]
                return " -> ".join([*names[names.index(step) :], step])
            else:
                on_way.add(step)
                way.append((step, iter(following[step])))
    return ""


def _refuse(address: str) -> Any:
    """A schema is whole in itself: nothing is fetched."""
    raise ValueError(f"`{address}` is outside of the schema; put it under $defs")


class _Content:
    """A document that is equal to another of the same content."""

    __slots__ = ("document", "text")

    def __init__(self, document: Any, text: bytes) -> None:
        self.document, self.text = document, text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def compile_schema(document: Any) -> Schema:
    """ExpressionError if it is not a schema. One of the same content as one before is that one."""
    try:
        content = _Content(document, encode(document))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return Schema(document)
    return _large_one(content) if len(content.text) > LARGE_BYTES else _small_one(content)


@lru_cache(maxsize=256)
def _small_one(content: _Content) -> Schema:
    return Schema(content.document)


@lru_cache(maxsize=4)
def _large_one(content: _Content) -> Schema:
    return Schema(content.document)
