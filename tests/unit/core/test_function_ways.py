"""What a step of a function costs is saved by shorter ways: they are taken, give what the long ones give, and by nobody else (SPEC 2.8)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from penstock.core import functions
from penstock.core.flow import Flow
from penstock.core.functions import STEPS_KEPT, FunctionPlan, PlainStep, Step
from penstock.core.owed import owed
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model import intents as i
from penstock.model.codec import decode_run
from penstock.model.definition import Retry, Timeouts
from penstock.model.failure import Failure
from penstock.model.run import INLINE_BYTES_MAX
from support.world import NOON, Case, World
from unit.core.scripted import Scripted, started

SAID: list[dict[str, Any]] = [
    {"retry": Retry(attempts=2)},
    {"timeouts": Timeouts(task=60.0)},
    {"queue": "q"},
    {"priority": "high"},
    {"undo": "back"},
]


def nodes(flow: Flow) -> dict[str, Any]:
    return flow.plan.scopes[""].nodes


# --- steps that are one object for all runs ------------------------------------------------------------------


def test_a_step_about_which_nothing_is_said_is_one_object_for_all_runs() -> None:
    plan = FunctionPlan("work")
    (first, _), (second, _) = (started([i.Call("a#1", "act")], plan=plan) for _ in range(2))
    put_away = Flow(decode_run(first.digest()), plan)

    assert type(plan.steps["a#1"]) is PlainStep
    for flow in (first.flow, second.flow, put_away):
        assert nodes(flow) == {"a#1": plan.steps["a#1"]}
        assert (flow.plan.queued, flow.plan.publishes, flow.plan.on_bus) == (False, False, False)


def test_as_many_of_them_are_kept_as_a_function_may_keep() -> None:
    plan = FunctionPlan("work")
    run, _ = started([i.Call(f"a#{n}", "act") for n in range(STEPS_KEPT + 2)], plan=plan)

    assert list(plan.steps) == [f"a#{n}" for n in range(STEPS_KEPT)]
    assert len(nodes(run.flow)) == STEPS_KEPT + 2


def test_a_step_of_the_same_name_and_another_activity_is_another() -> None:
    plan = FunctionPlan("work")
    run, _ = started([i.Call("a#1", "act")], plan=plan)
    other, _ = started([i.Call("a#1", "other")], plan=plan)
    again, _ = started([i.Call("a#1", "act")], plan=plan)

    assert nodes(run.flow)["a#1"].config == {"activity": "act"}
    assert nodes(other.flow)["a#1"].config == {"activity": "other"}
    assert nodes(again.flow)["a#1"].config == {"activity": "act"}
    assert nodes(Flow(decode_run(run.digest()), plan))["a#1"].config == {"activity": "act"}


@pytest.mark.parametrize("said", SAID, ids=[next(iter(each)) for each in SAID])
def test_a_step_about_which_one_thing_is_said_is_its_runs_own(said: dict[str, Any]) -> None:
    plan = FunctionPlan("work")
    first, _ = started([i.Call("a#1", "act", **said)], plan=plan)
    assert plan.steps == {}
    started([i.Call("a#1", "act")], plan=plan)
    second, _ = started([i.Call("a#1", "act", **said)], plan=plan)

    for flow in (first.flow, second.flow):
        node = nodes(flow)["a#1"]
        assert type(node) is Step
        assert flow.plan.queued is ("queue" in said or "priority" in said)
        if "undo" in said:
            assert node.compensate.activity == "back"
        else:
            assert {name: getattr(node, name) for name in said} == said


# --- a step that is done -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1])
def test_what_is_done_the_short_way_is_as_by_the_long_one(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: list[list[i.Intent]] = [[i.Call("a#1", "act"), i.Call("b#1", "act")], [], [i.Finish()]]
    (short, told), (long, told_long) = started(*script), started(*script)
    for key in ("a#1", "b#1"):
        with monkeypatch.context() as patched:
            patched.setattr(functions, "done", lambda *_: False)
            long.complete(key, "y" * (size - 2))
        short.complete(key, "y" * (size - 2))
        assert short.digest() == long.digest()

    assert told.heard == told_long.heard
    assert [each.kind for each in told.heard[1].heard] == ["done"]
    assert (told.heard[1].heard[0].output is None) is (size > INLINE_BYTES_MAX)
    assert short.stored == long.stored
    assert short.done == long.done


def test_a_step_as_most_are_is_done_the_short_way_and_no_other_is() -> None:
    run, _ = started(
        [
            i.Call("plain", "act"), i.Call("undone", "act", undo="back"), i.Call("dropped", "act"),
            i.Await("waits", "go"), i.Sleep("s", NOON + 5),
        ],
        [i.Drop("dropped", gently=True)],
    )  # fmt: skip
    run.skip(5)
    before = run.digest()

    def done(key: str) -> bool:
        return functions.done(run.flow, e.TaskCompleted(at=NOON + 5, key=key, attempt=1))

    assert [key for key in ("undone", "dropped", "waits") if done(key)] == []
    assert run.digest() == before
    assert done("plain")
    assert not run.has("plain")


def test_what_is_done_while_the_run_stops_stays_where_it_was() -> None:
    run, program = started([i.Call("a#1", "act"), i.Call("b#1", "act")], [i.Stop()])
    run.cancel()
    assert run.run.stopping == "CANCELLED"
    run.complete("a#1", 1)

    assert run.statuses() == {"a#1": "COMPLETED", "b#1": "SCHEDULED"}
    assert len(program.heard) == 2
    run.fail("b#1", "cancelled")
    assert run.status == "CANCELLED"


@pytest.mark.parametrize("end", [i.Finish(Raw(b"4")), i.Continue(Raw(b"4"))], ids=["finish", "continue"])  # fmt: skip
def test_what_was_waited_for_at_the_end_is_the_end_when_it_is_done(end: i.Intent) -> None:
    run, _ = started(
        [i.Call("a#1", "act", undo="back"), i.Call("b#1", "act", undo="back"), i.Sleep("s", NOON + 5)],
        [end],
        parent="up",
        parent_key="c#1",
    )  # fmt: skip
    run.skip(5)
    run.complete("a#1", 1)
    assert (run.status, owed(run.run)) == ("RUNNING", [f.Abandon("b#1", 1)])
    run.complete("b#1", 2)

    if isinstance(end, i.Continue):
        assert run.done[-1] == f.OpenNext()
    else:
        assert run.result == 4
    assert [entry.key for entry in run.run.undo] == ["a#1", "b#1"]


# --- what it is told, and what it wants ----------------------------------------------------------------------


def without_code() -> Case:
    return World(FunctionPlan("work")).start(id="run", input=7)


def test_all_that_came_while_its_code_was_away_is_told_at_once() -> None:
    run = without_code()
    run.cancel()
    assert [each.kind for each in run.run.heard] == ["start", "cancel"]
    run.flow.host = program = Scripted([i.Stop()])
    run.command(c.Wake(at=NOON + 2))

    (told,) = program.heard
    assert [each.kind for each in told.heard] == ["start", "cancel"]
    assert (told.at, told.seq, told.outputs) == (NOON + 2, 3, [b"7", None])
    assert run.status == "CANCELLED"


def test_a_run_that_has_ended_is_told_nothing_more() -> None:
    run = without_code()
    run.terminate()

    assert run.status == "TERMINATED"
    assert (run.run.heard, owed(run.run)) == ([], [])
    assert run.done == [f.Advance()]


def test_what_no_event_can_hold_fails_the_run_and_stands_in_the_event() -> None:
    run, _ = started([i.Tag({"k": {1: object()}})])

    message = (
        "what the function wants cannot be kept: Encoding objects of type object is unsupported"
    )
    failure = Failure(code="payload-invalid", message=message, type="TypeError")
    assert (run.status, run.failure) == ("FAILED", failure)
    assert i.DECODER.decode(run.events[0].outcomes[0]) == [i.Break(failure)]
    assert run.replayed().run == run.run


def test_a_time_that_is_dropped_is_nothing_that_is_due() -> None:
    run, _ = started(
        [i.Call("a#1", "act"), i.Call("b#1", "act"), i.Sleep("s", NOON + 5)], [i.Drop("s")]
    )
    assert run.run.dues == [(NOON + 5, "s")]
    run.complete("a#1")

    assert run.waiting == ["b#1"]
    assert run.run.dues == []


def test_that_something_is_still_to_end_stands_with_the_end_and_nowhere_else() -> None:
    run, _ = started(
        [i.Call("a#1", "act", undo="back"), i.Sleep("s", NOON + 5)],
        [i.Await("go#1", "go")],
        [i.Continue(Raw(b"9"))],
    )
    run.signal("go")
    run.skip(5)

    assert [i.DECODER.decode(each) for each in run.events[-1].outcomes] == [
        [i.Await("go#1", "go")],
        [i.Continue(Raw(b"9"), gently=True)],
    ]
    assert run.replayed().run == run.run
