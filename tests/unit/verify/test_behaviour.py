"""What behaviour says (SPEC 3.2): every refutation is rehearsed, near misses are clean."""

from __future__ import annotations

import pathlib

import pytest

from penstock.core.plan import Plan
from penstock.dsl.finding import Finding
from penstock.dsl.load import load, load_file
from penstock.verify.rehearsal import rehearse
from penstock.verify.scenario import Scenario
from penstock.verify.verification import Budget, Verification, verify

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


def verified(text: str, budget: Budget | None = None) -> Verification:
    return verify(load("id: it\n" + text, source="it.yaml"), budget=budget)


def found(text: str) -> list[Finding]:
    """Findings of behaviour, each refuted one shown again."""
    loaded = load("id: it\n" + text, source="it.yaml")
    findings = [f for f in verify(loaded).findings if f.code in CODES or f.code == "no-path"]
    for finding in findings:
        if finding.level == "error":
            assert isinstance(finding.counterexample, Scenario)
            shown = rehearse(Plan(loaded.definition), finding.counterexample)
            assert shown.shown, shown.why
    return findings


CODES = frozenset(
    {"join-starved", "no-branch", "no-end", "deadlock", "never-runs", "too-many-states"}
)

BROKEN = {
    "a conditional link into an all-join": (
        "join-starved",
        6,
        """\
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x}
  d: {do: x, join: all}
links:
  - {from: a, to: b}
  - {from: a, to: c, when: input.n > 3}
  - {from: b, to: d}
  - {from: c, to: d}
""",
    ),
    "an exclusive choice into an all-join": (
        "join-starved",
        6,
        """\
tasks:
  g: {type: gateway, kind: exclusive}
  a: {do: x}
  b: {do: x}
  j: {do: x, after: [a, b], join: all}
links:
  - {from: g, to: a, when: input.big}
  - {from: g, to: b, when: "!input.big"}
""",
    ),
    "a failure that is handled starves the join": (
        "join-starved",
        6,
        """\
tasks:
  a: {do: x}
  b: {do: x}
  h: {do: x, after: {from: a, on: error}}
  j: {do: x, after: [a, b, h], join: {n: 3}}
""",
    ),
    "in the body of a loop": (
        "join-starved",
        11,
        """\
tasks:
  again:
    type: loop
    while: iteration < 3
    body:
      tasks:
        a: {do: x}
        b: {do: x}
        c: {do: x}
        j: {do: x, after: [b, c], join: all}
      links:
        - {from: a, to: b}
        - {from: a, to: c, when: tasks.a.output == "yes"}
""",
    ),
    "a task that is cancelled starves the join": (
        "join-starved",
        6,
        """\
tasks:
  a: {do: x}
  b: {do: x}
  stop: {type: cancel, tasks: [b], after: a}
  j: {do: x, after: [a, b], join: all}
""",
    ),
    "a starved join beside an always link": (
        "join-starved",
        5,
        """\
tasks:
  a: {do: x}
  b: {do: x}
  j: {do: x, join: all}
  h: {do: x}
links:
  - {from: a, to: j, when: input.n > 3}
  - {from: b, to: j}
  - {from: j, to: h, on: always}
  - {from: b, to: h}
""",
    ),
    "behind an event of the bus": (
        "no-end",
        8,
        """\
tasks:
  a: {do: x}
  paid:
    {type: event, config: {topic: payments, type: paid, where: "event.data.order == 7"}, after: a}
  b: {do: x}
links:
  - {from: paid, to: b, when: tasks.paid.output.ok == true}
""",
    ),
    "no branch holds": (
        "no-branch",
        3,
        """\
tasks:
  g: {type: gateway, kind: exclusive}
  a: {do: x}
  b: {do: x}
links:
  - {from: g, to: a, when: input.n < 10}
  - {from: g, to: b, when: input.n > 10}
""",
    ),
    "the only way to the end is conditional": (
        "no-end",
        6,
        """\
tasks:
  a: {do: x}
  b: {do: x}
links:
  - {from: a, to: b, when: input.ok}
""",
    ),
    "a handler beside which nothing goes on": (
        "no-end",
        8,
        """\
tasks:
  a: {do: x}
  b: {do: x, after: a}
  h: {do: x, after: {from: b, on: error}}
  c: {do: x}
links:
  - {from: b, to: c, when: tasks.b.output == 1}
""",
    ),
    "a natural loop without a way out": (
        "no-end",
        9,
        """\
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x}
links:
  - {from: a, to: b}
  - {from: b, to: a, when: iteration < 3}
  - {from: b, to: c, when: iteration > 3}
""",
    ),
    "a condition that never holds": (
        "never-runs",
        4,
        """\
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x}
links:
  - {from: a, to: b, when: input.n > 5 && input.n < 3}
  - {from: a, to: c}
""",
    ),
    "behind two branches that exclude each other": (
        "never-runs",
        4,
        """\
tasks:
  a: {do: x}
  b: {do: x, when: "false"}
  c: {do: x, after: a}
links:
  - {from: a, to: b}
""",
    ),
    "a handler of a task that cannot fail": (
        "never-runs",
        4,
        """\
tasks:
  a: {type: gateway, kind: parallel}
  h: {do: x, after: {from: a, on: error}}
  c: {do: x, after: a}
""",
    ),
    "mutexes in both orders": (
        "deadlock",
        7,
        """\
tasks:
  one:
    type: mutex
    name: m
    body:
      tasks: {a: {do: x}, in: {type: mutex, name: k, body: {do: x}, after: a}}
  two:
    type: mutex
    name: k
    body:
      tasks: {b: {do: x}, in: {type: mutex, name: m, body: {do: x}, after: b}}
""",
    ),
    "a mutex inside itself": (
        "deadlock",
        6,
        """\
tasks:
  one:
    type: mutex
    name: m
    body: {tasks: {in: {type: mutex, name: m, body: {do: x}}}}
""",
    ),
}

