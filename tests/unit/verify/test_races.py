"""What races say beside the corpus of tests/verify (SPEC 3.5, 2.6): who is concurrent, what is not shown and why."""

from __future__ import annotations

import pytest

from penstock.core.plan import Plan
from penstock.dsl.finding import Finding
from penstock.dsl.load import load
from penstock.verify.rehearsal import rehearse
from penstock.verify.sets import Orders, Sets, plain
from penstock.verify.verification import Signature, verify


def plan(text: str) -> Plan:
    return Plan(load("id: it\n" + text, source="it.yaml").definition)


def found(text: str, activities: dict[str, Signature] | None = None) -> list[Finding]:
    loaded = load("id: it\n" + text, source="it.yaml")
    findings = [f for f in verify(loaded, activities=activities).findings if f.code == "data-race"]
    for finding in findings:
        if finding.level == "error":
            assert rehearse(Plan(loaded.definition), finding.counterexample).shown
    return findings


def test_sets_are_read_from_inputs_expressions_actions_and_what_is_declared() -> None:
    made = Sets(
        plan("""\
data: {total: {value: 0}}
tasks:
  a: {do: x, reads: [prices, total], writes: ledger.main}
  b:
    do: x
    after: a
    when: data.go
    inputs: {p: {from: a, path: "$.list[0].cents"}, d: {from: data, path: $.rate.eur}, t: "${global.tax} ${input.n}"}
    onComplete: [{set: {total: data.total + tasks.b.output}}, {publish: {topic: t, payload: "${data.note}"}}]
links: [{from: b, to: c, when: tasks.a.status == "COMPLETED"}]
""".replace("links:", "  c: {type: transform, set: {x: '1'}}\nlinks:"))
    )  # fmt: skip
    reads = {(t.node.id, t.name) for t in made.reads}
    writes = {(t.node.id, t.name) for t in made.writes if t.path[0] != "tasks"}

    assert reads == {
        ("a", "prices"), ("a", "data.total"), ("b", "data.go"), ("b", "tasks.a.output.list"), ("b", "data.rate.eur"),
        ("b", "global.tax"), ("b", "data.total"), ("b", "data.note"), ("b", "tasks.a.status"),
    }  # fmt: skip
    assert writes == {("a", "ledger.main"), ("b", "data.total"), ("c", "data.x")}


@pytest.mark.parametrize(
    ("path", "names"),
    [("$", ()), ("$.a.b", ("a", "b")), ("$.a[0].b", ("a",)), ("$['x']", ()), ("$.a.*", ("a",))],
)
def test_the_names_at_the_beginning_of_a_path(path: str, names: tuple[str, ...]) -> None:
    assert plain(path) == names


def test_different_branches_of_one_choice_never_meet() -> None:
    made = plan("""\
tasks:
  g: {type: gateway, kind: exclusive, default: c}
  a: {do: x}
  b: {do: x}
  c: {do: x}
  ab: {do: x, after: [a, b]}
  h: {do: x, after: {from: a, on: error}}
  beside: {do: x}
links:
  - {from: g, to: a, when: input.n == 1}
  - {from: g, to: b, when: input.n == 2}
  - {from: g, to: c}
""")
    order = Orders(made).of(made.root)

    assert order.exclusive("a", "b")
    assert order.exclusive("ab", "c")
    assert order.exclusive("h", "b")
    assert not order.exclusive("ab", "beside")
    assert order.concurrent("c", "beside")
    assert not order.concurrent("a", "ab")


