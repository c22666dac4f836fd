"""Maps in maps: what an item of the inner one is follows from the schema of the outer one's (SPEC 2.2, 3.2, 3.3, 3.6)."""

from __future__ import annotations

import pytest

from penstock.core.plan import Plan
from penstock.dsl.load import load
from penstock.verify.rehearsal import rehearse
from penstock.verify.scenario import Scenario
from penstock.verify.verification import Verification, verify

TEXT = """\
id: nested
inputSchema:
  type: object
  required: [orders]
  properties:
    orders:
      type: array
      items:
        type: object
        required: [ORDER]
        properties:
          pieces: {type: string}
          lines:
            type: array
            items:
              type: object
              required: [LINE]
              properties: {pieces: {type: integer, minimum: 0, maximum: 9}, parts: {type: array, items: {type: integer}}}
tasks:
  orders:
    type: map
    items: input.orders
    body:
      tasks:
        lines: {type: map, items: item.lines, WHEN body: {tasks: {way: {type: gateway, kind: exclusive}, few: {do: a}, many: {do: b}, PARTS}, links: [{from: way, to: few, when: FEW}, {from: way, to: many, when: item.pieces > 3}]}}
"""  # fmt: skip
GOOD = {
    "ORDER": "lines, pieces", "LINE": "pieces, parts", "WHEN": "",
    "PARTS": "parts: {type: map, after: [few, many], items: item.parts, body: {type: transform, set: {last: item / 2}}}",
    "FEW": "item.pieces <= 3",
}  # fmt: skip


def verified(**changes: str) -> tuple[Verification, Plan]:
    text = TEXT
    for word, value in {**GOOD, **changes}.items():
        text = text.replace(word, value)
    loaded = load(text, source="nested.yaml")
    return verify(loaded), Plan(loaded.definition)


def test_what_is_in_lists_of_lists_is_known() -> None:
    verification, _ = verified()
    assert [verification.verdict(rule) for rule in ("3.3", "3.6")] == ["proved"] * 2

    verification, _ = verified(PARTS="pack: {do: c, after: [few, many]}")
    assert [verification.verdict(rule) for rule in ("3.2", "3.3", "3.6")] == ["proved"] * 3
    assert {each.level for each in verification.findings} == {"note"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"FEW": "item.pieces < 3"}, "no-branch"),
        ({"FEW": "10 / item.pieces > 3"}, "branch-fails"),
        ({"LINE": "parts"}, "branch-fails"),
        ({"ORDER": "pieces"}, "expression-fails"),
        ({"PARTS": GOOD["PARTS"].replace("item / 2", "2 / item")}, "expression-fails"),
    ],
)
def test_what_goes_wrong_in_there_is_shown(changes: dict[str, str], code: str) -> None:
    verification, plan = verified(**changes)

    found = [each for each in verification.findings if each.code == code]
    assert [each.level for each in found] == ["error"], verification.findings
    assert isinstance(found[0].counterexample, Scenario)
    assert rehearse(plan, found[0].counterexample).shown


def test_a_condition_on_the_outer_item_says_nothing_of_the_inner() -> None:
    verification, _ = verified(WHEN='when: item.pieces == "7",', FEW="item.pieces < 3")

    assert "no-branch" in {each.code for each in verification.findings}
