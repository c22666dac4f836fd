"""A Scenario is data that can be played; nothing is refuted that does not reproduce (SPEC 3)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from penstock.core.plan import Plan
from penstock.dsl.load import Loaded, load
from penstock.verify.branches import check_branches
from penstock.verify.rehearsal import rehearse
from penstock.verify.report import render, render_json, summary
from penstock.verify.scenario import (
    Complete,
    EndChild,
    Fail,
    Fire,
    Scenario,
    Shows,
    Signal,
    Step,
    Submit,
    alone,
    told,
)
from penstock.verify.solver import SPENT
from penstock.verify.verification import QUICK, Budget, Subject, verify

FLOW = """\
id: it
tasks:
  ask: {type: signal, name: go, timeout: 1m}
  pay: {do: pay, after: ask, compensate: refund}
  rest: {type: timer, delay: 2d, after: pay}
  sign: {type: form, schema: {type: object}, after: rest}
  sub: {type: subworkflow, definition: other, after: sign}
  big: {do: x, after: sub, when: "tasks.pay.output > 3"}
  each: {type: map, items: "[1, 2]", body: {do: y}, after: sub}
  again: {type: loop, while: "iteration < 3", body: {type: transform, set: {n: iteration}}, after: each}
data: {n: 0}
"""
STEPS: tuple[Step, ...] = (
    Signal("go", {"a": 1}),
    Complete("pay", 2),
    Fire("rest"),
    Submit("sign", {}),
    EndChild("sub", 7),
    Complete("each[0]/y", 1),
    Complete("each[1]/y", 2),
)


def loaded(text: str = FLOW) -> Loaded:
    return load(text, source="it.yaml")


def played(steps: tuple[Step, ...], shows: Shows, text: str = FLOW) -> str:
    return rehearse(Plan(loaded(text).definition), Scenario(None, steps, shows)).why


def keys() -> list[str]:
    return list(rehearse(Plan(loaded().definition), Scenario(None, STEPS)).tasks)


def test_a_scenario_is_played_to_its_end() -> None:
    body = next(key for key in keys() if key.startswith("each[0]/"))
    steps = tuple(
        Complete(body.replace("[0]", step.key[4:7]), step.output)
        if isinstance(step, Complete) and step.key.startswith("each")
        else step
        for step in STEPS
    )
    assert played(steps, Shows(status="COMPLETED", event="run_completed")) == ""
    assert played(steps, Shows(task="big", task_status="SKIPPED")) == ""
    assert played(steps, Shows(task="again", passes=2)) == ""
    assert "fewer than 9" in played(steps, Shows(task="again", passes=9))
    assert "not FAILED" in played(steps, Shows(status="FAILED"))
    assert "no run_failed" in played(steps, Shows(event="run_failed"))
    assert "not COMPLETED" in played(steps, Shows(task="big", task_status="COMPLETED"))


def test_a_failure_is_seen_and_undone() -> None:
    steps = (
        Signal("go"),
        Complete("pay", 2),
        Fire("rest"),
        Submit("sign", {}),
        EndChild("sub", code="bad"),
    )
    shows = Shows(
        status="FAILED",
        code="child-failed",
        task="sub",
        task_status="FAILED",
        task_code="child-failed",
    )
    assert played(steps, shows) == ""
    assert played(steps, Shows(event="undo_completed")) == ""
    assert played((Fire("ask"),), Shows(status="FAILED", code="timeout")) == ""
    assert played((Signal("go"), Fail("pay", "no-money")), Shows(code="no-money")) == ""
    assert "not `timeout`" in played((Signal("go"), Fail("pay", "no-money")), Shows(code="timeout"))
    assert played((), Shows(task="pay", task_status="never")) == ""


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((Complete("pay"),), "step 1: `pay` is PENDING, not open"),
        ((Signal("go"), Fire("pay")), "step 2: `pay` waits for no time"),
        ((Signal("gone"),), "step 1: signal-undeclared"),
        ((Signal("go"), Complete("pay"), Complete("pay")), "step 3: `pay` is COMPLETED, not open"),
    ],
)
def test_what_cannot_happen_is_said(steps: tuple[Step, ...], why: str) -> None:
    assert played(steps, Shows()).startswith(why)


def test_two_orders_with_different_outcomes() -> None:
    text = """\
id: it
tasks:
  a: {do: x, onComplete: [{set: {n: "1"}}]}
  b: {do: x, onComplete: [{set: {n: "2"}}]}
data: {n: {merge: last}}
"""
    one, other = (Complete("a"), Complete("b")), (Complete("b"), Complete("a"))
    assert played(one, Shows(twin=other, differs="data.n"), text) == ""
    assert played(one, Shows(twin=other), text) == ""
    assert (
        played(one, Shows(twin=other, differs="status"), text)
        == "both orders have the same outcome"
    )


@pytest.mark.parametrize(
    "twin",
    [
        (Complete("b"), Complete("a", 1)),  # another output
        (Complete("b"), Complete("a", True)),
        (Complete("b"),),
        (Complete("b"), Complete("a"), Complete("a")),
        (Complete("b"), Fail("a")),
        (Fail("b"), Complete("a")),
        (),
    ],
)
def test_a_twin_that_is_no_order_of_the_same_steps_shows_no_race(twin: tuple[Step, ...]) -> None:
    text = """\
