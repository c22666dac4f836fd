"""Attempts: retries, losses, poison, once, timeouts (SPEC 4.3)."""

from __future__ import annotations

import pytest

from penstock.core.attempts import careful
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model.definition import Retry
from penstock.model.failure import Failure
from support.world import given

RETRY = "tasks:\n  a: {do: x, retry: {attempts: 3, first: 10s, factor: 3, maximum: 20s, jitter: 0}}"


def test_a_failed_attempt_is_tried_again_after_the_policys_delay() -> None:
    run = given(RETRY)

    (event,) = run.fail("a", "boom")

    assert isinstance(event, e.TaskRetried)
    assert event.due == run.world.now + 10
    assert run.task("a").status == "RETRYING"
    assert run.task("a").attempt == 2
    assert run.done[-1] == f.Execute("a", 2, event.due)


def test_delays_grow_by_the_factor_up_to_the_maximum() -> None:
    run = given(RETRY)

    run.fail("a")
    (event,) = run.fail("a")

    assert event.due == run.world.now + 20  # type: ignore[union-attr]


def test_a_task_whose_attempts_are_used_up_fails() -> None:
    run = given(RETRY)

    for _ in range(3):
        run.fail("a", "boom")

    assert run.status == "FAILED"
    assert run.code == "boom"
    assert [type(x) for x in run.events[1:]] == [
        e.TaskRetried,
        e.TaskRetried,
        e.TaskFailed,
        e.RunFailed,
    ]


def test_jitter_depends_on_run_key_and_attempt_alone() -> None:
    text = "tasks:\n  a: {do: x, retry: {attempts: 9, first: 10s, jitter: 0.5}}\n  b: {do: x, retry: {attempts: 9, first: 10s, jitter: 0.5}}"
    first, second, other = given(text), given(text), given(text, id="other")

    assert first.fail("a") == second.fail("a")
    assert first.fail("b") != second.fail("a")
    assert other.fail("a")[0].due != first.events[1].due  # type: ignore[union-attr]
    assert 5 <= first.events[1].due - first.world.now <= 15  # type: ignore[union-attr]


@pytest.mark.parametrize("by", ["code", "type"])
def test_errors_not_to_retry_fail_at_once(by: str) -> None:
    run = given("tasks:\n  a: {do: x, retry: {attempts: 3, never: [bad]}}")

    run.fail("a", **({"code": "bad"} if by == "code" else {"type": "bad"}))

    assert run.status == "FAILED"


def test_a_final_failure_is_not_retried() -> None:
    run = given(RETRY)

    run.fail("a", final=True)

    assert run.status == "FAILED"


def test_the_activitys_own_policy_is_used_where_the_task_has_none() -> None:
    run = given("tasks:\n  a: {do: x}")

    (event,) = run.fail("a", retry=Retry(attempts=2, first=4.0, jitter=0.0))

    assert event.due == run.world.now + 4  # type: ignore[union-attr]


def test_a_result_of_an_old_attempt_is_refused_and_changes_nothing() -> None:
    run = given(RETRY)
    run.fail("a")
    before = run.digest()

    for again in (run.complete, run.fail):
        with pytest.raises(Rejected, match="came too late"):
            again("a", attempt=1)

    assert run.digest() == before


def test_a_second_result_of_the_same_attempt_is_refused() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x}")
    run.complete("a", 1)

    with pytest.raises(Rejected) as caught:
        run.complete("a", 2)

    assert caught.value.code == "stale-attempt"


def test_a_result_for_a_task_that_never_was_is_refused() -> None:
    run = given("tasks:\n  a: {do: x}")

    with pytest.raises(Rejected) as caught:
        run.complete("no[3]/such", attempt=1)

    assert caught.value.code == "stale-attempt"


def test_a_lost_attempt_is_followed_by_another_that_is_not_charged() -> None:
    run = given("tasks:\n  a: {do: x, retry: {attempts: 2, jitter: 0}}")

    run.lose("a")
    run.lose("a")
    assert run.task("a").attempt == 3
    run.fail("a")
    assert run.task("a").status == "RETRYING"
    run.fail("a", "boom")

    assert run.code == "boom"


def test_from_the_second_loss_an_attempt_is_begun_only_after_its_start_is_stored() -> None:
    run = given("tasks:\n  a: {do: x}")
    node = run.plan.root.nodes["a"]

    run.lose("a")
    assert not careful(run.run, "a", node)
    run.lose("a")
    assert careful(run.run, "a", node)

    assert run.lose("a") == []  # it had not begun


def test_three_counted_losses_in_a_row_are_poison() -> None:
    run = given("tasks:\n  a: {do: x}")
    run.lose("a")
    run.lose("a")

    for _ in range(3):
        run.begin("a")
        run.lose("a")

    assert run.status == "FAILED"
    assert run.code == "poison"
    assert [x.counted for x in run.of(e.TaskLost)] == [False, False, True, True]


def test_poison_tells_the_error_that_came_before_the_losses() -> None:
    run = given("tasks:\n  a: {do: x, retry: {attempts: 9}}")
    run.fail("a", "boom", "no luck")
    for _ in range(5):
        run.begin("a")
        run.lose("a")

    assert run.failure is not None
    assert run.code == "poison"
    assert run.failure.cause == Failure(code="boom", message="no luck")


def test_the_death_of_its_own_child_process_counts_at_once() -> None:
    run = given("tasks:\n  a: {do: x}")

    run.fail("a", "died", died=True)
    run.fail("a", "died", died=True)
    assert run.status == "RUNNING"
    run.fail("a", "died", died=True)

    assert run.code == "poison"


