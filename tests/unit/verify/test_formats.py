"""The report with counterexamples, several places and proofs; SARIF 2.1.0 in the structure that its schema demands."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import msgspec

from penstock.dsl.finding import Finding, Place, Related
from penstock.dsl.load import load
from penstock.verify.report import as_data, render, render_json, render_proofs, shown
from penstock.verify.sarif import sarif
from penstock.verify.scenario import Complete, Fail, Scenario, Shows
from penstock.verify.telling import comes_to, history
from penstock.verify.verification import Proof, verify

TEXT = """\
id: it
tasks:
  a: {do: x, writes: [n]}
  b: {do: x}
  c: {do: x}
  d: {do: x}
  e: {do: x, reads: [n]}
"""
STEPS = (Complete("a", {"n": 1}), Fail("b", "broke"))
SCENARIO = Scenario({"n": 1}, STEPS, Shows(status="FAILED", code="broke"))
RACE = Finding(
    "race", "error", "`a` and `e` touch `n`", Place("it.yaml", 3, 3, ("tasks", "a")), "order them",
    Scenario({}, STEPS, Shows(twin=STEPS[::-1], differs="data.n")),
    (Related("reads it", Place("it.yaml", 7, 3, ("tasks", "e"))),),
)  # fmt: skip

GOLDEN = """\
error[race]: `a` and `e` touch `n`
  --> it.yaml:3:3
  |
3 |   a: {do: x, writes: [n]}
  |   ^
  :
7 |   e: {do: x, reads: [n]}
  |   - reads it
counterexample 1:
  1. start with input {}
  2. `a` completes with {"n":1}
  3. `b` fails with `broke`
  → `data.n` is another in the order 1, 3, 2
  see it happen: penstock verify it.yaml --run 1
