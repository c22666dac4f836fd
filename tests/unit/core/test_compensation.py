"""Compensation (SPEC 4.5)."""

from __future__ import annotations

import msgspec
import pytest

from penstock.core.invariants import broken
from penstock.core.owed import owed, reasons
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model.codec import decode_event, encode_event
from support.world import NOON, Case, World, given, plan_of


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
    run.fail("c", "cancelled")

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


TORN = """
tasks:
  a: {do: x, compensate: {activity: u, inputs: {o: {from: a}}}}
  b: {do: x}
"""


def test_a_task_that_is_given_up_and_done_all_the_same_is_undone() -> None:
    run = given(TORN)
    run.fail("b", "boom")

    assert run.statuses() == {"a": "CANCELLED", "b": "FAILED"}
    assert run.abandoned() == ["a"]
    assert (run.status, run.run.stopping) == ("RUNNING", "FAILED")
    assert [(each.kind, each.key, each.due) for each in reasons(run.run)] == [
        ("attempt", "a", NOON + 30)
    ]
    assert owed(run.run) == [f.Abandon("a", 1)]
    assert broken(run.flow) == []
    assert run.begin("a") == []  # that it had begun is of no interest any more
    assert run.command(c.RecordProgress(at=NOON, key="a", attempt=1, progress=b"1")) == []
    run.complete("a", 7)
    assert msgspec.json.decode(run.run.undoing["a"].entry.arguments) == {"o": 7}
    assert undo_all(run) == ["a"]
    assert (run.status, run.code) == ("FAILED", "boom")


@pytest.mark.parametrize("how", ["stops", "fails", "lost", "deferred", "unfit"])
def test_a_task_that_is_given_up_and_not_done_is_not_undone(how: str) -> None:
    run = given(TORN.replace("a: {do: x,", "a: {do: x, outputSchema: {type: integer},"))
    run.fail("b", "boom")
    match how:
        case "lost":
            run.lose("a")
        case "deferred":
            run.command(c.DeferTask(at=NOON, key="a", attempt=1))
        case "unfit":
            run.complete("a", "text")
        case _:
            run.fail("a", "cancelled" if how == "stops" else "own")

    assert run.types()[-2:] == ["task_failed", "run_failed"]
    assert (run.code, run.undoing) == ("boom", [])


def test_it_is_waited_for_no_longer_than_the_grace() -> None:
    run = given(TORN)
    run.fail("b", "boom")
    run.skip(29)
    assert run.status == "RUNNING"
    run.skip(1)

    assert run.types()[-2:] == ["grace_ended", "run_failed"]
    with pytest.raises(Rejected, match="ended FAILED"):
        run.complete("a", attempt=1)


def test_a_late_result_of_another_attempt_is_refused() -> None:
    run = given(TORN)
    run.lose("a")
    run.fail("b", "boom")

    with pytest.raises(Rejected, match="stale-attempt"):
        run.complete("a", attempt=1)
    run.complete("a", 1, attempt=2)
    assert run.undoing == ["a"]


def test_what_was_given_up_is_undone_though_the_failure_was_handled_and_the_run_went_on() -> None:
    run = given(
        """
tasks:
  m:
    type: map
    items: '[1, 2]'
    body: {tasks: {t: {do: x, compensate: {activity: u, inputs: {i: {from: item}}}}}}
  h: {do: x, after: {from: m, on: error}}
  e: {type: end, after: [m, h]}
"""
    )
    run.fail("m[0]/t", "boom")
    assert run.open == ["m[1]/t", "h"]
    assert run.run.grace == NOON + 30
    run.complete("m[1]/t", 9)
    assert run.run.grace is None
    assert broken(run.flow) == []
    run.fail("h", "again")

    assert msgspec.json.decode(run.run.undoing["m[1]/t"].entry.arguments) == {"i": 2}
    assert undo_all(run) == ["m[1]/t"]
    assert run.code == "again"


ANY = """
tasks:
  a: {do: x, compensate: u}
  b: {do: x, compensate: u}
  c: {do: x, after: [a, b], join: {n: 1, cancel: true}}
"""


def test_a_run_that_is_nobodys_child_completes_while_what_it_gave_up_is_under_way() -> None:
    run = given(ANY)
    run.complete("a")
    assert list(run.run.ending) == ["b"]
    run.complete("c", 1)

    assert run.status == "COMPLETED"
    assert broken(run.flow) == []


@pytest.mark.parametrize("done", [True, False])
def test_a_child_hands_on_what_it_gave_up_and_was_done_all_the_same(done: bool) -> None:
    world = World(plan_of(f"id: kid\n{ANY}"), plan_of(PARENT))
    parent = world.start("flow", "run")
    child = world.start_child(parent, "k")
    child.complete("a")
    child.complete("c", 1)
    assert child.status == "RUNNING"
    if done:
        child.complete("b", 2)
    else:
        child.skip(30)
    assert child.status == "COMPLETED"
    world.close_child(child)
    parent.fail("z", "boom")

    assert undo_all(parent) == (["k/b", "k/a"] if done else ["k/a"])


PARENT = """
tasks:
  k: {type: subworkflow, definition: kid}
  z: {do: x, after: k}
"""


def test_what_was_given_up_may_end_in_a_pause_and_counts_not_after_a_terminate() -> None:
    run = given(ANY)
    run.complete("a")
    run.pause()
    run.skip(60)
    run.complete("b", 1)
    run.resume()
    assert [entry.key for entry in run.run.undo] == ["a", "b"]

    other = given(ANY)
    other.complete("a")
    other.terminate()
    assert (other.status, other.run.ending) == ("TERMINATED", {})


def test_a_cancel_waits_for_what_was_given_up_before_it() -> None:
    run = given(ANY)
    run.complete("a")
    run.skip(20)
    run.cancel()
    assert run.run.grace == NOON + 50
    run.fail("c", "cancelled")
    assert (run.status, run.run.stopping) == ("RUNNING", "CANCELLED")
    run.complete("b", 1)

    assert undo_all(run) == ["b", "a"]
    assert run.status == "CANCELLED"


def test_a_history_of_the_first_rules_gives_up_at_once() -> None:
    """`RunStarted` names the rule set: an old history means what it meant (SPEC 4.1)."""
    run = given(TORN)
    start = decode_event(run.stored[0])
    assert isinstance(start, e.RunStarted)
    assert start.rules == e.RULES == 2
    run.stored[0] = encode_event(msgspec.structs.replace(start, rules=1))
    run.flow = run.replayed()
    run.fail("b", "boom")

    assert (run.status, run.types()[-1]) == ("FAILED", "run_failed")


def test_an_undo_of_what_was_given_up_that_cannot_be_asked_for_leaves_the_first_error() -> None:
    run = given(TORN.replace("{from: a}", "'${tasks.a.output.no}'"))
    run.fail("b", "boom")
    run.complete("a", {})

    assert (run.status, run.code, run.undoing) == ("FAILED", "boom", [])
