"""JSON or YAML into a Definition, keeping line and column.

Text, then a tree with places (`read_yaml`, `read_json`), then the schema's opinion (`schema`), then the
expansion of shorthand (`expand`), then the model. All that is wrong is said at once. Whether the graph
makes sense is for `verify/structure.py`.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec

from penstock.core.vocabulary import PLAIN, Find, Vocabulary, mentioned_in
from penstock.dsl.complain import complain, repaired, shown_value
from penstock.dsl.expand import expand
from penstock.dsl.finding import Finding, Path, Place, fewer, in_order
from penstock.dsl.read_json import read_json
from penstock.dsl.read_yaml import read_yaml
from penstock.dsl.tree import (
    AS_INPUT,
    BYTES_MAX,
    DEPTH_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    Lines,
    Places,
    Problem,
    Reading,
    is_unicode,
)
from penstock.errors import DefinitionInvalid, shown
from penstock.model.definition import Definition

Format = Literal["json", "yaml"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A definition and where each part of it was written."""

    definition: Definition
    places: Places
    source: str
    findings: tuple[Finding, ...]
    """Warnings only: errors raise."""
    text: str
    document: dict[str, Any]
    """The definition as data, expanded."""
    vocabulary: Vocabulary = PLAIN
    """What plugins add of what it mentions."""

    def place(self, path: Path, *, key: bool = False) -> Place:
        """Where that path of the expanded document, or what is closest to it, was written."""
        return Place(self.source, *self.places.nearest(path, key=key), path)

    def place_inside(self, path: Path, text: str, position: int) -> Place:
        """At a character of a text, if that stands in the source as it is, else where it begins."""
        line, column = self.places.nearest(path)
        if line:
            begin = self.places.offset(path)
            if self.text[begin : begin + 1] in ("'", '"'):
                begin, column = begin + 1, column + 1
            if self.text.startswith(text, begin):
                return Place(self.source, line, column + position, path)
        return self.place(path)


def load(
    text: str, *, source: str = "<text>", format: Format | None = None, plugins: Find | None = None
) -> Loaded:
    """A definition from its text; DefinitionInvalid holds every finding. `plugins` is asked for what it mentions and
    we do not have."""
    return _sure(*attempt(text, source=source, format=format, plugins=plugins), source=source)


def load_file(path: str | pathlib.Path, *, plugins: Find | None = None) -> Loaded:
    """A definition from a file, UTF-8; its ending says whether it is JSON."""
    return _sure(*attempt_file(path, plugins=plugins), source=str(path))


def load_document(
    document: dict[str, Any], *, source: str = "<document>", plugins: Find | None = None
) -> Loaded:
    """A definition from data that was never a text."""
    return _sure(*attempt_document(document, source=source, plugins=plugins), source=source)


def attempt(
    text: str,
    *,
    source: str = "<text>",
    format: Format | None = None,
    plugins: Find | None = None,
) -> tuple[Loaded | None, list[Finding]]:
    """As `load`, but gives what could be made of a wrong document too, and never raises."""
    text = text.removeprefix("\ufeff")
    if len(text) > BYTES_MAX or len(text.encode("utf-8", "replace")) > BYTES_MAX:
        return None, [_too_large(Place(source, 1, 1, ()))]
    if not is_unicode(text):
        message = "half of a surrogate pair stands for no character"
        return None, [Finding("syntax", "error", message, Place(source, 1, 1, ()), "leave it out")]
    reading = _read(text, source, format)
    lines = Lines(text)
    findings = fewer(_finding(problem, lines, source) for problem in reading.problems)
    if reading.root is None:
        if not findings:
            findings = [_not_a_definition(None, Place(source, 1, 1, ()))]
        return None, findings
    places = Places(reading.root, text)
    return _build(reading.root.plain(), places, source, text, findings, plugins)


def attempt_file(
    path: str | pathlib.Path, *, plugins: Find | None = None
) -> tuple[Loaded | None, list[Finding]]:
    """As `load_file`, but raises only what the file system raises."""
    path = pathlib.Path(path)
    with path.open("rb") as file:
        return attempt_bytes(file.read(BYTES_MAX + 1), source=str(path), plugins=plugins)


def attempt_bytes(
    data: bytes, *, source: str, plugins: Find | None = None
) -> tuple[Loaded | None, list[Finding]]:
    """What a file holds; no more than one byte over BYTES_MAX need be read of it."""
    place = Place(source, 1, 1, ())
    if len(data) > BYTES_MAX:
        return None, [_too_large(place)]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: {error.reason} at byte {error.start}"
        return None, [Finding("syntax", "error", message, place, "save the file as UTF-8")]
    return attempt(text, source=source, plugins=plugins)


