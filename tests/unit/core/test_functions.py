"""What a workflow function wants and what it hears, seen from the core: a script in the place of its code (SPEC 2.8)."""

from __future__ import annotations

import pytest
from msgspec import Raw

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.functions import FUNCTION, FunctionPlan, told
from penstock.core.invariants import broken
from penstock.core.owed import owed, reasons
from penstock.core.program import NeedProgram, Told
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model import intents as i
from penstock.model.codec import decode_run, encode_run
from penstock.model.definition import Retry, Timeouts
from penstock.model.failure import Failure
from penstock.model.run import Run, Undo
from support.world import NOON, Case, World
from unit.core.scripted import Scripted, started

RETRY = Retry(attempts=2, first=4.0, jitter=0.0)


def test_a_function_is_told_its_start_and_gives_its_result() -> None:
    run, program = started([i.Finish(Raw(b"8"))])

    (first,) = program.heard
    assert (first.at, first.seq) == (NOON, 1)
    assert first.heard == [i.Heard("start", output=b"7")]
    assert run.types() == ["run_started", "run_completed"]
    assert run.result == 8
    assert (run.run.advanced, program.advanced) == (1, 1)


def test_a_call_is_executed_and_its_output_is_heard() -> None:
    run, program = started([i.Call("a#1", "act", Raw(b"[1]"))], [i.Finish()])
    assert owed(run.run) == [f.Execute("a#1", 1)]
    assert run.done == [f.Execute("a#1", 1)]
    state = run.task("a#1")
    assert (state.status, state.attempt, state.scheduled_at) == ("SCHEDULED", 1, NOON)

    run.complete("a#1", {"n": 1})

    assert program.last() == (i.Heard("done", "a#1", b'{"n":1}'), b'{"n":1}')
    assert run.status == "COMPLETED"
    assert run.run.tasks_done == 1


def test_a_large_output_is_heard_by_reference() -> None:
    run, program = started([i.Call("a#1", "act")])
    run.complete("a#1", "y" * 5000)

    heard, output = program.last()
    assert heard.output is None
    assert heard.ref
    assert output == b'"' + b"y" * 5000 + b'"'
    assert not run.has("a#1")


def test_a_call_is_tried_as_its_own_policy_says() -> None:
    call = i.Call(
        "a#1", "act", retry=RETRY, timeouts=Timeouts(task=60.0), queue="q", priority="high"
    )
    run, program = started([call], [i.Finish()])
    node = run.flow.plan.scopes[""].nodes["a#1"]
    assert (node.retry, node.queue, node.priority, node.timeouts.task) == (RETRY, "q", "high", 60.0)
    assert (node.type, node.works, node.config) == ("activity", True, {"activity": "act"})
    assert run.flow.plan.queued
    assert run.task("a#1").deadline == NOON + 60
    assert (NOON + 60, "a#1") in run.run.dues

    run.fail("a#1", "one")
    assert run.task("a#1").due == NOON + 4
    run.fail("a#1", "two", "no")

    heard, output = program.last()
    assert (heard.kind, heard.key, output) == ("failed", "a#1", None)
    assert heard.failure == Failure(code="two", message="no", key="a#1")
    assert run.run.tasks_done == 1


def test_steps_that_are_executed_alike_share_a_shape() -> None:
    run, _ = started(
        [
            i.Call("a#1", "act"), i.Call("a#2", "act"), i.Call("b#1", "other"),
            i.Call("a#3", "act", queue="q"), i.Call("a#4", "act", queue="q"), i.Call("a#5", "act", priority="low"),
        ]
    )  # fmt: skip
    shape = {key: node.shape for key, node in run.flow.plan.scopes[""].nodes.items()}

    assert shape["a#1"] is shape["a#2"]
    assert shape["a#3"] is shape["a#4"]
    assert len({id(each) for each in shape.values()}) == 4