def test_a_default_and_the_handler_of_what_leads_to_it_are_no_others() -> None:
    made = plan(
        """\
tasks:
  ask: {type: signal, name: ok, timeout: 1h}
  g: {type: gateway, kind: exclusive, default: no, after: ask}
  "yes": {do: x}
  "no": {do: x, after: {from: ask, on: error}}
links:
  - {from: g, to: "yes", when: tasks.ask.output == true}
  - {from: g, to: "no"}
""".replace("default: no", 'default: "no"')
    )

    assert Orders(made).of(made.root).exclusive("yes", "no")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tasks:\n  a: {do: x, writes: ledger}\n  b: {do: x, reads: ledger.old}\n", "outside of the engine"),
        ("tasks:\n  a: {type: transform, set: {v: '1'}}\n  b: {type: transform, set: {v: '2'}}\n", "same event"),
        (
            "data: {v: {value: 0}}\ntasks:\n  a: {do: x, onComplete: [{set: {v: '1'}}]}\n  b: {do: x, inputs: {v: {from: data, path: $.v}}}\n",
            "always before",
        ),
        (
            "data: {v: {value: 0}}\ntasks:\n  a: {do: x, onComplete: [{set: {v: '1'}}]}\n  b: {do: x, onComplete: [{set: {v: '1'}}]}\n",
            "same outcome",
        ),
    ],
)  # fmt: skip
def test_a_race_that_is_not_shown_is_a_warning_that_says_why(text: str, reason: str) -> None:
    (finding,) = found(text)

    assert finding.level == "warning"
    assert reason in finding.message
    assert finding.counterexample is None


def test_a_map_with_one_item_at_a_time_is_a_note() -> None:
    (finding,) = found("tasks:\n  m: {type: map, items: input.l, limit: 1, body: {do: x, onComplete: [{set: {v: item}}]}}\n")  # fmt: skip

    assert finding.level == "note"


def test_what_a_later_task_writes_over_is_no_difference() -> None:
    (finding,) = found("""\
data: {v: {value: 0}}
tasks:
  a: {do: x, onComplete: [{set: {v: tasks.a.output}}]}
  b: {do: x, onComplete: [{set: {v: tasks.b.output}}]}
  c: {type: transform, set: {v: '0'}, after: [a, b]}
""")

    assert finding.level == "warning"


def test_a_parameter_that_is_looked_up_by_name_reads_the_data_of_the_run() -> None:
    text = """\
data: {rate: {value: 1}}
tasks:
  a: {do: refresh, onComplete: [{set: {rate: tasks.a.output}}]}
  b: {do: price}
"""
    known = {"refresh": Signature(), "price": Signature({"rate": True})}

    (finding,) = found(text, known)
    assert finding.message.startswith("`a` writes `data.rate` and `b` reads it")
    assert found(text, {**known, "price": Signature({"other": True})}) == []


def test_many_races_on_one_path_are_not_all_named() -> None:
    tasks = "".join(f"  t{n}: {{do: x, onComplete: [{{set: {{v: tasks.t{n}.output}}}}]}}\n" for n in range(30))  # fmt: skip

    findings = found("tasks:\n" + tasks)

    assert 1 < len(findings) <= 8
    assert findings[0].level == "error"


@pytest.mark.parametrize("path", ["tasks", "data", "input", "global", "tasks.a", "data.v"])
def test_what_is_declared_may_have_the_name_of_a_root(path: str) -> None:
    text = f"""\
data: {{v: {{value: 1}}}}
tasks:
  a: {{do: x, reads: [{path}]}}
  b: {{do: x, writes: [{path}]}}
  c: {{do: x, onComplete: [{{set: {{v: '2'}}}}], inputs: {{p: {{from: a}}}}}}
"""

    assert all(finding.level == "warning" for finding in found(text))


def test_two_orders_are_compared_when_both_are_over() -> None:
    """With other outputs the run goes another way, in which one more task is open: that is no difference of the orders."""
    quote = "{do: x, outputSchema: {type: integer, minimum: 0, maximum: 2000}, onComplete: [{set: {best: tasks.NAME.output}}]}"

    assert found(f"""\
inputSchema: {{type: object, required: [limit], properties: {{limit: {{type: integer, minimum: 1}}}}}}
data: {{best: {{value: 1000, merge: "value < current ? value : current"}}}}
tasks:
  north: {quote.replace("NAME", "north")}
  south: {quote.replace("NAME", "south")}
  all: {{type: gateway, kind: exclusive, default: leave, after: [north, south]}}
  book: {{do: x, inputs: {{price: {{from: all, path: $.best}}}}}}
  leave: {{do: x}}
links:
  - {{from: all, to: book, when: data.best <= input.limit}}
  - {{from: all, to: leave}}
""") == []  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2])
def test_a_race_is_not_hidden_by_one_of_the_same_tasks_that_come_in_turn(limit: int) -> None:
    """Found by the law (seed 77): `a` and `b` of one item are concurrent, though the items come one after another."""
    findings = found(f"""\
data: {{p: {{value: 0}}}}
tasks:
  m:
    type: map
    items: input.l
    limit: {limit}
    body: {{tasks: {{a: {{do: x, onComplete: [{{set: {{p: '1'}}}}]}}, b: {{do: x, onComplete: [{{set: {{p: '2'}}}}]}}}}}}
""")
    between = [f for f in findings if "`m/a`" in f.message and "`m/b`" in f.message]
    assert [f.level for f in between] == ["error"]


