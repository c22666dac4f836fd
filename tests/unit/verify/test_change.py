"""Which open runs can move, as a table by where they stand (SPEC 3.8); held against `migrate` itself."""

from __future__ import annotations

import pytest

from penstock.dsl.load import load
from penstock.errors import Rejected
from penstock.model.definition import Definition
from penstock.verify.change import Change, change


def made(text: str) -> Definition:
    return load("id: order\n" + text).definition


def verdicts(found: Change) -> dict[str, str]:
    return {" ".join(row.open): row.verdict for row in found.rows}


LINE = "tasks: {a: {do: x}, s: {type: signal, after: a}, b: {do: x, after: s}}"


def test_each_place_to_stand_is_a_row() -> None:
    new = made(
        "tasks: {a: {do: x}, s: {type: signal, after: a}, n: {do: x, after: s}, b: {do: x, after: n}}"
    )

    found = change(made(LINE), new)

    assert verdicts(found) == {"a": "can", "s": "can", "b": "can"}
    assert found.complete
    assert found.all_can


def test_a_changed_task_holds_those_that_stand_in_it() -> None:
    found = change(made(LINE), made(LINE.replace("b: {do: x", "b: {do: y")))

    assert verdicts(found) == {"a": "can", "s": "can", "b": "cannot"}
    assert not found.all_can
    (row,) = (row for row in found.rows if row.verdict == "cannot")
    assert [(each.why, each.key) for each in row.reasons] == [("open-changed", "b")]


def test_what_may_have_to_be_undone_holds_all_that_come_after() -> None:
    old = "tasks: {a: {do: x, compensate: u}, b: {do: x, after: a}}"

    found = change(made(old), made(old.replace("compensate: u", "compensate: v")))

    assert verdicts(found) == {"a": "cannot", "b": "cannot"}


def test_it_may_depend_on_how_they_came_there() -> None:
    old = """
tasks:
  g: {type: gateway, kind: exclusive, default: b}
  a: {do: x, compensate: u}
  b: {do: x}
  c: {do: x, after: [a, b]}
links: [{from: g, to: a, when: input.n > 1}, {from: g, to: b}]
"""
    found = change(made(old), made(old.replace("compensate: u", "compensate: v")))

    assert verdicts(found) == {"a": "cannot", "b": "can", "c": "some can"}


def test_a_mapping_lets_more_of_them_move() -> None:
    new = made("tasks: {a: {do: x}, q: {type: signal, name: s, after: a}, b: {do: x, after: q}}")

    assert verdicts(change(made(LINE), new)) == {"a": "can", "s": "cannot", "b": "can"}
    assert change(made(LINE), new, {"s": "q"}).all_can


def test_parallel_tasks_stand_together_and_loops_pass_by_pass() -> None:
    old = made("""
tasks:
  a: {do: x}
  m: {type: map, items: input.items, body: {tasks: {p: {do: x}, q: {do: x, after: p}}}}
  l: {type: loop, while: input.go, body: {do: x}, after: a}
""")
    found = change(old, old)

    assert found.complete
    assert found.all_can
    assert {"a", "a m/p", "a m/p m/q"} <= set(verdicts(found))


def test_a_budget_that_is_used_up_is_told() -> None:
    tasks = ", ".join(f"t{n}: {{do: x}}" for n in range(12))
    found = change(made(f"tasks: {{{tasks}}}"), made(f"tasks: {{{tasks}}}"), budget=50)

    assert not found.complete
    assert not found.all_can
    assert found.states == 50


def test_a_mapping_that_cannot_be_is_refused() -> None:
    with pytest.raises(Rejected, match="no task `zz`"):
        change(made(LINE), made(LINE), {"zz": "a"})


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("{type: object}", "{type: object, required: [n]}", "some can"),
        ("{}", "{type: object}", "some can"),
        ("{properties: {n: {type: integer}}}", "{properties: {n: {type: integer, minimum: 5}}}", "some can"),
        ("{properties: {}}", "{properties: {m: {type: integer}}}", "some can"),
        ("{properties: {a: true}, additionalProperties: false}", "{additionalProperties: false}", "some can"),
        ("{type: object, required: [n]}", "{type: object}", "can"),
        ("{type: object, required: [n]}", "{}", "can"),
        ("{additionalProperties: false}", "{properties: {m: {type: integer}}, additionalProperties: false}", "can"),
    ],
)  # fmt: skip
def test_an_input_that_may_not_fit_is_told(old: str, new: str, verdict: str) -> None:
    found = change(made(f"inputSchema: {old}\n{LINE}"), made(f"inputSchema: {new}\n{LINE}"))

    assert set(verdicts(found).values()) == {verdict}
    if verdict == "some can":
        assert not found.all_can
        assert all(row.reasons[-1].why == "input" for row in found.rows)