id: it
tasks:
  a: {do: x, onComplete: [{set: {n: "1"}}]}
  b: {do: x, onComplete: [{set: {n: "2"}}]}
data: {n: {merge: last}}
"""
    why = played((Complete("a"), Complete("b")), Shows(twin=twin), text)
    assert why.startswith("not the same steps in another order: only in the ")


def test_the_same_steps_are_the_same_as_json() -> None:
    one = (Signal("go", {"a": 1, "b": [2]}), Complete("a"), Complete("a"))
    assert alone(one, (Complete("a"), Signal("go", {"b": [2], "a": 1}), Complete("a"))) == []
    assert alone(one, one[:2]) == [Complete("a")]
    assert alone(one, (*one[1:], Signal("go", {"a": True, "b": [2]}))) == [one[0]]


def test_a_large_value_is_found_again() -> None:
    text = """\
id: it
tasks:
  a: {do: x}
  b: {do: x, after: a}
  c: {do: x, after: b, when: "size(tasks.a.output) > 9"}
"""
    steps = (Complete("a", "x" * 5000), Complete("b"), Complete("c", "y" * 5000))
    seen = rehearse(Plan(loaded(text).definition), Scenario(None, steps, Shows(status="COMPLETED")))
    assert seen.shown, seen.why
    assert seen.outcome is not None
    assert seen.outcome.result == "y" * 5000


def test_a_scenario_is_json() -> None:
    scenario = Scenario({"n": 1}, (*STEPS, Fail("a", "bad")), Shows(status="FAILED", twin=STEPS))
    assert msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario) == scenario
    assert [told(step) for step in scenario.steps[:3]] == [
        'signal `go` comes with {"a":1}',
        "`pay` completes with 2",
        "what `rest` waits for is due",
    ]
    assert told(Complete("a", "x" * 99)).endswith("xx...")
    assert len({told(step) for step in scenario.steps}) == len(scenario.steps)


def test_nothing_is_refuted_that_does_not_reproduce() -> None:
    made = loaded()
    subject = Subject(made, Plan(made.definition))
    good = Scenario(None, (Fire("ask"),), Shows(status="FAILED", code="timeout"))
    bad = Scenario(None, (Fire("ask"),), Shows(status="COMPLETED"))
    assert subject.refute("3.2", "no-path", ("tasks", "ask"), "it fails", good, key=True)
    assert not subject.refute("3.2", "no-path", ("tasks", "pay"), "it ends", bad)
    subject.remark("no-path", ("tasks", "big"), "it is big")
    refuted, doubted, remarked = subject.notes.findings
    assert (refuted.level, doubted.level, remarked.level) == ("error", "warning", "note")
    assert refuted.counterexample == good
    assert "the run is FAILED timeout, not COMPLETED" in doubted.message
    assert [proof.verdict for proof in subject.proofs] == ["refuted", "unknown"]
    assert summary(subject.notes.findings) == "1 error, 1 warning, 1 note"
    assert '"do":"fire"' in render_json(subject.notes.findings)
    assert "note[no-path]" in render(subject.notes.findings, FLOW, colour=False)


def test_structure_comes_first() -> None:
    whole = verify(loaded())
    assert whole.errors == []
    assert whole.verdict("3.1") == "proved"
    assert whole.verdict("3.9") is None
    broken = verify(loaded("id: it\ntasks: {a: {do: x}}\nlinks: [{from: a, to: b}]\n"))
    assert [finding.code for finding in broken.errors] == ["dangling-link"]
    assert broken.verdict("3.1") == "refuted"


def test_an_always_link_that_leaves_a_loop_is_no_trouble_for_compensation() -> None:
    found = verify(
        load("""
id: it
tasks:
  a: {do: x, reads: [r]}
  b: {do: x, after: a}
  c: {do: x}
  d: {do: x, after: b}
links:
  - {from: b, to: a, when: iteration < 3}
  - {from: a, to: c, on: always}
""")
    )

    assert found.verdict("3.7") == "unknown"


def test_what_a_branch_behind_a_loop_lacks_is_shown_by_a_run_that_leaves_the_loop() -> None:
    found = verify(
        load("""
id: it
tasks:
  wait:
    type: loop
    until: tasks.look.output.state != "busy"
    max: 4
    body: {tasks: {look: {do: x, outputSchema: {type: object, required: [state], properties: {state: {enum: [busy, done]}}}}}}
  state: {do: x, after: wait, outputSchema: {type: object, properties: {s: {enum: [a, b]}}}}
  way: {type: gateway, kind: exclusive, after: state}
  one: {do: x}
  two: {do: x}
links:
  - {from: way, to: one, when: tasks.state.output.s == "a"}
  - {from: way, to: two, when: tasks.state.output.s == "b"}
