"""Which runs can go on as runs of another version, by where they stand, and why others cannot (SPEC 2.7, 3.8)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.evolve import evolve
from penstock.core.invariants import broken
from penstock.core.plan import Plan
from penstock.errors import NotFound, Rejected
from penstock.model import events as e
from penstock.model.migration import OBSTACLES, Obstacle
from support.world import Case, World, plan_of


def versions(*texts: str) -> World:
    kin: dict[str, Plan] = {}
    for number, text in enumerate(texts, 1):
        plan_of(text).join(kin, str(number))
    return World(kin["1"])


def refusals(
    run: Case, version: str = "2", mapping: dict[str, str] | None = None
) -> list[Obstacle]:
    """What stands in the way; the run is as it was."""
    before, count = run.digest(), len(run.stored)
    with pytest.raises(Rejected) as caught:
        run.migrate(version, mapping)
    assert caught.value.code == "migration-unsafe"
    assert caught.value.hint
    assert run.digest() == before
    assert len(run.stored) == count
    return list(caught.value.facts["obstacles"])


def moves(run: Case, mapping: dict[str, str] | None = None) -> Case:
    run.migrate("2", mapping)
    assert broken(run.flow) == []
    assert run.replayed().run == run.run
    return run


A_B = "tasks: {a: {do: x}, b: {do: x, after: a}}"
PAIR = "tasks: {a: {do: x}, b: {do: x}, j: {do: x, after: [a, b]}}"
LOOP = """
tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}}
links: [{from: b, to: a, when: iteration < 3}]
"""


def began(run: Case) -> Case:
    return run


def done(*keys: str) -> Callable[[Case], Case]:
    def bring(run: Case) -> Case:
        for key in keys:
            run.complete(key, 1)
        return run

    return bring


def signalled(run: Case) -> Case:
    run.signal("go", 1)
    return run


def failing(run: Case) -> Case:
    run.fail("a", final=True)
    return run


def cancelled_child(run: Case) -> Case:
    run.world.start_child(run, "c")
    run.signal("stop")
    return run


CHILDREN = """
tasks:
  c: {{type: subworkflow, definition: kid{more}}}
  s: {{type: signal, name: stop}}
  k: {{type: cancel, tasks: [c], after: s}}
  w: {{type: signal, name: more}}
"""
GATE = "tasks: {{g: {{type: gateway, kind: {kind}}}, {first}: {{type: signal, name: s, after: g}}, t: {{type: timer, delay: 1h, after: g}}}}"
MAP = "tasks: {{m: {{type: map, items: '[1, 2]', limit: 1, body: {{tasks: {{{body}}}}}}}}}"
EITHER = "tasks: {a: {do: x}, b: {do: x}, j: {do: x, after: [a, b], join: %s}, k: {type: signal}}"

RULES = """
orchestration: rule
tasks: {a: {do: x}}
rules: [{when: 'true', task: a}, {until: data.a != null}]
"""

REFUSED: list[tuple[str, str, str, Callable[[Case], Case], dict[str, str] | None, str]] = [
    # why, old, new, how it comes there, mapping, what it is about
    ("open-removed", A_B, "tasks: {b: {do: x}}", began, None, "a"),
    ("open-removed", "tasks: {s: {type: signal}}", "tasks: {q: {do: x}}", began, None, "s"),
    ("open-changed", A_B, "tasks: {a: {do: y}, b: {do: x, after: a}}", began, None, "a"),
    ("open-changed", A_B, "tasks: {a: {do: x, retry: {attempts: 9}}, b: {do: x, after: a}}", began, None, "a"),
    ("open-changed", "tasks: {s: {type: signal, timeout: 1h}}", "tasks: {s: {type: signal, timeout: 2h}}", began, None, "s"),
    ("open-renamed", A_B, "tasks: {q: {do: x}, b: {do: x, after: q}}", began, {"a": "q"}, "a"),
    ("undo-removed", "tasks: {a: {do: x, compensate: u}, b: {do: x, after: a}}", "tasks: {b: {do: x}}", done("a"), None, "a"),
    ("undo-changed", "tasks: {a: {do: x, compensate: u}, b: {do: x, after: a}}",
     "tasks: {a: {do: x, compensate: v}, b: {do: x, after: a}}", done("a"), None, "a"),
    ("link-new", A_B, "tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: a}}", done("a"), None, "a -> c"),
    ("link-new", PAIR, "tasks: {a: {do: x}, b: {do: x}, n: {do: x, after: a}, j: {do: x, after: [n, b]}}", done("a"), None, "a -> n"),
    ("link-gone", PAIR, "tasks: {a: {do: x}, b: {do: x}, c: {do: x, after: b}, j: {do: x, after: [c, b]}}", done("a"), None, "a -> j"),
    ("link-changed", PAIR, """