def test_a_call_that_takes_too_long_is_given_up() -> None:
    run, program = started([i.Call("a#1", "act", timeouts=Timeouts(task=60.0))])
    run.skip(60)

    heard, _ = program.last()
    assert heard.failure is not None
    assert (heard.kind, heard.failure.code) == ("failed", "timeout")
    assert run.abandoned() == ["a#1"]


def test_a_step_that_can_be_undone_is() -> None:
    run, _ = started(
        [
            i.Call("a#1", "act", undo="back", undo_retry=RETRY),
            i.Push("p", "aside", Raw(b"[7]")),
            i.Push(
                "r", "again", Raw(b"[8]"), Retry(attempts=3, first=4.0, factor=1.5, maximum=9.0)
            ),
        ],
        [i.Break(Failure(code="bad", message="no"))],
    )
    assert run.run.undo == [
        Undo(key="p", activity="aside", arguments=Raw(b"[7]"), attempts=4, first=2.0, factor=2.0, maximum=60.0),
        Undo(key="r", activity="again", arguments=Raw(b"[8]"), attempts=3, first=4.0, factor=1.5, maximum=9.0),
    ]  # fmt: skip
    run.complete("a#1", 1)

    assert run.undoing == ["a#1"]
    entry = run.run.undoing["a#1"].entry
    assert (entry.activity, bytes(entry.arguments), entry.attempts) == ("back", b"[1]", 2)
    for key in ("a#1", "r", "p"):
        assert run.undoing == [key]
        run.complete(key)
    assert run.status == "FAILED"
    assert run.failure == Failure(code="bad", message="no")


def test_a_sleep_is_heard_when_it_is_due() -> None:
    run, program = started([i.Sleep("s#1", NOON + 60)], [i.Finish()])
    state = run.task("s#1")
    assert (state.status, state.due, state.absolute) == ("WAITING", NOON + 60, True)
    assert [(r.kind, r.key, r.due) for r in reasons(run.run)] == [("timer", "s#1", NOON + 60)]
    run.skip(60)

    assert program.last() == (i.Heard("done", "s#1", b"null"), b"null")
    assert program.heard[-1].at == NOON + 60
    assert run.status == "COMPLETED"


def test_a_signal_that_comes_is_taken_by_who_waits_first() -> None:
    run, program = started([i.Await("go#1", "go"), i.Await("go#2", "go", NOON + 60)])
    assert run.run.waiters == {"go": ["go#1", "go#2"]}
    assert run.run.dues == [(NOON + 60, "go#2")]

    run.signal("go", 1)
    assert program.last() == (i.Heard("done", "go#1", b"1"), b"1")
    run.skip(60)
    heard, _ = program.last()
    assert heard.failure is not None
    assert (heard.kind, heard.key, heard.failure.code) == ("failed", "go#2", "timeout")


def test_a_signal_that_came_before_is_taken_at_once() -> None:
    run, program = started([i.Sleep("s", NOON + 9)], [i.Await("go#1", "go")], [i.Finish()])
    run.signal("go", 1)
    assert "go" in run.run.signals
    run.skip(9)

    assert program.last() == (i.Heard("done", "go#1", b"1"), b"1")
    assert [len(told.heard) for told in program.heard] == [1, 1, 1]
    assert run.run.signals == {}
    assert run.status == "COMPLETED"
    assert run.types() == ["run_started", "signal_received", "timer_fired", "run_completed"]
    assert run.replayed().run == run.run


def test_several_signals_at_once_are_told_one_after_another_and_so_again() -> None:
    run, program = started(
        [i.Sleep("s", NOON + 9)],
        [i.Await("go#1", "go")],
        [i.Await("go#2", "go"), i.Child("c#1", "other", detached=True)],
        [i.Await("go#3", "go")],
    )
    run.signal("go", 1)
    run.signal("go", 2)
    run.skip(9)

    assert [each.outputs for each in program.heard[2:]] == [[b"1"], [b"2"]]
    assert run.waiting == ["c#1", "go#3"]
    assert run.replayed().run == run.run
    run.command(c.RecordChild(at=NOON, key="c#1", run="run/c#1", version="2"))
    assert run.replayed().run == run.run


