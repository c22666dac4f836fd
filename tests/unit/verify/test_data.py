"""What is known of the run's data (SPEC 3.3, 3.6): types from what writes it, and its formula where the last writer is known."""

from __future__ import annotations

import time

import pytest

from penstock.core.plan import Plan
from penstock.dsl.load import load
from penstock.verify.knowledge import knowledge_of
from penstock.verify.rehearsal import rehearse
from penstock.verify.scenario import Scenario
from penstock.verify.verification import Subject, Verification, verify

INPUT = "inputSchema: {type: object, required: [n, x], properties: {n: {type: integer}, x: {type: boolean}}}"
CHOICE = """
  split: {{type: gateway, kind: exclusive, after: {after}}}
  p: {{do: x}}
  q: {{do: x}}
links:
  - {{from: split, to: p, when: {first}}}
  - {{from: split, to: q, when: {second}}}
"""


def verified(text: str) -> Verification:
    loaded = load(f"id: it\n{INPUT}\n{text}", source="it.yaml")
    verification = verify(loaded)
    for finding in verification.findings:
        if finding.level == "error":
            assert isinstance(finding.counterexample, Scenario)
            shown = rehearse(Plan(loaded.definition), finding.counterexample)
            assert shown.shown, shown.why
    return verification


def _choice(tasks: str, first: str, second: str, *, after: str, links: str = "") -> str:
    return tasks + CHOICE.format(after=after, first=first, second=second) + links


def types(text: str) -> dict[str, object]:
    loaded = load(f"id: it\n{INPUT}\n{text}")
    return knowledge_of(Subject(loaded, Plan(loaded.definition))).data.types


TYPES = {
    "a counter": ("data: {n: 0}", "{n: data.n + 1}", {"type": "integer"}),
    "an input": ("", "{n: input.n}", {"type": "integer"}),
    "null at first": ("data: {n: null}", "{n: input.n}", {"anyOf": [{"const": None}, {"type": "integer"}]}),
    "a comparison": ("", "{n: input.n > 3}", {"type": "boolean"}),
    "one of two": ("", "{n: 'input.x ? \"a\" : \"b\"'}", {"enum": ["a", "b"]}),
    "a list": ("", "{n: '[1, 2]'}", {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2}),
    "appended": ("data: {n: {value: [], merge: append}}", "{n: input.n}", {"type": "array"}),
    "merged": ("data: {n: {value: 0, merge: current + value}}", "{n: input.n}", {"type": "integer"}),
    "flags": ("data: {n: [true, true]}", "{n: '[data.n[0], input.x]'}", {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}),
    "not known": ("", "{n: tasks.a.output.what}", None),
    "grows": ("data: {n: []}", "{n: '[data.n]'}", {"type": "array", "items": {"type": "array"}}),
    "by way of another": ("data: {n: 1, m: 1}", "{n: data.m, m: data.n * 2}", {"type": "integer"}),
}  # fmt: skip


@pytest.mark.parametrize(("data", "set", "wanted"), TYPES.values(), ids=TYPES)
def test_a_key_may_hold_what_is_written(data: str, set: str, wanted: object) -> None:
    text = f"{data}\ntasks:\n  a: {{do: x}}\n  t: {{type: transform, set: {set}, after: a}}"

    assert types(text)["n"] == wanted


def test_a_condition_over_data_is_solved() -> None:
    tasks = """
data: {count: 0}
tasks:
  many: {type: loop, until: iteration >= 3, max: 3, body: {tasks: {t: {type: transform, set: {count: data.count + input.n}}}}}"""
    whole = verified(_choice(tasks, "data.count > 3", "data.count <= 3", after="many"))
    part = verified(_choice(tasks, "data.count > 3", "data.count < 3", after="many"))

    assert [f for f in whole.findings if f.level != "note"] == []
    assert all(whole.verdict(rule) == "proved" for rule in ("3.2", "3.3", "3.6"))
    assert part.verdict("3.3") != "proved"


LAST = {
    "the one transform": """
tasks:
  t: {type: transform, set: {big: input.n > 3}}""",
    "what a task sets when it is done": """
tasks:
  t: {do: x, onComplete: [{set: {big: input.n > 3}}]}""",
    "the later of two": """
tasks:
  first: {type: transform, set: {big: input.x}}
  t: {type: transform, set: {big: input.n > 3}, after: first}""",
    "by way of another key": """
tasks:
  first: {type: transform, set: {m: input.n + 1}}
  t: {type: transform, set: {big: data.m > 4}, after: first}""",
    "by way of another key in one task": """
tasks:
  t: {type: transform, set: {m: input.n + 1, big: data.m > 4}}""",
    "before one that comes later": """
tasks:
  t: {type: transform, set: {big: input.n > 3}}
  late: {type: transform, set: {big: "true"}, after: [p, q]}""",
}


