"""Expressions that err are never silently false (SPEC 2.1), and what they see."""

from __future__ import annotations

import pytest

from support.world import given


@pytest.mark.parametrize(
    "task",
    [
        "{do: x, when: 'input.no'}",
        "{do: x, when: '5'}",
        "{do: x, inputs: {p: '${input.no}'}}",
        "{do: x, inputs: {p: {from: input, path: $.no}}}",
        "{type: timer, delay: '${input.no}'}",
        "{type: timer, until: '${input.no}'}",
        "{type: timer, delay: '${\"soon\"}'}",
        "{type: http, method: GET, url: 'http://h/${input.no}'}",
        "{type: publish, topic: t, payload: '${input.no}'}",
        "{type: transform, set: {v: 'input.no'}}",
        "{type: signal, timeout: '${input.no}'}",
        "{type: form, schema: {}, assignee: '${input.no}'}",
        "{type: subworkflow, definition: '${input.no}'}",
        "{type: map, items: 'input.no', body: {do: x}}",
        "{type: loop, while: 'input.no', body: {do: x}}",
    ],
)
def test_in_conditions_inputs_or_config_its_task_fails_without_an_attempt(task: str) -> None:
    run = given(f"tasks:\n  a: {task}\n  h: {{do: y, after: {{from: a, on: error}}}}", {})

    assert run.task("a").status == "FAILED"
    assert run.task("a").attempt == 0
    assert run.task("a").failure.code in ("expression-failed", "input-missing")  # type: ignore[union-attr]
    assert run.open == ["h"]
    assert run.waiting == ["h"]


def test_on_a_link_the_scope_fails_naming_the_link_and_the_task_stays_completed_and_is_undone() -> (
    None
):
    run = given(
        """
tasks:
  a: {do: x, compensate: undo_x}
  b: {do: x, after: {from: a, when: 'input.no'}}
  h: {do: x, after: {from: a, on: error}}
""",
        {},
    )

    run.complete("a", 1)

    assert run.status == "COMPENSATING"
    assert run.undoing == ["a"]
    run.complete("a")
    assert run.status == "FAILED"
    assert run.code == "expression-failed"
    assert run.failure is not None
    assert "a -> b" in run.failure.message


def test_in_outputs_the_run_fails() -> None:
    run = given("tasks:\n  a: {do: x, compensate: u}\noutputs: {v: input.no}", {})

    run.complete("a")
    assert run.status == "COMPENSATING"
    run.complete("a")

    assert run.code == "expression-failed"


def test_in_on_complete_the_scope_fails_and_the_task_stays_completed() -> None:
    run = given("tasks:\n  a: {do: x, onComplete: [{set: {v: input.no}}]}\n  b: {do: x}", {})

    run.complete("a")

    assert run.code == "expression-failed"
    assert run.abandoned() == ["b"]


def test_an_expression_that_costs_too_much_fails_its_task() -> None:
    run = given(
        "tasks:\n  a: {type: transform, set: {v: 'input.map(i, input.map(j, input.map(k, k)))'}}",
        list(range(200)),
    )

    assert run.code == "expression-cost"


def test_expressions_see_input_tasks_data_run_and_now() -> None:
    run = given(
        """
data: {d: 7}
tasks:
  a: {do: x}
  t:
    type: transform
    after: a
    set:
      i: input.v
      o: tasks.a.output
      s: tasks.a.status
      n: tasks.a.attempts
      e: tasks.a.error
      d: data.d
      id: run.id
      def: run.definition
      now: string(now)
      start: string(run.start)
""",
        {"v": 1},
    )
    run.world.now += 60
    run.complete("a", [1])

    data = run.data
    assert data.pop("now") == "1970-01-01T00:17:40Z"
    assert data.pop("start") == "1970-01-01T00:16:40Z"
    assert data == {
        "d": 7, "i": 1, "o": [1], "s": "COMPLETED", "n": 1, "e": None, "id": "run", "def": "flow",
    }  # fmt: skip


def test_a_failed_expression_reads_back_the_same_on_replay() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x, after: {from: a, when: 'input.no'}}", {})
    run.complete("a")

    again = run.replayed()

    assert again.run == run.run


def test_inputs_come_from_tasks_input_data_values_templates_and_defaults() -> None:
    run = given(
        """
data: {d: {value: {k: 5}}}
tasks:
  a: {do: x}
  b:
    do: x
    after: a
    inputs:
      whole: {from: a}
      part: {from: a, path: '$.list[1]'}
      many: {from: a, path: '$.list[*]'}
      missing: {from: a, path: $.no, default: 9}
      given: {from: input}
      datum: {from: data, path: $.d.k}
      fixed: {value: [1]}
      text: 'hello ${tasks.a.output.list[0]}'
""",
        "in",
    )
    run.complete("a", {"list": ["p", "q"]})

    assert run.arguments("b") == {
        "whole": {"list": ["p", "q"]}, "part": "q", "many": ["p", "q"], "missing": 9, "given": "in", "datum": 5,
        "fixed": [1], "text": "hello p",
    }  # fmt: skip


