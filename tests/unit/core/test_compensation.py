"""Compensation (SPEC 4.5)."""

from __future__ import annotations

import msgspec

from penstock.core.owed import reasons
from penstock.model import events as e
from support.world import Case, given


def undo_all(run: Case) -> list[str]:
    seen: list[str] = []
    while run.undoing:
        key = run.undoing[0]
        seen.append(key)
        run.complete(key)
    return seen


def test_completed_executions_are_undone_one_by_one_in_reverse_order_of_completion_across_branches() -> (
    None
):
    run = given(
        """
tasks:
  a: {do: x, compensate: u}
  b: {do: x, compensate: u}
  c: {do: x, compensate: u, after: a}
  d: {do: x, after: [b, c]}
"""
    )
    for key in ("a", "b", "c"):
        run.complete(key)
    run.fail("d", "boom")

    assert run.status == "COMPENSATING"
    assert len(run.undoing) == 1
    assert undo_all(run) == ["c", "b", "a"]
    assert run.status == "FAILED"
    assert run.code == "boom"


def test_an_undo_gets_the_tasks_output_or_its_own_inputs_as_they_were() -> None:
    run = given(
        """
data: {d: 1}
tasks:
  a: {do: x, compensate: u}
  b: {do: x, compensate: {activity: v, inputs: {out: {from: b}, d: '${data.d}'}}, after: a}
  c: {type: transform, set: {d: '2'}, after: b}
  e: {do: x, after: c}
"""
    )
    run.complete("a", {"id": 7})
    run.complete("b", "B")
    run.fail("e")

    first = run.run.undoing["b"].entry
    assert (first.activity, msgspec.json.decode(first.arguments)) == ("v", {"out": "B", "d": 1})
    run.complete("b")
    second = run.run.undoing["a"].entry
    assert (second.activity, msgspec.json.decode(second.arguments)) == ("u", [{"id": 7}])


def test_each_pass_and_each_item_pushes_its_own_entry() -> None:
    run = given(
        """
tasks:
  l: {type: loop, while: 'iteration < 2', body: {do: x, compensate: u}}
  m: {type: map, items: '[1, 2]', body: {do: x, compensate: u}, after: l}
  z: {do: x, after: m}
"""
    )
    for key in ("l[1]/x", "l[2]/x", "m[1]/x", "m[0]/x"):
        run.complete(key)
    run.fail("z")

    assert undo_all(run) == ["m[0]/x", "m[1]/x", "l[2]/x", "l[1]/x"]


def test_a_child_hands_its_entries_to_its_parent_which_undoes_them_under_its_tasks_key() -> None:
    run = given(
        "id: p\ntasks:\n  a: {do: x, compensate: u}\n  sub: {type: subworkflow, definition: child, after: a}\n  z: {do: x, after: sub}",
        None,
        "id: child\ntasks:\n  charge: {do: x, compensate: u}\n  ship: {do: x, compensate: u, after: charge}",
    )
    run.complete("a")
    child = run.world.start_child(run, "sub")
    child.complete("charge")
    child.complete("ship")
    run.world.close_child(child)
    run.fail("z")

    assert undo_all(run) == ["sub/ship", "sub/charge", "a"]


def test_the_compensate_of_the_subworkflow_task_replaces_its_childs_entries() -> None:
    run = given(
        "id: p\ntasks:\n  sub: {type: subworkflow, definition: child, compensate: u}\n  z: {do: x, after: sub}",
        None,
        "id: child\ntasks:\n  charge: {do: x, compensate: u}",
    )
    child = run.world.start_child(run, "sub")
    child.complete("charge")
    run.world.close_child(child)
    run.fail("z")

    assert undo_all(run) == ["sub"]


def test_a_child_that_fails_has_undone_its_own() -> None:
    run = given(
        "id: p\ntasks:\n  sub: {type: subworkflow, definition: child}",
        None,
        "id: child\ntasks:\n  charge: {do: x, compensate: u}\n  ship: {do: x, after: charge}",
    )
    child = run.world.start_child(run, "sub")
    child.complete("charge")
    child.fail("ship")
    assert undo_all(child) == ["charge"]
    run.world.close_child(child)

    assert run.status == "FAILED"
    assert run.undoing == []


def test_a_child_that_completed_while_its_parent_gave_it_up_is_undone_by_the_parent() -> None:
    run = given(
        "id: p\ntasks:\n  a: {do: x}\n  sub: {type: subworkflow, definition: child}",
        None,
        "id: child\ntasks:\n  charge: {do: x, compensate: u}",
    )
    child = run.world.start_child(run, "sub")
    child.complete("charge")
    run.fail("a", "boom")
    assert not run.run.closed
    run.world.close_child(child)

    assert undo_all(run) == ["sub/charge"]
    assert run.code == "boom"


def test_an_undo_is_retried_after_2_4_and_8_seconds() -> None:
    run = given("tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}")
    run.complete("a")
    run.fail("b", "first")

    for wait in (2, 4, 8):
        (event,) = run.fail("a", "no")
        assert isinstance(event, e.UndoRetried)
        assert event.due == run.world.now + wait
        assert run.status == "COMPENSATING"
    run.fail("a", "no")

    assert run.types()[-1] == "undo_failed"


