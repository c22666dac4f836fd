"""Order that follows from data, events and rules, and what is said where it cannot (SPEC 2.5)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dsl.load import load, load_document
from penstock.dsl.rewrite import rewrite
from penstock.errors import Rejected
from penstock.verify.structure import examine_text
from support.world import given


def links(text: str) -> set[tuple[str, str]]:
    made = load("id: flow\n" + text).document
    ends = ("start", "end")
    return {
        (each["from"], each["to"])
        for each in made["links"]
        if each["from"] not in ends and each["to"] not in ends
    }


@pytest.mark.parametrize(
    "task",
    [
        "{do: x, inputs: {p: {from: a}}}",
        "{do: x, inputs: {p: {from: a, path: $.n, default: 3}}}",
        "{do: x, inputs: {p: 'n is ${tasks.a.output.n}'}}",
        "{do: x, when: tasks.a.output > 1}",
        "{do: x, conditions: [{expression: tasks.a.output > 1}]}",
        "{type: transform, set: {n: tasks.a.output}}",
        "{type: timer, delay: '${tasks.a.output}'}",
        "{type: http, method: GET, url: 'http://h/${tasks.a.output}'}",
        "{type: map, items: tasks.a.output, body: {do: x}}",
        "{type: map, items: '[1]', body: {do: x, inputs: {p: {from: a}}}}",
        "{type: loop, while: tasks.a.output > iteration, body: {do: x}}",
        "{type: event, topic: t, where: event.data == tasks.a.output}",
        "{do: x, onComplete: {publish: {topic: t, payload: '${tasks.a.output}'}}}",
        "{do: x, compensate: {activity: u, inputs: {p: {from: a}}}}",
        "{do: x, limits: {key: tasks.a.output}}",
    ],
)
def test_whoever_reads_a_task_comes_after_it(task: str) -> None:
    assert links(f"orchestration: data\ntasks: {{b: {task}, a: {{do: x}}}}") == {("a", "b")}
    assert links(f"tasks: {{b: {task}, a: {{do: x}}}}") == set()


@pytest.mark.parametrize(
    "task",
    [
        "{do: x, inputs: {p: {value: tasks.a.output}}}",
        "{do: x, name: tasks.a.output}",
        "{do: x, inputs: {when: tasks.a.output}}",
        "{type: map, items: '[1]', body: {tasks: {a: {do: x}, c: {do: x, inputs: {p: {from: a}}}}}}",
    ],
)
def test_what_only_looks_like_a_task_gives_no_order(task: str) -> None:
    assert links(f"orchestration: data\ntasks: {{b: {task}, a: {{do: x}}}}") == set()


def test_bodies_go_by_data_too_and_what_is_written_stays() -> None:
    made = load(
        """
id: flow
orchestration: data
tasks:
  m: {type: map, items: '[1]', body: {tasks: {q: {do: x, inputs: {p: {from: p}}}, p: {do: x}}}}
  a: {do: x}
  b: {do: x, inputs: {a: {from: a}}, after: {from: a, on: always}}
"""
    ).document

    body = made["tasks"]["m"]["config"]["body"]
    assert {"from": "p", "to": "q"} in body["links"]
    assert [link for link in made["links"] if link["to"] == "b"] == [
        {"from": "a", "on": "always", "to": "b"}
    ]


def test_a_circle_of_data_is_found_with_its_place() -> None:
    text = """id: flow
orchestration: data
tasks:
  a: {do: x, inputs: {p: {from: b}}}
  b: {do: x, inputs: {p: {from: a}}}
"""
    found = examine_text(text).errors

    assert {each.code for each in found} == {"cycle-unconditional"}
    assert found[0].place.line in (4, 5)


def test_a_task_is_begun_by_its_event() -> None:
    run = given(
        "orchestration: event\ntasks: {a: {do: x, on: t.go}, b: {do: x, on: [u, {topic: v}]}}"
    )

    assert run.run.listening == {"on_a": "t.go", "on_b_1": "u", "on_b_2": "v"}
    assert run.open == []


def test_an_event_after_a_task_is_waited_for_from_then_on() -> None:
    run = given("tasks: {a: {do: x}, b: {do: x, on: t, after: a}}")
    assert run.run.listening == {}
    run.complete("a")

    assert run.run.listening == {"on_b": "t"}


def test_an_end_that_was_written_ends_the_waits_of_others() -> None:
    run = given(
        "tasks: {a: {do: x}, b: {do: x, on: never}, z: {type: end, terminate: true, after: a}}"
    )
    run.complete("a")

    assert run.status == "COMPLETED"


RULES = """
orchestration: rule
tasks: {a: {do: x}, b: {do: x}, c: {type: transform, set: {n: data.n + 1}}}
data: {n: 0}
rules:
  - {when: 'true', task: a}
  - {when: data.a != null && data.n % 2 == 0, task: c}
  - {when: data.n == 1, task: b}
  - {until: data.n == 2}