def test_a_run_that_was_put_away_has_its_steps_again() -> None:
    run, _ = started(
        [
            i.Call("a#1", "act", undo="back"), i.Call("b#1", "act"), i.Sleep("s", NOON + 9), i.Await("g", "go"),
            i.Child("c", "other", kept=True),
        ]
    )  # fmt: skip
    again = Flow(decode_run(encode_run(run.run)), FunctionPlan("work"))

    nodes = again.plan.scopes[""].nodes
    assert {id: (node.type, node.config) for id, node in nodes.items()} == {
        "a#1": ("activity", {"activity": "act"}),
        "b#1": ("activity", {"activity": "act"}),
        "s": ("timer", {}),
        "g": ("signal", {"name": "go"}),
        "c": ("subworkflow", {"detached": False, "kept": True}),
    }
    assert nodes["a#1"].compensate is not None
    assert nodes["a#1"].compensate.activity == "back"


def test_a_signal_that_is_not_declared_is_refused_with_those_that_are() -> None:
    run, _ = started([i.Sleep("s", NOON + 9)])
    run.flow.plan.base.declared = frozenset({"approve", "stop"})  # type: ignore[attr-defined]

    with pytest.raises(Rejected) as caught:
        run.signal("aprove")
    assert caught.value.code == "signal-undeclared"
    assert caught.value.message == (
        "`work` declares no signal `aprove`; it declares: approve, stop"
    )
    assert caught.value.hint == "did you mean `approve`?"
    with pytest.raises(Rejected) as caught:
        run.signal("zzz")
    assert caught.value.hint == "name it in `@workflow(signals=…)`"


def test_an_update_is_answered_by_the_function_or_at_once() -> None:
    run, program = started(
        [i.Await("u#1", "up", update=True), i.Await("s#1", "sig")],
        [i.Reply("m", Raw(b"9"))],
    )
    run.signal("up", 1, id="m", update=True)
    assert program.last() == (i.Heard("done", "u#1", b"1", id="m"), b"1")
    assert run.answers == {"m": 9}
    run.signal("sig", 1, id="n", update=True)
    assert program.last()[0].id == ""
    assert run.answers == {"m": 9, "n": None}
    refusing, _ = started([i.Await("u#1", "up", update=True)], [i.Reply("m", refused="not now")])
    refusing.signal("up", 1, id="m", update=True)
    assert refusing.answers == {"m": ("refused", "not now")}
    plain, program = started([i.Await("u#1", "up", update=True)])
    plain.signal("up", 1, id="m")
    assert program.last()[0].id == ""


def test_a_child_is_started_waited_for_and_heard() -> None:
    run, program = started(
        [i.Child("c#1", "other", Raw(b"5"), version="2"), i.Child("d#1", "other", id="own")],
        [],
        [i.Finish()],
    )
    assert owed(run.run) == [f.StartChild("c#1"), f.StartChild("d#1")]
    assert run.done == [f.StartChild("c#1"), f.StartChild("d#1")]
    assert (run.task("c#1").child, run.task("d#1").child) == ("run/c#1", "own")
    assert run.task("c#1").arguments == b'{"definition":"other","version":"2","input":5}'
    for key, child in (("c#1", "run/c#1"), ("d#1", "own")):
        run.command(c.RecordChild(at=NOON, key=key, run=child, version="2"))
    run.command(c.CloseChild(at=NOON, key="c#1", status="COMPLETED", output=b"6", run="run/c#1"))
    assert program.last() == (i.Heard("done", "c#1", b"6"), b"6")
    why = Failure(code="bad", message="no")
    run.command(c.CloseChild(at=NOON, key="d#1", status="FAILED", failure=why, run="own"))
    heard, _ = program.last()
    assert heard.failure == Failure(
        code="child-failed", message="run own ended FAILED: no", key="d#1", cause=why
    )
    assert run.status == "COMPLETED"


