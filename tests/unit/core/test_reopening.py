"""From where a run can go on in another generation, and what a reset would not take back (SPEC 4.4)."""

from __future__ import annotations

import pytest

from penstock.core.reopening import (
    check_point,
    children_after,
    known_after,
    known_to,
    preview,
    retry_point,
    signals_after,
    undoable,
)
from penstock.errors import NotFound, Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.preview import Consequence, Preview
from support.world import NOON, Case, World, given

MUCH = """
id: flow
tasks:
  a: {do: x, compensate: back}
  b: {do: x, compensate: back, after: a, onComplete: [{publish: {topic: t.u, payload: 1}}]}
  c: {type: subworkflow, definition: other, after: b}
  d: {do: x, after: c, onComplete: [{signal: {run: else, name: go}}]}
  s: {type: signal, name: news, after: d}
  z: {do: x, after: s}
"""
OTHER = "id: other\ntasks:\n  k: {do: x}\n"
TWO = "tasks:\n  a: {do: x, compensate: back}\n  b: {do: x, after: a}\n  f: {do: x, after: b}\n"


def much() -> Case:
    world = World(MUCH, OTHER)
    run = world.start("flow")
    run.complete("a", 1)
    run.complete("b", 1)
    child = world.start_child(run, "c")
    child.complete("k", 1)
    world.close_child(child)
    run.complete("d", 1)
    run.command(c.RecordDelivery(at=NOON, id=next(iter(run.run.outgoing))))
    run.signal("news", 1)
    return run


def failed(*undone: str) -> Case:
    run = given(TWO)
    run.complete("a", 1)
    run.complete("b", 1)
    run.fail("f")
    for key in undone:
        run.complete(key)
    return run


def test_a_preview_lists_what_came_after_the_point() -> None:
    run = much()
    past = run.walked().past
    assert run.types()[:3] == ["run_started", "task_completed", "task_completed"]

    assert preview(past, 2, ["run/c"]) == Preview(
        "run",
        1,
        2,
        [
            Consequence("task", "b", 3, True),
            Consequence("publish", "b", 4, name="t.u"),
            Consequence("child", "c", 5, False, "run/c"),
            Consequence("task", "d", 7),
            Consequence("signal", "d", 8, name="go to else"),
        ],
        ["news"],
        ["run/c"],
    )
    assert preview(past, len(past.events), []).consequences == []


def test_what_was_undone_after_the_point_is_told() -> None:
    past = failed("a").walked().past
    stop = past.stopping

    assert preview(past, stop - 1, []).consequences == [
        Consequence("undone", "a", len(past.events) - 1)
    ]
    assert preview(past, 1, []).consequences == [Consequence("task", "b", 3)]


def test_what_was_accepted_as_undone_by_hand_is_told_too() -> None:
    run = failed()
    for _ in range(4):
        run.fail("a")
    waiting = run.walked().past
    assert [entry.key for entry in undoable(waiting, 1)] == ["a"]
    assert undoable(waiting, 2) == []
    run.command(c.ResolveUndo(at=NOON, key="a", act="accept"))

    past = run.walked().past
    (told,) = preview(past, past.stopping - 1, []).consequences
    assert (told.kind, told.key) == ("undone", "a")
    skipped = failed()
    for _ in range(4):
        skipped.fail("a")
    skipped.command(c.ResolveUndo(at=NOON, key="a", act="skip"))
    past = skipped.walked().past
    assert preview(past, past.stopping - 1, []).consequences == []


def test_what_a_generation_undid_of_the_one_before_is_not_its_own() -> None:
    run = given("tasks:\n  a: {do: x, compensate: back}\n  b: {do: x, after: a}\n")
    run.complete("a", 1)
    new = run.reset(1, undo=True)
    (key,) = new.run.undoing
    new.complete(key)

    assert new.of(e.UndoCompleted)
    assert preview(new.walked().past, 1, []).consequences == []