outputs: {a: data.a, b: data.b, n: data.n}
"""


def test_rules_fire_in_order_each_time_their_condition_turns_true() -> None:
    run = given(RULES.replace("data.n == 2}", "data.b != null && data.n == 1}"))
    assert run.open == ["rules[1]/a"]
    run.complete("rules[1]/a", "A")
    assert run.open == ["rules[3]/b"]
    run.complete("rules[3]/b", "B")

    assert run.result == {"a": "A", "b": "B", "n": 1}


def test_the_priority_comes_before_the_place_in_the_table() -> None:
    rules = RULES.replace("data.n == 1, task: b}", "'true', task: b, priority: -1}")
    run = given(rules)

    assert run.open == ["rules[1]/b"]


def test_rules_that_fire_no_more_fail_the_run() -> None:
    run = given(RULES)
    run.complete("rules[1]/a", "A")
    run.complete("rules[3]/b", "B")

    assert (run.status, run.code) == ("FAILED", "no-branch")


def test_rules_are_capped() -> None:
    run = given(RULES.replace("{until: data.n == 2}", "{until: 'false', max: 1}"))
    run.complete("rules[1]/a", "A")

    assert (run.status, run.code) == ("FAILED", "loop-max")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orchestration: rule\ntasks: {a: {do: x}}", "no rule to go by"),
        ("orchestration: rule\nrules: [{when: 'true', task: a}]\ntasks: {a: {do: x}}", "is over"),
        ("rules: [{when: 'true', task: a}]\ntasks: {a: {do: x}}", "goes by `control`"),
        (
            "orchestration: rule\nrules: [{when: tasks.a.output > 1, task: a}, {until: 'true'}]\ntasks: {a: {do: x}}",
            "cannot read `tasks.a`",
        ),
        ("orchestration: rule\nrules: [{when: 'true', task: z}, {until: 'true'}]\ntasks: {a: {do: x}}", "no task `z`"),
        ("orchestration: rule\nrules: [{when: 'tru', task: a}, {until: 'true'}]\ntasks: {a: {do: x}}", "tru"),
        ("orchestration: rule\nrules: [{when: 'true'}]\ntasks: {a: {do: x}}", "task"),
        ("rules: [{task: a, until: 'true', when: 'true'}]\ntasks: {a: {do: x}}", "until"),
        ("tasks: {a: {do: x, on: {where: 'true'}}}", "topic"),
        ("tasks: {a: {do: x, on: a b}}", "neither a topic"),
        ("tasks: {a: {do: x, on: 3}}", "topic"),
        ("tasks: {a: {do: x, on: {topic: t, where: evnt.data}}}", "evnt"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_where_it_stands(text: str, said: str) -> None:
    found = examine_text("id: flow\n" + text).errors

    assert any(said in each.message for each in found), found
    assert all(each.place.line > 0 for each in found)


def refused(text: str, to: Any) -> str:
    with pytest.raises(Rejected) as error:
        rewrite(load("id: flow\n" + text), to)
    assert error.value.code == "rewrite-impossible"
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "to", "said"),
    [
        ("tasks: {a: {do: x}, b: {do: x, after: a}}", "data", "no input of `b`"),
        ("tasks: {a: {do: x}, b: {do: x, after: {from: a, when: 'true'}}}", "data", "has a condition"),
        ("tasks: {a: {do: x}, b: {do: x, after: {from: a, on: error}}}", "event", "taken on error"),
        ("tasks: {g: {type: gateway, kind: parallel}, b: {do: x, after: g}}", "event", "gateway `g`"),
        ("tasks: {a: {do: x, when: 'true'}, b: {do: x, after: a}}", "event", "may be skipped"),
        ("tasks: {a: {do: x}, b: {do: x, after: a}}", "event", "write `outputs`"),
        ("tasks: {a: {do: x}, b: {do: x, inputs: {p: {from: a}}}}", "data", "without a link"),
        ("tasks: {a: {do: x}}", "rule", "write `outputs`"),
        ("outputs: {a: tasks.a.output}\ntasks: {a: {do: x}}", "rule", "reads tasks"),
        ("orchestration: event\ntasks: {a: {do: x, on: t}}", "control", "nobody in this definition"),
        ("orchestration: event\ntasks: {a: {do: x, on: {topic: t, where: 'true'}}}", "control", "from elsewhere"),
        ("orchestration: event\ntasks: {a: {do: x, on: 't.*'}}", "control", "more than one topic"),
        (
            "orchestration: event\ntasks: {a: {type: publish, topic: t, payload: 1}, b: {do: x, on: t, inputs: {p: {from: on_b}}}}",
            "control",
            "carries",
        ),
        (
            "orchestration: event\ntasks: {a: {type: publish, topic: t, payload: 1, when: 'true'}, b: {do: x, on: t}}",
            "control",
            "without telling",
        ),
        ("tasks: {a: {do: x}}", "magic", "none of"),
        (RULES, "data", "control flow alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_rewritten_is_named(text: str, to: Any, said: str) -> None:
    assert said in refused(text, to)


def test_events_of_its_own_become_links() -> None:
    made = rewrite(
        load(
            "id: flow\norchestration: event\ntasks: {a: {type: publish, topic: t, payload: 1}, b: {do: x, on: t}}"
        ),
        "control",
    )

    assert {"from": "a", "to": "b"} in made["links"]
    assert "on_b" not in made["tasks"]
    assert load_document(made).definition.orchestration == "control"
