"""Reports of attempts: whose they are, and what one that was merely cut off counts."""

from __future__ import annotations

import pytest

from penstock.errors import Rejected
from penstock.model import events as e
from support.world import World

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