def test_one_that_cannot_be_undone_does_not_stop_the_others_and_the_run_stays_compensating() -> (
    None
):
    run = given(
        "tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, compensate: u, after: a}\n  c: {do: x, after: b}"
    )
    run.complete("a")
    run.complete("b")
    run.fail("c", "first")
    run.fail("b", "stuck", final=True)
    assert run.undoing == ["a"]
    run.complete("a")

    assert run.status == "COMPENSATING"
    assert [r.kind for r in reasons(run.run)] == ["undo-failed"]
    assert run.failure is not None
    assert run.failure.code == "first"
    assert run.task("b").status == "UNDO_FAILED"
    assert run.task("a").status == "COMPENSATED"


def test_a_lost_undo_is_tried_again_and_not_charged() -> None:
    run = given("tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}")
    run.complete("a")
    run.fail("b")
    run.lose("a")
    for _ in range(3):
        run.fail("a")
    assert run.status == "COMPENSATING"
    run.complete("a")

    assert run.status == "FAILED"


def test_an_undo_under_suspicion_counts_only_what_was_begun() -> None:
    run = given("tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}")
    run.complete("a")
    run.fail("b", "boom")
    run.lose("a")
    run.lose("a")

    assert run.lose("a") == []  # nobody says that it had begun
    for _ in range(2):
        assert [type(each) for each in run.begin("a")] == [e.UndoStarted]
        assert [type(each) for each in run.lose("a")] == [e.UndoLost]
    run.begin("a")
    (failed,) = run.lose("a")

    assert isinstance(failed, e.UndoFailed)
    assert failed.failure.code == "poison"


def test_an_undo_that_fails_is_not_under_suspicion_any_more() -> None:
    run = given("tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}")
    run.complete("a")
    run.fail("b", "boom")
    for _ in range(2):
        run.lose("a")
    run.begin("a")
    run.lose("a")
    run.begin("a")
    run.fail("a", "busy")
    run.skip(60)

    assert run.run.undoing["a"].suspect == run.run.undoing["a"].poison == 0


def test_when_attempted_undoes_a_task_that_failed_or_was_cancelled_after_an_attempt() -> None:
    run = given(
        """
tasks:
  a: {do: x, compensate: {activity: u, when: attempted}}
  b: {do: x, compensate: {activity: u, when: attempted}}
  c: {do: x, compensate: u}
"""
    )
    run.fail("a", "boom")

    assert undo_all(run) == ["b", "a"]


def test_when_attempted_does_not_undo_what_was_never_tried() -> None:
    run = given(
        "tasks:\n  a: {do: x, inputs: {p: '${input.no}'}, compensate: {activity: u, when: attempted}}",
        {},
    )

    assert run.status == "FAILED"
    assert run.types() == ["run_started", "run_failed"]


def test_skipped_tasks_are_not_undone() -> None:
    run = given("tasks:\n  a: {do: x, compensate: u, when: 'false'}\n  b: {do: x, after: a}")
    run.fail("b")

    assert run.status == "FAILED"


def test_a_handled_failure_undoes_nothing() -> None:
    run = given(
        "tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}\n  h: {do: x, after: {from: b, on: error}}"
    )
    run.complete("a")
    run.fail("b")
    run.complete("h")

    assert run.status == "COMPLETED"
    assert [entry.key for entry in run.run.undo] == ["a"]


def test_parallel_allows_independent_ones_together() -> None:
    run = given(
        """
tasks:
  a: {do: x, compensate: {activity: u, parallel: true}}
  b: {do: x, compensate: {activity: u, parallel: true}, after: a}
  c: {do: x, compensate: {activity: u, parallel: true}, after: a}
  d: {do: x, after: [b, c]}
"""
    )
    for key in ("a", "b", "c"):
        run.complete(key)
    run.fail("d")

    assert sorted(run.undoing) == ["b", "c"]
    run.complete("b")
    assert run.undoing == ["c"]
    run.complete("c")
    assert run.undoing == ["a"]


def test_parallel_items_of_a_map_are_undone_together() -> None:
    run = given(
        """
tasks:
  m: {type: map, items: '[1, 2, 3]', body: {do: x, compensate: {activity: u, parallel: true}}}
  z: {do: x, after: m}
"""
    )
    for index in range(3):
        run.complete(f"m[{index}]/x")
    run.fail("z")

    assert len(run.undoing) == 3


def test_terminate_during_compensation_ends_it() -> None:
    run = given("tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}")
    run.complete("a")
    run.fail("b", "boom")
    run.terminate()

    assert run.status == "TERMINATED"
    assert run.open == []


def test_a_stale_undo_result_is_refused() -> None:
    import pytest

    from penstock.errors import Rejected

    run = given("tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}")
    run.complete("a")
    run.fail("b")
    run.fail("a")

    with pytest.raises(Rejected, match="attempt 2, not 1"):
        run.complete("a", attempt=1)
