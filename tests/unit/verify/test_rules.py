"""Definitions that go by rules (SPEC 2.5, 3): findings name the rule, where it stands, and tables that come to a halt are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from penstock.core.plan import Plan
from penstock.dsl.load import load
from penstock.verify.rehearsal import Stage, rehearse
from penstock.verify.scenario import Scenario, Step
from penstock.verify.solver import Answer, Ask, Solver
from penstock.verify.types import Types
from penstock.verify.verification import Verification, verify

TABLE = """\
id: it
orchestration: rule
inputSchema: {type: object, required: [n], properties: {n: {type: integer}, m: {type: integer}}}
tasks:
  score: {do: x, outputSchema: {type: integer}}
  review: {do: x, outputSchema: {enum: [fine, bad, odd]}}
  accept: {do: x, outputSchema: {type: string}}
rules:
  - {when: data.score == null, task: score}
  - {when: data.score != null && data.score > 50, task: review}
  - {when: data.score != null && data.score <= 50 || data.review == "fine", task: accept}
  - {until: data.accept != null, max: 20}
"""


def verified(text: str) -> Verification:
    loaded = load(text, source="it.yaml")
    verification = verify(loaded)
    for finding in verification.errors:
        assert isinstance(finding.counterexample, Scenario)
        shown = rehearse(Plan(loaded.definition), finding.counterexample)
        assert shown.shown, shown.why
    return verification


def test_a_table_that_comes_to_a_halt_is_refuted_where_it_stands() -> None:
    (error,) = verified(TABLE).errors

    assert error.code == "no-branch"
    assert error.message == "no rule fires in some case, and `until` does not hold"
    assert error.hint == "let `until` hold then, or add a rule for this case"
    assert error.place.line == 8


def test_what_is_not_known_of_a_table_is_said_in_its_words() -> None:
    text = TABLE.replace("[fine, bad, odd]", "[fine]")

    verification = verified(text)

    assert verification.errors == []
    assert [f.code for f in verification.findings if f.level == "warning"] == ["no-branch"]
    told = [f.message for f in verification.findings] + [p.message for p in verification.proofs]
    assert not any("rules_" in each or "rules/" in each for each in told), told


def test_a_condition_that_can_fail_is_named_by_its_rule() -> None:
    text = TABLE.replace("[fine, bad, odd]", "[fine]").replace(
        "data.score != null && data.score > 50", "data.score != null && data.score > input.m"
    )
    found = [f for f in verified(text).findings if f.code == "expression-fails"]

    assert [(f.level, f.place.line) for f in found] == [("error", 10)]
    assert found[0].message.startswith("`when` of rule 2 can fail")


def test_a_rule_that_never_fires_is_named() -> None:
    text = TABLE.replace("data.score > 50, task: review", "data.score > 50 && false, task: review")
    found = [f for f in verified(text).findings if f.code == "never-runs"]

    assert found
    assert found[0].place.line == 10
    assert "rule 2" in found[0].message


def chain(count: int) -> str:
    """So many rules, each of which waits for the one before."""
    tasks = [f"  t{n}: {{do: x, outputSchema: {{type: integer}}}}" for n in range(count)]
    rules = [
        f"  - {{when: data.t{n - 1} != null && data.t{n} == null, task: t{n}}}"
        for n in range(1, count)
    ]
    return "\n".join([
        "id: it", "orchestration: rule", "tasks:", *tasks, "rules:",
        "  - {when: data.t0 == null, task: t0}", *rules,
        f"  - {{until: data.t{count - 1} != null, max: 200}}", "",
    ])  # fmt: skip


def test_nothing_is_said_of_what_a_table_became() -> None:
    verification = verified(chain(12))

    assert [f.code for f in verification.findings if f.level != "note"] == ["no-branch"]
    told = [f.message for f in verification.findings] + [p.message for p in verification.proofs]
    assert not any("armed" in each or "hold[" in each for each in told), told
    assert verification.verdict("3.6") == "proved"


def test_a_long_table_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: questions to the solver, and steps of runs that are played."""
    counts = Counter[str]()
    solve, step = Solver.solve, Stage.step

    def solving(self: Solver, asks: Sequence[Ask], types: Types) -> Answer:
        counts["questions"] += 1
        counts["parts"] += sum(len(expression.text) for expression, _ in asks)
        return solve(self, asks, types)

    def stepping(self: Stage, each: Step) -> None:
        counts["steps"] += 1
        step(self, each)

    monkeypatch.setattr(Solver, "solve", solving)
    monkeypatch.setattr(Stage, "step", stepping)
    verified(chain(40))

    assert counts["questions"] <= 60
    assert counts["parts"] <= 60 * 100
    assert counts["steps"] <= 2_000


def test_a_condition_that_can_fail_is_quoted_alone() -> None:
    text = TABLE.replace("[fine, bad, odd]", "[fine]").replace(
        "data.score != null && data.score > 50", "data.score != null && data.score > input.m"
    )
    (found,) = [f for f in verified(text).findings if f.code == "expression-fails"]

    assert found.message.endswith("can fail: `data.score != null && data.score > input.m`")
