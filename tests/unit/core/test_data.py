"""Run data: set, transform, merge, conflicts (SPEC 2.6)."""

from __future__ import annotations

import itertools

import pytest

from penstock.model import events as e
from support.world import given

BOTH = """
data: {{v: {datum}}}
tasks:
  a: {{do: x, onComplete: [{{set: {{v: tasks.a.output}}}}]}}
  b: {{do: x, onComplete: [{{set: {{v: tasks.b.output}}}}]}}
outputs: {{v: data.v}}
"""


def written(datum: str, order: str):
    run = given(BOTH.format(datum=datum))
    for key, value in zip(order, (1, 2) if order == "ab" else (2, 1), strict=True):
        run.complete(key, value)
    return run


def test_concurrent_writes_without_merge_are_recorded_and_the_later_is_read() -> None:
    run = written("{value: 0}", "ba")

    assert run.result == {"v": 1}
    (conflict,) = run.of(e.DataConflicted)
    assert (conflict.name, conflict.first, conflict.second) == ("v", "b", "a")


def test_merge_last_reads_the_later_and_records_nothing() -> None:
    run = written("{value: 0, merge: last}", "ba")

    assert run.result == {"v": 1}
    assert run.of(e.DataConflicted) == []


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_merge_append_lists_the_writes_in_key_order(order: str) -> None:
    assert written("{merge: append}", order).result == {"v": [1, 2]}


def test_merge_append_begins_with_the_first_value() -> None:
    assert written("{value: [0], merge: append}", "ba").result == {"v": [0, 1, 2]}


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_merge_by_expression_takes_current_and_value(order: str) -> None:
    assert written("{value: 10, merge: 'current + value'}", order).result == {"v": 13}


def test_merge_by_expression_without_a_first_value_begins_with_the_first_write() -> None:
    assert written("{merge: 'current * value'}", "ab").result == {"v": 2}


def test_a_merge_that_errs_fails_the_scope() -> None:
    run = given(BOTH.format(datum="{value: text, merge: 'current + value'}"))
    run.complete("a", 1)

    assert run.code == "expression-failed"
    assert run.failure is not None
    assert "merge of `v`" in run.failure.message


def test_append_sorts_items_by_number() -> None:
    run = given(
        """
data: {v: {merge: append}}
tasks:
  m: {type: map, items: 'input', body: {do: x, onComplete: [{set: {v: index}}]}}
""",
        list(range(12)),
    )
    for index in (11, 2, 10, 0, 1, 3, 9, 8, 7, 6, 5):
        run.complete(f"m[{index}]/x")

    assert run.data["v"] == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]


def test_writes_one_after_another_are_no_conflict() -> None:
    run = given(
        """
tasks:
  a: {type: transform, set: {v: '1'}}
  b: {type: transform, set: {v: 'data.v + 1'}, after: a}
outputs: {v: data.v}
"""
    )

    assert run.result == {"v": 2}
    assert run.of(e.DataConflicted) == []


def test_two_items_of_a_map_conflict_and_two_passes_of_a_loop_do_not() -> None:
    items = given(
        "tasks:\n  m: {type: map, items: '[1, 2]', body: {type: transform, set: {v: item}}}"
    )
    passes = given(
        "tasks:\n  l: {type: loop, while: 'iteration < 3', body: {type: transform, set: {v: iteration}}}"
    )

    assert len(items.of(e.DataConflicted)) == 1
    assert passes.of(e.DataConflicted) == []
    assert passes.data == {"v": 3}


def test_branches_inside_one_pass_of_a_natural_loop_conflict_but_not_across_passes() -> None:
    run = given(
        """
tasks:
  h: {do: x, after: {from: j, when: 'iteration < 2'}}
  a: {type: transform, set: {v: '1'}, after: h}
  b: {type: transform, set: {v: '2'}, after: h}
  j: {do: x, after: [a, b]}
  z: {do: x, after: {from: j, when: 'iteration >= 2'}}
"""
    )
    for number in (1, 2):
        run.complete(f"h[{number}]/h")
        run.complete(f"h[{number}]/j")

    conflicts = [(c.first, c.second) for c in run.of(e.DataConflicted)]
    assert conflicts == [("h[1]/a", "h[1]/b"), ("h[2]/a", "h[2]/b")]


def test_a_later_expression_of_a_transform_sees_what_an_earlier_one_set() -> None:
    run = given("tasks:\n  t: {type: transform, set: {a: '2', b: 'data.a * 3'}}")

    assert run.data == {"a": 2, "b": 6}
    assert run.result == {"a": 2, "b": 6}


def test_the_output_of_a_transform_is_what_it_wrote_not_what_was_merged() -> None:
    run = given(
        "data: {v: {value: 1, merge: 'current + value'}}\ntasks:\n  t: {type: transform, set: {v: '5'}}"
    )

    assert run.result == {"v": 5}
    assert run.data == {"v": 6}


def test_actions_happen_in_order() -> None:
    run = given(
        """
tasks:
  a:
    do: x
    onComplete:
      - {set: {v: '1'}}
      - {publish: {topic: t, payload: {v: '${data.v}'}}}
      - {notify: {text: 'done ${tasks.a.output}'}}
    onError:
      - {publish: {topic: bad, payload: '${tasks.a.error.code}'}}
  h: {do: x, after: {from: a, on: error}}
"""
    )
    run.complete("a", "ok")

    first, second = run.of(e.Published)
    assert (first.topic, bytes(first.payload)) == ("t", b'{"v":1}')
    assert bytes(second.payload) == b'{"text":"done ok"}'


def test_on_error_sees_the_error() -> None:
    run = given(
        "tasks:\n  a: {do: x, onError: [{publish: {topic: bad, payload: '${tasks.a.error.code}'}}]}"
    )
    run.fail("a", "boom")

    (published,) = run.of(e.Published)
    assert bytes(published.payload) == b'"boom"'
    assert run.types() == ["run_started", "task_failed", "published", "run_failed"]


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_where_nothing_races_the_outcome_is_the_same_for_every_order(
    order: tuple[str, ...],
) -> None:
    run = given(
        """
data: {all: {merge: append}, sum: {value: 0, merge: 'current + value'}}
tasks:
  a: {do: x, onComplete: [{set: {all: '"a"', sum: '1'}}]}
  b: {do: x, onComplete: [{set: {all: '"b"', sum: '2'}}]}
  c: {do: x, onComplete: [{set: {all: '"c"', sum: '3'}}]}
  j: {type: transform, set: {out: 'data.all'}, after: [a, b, c]}
outputs: {all: data.all, sum: data.sum, out: data.out}
"""
    )
    for key in order:
        run.complete(key)

    assert run.result == {"all": ["a", "b", "c"], "sum": 6, "out": ["a", "b", "c"]}
