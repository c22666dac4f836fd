"""Signals, updates, pause, cancel, terminate, timeouts, forms, delayed starts (SPEC 4.4)."""

from __future__ import annotations

import pytest

from penstock.core.evolve import evolve
from penstock.core.owed import reasons
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model.failure import Failure
from support.world import given

# --- signals -------------------------------------------------------------------------------------------------


def test_signals_are_kept_in_order_per_name_and_each_wakes_one_waiter() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  s: {type: signal, name: go, after: a}
  t: {type: signal, name: go, after: s}
  u: {type: signal, name: other, after: t}
"""
    )
    run.signal("go", 1)
    run.signal("other", "o")
    run.signal("go", 2)
    run.complete("a")

    assert run.status == "COMPLETED"
    assert run.result == "o"


def test_waiters_are_served_in_order_of_arrival() -> None:
    run = given("tasks:\n  s: {type: signal, name: go}\n  t: {type: signal, name: go}")

    run.signal("go", 1)
    assert run.waiting == ["t"]
    run.signal("go", 2)

    assert run.result == {"s": 1, "t": 2}


def test_an_undeclared_signal_is_refused_with_what_is_declared() -> None:
    run = given("tasks:\n  s: {type: signal, name: approve}")

    with pytest.raises(Rejected) as caught:
        run.signal("aprove")

    assert caught.value.code == "signal-undeclared"
    assert "approve" in str(caught.value.hint)


def test_a_signal_against_its_schema_is_refused() -> None:
    run = given("tasks:\n  s: {type: signal, schema: {type: integer}}")

    with pytest.raises(Rejected) as caught:
        run.signal("s", "no")

    assert caught.value.code == "signal-invalid"
    run.signal("s", 1)
    assert run.result == 1


def test_a_message_that_comes_twice_counts_once() -> None:
    run = given("tasks:\n  s: {type: signal, name: go}\n  t: {type: signal, name: go}")

    run.signal("go", 1, id="m1")
    assert run.signal("go", 1, id="m1") == []

    assert run.waiting == ["t"]


def test_a_transient_signal_that_nobody_waits_for_is_gone() -> None:
    run = given("tasks:\n  a: {do: x}\n  s: {type: signal, transient: true, after: a}")

    run.signal("s", 1)
    run.complete("a")
    assert run.waiting == ["s"]
    run.signal("s", 2)

    assert run.result == 2


def test_a_transient_update_that_nobody_waits_for_is_answered_with_a_refusal() -> None:
    run = given("tasks:\n  a: {do: x}\n  s: {type: signal, transient: true, after: a}")

    run.signal("s", 1, id="u1", update=True)

    assert run.answers["u1"][0] == "refused"


def test_a_signal_that_waited_in_vain_fails_and_no_later_signal_reaches_it() -> None:
    run = given(
        """
tasks:
  s: {type: signal, name: go, timeout: 10s}
  h: {do: x, after: {from: s, on: error}}
  t: {type: signal, name: go, after: h}
"""
    )
    run.skip(10)
    assert run.task("s").failure.code == "timeout"  # type: ignore[union-attr]
    assert run.open == ["h"]

    run.signal("go", 1)
    run.complete("h")

    assert run.status == "COMPLETED"
    assert run.result == {"t": 1}


def test_an_update_is_answered_by_the_reply_of_the_task_that_takes_it() -> None:
    run = given("tasks:\n  s: {type: signal, reply: '{\"sum\": tasks.s.output + input}'}", 5)

    run.signal("s", 2, id="u1", update=True)

    assert run.answers == {"u1": {"sum": 7}}


def test_an_update_that_came_before_its_task_is_answered_when_it_is_taken() -> None:
    run = given("tasks:\n  a: {do: x}\n  s: {type: signal, reply: '1', after: a}")

    run.signal("s", 2, id="u1", update=True)
    assert run.answers == {}
    run.complete("a")

    assert run.answers == {"u1": 1}


def test_a_reply_that_errs_is_a_refusal_and_the_run_goes_on() -> None:
    run = given("tasks:\n  s: {type: signal, reply: 'input.no'}", {})

    run.signal("s", 2, id="u1", update=True)

    assert run.answers["u1"][0] == "refused"
    assert run.status == "COMPLETED"


def test_a_signal_to_a_closed_run_is_refused() -> None:
    run = given("tasks:\n  s: {type: signal}")
    run.signal("s")

    with pytest.raises(Rejected) as caught:
        run.signal("s")

    assert caught.value.code == "run-closed"


def test_a_signal_to_another_run_is_owed_until_it_is_known_to_have_arrived() -> None:
    sender = given(
        "id: one\ntasks:\n  a: {do: x, onComplete: [{signal: {run: other, name: go, payload: '${tasks.a.output}'}}]}\n  b: {do: x}",
        None,
        "id: two\ntasks:\n  go: {type: signal}",
    )
    receiver = sender.world.start("two", id="other")
    sender.complete("a", 5)
    (id,) = sender.run.outgoing
    sender.world.deliver(sender, id)

    assert receiver.result == 5
    assert sender.run.outgoing == {}


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_a_run_does_not_close_before_the_signals_it_sent_are_known_to_have_arrived(
    ending: str,
) -> None:
    sender = given(
        """
