"""Findings as SARIF 2.1.0, which code hosts and editors read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from penstock.dsl.finding import Finding, Place
from penstock.verify.report import path_text, proof_data
from penstock.verify.scenario import Scenario
from penstock.verify.telling import history
from penstock.verify.verification import Proof

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
VERSION = "2.1.0"


def sarif(
    findings: Sequence[Finding],
    proofs: Mapping[str, Sequence[Proof]],
    *,
    version: str,
    explain: Callable[[str], str],
    page: Callable[[str], str] | None = None,
) -> dict[str, Any]:
    """A log with one run of the tool; `proofs` by source, `explain` gives the sentence of a code, `page` all of it."""
    codes = list(dict.fromkeys(finding.code for finding in findings))
    rules: list[dict[str, Any]] = []
    for code in codes:
        rule = {"id": code, "name": _pascal(code), "shortDescription": {"text": explain(code) or code}}  # fmt: skip
        text = page(code) if page is not None else ""
        rules.append({**rule, "help": {"text": text, "markdown": text}} if text else rule)
    run = {
        "tool": {"driver": {"name": "penstock", "semanticVersion": version, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": {"uri": _uri(source)}} for source in proofs],
        "results": [_result(finding, codes.index(finding.code)) for finding in findings],
        "properties": {
            "proofs": [
                {"source": source, **proof_data(proof)} for source in proofs for proof in proofs[source]
            ]
        },
    }  # fmt: skip
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _result(finding: Finding, index: int) -> dict[str, Any]:
    text = finding.message + (f". {finding.hint}" if finding.hint else "")
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.level,
        "message": {"text": text},
        "locations": [_location(finding.place)],
        "partialFingerprints": {
            "penstockPlace/v1": f"{finding.code}:{path_text(finding.place.path)}"
        },
    }
    if finding.related:
        result["relatedLocations"] = [
            {"id": number, **_location(other.place), "message": {"text": other.message}}
            for number, other in enumerate(finding.related, 1)
        ]
    if isinstance(finding.counterexample, Scenario):
        steps = history(finding.counterexample)
        location = _location(finding.place)
        result["codeFlows"] = [
            {
                "message": {"text": "counterexample"},
                "threadFlows": [
                    {
                        "locations": [
                            {"location": {**location, "message": {"text": step}}} for step in steps
                        ]
                    }
                ],
            }
        ]
    if finding.counterexample is not None:
        result["properties"] = {"counterexample": msgspec.to_builtins(finding.counterexample)}
    return result


def _location(place: Place) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(place.source)}}
    if place.line:
        physical["region"] = {"startLine": place.line, "startColumn": max(1, place.column)}
    location: dict[str, Any] = {"physicalLocation": physical}
    if place.path:
        location["logicalLocations"] = [{"fullyQualifiedName": path_text(place.path)}]
    return location


def _uri(source: str) -> str:
    """A path as a reference, relative where it is."""
    path = source.replace("\\", "/")
    return f"file://{quote(path)}" if path.startswith("/") else quote(path)


def _pascal(code: str) -> str:
    return "".join(word.capitalize() for word in code.split("-"))
