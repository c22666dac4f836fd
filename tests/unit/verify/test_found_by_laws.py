"""What `make verify-law` once found: definitions of which too little was said, or too much (SPEC 3.2)."""

from __future__ import annotations

import pytest

from penstock.core.plan import Plan
from penstock.dsl.load import load
from penstock.verify.behaviour import Behaviour, cases_of, check_behaviour
from penstock.verify.driving import Driver
from penstock.verify.fragments import Exploration
from penstock.verify.verification import Subject, verify


def subject(text: str) -> Subject:
    loaded = load("id: it\n" + text)
    return Subject(loaded, Plan(loaded.definition))


def said(text: str) -> set[tuple[str, str]]:
    made = subject(text)
    check_behaviour(made)
    return {(finding.code, finding.level) for finding in made.notes.findings}


def runs(text: str, id: str) -> bool:
    """Whether the exploration holds that the task can run."""
    made = subject(text)
    exploration = Exploration(made.plan, cases_of(made), states=9_000, each=9_000)
    return Behaviour(made, exploration, Driver(exploration)).runs(made.plan.root, id)


STARVED = {
    "a cancel behind a fragment that is left while a task in it is open": """\
tasks:
  split: {type: gateway, kind: parallel}
  quick: {do: x}
  fork: {do: x}
  left: {do: x}
  right: {type: timer, delay: 7s}
  both: {do: x, join: all}
  slow: {do: x}
  first: {do: x, join: any}
  stop: {type: cancel, tasks: [right]}
links:
  - {from: split, to: quick}
  - {from: split, to: fork}
  - {from: fork, to: left}
  - {from: fork, to: right}
  - {from: left, to: both}
  - {from: right, to: both}
  - {from: both, to: slow}
  - {from: quick, to: first}
  - {from: slow, to: first}
  - {from: first, to: stop}
""",
    "a cancelling join that gives up what lies before its fragment": """\
tasks:
  split: {type: gateway, kind: parallel}
  a: {do: x}
  handler: {do: x}
  both: {do: x, join: all}
  b: {do: x}
  first: {do: x, join: any}
  again: {do: x}
  one: {do: x}
  two: {do: x}
  winner: {do: x, join: {any: true, cancel: true}}
links:
  - {from: split, to: a}
  - {from: split, to: b}
  - {from: a, to: handler, on: always}
  - {from: a, to: both}
  - {from: handler, to: both}
  - {from: both, to: first}
  - {from: b, to: first}
  - {from: first, to: again}
  - {from: again, to: one}
  - {from: again, to: two}
  - {from: one, to: winner}
  - {from: two, to: winner}
""",
    "a transform with a handler is over at once, and so before it can be cancelled": """\
tasks:
  split: {type: gateway, kind: parallel}
  count: {type: transform, set: {n: "1"}}
  handler: {do: x}
  both: {do: x, join: all}
  other: {type: transform, set: {m: "1"}}
  first: {do: x, join: {any: true, cancel: true}}
links:
  - {from: split, to: count}
  - {from: count, to: handler, on: error}
  - {from: count, to: both}
  - {from: handler, to: both}
  - {from: split, to: other}
  - {from: both, to: first}
  - {from: other, to: first}
""",
}


@pytest.mark.parametrize("text", STARVED.values(), ids=STARVED.keys())
def test_a_starved_join_is_found(text: str) -> None:
    assert "join-starved" in {code for code, _ in said(text)}


def test_a_task_behind_a_natural_loop_that_never_runs_is_told() -> None:
    text = """\
tasks:
  head: {do: x}
  tail: {type: transform, set: {n: "1"}}
  out: {do: x}
  handler: {do: x}
links:
  - {from: head, to: tail}
  - {from: tail, to: head, when: iteration < 2}
  - {from: tail, to: out, when: iteration >= 2}
  - {from: tail, to: handler, on: error, when: "false"}
"""
    assert "never-runs" in {code for code, _ in said(text)}


def test_an_end_that_comes_before_a_join_starves_can_be_reached() -> None:
    """The dead path is two links long in the whole, and no shorter where it stands as one task."""
    text = """\
tasks:
  choice: {type: gateway, kind: exclusive}
  a: {do: x}
  b: {do: x}
  c: {do: x, when: input.n > 3}
  both: {do: x, join: all}
  stop: {type: end, terminate: true}
  done: {type: end}
links:
  - {from: choice, to: a, when: input.m > 3}
  - {from: a, to: b}
  - {from: a, to: b, on: error}
  - {from: b, to: both}
  - {from: choice, to: c}
  - {from: c, to: both}
  - {from: c, to: stop}
  - {from: both, to: done}
"""
    assert runs(text, "stop")


