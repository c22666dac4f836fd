"""What an open run wants of the world, and what it says that it waits for, in every kind of wait (SPEC 4.8)."""

from __future__ import annotations

import pytest

from penstock.core.keys import natural
from penstock.core.owed import Reason, every_reference, owed, reasons, references
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model.run import REF_SHIFT
from support.world import NOON, Case, World, given

CHILD = "id: other\ntasks:\n  x: {do: x}\n"
PARENT = "id: flow\ntasks:\n  c: {type: subworkflow, definition: other}\n  b: {do: x}\n"
UNDONE = """
tasks:
  a: {do: x, compensate: {activity: back, retry: {attempts: 2, first: 4s, jitter: 0}}}
  b: {do: x, after: a}
"""


def told(run: Case) -> list[tuple[str, str, str, float | None]]:
    return [(each.kind, each.key, each.message, each.due) for each in reasons(run.run)]


def test_a_closed_run_owes_nothing_and_has_no_reason() -> None:
    run = given("tasks:\n  a: {do: x}\n")
    run.complete("a")

    assert owed(run.run) == []
    assert reasons(run.run) == []


def test_an_attempt_is_owed_until_it_is_told_to_stop() -> None:
    run = given("tasks:\n  a: {do: x}\n")
    assert owed(run.run) == [f.Execute("a", 1, None)]
    assert told(run) == [("attempt", "a", "attempt 1 of `a` is to end", None)]

    run.begin("a")
    assert owed(run.run) == [f.Execute("a", 1, None)]
    assert told(run) == [("attempt", "a", "attempt 1 of `a` is to end", None)]

    run.cancel()
    assert owed(run.run) == [f.Abandon("a", 1)]


def test_a_retry_is_owed_when_it_is_due() -> None:
    run = given("tasks:\n  a: {do: x, retry: {attempts: 2, first: 4s, jitter: 0}}\n")
    run.fail("a", "busy", "come back later")

    assert owed(run.run) == [f.Execute("a", 2, NOON + 4)]
    assert told(run) == [
        ("retry", "a", "attempt 2 of `a` is due after busy: come back later", NOON + 4)
    ]


def test_what_is_deferred_is_owed_by_nobody_here() -> None:
    run = given("tasks:\n  a: {do: x}\n")
    run.command(c.DeferTask(at=NOON, key="a", attempt=1, due=NOON + 9))

    assert owed(run.run) == []
    assert told(run) == [
        ("token", "a", "attempt 1 of `a` is to be completed from outside", NOON + 9)
    ]
    run.cancel()
    assert owed(run.run) == [f.Abandon("a", 1)]


def test_a_child_is_owed_its_start_and_then_the_news() -> None:
    world = World(PARENT, CHILD)
    run = world.start("flow")
    assert owed(run.run) == [f.StartChild("c"), f.Execute("b", 1)]
    assert told(run)[0] == ("child", "c", "run run/c is to end", None)

    world.start_child(run, "c")
    run.cancel()
    assert owed(run.run) == [f.StartChild("c"), f.Abandon("b", 1)]

    run.fail("b", "cancelled")
    assert owed(run.run) == [f.CancelChild("c", "run/c")]
    assert run.done[-1] == f.CancelChild("c", "run/c")


def test_a_child_that_was_left_is_waited_for() -> None:
    world = World(
        "id: flow\ntasks:\n  c: {type: subworkflow, definition: other, timeout: {task: 5s}}\n",
        CHILD,
    )
    run = world.start("flow")
    world.start_child(run, "c")
    run.skip(5)

    assert owed(run.run) == [f.CancelChild("c", "run/c")]
    assert told(run) == [("child", "c", "run run/c was told to stop and is to end", None)]


@pytest.mark.parametrize(
    ("task", "kind", "message", "due"),
    [
        ("{type: timer, delay: 5s}", "timer", "timer `w` is to fire", NOON + 5),
        ("{type: signal, name: go}", "signal", "signal `go` is to come", None),
        ("{type: signal, name: go, timeout: 5s}", "signal", "signal `go` is to come", NOON + 5),
        ("{type: event, topic: a.b, where: 'true'}", "event", "an event on `a.b` is to come", None),
        ("{type: form, assignee: ann, schema: {}}", "form", "ann is to fill in `w`", None),
        ("{type: form, schema: {}, due: 5s}", "form", "somebody is to fill in `w`", NOON + 5),
    ],
)  # fmt: skip
def test_each_wait_says_for_what(task: str, kind: str, message: str, due: float | None) -> None:
    run = given(f"tasks:\n  w: {task}\n")

    assert owed(run.run) == []
    assert told(run) == [(kind, "w", message, due)]


