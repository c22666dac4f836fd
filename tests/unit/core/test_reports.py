"""Reports of attempts: whose they are, and what one that was merely cut off counts."""

from __future__ import annotations

import pytest

from penstock.core.invariants import broken
from penstock.core.owed import owed
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model.codec import encode_run
from support.world import Case, World

ATTEMPTED = """
tasks:
  a: {type: activity, config: {activity: f}, timeout: {task: 1s}, compensate: {activity: undo, when: attempted}}
"""


def test_a_late_report_of_the_task_is_not_taken_for_its_undo() -> None:
    case = World(ATTEMPTED).start()
    case.skip(1)
    assert case.undoing == ["a"]
    for report in (case.complete, case.fail, case.lose):
        with pytest.raises(Rejected, match=r"`a`") as refused:
            report("a", undo=False)
        assert refused.value.code == "stale-attempt"
    case.complete("a")
    assert case.types()[-2:] == ["undo_completed", "run_failed"]


def test_a_report_of_an_undo_is_not_taken_for_the_task() -> None:
    case = World(ATTEMPTED).start()
    for report in (case.complete, case.fail, case.lose):
        with pytest.raises(Rejected) as refused:
            report("a", undo=True)
        assert refused.value.code == "stale-attempt"


def test_what_a_stopping_process_cut_off_is_neither_lost_nor_poison() -> None:
    case = World("tasks: {a: {do: f}}").start()
    for number in range(1, 11):
        case.begin("a")
        case.lose("a", cut=True)
        state = case.task("a")
        assert (state.attempt, state.lost, state.poison) == (number + 1, 0, 0)
    case.complete("a", 1)
    assert case.result == 1


def test_cuts_do_not_forgive_losses() -> None:
    case = World("tasks: {a: {do: f}}").start()
    case.lose("a")
    case.lose("a", cut=True)
    case.lose("a")
    assert case.task("a").lost == 2


def test_an_undo_that_was_cut_off_is_not_charged() -> None:
    case = World(ATTEMPTED).start()
    case.skip(1)
    for _ in range(10):
        case.lose("a", cut=True)
    undoing = case.run.undoing["a"]
    assert (undoing.attempt, undoing.lost) == (11, 0)
    case.fail("a")
    assert case.of(e.UndoRetried)


def test_a_retry_that_was_cut_off_had_begun_though_the_clock_was_set_back_meanwhile() -> None:
    """It was taken for one that had not begun, and its number was given to a second attempt: found by seed 123."""
    case = World("tasks: {a: {do: f, retry: {attempts: 3, first: 10s, jitter: 0}}}").start()
    case.fail("a")
    assert case.lose("a") == []  # it has not begun
    case.skip(10)
    case.world.now -= 30
    case.lose("a", cut=True)
    assert case.task("a").attempt == 3
    assert case.types()[-1] == "task_lost"


def test_a_pause_shifts_a_retry_that_has_not_begun_and_no_other() -> None:
    world = World("tasks: {a: {do: f, retry: {attempts: 3, first: 10s, jitter: 0}}}")
    case = world.start()
    case.fail("a")
    due = case.task("a").due
    assert due is not None
    world.skip(4)
    case.pause()
    world.skip(20)
    with pytest.raises(Rejected) as refused:
        case.begin("a")
    assert refused.value.code == "run-paused"
    case.resume()
    assert case.task("a").due == due + 20
    world.skip(8)  # it is under way
    case.pause()
    world.skip(20)
    case.resume()
    assert case.task("a").due == due + 20


def test_a_run_that_stops_is_neither_paused_nor_cancelled() -> None:
    case = World(ATTEMPTED).start()
    case.skip(1)
    for ask in (case.pause, case.cancel):
        with pytest.raises(
            Rejected, match="it undoes what it did, and then ends FAILED"
        ) as refused:
            ask()
        assert refused.value.code == "run-stopping"


def test_a_cancel_is_repeated_in_vain_and_a_pause_comes_too_late() -> None:
    case = World("tasks: {a: {do: f}}").start()
    case.cancel()
    assert case.cancel() == []
    with pytest.raises(
        Rejected, match="waits for what is still under way, and then ends CANCELLED"
    ):
        case.pause()


CHILD = "id: child\ntasks: {a: {do: f}}"
SUB = """type: subworkflow, config: {definition: child},
    compensate: {activity: undo, inputs: {amount: {from: sub, path: $.v}, other: {from: input}%s}}"""


