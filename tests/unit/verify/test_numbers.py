"""Numbers at the ends of their 64 bits, and what is proved of them (SPEC 2.1, 3.3, 3.6)."""

from __future__ import annotations

from penstock.core.plan import Plan
from penstock.dsl.load import load
from penstock.verify.rehearsal import rehearse
from penstock.verify.scenario import Scenario
from penstock.verify.verification import Verification, verify


def verified(text: str) -> Verification:
    """Every counterexample is seen to happen."""
    loaded = load("id: it\n" + text, source="it.yaml")
    found = verify(loaded)
    for finding in found.findings:
        if isinstance(finding.counterexample, Scenario):
            rehearsal = rehearse(Plan(loaded.definition), finding.counterexample)
            assert rehearsal.shown, rehearsal.why
    return found


def test_no_counterexample_has_an_integer_beyond_64_bits() -> None:
    found = verified(
        """
inputSchema: {type: object, required: [v], properties: {v: {type: integer}, kids: {type: array, items: {$ref: "#"}}}}
tasks:
  g: {type: gateway, kind: exclusive}
  a: {do: a}
  b: {do: b}
links:
  - {from: g, to: a, when: input.v > 9223372036854775806}
  - {from: g, to: b, when: input.v < 9223372036854775807}
"""
    )
    assert "no-branch" not in [finding.code for finding in found.findings]
    assert found.verdict("3.3") == "proved"
