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


STARVING = """\
  choice: {type: gateway, kind: exclusive, default: small}
  large: {type: transform, set: {size: "1"}}
  small: {type: transform, set: {size: "2"}}
  starved: {do: x, join: all}
"""
STARVING_LINKS = """\
  - {from: split, to: choice}
  - {from: choice, to: large, when: input.n > 3}
  - {from: choice, to: small}
  - {from: large, to: starved}
  - {from: small, to: starved}
"""
BEFORE_IT_FAILS = {
    "behind a list without items": ("b", "a: {type: map, items: input.xs, body: {tasks: {t: {do: x}}}}", ""),
    "behind a list of which nothing is left": (
        "b", 'a: {type: map, items: "[1].filter(i, i > 1)", body: {tasks: {t: {do: x}}}}', "",
    ),
    "behind a loop without a pass": (
        "b", "a: {type: loop, while: input.n > iteration, body: {tasks: {t: {do: x}}}}", "",
    ),
    "behind a signal that has come": ("b", "a: {type: signal}", ""),
    "behind a handled failure as it begins": ("b", "a: {do: x, inputs: {v: '${input.m}'}}", ", on: error"),
}  # fmt: skip


@pytest.mark.parametrize("cut", [True, False], ids=["in a fragment", "in none"])
@pytest.mark.parametrize(("id", "a", "on"), BEFORE_IT_FAILS.values(), ids=BEFORE_IT_FAILS.keys())
def test_what_is_begun_in_the_step_in_which_its_scope_fails_can_run(
    id: str, a: str, on: str, cut: bool
) -> None:
    """It was held to wait, and so to be given up before it led on: `b` was said never to run."""
    links = STARVING_LINKS + ("" if cut else "  - {from: split, to: starved}\n")
    text = f"tasks:\n  split: {{type: gateway, kind: parallel}}\n  {a}\n  b: {{type: publish, topic: b, payload: it}}\n"
    text += f"{STARVING}links:\n  - {{from: split, to: a}}\n  - {{from: a, to: b{on}}}\n{links}"

    assert runs(text, id)
    assert not runs(text, "starved")


@pytest.mark.parametrize("cut", [True, False], ids=["in a fragment", "in none"])
@pytest.mark.parametrize("behind", [True, False], ids=["one fragment beside", "one task beside"])
def test_what_waits_beside_a_failure_in_the_same_step_leads_nowhere(
    behind: bool, cut: bool
) -> None:
    """A fragment that fails as it begins was held to wait, and one beside it to go on."""
    links = STARVING_LINKS + ("" if cut else "  - {from: split, to: starved}\n")
    text = f"tasks:\n  split: {{type: gateway, kind: parallel}}\n  a: {{do: x}}\n  b: {{do: x}}\n{STARVING}"
    text += f"  last: {{do: x, join: any}}\nlinks:\n  - {{from: split, to: a}}\n  - {{from: a, to: b}}\n{links}"
    text += "  - {from: b, to: last}\n  - {from: starved, to: last}\n"
    text += "  - {from: a, to: b, on: error}\n" if behind else ""

    assert runs(text, "a")
    assert not runs(text, "b")
    assert not runs(text, "last")


def test_what_runs_before_two_others_starve_a_join_together_can_run() -> None:
    """`quick` was taken first, as it cancels nobody: then the failure of `risky` starved `both` before `handler` began."""
    text = """\
tasks:
  slow: {do: x}
  quick: {do: x}
  risky: {do: x}
  handler: {do: x}
  both: {do: x, join: all}
  stop: {type: cancel, tasks: [slow], join: all}
links:
  - {from: risky, to: handler, on: error}
  - {from: quick, to: both}
  - {from: risky, to: both}
  - {from: slow, to: stop}
  - {from: handler, to: stop}
"""
    assert runs(text, "stop")


def test_what_goes_on_in_a_failing_scope_meets_the_failures_of_others_there() -> None:
    """`second` fails, unhandled, where all has failed already: so `both` starves, and that is handled."""
    text = """\
tasks:
  first: {do: x}
  other: {do: x}
  second: {do: x}
  third: {do: x}
  both: {type: cancel, tasks: [], join: {n: 2, cancel: true}}
  handler: {do: x}
links:
  - {from: first, to: other, on: always}
  - {from: first, to: second, on: always}
  - {from: second, to: third}
  - {from: other, to: both}
  - {from: third, to: both}
  - {from: both, to: handler, on: error}
"""
    assert runs(text, "handler")


def test_a_failure_in_a_step_of_which_too_much_may_come_leaves_the_rest_open() -> None:
    tasks = "".join(f"  s{n}: {{type: signal}}\n  t{n}: {{do: x}}\n" for n in range(14))
    links = "".join(
        f"  - {{from: split, to: s{n}}}\n  - {{from: s{n}, to: t{n}}}\n" for n in range(14)
    )
    text = f"tasks:\n  split: {{type: gateway, kind: parallel}}\n{tasks}{STARVING}links:\n{links}{STARVING_LINKS}"

    assert said(text) >= {("join-starved", "error"), ("too-many-states", "warning")}
    assert ("never-runs", "error") not in said(text)
    assert runs(text, "t0")


@pytest.mark.parametrize("stops", [True, False], ids=["a task cancels another", "a join starves"])
def test_a_fragment_may_end_where_the_one_around_it_does(stops: bool) -> None:
    """Where a dead path through it takes several rounds, it was not found which task leaves the one around it."""
    rows = "".join(
        f"  - {{from: t{n}, to: a{n}}}\n  - {{from: t{n}, to: b{n}}}\n"
        f"  - {{from: a{n}, to: j{n}}}\n  - {{from: b{n}, to: j{n}}}\n  - {{from: j{n}, to: t{n + 1}}}\n"
        for n in range(40)
    )
    names = [f"{letter}{n}" for n in range(40) for letter in "tabj"]
    tasks = "".join(f"  {name}: {{do: x}}\n" for name in [*names, "t40"])
    text = f"tasks:\n{tasks}  split: {{type: gateway, kind: parallel}}\n"
    text += "  a: {do: x}\n  stop: {type: cancel, tasks: [a]}\n" if stops else STARVING
    text += f"links:\n{rows}  - {{from: t40, to: split}}\n"
    text += "  - {from: split, to: a}\n  - {from: split, to: stop}\n" if stops else STARVING_LINKS

    assert runs(text, "t40")


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
