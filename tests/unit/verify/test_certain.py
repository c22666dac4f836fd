"""What is over for sure when a task begins, or the run ends: proved where it is, refuted or unknown where it is not."""

from __future__ import annotations

from typing import Literal, TypedDict

import pytest

from penstock.core.plan import Plan
from penstock.dsl.load import load
from penstock.sdk.signatures import signature_of
from penstock.verify.rehearsal import rehearse
from penstock.verify.scenario import Scenario
from penstock.verify.verification import Verification, verify

LEVEL = "outputSchema: {type: object, required: [level], properties: {level: {enum: [gold, new]}}}"
INPUT = "inputSchema: {type: object, required: [x], properties: {x: {type: boolean}}}"


def verified(text: str) -> Verification:
    loaded = load(f"id: it\n{text}", source="it.yaml")
    verification = verify(loaded)
    for finding in verification.findings:
        if finding.level == "error":
            assert isinstance(finding.counterexample, Scenario)
            shown = rehearse(Plan(loaded.definition), finding.counterexample)
            assert shown.shown, shown.why
    return verification


def _reading(before: str, links: str = "") -> str:
    """A choice and an input that read `customer`, behind a join."""
    return f"""
{INPUT}
tasks:
  order: {{do: x}}
{before}
  level: {{type: gateway, kind: exclusive, default: rest, after: charge}}
  gift: {{do: x, inputs: {{level: {{from: customer, path: $.level}}}}}}
  rest: {{do: x}}
links:
  - {{from: level, to: gift, when: tasks.customer.output.level == "gold"}}
  - {{from: level, to: rest}}
{links}"""


SURE = {
    "a merge of ways that are all taken": f"""
  customer: {{do: x, after: order, {LEVEL}}}
  price: {{do: x, after: order}}
  charge: {{do: x, after: [customer, price]}}""",
    "an `all` join": f"""
  customer: {{do: x, after: order, {LEVEL}}}
  price: {{do: x, after: order}}
  charge: {{do: x, join: all, after: [customer, price]}}""",
    "a way of several tasks": f"""
  first: {{do: x, after: order}}
  customer: {{do: x, after: first, {LEVEL}}}
  next: {{do: x, after: customer}}
  price: {{do: x, after: order}}
  charge: {{do: x, after: [next, price]}}""",
    "behind a choice, whichever way it goes": f"""
  split: {{type: gateway, kind: event, after: order}}
  left: {{type: signal, name: left, after: split}}
  right: {{type: timer, delay: 1s, after: split}}
  customer: {{do: x, after: [left, right], {LEVEL}}}
  price: {{do: x, after: order}}
  charge: {{do: x, after: [customer, price]}}""",
    "a join within a join": f"""
  a: {{do: x, after: order}}
  b: {{do: x, after: order}}
  customer: {{do: x, join: all, after: [a, b], {LEVEL}}}
  price: {{do: x, after: order}}
  charge: {{do: x, after: [customer, price]}}""",
}


@pytest.mark.parametrize("before", SURE.values(), ids=SURE)
def test_what_lies_on_a_way_that_is_surely_taken_is_there(before: str) -> None:
    verification = verified(_reading(before))

    assert [f for f in verification.findings if f.level != "note"] == []
    assert verification.verdict("3.3") == verification.verdict("3.6") == "proved"


NOT_SURE = {
    "a way with a condition": (
        f"""
  customer: {{do: x, {LEVEL}}}
  price: {{do: x, after: order}}
  charge: {{do: x, after: [customer, price]}}""",
        "  - {from: order, to: customer, when: input.x}\n",
    ),
    "a failure that is taken care of": (
        f"""
  customer: {{do: x, after: order, {LEVEL}}}
  price: {{do: x, after: order}}
  sorry: {{do: x}}
  charge: {{do: x, after: [customer, price]}}""",
        "  - {from: customer, to: sorry, on: error}\n",
    ),
    "the first of both": (
        f"""
  customer: {{do: x, after: order, {LEVEL}}}
  price: {{do: x, after: order}}
  charge: {{do: x, join: any, after: [customer, price]}}""",
        "",
    ),
    "one that is skipped": (
        f"""
  customer: {{do: x, after: order, conditions: [{{expression: input.x}}], {LEVEL}}}
  price: {{do: x, after: order}}
  charge: {{do: x, after: [customer, price]}}""",
        "",
    ),
    "what goes on after a failure": (
        f"""
  customer: {{do: x, after: order, {LEVEL}}}
  price: {{do: x, after: order}}
  charge: {{do: x, after: customer}}""",
        "  - {from: price, to: charge, on: always}\n",
    ),
    "one that another cancels": (
        f"""
  customer: {{do: x, after: order, {LEVEL}}}
  price: {{do: x, after: order}}
  stop: {{type: cancel, tasks: [customer], after: price}}
  charge: {{do: x, after: [customer, stop]}}""",
        "",
    ),
}


