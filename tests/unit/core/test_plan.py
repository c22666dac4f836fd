"""What a plan knows of its definition, and how configs, requests and announcements come to be (SPEC 2.2, 2.6, 4.10)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from penstock.core.plan import Plan
from penstock.core.vocabulary import (
    CONFIG,
    AddedType,
    Mentioned,
    Problem,
    Vocabulary,
    fields_of,
    mentioned,
)
from penstock.dsl.load import load
from penstock.errors import DefinitionInvalid
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.definition import Condition, Definition, Link, Source, Task
from penstock.model.failure import Failure
from support.world import NOON, World, given, plan_of

ONE = "tasks: {a: {do: x}}"


@pytest.mark.parametrize(
    ("source", "queues", "queued"),
    [
        (ONE, ("default",), False),
        ("limits: {queue: slow}\n" + ONE, ("slow",), True),
        ("tasks: {a: {type: activity, config: {activity: x, queue: q}}}", ("q",), True),
        ("tasks: {a: {do: x, queue: q}, b: {do: x}, m: {type: map, items: '[]', body: {tasks: {i: {do: x, queue: r}}}}}",
         ("q", "default", "r"), True),
        ("tasks: {a: {do: x, priority: high}}", ("default",), True),
        ("tasks: {a: {do: x, limits: {key: input.who}}}", ("default",), True),
        ("limits: {key: input.who}\n" + ONE, ("default",), True),
        ("tasks: {t: {type: timer, delay: 5s}}", (), False),
        ("tasks: {h: {type: http, method: GET, url: 'http://x'}}", ("default",), False),
    ],
)  # fmt: skip
def test_which_queues_its_work_needs(source: str, queues: tuple[str, ...], queued: bool) -> None:
    plan = plan_of(source)

    assert sorted(plan.queues) == sorted(queues)
    assert plan.queued is queued


@pytest.mark.parametrize(
    ("source", "awaits", "publishes"),
    [
        (ONE, False, False),
        ("tasks: {w: {type: event, topic: t, where: 'true'}}", True, False),
        ("tasks: {p: {type: publish, topic: t, payload: 1}}", False, True),
        ("tasks: {a: {do: x, onComplete: [{publish: {topic: t}}]}}", False, True),
        ("tasks: {a: {do: x, onError: [{notify: {to: ann}}]}}", False, True),
        ("tasks: {a: {do: x, onComplete: [{set: {k: '1'}}]}}", False, False),
        ("tasks: {a: {do: x, onComplete: [{signal: {run: r, name: n}}]}}", False, False),
        ("tasks: {m: {type: map, items: '[]', body: {tasks: {w: {type: event, topic: t, where: 'true'}}}}}", True, False),
    ],
)  # fmt: skip
def test_whether_it_needs_the_bus(source: str, awaits: bool, publishes: bool) -> None:
    plan = plan_of(source)

    assert (plan.awaits, plan.publishes, plan.on_bus) == (awaits, publishes, awaits or publishes)


def test_limits_are_compiled_with_their_keys() -> None:
    plan = plan_of(
        "limits: {runs: 3, key: input.who}\ntasks: {a: {do: x, limits: {key: input.what}}}"
    )

    assert plan.runs_max == 3
    assert plan.key is not None
    assert plan.key({"input": {"who": "ann"}}) == "ann"
    key = plan.node("a").key
    assert key is not None
    assert key({"input": {"what": 7}}) == 7
    assert plan_of(ONE).key is None
    assert plan_of(ONE).node("a").key is None


def test_signals_are_kept_unless_all_who_take_them_say_otherwise() -> None:
    plan = plan_of(
        """
tasks:
  s: {type: signal, name: go, transient: true}
  t: {type: signal, name: go}
  u: {type: signal, name: on, transient: true}
  m: {type: map, items: '[]', more: item, body: {do: x}}
