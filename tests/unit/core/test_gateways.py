"""Gateways: how each kind splits (SPEC 2.3)."""

from __future__ import annotations

import pytest

from support.world import given


def choice(kind: str, *guards: str, default: str = "", **more: str):
    tasks: dict[str, object] = {"g": {"type": "gateway", "kind": kind}}
    if default:
        tasks["g"]["default"] = default  # type: ignore[index]
    for name, guard in zip("abcdef", guards, strict=False):
        way: dict[str, str] = {"from": "g"}
        if guard:
            way["when"] = guard
        tasks[name] = {"do": "x", "after": way}
    return {"tasks": tasks, **more}


def test_exclusive_takes_the_first_true_link_in_order() -> None:
    run = given(choice("exclusive", "false", "true", "true"))

    assert run.open == ["b"]
    assert run.statuses()["a"] == "SKIPPED"
    assert run.statuses()["c"] == "SKIPPED"


def test_exclusive_does_not_ask_beyond_the_first_true_link() -> None:
    run = given(choice("exclusive", "true", "1 / 0 == 1"))

    assert run.open == ["a"]


def test_exclusive_takes_its_default_when_none_holds() -> None:
    run = given(choice("exclusive", "false", "false", "", default="c"))

    assert run.open == ["c"]


def test_the_default_is_not_taken_when_another_holds_wherever_it_stands() -> None:
    run = given(choice("exclusive", "", "true", default="a"))

    assert run.open == ["b"]


def test_inclusive_takes_all_true_links() -> None:
    run = given(choice("inclusive", "true", "false", "true"))

    assert run.open == ["a", "c"]


def test_inclusive_takes_its_default_only_when_none_holds() -> None:
    assert given(choice("inclusive", "false", "", default="b")).open == ["b"]
    assert given(choice("inclusive", "true", "", default="b")).open == ["a"]


def test_parallel_takes_all() -> None:
    assert given(choice("parallel", "", "", "")).open == ["a", "b", "c"]


def test_a_parallel_gateway_joins_all_by_default() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  b: {do: x}
  g: {type: gateway, kind: parallel, after: [a, {from: b, when: 'false'}]}
  c: {do: x, after: g}
"""
    )

    run.complete("a")
    run.complete("b")

    assert run.code == "join-starved"


@pytest.mark.parametrize("kind", ["exclusive", "inclusive"])
def test_none_true_and_no_default_fails_with_no_branch(kind: str) -> None:
    run = given(choice(kind, "false", "false"))

    assert run.status == "FAILED"
    assert run.code == "no-branch"
    assert run.failure is not None
    assert run.failure.key == "g"


def test_no_branch_can_be_handled_by_an_error_link_of_the_gateway() -> None:
    document = choice("exclusive", "false")
    document["tasks"]["h"] = {"do": "x", "after": {"from": "g", "on": "error"}}  # type: ignore[index]

    run = given(document)

    assert run.open == ["h"]
    assert run.task("g").failure.code == "no-branch"  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["exclusive", "inclusive", "event"])
def test_an_expression_that_errs_in_a_gateway_fails_the_gateway(kind: str) -> None:
    document = choice(kind, "input.nothing", "true")
    if kind == "event":
        document["tasks"]["a"] = {"type": "signal", "after": {"from": "g", "when": "input.nothing"}}  # type: ignore[index]
        document["tasks"]["b"] = {"type": "signal", "after": {"from": "g"}}  # type: ignore[index]

    run = given(document, {})

    assert run.status == "FAILED"
    assert run.code == "expression-failed"
    assert run.failure is not None
    assert run.failure.key == "g"
    assert "g -> a" in run.failure.message


def test_a_gateway_that_fails_does_nothing_of_what_it_does_on_completion() -> None:
    document = choice("exclusive", "false")
    document["tasks"]["g"]["onComplete"] = [{"publish": {"topic": "t", "payload": 1}}]  # type: ignore[index]
    document["tasks"]["h"] = {"do": "x", "after": {"from": "g", "on": "error"}}  # type: ignore[index]

    run = given(document)

    assert "published" not in run.types()
    assert run.run.tasks_done == 1


def test_a_gateway_that_is_skipped_still_splits_by_its_kind() -> None:
    document = choice("exclusive", "true", "true")
    document["tasks"]["g"]["when"] = "false"  # type: ignore[index]

    run = given(document)

    assert run.task("g").status == "SKIPPED"
    assert run.open == ["a"]


EVENT = """
tasks:
  g: {type: gateway, kind: event}
  yes: {type: signal, after: g}
  no: {type: signal, after: g}
  late: {type: timer, delay: 1h, after: g}
  ask: {type: form, schema: {}, after: g}
  after_yes: {do: x, after: yes}
  after_no: {do: x, after: no}
  after_late: {do: x, after: late}
  after_ask: {do: x, after: ask}