@pytest.mark.parametrize(("before", "links"), NOT_SURE.values(), ids=NOT_SURE)
def test_what_may_be_passed_by_is_not(before: str, links: str) -> None:
    verification = verified(_reading(before, links))

    assert verification.verdict("3.3") != "proved"


def test_outputs_are_asked_whichever_end_was_reached() -> None:
    text = f"""
{INPUT}
tasks:
  start: {{type: start}}
  split: {{type: gateway, kind: exclusive, default: b, after: start}}
  a: {{do: x, {LEVEL}}}
  b: {{do: x}}
  one: {{type: end, after: a}}
  two: {{type: end, after: b}}
links:
  - {{from: split, to: a, when: input.x}}
  - {{from: split, to: b}}
outputs: {{level: tasks.a.output.level}}
"""
    verification = verified(text)
    assert [f.code for f in verification.errors] == ["expression-fails"]
    assert (
        verification.verdict("3.2") == "proved"
    )  # a run that completes is looked for among several
    guarded = "tasks.a.status == 'COMPLETED' ? tasks.a.output.level : ''"
    assert verified(text.replace("tasks.a.output.level", f'"{guarded}"')).errors == []


def test_outputs_of_tasks_that_surely_run_are_there() -> None:
    text = f"""
{INPUT}
tasks:
  order: {{do: x}}
  split: {{type: gateway, kind: exclusive, default: ship, after: order}}
  gift: {{do: x}}
  ship: {{do: x, after: gift, {LEVEL}}}
  bill: {{do: x, after: order, {LEVEL}}}
links:
  - {{from: split, to: gift, when: input.x}}
  - {{from: split, to: ship}}
outputs: {{ship: tasks.ship.output.level, bill: tasks.bill.output.level}}
"""
    verification = verified(text)

    assert [f for f in verification.findings if f.level != "note"] == []
    assert verification.verdict("3.6") == "proved"


def test_the_output_of_a_skipped_task_is_null_whatever_its_schema() -> None:
    """It was refuted that `b` runs, by a run in which it did."""
    verification = verified(f"""
{INPUT}
tasks:
  a: {{do: x, conditions: [{{expression: input.x}}], outputSchema: {{type: object}}}}
  split: {{type: gateway, kind: exclusive, default: c, after: a}}
  b: {{do: x}}
  c: {{do: x}}
links:
  - {{from: split, to: b, when: tasks.a.output == null}}
  - {{from: split, to: c}}
""")
    assert verification.verdict("3.2") == "proved", verification
    assert verification.verdict("3.3") == "proved"


def test_tasks_of_one_name_in_two_bodies_are_not_taken_for_one_another() -> None:
    verification = verified("""
tasks:
  many:
    type: map
    items: "[1, 2]"
    body:
      tasks:
        ask: {do: x, outputSchema: {const: 1}}
        one: {do: x}
      links:
        - {from: ask, to: one, when: tasks.ask.output == 1}
  more:
    type: map
    after: many
    items: "[1, 2]"
    body:
      tasks:
        ask: {do: x, outputSchema: {enum: [2, 3]}}
        two: {do: x}
        three: {do: x}
      links:
        - {from: ask, to: two, when: tasks.ask.output == 2}
        - {from: ask, to: three, when: tasks.ask.output == 3}
""")
    assert verification.errors == []


def test_a_field_that_need_not_be_there_is_when_it_is_read() -> None:
    """A run that completes is found though the schema of what is read requires nothing."""
    verification = verified("""
tasks:
  a: {do: x, outputSchema: {type: object, properties: {name: {type: string}}}}
  b: {do: x, after: a, inputs: {name: {from: a, path: $.name}}}
""")
    assert verification.verdict("3.2") == "proved", verification
    assert verification.verdict("3.6") == "refuted"