"""
    )

    assert {name: [node.id for node in nodes] for name, nodes in plan.signals.items()} == {
        "go": ["s", "t"],
        "on": ["u"],
        "item": ["m"],
    }
    assert plan.transient == {"on"}
    assert (plan.takes("go"), plan.takes("item"), plan.takes("no")) == (True, True, False)


def test_scopes_know_where_they_are() -> None:
    plan = plan_of(
        "tasks: {m: {type: map, items: '[]', body: {tasks: {l: {type: loop, while: 'true', body: {do: x}}}}}}"
    )

    assert {path: (s.kind, s.owner) for path, s in plan.scopes.items()} == {
        "": ("run", ""),
        "m": ("map", "m"),
        "m/l": ("loop", "l"),
    }
    assert plan.scopes["m/l"].parent is plan.scopes["m"]
    assert plan.scopes["m"].parent is plan.root
    assert plan.node("m/l/x").path == "m/l/x"


def test_the_task_timeout_of_a_definition_is_that_of_its_work_and_children() -> None:
    plan = plan_of(
        """
timeouts: {task: 9s}
tasks:
  a: {do: x}
  b: {do: x, timeout: {task: 5s}}
  c: {type: subworkflow, definition: d}
  t: {type: timer, delay: 60s}
"""
    )

    assert [plan.node(id).timeouts.task for id in "abct"] == [9.0, 5.0, 9.0, None]


# --- results -------------------------------------------------------------------------------------------------


def test_the_result_may_come_out_of_a_natural_loop() -> None:
    run = given(
        "tasks: {a: {do: x}, b: {do: x, after: a}}\nlinks: [{from: b, to: a, when: iteration < 2}]"
    )
    for number in (1, 2):
        run.complete(f"a[{number}]/a", number)
        run.complete(f"a[{number}]/b", number * 10)

    assert run.result == 20


def test_the_result_of_several_is_by_id_and_leaves_out_who_did_not_complete() -> None:
    run = given(
        "tasks: {a: {do: x}, b: {do: x}, d: {do: x}}\nlinks: [{from: a, to: b, when: 'false'}]"
    )
    run.complete("a", 1)
    run.complete("d", "y" * 5000)

    assert run.result == {"d": "y" * 5000}


@pytest.mark.parametrize("outputs", ["", "outputs: {v: data.v}\n"])
def test_a_run_that_ends_with_its_first_event_ends_once(outputs: str) -> None:
    run = given(
        outputs
        + "tasks: {l: {type: loop, while: 'iteration < 2', body: {type: transform, set: {v: iteration}}}}"
    )

    assert run.types() == ["run_started", "run_completed"]
    assert run.result == {"v": 2}
    assert len(run.events[0].outcomes) == 5 + bool(outputs)  # and nothing is asked twice


# --- configs that are known only when the task fires ---------------------------------------------------------


def test_durations_and_names_may_be_computed() -> None:
    run = given(
        """
tasks:
  f: {type: form, schema: {}, assignee: '${input.who}', due: '${input.wait}'}
  s: {type: signal, name: go, timeout: '${input.wait}'}
  w: {type: event, topic: '${input.topic}', where: 'true', timeout: '${input.wait}'}
  t: {type: timer, delay: '${input.wait}'}
  u: {type: timer, until: '${input.moment}'}