def test_a_generation_goes_on_when_what_it_could_not_undo_is_let_be() -> None:
    run = given(
        "tasks:\n  t: {type: timer, delay: 60s}\n  a: {do: x, compensate: back}\n  b: {do: x, after: a}\n"
    )
    run.complete("a", 1)
    run.world.skip(5)
    new = run.reset(1, undo=True)
    (key,) = new.run.undoing
    for _ in range(4):
        new.fail(key)
    assert (new.run.undoing, new.run.rewinding) == ({}, True)
    assert not new.has("b")
    run.world.skip(20)
    new.command(c.ResolveUndo(at=run.world.now, key=key, act="accept"))

    assert not new.run.rewinding
    assert new.open == ["a"]
    assert new.run.dues == [(NOON + 5 + 20 + 60, "t")]  # as it was at the point


def test_a_retry_begins_with_what_failed() -> None:
    past = failed("a").walked().past
    # `a` was undone: the retry begins before it
    assert retry_point(past, None) == (1, "a")
    plain = given("tasks:\n  a: {do: x}\n  f: {do: x, after: a}\n")
    plain.complete("a", 1)
    plain.fail("f")
    assert retry_point(plain.walked().past, None) == (2, "f")
    assert retry_point(plain.walked().past, "a") == (1, "a")
    assert retry_point(plain.walked().past, "f") == (2, "f")


def test_a_retry_begins_where_it_failed_also_if_the_run_went_on_after_that() -> None:
    run = given("tasks: {a: {do: x}, b: {do: x}}\nlinks: [{from: a, to: b, on: always}]")
    run.fail("a")
    run.complete("b", 1)
    past = run.walked().past

    assert (run.status, past.stopping) == ("FAILED", 3)
    assert retry_point(past, None) == (1, "a")


def test_a_retry_of_a_cancelled_run_begins_where_it_was_cancelled() -> None:
    run = given("tasks:\n  a: {do: x}\n  s: {type: signal, name: go, after: a}\n")
    run.complete("a", 1)
    run.cancel()

    assert retry_point(run.walked().past, None) == (2, "")
    assert retry_point(run.walked().past, "s") == (2, "s")


def test_what_has_nothing_to_try_again_is_not_retried() -> None:
    hint = "`reset` goes on from any event of its history"
    run = given("tasks:\n  a: {do: x}\n")
    with pytest.raises(Rejected) as caught:
        retry_point(run.walked().past, None)
    assert (caught.value.code, caught.value.hint) == ("not-retriable", hint)
    assert caught.value.message == (
        "run run is still open; only one that FAILED, was CANCELLED or TIMED_OUT is retried"
    )
    run.complete("a", 1)
    with pytest.raises(Rejected, match="run run has ended COMPLETED; only one that FAILED"):
        retry_point(run.walked().past, None)


def test_a_retry_from_a_task_that_has_not_ended_is_refused() -> None:
    past = failed("a").walked().past
    with pytest.raises(NotFound) as caught:
        retry_point(past, "z")
    assert caught.value.message == "run run has no task `z` that has ended"
    assert caught.value.hint == "it has: a, b, f"


def test_a_retry_after_what_was_undone_is_refused() -> None:
    with pytest.raises(Rejected) as caught:
        retry_point(failed("a").walked().past, "b")

    assert caught.value.code == "retry-undone"
    assert caught.value.message == (
        "`a` was done before `b` and has been undone: it would count as done"
    )
    assert caught.value.hint == (
        "retry without naming a task, which begins before all that was undone"
    )
    assert retry_point(failed("a").walked().past, "a") == (1, "a")


@pytest.mark.parametrize("to", [0, 6, -1])
def test_a_reset_stays_within_the_history(to: int) -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x, after: a}\n  d: {do: x, after: b}\n")
    for key in "abd":
        run.complete(key)
    past = run.walked().past
    assert len(past.events) == 5
    with pytest.raises(Rejected) as caught:
        check_point(past, to)
    assert caught.value.code == "reset-point"
    assert caught.value.message == f"run run has events 1 to 5; it cannot go on from {to}"
    assert str(caught.value.hint).startswith("`penstock history` numbers them")
    check_point(past, 1)
    check_point(past, 3)