"""


def test_an_event_gateway_arms_its_targets_together() -> None:
    run = given(EVENT)

    assert run.waiting == ["yes", "no", "late", "ask"]


@pytest.mark.parametrize("winner", ["yes", "no", "late", "ask"])
def test_the_first_event_wins_and_the_same_event_disarms_the_others(winner: str) -> None:
    run = given(EVENT)

    if winner == "late":
        run.skip(3600)
    elif winner == "ask":
        run.submit("ask", {})
    else:
        run.signal(winner)

    assert run.open == [f"after_{winner}"]
    assert len(run.events) == 2
    for name in ("yes", "no", "late", "ask"):
        wanted = "COMPLETED" if name == winner else "CANCELLED"
        assert run.task(name).status == wanted
    assert run.run.waiters == {}
    assert run.run.dues == []


def test_of_two_timers_of_an_event_gateway_that_are_both_due_the_earlier_wins() -> None:
    run = given(
        """
tasks:
  g: {type: gateway, kind: event}
  slow: {type: timer, delay: 2h, after: g}
  fast: {type: timer, delay: 1h, after: g}
"""
    )

    run.world.now += 10_000
    run.skip(0)

    assert run.status == "COMPLETED"
    assert [event.key for event in run.events if event.type == "timer_fired"] == ["fast"]


def test_a_signal_that_came_before_wins_at_once() -> None:
    run = given(
        """
tasks:
  a: {do: x}
  g: {type: gateway, kind: event, after: a}
  late: {type: timer, delay: 1h, after: g}
  go: {type: signal, after: g}
  other: {type: timer, delay: 1h, after: g}
  b: {do: x, after: go}
"""
    )

    run.signal("go", 5)
    run.complete("a")

    assert run.open == ["b"]
    assert run.waiting == ["b"]
    assert run.task("late").status == "CANCELLED"
    assert run.task("other").status == "SKIPPED"


def test_a_target_whose_link_is_false_is_not_armed_and_dies() -> None:
    run = given(
        """
tasks:
  g: {type: gateway, kind: event}
  go: {type: signal, after: g}
  late: {type: timer, delay: 1h, after: {from: g, when: 'false'}}
  j: {do: x, after: [go, late]}
"""
    )

    assert run.waiting == ["go"]
    run.signal("go")

    assert run.open == ["j"]


def test_a_target_that_cannot_be_armed_ends_the_race_and_leaves_nothing_undecided() -> None:
    run = given(
        """
tasks:
  g: {type: gateway, kind: event}
  bad: {type: timer, delay: '${input.nothing}', after: g}
  go: {type: signal, after: g}
  h: {do: x, after: {from: bad, on: error}}
  j: {do: x, after: [go, h]}
""",
        {},
    )

    assert run.open == ["h"]
    assert run.waiting == ["h"]
    run.complete("h")
    assert run.open == ["j"]


def test_a_target_that_is_skipped_wins_as_one_that_completed_would() -> None:
    run = given(
        """
tasks:
  g: {type: gateway, kind: event}
  late: {type: timer, delay: 1h, after: g, when: 'false'}
  go: {type: signal, after: g}
  a: {do: x, after: late}
  b: {do: x, after: go}
"""
    )

    assert run.open == ["a"]
    assert run.waiting == ["a"]


def test_a_timeout_of_one_armed_signal_disarms_the_others() -> None:
    run = given(
        """
tasks:
  g: {type: gateway, kind: event}
  yes: {type: signal, timeout: 10s, after: g}
  no: {type: signal, after: g}
  h: {do: x, after: {from: yes, on: error}}
"""
    )

    run.skip(10)

    assert run.open == ["h"]
    assert run.waiting == ["h"]
    assert run.run.waiters == {}
