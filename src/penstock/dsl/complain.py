"""What JSON Schema finds wrong, told to people: the place, what was expected, what was probably meant.

Also says how to go on without each wrong part, so that the rest can be checked in the same go.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs

from penstock.core.vocabulary import PLAIN, Vocabulary
from penstock.dsl.expand import UNKNOWN_TYPE
from penstock.dsl.finding import FINDINGS_MAX, Finding, Path, Place, did_you_mean, listed
from penstock.dsl.schema import ID_CHARACTERS_MAX, Added, document_schema, kinds_of
from penstock.dsl.tree import Places

ROUNDS_MAX = 10
SHOWN_MAX = 80
UNKNOWN_ID = "unknown"


@dataclass(slots=True)
class Complaint:
    """Findings, the paths to go on without, and the tasks whose type is not known."""

    findings: list[Finding] = field(default_factory=list[Finding])
    drop: set[Path] = field(default_factory=set[Path])
    untyped: set[Path] = field(default_factory=set[Path])
    whole: bool = True
    """False if there was more to say than anyone would read."""


def complain(
    document: dict[str, Any],
    places: Places,
    source: str,
    vocabulary: Vocabulary = PLAIN,
) -> Complaint:
    """Hold a document against the published schema, with the types that plugins add."""
    added = fields_of(vocabulary)
    validator = _validator(added)
    complaint = Complaint()
    if validator.is_valid(document):
        return complaint
    translator = _Translator(places, source, complaint, vocabulary)
    for error in validator.iter_errors(document):
        translator.add(error)
        if len(complaint.findings) >= FINDINGS_MAX:
            complaint.whole = False
            break
    return complaint


def fields_of(vocabulary: Vocabulary) -> Added:
    """Added types with the fields of their configs, in one order."""
    return tuple(sorted((name, each.fields) for name, each in vocabulary.types.items()))


@lru_cache(maxsize=64)
def _validator(added: Added) -> Any:
    return cast("Any", jsonschema_rs).Draft202012Validator(document_schema(added))


class _Translator:
    def __init__(
        self, places: Places, source: str, complaint: Complaint, vocabulary: Vocabulary
    ) -> None:
        self._places = places
        self._source = source
        self._complaint = complaint
        self._vocabulary = vocabulary
        self._added = fields_of(vocabulary)

    def add(self, error: Any) -> None:
        path: Path = tuple(error.instance_path)
        rule: list[str | int] = list(error.schema_path)
        kind: str = error.kind.name
        match kind:
            case "additionalProperties":
                self._unknown_fields(error.kind.unexpected, path, self._schema_at(rule[:-1]))
            case "required":
                self._missing(error.kind.property, path, rule)
            case "oneOf":
                self._not_one(error, path, rule)
            case "propertyNames":
                self._bad_id(error.kind.error.instance, path)
            case "falseSchema":
                self._twice(path)
            case "enum" if rule[:2] == ["$defs", "task"]:
                self._unknown_type(error.instance, path)
            case "enum":
                self._not_an_option(error, path, self._schema_at(rule[:-1]))
            case "const" if path[-1:] == ("type",):
                self._complaint.untyped.add(path[:-1])
                self._say(
                    "field-invalid",
                    path,
                    f"`do` makes this an activity, and `type` says {shown_value(error.instance)}",
                    "leave out one of the two",
                )
            case _:
                self._wrong(kind, error.instance, path, rule)

    def _unknown_fields(self, names: Iterable[str], path: Path, schema: dict[str, Any]) -> None:
        known = list(schema["properties"])
        for name in names:
            hint = did_you_mean(name, known)
            if hint is None:
                hint = f"it takes {listed(known)}" if known else "it takes none"
            what = schema.get("title", "an object")
            self._say(
                "unknown-field", (*path, name), f"no field `{name}` in {what}", hint, key=True
            )
            self._complaint.drop.add((*path, name))

    def _missing(self, name: str, path: Path, rule: list[str | int]) -> None:
        needs = self._schema_at(rule[:-1]).get("x-needs", [name])
        message = f"{_what(path)} needs {listed(needs, 'or')}"
        self._say("field-missing", path, message, _add(needs), key=True)
        if rule[1:2] == ["task"]:
            self._complaint.untyped.add(path)
        elif path:
            self._complaint.drop.add(path)

    def _not_one(self, error: Any, path: Path, rule: list[str | int]) -> None:
        names: list[str] = self._schema_at(rule[:-1]).get("x-needs", [])
        if type(error.kind).__name__.endswith("OneOfNotValid"):
            message = f"{_what(path)} needs {listed(names, 'or')}"
            self._say("field-missing", path, message, _add(names), key=True)
        else:
            message = f"{_what(path)} takes only one of {listed(names)}"
            self._say("field-invalid", path, message, "keep one of them", key=True)
        if not str(rule[1]).endswith("Task"):
            self._complaint.drop.add(path)

    def _bad_id(self, name: str, path: Path) -> None:
        self._say(
            "id-invalid",
            (*path, name),
            f"`{_short(name)}` can't be the id of a task",
            _id_hint(name),
            key=True,
        )

    def _twice(self, path: Path) -> None:
        others = {"do": "`activity`", "when": "`condition`"}
        other = others.get(str(path[-1]), "the config")
        if path[-2:-1] == ("join",):
            other = "another field of the join"
        self._say(
            "duplicate-key",
            path,
            f"`{path[-1]}` says again what {other} says",
            "keep one of the two",
            key=True,
        )
        self._complaint.drop.add(path)

    def _unknown_type(self, instance: Any, path: Path) -> None:
        self._complaint.untyped.add(path[:-1])
        if not isinstance(instance, str):
            message = f"`type` must be a type of task, not {shown_value(instance)}"
            self._say("wrong-type", path, message, f"types are {listed(kinds_of(self._added))}")
        else:
            self._no_type(instance, path)

    def _no_type(self, name: str, path: Path) -> None:
        fault = self._vocabulary.faults.get(("type", name))
        if fault is not None:
            message = f"the type `{name}` cannot be used: {fault}"
            self._say("plugin-invalid", path, message, "`penstock plugins` lists what there is")
            return
        known = list(kinds_of(self._added))
        known += [each for kind, each in self._vocabulary.known if kind == "type"]
        known = list(dict.fromkeys(known))
        hint = did_you_mean(name, known)
        hint = hint or f"types are {listed(known)}; a plugin can add others"
        self._say("unknown-type", path, f"no type of task is called `{name}`", hint)

    def _not_an_option(self, error: Any, path: Path, schema: dict[str, Any]) -> None:
        options = [str(option) for option in error.kind.options]
        shown = shown_value(error.instance)
        message = f"{_field(path)} must be {listed(options, 'or')}, not {shown}"
        near = did_you_mean(error.instance, options) if isinstance(error.instance, str) else None
        hint = near or ("take one of these" if len(options) > 1 else f"write `{options[0]}`")
        self._say("field-invalid", path, message, hint)
        self._complaint.drop.add(path)

    def _wrong(self, kind: str, instance: Any, path: Path, rule: list[str | int]) -> None:
        schema = self._schema_at(rule[:-1])
        title: str = schema.get("title", "something else")
        shown = shown_value(instance)
        code = "wrong-type" if kind == "type" else "field-invalid"
        hint = None
        if kind != "type" and title.startswith("a duration"):
            code, hint = "duration-invalid", "write `500ms`, `30s`, `5m`, `2h`, `1d` or ISO 8601"
        elif kind in ("pattern", "maxLength") and title == "an id":
            code, hint = "id-invalid", _id_hint(instance)
        elif kind == "minProperties":
            title, shown = "an object with at least one task", "empty"
        elif kind == "type":
            hint = _type_hint(instance, schema.get("type"), path)
        if hint is None:
            shape = _SHAPES.get(str(schema.get("type"))) if kind == "type" else None
            hint = shape or f"write {title}"
        self._say(code, path, f"{_field(path)} must be {title}, not {shown}", hint)
        if rule[:3] == ["$defs", "task", "type"]:
            self._complaint.untyped.add(path)
        else:
            self._complaint.drop.add(path)

    def _schema_at(self, rule: list[str | int]) -> dict[str, Any]:
        at: Any = document_schema(self._added)
        for step in rule:
            at = at[step]
        return cast("dict[str, Any]", at) if isinstance(at, dict) else {}

    def _say(
        self, code: str, path: Path, message: str, hint: str | None, *, key: bool = False
    ) -> None:
        place = Place(self._source, *self._places.nearest(path, key=key), path)
        finding = Finding(code, "error", message, place, hint)
        if finding not in self._complaint.findings:
            self._complaint.findings.append(finding)


def repaired(
    document: dict[str, Any], complaint: Complaint, vocabulary: Vocabulary = PLAIN
) -> dict[str, Any] | None:
    """The document without its wrong parts, so that it can be expanded; None if nothing is left of it.

    What is left may be wrong for want of what was taken out, so it is asked again.
    """
    drop, untyped = complaint.drop, complaint.untyped
    for _ in range(ROUNDS_MAX):
        rest = _without(document, drop, untyped, ())
        again = complain(rest, Places(), "", vocabulary)
        if not again.whole or not rest.get("tasks"):
            return None
        if again.drop <= drop and again.untyped <= untyped:
            return _closed({"id": UNKNOWN_ID, **rest}, ())
        drop, untyped = drop | again.drop, untyped | again.untyped
    return None


def _without(value: Any, drop: set[Path], untyped: set[Path], path: Path) -> Any:
    """Lists keep a gap (None) where something was taken out, so that the others keep their path."""
    if path in untyped and not isinstance(value, dict):
        return {"type": UNKNOWN_TYPE}
    if isinstance(value, dict):
        kept = {
            key: _without(part, drop, untyped, (*path, key))
            for key, part in cast("dict[str, Any]", value).items()
            if (*path, key) not in drop
        }
        return {**kept, "type": UNKNOWN_TYPE} if path in untyped else kept
    if isinstance(value, list):
        return [
            None if (*path, index) in drop else _without(part, drop, untyped, (*path, index))
            for index, part in enumerate(cast("list[Any]", value))
        ]
    return value


def _closed(value: Any, path: Path) -> Any:
    """Gaps closed where null is no value; links keep theirs, as `expand.py` knows how to skip them."""
    if isinstance(value, dict):
        return {
            key: _closed(part, (*path, key)) for key, part in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        gaps = path[-1] in (
            "conditions",
            "onComplete",
            "onError",
            "reads",
            "writes",
            "never",
            "tasks",
        )
        return [
            _closed(part, (*path, index))
            for index, part in enumerate(cast("list[Any]", value))
            if not gaps or part is not None
        ]
    return value


def _what(path: Path) -> str:
    """What stands at a path, for the beginning of a sentence."""
    if not path:
        return "a definition"
    match path[-2:]:
        case ("tasks", str(name)):
            return f"task `{name}`"
        case ("links" | "after", int()):
            return "a link"
        case (_, "after"):
            return "a link"
        case ("inputs", str(name)):
            return f"input `{name}`"
        case (_, "body"):
            return "the task in `body`"
        case _:
            return _field(path)


def _field(path: Path) -> str:
    last = max(index for index, step in enumerate(path) if isinstance(step, str))
    name, *indexes = path[last:]
    return "`" + str(name) + "".join(f"[{index}]" for index in indexes) + "`"


def shown_value(value: Any) -> str:
    """A value as it is named in a sentence."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"text `{value}`" if len(value) <= 40 else f"text `{value[:37]}...`"
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list"
        case _:
            return "an object"