tasks: {a: {do: x}, b: {do: x}, j: {do: x, after: b}}
links: [{from: a, to: j, when: input.n > 1}]
""", done("a"), None, "a -> j"),
    ("join-ripe", EITHER % "all", EITHER % "any", done("a"), None, "j"),
    ("join-ripe", PAIR, "tasks: {a: {do: x}, b: {do: x}, j: {do: x, after: [a]}}", done("a"), None, "j"),
    ("order", A_B, "tasks: {a: {do: x, after: b}, b: {do: x}}", began, None, "a"),
    ("order", "tasks: {a: {do: x}, b: {do: x}}", "tasks: {a: {do: x}, b: {do: x, after: a}}", began, None, "b"),
    ("half-passed", A_B, """
tasks: {n: {do: x}, a: {do: x, after: n}, b: {do: x, after: a}, c: {do: x, after: [n, b]}}
""", began, None, "n"),
    ("passed-read", A_B, "tasks: {n: {do: x}, a: {do: x, after: n}, b: {do: x, after: a, inputs: {v: {from: n}}}}", began, None, "n"),
    ("passed-read", A_B, """
tasks: {n: {do: x}, a: {do: x, after: n}, b: {do: x, after: a, when: tasks.n.output > 1}}
""", began, None, "n"),
    ("loop", LOOP, "tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}}", began, None, "a"),
    ("loop", "tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}}", LOOP, began, None, "a"),
    ("gateway", GATE.format(kind="event", first="s"), """
tasks: {s: {type: signal, name: s}, t: {type: timer, delay: 1h}}
""", began, None, "s"),
    ("results", MAP.format(body="a: {do: x}, b: {do: x, after: a}"), MAP.format(body="a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}"),
     done("m[0]/a", "m[0]/b"), None, "m"),
    ("failing", """
tasks: {a: {do: x}, b: {do: x}}
links: [{from: a, to: b, on: always}]
""", """
tasks: {a: {do: x}, b: {do: x}, c: {do: x, after: b}}
links: [{from: a, to: b, on: always}]
""", failing, None, ""),
    ("leaving", CHILDREN.format(more=""), CHILDREN.format(more=", inputs: {n: {value: 1}}"), cancelled_child, None, "c"),
    ("signal", "tasks: {a: {do: x}, s: {type: signal, name: go, after: a}}", "tasks: {a: {do: x}}", signalled, None, "go"),
    ("signal", "tasks: {a: {do: x}, s: {type: signal, name: go, after: a}}",
     "tasks: {a: {do: x}, s: {type: signal, name: go, transient: true, after: a}}", signalled, None, "go"),
    ("data", """
