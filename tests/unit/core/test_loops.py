"""`loop` tasks: passes one after another (SPEC 2.2, 2.3)."""

from __future__ import annotations

from support.world import given


def test_while_is_asked_before_each_pass() -> None:
    run = given("tasks:\n  l: {type: loop, while: 'iteration < 2', body: {do: x}}")

    run.complete("l[1]/x", 1)
    run.complete("l[2]/x", 2)

    assert run.result == 2


def test_zero_passes_give_null() -> None:
    run = given("tasks:\n  l: {type: loop, while: 'false', body: {do: x}}")

    assert run.status == "COMPLETED"
    assert run.result is None


def test_until_is_asked_after_each_pass_and_sees_its_tasks() -> None:
    run = given("tasks:\n  l: {type: loop, until: 'tasks.x.output > 1', body: {do: x}}")

    run.complete("l[1]/x", 1)
    assert run.open == ["l[2]/x"]
    run.complete("l[2]/x", 2)

    assert run.result == 2


def test_a_loop_that_still_wants_a_pass_after_max_fails() -> None:
    run = given("tasks:\n  l: {type: loop, while: 'true', max: 2, body: {do: x}}")

    run.complete("l[1]/x")
    run.complete("l[2]/x")

    assert run.code == "loop-max"


def test_max_passes_are_allowed() -> None:
    run = given("tasks:\n  l: {type: loop, while: 'iteration < 2', max: 2, body: {do: x}}")

    run.complete("l[1]/x")
    run.complete("l[2]/x", "last")

    assert run.result == "last"


def test_a_failure_in_a_pass_goes_to_the_loop_whose_error_link_may_handle_it() -> None:
    run = given(
        """
tasks:
  l: {type: loop, while: 'true', body: {do: x}}
  h: {do: y, inputs: {e: '${tasks.l.error.code}'}, after: {from: l, on: error}}
"""
    )

    run.fail("l[1]/x", "boom")

    assert run.open == ["h"]
    assert run.arguments("h") == {"e": "boom"}
    assert run.task("l").status == "FAILED"


def test_a_body_sees_its_own_tasks_then_those_around_it() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  l:
    type: loop
    until: 'true'
    after: a
    body:
      tasks:
        b: {do: x, inputs: {outer: '${tasks.a.output}'}}
        a: {do: x, after: b}
        c: {do: x, inputs: {own: '${tasks.a.output}'}, after: a}
"""
    )
    run.complete("a", "outer")
    assert run.arguments("l[1]/b") == {"outer": None}  # its own `a`, which has not run yet
    run.complete("l[1]/b")
    run.complete("l[1]/a", "inner")

    assert run.arguments("l[1]/c") == {"own": "inner"}


def test_in_a_pass_a_task_not_yet_run_is_seen_as_its_last_pass_left_it() -> None:
    run = given(
        """
tasks:
  l:
    type: loop
    while: 'iteration < 2'
    body:
      tasks:
        a: {do: x, inputs: {last: '${tasks.b.output}'}}
        b: {do: x, after: a}
"""
    )
    assert run.arguments("l[1]/a") == {"last": None}
    run.complete("l[1]/a")
    run.complete("l[1]/b", "first")

    assert run.arguments("l[2]/a") == {"last": "first"}


def test_outside_does_not_see_inside_a_loop() -> None:
    run = given(
        """
tasks:
  l: {type: loop, until: 'true', body: {do: x}}
  a: {do: y, inputs: {v: '${tasks.x.output}'}, after: l}
"""
    )

    run.complete("l[1]/x")

    assert run.code == "expression-failed"


def test_outside_sees_the_result_of_the_last_pass() -> None:
    run = given(
        """
tasks:
  l:
    type: loop
    while: 'iteration < 2'
    body: {tasks: {a: {do: x}, b: {do: x}}}
outputs: {l: tasks.l.output}
"""
    )
    for number in (1, 2):
        run.complete(f"l[{number}]/a", number)
        run.complete(f"l[{number}]/b", -number)

    assert run.result == {"l": {"a": 2, "b": -2}}


def test_loops_nest_and_iteration_is_that_of_the_innermost() -> None:
    run = given(
        """
tasks:
  o:
    type: loop
    while: 'iteration < 2'
    body:
      type: loop
      while: 'iteration < 2'
      body: {do: x, inputs: {n: '${iteration}'}}
"""
    )
    seen = []
    while run.open:
        (key,) = run.open
        seen.append((key, run.arguments(key)["n"]))
        run.complete(key)

    assert seen == [
        ("o[1]/loop[1]/x", 1),
        ("o[1]/loop[2]/x", 2),
        ("o[2]/loop[1]/x", 1),
        ("o[2]/loop[2]/x", 2),
    ]


def test_finished_passes_leave_the_state() -> None:
    run = given("tasks:\n  l: {type: loop, while: 'true', body: {do: x}}")
    for number in range(1, 40):
        run.complete(f"l[{number}]/x", number)

    assert list(run.run.scopes) == ["", "l[40]"]


def test_an_expression_that_errs_in_while_or_until_fails_the_loop() -> None:
    first = given("tasks:\n  l: {type: loop, while: 'input.no', body: {do: x}}", {})
    assert first.code == "expression-failed"

    run = given("tasks:\n  l: {type: loop, until: 'input.no', body: {do: x}}", {})
    run.complete("l[1]/x")
    assert run.code == "expression-failed"
    assert run.failure is not None
    assert run.failure.key == "l"