""",
        {"who": "ann", "wait": "5s", "topic": "a.b", "moment": "1970-01-01T01:00:00"},
    )
    form = run.task("f").form
    assert form is not None
    assert (form.assignee, form.due) == ("ann", NOON + 5)
    assert [run.task(id).due for id in "fswtu"] == [NOON + 5] * 4 + [3600.0]
    assert run.run.listening == {"w": "a.b"}


@pytest.mark.parametrize(
    ("task", "input", "message"),
    [
        ("{type: timer, delay: '${input}'}", "soon", "duration of `w`: "),
        ("{type: timer, until: '${input}'}", "soon", "time of `w`: Invalid isoformat string: 'soon'"),
        ("{type: map, items: input, body: {do: x}}", 7, "items of `w` is not a list"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_fails_the_task(task: str, input: Any, message: str) -> None:
    run = given(f"tasks:\n  w: {task}\n", input)

    assert run.failure is not None
    assert (run.code, run.failure.key) == ("expression-failed", "w")
    assert run.failure.message.startswith(message)


def test_a_moment_has_its_zone_or_is_of_none() -> None:
    for moment in ("1970-01-01T02:00:00+01:00", "1970-01-01T01:00:00", 3600):
        run = given("tasks: {u: {type: timer, until: '${input}'}}", moment)
        assert run.task("u").due == 3600.0


def test_a_join_that_has_enough_gives_up_the_others_where_it_stands() -> None:
    body = (
        "{tasks: {a: {do: x}, b: {do: x}, j: {do: x, after: [a, b], join: {n: 1, cancel: true}}}}"
    )
    run = given(f"tasks: {{m: {{type: map, items: '[1]', body: {body}}}}}")
    run.complete("m[0]/a")

    assert run.abandoned() == ["m[0]/b"]
    assert run.open == ["m[0]/j"]


def test_nobody_is_nobody() -> None:
    run = given("tasks: {f: {type: form, schema: {}, assignee: '${input}'}}", None)

    form = run.task("f").form
    assert form is not None
    assert form.assignee is None


def test_a_loop_that_wants_more_passes_than_it_may_says_so() -> None:
    run = given("tasks: {l: {type: loop, while: 'true', max: 2, body: {do: x}}}")
    run.complete("l[1]/x")
    run.complete("l[2]/x")

    assert run.failure == Failure(
        code="loop-max", message="`l` still wants another pass after 2", key="l"
    )


def test_a_join_that_can_never_fire_says_of_what_there_is_too_little() -> None:
    run = given("tasks: {a: {do: x}, b: {do: x}, j: {do: x, after: [a, b], join: {n: 2}}}\nlinks: [{from: a, to: end}]")  # fmt: skip
    run.plan.scopes[""].nodes["j"].join_n = 3  # structure is not checked here
    run.complete("a")

    assert run.failure == Failure(
        code="join-starved", message="`j` waits for 3 of its links, but there are only 2", key="j"
    )


def test_a_request_is_fixed_when_its_task_fires() -> None:
    run = given(
        """
tasks:
  h:
    type: http
    method: POST
    url: 'http://x/${input.n}'
    headers: {a: b}
    body: {n: '${input.n}'}
    inputs: {extra: {template: '${input.n + 1}'}, key: {secret: s}}
""",
        {"n": 7},
    )

    assert run.open == ["h"]
    assert run.task("h").arguments is not None
    assert msgspec.json.decode(run.task("h").arguments) == {
        "method": "POST", "url": "http://x/7", "headers": {"a": "b"}, "body": {"n": 7}, "extra": 8,
    }  # fmt: skip
    values, secrets = run.flow.arguments("h")
    assert values["url"] == "http://x/7"
    assert secrets == [("key", "s")]
    assert run.task("h").attempt == 1


@pytest.mark.parametrize(("depth", "code"), [(63, ""), (64, "depth-exceeded")])
def test_subworkflows_are_not_started_without_end(depth: int, code: str) -> None:
    run = given("tasks: {c: {type: subworkflow, definition: d}}", depth=depth)

    assert run.code == code
    if code:
        assert run.failure is not None
        assert run.failure.message == "`c` would be subworkflow number 65 deep"
        assert run.failure.key == "c"
    else:
        assert run.task("c").child == "run/c"


def test_a_child_of_a_later_generation_has_another_name() -> None:
    run = given("tasks: {c: {type: subworkflow, definition: d, version: '3', inputs: {n: {value: 1}}}}", generation=2)  # fmt: skip

    assert run.task("c").child == "run~2/c"
    assert run.task("c").arguments == b'{"definition":"d","version":"3","input":{"n":1}}'


def test_inputs_from_each_place_are_read_when_they_are_settled() -> None:
    run = given(
        """