id: one
tasks:
  a:
    do: x
    onComplete: [{signal: {run: other, name: go}}]
    onError: [{signal: {run: other, name: go}}]
""",
        None,
        "id: two\ntasks:\n  go: {type: signal}",
    )
    receiver = sender.world.start("two", id="other")
    getattr(sender, ending)("a")

    assert not sender.run.closed
    assert [r.kind for r in reasons(sender.run)] == ["delivery"]
    sender.world.deliver(sender, next(iter(sender.run.outgoing)))

    assert sender.status == ("COMPLETED" if ending == "complete" else "FAILED")
    assert receiver.status == "COMPLETED"


# --- timers --------------------------------------------------------------------------------------------------


def test_timers_fire_when_due_the_earlier_first() -> None:
    run = given("tasks:\n  a: {type: timer, delay: 20s}\n  b: {type: timer, delay: 10s}")

    run.world.now += 30
    run.skip(0)

    assert [x.key for x in run.of(e.TimerFired)] == ["b", "a"]
    assert run.status == "COMPLETED"


def test_a_timer_until_a_moment_fires_then() -> None:
    run = given("tasks:\n  a: {type: timer, until: '1970-01-01T01:00:00Z'}")

    assert run.due() == 3600


def test_a_timer_in_the_past_fires_at_once() -> None:
    run = given("tasks:\n  a: {type: timer, until: '${timestamp(\"1970-01-01T00:00:01Z\")}'}")
    run.skip(0)

    assert run.status == "COMPLETED"


# --- pause and resume ----------------------------------------------------------------------------------------


def test_while_paused_nothing_is_due_and_attempts_in_flight_are_recorded() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x, after: a}\n  t: {type: timer, delay: 10s}")

    run.pause()
    run.skip(100)
    assert run.of(e.TimerFired) == []
    run.complete("a")

    assert run.task("b").status == "SCHEDULED"
    assert not run.ready("b")
    assert "pause" in [r.kind for r in reasons(run.run)]


def test_resume_shifts_relative_waits_but_not_absolute_ones() -> None:
    run = given(
        """
timeouts: {run: 1h}
tasks:
  t: {type: timer, delay: 10s}
  u: {type: timer, until: '1970-01-01T00:17:40Z'}
  s: {type: signal, timeout: 30s}
  f: {type: form, schema: {}, due: 40s}
  r: {do: x, retry: {attempts: 2, first: 50s, jitter: 0}, timeout: {task: 80s}}
"""
    )
    run.fail("r")
    run.skip(5)
    run.pause()
    run.skip(100)
    run.resume()

    assert run.task("t").due == 1110
    assert run.task("u").due == 1060
    assert run.task("s").due == 1130
    assert run.task("f").due == 1140
    assert run.task("f").form.due == 1140  # type: ignore[union-attr]
    assert run.task("r").due == 1150
    assert run.task("r").deadline == 1180
    assert run.run.due == 4700
    assert f.Execute("r", 2, 1150.0) in run.done


def test_waits_that_begin_during_a_pause_are_counted_from_the_resume() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  t: {type: timer, delay: 10s, after: a}
  b: {do: x, retry: {attempts: 2, first: 20s, jitter: 0}}
"""
    )
    run.pause()
    run.skip(100)
    run.complete("a")
    run.fail("b")
    run.skip(100)
    run.resume()

    assert run.task("t").due == run.world.now + 10
    assert run.task("b").due == run.world.now + 20


def test_resume_gives_out_again_what_may_begin() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x, after: a}")
    run.pause()
    run.complete("a")
    run.done.clear()

    run.resume()

    assert run.done == [f.Execute("b", 1)]


def test_pausing_twice_and_resuming_what_runs_yields_nothing() -> None:
    run = given("tasks:\n  a: {do: x}")

    assert run.resume() == []
    run.pause()
    assert run.pause() == []


