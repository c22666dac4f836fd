"""Failure of tasks and scopes: error links, always links, ends (SPEC 2.3)."""

from __future__ import annotations

import pytest

from support.world import given


def test_a_true_error_link_handles_the_failure_and_the_error_can_be_read() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x, after: a}
  h: {do: x, inputs: {m: '${tasks.a.error.message}'}, after: {from: a, on: error, when: 'tasks.a.error.code == "bad"'}}
"""
    )

    run.fail("a", "bad", "no luck")

    assert run.open == ["h"]
    assert run.arguments("h") == {"m": "no luck"}
    assert run.task("b").status == "SKIPPED"
    run.complete("h")
    assert run.status == "COMPLETED"


def test_a_false_error_link_handles_nothing() -> None:
    run = given("tasks:\n  a: {do: x}\n  h: {do: x, after: {from: a, on: error, when: 'false'}}")

    run.fail("a", "bad")

    assert run.status == "FAILED"
    assert run.code == "bad"


def test_error_links_of_a_task_that_completes_are_dead() -> None:
    run = given(
        "tasks:\n  a: {do: x}\n  h: {do: x, after: {from: a, on: error}}\n  b: {do: x, after: a}"
    )

    run.complete("a")

    assert run.open == ["b"]
    assert run.task("h").status == "SKIPPED"


def test_an_unhandled_failure_cancels_open_siblings_and_the_run_fails_with_the_first_error() -> (
    None
):
    run = given(
        "tasks:\n  a: {do: x}\n  b: {do: x}\n  s: {type: signal}\n  t: {type: timer, delay: 1h}"
    )

    run.fail("a", "first")

    assert run.status == "FAILED"
    assert run.code == "first"
    assert run.failure is not None
    assert run.failure.key == "a"
    assert run.abandoned() == ["b"]
    assert run.types()[-1] == "run_failed"


def test_an_always_link_handles_nothing_but_what_it_leads_to_still_runs() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  sibling: {do: x}
  clean: {do: x, after: {from: a, on: always}}
  more: {do: x, after: clean}
  b: {do: x, after: a}
"""
    )

    run.fail("a", "first")
    assert run.open == ["clean"]
    assert run.task("sibling").status == "CANCELLED"
    run.complete("clean")
    assert run.open == ["more"]
    run.fail("more", "second")

    assert run.status == "FAILED"
    assert run.code == "first"


def test_an_always_link_is_taken_after_success_too() -> None:
    run = given("tasks:\n  a: {do: x}\n  clean: {do: x, after: {from: a, on: always}}")

    run.complete("a")
    assert run.open == ["clean"]
    run.complete("clean")

    assert run.status == "COMPLETED"


def test_error_and_always_links_together_the_error_link_handles() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  sibling: {do: x}
  clean: {do: x, after: {from: a, on: always}}
  h: {do: x, after: {from: a, on: error}}
"""
    )

    run.fail("a")

    assert run.open == ["sibling", "clean", "h"]


def test_a_task_already_open_that_an_always_link_leads_to_is_not_cancelled() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x}
  clean: {do: x, join: any, after: [b, {from: a, on: always}]}
"""
    )

    run.complete("b")
    run.fail("a", "boom")
    assert run.open == ["clean"]
    run.complete("clean")

    assert run.code == "boom"


def test_an_always_link_to_an_event_gateway_still_arms_it() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  g: {type: gateway, kind: event, after: {from: a, on: always}}
  s: {type: signal, after: g}
  t: {type: timer, delay: 5s, after: g}
  z: {do: x, after: t}
"""
    )

    run.fail("a", "boom")
    assert run.waiting == ["s", "t"]
    run.skip(5)
    assert run.open == ["z"]
    run.complete("z")

    assert run.code == "boom"


def test_an_always_link_to_a_merge_runs_it_once_its_other_links_are_decided() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x}
  b2: {do: x, after: b}
  clean: {do: x, after: [b2, {from: a, on: always}]}
"""
    )

    run.fail("a", "boom")

    assert run.open == ["clean"]


def test_a_failure_in_nested_scopes_goes_outward_until_it_is_handled() -> None:
    run = given(
        """
tasks:
  m:
    type: map
    items: '[1, 2]'
    body:
      type: loop
      until: 'true'
      body: {do: x}
  h: {do: y, after: {from: m, on: error}}
"""
    )

    run.fail("m[0]/loop[1]/x", "boom")

    assert run.open == ["h"]
    assert run.task("m").failure.key == "m[0]/loop[1]/x"  # type: ignore[union-attr]
    assert run.abandoned() == ["m[1]/loop[1]/x"]
    assert list(run.run.scopes) == [""]


def test_an_error_link_may_lead_into_the_same_flow_again() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  h: {do: x, after: {from: a, on: error}}
  z: {do: x, after: [a, h]}
"""
    )

    run.fail("a")
    run.complete("h")

    assert run.open == ["z"]


def test_an_error_link_whose_expression_errs_fails_the_scope_and_keeps_the_cause() -> None:
    run = given(
        "tasks:\n  a: {do: x}\n  h: {do: x, after: {from: a, on: error, when: 'input.no'}}", {}
    )

    run.fail("a", "first")

    assert run.code == "expression-failed"
    assert run.failure is not None
    assert "a -> h" in run.failure.message
    assert run.failure.cause is not None
    assert run.failure.cause.code == "first"


# --- ends ----------------------------------------------------------------------------------------------------


def test_a_run_completes_when_nothing_is_open_and_an_end_fired() -> None:
    run = given("tasks:\n  a: {do: x}\n  b: {do: x}")

    run.complete("a", 1)
    assert run.status == "RUNNING"
    run.complete("b", 2)

    assert run.result == {"a": 1, "b": 2}


def test_every_end_dead_is_no_end() -> None:
    run = given(
        """
