"""What the world is told to do by each event, in full: which attempt, when, of what (SPEC 4.2)."""

from __future__ import annotations

from typing import Any

from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from support.world import NOON, Case, World, given

RETRIED = "tasks:\n  a: {do: x, retry: {attempts: 3, first: 4s, jitter: 0}}\n"
UNDONE = """
tasks:
  a: {do: x, compensate: {activity: back, retry: {attempts: 2, first: 4s, jitter: 0}}}
  b: {do: x, after: a}
"""


def told(run: Case, act: Any) -> list[f.Effect]:
    """The effects of what is done now."""
    before = len(run.done)
    act()
    return run.done[before:]


def test_an_attempt_is_executed_now_and_its_retry_when_it_is_due() -> None:
    run = given(RETRIED)
    assert run.done == [f.Execute("a", 1)]
    assert told(run, lambda: run.fail("a")) == [f.Execute("a", 2, NOON + 4)]
    assert told(run, lambda: run.lose("a")) == []
    run.skip(4)
    assert told(run, lambda: run.lose("a")) == [f.Execute("a", 3)]
    assert told(run, lambda: run.lose("a", cut=True)) == [f.Execute("a", 4)]
    assert told(run, run.cancel) == [f.Abandon("a", 4)]


def test_a_retry_in_a_pause_is_counted_from_where_it_began() -> None:
    run = given(RETRIED)
    run.pause()
    run.world.now += 10
    assert told(run, lambda: run.fail("a")) == [f.Execute("a", 2, NOON + 4)]
    assert told(run, run.resume)[-1:] == [f.Execute("a", 2, NOON + 14)]


def test_so_is_an_undo() -> None:
    run = given(UNDONE)
    run.complete("a")
    assert told(run, run.cancel) == [f.Abandon("b", 1)]
    assert told(run, lambda: run.fail("b", "cancelled")) == [f.Execute("a", 1, undo=True)]
    assert run.task("a").status == "COMPENSATING"
    assert told(run, lambda: run.lose("a")) == [f.Execute("a", 2, undo=True)]
    assert told(run, lambda: run.fail("a")) == [f.Execute("a", 3, NOON + 4, undo=True)]
    run.skip(4)
    assert told(run, lambda: run.lose("a", cut=True)) == [f.Execute("a", 4, undo=True)]
    assert run.run.undoing["a"].due is None
    assert told(run, lambda: run.fail("a")) == []
    assert run.task("a").status == "UNDO_FAILED"


def test_an_attempt_that_took_too_long_is_told_to_stop() -> None:
    run = given("tasks:\n  a: {do: x, timeout: {task: 5s}}\n")

    assert told(run, lambda: run.skip(5)) == [f.Abandon("a", 1)]


def test_one_that_failed_is_not() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x}\n")

    assert told(run, lambda: run.fail("a")) == [f.Abandon("b", 1)]


def test_a_run_that_is_held_is_to_be_admitted_when_it_begins() -> None:
    held = given("limits: {runs: 1}\ntasks:\n  a: {do: x}\n")
    assert held.done == [f.Admit()]
    assert told(held, lambda: held.command(c.AdmitRun(at=NOON))) == [f.Execute("a", 1)]
    delayed = given("limits: {runs: 1}\ntasks:\n  a: {do: x}\n", delay=60)
    assert delayed.done == []
    assert told(delayed, lambda: delayed.skip(60)) == [f.Admit()]


def test_the_children_of_the_generation_before_are_told() -> None:
    run = given("tasks:\n  a: {do: x}\n", generation=2, later={"c": "run/c"})

    assert run.done == [f.CancelChild("~1/c", "run/c"), f.Execute("a", 1)]


def test_a_child_is_told_when_its_task_is_given_up() -> None:
    world = World(
        "id: flow\ntasks:\n  c: {type: subworkflow, definition: other}\n  s: {type: signal, name: stop}\n  k: {type: cancel, tasks: [c], after: s}\n",
        "id: other\ntasks:\n  a: {do: x}\n",
    )  # fmt: skip
    run = world.start("flow")
    world.start_child(run, "c")

    assert told(run, lambda: run.signal("stop")) == [f.CancelChild("c", "run/c")]
    assert run.run.leaving == {"c": "run/c"}


def test_a_detached_child_is_told_too_and_not_waited_for() -> None:
    world = World(
        "id: flow\ntasks:\n  c: {type: subworkflow, definition: other, detached: true}\n  b: {do: x}\n",
        "id: other\ntasks:\n  a: {do: x}\n",
    )
    run = world.start("flow")
    run.fail("b")

    assert run.done[-1] == f.CancelChild("c", "run/c")
    assert run.run.leaving == {}


def test_an_update_is_answered() -> None:
    run = given(
        "tasks:\n  a: {do: x}\n  s: {type: signal, name: go, after: a, reply: 'input.no'}\n  t: {type: signal, name: now, transient: true, after: s}\n",
        {"n": 1},
    )  # fmt: skip
    run.signal("now", 1, id="n", update=True)
    assert run.answers == {"n": ("refused", "nobody waits for `now`, and it is not kept")}
    run.signal("go", 1, id="m", update=True)
    assert "m" not in run.answers
    run.complete("a")
    word, why = run.answers["m"]
    assert (word, why.startswith("reply of `s`: no such key")) == ("refused", True)
    (now, go) = run.of(e.UpdateAnswered)
    assert (now.id, now.refused) == ("n", "nobody waits for `now`, and it is not kept")
    assert (go.id, go.refused) == ("m", why)