data: {n: {merge: last}}
tasks: {a: {do: x, onComplete: [{set: {n: '1'}}]}, b: {do: x, after: a}}
""", """
data: {n: {merge: append}}
tasks: {a: {do: x, onComplete: [{set: {n: '1'}}]}, b: {do: x, after: a}}
""", done("a"), None, "n"),
    ("input", A_B, "inputSchema: {type: object, required: [card]}\n" + A_B, began, None, "input"),
    ("output", A_B, "tasks: {a: {do: x, outputSchema: {type: string}}, b: {do: x, after: a}}", done("a"), None, "a"),
    ("limits", A_B, "limits: {runs: 1}\n" + A_B, began, None, ""),
    ("orchestration", A_B, "orchestration: data\ntasks: {a: {do: x}, b: {do: x, inputs: {v: {from: a}}}}", began, None, ""),
    ("orchestration", RULES, RULES.replace("when: 'true'", "when: input.n > 2"), began, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("why", "old", "new", "bring", "mapping", "key"), REFUSED)
def test_what_is_not_safe_is_refused_with_the_reason(
    why: str, old: str, new: str, bring: Callable[[Case], Case], mapping: dict[str, str] | None, key: str
) -> None:  # fmt: skip
    world = versions(old, new)
    world.plans["kid"] = plan_of("id: kid\ntasks: {k: {do: x}}")
    run = bring(world.start(None, {"n": 3}))

    found = refusals(run, mapping=mapping)

    assert (why, key) in [(each.why, each.key) for each in found], found
    assert all(each.message for each in found)


def test_what_is_given_up_and_has_not_ended_is_in_the_way_if_it_changes() -> None:
    old = "tasks: {a: {do: x, compensate: u}, s: {type: signal, name: stop}, k: {type: cancel, tasks: [a], after: s}, w: {type: signal}}"
    run = versions(old, old.replace("do: x", "do: y")).start(None, {"n": 3})
    run.begin("a")
    run.signal("stop")
    assert list(run.run.ending) == ["a"]

    assert ("leaving", "a", "`a` was told to stop and has not ended") in [
        (each.why, each.key, each.message) for each in refusals(run)
    ]


def test_every_reason_is_told_with_what_to_do() -> None:
    page = Path(__file__).parents[3] / "docs" / "howto" / "change-a-running-definition.md"
    told = set(re.findall(r"^\| `([a-z-]+)` \|", page.read_text(), re.MULTILINE))

    assert told == set(OBSTACLES)


def test_every_reason_has_a_definition_that_shows_it() -> None:
    assert set(OBSTACLES) == {why for why, *_ in REFUSED}


MOVED: list[tuple[str, str, Callable[[Case], Case], dict[str, str] | None]] = [
    # old, new, how it comes there, mapping: each a near miss of what is refused
    (A_B, "tasks: {a: {do: x}, b: {do: y, after: a}}", began, None),
    (A_B, "tasks: {a: {do: x, name: first}, b: {do: x, after: a}}", began, None),
    (A_B, "tasks: {a: {do: y}, b: {do: x, after: a}}", done("a"), None),
    (A_B, "tasks: {b: {do: x}}", done("a"), None),
    (A_B, "tasks: {a: {do: x}, n: {do: x, after: a}, b: {do: x, after: n}}", began, None),
    (A_B, "tasks: {n: {do: x}, a: {do: x, after: n}, b: {do: x, after: a}}", began, None),
    (A_B, "tasks: {q: {do: x}, b: {do: x, after: q}}", done("a"), {"a": "q"}),
    (A_B, "tasks: {a: {do: x}, q: {do: x, after: a}}", began, {"b": "q"}),
    ("tasks: {s: {type: signal, timeout: 1h}, b: {do: x, after: s}}",
     "tasks: {q: {type: signal, name: s, timeout: 1h}, b: {do: x, after: q}}", began, {"s": "q"}),
    ("tasks: {a: {do: x, compensate: u}, b: {do: x, after: a}}", "tasks: {q: {do: x, compensate: u}, b: {do: x, after: q}}",
     done("a"), {"a": "q"}),
    (PAIR, "tasks: {a: {do: x}, b: {do: x}, n: {do: x, after: b}, j: {do: x, after: [a, n]}}", done("a"), None),
    (PAIR, "tasks: {a: {do: x}, b: {do: x}, j: {do: y, after: [a, b]}}", done("a"), None),
    (EITHER % "all", EITHER % "merge", done("a"), None),
    (LOOP, LOOP.replace("c: {do: x", "c: {do: y"), done("a[1]/a"), None),
    (LOOP, LOOP.replace("b: {do: x", "b: {do: y"), began, None),
    (GATE.format(kind="event", first="s"), GATE.format(kind="event", first="q").replace("type: signal", "type: signal"), began,
     {"s": "q"}),
    (MAP.format(body="a: {do: x}, b: {do: x, after: a}"), MAP.format(body="a: {do: x}, n: {do: x, after: a}, b: {do: x, after: n}"),
     done("m[0]/a", "m[0]/b"), None),
    ("tasks: {a: {do: x}, s: {type: signal, name: go, after: a}}", "tasks: {a: {do: x}, n: {do: x, after: a}, s: {type: signal, name: go, after: n}}",
     signalled, None),
    (A_B, "inputSchema: {type: object, required: [n]}\n" + A_B, began, None),
    (A_B, "tasks: {a: {do: x, outputSchema: {type: integer}}, b: {do: x, after: a}}", done("a"), None),
    (A_B, "data: {k: {value: 1}}\ntimeouts: {run: 1h}\noutputs: {k: data.k}\n" + A_B, began, None),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "bring", "mapping"), MOVED)
def test_a_run_that_stands_well_goes_on_and_ends(
    old: str, new: str, bring: Callable[[Case], Case], mapping: dict[str, str] | None
) -> None:
    run = moves(bring(versions(old, new).start(None, {"n": 3})), mapping)

    for _ in range(50):
        if run.run.closed:
            break
        for name in list(run.run.waiters):
            run.signal(name, 1)
        for key in run.open:
            run.complete(key, 1)
    assert run.status == "COMPLETED"
    assert run.run.version == "2"
    assert run.replayed().run == run.run


def test_what_is_new_on_the_way_runs_and_what_was_passed_does_not() -> None:
    old = "tasks: {a: {do: x}, b: {do: x, after: a}}"
    new = "tasks: {n: {do: x}, a: {do: x, after: n}, m: {do: x, after: a}, b: {do: x, after: m}}"
    run = moves(versions(old, new).start())

    run.complete("a", 1)
    assert run.open == ["m"]
    assert run.task("n").status == "SKIPPED"


def test_by_which_link_it_came_to_where_it_stands_counts_no_more() -> None:
    """Found by the law (seed 42): the link that `n` was begun by is gone; a run of the new version stands there after `h`."""
    old = """
