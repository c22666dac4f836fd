"""The graph as SVG: every task and finding is in it, marked by number, and nothing of a document breaks out of it."""

from __future__ import annotations

import pathlib
import xml.etree.ElementTree as ET

import pytest

from penstock.cli.picture import svg
from penstock.dsl.finding import Finding, Place, Related
from penstock.dsl.load import load, load_file
from penstock.verify.verification import verify

SVG = "{http://www.w3.org/2000/svg}"
EXAMPLES = sorted((pathlib.Path(__file__).parents[3] / "examples").glob("*.yaml"))
TEXT = """\
id: it
tasks:
  g: {type: gateway, kind: exclusive}
  a: {do: x}
  b: {do: x}
  again: {type: loop, while: iteration < 3, body: {tasks: {in: {do: x}}}, after: [a, b]}
links:
  - {from: g, to: a, when: input.n > 1}
  - {from: g, to: b, when: input.n < 1}
"""


def finding(level: str, *paths: tuple[str | int, ...]) -> Finding:
    first, *others = [Place("it.yaml", 1, 1, path) for path in paths]
    related = tuple(Related("there", place) for place in others)
    return Finding("no-branch", level, "a < b & c \x07", first, "h", None, related)  # type: ignore[arg-type]


def parts(text: str, tag: str, word: str) -> list[ET.Element]:
    return [e for e in ET.fromstring(text).iter(f"{SVG}{tag}") if word in e.get("class", "").split()]  # fmt: skip


def words(text: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(text).iter(f"{SVG}text")]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_drawn_with_all_its_tasks(path: pathlib.Path) -> None:
    definition = load_file(path).definition
    said = words(svg(definition, []))
    for id in definition.tasks:
        assert id in said or f"◇ {id}" in said
    assert "no findings" in said


def test_findings_are_marked_where_they_are() -> None:
    definition = load(TEXT).definition
    findings = [
        finding("error", ("tasks", "g")),
        finding("warning", ("links", 0), ("links", 1), ("tasks", "g", "config")),
        finding("note", ("tasks", "again", "config", "body", "tasks", "in")),
        finding("error", ("outputs", "x")),
        finding("error", ("tasks", "nosuch")),
    ]

    text = svg(definition, findings)

    assert len(parts(text, "rect", "error")) == 1
    assert len(parts(text, "rect", "note")) == 1
    assert len(parts(text, "polyline", "warning")) == 2
    numbers = [e.text for e in parts(text, "text", "number")]
    assert sorted(n or "" for n in numbers) == sorted("122223345" + "1")
    assert any(said.startswith("error[no-branch]: a < b & c") for said in words(text))


def test_a_counterexample_is_told_under_the_picture() -> None:
    loaded = load(TEXT, source="it.yaml")
    said = words(svg(loaded.definition, verify(loaded).findings))
    assert any(each.strip() == '1. start with input {"n":1}' for each in said), said


def test_a_long_id_stays_in_its_box() -> None:
    name = "a" * 200
    text = svg(
        load(f"id: it\ntasks: {{{name}: {{do: x}}, b: {{do: x, after: {name}}}}}\n").definition, []
    )

    shown = next(word for word in words(text) if word.startswith("aaa"))
    assert shown.endswith("…")
    assert len(shown) * 8.5 < max(float(r.get("width", "0")) for r in parts(text, "rect", "box"))


def test_what_is_marked_lies_over_what_is_not() -> None:
    text = svg(load(TEXT).definition, [finding("error", ("links", 0))])

    styles = [line.get("class", "") for line in ET.fromstring(text).iter(f"{SVG}polyline")]
    assert styles == sorted(styles, key=lambda style: "error" in style)
    assert "line error" in styles