@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_cancel_and_terminate_lift_a_pause(how: str) -> None:
    run = given("tasks:\n  a: {do: x}")
    run.pause()

    getattr(run, how)()

    assert not run.run.paused


# --- cancel --------------------------------------------------------------------------------------------------

CANCEL = """
id: parent
tasks:
  a: {do: x, compensate: undo_a}
  b: {do: x, compensate: undo_b, after: a}
  s: {type: signal}
  t: {type: timer, delay: 1h}
  c: {type: subworkflow, definition: child}
"""
CHILD = "id: child\ntasks:\n  w: {type: signal}"


def test_cancel_ends_waits_tells_activities_then_children_then_compensates() -> None:
    run = given(CANCEL, None, CHILD)
    child = run.world.start_child(run, "c")
    run.complete("a", "A")

    run.cancel()
    assert run.task("s").status == "CANCELLED"
    assert run.task("t").status == "CANCELLED"
    assert run.abandoned() == ["b"]
    assert ("cancel", "c") not in run.todo
    run.complete("b", "B")
    assert ("cancel", "c") in run.todo
    child.cancel()
    run.world.close_child(child)
    assert run.status == "COMPENSATING"
    assert run.undoing == ["b"]
    run.complete("b")
    run.complete("a")

    assert run.status == "CANCELLED"
    assert run.code == "cancelled"


def test_attempts_that_do_not_end_within_the_grace_are_given_up() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x}")
    run.cancel()
    run.fail("a", "cancelled")
    run.skip(29)
    assert not run.run.closed
    run.skip(1)

    assert run.status == "CANCELLED"
    assert run.types()[-2:] == ["grace_ended", "run_cancelled"]


def test_a_cancelled_run_starts_nothing_new() -> None:
    run = given("tasks:\n  a: {do: x, retry: 5}\n  b: {do: x, after: a}\n  c: {do: x}")
    run.cancel()
    run.fail("a")
    assert run.task("a").status == "FAILED"
    run.complete("c")

    assert run.status == "CANCELLED"


def test_an_attempt_lost_while_the_run_stops_is_not_begun_again() -> None:
    run = given("tasks:\n  a: {do: x}")
    run.cancel()
    run.done.clear()

    run.lose("a")

    assert run.status == "CANCELLED"
    assert run.done == []


def test_a_retry_that_is_under_way_when_the_run_is_cancelled_is_told_and_awaited() -> None:
    run = given(
        "tasks:\n  a: {do: x, retry: {attempts: 3, first: 5s, jitter: 0}}\n  b: {do: x, retry: {attempts: 2, first: 50s}}"
    )
    run.fail("a")
    run.fail("b")
    run.skip(10)

    run.cancel()

    assert run.abandoned() == ["a"]
    assert run.task("b").status == "CANCELLED"
    assert not run.run.closed


def test_after_a_restart_a_stopping_run_does_not_begin_its_attempts_again() -> None:
    from penstock.core.owed import owed

    run = given("tasks:\n  a: {do: x}")
    run.cancel()

    assert owed(run.run) == [f.Abandon("a", 1)]


def test_an_attempt_that_stops_with_its_run_is_cancelled_and_one_that_fails_meanwhile_is_failed() -> (
    None
):
    run = given(
        """
tasks:
  told: {do: x, onError: [{publish: {topic: bad, payload: it}}]}
  lost: {do: x}
  broken: {do: x, onError: [{publish: {topic: bad, payload: it}}]}
  last: {do: x}
"""
    )
    run.cancel()
    run.fail("told", "cancelled")
    run.lose("lost")
    run.fail("broken", "boom")

    assert {key: state.status for key, state in run.tasks() if key != "last"} == {
        "told": "CANCELLED",
        "lost": "CANCELLED",
        "broken": "FAILED",
    }
    run.fail("last", "cancelled")
    assert run.status == "CANCELLED"
    assert run.types().count("published") == 1


def test_an_event_of_old_that_says_no_more_than_cancelled_leaves_its_task_failed() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x}\n")
    run.cancel()
    old = e.TaskFailed(at=run.world.now, key="a", attempt=1, failure=Failure("cancelled", "told"))
    evolve(run.flow, old)

    assert run.task("a").status == "FAILED"


def test_cancel_of_a_run_that_is_being_cancelled_yields_nothing() -> None:
    run = given("tasks:\n  a: {do: x}")
    run.cancel()

    assert run.cancel() == []
    with pytest.raises(Rejected) as caught:
        run.signal("s")
    assert caught.value.code in ("signal-undeclared", "run-stopping")


