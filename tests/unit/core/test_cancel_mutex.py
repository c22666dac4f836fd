"""`cancel` and `mutex` tasks (SPEC 2.2)."""

from __future__ import annotations

from support.world import given


def test_cancel_gives_up_open_tasks_by_name_and_their_links_die() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x}
  c: {type: cancel, tasks: [b, d], after: a}
  d: {type: signal}
  e: {do: x, after: b}
  f: {do: x, after: c}
"""
    )

    run.complete("a")

    assert run.task("b").status == "CANCELLED"
    assert run.task("d").status == "CANCELLED"
    assert run.task("e").status == "SKIPPED"
    assert run.abandoned() == ["b"]
    assert run.open == ["f"]


def test_cancel_of_a_task_that_is_not_open_does_nothing() -> None:
    run = given(
        "tasks:\n  a: {do: x}\n  c: {type: cancel, tasks: a, after: a}\n  z: {do: x, after: c}"
    )

    run.complete("a")

    assert run.task("a").status == "COMPLETED"
    assert run.open == ["z"]


def test_cancel_gives_up_a_scope_with_all_that_is_inside() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  m: {type: map, items: '[1, 2]', body: {type: loop, while: 'true', body: {do: y}}}
  c: {type: cancel, tasks: m, after: a}
  z: {do: x, after: c}
"""
    )

    run.complete("a")

    assert run.waiting == ["z"]
    assert list(run.run.scopes) == [""]


def test_cancel_from_inside_a_body_reaches_the_scopes_around() -> None:
    run = given(
        """
tasks:
  b: {do: x}
  l:
    type: loop
    until: 'true'
    body: {tasks: {a: {do: x}, c: {type: cancel, tasks: b, after: a}, z: {do: x, after: c}}}
"""
    )

    run.complete("l[1]/a")

    assert run.task("b").status == "CANCELLED"
    assert run.open == ["l[1]/z"]


def test_a_body_that_cancels_its_own_owner_is_over() -> None:
    run = given(
        """
tasks:
  b: {do: x}
  l:
    type: loop
    until: 'true'
    body: {tasks: {a: {do: x}, c: {type: cancel, tasks: l, after: a}}}
  z: {do: x, after: l}
"""
    )

    run.complete("l[1]/a")

    assert run.task("l").status == "CANCELLED"
    assert run.task("z").status == "SKIPPED"
    assert run.open == ["b"]


def test_cancel_reaches_a_task_inside_a_natural_loop() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  h: {do: x, after: {from: t, when: 'true'}}
  t: {do: x, after: h}
  y: {do: x, after: {from: t, when: 'false'}}
  c: {type: cancel, tasks: t, after: a}
  z: {do: x, after: c}
"""
    )
    run.complete("h[1]/h")

    run.complete("a")

    assert run.abandoned() == ["h[1]/t"]
    assert run.open == ["z"]


MUTEX = """
tasks:
  a: {type: mutex, name: m, body: {do: x}}
  b: {type: mutex, name: m, body: {do: x}}
  c: {type: mutex, name: m, body: {do: x}}
  other: {type: mutex, name: n, body: {do: x}}
"""


def test_a_mutex_is_held_while_its_body_is_open_in_order_of_arrival() -> None:
    run = given(MUTEX)

    assert run.open == ["a[1]/x", "other[1]/x"]
    run.complete("a[1]/x", 1)
    assert run.open == ["other[1]/x", "b[1]/x"]
    run.complete("b[1]/x", 2)
    run.complete("c[1]/x", 3)
    run.complete("other[1]/x", 4)

    assert run.result == {"a": 1, "b": 2, "c": 3, "other": 4}
    assert run.run.mutexes == {}


def test_a_mutex_whose_body_fails_lets_go() -> None:
    run = given(MUTEX + "  h: {do: x, after: {from: a, on: error}}")

    run.fail("a[1]/x")

    assert set(run.open) == {"other[1]/x", "b[1]/x", "h"}


def test_a_cancelled_mutex_lets_go_whether_it_held_or_waited() -> None:
    run = given(MUTEX + "  k: {do: x}\n  cx: {type: cancel, tasks: [a, b], after: k}")

    run.complete("k")

    assert set(run.open) == {"other[1]/x", "c[1]/x"}
    assert run.run.mutexes == {"m": ["c"], "n": ["other"]}


def test_items_of_a_map_take_turns_in_a_mutex() -> None:
    run = given(
        "tasks:\n  m: {type: map, items: '[1, 2, 3]', body: {type: mutex, name: m, body: {do: x}}}"
    )

    seen = []
    while run.open:
        assert len(run.open) == 1
        seen += run.open
        run.complete(run.open[0])

    assert seen == [f"m[{i}]/mutex[1]/x" for i in range(3)]


def test_a_failing_scope_with_waiting_mutexes_leaves_none_behind() -> None:
    run = given(MUTEX)

    run.fail("a[1]/x", "boom")

    assert run.status == "FAILED"
    assert run.run.mutexes == {}