def attempt_document(
    document: Any, *, source: str = "<document>", plugins: Find | None = None
) -> tuple[Loaded | None, list[Finding]]:
    """As `load_document`, but gives what could be made of a wrong document too, and never raises."""
    problem = _not_json(document)
    if problem is not None:
        path, message = problem
        hint = "give texts, numbers, true, false, null, lists and objects"
        return None, [Finding("wrong-type", "error", message, Place(source, 0, 0, path), hint)]
    return _build(document, Places(), source, "", [], plugins)


def _read(text: str, source: str, format: Format | None) -> Reading:
    if format == "json" or (format is None and source.endswith(".json")):
        return read_json(text)
    if format is None and not source.endswith((".yaml", ".yml")) and text.lstrip()[:1] == "{":
        reading = read_json(text)
        if reading.root is not None:
            return reading
    return read_yaml(text)


def _build(
    document: Any,
    places: Places,
    source: str,
    text: str,
    findings: list[Finding],
    plugins: Find | None,
) -> tuple[Loaded | None, list[Finding]]:
    if not isinstance(document, dict):
        place = Place(source, *places.nearest(()), ())
        return None, [*findings, _not_a_definition(document, place)]
    document = cast("dict[str, Any]", document)
    mentioned = mentioned_in(document) if plugins is not None else None
    vocabulary = plugins(mentioned) if plugins is not None and mentioned else PLAIN
    complaint = complain(document, places, source, vocabulary)
    findings = in_order([*findings, *complaint.findings])
    if complaint.findings:
        rest = repaired(document, complaint, vocabulary) if complaint.whole else None
        if rest is None:
            return None, findings
        document = rest
    full, moved = expand(document, vocabulary)
    definition = msgspec.convert(full, Definition)
    warnings = tuple(finding for finding in findings if finding.level == "warning")
    where = places.led_back(moved)
    loaded = Loaded(definition, where, source, warnings, text, full, vocabulary)
    return loaded, findings


def refused(findings: list[Finding], source: str) -> DefinitionInvalid:
    """The error that carries the findings; its message is the first of them."""
    errors = [finding for finding in findings if finding.level == "error"]
    if not errors:  # refused by `strict` for what is unknown
        errors = [finding for finding in findings if finding.level == "warning"]
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    where = f"{source}:{first.place.line}:{first.place.column}: " if first.place.line else ""
    return DefinitionInvalid(f"{where}{first.message}{more}", list(findings), hint=first.hint)


def _sure(loaded: Loaded | None, findings: list[Finding], *, source: str) -> Loaded:
    if loaded is None or any(finding.level == "error" for finding in findings):
        raise refused(findings, source)
    return loaded


def _finding(problem: Problem, lines: Lines, source: str) -> Finding:
    message = problem.message
    if problem.first_at is not None:
        line, column = lines.position(problem.first_at)
        message += f", first at {line}:{column}"
    place = Place(source, *lines.position(problem.at), ())
    return Finding(problem.code, "error", message, place, problem.hint)


def _too_large(place: Place) -> Finding:
    return Finding(
        "document-too-large",
        "error",
        f"a definition holds at most {BYTES_MAX // 1024 // 1024} MiB",
        place,
        AS_INPUT,
    )


def _not_json(document: Any) -> tuple[Path, str] | None:
    """Where and why data could not have come from JSON."""
    stack: list[tuple[Path, Any]] = [((), document)]
    while stack:
        path, value = stack.pop()
        if len(path) > DEPTH_MAX:
            return path, f"nested deeper than {DEPTH_MAX} levels"
        match value:
            case None | bool():
                continue
            case int() if INTEGER_MIN <= value <= INTEGER_MAX:
                continue
            case float() if value - value == 0:
                continue
            case str() if is_unicode(value):
                continue
            case dict():
                for key, part in cast("dict[Any, Any]", value).items():
                    if not isinstance(key, str) or not is_unicode(key):
                        return path, f"a key must be text, not {shown(key)}"
                    stack.append(((*path, key), part))
            case list():
                stack.extend(((*path, i), part) for i, part in enumerate(cast("list[Any]", value)))
            case _:
                return path, f"JSON can't hold {shown(value)} of type {type(value).__name__}"
    return None


def _not_a_definition(document: Any, place: Place) -> Finding:
    what = "empty" if document is None else shown_value(document)
    return Finding(
        "wrong-type",
        "error",
        f"a definition is an object with `id` and `tasks`, and this is {what}",
        place,
        "begin with `id: NAME`, then `tasks:` and under it `NAME: {do: ACTIVITY}` for each",
    )
