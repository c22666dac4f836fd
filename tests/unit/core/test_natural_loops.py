"""Natural loops: cycles of links that become scopes (SPEC 2.3)."""

from __future__ import annotations

import pytest

from penstock.errors import DefinitionInvalid
from support.world import given, plan_of

REVIEW = """
tasks:
  review: {do: x, after: {from: score, when: 'tasks.score.output < 5'}}
  score: {do: x, after: review}
  done: {do: x, after: {from: score, when: 'tasks.score.output >= 5'}}
"""


def test_a_true_back_link_starts_the_next_pass_and_keys_name_the_header() -> None:
    run = given(REVIEW)

    run.complete("review[1]/review")
    run.complete("review[1]/score", 1)
    assert run.open == ["review[2]/review"]
    run.complete("review[2]/review")
    assert run.open == ["review[2]/score"]
    run.complete("review[2]/score", 5)

    assert run.open == ["done"]
    run.complete("done", "ok")
    assert run.result == "ok"


def test_outside_sees_each_task_as_its_last_pass_left_it() -> None:
    run = given(REVIEW + "outputs: {score: tasks.score.output, status: tasks.review.status}\n")

    run.complete("review[1]/review")
    run.complete("review[1]/score", 2)
    run.complete("review[2]/review")
    run.complete("review[2]/score", 9)
    run.complete("done")

    assert run.result == {"score": 9, "status": "COMPLETED"}


def test_inside_a_pass_a_task_not_yet_run_is_seen_as_its_last_pass_left_it() -> None:
    run = given(
        """
tasks:
  a: {do: x, inputs: {last: '${tasks.b.output}'}, after: {from: b, when: 'tasks.b.output < 3'}}
  b: {do: x, after: a}
  z: {do: x, after: {from: b, when: 'tasks.b.output >= 3'}}
"""
    )

    assert run.arguments("a[1]/a") == {"last": None}
    run.complete("a[1]/a")
    run.complete("a[1]/b", 1)

    assert run.arguments("a[2]/a") == {"last": 1}


def test_a_pass_ends_only_when_nothing_in_it_is_open() -> None:
    run = given(
        """
tasks:
  h: {do: x, after: {from: t, when: 'iteration < 2'}}
  t: {do: x, after: h}
  slow: {do: x, after: h}
  back: {do: x, after: slow}
  z: {do: x, after: [{from: t, when: 'iteration >= 2'}]}
links:
  - {from: back, to: h, when: 'false'}
"""
    )
    run.complete("h[1]/h")
    run.complete("h[1]/t")

    assert run.open == ["h[1]/slow"]
    run.complete("h[1]/slow")
    run.complete("h[1]/back")
    assert run.open == ["h[2]/h"]


def test_exit_links_of_a_pass_that_is_followed_by_another_are_not_taken() -> None:
    run = given(
        """
tasks:
  h: {do: x, after: {from: h, when: 'tasks.h.output < 2'}}
  note: {do: x, after: h}
"""
    )

    run.complete("h[1]/h", 1)
    assert run.open == ["h[2]/h"]
    run.complete("h[2]/h", 2)

    assert run.open == ["note"]


def test_a_loop_whose_links_are_all_dead_at_its_end_passes_that_on() -> None:
    run = given(
        """
tasks:
  h: {do: x, after: {from: h, when: 'false'}}
  z: {do: x, after: {from: h, when: 'false'}}
"""
    )

    run.complete("h[1]/h")

    assert run.code == "no-end"


def test_loops_nest_and_inner_passes_are_counted_anew_in_each_outer_pass() -> None:
    run = given(
        """
tasks:
  outer: {do: x, after: {from: check, when: 'tasks.check.output'}}
  inner: {do: x, after: [outer, {from: inner, when: 'tasks.inner.output'}]}
  check: {do: x, after: {from: inner, when: '!tasks.inner.output'}}
  z: {do: x, after: {from: check, when: '!tasks.check.output'}}
"""
    )
    run.complete("outer[1]/outer")
    run.complete("outer[1]/inner[1]/inner", True)
    run.complete("outer[1]/inner[2]/inner", False)
    run.complete("outer[1]/check", True)
    run.complete("outer[2]/outer")
    run.complete("outer[2]/inner[1]/inner", False)
    run.complete("outer[2]/check", False)

    assert run.open == ["z"]


def test_in_an_outer_pass_a_task_of_an_inner_loop_not_yet_run_is_seen_from_the_last_pass() -> None:
    run = given(
        """
tasks:
  outer: {do: x, inputs: {seen: '${tasks.inner.output}'}, after: {from: check, when: 'tasks.check.output'}}
  inner: {do: x, after: [outer, {from: inner, when: 'false'}]}
  check: {do: x, after: inner}
  z: {do: x, after: {from: check, when: '!tasks.check.output'}}
"""
    )
    run.complete("outer[1]/outer")
    run.complete("outer[1]/inner[1]/inner", "seen")
    run.complete("outer[1]/check", True)

    assert run.arguments("outer[2]/outer") == {"seen": "seen"}


def test_a_true_error_link_that_leaves_a_loop_ends_it_and_its_back_links_die() -> None:
    run = given(
        """
tasks:
  h: {do: x}
  a: {do: x, after: h}
  b: {do: x, after: h}
  z: {do: x, after: {from: a, on: error}}
  y: {do: x, after: {from: b, when: 'false'}}
links:
  - {from: a, to: h, when: 'true'}
  - {from: b, to: h, when: 'true'}
"""
    )

    run.complete("h[1]/h")
    run.fail("h[1]/a")
    run.complete("h[1]/b")

    assert run.open == ["z"]