def test_terminate_ends_at_once_without_compensation() -> None:
    run = given(CANCEL, None, CHILD)
    run.world.start_child(run, "c")
    run.complete("a")

    run.terminate()

    assert run.status == "TERMINATED"
    assert run.open == []
    assert run.abandoned() == ["b"]
    assert f.CancelChild("c", "run/c") in run.done


def test_the_runs_own_timeout_stops_it_compensates_and_ends_timed_out() -> None:
    run = given(
        "timeouts: {run: 60s}\ntasks:\n  a: {do: x, compensate: u}\n  s: {type: signal, after: a}"
    )
    run.complete("a")
    run.skip(60)
    assert run.undoing == ["a"]
    run.complete("a")

    assert run.status == "TIMED_OUT"
    assert run.code == "timeout"


def test_a_stopping_run_does_not_time_out_on_top() -> None:
    run = given("timeouts: {run: 20s}\ntasks:\n  a: {do: x}")
    run.cancel()
    run.skip(25)
    run.complete("a")

    assert run.status == "CANCELLED"
    assert "timeout_reached" not in run.types()


def test_every_command_on_a_closed_run_is_refused_or_yields_nothing() -> None:
    run = given("tasks:\n  a: {do: x}")
    run.complete("a")
    before = run.digest()

    for command in (
        c.CancelRun(at=1.0), c.TerminateRun(at=1.0), c.PauseRun(at=1.0), c.ResumeRun(at=1.0), c.SendSignal(at=1.0, name="s"),
        c.CompleteTask(at=1.0, key="a", attempt=1, output=b"1"),
    ):  # fmt: skip
        with pytest.raises(Rejected) as caught:
            run.command(command)
        assert caught.value.code == "run-closed"
    assert run.command(c.Wake(at=1e9)) == []

    assert run.digest() == before


# --- children ------------------------------------------------------------------------------------------------


def test_a_child_gets_its_input_and_gives_its_result() -> None:
    run = given(
        "id: p\ntasks:\n  c: {type: subworkflow, definition: child, inputs: {v: '${input + 1}'}}",
        4,
        "id: child\ntasks:\n  t: {type: transform, set: {w: input.v}}\noutputs: {w: data.w}",
    )
    child = run.world.start_child(run, "c")
    assert child.id == "run/c"
    assert child.run.depth == 1
    run.world.close_child(child)

    assert run.result == {"w": 5}


def test_a_failed_child_fails_its_task_with_the_cause() -> None:
    run = given(
        "id: p\ntasks:\n  c: {type: subworkflow, definition: child}\n  h: {do: x, after: {from: c, on: error}}",
        None,
        "id: child\ntasks:\n  a: {do: x}",
    )
    child = run.world.start_child(run, "c")
    child.fail("a", "boom")
    run.world.close_child(child)

    assert run.open == ["h"]
    failure = run.task("c").failure
    assert failure is not None
    assert (failure.code, failure.cause.code) == ("child-failed", "boom")  # type: ignore[union-attr]


def test_a_detached_child_is_not_awaited() -> None:
    run = given(
        "id: p\ntasks:\n  c: {type: subworkflow, definition: child, detached: true}",
        None,
        "id: child\ntasks:\n  a: {do: x}",
    )
    run.world.start_child(run, "c")

    assert run.result == {"run": "run/c", "version": "1"}


def test_subworkflows_may_recurse_to_a_depth() -> None:
    run = given("id: p\ntasks:\n  c: {type: subworkflow, definition: p}", None, depth=64)

    assert run.code == "depth-exceeded"


def test_a_child_whose_task_times_out_is_cancelled() -> None:
    run = given(
        "id: p\ntasks:\n  c: {type: subworkflow, definition: child, timeout: {task: 10s}}\n  h: {do: x, after: {from: c, on: error}}",
        None,
        CHILD,
    )
    run.world.start_child(run, "c")
    run.skip(10)

    assert f.CancelChild("c", "run/c") in run.done
    assert run.open == ["h"]


def test_a_cancelled_child_is_owed_until_it_has_ended_and_the_run_waits_for_it() -> None:
    from penstock.core.owed import owed

    run = given(
        "id: p\ntasks:\n  a: {do: x}\n  c: {type: subworkflow, definition: child}\n  j: {do: x, join: {any: true, cancel: true}, after: [a, c]}",
        None,
        CHILD,
    )
    child = run.world.start_child(run, "c")
    run.complete("a")
    assert f.CancelChild("c", "run/c") in owed(run.run)
    run.complete("j", 1)
    assert [r.kind for r in reasons(run.run)] == ["child"]
    child.cancel()
    run.world.close_child(child)

    assert run.result == 1