hint: order them
"""


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_finding_with_two_places_and_a_counterexample() -> None:
    replay = "penstock verify it.yaml --run"

    assert render([RACE], TEXT, replay=replay) == GOLDEN
    coloured = render([RACE], TEXT, replay=replay, colour=True)
    assert coloured.count("\x1b[") > 10
    assert plain(coloured) == GOLDEN


def test_places_that_are_near_or_in_one_line_share_what_they_can() -> None:
    near = Finding(
        "race", "warning", "m", Place("it.yaml", 4, 3, ()), None, None,
        (Related("this", Place("it.yaml", 4, 7, ())), Related("that", Place("it.yaml", 5, 3, ()))),
    )  # fmt: skip
    assert render([near], TEXT).splitlines()[2:] == [
        "  |",
        "4 |   b: {do: x}",
        "  |   ^",
        "  |       -- this",
        "5 |   c: {do: x}",
        "  |   - that",
    ]
    nowhere = Finding("race", "note", "m", Place("d", 0, 0, ("tasks", "a")), None, None, (
        Related("that", Place("d", 0, 0, ("tasks", "b"))),
    ))  # fmt: skip
    assert render([nowhere]) == "note[race]: m\n  --> d: tasks.a\n  --- d: tasks.b: that\n"


def test_counterexamples_are_numbered_in_the_order_of_the_report() -> None:
    bare = Finding("no-end", "error", "m", Place("it.yaml", 1, 1, ()))
    said = render([bare, RACE, bare, RACE], TEXT)
    assert re.findall(r"counterexample \d", said) == ["counterexample 1", "counterexample 2"]
    assert shown([bare, RACE, bare]) == [RACE]


def test_what_a_scenario_comes_to_is_told() -> None:
    cases = [
        (Shows(status="FAILED", code="no-end"), "the run is FAILED with `no-end`"),
        (Shows(task="a", task_status="never", status="COMPLETED"), "`a` did not run, the run is COMPLETED"),
        (Shows(task="a", task_status="FAILED", task_code="x"), "`a` is FAILED with `x`"),
        (Shows(task="again", passes=5), "`again` has begun 5 passes and goes on"),
        (Shows(event="DataConflicted"), "its history has DataConflicted"),
        (Shows(), "the run has come so far"),
        (Shows(twin=STEPS[::-1]), "the outcome is another in the order 1, 3, 2"),
        (Shows(twin=(Complete("c"),), differs="status"), "the status is another if instead: `c` completes with null"),
    ]  # fmt: skip
    for shows, words in cases:
        assert comes_to(Scenario({}, STEPS, shows)) == words


def test_a_long_history_is_cut_in_its_middle() -> None:
    lines = history(Scenario("x" * 500, tuple(Complete(f"t{n}") for n in range(40)), Shows()))
    assert len(lines) == 14
    assert lines[6] == "   … 29 more …"
    assert lines[-2].startswith("41. `t39`")
    assert len(lines[0]) < 250


def test_proofs_are_a_line_a_rule_with_the_worst_first_said() -> None:
    proofs = [
        Proof("3.1", "proved", "right"), Proof("3.2", "refuted", "one"), Proof("3.2", "unknown", "two"),
        Proof("3.2", "refuted", "three"), Proof("3.3", "unknown", "z3 is not installed"),
    ]  # fmt: skip
    text = (
        "proved   structure:    right\n"
        "refuted  behaviour:    one (and 1 more)\n"
        "unknown  branches:     z3 is not installed"
    )
    assert render_proofs(proofs) == text
    assert plain(render_proofs(proofs, colour=True)) == text


def test_json_has_everything_and_a_scenario_that_can_be_read_back() -> None:
    data = json.loads(render_json([RACE], [Proof("3.5", "refuted", "m")]))
    assert data["proofs"] == [
        {"rule": "3.5", "name": "races", "verdict": "refuted", "message": "m"}
    ]
    (finding,) = data["findings"]
    assert finding["related"] == [
        {"message": "reads it", "source": "it.yaml", "line": 7, "column": 3, "path": ["tasks", "e"]}
    ]
    assert msgspec.convert(finding["counterexample"], Scenario) == RACE.counterexample
    assert json.loads(msgspec.json.encode(as_data(RACE))) == finding


# What the schema of SARIF 2.1.0 requires of the objects that we write.
MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}  # fmt: skip
LOCATION: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": -1},
        "message": MESSAGE,
        "physicalLocation": {
            "type": "object",
            "additionalProperties": False,
            "anyOf": [{"required": ["address"]}, {"required": ["artifactLocation"]}],
            "properties": {
                "artifactLocation": {"type": "object", "properties": {"uri": {"type": "string", "format": "uri-reference"}}, "additionalProperties": False},
                "region": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"startLine": {"type": "integer", "minimum": 1}, "startColumn": {"type": "integer", "minimum": 1}},
                },
            },
        },
        "logicalLocations": {"type": "array", "uniqueItems": True, "items": {"type": "object", "required": ["fullyQualifiedName"], "additionalProperties": False, "properties": {"fullyQualifiedName": {"type": "string"}}}},
    },
}  # fmt: skip
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"enum": ["2.1.0"]},
        "runs": {"type": "array", "minItems": 0, "items": {
            "type": "object",
            "required": ["tool"],
            "additionalProperties": False,
            "properties": {
                "tool": {"type": "object", "required": ["driver"], "additionalProperties": False, "properties": {"driver": {
                    "type": "object",
                    "required": ["name"],
                    "additionalProperties": False,
                    "properties": {
                        "name": {"type": "string"},
                        "semanticVersion": {"type": "string"},
                        "rules": {"type": "array", "uniqueItems": True, "items": {
                            "type": "object", "required": ["id"], "additionalProperties": False,
                            "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "shortDescription": MESSAGE, "help": MESSAGE},
                        }},
                    },
                }}},
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "artifacts": {"type": "array", "uniqueItems": True, "items": {"type": "object", "properties": {"location": {"type": "object"}}}},
                "results": {"type": "array", "items": {
                    "type": "object",
                    "required": ["message"],
                    "additionalProperties": False,
                    "properties": {
                        "ruleId": {"type": "string"},
                        "ruleIndex": {"type": "integer", "minimum": -1},
                        "level": {"enum": ["none", "note", "warning", "error"]},
                        "message": MESSAGE,
                        "locations": {"type": "array", "items": LOCATION},
                        "relatedLocations": {"type": "array", "uniqueItems": True, "items": LOCATION},
                        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                        "codeFlows": {"type": "array", "items": {
                            "type": "object", "required": ["threadFlows"], "additionalProperties": False,
                            "properties": {"message": MESSAGE, "threadFlows": {"type": "array", "minItems": 1, "items": {
                                "type": "object", "required": ["locations"], "additionalProperties": False,
                                "properties": {"locations": {"type": "array", "minItems": 1, "items": {
                                    "type": "object", "additionalProperties": False, "properties": {"location": LOCATION},
                                }}},
                            }}},
                        }},
                        "properties": {"type": "object"},
                    },
                }},
                "properties": {"type": "object"},
            },
        }},
    },
}  # fmt: skip


def log(findings: list[Finding], proofs: list[Proof]) -> dict[str, Any]:
    found = sarif(
        findings, {"a b/it.yaml": proofs}, version="1.2.3", explain=lambda code: "", page=lambda code: f"# {code}\n"
    )  # fmt: skip
    written: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return written


def test_sarif_has_the_structure_that_its_schema_demands() -> None:
    nowhere = Finding("no-end", "warning", "m", Place("/x/ü.yaml", 0, 0, ()))
    note = Finding("race", "note", "m", Place("it.yaml", 1, 1, ("links", 2)), "h")

    found = log([RACE, nowhere, note], [Proof("3.5", "refuted", "m")])

    jsonschema_rs.validator_for(SARIF, validate_formats=True).validate(found)
    (run,) = found["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["race", "no-end"]
    assert [(r["ruleId"], r["ruleIndex"], r["level"]) for r in run["results"]] == [
        ("race", 0, "error"), ("no-end", 1, "warning"), ("race", 0, "note"),
    ]  # fmt: skip
    assert run["artifacts"] == [{"location": {"uri": "a%20b/it.yaml"}}]
    place = run["results"][1]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "file:///x/%C3%BC.yaml"}}
    flow = run["results"][0]["codeFlows"][0]["threadFlows"][0]["locations"]
    assert flow[1]["location"]["message"]["text"] == '2. `a` completes with {"n":1}'
    assert run["results"][0]["relatedLocations"][0]["message"]["text"] == "reads it"
    assert run["properties"]["proofs"][0]["verdict"] == "refuted"


def test_sarif_of_a_real_verification() -> None:
    loaded = load("id: it\ntasks:\n  a: {do: x}\n  b: {do: x}\nlinks:\n  - {from: a, to: b, when: input.ok}\n", source="it.yaml")  # fmt: skip
    verification = verify(loaded)

    found = log(verification.findings, verification.proofs)

    jsonschema_rs.validator_for(SARIF, validate_formats=True).validate(found)
    assert any(r["ruleId"] == "no-end" and r["codeFlows"] for r in found["runs"][0]["results"])
    assert log([], [])["runs"][0]["results"] == []