@pytest.mark.parametrize("tasks", LAST.values(), ids=LAST)
def test_who_wrote_last_is_known(tasks: str) -> None:
    verification = verified(_choice(tasks, "data.big", "input.n <= 3", after="t"))

    assert [f for f in verification.findings if f.level != "note"] == []
    assert verification.verdict("3.2") == verification.verdict("3.3") == "proved"


OTHERS = {
    "one beside it": (
        """
tasks:
  begin: {do: x}
  t: {type: transform, set: {big: input.n > 3}, after: begin}
  beside: {do: x, onComplete: [{set: {big: input.x}}], after: begin}""",
        "",
    ),
    "one that is not always there": (
        """
tasks:
  t: {type: transform, set: {big: input.n > 3}}
  maybe: {type: transform, set: {big: "false"}}
  both: {do: x, after: t}""",
        "  - {from: t, to: maybe, when: input.x}\n  - {from: maybe, to: both}\n",
    ),
    "one that a join does not wait for": (
        """
tasks:
  begin: {do: x}
  slow: {do: x, onComplete: [{set: {big: input.x}}], after: begin}
  quick: {do: x, after: begin}
  t: {type: transform, set: {big: input.n > 3}, join: any, after: [slow, quick]}""",
        "",
    ),
    "what it writes itself after that": (
        """
tasks:
  t: {type: transform, set: {big: input.n > 3}, onComplete: [{set: {big: "!data.big"}}]}""",
        "",
    ),
    "one that merges": (
        """
data: {big: {value: false, merge: current || value}}
tasks:
  first: {type: transform, set: {big: input.x}}
  t: {type: transform, set: {big: input.n > 3}, after: first}""",
        "",
    ),
}


@pytest.mark.parametrize(("tasks", "links"), OTHERS.values(), ids=OTHERS)
def test_or_it_is_not(tasks: str, links: str) -> None:
    after = "both" if "both" in tasks else "t"
    verification = verified(
        _choice(tasks, "data.big", "input.n <= 3", after=after, links=links).replace(
            "  - {from: split, to: p", "  - {from: split, to: p"
        )
    )
    assert verification.verdict("3.3") != "proved"


def test_what_held_of_data_held_of_what_it_was_then() -> None:
    """It was said that `p` is never taken: `data.x == 0`, which had held, was read as `5 == 0`."""
    verification = verified("""
data: {x: 0}
tasks:
  g: {type: gateway, kind: exclusive, default: z}
  a: {type: transform, set: {x: "5"}}
  z: {do: x}
  h: {type: gateway, kind: exclusive, default: q, after: a}
  p: {do: x}
  q: {do: x}
links:
  - {from: g, to: a, when: data.x == 0}
  - {from: g, to: z}
  - {from: h, to: p, when: data.x == 5}
  - {from: h, to: q}
""")
    never = {f.message for f in verification.errors}
    assert never == {"`z` can never run", "`q` can never run"}


def test_the_number_of_a_pass_is_another_in_an_inner_loop() -> None:
    """It was proved that `g` always has a branch."""
    verification = verified("""
tasks:
  outer:
    type: loop
    until: iteration >= 3
    max: 5
    body:
      tasks:
        t: {type: transform, set: {k: iteration}}
        inner:
          type: loop
          until: iteration >= 3
          max: 5
          after: t
          body:
            tasks:
              g: {type: gateway, kind: exclusive}
              p: {do: x}
            links:
              - {from: g, to: p, when: tasks.t.output.k == iteration}
""")
    assert verification.verdict("3.3") == "refuted"


def test_formulas_that_double_do_not_explode() -> None:
    steps = "\n".join(
        f"  t{n}: {{type: transform, set: {{v{n}: data.v{n - 1} + data.v{n - 1}}}, after: t{n - 1}}}"
        for n in range(1, 40)
    )
    text = f"tasks:\n  t0: {{type: transform, set: {{v0: input.n}}}}\n{steps}"
    began = time.perf_counter()

    verified(_choice(text, "data.v39 > 0", "data.v39 <= 0", after="t39"))

    assert time.perf_counter() - began < 20