# --- forms ---------------------------------------------------------------------------------------------------

FORM = "tasks:\n  f: {type: form, schema: {type: object, required: [ok]}, assignee: 'team-${input}', due: 1h}"


def form(kind: type, run, **more: object):
    return run.command(kind(at=run.world.now, key="f", **more))


def test_a_form_is_assigned_claimed_and_submitted() -> None:
    run = given(FORM, "a")
    assert run.task("f").form.assignee == "team-a"  # type: ignore[union-attr]

    form(c.ClaimForm, run, by="ann")
    run.submit("f", {"ok": True}, by="ann")

    assert run.result == {"ok": True}


def test_a_claimed_form_is_only_for_whoever_claimed_it() -> None:
    run = given(FORM, "a")
    form(c.ClaimForm, run, by="ann")
    assert form(c.ClaimForm, run, by="ann") == []

    for kind, more in ((c.ClaimForm, {}), (c.ReleaseForm, {}), (c.DelegateForm, {"to": "cid"})):
        with pytest.raises(Rejected, match="claimed by ann"):
            form(kind, run, by="bob", **more)
    with pytest.raises(Rejected, match="claimed by ann"):
        run.submit("f", {"ok": True}, by="bob")


def test_a_released_form_can_be_claimed_by_another() -> None:
    run = given(FORM, "a")
    form(c.ClaimForm, run, by="ann")
    form(c.ReleaseForm, run, by="ann")
    form(c.ClaimForm, run, by="bob")

    assert run.task("f").form.claimed_by == "bob"  # type: ignore[union-attr]


def test_a_delegated_form_is_another_persons_and_free_to_claim() -> None:
    run = given(FORM, "a")
    form(c.ClaimForm, run, by="ann")
    form(c.DelegateForm, run, by="ann", to="cid")

    held = run.task("f").form
    assert held is not None
    assert (held.assignee, held.claimed_by) == ("cid", None)


def test_a_form_filled_in_wrong_is_refused_and_stays_open() -> None:
    run = given(FORM, "a")

    with pytest.raises(Rejected) as caught:
        run.submit("f", {})

    assert caught.value.code == "form-invalid"
    assert run.waiting == ["f"]


def test_an_overdue_form_escalates_once_and_stays_open() -> None:
    run = given(FORM, "a")
    run.skip(7200)

    assert [x.type for x in run.events[1:]] == ["form_escalated"]
    assert run.waiting == ["f"]
    run.submit("f", {"ok": 1})
    assert run.status == "COMPLETED"


def test_commands_for_forms_need_a_form_that_waits() -> None:
    run = given("tasks:\n  f: {do: x}\n  s: {type: signal}")

    with pytest.raises(Rejected) as caught:
        run.submit("f", {})
    assert caught.value.code == "task-not-waiting"
    with pytest.raises(Rejected) as caught:
        run.submit("s", {})
    assert caught.value.code == "not-a-form"


# --- delayed start -------------------------------------------------------------------------------------------


def test_a_delayed_start_begins_when_the_delay_is_over() -> None:
    run = given("timeouts: {run: 60s}\ntasks:\n  a: {do: x}", delay=100.0)

    assert run.status == "CREATED"
    assert run.open == []
    assert [r.kind for r in reasons(run.run)] == ["start"]
    run.skip(100)

    assert run.open == ["a"]
    assert run.run.due == 1160


def test_signals_before_the_delayed_start_are_kept() -> None:
    run = given("tasks:\n  s: {type: signal}", delay=10.0)
    run.signal("s", 5)
    assert run.status == "CREATED"
    run.skip(10)

    assert run.result == 5


def test_a_delayed_start_can_be_cancelled() -> None:
    run = given("tasks:\n  a: {do: x}", delay=10.0)
    run.cancel()

    assert run.status == "CANCELLED"


def test_a_second_start_is_refused() -> None:
    run = given("tasks:\n  a: {do: x}")

    with pytest.raises(Rejected) as caught:
        run.command(c.StartRun(at=1.0, id="run", definition="flow", version="1", input=b"1"))

    assert caught.value.code == "id-taken"


def test_an_input_against_the_schema_is_refused() -> None:
    with pytest.raises(Rejected) as caught:
        given("inputSchema: {type: object, required: [v]}\ntasks:\n  a: {do: x}", {})

    assert caught.value.code == "input-invalid"
