"""`map`: its body once per item (SPEC 2.2, 2.3)."""

from __future__ import annotations

import pytest

from penstock.core.invariants import broken
from support.world import given


def mapped(config: str, input: object = None, rest: str = "", body: str = "{do: x}"):
    return given(f"tasks:\n  m: {{type: map, {config}, body: {body}}}\n{rest}", input)


def test_items_are_numbered_from_0_and_outputs_are_in_item_order() -> None:
    run = mapped("items: 'input'", ["a", "b", "c"])

    assert run.open == ["m[0]/x", "m[1]/x", "m[2]/x"]
    for index in (2, 0, 1):
        run.complete(f"m[{index}]/x", index * 10)

    assert run.result == [0, 10, 20]


def test_no_items_give_an_empty_list() -> None:
    assert mapped("items: '[]'").result == []


def test_items_that_are_no_list_fail_the_map() -> None:
    run = mapped("items: 'input'", 5)

    assert run.code == "expression-failed"
    assert run.failure is not None
    assert run.failure.key == "m"


def test_a_body_sees_item_and_index() -> None:
    run = mapped(
        "items: 'input'", ["a", "b"], body="{do: x, inputs: {i: '${item}', n: '${index}'}}"
    )

    assert run.arguments("m[1]/x") == {"i": "b", "n": 1}


def test_inputs_from_item_survive_a_restart() -> None:
    run = mapped(
        "items: 'input'", ["a", "b"], body="{do: x, inputs: {i: {from: item}, n: {from: index}}}"
    )
    run.flow = run.replayed()

    assert run.arguments("m[1]/x") == {"i": "b", "n": 1}


def test_limit_bounds_how_many_items_run_at_a_time() -> None:
    run = mapped("items: 'input', limit: 2", [1, 2, 3, 4])

    assert run.open == ["m[0]/x", "m[1]/x"]
    run.complete("m[1]/x")

    assert run.open == ["m[0]/x", "m[2]/x"]


def test_n_completes_the_map_at_the_nth_item_and_the_others_end_unheard() -> None:
    run = mapped("items: 'input', n: 2", [1, 2, 3], rest="  z: {do: y, after: m}")

    run.complete("m[2]/x", "c")
    run.complete("m[0]/x", "a")
    assert set(run.open) == {"m[1]/x", "z"}
    assert run.output("m") == ["a", None, "c"]
    run.complete("z")
    assert run.status == "RUNNING"
    run.fail("m[1]/x")

    assert run.status == "COMPLETED"


def test_n_with_cancel_gives_up_the_others() -> None:
    run = mapped("items: 'input', n: 1, cancel: true, limit: 2", [1, 2, 3])

    run.complete("m[1]/x", "b")

    assert run.status == "COMPLETED"
    assert run.abandoned() == ["m[0]/x"]
    assert run.result == [None, "b"]


def test_n_that_can_no_longer_be_reached_starves_the_map() -> None:
    run = mapped("items: 'input', n: 2, onItemError: collect", [1, 2, 3])

    run.fail("m[0]/x")
    assert run.status == "RUNNING"
    run.fail("m[1]/x")

    assert run.code == "join-starved"
    assert run.abandoned() == ["m[2]/x"]


def test_an_item_that_fails_fails_the_map_and_cancels_the_others() -> None:
    run = mapped("items: 'input'", [1, 2])

    run.fail("m[0]/x", "boom")

    assert run.code == "boom"
    assert run.failure is not None
    assert run.failure.key == "m[0]/x"
    assert run.abandoned() == ["m[1]/x"]


def test_collect_keeps_the_error_in_its_place() -> None:
    run = mapped("items: 'input', onItemError: collect", [1, 2])

    run.fail("m[0]/x", "boom", "no luck")
    run.complete("m[1]/x", 2)

    assert run.result == [{"error": {"code": "boom", "message": "no luck", "key": "m[0]/x"}}, 2]