data: {d: {value: 5}}
tasks:
  m:
    type: map
    items: '[10, 20]'
    body:
      tasks:
        i:
          do: x
          inputs:
            a: {from: item}
            b: {from: index}
            c: {from: input}
            e: {from: data}
            f: {from: input, path: $.n}
            g: {from: input, path: $.none, default: 9}
            h: {value: [1]}
  l: {type: loop, while: 'iteration < 1', body: {tasks: {p: {do: x, inputs: {n: {from: iteration}}}}}}
""",
        {"n": 7},
    )

    assert run.arguments("m[1]/i") == {
        "a": 20, "b": 1, "c": {"n": 7}, "e": {"d": 5}, "f": 7, "g": 9, "h": [1],
    }  # fmt: skip
    assert run.arguments("l[1]/p") == {"n": 1}
    fixed = run.task("m[1]/i").arguments
    assert fixed is not None
    assert sorted(msgspec.json.decode(fixed)) == ["e", "f", "g"]  # the rest cannot change
    assert run.task("l[1]/p").arguments is None


def test_an_input_that_is_not_there_says_where_it_was_looked_for() -> None:
    run = given("tasks: {a: {do: x, inputs: {v: {from: input, path: $.none}}}}", {"n": 7})

    assert run.failure is not None
    assert run.code == "input-missing"
    assert run.failure.message == "inputs of `a`: `v`: `input` has nothing at $.none"


# --- expressions ---------------------------------------------------------------------------------------------


def test_a_condition_that_is_not_true_or_false_says_so() -> None:
    run = given("tasks: {a: {do: x, conditions: [input]}}", 7)

    assert run.failure is not None
    assert run.code == "expression-failed"
    assert run.failure.message == "condition of `a`: `input` gave int, not true or false"


INTEGER = "inputSchema: {type: object, properties: {n: {type: integer}}}\n"


def test_an_integer_by_its_schema_is_one_in_conditions_and_in_what_is_undone() -> None:
    run = given(
        INTEGER
        + "tasks: {a: {do: x, conditions: ['input.n % 3 == 1'], compensate: {activity: back, inputs: {v: {template: '${input.n % 3}'}}}}, b: {do: x, after: a}}",
        {"n": 4.0},
    )
    run.complete("a")
    run.cancel()

    assert run.code == "cancelled"
    assert bytes(run.run.undo[0].arguments) == b'{"v":1}'


def test_what_expressions_give_in_one_step_is_bounded_and_what_was_refused_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.core.inputs.PAYLOAD_BYTES_MAX", 1000)
    twice = "{v: {template: '${tasks.a.output}'}, w: {template: '${tasks.a.output}'}}"
    run = given(
        f"tasks: {{a: {{do: x}}, b: {{do: x, after: a, inputs: {twice}, onError: [{{set: {{seen: '\"yes\"'}}}}]}}, s: {{type: signal}}}}"
    )
    run.complete("a", "y" * 750)

    assert run.failure is not None
    assert (run.code, run.failure.key) == ("payload-too-large", "b")
    assert run.failure.message == (
        "inputs of `b`: what expressions give in one step takes more than 1,000 bytes as JSON"
    )
    assert run.data == {"seen": "yes"}


def test_all_that_expressions_give_in_one_step_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.inputs.PAYLOAD_BYTES_MAX", 1000)
    run = given("tasks: {t: {type: transform, set: {v: input, w: input}}}", "y" * 600)

    assert run.code == "payload-too-large"


def test_a_transform_that_fails_says_which_name() -> None:
    run = given("tasks: {t: {type: transform, set: {v: input.no}}}", {"n": 1})

    assert run.failure is not None
    assert run.failure.message.startswith("`v` of `t`: no such key `no`")


# --- announcements -------------------------------------------------------------------------------------------


def test_what_a_task_announces_is_an_event_of_its_own() -> None:
    run = given(
        """
tasks:
  a:
    do: x
    onComplete:
      - {publish: {topic: t.u, payload: '${tasks.a.output}'}}
      - {signal: {run: other, name: go, payload: 2}}
      - {notify: {to: ann}}
  b: {do: x}