tasks:
  s: {type: start}
  a: {do: x}
  e: {type: end}
links: [{from: s, to: a}, {from: a, to: e, when: 'false'}]
"""
    )

    run.complete("a")

    assert run.code == "no-end"


def test_one_of_two_ends_is_enough() -> None:
    run = given(
        """
tasks:
  s: {type: start}
  a: {do: x}
  e: {type: end}
  f: {type: end}
links: [{from: s, to: a}, {from: a, to: e, when: 'false'}, {from: a, to: f}]
"""
    )

    run.complete("a", 3)

    assert run.result == 3


TERMINATE = """
tasks:
  s: {type: start}
  a: {do: x}
  b: {do: x}
  m: {type: map, items: '[1, 2, 3]', n: 1, body: {do: y}}
  e: {type: end, terminate: true}
  f: {type: end}
links:
  - {from: s, to: a}
  - {from: s, to: b}
  - {from: s, to: m}
  - {from: a, to: e}
  - {from: b, to: f}
  - {from: m, to: f}
"""


def test_a_terminating_end_gives_up_what_is_open() -> None:
    run = given(TERMINATE)

    run.complete("a", 1)

    assert run.status == "COMPLETED"
    assert run.abandoned() == ["b", "m[0]/y", "m[1]/y", "m[2]/y"]


def test_a_terminating_end_gives_up_the_rest_of_a_map_that_had_enough() -> None:
    run = given(TERMINATE)

    run.complete("m[1]/y")
    run.complete("a", 1)

    assert run.status == "COMPLETED"


def test_nothing_begins_after_a_terminating_end_fired() -> None:
    run = given(
        """
tasks:
  s: {type: start}
  a: {type: transform, set: {v: '1'}}
  b: {type: transform, set: {w: '1'}}
  c: {do: x}
  e: {type: end, terminate: true}
  f: {type: end}
links:
  - {from: s, to: a}
  - {from: s, to: b}
  - {from: a, to: e}
  - {from: b, to: c}
  - {from: c, to: f}
"""
    )

    assert run.status == "COMPLETED"
    assert [x for x in run.done if type(x).__name__ == "Execute"] == []


def test_a_terminating_end_of_a_body_ends_only_that_body() -> None:
    run = given(
        """
tasks:
  m:
    type: map
    items: '[1, 2]'
    body:
      tasks:
        s: {type: start}
        a: {do: x}
        b: {do: x}
        e: {type: end, terminate: true}
        f: {type: end}
      links: [{from: s, to: a}, {from: s, to: b}, {from: a, to: e}, {from: b, to: f}]
"""
    )

    run.complete("m[0]/a")

    assert run.open == ["m[1]/a", "m[1]/b"]


def test_an_empty_flow_completes_at_once() -> None:
    run = given(
        "tasks:\n  s: {type: start}\n  e: {type: end}\nlinks: [{from: s, to: e}]",
    )

    assert run.result is None


def test_a_body_whose_every_end_is_dead_fails_with_no_end() -> None:
    run = given(
        """
tasks:
  l:
    type: loop
    until: 'true'
    body:
      tasks: {s: {type: start}, a: {do: x}, e: {type: end}}
      links: [{from: s, to: a}, {from: a, to: e, when: 'false'}]
  h: {do: y, after: {from: l, on: error}}
"""
    )
    run.complete("l[1]/a")

    assert run.open == ["h"]
    assert run.task("l").failure.code == "no-end"  # type: ignore[union-attr]


# --- deadlock ------------------------------------------------------------------------------------------------


def test_a_mutex_inside_its_own_body_is_a_deadlock_found_at_once() -> None:
    run = given(
        """
tasks:
  outer:
    type: mutex
    name: m
    body: {type: mutex, name: m, body: {do: x}}
"""
    )

    assert run.status == "FAILED"
    assert run.code == "deadlock"


def test_two_mutexes_taken_crosswise_are_a_deadlock_found_at_once_with_what_waits_for_what() -> (
    None
):
    run = given(
        """
tasks:
  p:
    type: mutex
    name: one
    body: {tasks: {a: {do: x}, q: {type: mutex, name: two, body: {do: y}, after: a}}}
  r:
    type: mutex
    name: two
    body: {tasks: {a: {do: x}, q: {type: mutex, name: one, body: {do: y}, after: a}}}
"""
    )

    run.complete("p[1]/a")
    assert run.status == "RUNNING"
    run.complete("r[1]/a")

    assert run.status == "FAILED"
    assert run.code == "deadlock"
    assert run.failure is not None
    assert "`p[1]/q` waits for mutex `two`, held by `r`" in run.failure.message


@pytest.mark.parametrize("way", ["complete", "fail"])
def test_a_handled_failure_does_not_count_as_the_runs(way: str) -> None:
    run = given("tasks:\n  a: {do: x}\n  h: {do: x, after: {from: a, on: error}}\n  b: {do: x}")
    run.fail("a", "one")
    run.complete("h")
    if way == "complete":
        run.complete("b")
        assert run.status == "COMPLETED"
    else:
        run.fail("b", "two")
        assert run.code == "two"
