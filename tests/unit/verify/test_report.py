"""Findings as people and machines see them."""

from __future__ import annotations

import json
import re

from penstock.dsl.finding import Finding, Place
from penstock.verify.report import render, render_json, render_proofs, summary
from penstock.verify.structure import examine_document, examine_text
from penstock.verify.verification import Proof

THREE_MISTAKES = """\
id: order
tasks:
  charge:
    do: charge
    retri: 5
  ship:
    do: ship
    after: chrge
  approve:
    type: signal
    after: ship
    when: tasks.charge.ouput.ok
"""

GOLDEN = """\
error[unknown-field]: no field `retri` in a task of type activity
  --> order.yaml:5:5
  |
5 |     retri: 5
  |     ^^^^^
hint: did you mean `retry`?

error[dangling-link]: no task `chrge`
  --> order.yaml:8:12
  |
8 |     after: chrge
  |            ^^^^^
hint: did you mean `charge`?

error[unknown-name]: a task has no `ouput`
  --> order.yaml:12:24
   |
12 |     when: tasks.charge.ouput.ok
   |                        ^^^^^
hint: did you mean `output`?
"""


def finding(message: str, line: int, column: int, hint: str | None = None) -> Finding:
    return Finding("syntax", "error", message, Place("x.yaml", line, column, ()), hint)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_three_mistakes_are_shown_as_a_compiler_shows_them() -> None:
    found = examine_text(THREE_MISTAKES, source="order.yaml").findings

    assert render(found, THREE_MISTAKES) == GOLDEN
    assert summary(found) == "3 errors"


def test_colour_changes_nothing_but_the_colour() -> None:
    found = examine_text(THREE_MISTAKES, source="order.yaml").findings

    coloured = render(found, THREE_MISTAKES, colour=True)

    assert coloured != GOLDEN
    assert plain(coloured) == GOLDEN


def test_machines_get_the_same_as_json() -> None:
    (first, *_) = json.loads(
        render_json(examine_text(THREE_MISTAKES, source="order.yaml").findings)
    )["findings"]

    assert first == {
        "code": "unknown-field",
        "level": "error",
        "message": "no field `retri` in a task of type activity",
        "hint": "did you mean `retry`?",
        "source": "order.yaml",
        "line": 5,
        "column": 5,
        "path": ["tasks", "charge", "retri"],
        "counterexample": None,
        "related": [],
    }


def test_without_a_text_the_path_is_shown() -> None:
    found = examine_document({"id": "it", "tasks": {"a": {"do": "a", "after": ["b"]}}}).findings

    assert render(found) == (
        "error[dangling-link]: no task `b`\n  --> <document>: links[0].from\n"
        "hint: there are `a`, `end` and `start`\n"
    )


def test_a_line_that_is_not_there_is_not_shown() -> None:
    assert render([finding("odd", 7, 1)], "a\n") == "error[syntax]: odd\n  --> x.yaml:7:1\n"
    assert render([], "a") == ""


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "x" * 500 + " HERE " + "y" * 500

    shown = render([finding("there", 1, 502)], text).splitlines()

    assert shown[3].startswith("1 | ...xxx")
    assert len(shown[3]) < 140
    assert shown[3][shown[4].index("^") : shown[4].rindex("^") + 1] == "HERE"


def test_marks_stand_under_wide_characters() -> None:
    shown = render([finding("there", 1, 5)], "世界: abc").splitlines()

    assert shown[4] == "  |       ^^^"


def test_a_document_cannot_write_to_the_terminal() -> None:
    text = "a:\t\x1b[2J\x07 b"

    shown = render([finding("bad \x1b[31m\nname", 1, 4, "a\rb")], text)

    assert "\x1b" not in shown
    assert "\\x1b[2J\\x07 b" in shown
    assert shown.startswith("error[syntax]: bad \\x1b[31m\\nname\n")
    assert "hint: a\\rb" in shown


def test_a_counterexample_is_shown() -> None:
    found = Finding("no-path", "warning", "m", Place("x", 0, 0, ()), None, {"input": 5})

    assert render([found]) == 'warning[no-path]: m\n  --> x\ncounterexample: {"input":5}\n'


def test_the_summary_counts() -> None:
    warning = Finding("no-path", "warning", "m", Place("x", 0, 0, ()))

    assert summary([]) == "no findings"
    assert summary([warning, finding("x", 1, 1)]) == "1 error, 1 warning"


def test_what_is_too_long_for_a_line_is_shortened_for_people_alone() -> None:
    message = f"it can fail: `{'a + ' * 100}a`: no run was found"
    finding = Finding("expression-fails", "warning", message, Place("it.yaml", 0, 0, ()))

    for line in (
        render([finding]).splitlines()[0],
        render_proofs([Proof("3.6", "unknown", message)]),
    ):
        assert len(line) < 350
        assert " … " in line
        assert line.endswith("no run was found")
    assert json.loads(render_json([finding]))["findings"][0]["message"] == message
