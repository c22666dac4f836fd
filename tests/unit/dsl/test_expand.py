"""Shorthand, and the full document that it stands for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dsl.load import Loaded, load, load_document
from penstock.model.definition import Body, Definition, Task


def expanded(*lines: str, **more: Any) -> Loaded:
    """A definition whose tasks are these lines."""
    text = "\n".join(["id: it", "tasks:", *(f"  {line}" for line in lines)])
    loaded = load(text + "\n" + "\n".join(f"{key}: {value}" for key, value in more.items()))
    assert not loaded.findings
    return loaded


def task(*lines: str, **more: Any) -> dict[str, Any]:
    """The first of these tasks, as data."""
    document = expanded(*lines, **more).document["tasks"]
    return document[lines[0].split(":")[0]]


def links(loaded: Loaded) -> list[str]:
    return [f"{link.from_}>{link.to}" for link in loaded.definition.links]


def test_do_is_an_activity() -> None:
    assert task("a: {do: charge}") == {"type": "activity", "config": {"activity": "charge"}}


def test_after_makes_links_that_come_behind_the_written_ones() -> None:
    loaded = expanded(
        "a: {do: a}",
        "b: {do: b, after: a}",
        "c: {do: c, after: [a, b]}",
        "d: {do: d}",
        links="[{from: c, to: d}]",
    )

    assert links(loaded) == ["c>d", "a>b", "a>c", "b>c", "start>a", "d>end"]


def test_after_takes_links_too() -> None:
    loaded = expanded(
        "a: {do: a}",
        "b: {do: b, after: {from: a, on: error}}",
        "c: {do: c, after: [{from: a, when: x}]}",
    )

    error, success, *_ = loaded.definition.links
    assert (error.from_, error.to, error.on) == ("a", "b", "error")
    assert success.condition is not None
    assert success.condition.expression == "x"


def test_when_is_a_condition_of_the_task() -> None:
    assert task("a: {do: a, when: 'input.x > 1'}")["conditions"] == [{"expression": "input.x > 1"}]
    assert task("a: {do: a, conditions: [x, {expression: y}], when: z}")["conditions"] == [
        {"expression": "x"},
        {"expression": "y"},
        {"expression": "z"},
    ]
    assert task("a: {do: a, conditions: x}")["conditions"] == [{"expression": "x"}]


def test_conditions_of_links_may_be_text_or_a_plain_truth() -> None:
    loaded = expanded("a: {do: a}", "b: {do: b}", links="[{from: a, to: b, condition: true}]")

    condition = loaded.definition.links[0].condition
    assert condition is not None
    assert condition.expression == "true"


def test_durations_become_seconds() -> None:
    assert task("a: {do: a, timeout: 30s}")["timeout"] == {"startToClose": 30}
    assert task("a: {do: a, timeout: 5}")["timeout"] == {"startToClose": 5}
    assert task("a: {do: a, timeout: {task: 1h, heartbeat: PT5S}}")["timeout"] == {
        "task": 3600,
        "heartbeat": 5,
    }
    assert task("a: {type: timer, delay: 500ms}")["config"] == {"delay": 0.5}
    assert task("a: {type: form, schema: true, due: 2d}")["config"]["due"] == 172_800
    assert expanded("a: {do: a}", timeouts="{run: 1h}").document["timeouts"] == {"run": 3600}


def test_a_duration_that_is_computed_stays_text() -> None:
    assert task("a: {type: timer, delay: '${input.wait}'}")["config"] == {"delay": "${input.wait}"}


def test_a_number_of_attempts_is_a_retry() -> None:
    assert task("a: {do: a, retry: 5}")["retry"] == {"attempts": 5}
    assert task("a: {do: a, retry: {first: 200ms, maximum: 1m, never: x}}")["retry"] == {
        "first": 0.2,
        "maximum": 60,
        "never": ["x"],
    }


@pytest.mark.parametrize(
    ("given_join", "full"),
    [
        ("all", {"kind": "all"}),
        ("any", {"kind": "any"}),
        ("{n: 2, cancel: true}", {"kind": "n", "n": 2, "cancel": True}),
        ("{any: true, cancel: true}", {"kind": "any", "cancel": True}),
        ("{all: true}", {"kind": "all"}),
        ("{kind: merge}", {"kind": "merge"}),
        ("{}", {}),
    ],
)
def test_joins_may_be_short(given_join: str, full: Any) -> None:
    assert task(f"a: {{do: a, join: {given_join}}}")["join"] == full


def test_inputs_that_are_no_source_are_values_or_templates() -> None:
    inputs = task(
        "a:",
        "  do: a",
        "  inputs:",
        "    number: 5",
        "    text: hello",
        "    nothing: null",
        "    list: [1, 2]",
        "    object: {path: /tmp, kind: file}",
        "    greeting: Hello ${input.name}",
        "    source: {from: input, path: $.x, default: 3}",
        "    constant: {value: {from: here}}",
    )["inputs"]

    assert inputs == {
        "number": {"value": 5},
        "text": {"value": "hello"},
        "nothing": {"value": None},
        "list": {"value": [1, 2]},
        "object": {"value": {"path": "/tmp", "kind": "file"}},
        "greeting": {"template": "Hello ${input.name}"},
        "source": {"from": "input", "path": "$.x", "default": 3},
        "constant": {"value": {"from": "here"}},
    }


def test_compensate_may_be_the_name_of_an_activity() -> None:
    assert task("a: {do: a, compensate: undo}")["compensate"] == {"activity": "undo"}
    assert task("a: {do: a, compensate: {do: undo, retry: 2, inputs: {x: 1}}}")["compensate"] == {
        "activity": "undo",
        "retry": {"attempts": 2},
        "inputs": {"x": {"value": 1}},
    }


def test_config_may_stand_beside_the_type() -> None:
    assert task("a: {type: http, method: GET, url: 'https://x', queue: q}") == {
        "type": "http",
        "queue": "q",
        "config": {"method": "GET", "url": "https://x"},
    }


def test_a_signal_is_called_like_its_task_and_its_timeout_is_how_long_it_waits() -> None:
    assert task("ok: {type: signal, timeout: 2d}") == {
        "type": "signal",
        "config": {"timeout": 172_800, "name": "ok"},
    }
    assert task("a: {type: signal, name: ok}") == {"type": "signal", "config": {"name": "ok"}}
    assert task("a: {type: signal, name: Title, config: {name: ok}}") == {
        "type": "signal",
        "name": "Title",
        "config": {"name": "ok"},
    }


def test_expressions_may_be_plain_numbers_and_truths() -> None:
    assert task("a: {type: transform, set: {x: 0, y: true, z: null, w: 1.5, v: data.x}}") == {
        "type": "transform",
        "config": {"set": {"x": "0", "y": "true", "z": "null", "w": "1.5", "v": "data.x"}},
    }


def test_one_action_needs_no_list() -> None:
    assert task("a: {do: a, onComplete: {set: {x: 1}}, onError: [{notify: ops}]}") == {
        "type": "activity",
        "config": {"activity": "a"},
        "onComplete": [{"set": {"x": "1"}}],
        "onError": [{"notify": "ops"}],
    }


def test_data_may_be_given_by_value() -> None:
    document = expanded("a: {do: a}", data="{n: 0, list: [], full: {merge: append}}").document

    assert document["data"] == {
        "n": {"value": 0},
        "list": {"value": []},
        "full": {"merge": "append"},
    }


def test_a_parallel_gateway_joins_all_unless_told_otherwise() -> None:
    assert task("g: {type: gateway, kind: parallel}", "a: {do: a, after: g}")["join"] == {
        "kind": "all"
    }
    assert task("g: {type: gateway, kind: parallel, join: any}", "a: {do: a, after: g}")[
        "join"
    ] == {"kind": "any"}
    assert "join" not in task("g: {type: gateway, kind: inclusive}", "a: {do: a, after: g}")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("charge", "charge"),
        ("{do: charge}", "charge"),
        ("{do: shop.charge}", "activity"),
        ("{type: activity, config: {activity: pay}}", "pay"),
        ("{type: timer, delay: 1s}", "timer"),
        ("{type: cancel, tasks: m}", "cancel"),
    ],
)
def test_a_body_of_one_task_is_a_scope_of_its_own(body: str, name: str) -> None:
    config = task(f"m: {{type: map, items: input, body: {body}}}")["config"]

    scope = msgspec.convert(config["body"], Body)
    assert list(scope.tasks) == ["start", name, "end"]
    assert [(link.from_, link.to) for link in scope.links] == [("start", name), (name, "end")]


def test_bodies_nest_and_their_shorthand_is_expanded() -> None:
    config = task(
        "m: {type: map, items: input, body: {type: loop, while: false, body: "
        "{tasks: {a: {do: a, retry: 2}, b: {do: b, after: a}}}}}"
    )["config"]

    inner = msgspec.convert(config["body"], Body).tasks["loop"].config
    scope = msgspec.convert(inner["body"], Body)
    assert inner["while"] == "false"
    assert scope.tasks["a"].retry is not None
    assert [f"{link.from_}>{link.to}" for link in scope.links] == ["a>b", "start>a", "b>end"]


def test_start_and_end_are_implied() -> None:
    loaded = expanded("a: {do: a}", "b: {do: b}", "c: {do: c, after: [a, b]}")

    assert list(loaded.definition.tasks) == ["start", "a", "b", "c", "end"]
    assert links(loaded) == ["a>c", "b>c", "start>a", "start>b", "c>end"]


def test_a_start_that_is_written_keeps_its_own_links() -> None:
    loaded = expanded("begin: {type: start}", "a: {do: a, after: begin}", "b: {do: b}")

    assert links(loaded) == ["begin>a", "a>end", "b>end"]


def test_an_end_that_is_written_keeps_its_own_links() -> None:
    loaded = expanded("a: {do: a}", "b: {do: b}", "stop: {type: end, terminate: true, after: a}")

    assert links(loaded) == ["a>stop", "start>a", "start>b"]


def test_start_and_end_may_be_named_without_being_written() -> None:
    loaded = expanded(
        "a: {do: a, after: start}", "b: {do: b, after: a}", links="[{from: a, to: end, when: x}]"
    )

    assert links(loaded) == ["a>end", "start>a", "a>b", "b>end"]


def test_names_that_are_taken_get_an_underscore() -> None:
    loaded = expanded("start: {do: a}", "end: {do: b, after: start}", "end_: {do: c, after: end}")

    assert list(loaded.definition.tasks) == ["start_", "start", "end", "end_", "end__"]
    assert links(loaded) == ["start>end", "end>end_", "start_>start", "end_>end__"]


def test_a_task_with_only_error_links_still_leads_to_the_end() -> None:
    loaded = expanded("a: {do: a}", "b: {do: b, after: {from: a, on: error}}")

    assert links(loaded) == ["a>b", "start>a", "a>end", "b>end"]


def test_a_task_that_always_leads_on_does_not() -> None:
    loaded = expanded("a: {do: a}", "b: {do: b, after: {from: a, on: always}}")

    assert links(loaded) == ["a>b", "start>a", "b>end"]


def test_a_task_that_leads_only_back_is_not_linked_to_the_end() -> None:
    loaded = expanded(
        "review: {do: review}",
        "revise: {do: revise}",
        "done: {do: done}",
        links="[{from: review, to: done, when: x}, {from: review, to: revise, when: y}, "
        "{from: revise, to: review, when: z}]",
    )

    assert links(loaded)[3:] == ["start>review", "done>end"]


def test_a_cycle_that_nothing_leaves_ends_where_it_leads_only_back() -> None:
    loaded = expanded(
        "a: {do: a}", "b: {do: b, after: a}", links="[{from: b, to: a, when: iteration < 3}]"
    )

    assert links(loaded) == ["b>a", "a>b", "start>a", "b>end"]


def test_what_was_expanded_is_found_where_it_was_written() -> None:
    loaded = expanded(
        "a: {do: charge, retry: 5, timeout: 30s, inputs: {x: 1}, when: 'true'}",
        "m: {type: map, items: input, body: {do: ship, retry: 3}, after: a}",
    )

    def at(*path: str | int) -> tuple[int, int]:
        return loaded.places[path]

    assert at("tasks", "a", "config", "activity") == (3, 11)
    assert at("tasks", "a", "retry", "attempts") == (3, 26)
    assert at("tasks", "a", "timeout", "startToClose") == (3, 38)
    assert at("tasks", "a", "inputs", "x", "value") == (3, 55)
    assert at("tasks", "a", "conditions", 0, "expression") == (3, 65)
    assert at("tasks", "m", "config", "body", "tasks", "ship", "config", "activity") == (4, 43)
    assert at("tasks", "m", "config", "body", "tasks", "ship", "retry", "attempts") == (4, 56)
    assert at("links", 0) == (4, 67)
    assert loaded.place(("links", 1)).column == 6  # implied, from start to `a`
    assert loaded.place(("tasks", "start")).line == 2


# --- laws ---------------------------------------------------------------------------------------

IDS = [*"abcdef", "start", "end"]
words = st.sampled_from(IDS)
durations = st.sampled_from(["30s", "PT1M", 5, 0.5, "1h30m"])
expressions = st.sampled_from(["input.x > 1", "true", True, "size(data.list)"])
values = st.sampled_from(
    [1, "x", "${input.y}", None, [1], {"k": 1}, {"from": "input"}, {"value": 2}]
)
conditions = expressions | st.fixed_dictionaries({"expression": st.just("x > 1")})
ways = words | st.fixed_dictionaries(
    {"from": words},
    optional={"on": st.sampled_from(["success", "error", "always"]), "when": conditions},
)
joins = st.sampled_from(
    ["all", "any", {"n": 2}, {"any": True, "cancel": True}, {"kind": "n", "n": 1}, {}]
)
common: dict[str, st.SearchStrategy[Any]] = {
    "after": ways | st.lists(ways, max_size=3),
    "when": conditions,
    "conditions": conditions.filter(lambda c: not isinstance(c, dict))
    | st.lists(conditions, max_size=2),
    "inputs": st.dictionaries(words, values, max_size=3),
    "retry": st.sampled_from([3, {"first": "1s", "never": "x"}, {}]),
    "timeout": durations | st.fixed_dictionaries({"task": durations}),
    "join": joins,
    "compensate": st.sampled_from(["undo", {"do": "undo", "inputs": {"x": 1}}, {"activity": "u"}]),
    "onComplete": st.sampled_from([{"set": {"x": 1}}, [{"notify": "x"}, {"set": {"y": "z"}}]]),
    "reads": st.sampled_from(["a", ["a", "b"]]),
}


FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "activity": {"do": words},
    "gateway": {"kind": st.sampled_from(["exclusive", "parallel", "inclusive", "event"])},
    "timer": {"delay": durations},
    "signal": {"timeout": durations},
    "transform": {"set": st.dictionaries(words, expressions, max_size=2)},
    "map": {"items": expressions},
    "loop": {"while": expressions},
    "mutex": {"name": words},
    "end": {},
    "start": {},
}
flows = st.fixed_dictionaries(
    {"from": words, "to": words},
    optional={"condition": conditions, "on": st.sampled_from(["success", "error", "always"])},
)


@st.composite
def tasks(draw: st.DrawFn, depth: int) -> dict[str, Any]:
    kind = draw(st.sampled_from(list(FIELDS)))
    task = {} if kind == "activity" else {"type": kind}
    task |= {name: draw(values) for name, values in FIELDS[kind].items()}
    for name in draw(st.lists(st.sampled_from(list(common)), max_size=3, unique=True)):
        if name not in task:
            task[name] = draw(common[name])
    if kind in ("map", "loop", "mutex"):
        shape = draw(st.sampled_from(["text", "task", "scope"])) if depth else "text"
        inner = {"task": tasks(depth - 1), "scope": scopes(depth - 1)}
        task["body"] = "work" if shape == "text" else draw(inner[shape])
    return task


@st.composite
def scopes(draw: st.DrawFn, depth: int) -> dict[str, Any]:
    names = draw(st.lists(words, min_size=1, max_size=5, unique=True))
    scope: dict[str, Any] = {"tasks": {name: draw(tasks(depth)) for name in names}}
    if draw(st.booleans()):
        scope["links"] = draw(st.lists(flows, max_size=5))
    return scope


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    return {"id": "it", **draw(scopes(2))}


@settings(max_examples=80, deadline=None)
@given(documents())
def test_what_is_expanded_stays_as_it_is(document: dict[str, Any]) -> None:
    once = load_document(document)

    assert load_document(once.document).document == once.document


@settings(max_examples=50, deadline=None)
@given(documents())
def test_a_definition_written_out_is_the_same_definition(document: dict[str, Any]) -> None:
    definition = load_document(document).definition
    text = msgspec.json.encode(definition).decode()

    assert load(text, format="json").definition == definition
    assert msgspec.json.decode(text.encode(), type=Definition) == definition


@settings(max_examples=50, deadline=None)
@given(documents())
def test_every_body_is_a_scope_with_start_and_end(document: dict[str, Any]) -> None:
    waiting: list[dict[str, Task]] = [load_document(document).definition.tasks]
    while waiting:
        tasks = waiting.pop()
        types = [task.type for task in tasks.values()]
        assert "start" in types
        assert "end" in types
        for task in tasks.values():
            if task.type in ("map", "loop", "mutex"):
                waiting.append(msgspec.convert(task.config["body"], Body).tasks)