def test_inputs_are_fixed_when_the_task_fires_so_that_every_attempt_gets_the_same() -> None:
    run = given(
        """
data: {d: 1}
tasks:
  a: {do: x, retry: 2, inputs: {d: '${data.d}', t: {from: data, path: $.d}}}
  b: {do: x, onComplete: [{set: {d: '2'}}]}
"""
    )
    run.complete("b")
    run.fail("a")

    assert run.data["d"] == 2
    assert run.arguments("a") == {"d": 1, "t": 1}


def test_a_value_of_two_kilobytes_in_parts_can_be_read_in_the_same_turn() -> None:
    run = given(
        """
tasks:
  t: {type: transform, set: {a: input.s, b: input.s, c: input.s}}
  u: {type: transform, set: {n: 'size(tasks.t.output.a) + size(tasks.t.output.c)'}, after: t}
""",
        {"s": "x" * 1000},
    )

    assert run.data["n"] == 2000


def test_a_number_by_its_schema_is_a_double_wherever_it_comes_from() -> None:
    """SPEC 2.1: also when written `5`."""
    run = given(
        """
inputSchema: {type: object, required: [x], properties: {x: {type: number}}}
tasks:
  a: {do: x, outputSchema: {type: number}}
  o: {do: x, outputSchema: {type: object, properties: {v: {type: number}, n: {type: integer}, l: {type: array, items: {type: number}}}}}
  m: {type: map, items: '[1]', body: {tasks: {s: {type: signal, name: go, schema: {type: number}}, t: {type: transform, set: {inside: tasks.s.output / 2.0}, after: s}}}}
  b:
    type: transform
    after: [a, o, m]
    set:
      given: input.x / 2.0
      whole: tasks.a.output / 2.0
      named: tasks["a"].output / 2.0
      field: tasks.o.output.v / 2.0
      item: tasks.o.output.l[0] / 2.0
      each: tasks.o.output.l.map(one, one / 2.0)
      count: tasks.o.output.n / 2
      unlike: tasks.o.output == "text" || tasks.a.output == null
"""
    , {"x": 5})  # fmt: skip
    run.complete("a", 5)
    run.complete("o", {"v": 5, "n": 5, "l": [1, 3]})
    run.signal("go", 5)

    assert run.status == "COMPLETED", run.failure
    halves = {name: run.data[name] for name in ("given", "whole", "named", "field", "inside")}
    assert set(halves.values()) == {2.5}
    assert (run.data["item"], run.data["each"], run.data["count"]) == (0.5, [0.5, 1.5], 2)
    assert run.data["unlike"] is False


def test_an_integer_by_its_schema_is_an_int_wherever_it_comes_from() -> None:
    """SPEC 2.1: JSON Schema takes `4.0` and `1e3` for integers too; what no int can hold stays as it is."""
    run = given(
        """
inputSchema:
  type: object
  required: [n, l, big]
  properties:
    n: {type: integer}
    l: {type: array, items: {type: integer}}
    big: {type: integer}
    e: {type: integer, enum: [4.0]}
    o: {type: [integer, "null"]}
data: {kept: {value: 4.0, schema: {type: integer}}}
tasks:
  a: {do: x, outputSchema: {type: integer}}
  o: {do: x, outputSchema: {type: object, properties: {v: {type: integer}, x: {type: number}}}}
  s: {type: signal, name: go, schema: {type: integer}}
  b:
    type: transform
    after: [a, o, s]
    set:
      given: input.n % 3
      item: input.l[0] % 3
      each: input.l.map(one, one % 3)
      perhaps: input.?n.orValue(0) % 3
      listed: input.e % 3
      nullable: input.o % 3
      whole: tasks.a.output % 3
      named: tasks["a"].output % 3
      field: tasks.o.output.v % 3
      sent: tasks.s.output % 3
      datum: data.kept % 3
      half: tasks.o.output.x / 8.0
      large: input.big > 0
      kind: string(input.n)
"""
    , {"n": 4.0, "l": [4.0, 1e3], "big": 1e30, "e": 4.0, "o": 4.0})  # fmt: skip
    run.complete("a", 4.0)
    run.complete("o", {"v": 4.0, "x": 4})
    run.signal("go", 4.0)

    assert run.status == "COMPLETED", run.failure
    names = ("given", "item", "perhaps", "listed", "nullable", "whole", "named", "field", "sent", "datum")  # fmt: skip
    assert {name: run.data[name] for name in names} == dict.fromkeys(names, 1)
    assert all(type(run.data[name]) is int for name in names)
    assert (run.data["each"], run.data["half"], run.data["large"]) == ([1, 1], 0.5, True)
    assert run.data["kind"] == "4"


def test_where_tasks_of_one_name_disagree_their_numbers_are_read_as_written() -> None:
    run = given(
        """
tasks:
  a: {do: x, outputSchema: {type: number}}
  m: {type: mutex, name: k, body: {tasks: {a: {do: x}}}, after: a}
  b: {type: transform, set: {n: tasks.a.output / 2}, after: m}
"""
    )
    run.complete("a", 5)
    run.complete("m[1]/a", 5)

    assert run.data["n"] == 2