@pytest.mark.parametrize("kept", [True, False])
def test_a_child_that_is_dropped_is_cancelled_unless_it_is_kept(kept: bool) -> None:
    run, _ = started([i.Child("c#1", "other", kept=kept), i.Call("a#1", "act")], [i.Drop("c#1")])
    run.command(c.RecordChild(at=NOON, key="c#1", run="run/c#1", version="2"))
    run.complete("a#1")

    assert run.run.leaving == ({} if kept else {"c#1": "run/c#1"})
    assert (f.CancelChild("c#1", "run/c#1") in run.done) is not kept


def test_a_child_of_a_later_generation_has_another_name() -> None:
    run, _ = started([i.Child("c#1", "other")], generation=3)

    assert run.task("c#1").child == "run~3/c#1"


@pytest.mark.parametrize(("depth", "heard"), [(63, []), (64, ["failed"])])
def test_children_are_not_started_without_end(depth: int, heard: list[str]) -> None:
    _, program = started([i.Child("c#1", "other"), i.Sleep("s", NOON + 5)], depth=depth)

    assert [each.kind for told in program.heard[1:] for each in told.heard] == heard
    if heard:
        failure = program.heard[-1].heard[0].failure
        assert failure is not None
        assert (failure.code, failure.key) == ("depth-exceeded", "c#1")
        assert failure.message == (
            "`c#1` would be a child run 65 deep, and at most 64 are started inside one another: "
            "a workflow that starts itself needs an end, or `continue_as_new`"
        )


def test_a_detached_child_is_done_when_it_has_begun() -> None:
    run, program = started([i.Child("c#1", "other", detached=True)])
    run.command(c.RecordChild(at=NOON, key="c#1", run="run/c#1", version="2"))

    heard, output = program.last()
    assert (heard.kind, heard.key) == ("done", "c#1")
    assert output == b'{"run":"run/c#1","version":"2"}'


def test_what_is_dropped_is_not_heard() -> None:
    run, program = started(
        [i.Call("a#1", "act"), i.Await("go#1", "go"), i.Sleep("s#1", NOON + 5)],
        [i.Drop("a#1"), i.Drop("go#1"), i.Drop("nothing"), i.Sleep("s#2", NOON + 9)],
    )
    run.skip(5)

    assert run.abandoned() == ["a#1"]
    assert run.run.waiters == {}
    assert run.waiting == ["s#2"]
    assert list(run.flow.plan.scopes[""].nodes) == ["s#2"]
    assert len(program.heard) == 2


def test_what_is_dropped_gently_may_still_end() -> None:
    run, program = started(
        [i.Call("a#1", "act", undo="back"), i.Call("b#1", "act"), i.Sleep("s#1", NOON + 5)],
        [i.Drop("a#1", gently=True), i.Drop("b#1", gently=True), i.Sleep("s#2", NOON + 9)],
    )
    assert not told(run.run, "a#1")
    run.skip(5)

    assert run.abandoned() == ["a#1", "b#1"]
    assert run.done[-2:] == [f.Abandon("a#1", 1), f.Abandon("b#1", 1)]
    assert told(run.run, "a#1")
    assert not told(run.run, "z")
    assert not told(Run(id="x"), "a#1")
    assert owed(run.run) == [f.Abandon("a#1", 1), f.Abandon("b#1", 1)]
    run.complete("a#1", 1)
    run.fail("b#1", "cancelled")
    assert [entry.key for entry in run.run.undo] == ["a#1"]
    assert run.waiting == ["s#2"]
    assert len(program.heard) == 2