""")
    )

    assert "branch-fails" in {finding.code for finding in found.errors}


def test_a_definition_that_starts_itself_is_a_cycle() -> None:
    found = verify(load("id: me\ntasks: {s: {type: subworkflow, definition: me}}"))

    (proof,) = (proof for proof in found.proofs if proof.rule == "3.4")
    assert (proof.verdict, proof.message[:27]) == ("unknown", "`s` starts `me` again, whic")
    assert [each.level for each in found.findings if each.code == "loop-unbounded"] == ["warning"]
    other = verify(load("id: me\ntasks: {s: {type: subworkflow, definition: you}}"))
    assert [proof.verdict for proof in other.proofs if proof.rule == "3.4"] == ["proved"]


def test_one_is_not_told_as_many() -> None:
    text = "id: me\ntasks: {a: {do: x}, b: {do: y, after: a}}"
    told = {proof.rule: proof.message for proof in verify(load(text)).proofs}
    assert told["3.3"].endswith("(0 choices)")
    text = """
id: me
inputSchema: {type: object, required: [n], properties: {n: {type: boolean}}}
tasks: {g: {type: gateway, kind: exclusive, default: b}, a: {do: x}, b: {do: y}}
links: [{from: g, to: a, when: input.n}, {from: g, to: b}]
"""
    told = {proof.rule: proof.message for proof in verify(load(text)).proofs}
    assert told["3.3"].endswith("(1 choice)")


MANY = """\
id: it
inputSchema: {{type: object, required: [a, b], properties: {{a: {{type: integer}}, b: {{type: integer}}}}}}
tasks:
  begin: {{do: x}}
{gates}
links:
{links}
"""


def _many(count: int) -> Loaded:
    """So many choices in a row, over sums of what comes in."""
    gates, links = list[str](), ["  - {from: begin, to: g0}"]
    for n in range(count):
        gates += [
            f"  g{n}: {{type: gateway, config: {{kind: exclusive}}}}",
            f"  y{n}: {{do: x}}",
            f"  n{n}: {{do: x}}",
        ]
        gates += [f"  j{n}: {{type: gateway, join: merge, config: {{kind: exclusive}}}}"]
        links += [f"  - {{from: g{n}, to: y{n}, condition: input.a % {n + 7} * input.b > {n}}}"]
        links += [f"  - {{from: g{n}, to: n{n}, condition: input.a % {n + 7} * input.b <= {n}}}"]
        links += [f"  - {{from: y{n}, to: j{n}}}", f"  - {{from: n{n}, to: j{n}}}"]
        links += [f"  - {{from: j{n}, to: g{n + 1}}}"] if n + 1 < count else []
    return load(MANY.format(gates="\n".join(gates), links="\n".join(links)), source="it.yaml")


def test_all_questions_of_a_verification_are_paid_from_one_purse() -> None:
    """What is cut is unknown, by name, and says so."""
    verification = verify(_many(2), budget=Budget(purse=0, purse_each=0))

    assert verification.errors == []
    assert verification.verdict("3.3") == "unknown"
    warnings = [f for f in verification.findings if f.level == "warning"]
    assert {f.code for f in warnings} >= {"branch-fails", "no-branch"}
    told = [f.message for f in warnings if SPENT in f.message]
    assert any("`g0`" in each for each in told)
    assert any("`g1`" in each for each in told)


def test_a_registration_spends_no_more_than_it_may() -> None:
    """The last question may cost more than is left; none is asked after it."""
    loaded = _many(3)
    subject = Subject(loaded, Plan(loaded.definition), None, replace(QUICK, purse=0, purse_each=1))
    tasks = sum(len(scope.nodes) for scope in subject.plan.scopes.values())
    assert subject.purse.left == tasks
    check_branches(subject)
    left = subject.purse.left
    assert left <= 0

    check_branches(subject)

    assert subject.purse.left == left


def test_very_many_outputs_are_not_looked_at_one_by_one() -> None:
    outputs = ", ".join(f"x{i}: tasks.a.output" for i in range(41))
    loaded = load(f"id: it\ntasks: {{a: {{do: a}}}}\noutputs: {{{outputs}}}\n")

    assert verify(loaded, budget=Budget(tasks=4)).verdict("3.6") == "unknown"
    assert verify(loaded, budget=Budget(tasks=5)).verdict("3.5") == "proved"


def test_a_gateway_of_very_many_branches_is_unknown_by_name() -> None:
    """Each is asked where those before it do not hold, which is work of the square of their number (SPEC 3)."""
    tasks = "".join(f"  t{n}: {{do: x}}\n" for n in range(300))
    links = "".join(f"  - {{from: g, to: t{n}, when: input.n == {n}}}\n" for n in range(1, 300))
    text = f"id: it\ntasks:\n  g: {{type: gateway, kind: exclusive, default: t0}}\n{tasks}links:\n  - {{from: g, to: t0}}\n{links}"
    found = verify(load(text))

    assert found.verdict("3.2") == "unknown"
    assert any("299 conditions at one task, more than 125" in each.message for each in found.findings)  # fmt: skip
