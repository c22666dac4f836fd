"""Joins and dead paths (SPEC 2.3)."""

from __future__ import annotations

import pytest

from support.world import given

TWO = """
tasks:
  a: {{do: x}}
  b: {{do: x}}
  j: {{do: x, {join}after: [{{from: a, when: 'input.a'}}, {{from: b, when: 'input.b'}}]}}
"""


def two(join: str, a: bool = True, b: bool = True):
    return given(TWO.format(join=join), {"a": a, "b": b})


def test_merge_fires_when_all_links_are_decided_and_one_is_true() -> None:
    run = two("", a=True, b=False)

    run.complete("a")
    assert run.open == ["b"]
    run.complete("b")

    assert run.open == ["j"]


def test_merge_waits_for_every_link_though_one_is_true() -> None:
    run = two("")

    run.complete("b")

    assert "j" not in run.open


def test_merge_with_all_links_dead_is_skipped_and_its_own_links_die() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  j: {do: x, after: {from: a, when: 'false'}}
  k: {do: x, after: j}
  z: {do: x, after: [a]}
"""
    )

    run.complete("a")

    assert run.task("j").status == "SKIPPED"
    assert run.task("k").status == "SKIPPED"
    assert run.open == ["z"]


def test_all_fires_when_every_link_is_true() -> None:
    run = two("join: all, ")

    run.complete("a")
    run.complete("b")

    assert run.open == ["j"]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_all_with_one_dead_link_starves_at_once_and_names_the_dead_link(order: str) -> None:
    run = two("join: all, ", a=True, b=False)

    for key in order:
        run.complete(key)

    assert run.status == "FAILED"
    assert run.code == "join-starved"
    assert run.failure is not None
    assert "b -> j" in run.failure.message
    assert run.failure.key == "j"


def test_all_with_every_link_dead_is_skipped() -> None:
    run = two("join: all, ", a=False, b=False)

    run.complete("a")
    run.complete("b")

    assert run.code == "no-end"


def test_a_starved_join_can_be_handled_by_an_error_link() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x}
  j: {do: x, join: all, after: [a, {from: b, when: 'false'}]}
  h: {do: x, after: {from: j, on: error}}
"""
    )

    run.complete("a")
    run.complete("b")
    assert run.open == ["h"]
    run.complete("h", 1)

    assert run.status == "COMPLETED"


def test_any_fires_at_the_first_true_link_and_absorbs_later_tokens() -> None:
    run = two("join: any, ")

    run.complete("b")
    assert set(run.open) == {"a", "j"}
    run.complete("a")

    assert run.task("j").trues == 2
    assert run.open == ["j"]
    run.complete("j", 7)
    assert run.status == "COMPLETED"
    assert run.completed() == ["b", "a", "j"]


def test_any_ignores_a_dead_link_while_another_may_be_true() -> None:
    run = two("join: any, ", a=False)

    run.complete("a")
    assert run.task("j").status == "PENDING"
    run.complete("b")

    assert run.open == ["j"]


def test_n_fires_at_the_kth_true_link() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x}
  j: {do: x, join: {n: 2}, after: [a, b, c]}
"""
    )

    run.complete("c")
    assert "j" not in run.open
    run.complete("a")

    assert set(run.open) == {"b", "j"}


@pytest.mark.parametrize("order", ["abc", "cab", "bca", "acb"])
def test_n_that_can_no_longer_be_reached_starves_and_names_a_dead_link(order: str) -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x}
  j: {do: x, join: {n: 2}, after: [a, {from: b, when: 'false'}, {from: c, when: 'false'}]}
"""
    )

    for key in order:
        if run.run.closed:
            break
        run.complete(key)

    assert run.code == "join-starved"
    assert run.failure is not None
    assert "b -> j" in run.failure.message or "c -> j" in run.failure.message


def test_cancel_gives_up_open_tasks_whose_every_path_leads_to_the_join() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x}
  c: {do: x}
  j: {do: x, join: {any: true, cancel: true}, after: [a, b, c]}
  side: {do: x, after: c}
"""
    )

    run.complete("a")

    assert run.task("b").status == "CANCELLED"
    assert run.task("c").status == "SCHEDULED"
    assert run.abandoned() == ["b"]
    assert set(run.open) == {"c", "j"}


def test_without_cancel_the_others_go_on() -> None:
    run = two("join: any, ")

    run.complete("a")

    assert set(run.open) == {"b", "j"}


def test_cancel_reaches_waits_and_what_is_inside_scopes() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  s: {type: signal}
  m: {type: map, items: '[1, 2]', body: {do: y}}
  t: {type: timer, delay: 1h}
  j: {do: x, join: {any: true, cancel: true}, after: [a, s, m, t]}
"""
    )

    run.complete("a")

    assert run.waiting == ["j"]
    assert run.run.waiters == {}
    assert list(run.run.scopes) == [""]
    run.complete("j")
    assert run.status == "COMPLETED"


def test_the_order_in_which_tasks_are_cancelled_is_that_of_the_document() -> None:
    names = [f"t{i}" for i in range(12)]
    document = {
        "tasks": {name: {"do": "x"} for name in names}
        | {"j": {"do": "x", "after": names, "join": {"any": True, "cancel": True}}}
    }

    run = given(document)
    run.complete("t5")

    assert run.abandoned() == [name for name in names if name != "t5"]


def test_a_join_at_the_header_of_a_natural_loop_counts_only_entries() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x}
  h: {do: x, join: all, after: [a, b, {from: t, when: 'iteration < 2'}]}
  t: {do: x, after: h}
  z: {do: x, after: {from: t, when: 'iteration >= 2'}}
"""
    )

    run.complete("a")
    run.complete("b")
    run.complete("h[1]/h")
    run.complete("h[1]/t")
    assert run.open == ["h[2]/h"]
    run.complete("h[2]/h")
    run.complete("h[2]/t")

    assert run.open == ["z"]


def test_a_skipped_task_decides_its_links_as_after_completion() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  s: {do: x, after: a, when: 'false'}
  ok: {do: x, after: s}
  err: {do: x, after: {from: s, on: error}}
  always: {do: x, after: {from: s, on: always}}
  seen: {do: x, after: {from: s, when: 'tasks.s.output == null && tasks.s.status == "SKIPPED"'}}
"""
    )

    run.complete("a")

    assert run.task("s").status == "SKIPPED"
    assert run.task("s").attempt == 0
    assert run.task("err").status == "SKIPPED"
    assert set(run.open) == {"ok", "always", "seen"}


def test_conditions_must_all_hold() -> None:
    run = given("tasks:\n  a: {do: x, conditions: ['true', 'false']}\n  b: {do: x, after: a}")

    assert run.task("a").status == "SKIPPED"
    assert run.open == ["b"]


def test_a_dead_path_reaches_a_join_far_away_so_that_it_does_not_wait() -> None:
    run = given(
        """
tasks:
  g: {type: gateway, kind: exclusive}
  a: {do: x, after: {from: g, when: 'true'}}
  b1: {do: x, after: {from: g, when: 'true'}}
  b2: {do: x, after: b1}
  b3: {type: loop, until: 'true', body: {do: x}, after: b2}
  j: {do: x, after: [a, b3]}
"""
    )

    run.complete("a")

    assert run.open == ["j"]
    assert run.task("b3").status == "SKIPPED"