def test_a_form_that_is_claimed_waits_for_who_claimed_it() -> None:
    run = given("tasks:\n  w: {type: form, assignee: ann, schema: {}}\n")
    run.command(c.ClaimForm(at=NOON, key="w", by="bob"))

    assert told(run) == [("form", "w", "bob is to fill in `w`", None)]


def test_keys_of_inner_waits_are_whole() -> None:
    run = given("tasks:\n  m: {type: map, items: '[1]', body: {do: x}}\n")

    assert owed(run.run) == [f.Execute("m[0]/x", 1, None)]
    assert told(run) == [("attempt", "m[0]/x", "attempt 1 of `m[0]/x` is to end", None)]


def test_an_open_list_waits_for_its_signal() -> None:
    run = given("tasks:\n  m: {type: map, items: '[]', more: item, body: {do: x}}\n")

    assert told(run) == [("signal", "m", "signal `item` is to add items or close the list", None)]


def test_a_delayed_start_a_pause_and_a_mutex() -> None:
    run = given("tasks:\n  a: {do: x}\n", delay=60)
    assert told(run) == [("start", "", "the start is delayed", NOON + 60)]
    run.pause()
    assert told(run)[0] == ("pause", "", "the run is paused; resume it to go on", None)
    assert owed(run.run) == []


def test_a_held_run_is_owed_its_admission() -> None:
    run = given("limits: {runs: 1}\ntasks:\n  a: {do: x}\n")
    assert owed(run.run) == [f.Admit()]
    assert told(run) == [("quota", "", "as many runs of `flow` are open as its limit says", None)]

    delayed = given("limits: {runs: 1}\ntasks:\n  a: {do: x}\n", delay=60)
    assert owed(delayed.run) == []
    assert told(delayed) == [("start", "", "the start is delayed", NOON + 60)]


def test_an_undo_is_owed_and_said_until_it_fails_for_good() -> None:
    run = given(UNDONE)
    run.complete("a")
    run.cancel()
    run.fail("b", "cancelled")
    assert owed(run.run) == [f.Execute("a", 1, None, undo=True)]
    assert told(run) == [("undo", "a", "attempt 1 to undo `a` is to end", None)]

    run.fail("a", "busy", "no room")
    assert owed(run.run) == [f.Execute("a", 2, NOON + 4, undo=True)]
    assert told(run) == [("undo", "a", "attempt 2 to undo `a` is to end", NOON + 4)]

    run.fail("a", "busy", "no room")
    assert owed(run.run) == []
    assert told(run) == [
        ("undo-failed", "a", "`a` could not be undone: no room; an operator must decide", None)
    ]


def test_a_signal_to_another_run_is_owed_until_it_has_arrived() -> None:
    source = "tasks:\n  a: {do: x, onComplete: [{signal: {run: other, name: go}}]}\n"
    run = given(source)
    run.complete("a")
    (id,) = run.run.outgoing

    assert owed(run.run) == [f.Deliver(id)]
    assert told(run) == [("delivery", "a", "signal `go` is on its way to run other", None)]


def test_items_of_open_maps_are_what_the_next_turn_asks_for() -> None:
    run = given(
        "tasks:\n  a: {do: x}\n  m: {type: map, items: tasks.a.output, body: {do: x}, limit: 1, after: a}\n"
    )
    assert references(run.run) == set()
    run.complete("a", ["y" * 600] * 3)

    held = run.task("m").map
    assert held is not None
    assert held.items in references(run.run)
    assert references(run.run) <= every_reference(run.run)


def test_every_value_that_is_not_in_the_state_is_referred_to() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x, after: a}\n", "y" * 5000)
    assert every_reference(run.run) == {1 << REF_SHIFT}

    run.complete("a", "z" * 5000)
    assert every_reference(run.run) == {1 << REF_SHIFT, run.task("a").ref}


def test_keys_are_ordered_by_number_and_a_task_comes_before_what_is_in_it() -> None:
    keys = ["a", "m", "m[0]/x", "m[2]/x", "m[2]/x[1]", "m[10]/a", "n"]

    assert sorted(sorted(keys, reverse=True), key=natural) == keys


def test_a_reason_is_what_it_says() -> None:
    assert Reason("timer", "t", "timer `t` is to fire").due is None
