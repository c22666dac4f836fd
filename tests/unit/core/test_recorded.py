"""What a report leaves in the history, field by field: who, when, what it said, what it had reached (SPEC 4.3, 4.10)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.definition import Retry
from penstock.model.failure import Failure
from penstock.model.job import LogLine
from support.world import NOON, Case, given

LOGS = (LogLine(NOON, "INFO", "half way"),)
ERROR = Failure(code="error", message="no")
ONE = "tasks:\n  a: {do: x}\n"
RETRIED = "tasks:\n  a: {do: x, retry: {attempts: 3, first: 4s, factor: 2, jitter: 0}}\n"
ONCE = "tasks:\n  a: {do: x, once: true}\n"
UNDONE = """
tasks:
  a: {do: x, compensate: {activity: back, retry: {attempts: 2, first: 4s, jitter: 0}}}
  b: {do: x, after: a}
"""


def bare(event: e.Event) -> dict[str, Any]:
    """All that it says beyond its defaults."""
    return {
        name: getattr(event, name)
        for name, value in zip(event.__struct_fields__, msgspec.structs.astuple(event), strict=True)
        if name not in ("outcomes", "faults") and value not in (None, (), "", False, {}, e.NULL)
    }


def report(run: Case, kind: type[Any], key: str = "a", **more: Any) -> dict[str, Any]:
    more.setdefault("undo", key in run.run.undoing)
    (event, *_) = run.command(kind(at=run.world.now, key=key, attempt=run.attempt(key), **more))
    return {"type": event.type, **bare(event)}


def undoing() -> Case:
    run = given(UNDONE)
    run.complete("a")
    run.cancel()
    run.fail("b", "cancelled")
    assert run.undoing == ["a"]
    return run


def test_a_completion_keeps_output_begin_and_logs() -> None:
    told = report(given(ONE), c.CompleteTask, output=b"1", began=990.0, logs=LOGS)

    assert told == {
        "type": "task_completed", "at": NOON, "key": "a", "attempt": 1, "output": Raw(b"1"), "began": 990.0, "logs": LOGS,
    }  # fmt: skip


def test_a_completion_that_does_not_fit_keeps_its_logs() -> None:
    run = given("tasks:\n  a: {do: x, outputSchema: {type: string}}")

    told = report(run, c.CompleteTask, output=b"1", logs=LOGS)

    assert (told["type"], told["logs"]) == ("task_failed", LOGS)
    assert told["failure"].code == "output-invalid"
    assert told["failure"].message.startswith("the output of `a` does not fit its outputSchema: ")


def test_a_failure_for_good_keeps_its_logs() -> None:
    assert report(given(ONE), c.FailTask, failure=ERROR, logs=LOGS) == {
        "type": "task_failed", "at": NOON, "key": "a", "attempt": 1, "failure": ERROR, "logs": LOGS,
    }  # fmt: skip


def test_a_retry_keeps_failure_due_progress_and_logs() -> None:
    told = report(given(RETRIED), c.FailTask, failure=ERROR, progress=b"7", logs=LOGS)

    assert told == {
        "type": "task_retried", "at": NOON, "key": "a", "attempt": 1, "failure": ERROR, "due": NOON + 4,
        "progress": Raw(b"7"), "logs": LOGS,
    }  # fmt: skip


def test_a_death_keeps_progress_and_logs_and_counts() -> None:
    told = report(given(ONE), c.FailTask, failure=ERROR, died=True, progress=b"7", logs=LOGS)

    assert told == {
        "type": "task_lost", "at": NOON, "key": "a", "attempt": 1, "counted": True, "progress": Raw(b"7"), "logs": LOGS,
    }  # fmt: skip


def test_the_third_death_is_poison_and_tells_the_last_error() -> None:
    run = given(ONE)
    for _ in range(2):
        report(run, c.FailTask, failure=ERROR, died=True)

    told = report(run, c.FailTask, failure=ERROR, died=True, logs=LOGS)

    assert told == {
        "type": "task_failed", "at": NOON, "key": "a", "attempt": 3, "logs": LOGS,
        "failure": Failure(
            code="poison", message="`a` was lost 3 times in a row while it ran; it is not tried again", cause=ERROR
        ),
    }  # fmt: skip


@pytest.mark.parametrize("source", [ONE, ONCE])
def test_a_death_of_what_runs_once_is_an_unknown_outcome(source: str) -> None:
    run = given(source)

    told = report(run, c.FailTask, failure=ERROR, died=True, once=source == ONE, logs=LOGS)

    assert told == {
        "type": "task_failed", "at": NOON, "key": "a", "attempt": 1, "logs": LOGS,
        "failure": Failure(
            code="outcome-unknown", cause=ERROR,
            message="`a` runs at most once and was lost while it ran; whether it took effect is not known",
        ),
    }  # fmt: skip


def test_a_failure_while_the_run_stops_keeps_its_logs() -> None:
    run = given(ONE)
    run.cancel()
    told = report(run, c.FailTask, failure=Failure(code="cancelled", message="stopped"), logs=LOGS)

    assert (told["type"], told["cancelled"], told["logs"]) == ("task_failed", True, LOGS)


def test_a_loss_keeps_progress_and_is_counted_only_when_it_had_begun_for_sure() -> None:
    run = given(ONE)
    assert report(run, c.LoseTask, progress=b"7") == {
        "type": "task_lost", "at": NOON, "key": "a", "attempt": 1, "progress": Raw(b"7"),
    }  # fmt: skip
    assert report(run, c.LoseTask, cut=True, progress=b"8") == {
        "type": "task_lost", "at": NOON, "key": "a", "attempt": 2, "cut": True, "progress": Raw(b"8"),
    }  # fmt: skip
    run.lose("a")
    run.begin("a")
    assert report(run, c.LoseTask, progress=b"9") == {
        "type": "task_lost", "at": NOON, "key": "a", "attempt": 4, "counted": True, "progress": Raw(b"9"),
    }  # fmt: skip


def test_a_start_names_its_worker_and_when_it_began() -> None:
    assert report(given(ONE), c.StartTask, worker="w", began=990.0) == {
        "type": "task_started", "at": NOON, "key": "a", "attempt": 1, "worker": "w", "began": 990.0,
    }  # fmt: skip


def test_in_a_pause_only_what_had_begun_before_is_begun() -> None:
    run = given(ONE)
    run.pause()

    with pytest.raises(Rejected, match="run run is paused: `a` is not begun") as caught:
        run.begin("a")
    assert caught.value.code == "run-paused"
    assert report(run, c.StartTask, worker="w", began=990.0)["type"] == "task_started"


def test_a_deferral_keeps_what_it_was_told() -> None:
    retry = Retry(attempts=2)
    told = _defer(given(ONE), due=NOON + 9, retry=retry, began=990.0, logs=LOGS)

    assert told == {
        "type": "task_deferred", "at": NOON, "key": "a", "attempt": 1, "due": NOON + 9, "retry": retry,
        "began": 990.0, "logs": LOGS,
    }  # fmt: skip


def test_a_deferral_of_what_is_not_waited_for_ends_it() -> None:
    run = given(ONE)
    run.cancel()

    told = _defer(run)

    assert (told["type"], told["cancelled"]) == ("task_failed", True)
    assert told["failure"] == Failure(code="cancelled", message="`a` is not waited for")


def _defer(run: Case, **more: Any) -> dict[str, Any]:
    (event, *_) = run.command(c.DeferTask(at=run.world.now, key="a", attempt=1, **more))
    return {"type": event.type, **bare(event)}


def test_an_undo_begins_ends_and_fails_with_all_that_is_told() -> None:
    run = undoing()
    assert report(run, c.StartTask, worker="w") == {
        "type": "undo_started", "at": NOON, "key": "a", "attempt": 1, "worker": "w",
    }  # fmt: skip
    assert run.begin("a") == []
    assert report(run, c.FailTask, failure=ERROR, logs=LOGS) == {
        "type": "undo_retried", "at": NOON, "key": "a", "attempt": 1, "failure": ERROR, "due": NOON + 4, "logs": LOGS,
    }  # fmt: skip
    assert report(run, c.FailTask, failure=ERROR, logs=LOGS) == {
        "type": "undo_failed", "at": NOON, "key": "a", "attempt": 2, "failure": ERROR, "logs": LOGS,
    }  # fmt: skip

    assert report(undoing(), c.CompleteTask, output=b"null", logs=LOGS) == {
        "type": "undo_completed", "at": NOON, "key": "a", "attempt": 1, "logs": LOGS,
    }  # fmt: skip


def test_a_final_failure_of_an_undo_is_not_tried_again() -> None:
    assert report(undoing(), c.FailTask, failure=ERROR, final=True)["type"] == "undo_failed"


def test_an_undo_that_is_lost_three_times_while_it_ran_is_poison() -> None:
    run = undoing()
    assert report(run, c.LoseTask)["type"] == "undo_lost"
    assert report(run, c.LoseTask, cut=True) == {
        "type": "undo_lost", "at": NOON, "key": "a", "attempt": 2, "cut": True,
    }  # fmt: skip
    assert report(run, c.LoseTask)["attempt"] == 3
    assert run.lose("a") == []  # it had not begun
    for _ in range(2):
        run.begin("a")
        assert report(run, c.LoseTask)["counted"]
    run.begin("a")

    told = report(run, c.LoseTask)

    assert told["type"] == "undo_failed"
    assert told["failure"] == Failure(
        code="poison", message="the undo of `a` was lost 3 times in a row while it ran"
    )


def test_an_undo_that_is_due_later_was_not_lost() -> None:
    run = undoing()
    run.fail("a")

    assert run.lose("a") == []
    run.skip(4)
    assert run.lose("a")[0].type == "undo_lost"


@pytest.mark.parametrize(
    ("attempt", "generation", "message"),
    [
        (2, 0, "undo of `a` is at attempt 1, not 2"),
        (1, 3, "run run is at generation 1: an attempt of `a` of generation 3 came too late"),
    ],
)
def test_a_stale_report_of_an_undo_is_refused(attempt: int, generation: int, message: str) -> None:
    with pytest.raises(Rejected) as caught:
        undoing().command(
            c.CompleteTask(
                at=NOON, key="a", attempt=attempt, output=b"1", undo=True, generation=generation
            )
        )
    assert (caught.value.code, caught.value.message) == ("stale-attempt", message)


@pytest.mark.parametrize(
    ("key", "attempt", "generation", "message"),
    [
        ("z", 1, 0, "no open task `z` in run run"),
        ("a", 2, 0, "`a` is SCHEDULED, attempt 1; attempt 2 came too late"),
        ("a", 1, 3, "run run is at generation 1: an attempt of `a` of generation 3 came too late"),
    ],
)
def test_a_stale_report_is_refused(key: str, attempt: int, generation: int, message: str) -> None:
    with pytest.raises(Rejected) as caught:
        given(ONE).command(
            c.CompleteTask(at=NOON, key=key, attempt=attempt, output=b"1", generation=generation)
        )
    assert (caught.value.code, caught.value.message) == ("stale-attempt", message)


def test_a_report_of_an_undo_of_what_is_not_undone_is_refused() -> None:
    with pytest.raises(Rejected, match="`b` is not being undone in run run"):
        undoing().command(c.CompleteTask(at=NOON, key="b", attempt=1, output=b"1", undo=True))


def test_progress_is_recorded_as_it_came() -> None:
    (event,) = given(ONE).command(c.RecordProgress(at=NOON, key="a", attempt=1, progress=b"7"))

    assert event == e.TaskProgressed(at=NOON, key="a", attempt=1, progress=Raw(b"7"))