def test_collect_tolerates_so_many_failures_and_no_more() -> None:
    run = mapped("items: 'input', onItemError: collect, tolerate: 1", [1, 2, 3])

    run.fail("m[0]/x", "first")
    assert run.status == "RUNNING"
    assert broken(run.flow) == []
    run.fail("m[1]/x", "second")

    assert run.code == "second"
    assert run.abandoned() == ["m[2]/x"]


def test_a_more_signal_adds_an_item_and_null_closes_the_list() -> None:
    run = mapped("items: 'input', more: add", ["a"], body="{do: x, inputs: {i: '${item}'}}")

    run.complete("m[0]/x", 0)
    assert run.status == "WAITING"
    run.signal("add", "b")
    assert run.arguments("m[1]/x") == {"i": "b"}
    run.signal("add", "c")
    run.signal("add", None)
    run.complete("m[2]/x", 2)
    run.complete("m[1]/x", 1)

    assert run.result == [0, 1, 2]


def test_more_signals_that_came_before_the_map_are_its_first_extra_items() -> None:
    run = given(
        """
tasks:
  a: {do: y}
  m: {type: map, items: '[]', more: add, after: a, body: {do: x, inputs: {i: '${item}'}}}
"""
    )
    run.signal("add", 1)
    run.signal("add", None)
    run.signal("add", 3)
    run.complete("a")

    assert run.open == ["m[0]/x"]
    assert run.arguments("m[0]/x") == {"i": 1}
    run.complete("m[0]/x", "done")
    assert run.result == ["done"]


def test_a_map_with_more_and_no_items_waits() -> None:
    run = mapped("items: '[]', more: add")

    assert run.status == "WAITING"
    run.signal("add", None)
    assert run.result == []


@pytest.mark.parametrize("size", [3, 3000])
def test_the_outputs_of_a_map_of_transforms_can_be_read_in_the_same_turn(size: int) -> None:
    run = given(
        """
tasks:
  m: {type: map, items: 'input.items', body: {type: transform, set: {v: 'item + input.pad'}}}
  t: {type: transform, set: {all: 'tasks.m.output.map(o, o.v)'}, after: m}
""",
        {"items": ["a", "b"], "pad": "x" * size},
    )

    assert run.status == "COMPLETED"
    assert run.data["all"] == ["a" + "x" * size, "b" + "x" * size]


def test_the_outputs_of_items_with_several_results_can_be_read_in_the_same_turn() -> None:
    run = given(
        """
tasks:
  m: {type: map, items: '[1, 2]', body: {tasks: {a: {do: x}, b: {do: x}}}}
  t: {type: transform, set: {all: 'tasks.m.output.map(o, o.a)', big: 'tasks.m.output.map(o, size(o.b))'}, after: m}
"""
    )
    for index in (0, 1):
        run.complete(f"m[{index}]/b", "y" * 3000)
        run.complete(f"m[{index}]/a", index)

    assert run.data == {"all": [0, 1], "big": [3000, 3000]}


def test_finished_items_leave_the_state() -> None:
    run = mapped("items: 'input', limit: 1", list(range(50)))
    for index in range(49):
        run.complete(f"m[{index}]/x", index)

    assert list(run.run.scopes) == ["", "m[49]"]


def test_maps_nest() -> None:
    run = mapped(
        "items: 'input'",
        [[1, 2], [3]],
        body="{type: map, items: 'item', body: {do: x, inputs: {i: '${item}'}}}",
    )
    for key in list(run.open):
        run.complete(key, run.arguments(key)["i"] * 10)

    assert run.result == [[10, 20], [30]]


def test_the_reference_of_a_detached_childs_output_survives_in_a_map() -> None:
    run = given(
        """
tasks:
  m: {type: map, items: '[1]', body: {type: subworkflow, definition: other, detached: true}}
""",
        None,
        "id: other\ntasks:\n  a: {do: x}",
    )
    run.world.start_child(run, "m[0]/subworkflow")

    assert run.result == [{"run": "run/m[0]/subworkflow", "version": "1"}]