def test_a_function_that_fails_waits_for_what_can_be_undone() -> None:
    run, _ = started(
        [
            i.Call("a#1", "act", undo="back"), i.Call("b#1", "act"), i.Call("c#1", "act", undo="back"),
            i.Call("d#1", "act", undo="back", retry=RETRY), i.Await("go#1", "go"), i.Sleep("s#1", NOON + 5),
        ],
        [i.Break(Failure(code="bad", message="no"))],
    )  # fmt: skip
    run.command(c.FailTask(at=NOON + 4, key="d#1", attempt=1, failure=Failure("x", "y")))
    run.skip(5)

    assert i.DECODER.decode(run.events[-1].outcomes[0]) == [
        i.Break(Failure(code="bad", message="no"), gently=True)
    ]
    assert (run.run.stopping, run.run.grace) == ("FAILED", NOON + 35)
    assert run.abandoned() == ["b#1", "a#1", "c#1"]
    assert run.waiting == ["a#1", "c#1"]
    assert broken(run.flow) == []
    run.complete("a#1", 1)
    run.fail("c#1", "cancelled")
    assert run.undoing == ["a#1"]
    run.complete("a#1")
    assert (run.status, run.code) == ("FAILED", "bad")


def test_a_function_that_fails_waits_no_longer_than_the_grace() -> None:
    run, _ = started(
        [i.Call("a#1", "act", undo="back"), i.Sleep("s#1", NOON + 5)],
        [i.Break(Failure(code="bad", message="no"))],
    )
    run.skip(5)
    run.skip(29)
    assert run.status == "RUNNING"
    run.skip(1)
    assert (run.status, run.code) == ("FAILED", "bad")


def test_where_the_event_does_not_say_so_nothing_was_waited_for() -> None:
    """As histories were written before."""
    run, _ = started(
        [i.Call("a#1", "act", undo="back"), i.Sleep("s#1", NOON + 5)],
        [i.Break(Failure(code="bad", message="no"))],
    )
    run.skip(5)
    fired = run.events[-1]
    fired.outcomes[0] = Raw(i.ENCODER.encode([i.Break(Failure(code="bad", message="no"))]))
    flow = Flow(Run(id="run"), FunctionPlan("work"))
    for event in run.events:
        evolve(flow, event)
    assert [each.type for each in flow.run.pending] == ["run_failed"]


def test_a_function_that_goes_on_as_new_takes_along_what_is_done_all_the_same() -> None:
    run, _ = started(
        [
            i.Call("a#1", "act", undo="back"), i.Call("b#1", "act", undo="back"), i.Call("c#1", "act"),
            i.Sleep("s#1", NOON + 5),
        ],
        [i.Continue(Raw(b"9"))],
    )  # fmt: skip
    run.skip(5)

    assert run.waiting == ["a#1", "b#1"]
    assert run.abandoned() == ["c#1", "a#1", "b#1"]
    assert owed(run.run) == [f.Abandon("a#1", 1), f.Abandon("b#1", 1)]
    run.complete("a#1", 1)
    assert owed(run.run) == [f.Abandon("b#1", 1)]
    assert broken(run.flow) == []
    run.skip(30)
    assert owed(run.run) == [f.OpenNext()]
    assert run.done[-1] == f.OpenNext()
    assert [entry.key for entry in run.run.undo] == ["a#1"]
    assert list(run.run.scopes[""].tasks) == []
    assert broken(run.flow) == []


def test_what_goes_on_as_new_can_be_cancelled_while_it_waits() -> None:
    run, _ = started(
        [i.Call("a#1", "act", undo="back"), i.Sleep("s#1", NOON + 5)], [i.Continue(Raw(b"9"))]
    )
    run.skip(5)
    run.skip(9)
    run.cancel()
    assert run.run.grace == NOON + 5 + 9 + 30
    run.complete("a#1", 1)
    assert run.undoing == ["a#1"]
    run.complete("a#1")
    assert run.status == "CANCELLED"