def test_an_ordinary_failure_between_losses_begins_the_count_anew() -> None:
    run = given("tasks:\n  a: {do: x, retry: {attempts: 5, first: 0s}}")
    run.fail("a", died=True)
    run.fail("a", died=True)
    run.fail("a", "other")
    run.fail("a", died=True)
    run.fail("a", died=True)

    assert run.status == "RUNNING"


def test_a_retry_that_was_not_due_was_not_lost() -> None:
    run = given(RETRY)
    run.fail("a")

    assert run.lose("a") == []
    run.world.now += 10
    assert isinstance(run.lose("a")[0], e.TaskLost)


ONCE = "tasks:\n  a: {do: x, once: true, retry: 3}"


def test_a_once_activity_that_was_not_recorded_as_begun_was_not_lost() -> None:
    run = given(ONCE)

    assert careful(run.run, "a", run.plan.root.nodes["a"])
    assert run.lose("a") == []


def test_a_once_activity_that_is_lost_fails_as_outcome_unknown() -> None:
    run = given(ONCE)
    run.begin("a")
    run.lose("a")

    assert run.code == "outcome-unknown"


def test_a_once_activity_whose_process_dies_fails_as_outcome_unknown() -> None:
    run = given(ONCE)
    run.begin("a")
    run.fail("a", "died", died=True)

    assert run.code == "outcome-unknown"


def test_a_start_is_recorded_once_per_attempt() -> None:
    run = given("tasks:\n  a: {do: x, retry: {attempts: 2, first: 0s}}")

    assert len(run.begin("a")) == 1
    assert run.task("a").status == "RUNNING"
    assert run.begin("a") == []
    run.fail("a")
    assert len(run.begin("a")) == 1


def test_progress_is_kept_for_the_next_attempt() -> None:
    run = given(RETRY)
    run.command(c.RecordProgress(at=run.world.now, key="a", attempt=1, progress=b"5"))
    assert run.task("a").progress == b"5"
    run.fail("a", progress=b"7")

    assert run.task("a").progress == b"7"
    run.begin("a")
    run.lose("a", progress=b"8")
    assert run.task("a").progress == b"8"
    run.begin("a")
    run.lose("a")
    assert run.task("a").progress == b"8"


def test_a_result_says_when_its_attempt_began_if_nothing_else_has() -> None:
    run = given("tasks: {a: {do: x}, b: {do: x, after: a}}")
    run.command(
        c.CompleteTask(at=run.world.now, key="a", attempt=1, output=b"1", began=run.world.now - 3)
    )

    assert run.task("a").started_at == run.world.now - 3


def test_a_task_timeout_spans_all_attempts_and_tells_the_one_in_flight() -> None:
    run = given(
        "tasks:\n  a: {do: x, timeout: {task: 60s}, retry: {attempts: 5, first: 50s, jitter: 0}}"
    )
    run.fail("a")
    run.skip(55)
    assert run.status == "RUNNING"
    run.skip(5)

    assert run.code == "timeout"
    assert run.failure is not None
    assert "task timeout of 60 s" in run.failure.message
    assert f.Abandon("a", 2) in run.done


@pytest.mark.parametrize(
    "task",
    [
        "{type: map, items: '[1, 2]', body: {do: x}, timeout: {task: 60s}}",
        "{type: loop, while: 'true', body: {do: x}, timeout: {task: 60s}}",
        "{type: mutex, name: m, body: {do: x}, timeout: {task: 60s}}",
        "{type: form, schema: {}, timeout: {task: 60s}}",
        "{type: signal, timeout: {task: 60s}}",
        "{type: timer, delay: 2h, timeout: {task: 60s}}",
    ],
)
def test_every_type_of_task_keeps_its_task_timeout(task: str) -> None:
    run = given(f"tasks:\n  a: {task}\n  h: {{do: y, after: {{from: a, on: error}}}}")
    run.skip(60)

    assert run.task("a").failure.code == "timeout"  # type: ignore[union-attr]
    assert run.waiting == ["h"]
    assert list(run.run.scopes) == [""]


def test_the_definitions_task_timeout_holds_for_work_that_has_none() -> None:
    run = given("timeouts: {task: 60s}\ntasks:\n  a: {do: x}\n  s: {type: signal}")
    run.skip(60)

    assert run.code == "timeout"
    assert run.failure is not None
    assert run.failure.key == "a"


def test_an_output_that_does_not_fit_its_schema_fails_the_task() -> None:
    run = given("tasks:\n  a: {do: x, outputSchema: {type: integer}}")
    run.complete("a", "text")

    assert run.code == "output-invalid"


def test_a_run_with_a_failed_attempt_in_the_same_batch_as_its_timeout_is_decided_in_order() -> None:
    run = given(
        "tasks:\n  a: {do: x, timeout: {task: 60s}}\n  h: {do: y, after: {from: a, on: error}}"
    )
    run.world.now += 100

    run.command(
        c.Wake(at=run.world.now),
        c.CompleteTask(at=run.world.now, key="a", attempt=1, output=b"1"),
    )

    assert run.refused is not None
    assert run.refused.code == "stale-attempt"
    assert run.open == ["h"]


def test_a_failure_given_keeps_type_details_and_cause() -> None:
    run = given("tasks:\n  a: {do: x}")
    cause = Failure(code="error", message="inner", type="KeyError")
    run.command(
        c.FailTask(
            at=1.0,
            key="a",
            attempt=1,
            failure=Failure(code="error", message="outer", details={"n": 1}, cause=cause),
        )
    )

    assert run.failure == Failure(
        code="error", message="outer", key="a", details={"n": 1}, cause=cause
    )