RESCUED = {
    "in a fragment, though a join in it starves": (
        "last",
        """\
tasks:
  a: {do: x}
  b: {do: x}
  both: {do: x, join: all}
  last: {do: x}
links:
  - {from: a, to: b, on: always}
  - {from: b, to: last}
  - {from: b, to: both}
  - {from: b, to: both, on: error}
  - {from: both, to: last}
""",
    ),
    "beside others, whichever of them is over first": (
        "last",
        """\
tasks:
  quick: {do: x}
  risky: {do: x}
  first: {do: x, join: any}
  c: {do: x}
  both: {do: x, join: all}
  d: {do: x}
  stop: {type: cancel, tasks: [risky]}
  last: {do: x}
links:
  - {from: quick, to: first}
  - {from: risky, to: first, on: always}
  - {from: first, to: last}
  - {from: c, to: both}
  - {from: c, to: both, on: error}
  - {from: both, to: last}
  - {from: d, to: stop}
""",
    ),
    "behind a fragment in a scope in which others are cancelled": (
        "last",
        """\
tasks:
  held:
    type: mutex
    name: k
    body:
      tasks:
        choice: {type: gateway, kind: exclusive}
        never: {do: x, join: {n: 2}}
      links:
        - {from: choice, to: never}
        - {from: choice, to: never}
  next: {do: x}
  last: {do: x}
  alone: {do: x, join: {any: true, cancel: true}}
links:
  - {from: held, to: next}
  - {from: held, to: next, on: always}
  - {from: next, to: last}
""",
    ),
    "behind a natural loop that an always link leads to": (
        "last",
        """tasks:
  a: {do: x}
  b: {do: x}
  starved: {do: x, join: all}
  first: {do: x}
  second: {do: x}
  last: {do: x}
links:
  - {from: a, to: starved, when: "false"}
  - {from: b, to: starved}
  - {from: starved, to: first, on: always}
  - {from: first, to: second}
  - {from: second, to: first, when: iteration < 3}
  - {from: second, to: last}
""",
    ),
}


@pytest.mark.parametrize(("id", "text"), RESCUED.values(), ids=RESCUED.keys())
def test_what_an_always_link_leads_to_can_run(id: str, text: str) -> None:
    assert runs(text, id)


def test_to_cancel_a_gateway_gives_up_nothing() -> None:
    """It is over as soon as it begins; what it leads to was taken for given up with it."""
    text = """\
inputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}
tasks:
  choice: {type: gateway, kind: exclusive, default: stop}
  first: {do: x}
  last: {do: x}
  either: {type: gateway, kind: event}
  joined: {do: x}
  one: {type: signal}
  other: {type: form, schema: {}}
  stop: {type: cancel, tasks: [either]}
links:
  - {from: choice, to: first, when: input.n > 3}
  - {from: choice, to: stop}
  - {from: first, to: either}
  - {from: either, to: one}
  - {from: either, to: other}
  - {from: one, to: joined}
  - {from: other, to: joined}
  - {from: joined, to: last}
  - {from: last, to: first, when: iteration < 3}
"""
    assert said(text) == set()


def test_a_starved_join_points_to_its_own_dead_link() -> None:
    text = RESCUED["behind a natural loop that an always link leads to"][1]
    found = verify(load("id: it\n" + text)).errors
    (starved,) = [finding for finding in found if finding.code == "join-starved"]
    assert [related.place.line for related in starved.related] == [10]


def test_all_of_these_can_be_verified_whole() -> None:
    for text in (*STARVED.values(), *(text for _, text in RESCUED.values())):
        assert verify(load("id: it\n" + text)).verdict("3.2") is not None


HANDLED = """\
inputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}
tasks:
  a: {do: x, outputSchema: {type: integer}}
  handler: {do: x, outputSchema: {type: boolean}}
links:
  - {from: a, to: handler, on: %s, when: %s}
"""
FAILING = {
    "a task that has not run is read": ("error", "tasks.handler.output"),
    "it reads what it has not given": ("error", "tasks.a.output > 3"),
    "an always link is asked after a failure too": ("always", "tasks.a.output > 3"),
}


@pytest.mark.parametrize(("on", "condition"), FAILING.values(), ids=FAILING.keys())
def test_a_condition_that_fails_once_its_task_has_is_found(on: str, condition: str) -> None:
    found = verify(load("id: it\n" + HANDLED % (on, condition)))

    (fault,) = [finding for finding in found.findings if finding.code == "branch-fails"]
    assert fault.level == "error"
    assert found.verdict("3.3") == "refuted"


@pytest.mark.parametrize("condition", ["input.n > 3", "'tasks.a.error.code == \"boom\"'"])
def test_a_condition_that_holds_or_not_once_its_task_has_failed_is_clean(condition: str) -> None:
    found = verify(load("id: it\n" + HANDLED % ("error", condition)))

    assert "branch-fails" not in {finding.code for finding in found.findings}