"""
    )
    run.complete("a", 1)

    assert run.events[2:] == [
        e.Published(at=NOON, key="a", topic="t.u", payload=Raw(b"1")),
        e.SignalSent(at=NOON, key="a", run="other", name="go", payload=Raw(b"2"), id="run/1/2/1"),
        e.Published(at=NOON, key="a", topic="workflow.notify", payload=Raw(b'{"to":"ann"}')),
    ]


@pytest.mark.parametrize("topic", [7, "a b", "y" * 300], ids=["number", "space", "long"])
def test_what_is_no_topic_is_not_published(topic: Any) -> None:
    run = given("tasks: {p: {type: publish, topic: '${input}', payload: 1}}", topic)

    shown = str(topic) if len(str(topic)) <= 80 else "y" * 80 + "…"
    assert run.failure == Failure(
        code="topic-invalid", message=f"message of `p`: `{shown}` is no topic", key="p"
    )


def test_what_is_no_topic_is_not_waited_for() -> None:
    run = given("tasks: {w: {type: event, topic: '${input}', where: 'true'}}", "a b")

    assert run.failure == Failure(
        code="topic-invalid",
        message="topic of `w`: `a b` is no topic, and no pattern of topics",
        key="w",
    )


# --- waits that belong together ------------------------------------------------------------------------------


def test_to_skip_one_of_a_gate_disarms_the_others() -> None:
    run = given(
        """
tasks:
  g: {type: gateway, kind: event}
  s: {type: signal, after: g}
  t: {type: timer, delay: 1h, after: g}
  z: {do: x, after: s}
"""
    )
    run.command(c.HandleWait(at=NOON, key="s", act="skip"))

    assert run.task("t").status == "CANCELLED"
    assert run.open == ["z"]


def test_an_open_list_that_is_stopped_waits_for_no_more_items() -> None:
    run = given("tasks: {m: {type: map, items: '[1]', more: item, body: {do: x}}}")
    assert run.run.waiters == {"item": ["m"]}
    run.cancel()

    assert run.run.waiters == {}
    assert run.open == ["m[0]/x"]


# --- what plugins add ----------------------------------------------------------------------------------------


def test_names_that_are_none_of_ours_are_found_in_bodies_too() -> None:
    definition = load(
        """
id: d
tasks:
  a: {do: x}
  m: {type: map, items: '[]', body: {tasks: {i: {do: x, conditions: ['true']}}}}