def test_a_reset_does_not_go_on_from_where_it_stopped_or_from_within_a_step() -> None:
    past = failed("a").walked().past
    with pytest.raises(Rejected) as caught:
        check_point(past, past.stopping)
    assert caught.value.message == (
        f"with event {past.stopping} run run began to stop; it cannot go on from event {past.stopping}"
    )
    assert caught.value.hint == f"take an event from 1 to {past.stopping - 1}"
    run = much()
    past = run.walked().past
    assert past.loose == [3, 7]
    with pytest.raises(Rejected) as caught:
        check_point(past, 3)
    assert caught.value.message == "what followed event 3 of run run belongs to it"
    assert caught.value.hint == "take event 4"
    done = given("tasks:\n  a: {do: x}\n")
    done.complete("a")
    with pytest.raises(Rejected) as caught:
        check_point(done.walked().past, 3)
    assert caught.value.hint == "take event 2"


def test_where_tasks_ended_is_known_also_if_they_began_with_the_same_event() -> None:
    past = much().walked().past

    assert past.ended == {"a": 2, "b": 3, "c": 6, "d": 7, "s": 10}
    assert past.pushed == {"a": 2, "b": 3}
    assert past.stopping == 0
    at_once = given("tasks:\n  a: {do: x}\n")
    (event,) = at_once.complete("a")[:1]
    assert isinstance(event, e.TaskCompleted)
    assert at_once.walked().past.ended == {"a": 2}


def test_children_that_began_later_are_told_apart() -> None:
    world = World(MUCH, OTHER)
    run = world.start("flow")
    run.complete("a", 1)
    run.complete("b", 1)
    world.start_child(run, "c")
    past = run.walked().past

    assert children_after(past, 2, run.replayed(2).run) == {"c": "run/c"}
    assert children_after(past, 4, run.replayed(4).run) == {}


def test_signals_that_came_later_are_given_again() -> None:
    run = given("tasks:\n  a: {do: x}\n  s: {type: signal, name: go, after: a, reply: '1'}\n  t: {type: signal, name: on, after: s}\n")  # fmt: skip
    run.signal("go", 1, id="m", update=True)
    run.signal("on", 2)
    run.signal("go", 3, id="n", update=True)
    run.complete("a")
    past = run.walked().past

    again = signals_after(past, 1, NOON + 5, ())
    assert [(event.name, event.at, event.update) for event in again] == [
        ("go", NOON + 5, False),
        ("on", NOON + 5, False),
        ("go", NOON + 5, True),
    ]
    assert [event.name for event in signals_after(past, 1, NOON, ("go",))] == ["on"]
    assert [event.name for event in signals_after(past, 3, NOON, ())] == ["go"]


def test_ids_of_commands_count_for_a_day_in_the_next_generation_too() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x, after: a}\n")

    def pause(id: str) -> None:
        run.command(
            c.Identified(at=run.world.now, id=id, digest=id, command=c.PauseRun(at=run.world.now))
        )

    pause("early")
    run.resume()
    run.world.now += 100
    run.complete("a")
    pause("late")
    past = run.walked().past
    end = run.world.now
    to = len(past.events) - 2

    fact = e.RunReset(at=end, generation=2, of=1, to=to)
    assert list(known_after(past, fact)) == ["late"]
    assert list(known_after(past, e.RunReset(at=end, generation=2, of=1, to=1))) == [
        "early",
        "late",
    ]
    late = e.RunReset(at=end + 86_400, generation=2, of=1, to=1)
    assert list(known_after(past, late)) == ["late"]
    assert list(known_to(run.run, NOON + 86_399)) == ["early", "late"]
    assert list(known_to(run.run, NOON + 86_400)) == ["late"]