tasks: {a: {do: x}, t: {do: x, after: a}, h: {do: x}, n: {do: x, join: merge}, b: {do: x, after: n}}
links: [{from: a, to: h, on: error}, {from: a, to: n}, {from: h, to: n}]
"""
    new = old.replace("{from: a, to: n}, ", "")
    run = moves(done("a")(versions(old, new).start()))

    done("t", "n", "b")(run)
    assert run.status == "COMPLETED"
    there = versions(new).start()
    done("a", "t")(there)  # with the same input it never stands at `n`
    assert there.status == "COMPLETED"
    assert "n" not in there.completed()
    failed = versions(new).start()
    failed.fail("a", final=True)
    failed.complete("h", 1)
    assert failed.open == ["n"]


def test_a_body_that_came_to_no_end_stays_behind_though_the_new_version_gives_it_one() -> None:
    """Found by the law (seed 42): what has been passed counts no more, also where it would have ended otherwise."""
    old = """
tasks: {m: {type: loop, while: iteration < 2, body: {tasks: {a: {do: x}, b: {do: x}}, links: [%s{from: a, to: b, when: 'false'}]}}, h: {do: x}}
links: [{from: m, to: h, on: error}]
"""
    new = (old % "{from: a, to: c}, ").replace("b: {do: x}}", "b: {do: x}, c: {do: x}}")
    run = done("m[1]/a")(versions(old % "", new).start())
    assert run.task("m").failure is not None
    assert run.task("m").failure.code == "no-end"

    moves(run).complete("h", 1)
    assert run.status == "COMPLETED"
    there = done("m[1]/a")(versions(new).start())
    assert there.open == ["m[1]/c"]


def test_data_of_the_new_version_begins_as_there_and_what_was_written_stays() -> None:
    old = """
data: {kept: {value: 1}, gone: {value: 2}, fresh: {value: 3}}
tasks: {a: {do: x, onComplete: [{set: {kept: '9'}}]}, b: {do: x, after: a}}
"""
    new = """
data: {kept: {value: 0}, fresh: {value: 4}, more: {value: 5}}
tasks: {a: {do: x, onComplete: [{set: {kept: '9'}}]}, b: {do: x, after: a}}
"""
    run = done("a")(versions(old, new).start())

    assert moves(run).data == {"kept": 9, "fresh": 4, "more": 5}


def test_what_a_renamed_task_has_appended_has_its_place_by_the_name_of_today() -> None:
    """As in a run of the new version (SPEC 2.6: `append` in key order)."""
    one = """
data: {log: {merge: append}}
tasks:
  a: {do: x, onComplete: [{set: {log: '"first"'}}]}
  b: {do: x, onComplete: [{set: {log: '"second"'}}]}
  m: {type: map, items: '[1, 2]', body: {tasks: {i: {do: x, onComplete: [{set: {log: '"item"'}}]}}}, after: [a, b]}
  s: {type: signal, after: m}