def test_a_result_that_waits_for_what_is_told_to_stop_can_be_cancelled() -> None:
    run, program = started(
        [i.Call("a#1", "act", undo="back"), i.Sleep("s#1", NOON + 5)],
        [i.Finish(Raw(b"1"))],
        parent="up",
        parent_key="c#1",
    )
    run.skip(5)
    run.cancel()
    assert run.run.stopping == "CANCELLED"
    run.complete("a#1", 1)
    run.complete("a#1")
    assert (run.status, run.code) == ("CANCELLED", "cancelled")
    assert len(program.heard) == 2


def test_a_function_that_has_not_begun_is_cancelled_without_it() -> None:
    run, program = started(delay=60.0)
    run.cancel()

    assert (run.status, run.code) == ("CANCELLED", "cancelled")
    assert program.heard == []


def test_what_it_sends_publishes_and_is_found_by_are_events() -> None:
    run, _ = started(
        [
            i.Note("n"), i.Send("m", "other", "go", Raw(b"1")), i.Publish("p", "a.b", Raw(b"2")), i.Tag({"k": 3}),
            i.Sleep("s", NOON + 9),
        ]
    )  # fmt: skip

    assert run.events[1:] == [
        e.SignalSent(at=NOON, key="m", run="other", name="go", payload=Raw(b"1"), id="run/1/1/m"),
        e.Published(at=NOON, key="p", topic="a.b", payload=Raw(b"2")),
        e.AttributesChanged(at=NOON, values={"k": 3}),
    ]
    assert run.run.attributes == {"k": 3}
    assert (run.flow.plan.publishes, run.flow.plan.on_bus) == (True, True)
    assert list(run.run.outgoing) == ["run/1/1/m"]


def test_what_it_leaves_open_is_not_waited_for() -> None:
    run, _ = started(
        [i.Call("a#1", "act"), i.Await("go#1", "go"), i.Sleep("s#1", NOON + 5)],
        [i.Finish(Raw(b"1"))],
    )
    run.skip(5)

    assert run.status == "COMPLETED"
    assert run.abandoned() == ["a#1"]
    assert run.types() == ["run_started", "timer_fired", "run_completed"]


def test_nor_is_what_can_be_undone_where_nobody_will_undo_it() -> None:
    run, _ = started(
        [i.Call("a#1", "act", undo="back"), i.Sleep("s#1", NOON + 5)], [i.Finish(Raw(b"1"))]
    )
    run.skip(5)

    assert run.result == 1
    assert run.abandoned() == ["a#1"]


def test_a_result_waits_for_what_is_on_its_way() -> None:
    run, _ = started([i.Send("m", "other", "go"), i.Finish(Raw(b"1"))])
    assert run.status == "RUNNING"
    run.command(c.RecordDelivery(at=NOON, id="run/1/1/m"))

    assert run.result == 1


def test_a_function_that_goes_on_as_new_opens_its_next_generation() -> None:
    run, _ = started([i.Continue(Raw(b"9"))])

    assert run.run.next_input == b"9"
    assert owed(run.run) == [f.OpenNext()]
    assert run.done == [f.OpenNext()]
    assert [(r.kind, r.message) for r in reasons(run.run)] == [
        ("generation", "its next generation is to be opened")
    ]
    run.cancel()
    assert run.status == "CANCELLED"


def test_without_its_code_a_run_says_so_and_waits() -> None:
    plan = FunctionPlan("work")
    world = World(plan)
    case = world.start(id="run")

    assert owed(case.run) == [f.Advance()]
    assert case.done == [f.Advance()]
    assert [(r.kind, r.message) for r in reasons(case.run)] == [
        ("code", "the code of workflow `work` is to go on")
    ]
    assert case.command(c.AdvanceRun(at=NOON + 1))[0] == e.Advanced(at=NOON + 1)
    case.flow.host = Scripted([i.Finish(Raw(b"3"))])
    assert [event.type for event in case.command(c.Wake(at=NOON + 2))] == [
        "advanced",
        "run_completed",
    ]
    assert case.result == 3


