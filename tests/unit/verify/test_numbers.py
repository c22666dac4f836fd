"""Numbers at the ends of their 64 bits, and what is proved of them (SPEC 2.1, 3.3, 3.6)."""

from __future__ import annotations

import pytest

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


N = "inputSchema: {type: object, required: [n, x], properties: {n: {type: integer%s}, x: {type: number%s}}}\n"


def notes(found: Verification) -> list[str]:
    assert not [f for f in found.findings if f.level != "note"]
    return [f.code for f in found.findings if "64 bits" in f.message]


@pytest.mark.parametrize("text", ["input.n - 1", "-input.n", "input.n / -1", "input.n * input.n", "input.x * 1e300", "double(input.n) * 1e300"])  # fmt: skip
def test_arithmetic_that_can_leave_64_bits_is_a_note_and_the_verdict_says_so(text: str) -> None:
    task = f"tasks: {{t: {{type: transform, set: {{y: '{text}'}}}}}}\n"
    found = verified(N % ("", "") + task)
    assert notes(found) == ["expression-fails"]
    assert all(f.counterexample for f in found.findings)
    assert found.verdict("3.6") == "proved"
    (said,) = [proof.message for proof in found.proofs if proof.rule == "3.6"]
    assert said.endswith("as long as numbers stay within 64 bits (1 note)")

    ends = ", minimum: -1000, maximum: 1000"
    found = verified(N % (ends, ends) + task)
    assert notes(found) == []
    assert "64 bits" not in " ".join(proof.message for proof in found.proofs)


def test_a_condition_whose_arithmetic_can_leave_64_bits() -> None:
    choice = """
tasks:
  g: {type: gateway, kind: exclusive}
  a: {do: a}
  b: {do: b}
links:
  - {from: g, to: a, when: input.n + 1 > 5}
  - {from: g, to: b, when: input.n + 1 <= 5}
"""
    found = verified(N % (", minimum: 0", "") + choice)
    assert notes(found)[0] == "branch-fails"
    assert "9223372036854775807" in next(
        f.message for f in found.findings if f.code == "branch-fails"
    )
    assert found.verdict("3.3") == "proved"
    assert not notes(verified(N % (", minimum: 0, maximum: 10", "") + choice))


def test_what_fails_otherwise_with_large_numbers_is_refuted_still() -> None:
    """It was proved, as only numbers up to a million were asked about."""
    task = "tasks: {t: {type: transform, set: {y: '10 / (input.n - 5000000000)'}}}\n"
    found = verified(N % ("", "") + task)
    assert [f.code for f in found.findings if f.level == "error"] == ["expression-fails"]


def test_overflow_alone_is_no_error() -> None:
    """SPEC 3.6: it was one where small inputs come to it."""
    task = "tasks: {t: {type: transform, set: {y: input.n * input.n + 9223372036854775807}}}\n"
    assert notes(verified(N % ("", "") + task)) == ["expression-fails"]