def test_an_error_link_that_leaves_two_loops_ends_both() -> None:
    run = given(
        """
tasks:
  o: {do: x, after: {from: c, when: 'true'}}
  s: {do: x, after: o}
  i: {do: x, after: [o, {from: i, when: 'true'}]}
  c: {do: x, after: [s, {from: i, when: 'false'}]}
  z: {do: x, after: {from: i, on: error}}
  y: {do: x, after: {from: c, when: 'false'}}
"""
    )

    run.complete("o[1]/o")
    run.complete("o[1]/s")
    run.fail("o[1]/i[1]/i")
    assert run.open == ["o[1]/c"]
    run.complete("o[1]/c")

    assert run.open == ["z"]


def test_an_unhandled_failure_in_a_natural_loop_fails_the_scope_around_it() -> None:
    run = given(
        """
tasks:
  p: {do: x}
  h: {do: x, after: {from: t, when: 'true'}}
  t: {do: x, after: h}
  other: {do: x, after: h}
  z: {do: x, after: {from: t, when: 'false'}}
links:
  - {from: other, to: h, when: 'false'}
"""
    )
    run.complete("h[1]/h")
    run.fail("h[1]/t", "boom")

    assert run.status == "FAILED"
    assert run.code == "boom"
    assert run.failure is not None
    assert run.failure.key == "h[1]/t"
    assert set(run.abandoned()) == {"h[1]/other", "p"}


def test_what_an_always_link_out_of_a_failed_loop_leads_to_still_runs() -> None:
    run = given(
        """
tasks:
  h: {do: x, after: {from: h, when: 'true'}}
  clean: {do: x, after: {from: h, on: always}}
  more: {do: x, after: clean}
  other: {do: x}
"""
    )

    run.fail("h[1]/h", "boom")
    assert run.open == ["clean"]
    run.complete("clean")
    assert run.open == ["more"]
    run.complete("more")

    assert run.status == "FAILED"
    assert run.code == "boom"
    assert run.abandoned() == ["other"]


def test_what_follows_a_loop_that_an_always_link_led_to_still_runs() -> None:
    run = given(
        """
tasks:
  bad: {do: x}
  h: {do: x, after: [{from: bad, on: always}, {from: t, when: 'iteration < 2'}]}
  t: {do: x, after: h}
  z: {do: x, after: {from: t, when: 'iteration >= 2'}}
"""
    )
    run.fail("bad", "boom")
    for key in ("h[1]/h", "h[1]/t", "h[2]/h", "h[2]/t"):
        run.complete(key)

    assert run.open == ["z"]
    run.complete("z")
    assert run.code == "boom"


def test_a_loop_that_is_never_entered_shows_its_tasks_as_skipped() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  h: {do: x, after: [{from: a, when: 'false'}, {from: t, when: 'true'}]}
  t: {do: x, after: h}
  u: {do: x, after: {from: t, when: 'false'}}
  z: {do: x, after: a}
outputs: {h: tasks.h.status, t: tasks.t.status, out: tasks.t.output}
"""
    )
    run.complete("a")
    run.complete("z")

    assert run.result == {"h": "SKIPPED", "t": "SKIPPED", "out": None}


def test_a_cycle_with_two_entries_is_refused_with_the_cycle_named() -> None:
    with pytest.raises(DefinitionInvalid, match="a -> b -> a"):
        plan_of(
            """
tasks:
  s: {do: x}
  a: {do: x, after: [s, {from: b, when: 'true'}]}
  b: {do: x, after: [s, {from: a, when: 'true'}]}
  z: {do: x, after: {from: b, when: 'false'}}
"""
        )


def test_a_gateway_inside_a_loop_chooses_between_back_and_exit() -> None:
    run = given(
        """
tasks:
  h: {do: x}
  g: {type: gateway, kind: exclusive, default: h, after: h}
  z: {do: x, after: {from: g, when: 'iteration == 3'}}
links:
  - {from: g, to: h, when: 'false'}
"""
    )
    for number in (1, 2, 3):
        run.complete(f"h[{number}]/h")

    assert run.open == ["z"]


def test_finished_passes_leave_the_state() -> None:
    run = given(REVIEW)
    for number in range(1, 50):
        run.complete(f"review[{number}]/review")
        run.complete(f"review[{number}]/score", 0)

    assert list(run.run.scopes) == ["", "review[50]"]
    assert len(run.digest()) < 3000


def test_a_large_output_of_an_earlier_pass_is_read_by_reference_after_a_restart() -> None:
    run = given(REVIEW + "outputs: {text: tasks.review.output}\n")
    run.complete("review[1]/review", "x" * 5000)
    run.complete("review[1]/score", 9)
    run.flow = run.replayed()
    run.complete("done")

    assert run.result == {"text": "x" * 5000}
    assert run.needs == 1


@pytest.mark.parametrize(("join", "waits"), [("all", True), ("any", False)])
def test_a_header_that_joins_waits_as_it_says(join: str, waits: bool) -> None:
    run = given(
        f"""
tasks:
  a: {{do: x}}
  b: {{do: x}}
  h: {{do: x, join: {join}, after: [a, b, {{from: t, when: 'iteration < 2'}}]}}
  t: {{do: x, after: h}}
  z: {{do: x, after: {{from: t, when: 'iteration >= 2'}}}}
"""
    )
    run.complete("a")

    assert run.has("h[1]/h") is not waits
    run.complete("b")
    assert run.open == ["h[1]/h"]