CLEAN = {
    "a conditional link into a merge": """\
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x}
  d: {do: x}
links:
  - {from: a, to: b}
  - {from: a, to: c, when: input.n > 3}
  - {from: b, to: d}
  - {from: c, to: d}
""",
    "a condition on the task, not on the link": """\
tasks:
  a: {do: x}
  c: {do: x, after: a, when: input.n > 3}
  b: {do: x, after: a}
  d: {do: x, after: [b, c], join: all}
""",
    "both conditions are the same": """\
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x}
  d: {do: x, join: all}
  e: {do: x, after: a}
links:
  - {from: a, to: b, when: input.n > 3}
  - {from: a, to: c, when: input.n > 3}
  - {from: b, to: d}
  - {from: c, to: d}
""",
    "one of two": """\
tasks:
  g: {type: gateway, kind: exclusive}
  a: {do: x}
  b: {do: x}
  j: {do: x, after: [a, b], join: any}
links:
  - {from: g, to: a, when: input.big}
  - {from: g, to: b, when: "!input.big"}
""",
    "every case has a branch": """\
inputSchema: {type: object, required: [n], properties: {n: {type: integer}}}
tasks:
  g: {type: gateway, kind: exclusive}
  a: {do: x}
  b: {do: x}
links:
  - {from: g, to: a, when: input.n < 10}
  - {from: g, to: b, when: input.n >= 10}
""",
    "one of an enumeration": """\
inputSchema: {type: object, required: [k], properties: {k: {enum: [red, green]}}}
tasks:
  g: {type: gateway, kind: exclusive}
  a: {do: x}
  b: {do: x}
links:
  - {from: g, to: a, when: input.k == "red"}
  - {from: g, to: b, when: input.k == "green"}
""",
    "a natural loop with a way out": """\
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x}
links:
  - {from: a, to: b}
  - {from: b, to: a, when: iteration < 3}
  - {from: b, to: c, when: iteration >= 3}
""",
    "a handler and a success that meet": """\
tasks:
  a: {do: x}
  h: {do: x, after: {from: a, on: error}}
  j: {do: x, after: [a, h]}
""",
    "mutexes in one order": """\
tasks:
  one:
    type: mutex
    name: m
    body:
      tasks: {a: {do: x}, in: {type: mutex, name: k, body: {do: x}, after: a}}
  two:
    type: mutex
    name: m
    body:
      tasks: {b: {do: x}, in: {type: mutex, name: k, body: {do: x}, after: b}}
""",
    "mutexes in both orders, one after the other": """\
tasks:
  one:
    type: mutex
    name: m
    body:
      tasks: {a: {do: x}, in: {type: mutex, name: k, body: {do: x}, after: a}}
  two:
    type: mutex
    name: k
    after: one
    body:
      tasks: {b: {do: x}, in: {type: mutex, name: m, body: {do: x}, after: b}}
""",
    "the first event wins": """\
tasks:
  g: {type: gateway, kind: event}
  go: {type: signal, name: go}
  late: {type: timer, delay: 1d}
  yes: {do: x, after: go}
  no: {do: x, after: late}
links:
  - {from: g, to: go}
  - {from: g, to: late}
""",
    "a loop that starves before it begins, and somebody cares": """\
tasks:
  a: {do: x}
  b: {do: x}
  n: {do: x, join: all}
  m: {do: x}
  out: {do: x}
  h: {do: x}
links:
  - {from: a, to: n}
  - {from: b, to: n, when: tasks.b.output == 1}
  - {from: n, to: m}
  - {from: m, to: n, when: iteration < 2}
  - {from: m, to: out, when: iteration >= 2}
  - {from: n, to: h, on: error}
""",
    "an event of the bus": """\
tasks:
  a: {do: x}
  paid:
    type: event
    config: {topic: payments, type: paid, where: "event.data.order == input.order && event.data.ok"}
    after: a
  b: {do: x, after: paid}
""",
    "the first of two cancels the other": """\
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x, after: b}
  j: {do: x, after: [a, c], join: {any: true, cancel: true}}
""",
    "an end that terminates": """\
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x, after: b}
  stop: {type: end, config: {terminate: true}, after: a}
  done: {type: end, after: c}
""",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found_and_shown(name: str) -> None:
    code, line, text = BROKEN[name]
    findings = [f for f in found(text) if f.code == code]
    assert findings, found(text)
    assert [(f.level, f.place.line) for f in findings] == [("error", line)]
    assert verified(text).verdict("3.2") == "refuted"


@pytest.mark.parametrize("name", CLEAN)
def test_a_near_miss_is_clean(name: str) -> None:
    assert found(CLEAN[name]) == []
    assert verified(CLEAN[name]).verdict("3.2") == "proved"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_proved(file: pathlib.Path) -> None:
    verification = verify(load_file(file))
    # Which rule fires is in the run's data, of which exploration knows little.
    wanted = "unknown" if file.stem == "rules" else "proved"
    assert verification.verdict("3.2") == wanted, verification.findings
    assert [f for f in verification.findings if f.level == "error"] == []


def test_a_handler_of_what_only_an_operator_can_fail_is_noted() -> None:
    text = "tasks:\n  a: {type: timer, delay: 5s}\n  h: {do: x, after: {from: a, on: error}}\n  c: {do: x, after: a}\n"
    verification = verified(text)
    assert [(f.code, f.level) for f in verification.findings] == [("never-runs", "note")]
    assert verification.verdict("3.2") == "proved"


def test_a_fragment_over_budget_is_named() -> None:
    names = [f"t{n}" for n in range(12)]
    lines = ["tasks:", "  first: {do: x}", "  g: {type: gateway, kind: inclusive, after: first}"]
    lines += [f"  {name}: {{do: x}}" for name in names]
    lines += [f"  last: {{do: x, after: [{', '.join(names)}]}}", "links:", "  - {from: g, to: t0}"]
    lines += [f"  - {{from: g, to: t{n}, when: input.k{n} == {n}}}" for n in range(1, 12)]
    verification = verified("\n".join(lines), Budget(fragment=100))
    (finding,) = [f for f in verification.findings if f.code == "too-many-states"]
    assert finding.level == "warning"
    assert "between `first` and `last`" in finding.message or "between `g` and" in finding.message
    assert verification.verdict("3.2") == "unknown"
    assert verified("\n".join(lines)).verdict("3.2") == "proved"


def test_a_condition_that_asks_how_a_task_beside_it_stands_may_hold_or_not() -> None:
    text = """\
tasks:
  score: {do: x}
  load: {do: x}
  fast: {do: x}
  slow: {do: x}
links:
  - {from: load, to: fast, when: tasks.score.status == "COMPLETED"}
  - {from: load, to: slow, when: tasks.score.status != "COMPLETED"}
"""

    assert found(text) == []
    assert verified(text).verdict("3.2") == "proved"


def test_what_only_an_operator_can_reach_from_inside_a_loop_is_a_note() -> None:
    findings = found("""\
tasks:
  a: {do: x}
  s: {type: signal, name: s, schema: {type: boolean}, after: a}
  b: {do: x}
  h: {do: x}
links:
  - {from: s, to: a, when: tasks.s.output && iteration < 9}
  - {from: s, to: b, when: "!tasks.s.output || iteration >= 9"}
  - {from: s, to: h, on: error}
""")
    assert [(f.code, f.level) for f in findings if f.code == "never-runs"] == [
        ("never-runs", "note")
    ]
