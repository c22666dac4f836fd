"""What operators do by hand: to a wait, to an undo that failed, to the attributes (SPEC 4.4, 4.5, 4.9)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model.failure import Failure
from support.world import NOON, Case, given

UNDONE = """
tasks:
  a: {do: x, compensate: {activity: back, retry: {attempts: 2, first: 4s, jitter: 0}}}
  b: {do: x, after: a}
"""
HINT = "`why` lists what the run waits for, by key"


def handle(run: Case, key: str, act: str, **more: Any) -> list[e.Event]:
    return run.command(c.HandleWait(at=run.world.now, key=key, act=act, **more))


def resolve(run: Case, act: str, key: str = "a", **more: Any) -> list[e.Event]:
    return run.command(c.ResolveUndo(at=run.world.now, key=key, act=act, **more))


def undoing(*failures: str) -> Case:
    run = given(UNDONE)
    run.complete("a")
    run.cancel()
    run.fail("b", "cancelled")
    for code in failures:
        run.fail("a", code)
    return run


def retrying() -> Case:
    run = given("tasks:\n  a: {do: x, retry: {attempts: 3, first: 60s, jitter: 0}}\n")
    run.fail("a")
    return run


def test_a_retry_is_fired_now_by_whom_and_why() -> None:
    run = retrying()

    assert handle(run, "a", "fire", by="ann", reason="it is up again") == [
        e.RetryFired(at=NOON, key="a", attempt=2, by="ann", reason="it is up again")
    ]
    assert run.task("a").due == NOON
    assert run.done[-1] == f.Execute("a", 2, NOON)


def test_a_timer_is_fired_now_by_whom_and_why() -> None:
    run = given("tasks:\n  t: {type: timer, delay: 1h}\n")

    fired, _ = handle(run, "t", "fire", by="ann", reason="no need to wait")

    assert fired == e.TimerFired(at=NOON, key="t", by="ann", reason="no need to wait")
    assert run.status == "COMPLETED"


def test_a_wait_is_skipped_by_whom_and_why_and_the_run_goes_on() -> None:
    run = given("tasks:\n  s: {type: signal, name: go}\n  z: {do: x, after: s}\n")

    assert handle(run, "s", "skip", by="ann", reason="nobody comes") == [
        e.TaskSkipped(at=NOON, key="s", by="ann", reason="nobody comes")
    ]
    assert run.task("s").status == "SKIPPED"
    assert run.output("s") is None
    assert run.run.waiters == {}
    assert run.open == ["z"]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"by": "ann", "reason": "too late"}, "too late"),
        ({"by": "ann"}, "ann failed `a`"),
        ({}, "an operator failed `a`"),
    ],
)
def test_a_wait_is_failed_for_the_reason_given(told: dict[str, str], message: str) -> None:
    failed = handle(retrying(), "a", "fail", **told)[0]

    assert isinstance(failed, e.TaskFailed)
    assert failed.failure == Failure(code="failed-by-operator", message=message)
    assert (failed.at, failed.key, failed.attempt, failed.by) == (NOON, "a", 2, told.get("by", ""))


@pytest.mark.parametrize(
    ("task", "message", "hint"),
    [
        ("{type: signal, name: go}", "a signal", "send the signal"),
        ("{type: event, topic: a.b, where: 'true'}", "an event", "publish the event"),
        ("{type: form, assignee: ann, schema: {}}", "a form", "submit the form"),
        ("{do: x}", "a token", "complete it"),
    ],
)
def test_what_only_others_can_give_is_not_fired(task: str, message: str, hint: str) -> None:
    run = given(f"tasks:\n  w: {task}\n")
    if task == "{do: x}":
        run.command(c.DeferTask(at=NOON, key="w", attempt=1))

    with pytest.raises(Rejected) as caught:
        handle(run, "w", "fire")

    assert caught.value.code == "not-fireable"
    assert caught.value.message == f"`w` waits for {message}, which only somebody else can give"
    assert caught.value.hint == f"{hint}, or skip or fail the wait"
    handle(run, "w", "skip")
    assert run.status == "COMPLETED"


def test_an_act_that_there_is_not_is_refused() -> None:
    for refused, wanted in ((handle, "fire, skip or fail"), (resolve, "accept, skip or retry")):
        run = undoing("one", "two")
        with pytest.raises(Rejected) as caught:
            refused(run, "a", "y" * 90) if refused is handle else resolve(run, "y" * 90)
        assert caught.value.code == "act-unknown"
        assert caught.value.message == f"`{'y' * 80}` is not {wanted}"
        assert caught.value.hint == "take one of these"


@pytest.mark.parametrize(
    ("key", "what"),
    [("z", "is not open"), ("a", "is SCHEDULED and waits for nothing")],
)
def test_what_does_not_wait_is_not_handled(key: str, what: str) -> None:
    with pytest.raises(Rejected) as caught:
        handle(given("tasks:\n  a: {do: x}\n"), key, "skip")

    assert (caught.value.code, caught.value.hint) == ("task-not-waiting", HINT)
    assert caught.value.message == f"`{key}` of run run {what} that can be fired, skipped or failed"


def test_a_retry_that_is_due_waits_for_nothing() -> None:
    run = retrying()
    run.world.now += 60

    with pytest.raises(Rejected, match="RETRYING and waits for nothing"):
        handle(run, "a", "fire")


def test_in_a_run_that_stops_nothing_is_waited_for() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x}\n")
    run.command(c.DeferTask(at=NOON, key="a", attempt=1))
    run.cancel()

    with pytest.raises(Rejected) as caught:
        handle(run, "a", "skip")

    assert caught.value.code == "run-stopping"
    assert caught.value.message == "run run is being stopped: nothing in it is waited for any more"


def test_the_retry_of_an_undo_is_fired() -> None:
    run = undoing("one")

    assert handle(run, "a", "fire", by="ann", reason="now") == [
        e.RetryFired(at=NOON, key="a", attempt=2, by="ann", reason="now", undo=True)
    ]
    assert run.run.undoing["a"].due == NOON
    assert run.done[-1] == f.Execute("a", 2, NOON, undo=True)


def test_the_retry_of_an_undo_is_failed_and_waits_for_a_decision() -> None:
    run = undoing("one")

    (failed,) = handle(run, "a", "fail", by="ann", reason="hopeless")

    assert failed == e.UndoFailed(
        at=NOON, key="a", attempt=2, failure=Failure(code="one", message="one"), by="ann", reason="hopeless",
    )  # fmt: skip
    assert [each.entry.key for each in run.run.undo_failed] == ["a"]


def test_the_retry_of_an_undo_is_skipped_for_good() -> None:
    run = undoing("one")

    failed, skipped, ended = handle(run, "a", "skip", by="ann", reason="hopeless")

    assert failed.type == "undo_failed"
    assert skipped == e.UndoResolved(at=NOON, key="a", act="skip", by="ann", reason="hopeless")
    assert ended.type == "run_cancelled"


@pytest.mark.parametrize("act", ["accept", "skip"])
def test_an_undo_that_failed_is_let_be(act: str) -> None:
    run = undoing("one", "two")
    assert run.status == "COMPENSATING"

    resolved, ended = resolve(run, act, by="ann", reason="by hand")

    assert resolved == e.UndoResolved(at=NOON, key="a", act=act, by="ann", reason="by hand")
    assert ended.type == "run_cancelled"


def test_an_undo_that_failed_has_all_its_attempts_again() -> None:
    run = undoing("one", "two")

    (resolved,) = resolve(run, "retry", by="ann", reason="it is up")

    assert resolved == e.UndoResolved(
        at=NOON, key="a", act="retry", by="ann", reason="it is up", attempt=3
    )
    assert run.done[-1] == f.Execute("a", 3, undo=True)
    assert run.task("a").status == "COMPENSATING"
    assert run.fail("a", "three")[0].type == "undo_retried"
    assert run.fail("a", "four")[0].type == "undo_failed"


@pytest.mark.parametrize(("failures", "known"), [(("one",), "none"), (("one", "two"), "`a`")])
def test_only_an_undo_that_failed_is_resolved(failures: tuple[str, ...], known: str) -> None:
    with pytest.raises(Rejected) as caught:
        resolve(undoing(*failures), "skip", "b")

    assert caught.value.code == "undo-not-failed"
    assert caught.value.message == f"no undo of `b` has failed in run run; failed: {known}"
    assert caught.value.hint == "`why` lists the undos that wait for a decision"


def test_undos_that_have_failed_are_listed() -> None:
    undo = "{activity: back, parallel: true, retry: {attempts: 1}}"
    run = given(f"tasks:\n  a: {{do: x, compensate: {undo}}}\n  b: {{do: x, compensate: {undo}}}\n  f: {{do: x, after: [a, b]}}\n")  # fmt: skip
    run.complete("a")
    run.complete("b")
    run.fail("f")
    for key in list(run.undoing):
        run.fail(key)

    with pytest.raises(Rejected) as caught:
        resolve(run, "skip", "f")
    assert caught.value.message == "no undo of `f` has failed in run run; failed: `b`, `a`"


def test_attributes_change_by_what_differs_alone() -> None:
    run = given("tasks:\n  a: {do: x}\n", attributes={"one": 1, "two": 2})

    def change(**values: Any) -> list[e.Event]:
        return run.command(
            c.ChangeAttributes(at=NOON, values=values, by="ann", reason="as asked for")
        )

    assert change(one=1, three=None) == []
    assert change(one=1, two=None, four=4) == [
        e.AttributesChanged(
            at=NOON, values={"two": None, "four": 4}, by="ann", reason="as asked for"
        )
    ]
    assert run.run.attributes == {"one": 1, "four": 4}
    change(**{f"n{number}": number for number in range(198)})
    with pytest.raises(Rejected, match="a run has at most 200 attributes") as caught:
        change(more=1)
    assert caught.value.code == "attributes-too-many"
    assert len(run.run.attributes) == 200


def test_what_is_deferred_runs_from_when_it_began_until_it_is_due() -> None:
    run = given("tasks:\n  a: {do: x}\n")
    run.command(c.DeferTask(at=NOON, key="a", attempt=1, due=NOON + 9, began=990.0))

    state = run.task("a")
    assert (state.status, state.started, state.deferred) == ("RUNNING", True, True)
    assert (state.started_at, state.due) == (990.0, NOON + 9)
    assert run.due() == NOON + 9
    run.skip(9)
    assert run.code == "timeout"
    assert run.failure is not None
    assert run.failure.message == "`a` was not completed from outside in time"


def test_a_deferral_in_a_pause_is_due_as_much_later_as_the_pause_lasts() -> None:
    run = given("tasks:\n  a: {do: x}\n")
    run.pause()
    run.world.now += 5
    run.command(c.DeferTask(at=run.world.now, key="a", attempt=1, due=run.world.now + 9))
    run.world.now += 5
    run.resume()

    assert run.due() == NOON + 10 + 9
    assert run.task("a").started_at == NOON + 5


def test_what_a_token_gives_is_the_output() -> None:
    run = given("tasks:\n  a: {do: x}\n")
    run.command(c.DeferTask(at=NOON, key="a", attempt=1))
    run.command(c.CompleteTask(at=NOON, key="a", attempt=1, output=Raw(b"7")))

    assert run.result == 7
