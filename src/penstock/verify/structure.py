"""Structure: what can be seen of a definition without running it (SPEC 3.1).

Graph first (links, gateways, paths, cycles: `graph.py`), then what each task refers to (`references.py`).
`examine_*` go from text, file or data to everything that is to be said; registration and the command line
use them. `load` alone says only what is wrong with the document.
"""

from __future__ import annotations

import pathlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock.core.vocabulary import Find
from penstock.dsl.finding import Finding, fewer, in_order
from penstock.dsl.load import (
    Format,
    Loaded,
    attempt,
    attempt_bytes,
    attempt_document,
    attempt_file,
    refused,
)
from penstock.verify.added import check_added
from penstock.verify.graph import check_graph
from penstock.verify.references import Reader, check_definition, check_references
from penstock.verify.scopes import Notes, scopes_of
from penstock.verify.triggers import check_triggers

_GRAPH_CODES = ("duplicate-id", "id-invalid")


@dataclass(frozen=True, slots=True)
class Examined:
    """What was made of a definition, and all that is to be said about it, in the order of the text."""

    loaded: Loaded | None
    findings: list[Finding]
    source: str

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]

    def accepted(self) -> Loaded:
        """The definition; DefinitionInvalid with every finding if there is an error."""
        if self.loaded is None or self.errors:
            raise refused(self.findings, self.source)
        return self.loaded


def examine_text(
    text: str,
    *,
    source: str = "<text>",
    format: Format | None = None,
    activities: Collection[str] | None = None,
    plugins: Find | None = None,
) -> Examined:
    """Read, expand and check; with `activities`, also that each one named exists; `plugins` has what we do not."""
    read = attempt(text, source=source, format=format, plugins=plugins)
    return _examined(*read, source, activities)


def examine_file(
    path: str | pathlib.Path,
    *,
    activities: Collection[str] | None = None,
    plugins: Find | None = None,
) -> Examined:
    return _examined(*attempt_file(path, plugins=plugins), str(path), activities)


def examine_bytes(
    data: bytes,
    *,
    source: str,
    activities: Collection[str] | None = None,
    plugins: Find | None = None,
) -> Examined:
    """What a file holds."""
    return _examined(*attempt_bytes(data, source=source, plugins=plugins), source, activities)


def examine_document(
    document: dict[str, Any],
    *,
    source: str = "<document>",
    activities: Collection[str] | None = None,
    plugins: Find | None = None,
) -> Examined:
    read = attempt_document(document, source=source, plugins=plugins)
    return _examined(*read, source, activities)


def check(
    loaded: Loaded, *, activities: Collection[str] | None = None, partial: bool = False
) -> list[Finding]:
    """Findings about the structure; `partial` if links are missing because they could not be read."""
    notes = Notes(loaded)
    reader = Reader(notes)
    for scope in scopes_of(loaded):
        looping = check_graph(scope, notes, partial=partial)
        check_references(scope, reader, activities, looping)
        check_added(scope, notes)
    check_definition(reader)
    check_triggers(notes)
    return in_order(notes.findings)


def _examined(
    loaded: Loaded | None,
    findings: list[Finding],
    source: str,
    activities: Collection[str] | None,
) -> Examined:
    if loaded is None:
        return Examined(None, findings, source)
    partial = any(
        finding.code in _GRAPH_CODES or {"links", "after"} & set(finding.place.path)
        for finding in findings
        if finding.level == "error"
    )
    found = check(loaded, activities=activities, partial=partial)
    return Examined(loaded, fewer([*findings, *found]), source)