"""
    run = versions(
        one, one.replace(" a: ", " z: ").replace("{a: ", "{z: ").replace("[a, b]", "[z, b]")
    ).start()
    for key in ("a", "b", "m[0]/i", "m[1]/i"):
        run.complete(key)
    assert run.data["log"] == ["first", "second", "item", "item"]

    moves(run, {"a": "z"})

    assert run.data["log"] == ["second", "item", "item", "first"]
    assert run.of(e.RunMigrated)[0].keyed


def test_an_event_of_old_leaves_what_was_appended_as_it_was() -> None:
    one = """
data: {log: {merge: append}}
tasks: {a: {do: x, onComplete: [{set: {log: '1'}}]}, b: {do: x, onComplete: [{set: {log: '2'}}]}, s: {type: signal, after: [a, b]}}
"""
    run = versions(
        one, one.replace(" a: ", " z: ").replace("{a: ", "{z: ").replace("[a, b]", "[z, b]")
    ).start()
    run.complete("a")
    run.complete("b")
    old = e.RunMigrated(at=run.world.now, version="2", was="1", mapping={"a": "z"})
    evolve(run.flow, old)

    assert run.data["log"] == [1, 2]


def test_the_timeout_of_the_run_is_that_of_the_new_version_from_the_same_beginning() -> None:
    run = versions("timeouts: {run: 1h}\n" + A_B, "timeouts: {run: 3h}\n" + A_B).start()
    run.skip(60)

    moves(run)

    assert run.due() == 1000.0 + 3 * 3600
    assert moves(versions("timeouts: {run: 1h}\n" + A_B, A_B).start()).due() is None


def test_a_run_that_has_not_begun_moves_whatever_changed() -> None:
    run = versions(A_B, "data: {n: {value: 1}}\ntasks: {q: {do: x}}").start(delay=60.0)

    moves(run).skip(61)

    assert run.open == ["q"]
    assert run.data == {"n": 1}


def test_undo_goes_by_the_names_of_today() -> None:
    old = "tasks: {a: {do: x, compensate: u}, b: {do: x, after: a}}"
    new = "tasks: {q: {do: x, compensate: u}, b: {do: x, after: q}}"
    run = moves(done("a")(versions(old, new).start()), {"a": "q"})

    run.fail("b", final=True)

    assert run.undoing == ["q"]
    run.complete("q")
    assert run.status == "FAILED"
    assert run.replayed().run == run.run


def test_a_migration_there_and_back_changes_nothing_else() -> None:
    run = done("a")(
        versions(A_B, "tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}}").start()
    )
    run.migrate("2")
    run.migrate("1")

    run.complete("b", 2)
    assert run.result == 2


def test_the_version_that_it_has_is_no_change_and_one_that_is_not_there_is_told() -> None:
    run = versions(A_B, A_B).start()

    assert run.migrate("1") == []
    with pytest.raises(NotFound, match="no version '9'"):
        run.migrate("9")


def test_a_run_that_stops_or_has_ended_stays_what_it_is() -> None:
    def refused(run: Case) -> str:
        before = run.digest()
        with pytest.raises(Rejected) as caught:
            run.migrate("2")
        assert run.digest() == before
        return caught.value.code

    run = versions(
        "tasks: {a: {do: x, compensate: u}, b: {do: x, after: a}}", "tasks: {c: {do: x}}"
    ).start()
    run.complete("a", 1)
    run.cancel()
    assert refused(run) == "run-stopping"
    run.terminate()
    assert refused(run) == "run-closed"


def test_a_reset_to_before_the_migration_is_one_of_the_old_version() -> None:
    run = versions(A_B, "tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}}").start()
    run.complete("a", 1)
    run.migrate("2")
    run.complete("b", 2)

    back = run.reset(2)
    assert back.run.version == "1"
    back.complete("b", 3)
    assert back.result == 3


def test_a_reset_to_after_the_migration_is_one_of_the_new() -> None:
    run = versions(A_B, "tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}}").start()
    run.complete("a", 1)
    run.migrate("2")
    run.complete("b", 2)

    again = run.reset(3)
    assert again.run.version == "2"
    again.complete("b", 3)
    again.complete("c", 4)
    assert again.result == 4


@pytest.mark.parametrize("value", ["a", "tasks.a.output"])
def test_a_mapping_that_cannot_be_is_refused(value: Any) -> None:
    run = versions(A_B, A_B).start()

    for mapping in ({"zz": "a"}, {"a": "zz"}, {"a": "b", "b": "b"}):
        with pytest.raises(Rejected) as caught:
            run.migrate("2", mapping)
        assert caught.value.code == "mapping-invalid"