def test_a_whole_output_is_not_null_once_its_task_has_completed() -> None:
    verification = verified("""
tasks:
  ask: {do: x, outputSchema: {enum: [p, q]}}
  next: {do: x, after: ask}
  split: {type: gateway, kind: exclusive, after: next}
  p: {do: x}
  q: {do: x}
  many:
    type: map
    items: "[1]"
    after: [p, q]
    body:
      tasks: {again: {type: gateway, kind: exclusive}, one: {do: x}, two: {do: x}}
      links:
        - {from: again, to: one, when: 'tasks.ask.output == "p"'}
        - {from: again, to: two, when: 'tasks.ask.output == "q"'}
links:
  - {from: split, to: p, when: 'tasks.ask.output == "p"'}
  - {from: split, to: q, when: 'tasks.ask.output == "q"'}
""")
    assert verification.verdict("3.2") == verification.verdict("3.3") == "proved", verification


def test_a_condition_over_what_was_computed_is_one_over_the_input() -> None:
    verification = verified("""
inputSchema: {type: object, required: [n], properties: {n: {type: integer}}}
tasks:
  count: {type: transform, set: {big: input.n > 3}}
  split: {type: gateway, kind: exclusive, after: count}
  p: {do: x}
  q: {do: x}
links:
  - {from: split, to: p, when: tasks.count.output.big}
  - {from: split, to: q, when: input.n <= 3}
""")
    assert verification.verdict("3.2") == verification.verdict("3.3") == "proved", verification


def test_a_doubt_that_branches_settle_leaves_a_proof() -> None:
    """Parts are explored without what held before them; the solver knows."""
    verification = verified("""
inputSchema: {type: object, required: [n], properties: {n: {type: integer}}}
tasks:
  first: {type: gateway, kind: exclusive, default: q}
  p: {do: x}
  q: {do: x}
  second: {type: gateway, kind: exclusive, after: p}
  r: {do: x}
  s: {do: x}
  both: {do: x, after: [r, s]}
  end: {type: end, after: [both, q]}
links:
  - {from: first, to: p, when: input.n > 3}
  - {from: first, to: q}
  - {from: second, to: r, when: input.n > 100}
  - {from: second, to: s, when: input.n > 2 && input.n <= 100}
""")
    assert [f for f in verification.findings if f.level != "note"] == []
    assert verification.verdict("3.2") == verification.verdict("3.3") == "proved", verification


# --- types from annotations ------------------------------------------------------------------------------------------


class Customer(TypedDict):
    name: str
    level: Literal["gold", "new"]


def look(name: str) -> Customer:
    return {"name": name, "level": "new"}


def other(**given: object) -> None:
    del given


def guess(name: str) -> Literal["gold", "new", "old"]:
    return "old"


CHOICE = """
inputSchema: {{type: object, required: [name], properties: {{name: {{type: string}}}}}}
tasks:
  ask: {{do: {activity}, inputs: {{name: {{from: input, path: $.name}}}}}}
  split: {{type: gateway, kind: exclusive, after: ask}}
  gold: {{do: x}}
  new: {{do: x}}
links:
  - {{from: split, to: gold, when: {read} == "gold"}}
  - {{from: split, to: new, when: {read} == "new"}}
"""


def test_a_choice_is_complete_over_what_an_activity_says_it_returns() -> None:
    activities = {"look": signature_of(look), "x": signature_of(other)}
    known = {name: each for name, each in activities.items() if each is not None}
    loaded = load("id: it" + CHOICE.format(activity="look", read="tasks.ask.output.level"))

    verification = verify(loaded, activities=known)

    assert [f for f in verification.findings if f.level != "note"] == []
    assert all(verification.verdict(rule) == "proved" for rule in ("3.2", "3.3", "3.6"))
    assert verify(loaded).verdict("3.3") != "proved"  # without them nothing is known


def test_a_case_that_only_the_annotation_names_is_missed_and_shown() -> None:
    activities = {"guess": signature_of(guess), "x": signature_of(other)}
    known = {name: each for name, each in activities.items() if each is not None}
    loaded = load("id: it" + CHOICE.format(activity="guess", read="tasks.ask.output"))

    errors = verify(loaded, activities=known).errors

    assert [f.code for f in errors] == ["no-branch"]
    scenario = errors[0].counterexample
    assert isinstance(scenario, Scenario)
    assert rehearse(Plan(loaded.definition), scenario).shown
    assert any(getattr(step, "output", None) == "old" for step in scenario.steps)