def test_a_function_that_left_the_memory_is_asked_for() -> None:
    run, program = started([i.Sleep("s#1", NOON + 5)])
    run.flow.program = None
    with pytest.raises(NeedProgram):
        run.skip(5)
    assert len(program.heard) == 1


def test_a_cancel_is_told_once_and_the_function_may_clean_up() -> None:
    run, program = started(
        [i.Call("a#1", "act", undo="back"), i.Call("b#1", "act")],
        [],
        [i.Drop("b#1", gently=True), i.Call("clean#1", "act")],
        [i.Stop()],
    )
    run.complete("a#1", 1)
    run.command(c.CancelRun(at=NOON, reason="enough"))

    heard, output = program.last()
    assert heard == i.Heard("cancel", failure=Failure(code="cancelled", message="enough"))
    assert output is None
    assert (run.run.asked, run.run.stopping) == ("CANCELLED", None)
    run.complete("clean#1", 1)
    assert run.run.stopping == "CANCELLED"
    assert run.run.grace == NOON + 30
    run.fail("b#1", "cancelled")
    assert run.undoing == ["a#1"]
    run.complete("a#1")
    assert run.status == "CANCELLED"
    assert run.failure == Failure(code="cancelled", message="enough")


def test_a_function_that_fails_while_it_cleans_up_fails() -> None:
    run, _ = started([i.Sleep("s#1", NOON + 5)], [i.Break(Failure(code="bad", message="no"))])
    run.cancel()

    assert run.status == "FAILED"
    assert run.failure == Failure(code="bad", message="no")


def test_a_function_that_ends_well_after_it_was_asked_to_stop_has_ended_well() -> None:
    run, _ = started([i.Sleep("s#1", NOON + 5)], [i.Finish(Raw(b"4"))])
    run.cancel()

    assert run.result == 4


def test_the_timeout_of_a_function_is_told_too() -> None:
    run, program = started([i.Sleep("s#1", NOON + 500)], [i.Stop()], timeouts=Timeouts(run=100.0))
    run.skip(100)

    heard, _ = program.last()
    assert heard.failure == Failure(code="timeout", message="the run's own timeout is over")
    assert run.status == "TIMED_OUT"


def test_a_cancel_in_a_pause_is_told_at_once() -> None:
    run, program = started([i.Sleep("s#1", NOON + 500)], [i.Stop()])
    run.pause()
    run.cancel()

    assert program.last()[0].kind == "cancel"
    assert run.status == "CANCELLED"


def test_what_an_operator_skips_is_heard_as_nothing() -> None:
    run, program = started([i.Call("a#1", "act"), i.Await("go#1", "go")])
    run.complete("a#1")
    run.command(c.HandleWait(at=NOON, key="go#1", act="skip"))

    assert program.last() == (i.Heard("skipped", "go#1", b"null"), b"null")
    assert run.run.tasks_done == 2
    assert run.run.waiters == {}
    assert not run.has("go#1")


def test_a_function_that_takes_without_end_is_stopped() -> None:
    class Endless(Scripted):
        def advance(self, told: Told) -> list[i.Intent]:
            self.heard.append(told)
            return [i.Child(f"c#{len(self.heard)}", "other")]

    plan, program = FunctionPlan("work"), Endless()
    world = World(plan)
    case = world.cases["run"] = Case(world, "run", plan)
    case.flow.host = program
    case.command(
        c.StartRun(at=NOON, id="run", definition="work", version=FUNCTION, input=b"7", depth=64)
    )

    assert len(program.heard) == 10_000
    assert case.failure == Failure(
        code="advance-limit",
        message="one event told the function something 10000 times without a wait",
    )
    assert case.status == "FAILED"