def test_a_race_is_shown_by_its_own_path_and_reader() -> None:
    both_fail = """\
inputSchema: {type: object, required: [k], properties: {k: {type: string}}}
data: {x: {value: 0}, y: {value: 0}}
tasks:
  a: {do: a, onComplete: [{set: {x: "1"}}]}
  b: {do: b, onComplete: [{set: {y: "data[input.k]"}}]}
outputs: {y: data.y}
"""
    assert [finding.level for finding in found(both_fail)] == ["warning"]
    sum_is_read = """\
data: {n: {value: 0, merge: "current + value"}}
tasks:
  a: {do: a, onComplete: [{set: {n: "1"}}]}
  b: {do: b, onComplete: [{set: {n: "1"}}]}
  c: {type: transform, set: {z: data.n}, after: a}
"""
    (only,) = found(sum_is_read)
    assert only.level == "error"
    assert "`b` writes `data.n` and `c` reads it" in only.message


def test_what_an_end_may_come_before_is_not_proved() -> None:
    text = """\
tasks:
  a: {do: a}
  b: {do: b, onComplete: [{set: {k: "1"}}]}
  e: {type: end, terminate: true, after: AFTER}
  f: {type: end, after: b}
data: {k: {value: 0}}
outputs: {of: OUTPUT}
"""
    for output in ("tasks.b.status", "data.k"):
        text_of = text.replace("OUTPUT", output)
        (warning,) = found(text_of.replace("AFTER", "a"))
        assert warning.level == "warning"
        assert "`e` may end the run before `b` is over" in warning.message
        assert found(text_of.replace("AFTER", "[a, b]")) == []
    assert found(text.replace("AFTER", "a").replace("OUTPUT", "tasks.a.status")) == []


@pytest.mark.parametrize(
    ("merge", "sure"),
    [
        ("current + value", True),
        ("current - value * current", True),
        ("value < current ? value : current", True),
        ("value", False),
        ("value > 2 ? value : current * 2 + value", False),
        ("100 / (current - value)", False),
        ("[current, value].map(x, x)[1]", False),
    ],
)
def test_a_merge_that_no_run_was_found_for_is_proved_by_the_solver(merge: str, sure: bool) -> None:
    warnings = found(f"""\
data: {{n: {{value: 1, merge: "{merge}"}}}}
tasks:
  g: {{type: map, items: "['x']", more: guest, body: {{do: a, outputSchema: {{type: integer}}, onComplete: [{{set: {{n: 1 + 1}}}}]}}}}
""")

    assert [warning.level for warning in warnings] == ([] if sure else ["warning"])
    assert all("`merge` may depend on which comes first" in each.message for each in warnings)


@pytest.mark.parametrize(
    ("schema", "level"), [("{type: integer}", []), ("{type: number}", ["note"]), ("{}", ["note"])]
)
def test_a_merge_of_values_of_which_too_little_is_known_is_not_proved(schema: str, level: list[str]) -> None:  # fmt: skip
    """The solver's numbers are not doubles, and of what may be anything nothing is known."""
    text = f"""\
data: {{sum: {{merge: "value < current ? value : current"}}}}
tasks:
  left: {{do: x, outputSchema: {schema}, onComplete: [{{set: {{sum: tasks.left.output}}}}]}}
  right: {{do: x, outputSchema: {schema}, onComplete: [{{set: {{sum: tasks.right.output}}}}]}}
outputs: {{sum: data.sum}}
"""
    verification = verify(load("id: it\n" + text))
    races = [finding.level for finding in verification.findings if finding.code == "data-race"]
    assert races == level
    assert verification.verdict("3.5") == ("unknown" if level else "proved")
