"""What a command becomes, field by field, and the words with which it is refused (SPEC 4.1, 4.4)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from penstock.core.identity import remember, repeated
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.failure import Failure
from penstock.model.run import Run, Undo
from support.world import NOON, Case, World, given

ONE = "tasks:\n  a: {do: x}\n"
FORM = "tasks:\n  w: {type: form, assignee: ann, schema: {type: integer}}\n  a: {do: x}\n"
WHO: dict[str, Any] = {"by": "ann", "reason": "as asked for"}


def refused(run: Case, command: c.Command) -> Rejected:
    with pytest.raises(Rejected) as caught:
        run.command(command)
    return caught.value


def words(run: Case, command: c.Command) -> tuple[str, str]:
    error = refused(run, command)
    return error.code, error.message


# --- starting ------------------------------------------------------------------------------------------------


def test_a_start_keeps_all_that_it_was_given() -> None:
    entry = Undo(key="~1/a", activity="back", arguments=Raw(b"[]"))
    given_: dict[str, Any] = {
        "generation": 2, "priority": 2, "deadline": NOON + 90, "created_by": "ann", "parent": "p", "parent_key": "c",
        "parent_generation": 3, "depth": 4, "metadata": {"m": 1}, "attributes": {"n": 2}, "start_key": "k",
        "later": {"c": "child"}, "known": {"x": (NOON - 1, "d")},
    }  # fmt: skip
    run = given(ONE, 7, undo=(entry,), delay=60, **given_)

    started = run.events[0]
    assert isinstance(started, e.RunStarted)
    assert {name: getattr(started, name) for name in given_} == given_
    assert (started.at, started.id, started.definition, started.version) == (
        NOON,
        "run",
        "flow",
        "1",
    )
    assert (started.input, started.undo, started.begin) == (Raw(b"7"), [entry], NOON + 60)
    state = run.run
    assert (state.generation, state.priority, state.deadline) == (2, 2, NOON + 90)
    assert (state.created_at, state.created_by, state.depth) == (NOON, "ann", 4)
    assert (state.parent, state.parent_key, state.parent_generation) == ("p", "c", 3)
    assert (state.metadata, state.attributes) == ({"m": 1}, {"n": 2})
    assert state.commands == {"x": (NOON - 1, "d")}
    assert state.leaving == {"~1/c": "child"}
    assert state.undo == [entry]


@pytest.mark.parametrize(
    ("more", "due"), [({}, NOON + 100), ({"delay": 60}, NOON + 160)], ids=["now", "delayed"]
)
def test_the_timeout_of_a_run_counts_from_where_it_begins(more: dict[str, Any], due: float) -> None:
    run = given("timeouts: {run: 100s}\n" + ONE, **more)

    assert run.run.due == due
    assert (due, "#run") in run.run.dues


def test_the_timeout_of_a_held_run_counts_from_its_admission() -> None:
    run = given("limits: {runs: 1}\ntimeouts: {run: 100s}\n" + ONE)
    assert run.run.held
    assert run.run.due is None
    run.world.now += 50

    assert run.command(c.AdmitRun(at=run.world.now)) == [
        e.RunAdmitted(at=NOON + 50, due=NOON + 150)
    ]
    assert run.run.due == NOON + 150
    assert run.command(c.AdmitRun(at=run.world.now)) == []


def test_where_others_are_refused_a_child_waits() -> None:
    source = "limits: {runs: 1, over: refuse}\n" + ONE

    assert not given(source).run.held
    assert given(source, parent="p", parent_key="c").run.held


@pytest.mark.parametrize("word", ["high", "normal", "low"])
def test_a_run_has_the_priority_of_its_definition_or_its_own(word: str) -> None:
    source = f"priority: {word}\n" + ONE

    assert given(source).run.priority == ["high", "normal", "low"].index(word)
    assert given(source, priority=0).run.priority == 0


def test_a_start_is_refused_with_what_is_wrong() -> None:
    with pytest.raises(Rejected) as caught:
        given("inputSchema: {type: string}\n" + ONE, 7)
    assert caught.value.code == "input-invalid"
    assert caught.value.message.startswith("the input does not fit the inputSchema of `flow`: ")
    assert caught.value.hint == "change the input, or the definition's inputSchema"

    run = given(ONE)
    again = c.StartRun(at=NOON, id="run", definition="flow", version="1", input=b"null")
    assert words(run, again) == ("id-taken", "run run exists already")


# --- the run as a whole --------------------------------------------------------------------------------------


def test_who_paused_resumed_cancelled_and_terminated_is_kept() -> None:
    run = given(ONE)
    at = {"at": NOON, **WHO}

    assert run.command(c.PauseRun(**at)) == [e.RunPaused(**at)]
    assert run.command(c.PauseRun(**at)) == []
    assert run.command(c.ResumeRun(**at)) == [e.RunResumed(**at)]
    assert run.command(c.ResumeRun(**at)) == []
    assert run.command(c.CancelRun(**at)) == [e.CancelRequested(due=NOON + 30, **at)]
    assert run.command(c.CancelRun(**at)) == []
    assert run.command(c.TerminateRun(**at)) == [e.RunTerminated(**at)]
    assert run.failure == Failure(code="terminated", message="as asked for")


def test_a_cancelled_run_tells_why() -> None:
    for reason, message in (("as asked for", "as asked for"), ("", "cancelled")):
        run = given("tasks:\n  s: {type: signal, name: go}\n")
        run.command(c.CancelRun(at=NOON, reason=reason))
        assert run.failure == Failure(code="cancelled", message=message)


def test_a_snapshot_is_named_by_whom() -> None:
    assert given(ONE).command(c.NameSnapshot(at=NOON, name="before", by="ann")) == [
        e.SnapshotTaken(at=NOON, name="before", by="ann")
    ]


def test_a_miss_is_foreseen_once() -> None:
    run = given(ONE, deadline=NOON + 60)

    assert run.command(c.ForeseeMiss(at=NOON, expected=NOON + 90)) == [
        e.DeadlineForeseen(at=NOON, deadline=NOON + 60, expected=NOON + 90)
    ]
    assert run.run.escalated
    assert run.command(c.ForeseeMiss(at=NOON, expected=NOON + 95)) == []
    assert given(ONE).command(c.ForeseeMiss(at=NOON, expected=NOON + 90)) == []


def test_a_deadline_is_missed_once_and_the_run_goes_on() -> None:
    run = given(ONE, deadline=NOON + 60)
    run.skip(100)

    assert run.of(e.DeadlineMissed) == [e.DeadlineMissed(at=NOON + 60, deadline=NOON + 60)]
    assert run.run.late
    assert run.open == ["a"]
    assert run.command(c.ForeseeMiss(at=run.world.now, expected=NOON + 190)) == []


def test_a_deadline_is_missed_after_a_pause_too() -> None:
    run = given(ONE, deadline=NOON + 60)
    run.pause()
    run.world.now += 100
    run.resume()
    run.skip(100)

    assert len(run.of(e.DeadlineMissed)) == 1
    assert run.run.late


@pytest.mark.parametrize(
    ("command", "what"),
    [(c.PauseRun, "cannot be paused any more"), (c.CancelRun, "needs no cancelling")],
)
def test_a_run_that_stops_says_what_it_does(command: type[Any], what: str) -> None:
    run = given(
        "timeouts: {run: 5s}\ntasks:\n  a: {do: x, compensate: back}\n  b: {do: x, after: a}\n"
    )
    run.complete("a")
    run.skip(5)
    hint = "`why` says what it waits for; terminate it to end it at once, with nothing more undone"

    error = refused(run, command(at=run.world.now))
    assert (error.code, error.hint, error.facts) == ("run-stopping", hint, {"run_id": "run"})
    assert error.message == (
        f"run run {what}: it waits for what is still under way, and then ends TIMED_OUT"
    )
    run.fail("b", "cancelled")
    assert refused(run, command(at=run.world.now)).message == (
        f"run run {what}: it undoes what it did, and then ends TIMED_OUT"
    )


@pytest.mark.parametrize("command", [c.PauseRun, c.ResumeRun])
def test_a_run_that_rewinds_is_neither_paused_nor_resumed(command: type[Any]) -> None:
    run = given("tasks:\n  a: {do: x, compensate: back}\n  b: {do: x, after: a}\n")
    run.complete("a")
    new = run.reset(1, undo=True)
    assert new.run.rewinding

    error = refused(new, command(at=NOON))
    assert error.code == "run-rewinding"
    assert error.message == (
        "run run undoes what the generation before had done; it goes on by itself after that"
    )
    assert error.hint == ("`why` says what is being undone; cancel or terminate the run to end it")


def test_a_closed_run_and_one_that_is_not_there_refuse() -> None:
    run = given(ONE)
    run.complete("a")
    error = refused(run, c.PauseRun(at=NOON))
    assert (error.code, error.message) == ("run-closed", "run run has ended COMPLETED")
    assert error.facts == {"run_id": "run", "status": "COMPLETED"}

    nobody = Case(World(ONE), "ghost", run.plan)
    assert words(nobody, c.PauseRun(at=NOON)) == ("not-found", "no run ghost")


def test_a_command_with_an_id_is_taken_once() -> None:
    run = given(ONE)
    pause = c.Identified(at=NOON, id="k", digest="d", command=c.PauseRun(at=NOON))

    assert run.command(pause) == [
        e.CommandAccepted(at=NOON, id="k", digest="d"),
        e.RunPaused(at=NOON),
    ]
    assert run.command(pause) == []
    run.resume()
    assert run.command(pause) == []
    other = c.Identified(at=NOON, id="k", digest="e", command=c.PauseRun(at=NOON))
    error = refused(run, other)
    assert (error.code, error.facts) == ("key-reused", {"run_id": "run"})
    assert error.message == "run run has accepted another command with the id 'k'"
    assert error.hint == (
        "give each command an id of its own; repeat one only with the same content"
    )
    later = c.Identified(at=NOON + 86_400, id="k", digest="e", command=c.PauseRun(at=NOON + 86_400))
    assert [event.type for event in run.command(later)] == ["command_accepted", "run_paused"]


def test_ten_thousand_ids_are_remembered_and_the_oldest_is_forgotten_first() -> None:
    run = Run(id="run")
    run.commands.update({f"{number}": (NOON, "d") for number in range(9_999)})

    remember(run, "new", NOON, "d")
    assert len(run.commands) == 10_000
    remember(run, "newer", NOON, "d")
    assert len(run.commands) == 10_000
    assert "0" not in run.commands
    remember(run, "1", NOON, "d")
    assert list(run.commands)[-1] == "1"
    assert repeated(run, "2", NOON, "d")


# --- waits ---------------------------------------------------------------------------------------------------


def test_a_signal_keeps_who_sent_it() -> None:
    run = given("tasks:\n  s: {type: signal, name: go, reply: '7'}\n  a: {do: x}\n")

    received = run.signal("go", {"n": 1}, by="ann", id="m", update=True)[0]

    assert received == e.SignalReceived(
        at=NOON, name="go", payload=Raw(b'{"n":1}'), by="ann", id="m", update=True, outcomes=received.outcomes
    )  # fmt: skip
    assert run.answers == {"m": 7}


def test_a_signal_that_does_not_fit_says_why() -> None:
    run = given("tasks:\n  s: {type: signal, name: go, schema: {type: integer}}\n")

    code, message = words(run, c.SendSignal(at=NOON, name="go", payload=b'"x"'))

    assert code == "signal-invalid"
    assert message.startswith("the payload of signal `go` does not fit its schema: ")


def test_a_run_that_stops_takes_no_signal() -> None:
    run = given("tasks:\n  s: {type: signal, name: go}\n  a: {do: x}\n")
    run.cancel()

    assert words(run, c.SendSignal(at=NOON, name="go")) == (
        "run-stopping",
        "run run is being stopped and takes no more signals",
    )


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("{type: signal, name: go, timeout: 5s}", "`w` waited in vain for signal `go`"),
        (
            "{type: event, topic: a.b, where: 'true', timeout: 5s}",
            "`w` waited in vain for an event on `a.b`",
        ),
        ("{do: x, timeout: {task: 5s}}", "`w` took longer than its task timeout of 5 s"),
        (
            "{type: timer, delay: 5s, timeout: {task: 4s}}",
            "`w` took longer than its task timeout of 4 s",
        ),
    ],
)
def test_a_timeout_says_what_was_waited_for(task: str, message: str) -> None:
    run = given(f"tasks:\n  w: {task}\n")
    run.skip(5)

    (failed,) = run.of(e.TaskFailed)
    assert failed.failure == Failure(code="timeout", message=message)
    assert (failed.key, failed.attempt) == ("w", int(task.startswith("{do")))
    assert run.status == "FAILED"


def test_a_timer_that_is_due_with_its_timeout_fires() -> None:
    run = given("tasks:\n  t: {type: timer, delay: 5s, timeout: {task: 5s}}\n")
    run.skip(5)

    assert run.status == "COMPLETED"


def test_a_form_goes_from_hand_to_hand() -> None:
    run = given(FORM)
    key = {"at": NOON, "key": "w"}

    assert run.command(c.ReleaseForm(by="bob", **key)) == []
    assert run.command(c.ClaimForm(by="bob", **key)) == [e.FormClaimed(by="bob", **key)]
    assert run.command(c.ClaimForm(by="bob", **key)) == []
    error = refused(run, c.ClaimForm(by="ann", **key))
    assert (error.code, error.message) == ("form-claimed", "`w` is claimed by bob")
    assert error.hint == "bob must release it first"
    assert run.command(c.ReleaseForm(by="bob", **key)) == [e.FormReleased(by="bob", **key)]
    assert run.command(c.DelegateForm(by="ann", to="eve", **key)) == [
        e.FormDelegated(by="ann", to="eve", **key)
    ]
    form = run.task("w").form
    assert form is not None
    assert (form.assignee, form.claimed_by) == ("eve", None)
    code, message = words(run, c.SubmitForm(by="eve", output=b'"x"', **key))
    assert code == "form-invalid"
    assert message.startswith("the form `w` is not filled in right: ")
    submitted = run.command(c.SubmitForm(by="eve", output=b"7", **key))
    assert submitted == [e.FormSubmitted(by="eve", output=Raw(b"7"), **key)]
    assert run.output("w") == 7


def test_only_a_form_that_waits_is_filled_in() -> None:
    run = given("tasks:\n  s: {type: signal, name: go}\n  a: {do: x}\n")

    assert words(run, c.ClaimForm(at=NOON, key="s", by="ann")) == (
        "not-a-form",
        "`s` is not a form",
    )
    for key in ("a", "z", "y" * 90):
        error = refused(run, c.ClaimForm(at=NOON, key=key, by="ann"))
        assert error.code == "task-not-waiting"
        assert error.message == f"no task `{key[:80]}` waits in run run"
        assert error.hint == "`why` lists what the run waits for, by key"


def test_a_child_is_recorded_once_and_closes_with_all_that_it_gave() -> None:
    world = World(
        "id: flow\ntasks:\n  c: {type: subworkflow, definition: other}\n  a: {do: x}\n",
        "id: other\ntasks:\n  a: {do: x}\n",
    )
    run = world.start("flow")
    record = c.RecordChild(at=NOON, key="c", run="run/c", version="3")

    assert words(run, c.RecordChild(at=NOON, key="c", run="else", version="1")) == (
        "task-not-waiting",
        "`c` waits for run run/c",
    )
    assert run.command(record) == [e.ChildStarted(at=NOON, key="c", run="run/c", version="3")]
    assert run.command(record) == []
    entry = Undo(key="x", activity="back", arguments=Raw(b"[]"))
    closed = run.command(
        c.CloseChild(at=NOON, key="c", status="COMPLETED", output=b"7", run="run/c", undo=(entry,))
    )
    assert closed == [
        e.ChildClosed(at=NOON, key="c", status="COMPLETED", output=Raw(b"7"), undo=[entry])
    ]
    assert run.output("c") == 7
    assert [each.key for each in run.run.undo] == ["c/x"]


def test_another_run_than_the_child_does_not_end_its_task() -> None:
    world = World(
        "id: flow\ntasks:\n  c: {type: subworkflow, definition: other}\n", "id: other\n" + ONE
    )
    run = world.start("flow")

    assert words(run, c.CloseChild(at=NOON, key="c", status="COMPLETED", run="else")) == (
        "task-not-waiting",
        "`c` waits for run run/c, not else",
    )


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ("FAILED", "child-failed", "run run/c ended FAILED: no"),
        ("CANCELLED", "child-cancelled", "run run/c ended CANCELLED: no"),
        ("TIMED_OUT", "child-timed-out", "run run/c ended TIMED_OUT: no"),
        ("TERMINATED", "child-terminated", "run run/c ended TERMINATED: no"),
    ],
)
def test_a_child_that_did_not_complete_fails_its_task(status: str, code: str, message: str) -> None:
    world = World(
        "id: flow\ntasks:\n  c: {type: subworkflow, definition: other}\n", "id: other\n" + ONE
    )
    run = world.start("flow")
    world.start_child(run, "c")
    why = Failure(code="why", message="no")

    run.command(c.CloseChild(at=NOON, key="c", status=status, failure=why, run="run/c"))

    assert run.failure is not None
    assert (run.code, run.failure.message, run.failure.cause) == (code, message, why)


def test_a_delivery_is_recorded_once() -> None:
    run = given(
        "tasks:\n  a: {do: x, onComplete: [{signal: {run: other, name: go, payload: 7}}]}\n  b: {do: x}\n"
    )
    run.complete("a")
    (id,) = run.run.outgoing
    out = run.run.outgoing[id]
    assert (out.key, out.run, out.name, bytes(out.payload)) == ("a", "other", "go", b"7")
    assert id == "run/1/2/0"
    delivery = c.RecordDelivery(at=NOON, id=id, refused="run-unknown")

    assert run.command(delivery) == [e.SignalDelivered(at=NOON, id=id, refused="run-unknown")]
    assert run.command(delivery) == []


def offered(case: Case, **more: Any) -> list[e.Event]:
    told: dict[str, Any] = {"id": "e", "topic": "a.b", "data": b"7", **more}
    return case.command(c.OfferEvent(at=case.world.now, **told))


def test_an_event_is_taken_by_all_who_wait_for_it() -> None:
    run = given(
        "tasks:\n"
        "  v: {type: event, topic: a.b, where: 'event.data == 7'}\n"
        "  w: {type: event, topic: a.*, where: 'event.id == \"e\"'}\n"
        "  u: {type: event, topic: b.*, where: 'true'}\n"
    )

    assert offered(run, id="x", data=b"8", topic="c") == []
    received = offered(run, kind="k", source="s")[0]
    assert received == e.EventReceived(
        at=NOON, id="e", topic="a.b", keys=["v", "w"], kind="k", source="s", payload=Raw(b"7")
    )
    assert (run.output("v"), run.output("w")) == (7, 7)
    assert run.waiting == ["u"]
    assert offered(run, kind="k", source="s") == []


def test_a_where_sees_all_of_an_event() -> None:
    where = (
        'event.type == "k" && event.source == "s" && event.run == "r" && event.id == "e"'
        ' && event.topic == "a.b" && event.data == 7'
    )
    run = given(f"tasks:\n  w: {{type: event, topic: a.b, where: '{where}'}}\n")

    assert offered(run, kind="k", source="s", run="other") == []
    assert offered(run, id="f", kind="k", source="s", run="r") == []
    assert offered(run, kind="k", source="s", run="r")[0].type == "event_received"


def test_an_event_that_where_cannot_read_is_refused_and_said_whose() -> None:
    run = given("tasks:\n  w: {type: event, topic: a.b, where: 'event.data.n == 1'}\n")

    error = refused(run, c.OfferEvent(at=NOON, id="e", topic="a.b", data=b"{}"))

    assert error.code == "event-unfit"
    assert error.message.startswith("event e on `a.b`: `where` of `w`: no such key `n`")
    assert error.hint == "ask with has(…) before you read what an event may not have"