"""
    ).definition
    assert mentioned(definition) == Mentioned()
    assert not mentioned(definition)
    assert Mentioned(frozenset({"t"}))
    assert Mentioned(languages=frozenset({"l"}))


def test_types_and_languages_are_told_apart() -> None:
    foreign = Condition("x", language="rego")
    inner = {
        "tasks": {"i": {"type": "acme.in", "conditions": [{"expression": "y", "language": "lua"}]}}
    }
    definition = Definition(
        id="d",
        tasks={
            "a": Task(type="acme.out", conditions=(foreign, Condition("true"))),
            "m": Task(type="map", config={"items": "[]", "body": inner}),
            "t": Task(type="timer"),
        },
        links=(Link(from_="a", to="m", condition=Condition("z", language="feel")),),
    )

    assert mentioned(definition) == Mentioned(
        frozenset({"acme.in", "acme.out"}), frozenset({"rego", "lua", "feel"})
    )


def test_a_vocabulary_says_what_it_lacks() -> None:
    both = Mentioned(frozenset({"t", "u"}), frozenset({"l"}))
    added = AddedType("t", "acme 1")

    assert Vocabulary(types={"t": added}).lacks(both) == Mentioned(
        frozenset({"u"}), frozenset({"l"})
    )


def test_a_type_that_raises_is_let_be() -> None:
    def wrong(config: dict[str, Any]) -> Any:
        raise ValueError("no")

    silent = AddedType("t", "acme 1", check=wrong, effects=wrong, reads=wrong, writes=wrong)
    assert (silent.refused({}), silent.reading({}), silent.writing({})) == ("", (), ())
    assert silent.leaves({})
    telling = AddedType(
        "t",
        "acme 1",
        check=lambda config: [
            Problem("first", level="warning"),
            Problem("second"),
            Problem("third"),
        ],
        effects=lambda config: f"a row in {config['table']}",
        reads=lambda config: ["data.a"],
        writes=lambda config: [config["table"]],
    )
    assert telling.refused({}) == "second"
    assert telling.leaves({"table": "b"}) == "a row in b"
    assert telling.reading({}) == ("data.a",)
    assert telling.writing({"table": "b"}) == ("b",)
    assert AddedType("t", "acme 1", check=lambda config: []).refused({}) == ""


ADDED = AddedType(
    "acme.copy",
    "acme 1",
    config={"type": "object", "properties": {"to": {"type": "string"}}},
    check=lambda config: [Problem("it has no end")] if config["to"] == "end" else [],
)


@pytest.mark.parametrize(
    ("input", "failure"),
    [
        (7, Failure(code="field-invalid", message='config of `a`: $.to: 7 is not of type "string"', key="a")),
        ("end", Failure(code="plugin-check", message="config of `a`: it has no end", key="a")),
        ("there", None),
    ],
)  # fmt: skip
def test_the_config_of_an_added_type_is_looked_at_when_it_is_known(
    input: Any, failure: Failure | None
) -> None:
    definition = Definition(
        id="d",
        tasks={
            "start": Task(type="start"),
            "a": Task(
                type="acme.copy",
                config={"to": "${input}"},
                inputs={"n": Source(value=1), "key": Source(secret="s")},
            ),
            "end": Task(type="end"),
        },
        links=(Link(from_="start", to="a"), Link(from_="a", to="end")),
    )
    run = World(Plan(definition, Vocabulary(types={"acme.copy": ADDED}))).start(None, input)

    assert run.failure == failure
    if failure is None:
        assert run.open == ["a"]
        values, secrets = run.flow.arguments("a")
        assert values == {"n": 1, CONFIG: {"to": "there"}}
        assert secrets == [("key", "s")]


def test_an_added_type_reads_its_inputs_from_where_it_stands() -> None:
    body = {
        "tasks": {
            "start": {"type": "start"},
            "i": {"type": "acme.copy", "config": {"to": "x"}, "inputs": {"n": {"from": "item"}}},
            "end": {"type": "end"},
        },
        "links": [{"from": "start", "to": "i"}, {"from": "i", "to": "end"}],
    }
    definition = Definition(
        id="d",
        tasks={
            "start": Task(type="start"),
            "m": Task(type="map", config={"items": "[10, 20]", "body": body}),
            "end": Task(type="end"),
        },
        links=(Link(from_="start", to="m"), Link(from_="m", to="end")),
    )
    run = World(Plan(definition, Vocabulary(types={"acme.copy": ADDED}))).start()

    assert run.flow.arguments("m[1]/i")[0] == {"n": 20, CONFIG: {"to": "x"}}


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        ({"properties": {"a": {}, "b": {}}}, ("a", "b")),
        ({"$ref": "#/$defs/X", "$defs": {"X": {"properties": {"c": {}}}}}, ("c",)),
        ({"$ref": "#/$defs/Y", "$defs": {"X": {"properties": {"c": {}}}}}, ()),
        ({"$ref": "#/else", "properties": {"a": {}}}, ("a",)),
        ({"properties": []}, ()),
        (True, ()),
        (None, ()),
    ],
)
def test_the_fields_of_a_schema(schema: Any, fields: tuple[str, ...]) -> None:
    assert fields_of(schema) == fields


def test_a_definition_that_cannot_be_compiled_names_the_place() -> None:
    document = load("id: d\n" + ONE).definition
    tasks = {**document.tasks, "a": msgspec.structs.replace(document.tasks["a"], type="map", config={"body": {"tasks": {}}, "items": "[]"})}  # fmt: skip
    with pytest.raises(DefinitionInvalid, match="no start in `a`"):
        Plan(msgspec.structs.replace(document, tasks=tasks))