def _given_up(body: str, key: str) -> Case:
    """Its child is done before it hears that the parent has failed."""
    world = World(f"id: parent\ntasks:\n  bad: {{do: g}}\n{body}", CHILD)
    case = world.start("parent", 3)
    child = world.start_child(case, key)
    case.fail("bad")
    assert case.run.leaving == {key: child.id}
    child.complete("a", {"v": 6})
    world.close_child(child)
    return case


def test_a_child_that_was_done_after_all_is_undone_with_what_was_asked_for() -> None:
    case = _given_up("  sub: {" + SUB % "" + "}", "sub")
    arguments = bytes(case.run.undoing["sub"].entry.arguments)
    assert arguments == b'{"amount":6,"other":3}'
    assert case.task("sub").output is None
    case.complete("sub")
    assert (case.status, case.code) == ("FAILED", "error")
    assert case.digest() == encode_run(case.replayed().run)


MAP = "  m: {type: map, config: {items: '[7]', body: {tasks: {sub: {%s}}}}}"


def test_so_is_one_whose_scope_is_gone() -> None:
    case = _given_up(MAP % (SUB % ""), "m[0]/sub")
    arguments = bytes(case.run.undoing["m[0]/sub"].entry.arguments)
    assert arguments == b'{"amount":6,"other":3}'
    assert "m[0]" not in case.run.scopes


def test_and_it_sees_what_was_around_its_scope() -> None:
    world = World(
        "id: parent\ntasks:\n  o: {do: g}\n  bad: {do: g, after: o}\n  m: {after: o, type: map, config: {items: '[7]', body: {tasks: {sub: {"
        + SUB % ", outer: '${tasks.o.output}'"
        + "}}}}}",
        CHILD,
    )
    case = world.start("parent", 3)
    case.complete("o", 9)
    child = world.start_child(case, "m[0]/sub")
    case.fail("bad")
    child.complete("a", {"v": 6})
    world.close_child(child)

    arguments = bytes(case.run.undoing["m[0]/sub"].entry.arguments)
    assert arguments == b'{"amount":6,"other":3,"outer":9}'


def test_what_cannot_be_asked_any_more_is_a_failure_and_not_a_guess() -> None:
    case = _given_up(MAP % (SUB % ", item: {from: item}"), "m[0]/sub")
    assert not case.run.undoing
    assert case.status == "FAILED"
    assert [fault.code for event in case.events for fault in event.faults.values()] == [
        "expression-failed"
    ]


def test_a_terminated_run_owes_its_children_the_news_for_ever() -> None:
    world = World(
        "id: parent\ntasks: {sub: {type: subworkflow, config: {definition: child}}}", CHILD
    )
    case = world.start("parent")
    child = world.start_child(case, "sub")
    case.terminate()
    assert owed(case.run) == [f.CancelChild("sub", child.id)]
    assert owed(case.replayed().run) == owed(case.run)
    assert broken(case.flow) == []
    with pytest.raises(Rejected, match="has ended TERMINATED"):
        case.command(c.CloseChild(at=world.now, key="sub", status="CANCELLED"))


@pytest.mark.parametrize("gently", [True, False])
def test_a_child_whose_start_is_not_recorded_is_waited_for(gently: bool) -> None:
    source = (
        "id: parent\ntasks: {bad: {do: g}, sub: {type: subworkflow, config: {definition: child}}}"
    )
    world = World(source, CHILD)
    case = world.start("parent")
    if gently:
        case.cancel()
    case.fail("bad")
    assert case.run.leaving == {"sub": "run/sub"}
    assert not case.run.closed
    assert f.CancelChild("sub", "run/sub") in owed(case.run)
    with pytest.raises(Rejected):  # whoever began it meanwhile learns that it is not wanted
        case.command(c.RecordChild(at=world.now, key="sub", run="run/sub", version="1"))
    case.command(c.CloseChild(at=world.now, key="sub", status="CANCELLED"))
    assert case.status == ("CANCELLED" if gently else "FAILED")


def test_a_detached_child_is_not_waited_for() -> None:
    source = "id: parent\ntasks: {bad: {do: g}, sub: {type: subworkflow, config: {definition: child, detached: true}}}"
    case = World(source, CHILD).start("parent")
    case.fail("bad")
    assert case.status == "FAILED"