def _type_hint(instance: Any, wanted: Any, path: Path) -> str | None:
    if wanted == "string" and isinstance(instance, (int, float)):
        text = str(instance).lower() if isinstance(instance, bool) else str(instance)
        if isinstance(instance, float):  # 1.10 is read as 1.1, and is another text
            return "put it in quotes, as it is written"
        return f'put it in quotes: `{path[-1]}: "{text}"`'
    if wanted == "boolean" and isinstance(instance, str):
        if instance.lower() in ("yes", "on", "true", "y"):
            return "write `true`"
        if instance.lower() in ("no", "off", "false", "n"):
            return "write `false`"
    return None


def _id_hint(id: str) -> str:
    if len(id) > ID_CHARACTERS_MAX:
        return f"an id has at most {ID_CHARACTERS_MAX} characters"
    hint = "an id begins with a letter or `_` and goes on with letters, digits, `_` and `-`"
    odd = next((c for c in id if ord(c) > 127), None)
    if odd is None:
        return hint
    return f"`{odd}` is not the letter it may look like but {unicodedata.name(odd, f'U+{ord(odd):04X}')}; {hint}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."


def _add(names: list[str]) -> str:
    return f"add `{names[0]}: …`" if len(names) == 1 else "add one of them"


_SHAPES = {
    "object": "write `name: value` for each part, in `{ }` or one in a line, indented under it",
    "array": "write a list: `[a, b]`, or a line that begins with `- ` for each",
    "string": "write text, in quotes where it could be a number, a list or an object",
    "integer": "write a whole number, without quotes",
    "number": "write a number, without quotes",
    "boolean": "write `true` or `false`",
}
"""What to write, by the type that is wanted."""
