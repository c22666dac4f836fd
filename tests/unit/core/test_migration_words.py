"""All that a preview of a migration tells, word by word, and how the run's own times and names move (SPEC 2.7, 3.8).

`python tests/unit/core/test_migration_words.py` writes moves.json anew; look at what has changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

from penstock.core.migration import preview_of  # noqa: E402
from penstock.core.plan import Plan  # noqa: E402
from penstock.errors import NotFound, Rejected  # noqa: E402
from penstock.model import commands as c  # noqa: E402
from penstock.model import events as e  # noqa: E402
from penstock.model.run import Undo  # noqa: E402
from support.world import NOON, Case, World, plan_of  # noqa: E402

CASES: dict[str, tuple[str, str, list[tuple[str, Any]], dict[str, str]]] = {
    # name: old, new, what happens before, mapping
    "open and removed": ("tasks: {a: {do: x}, b: {do: x, after: a}}", "tasks: {b: {do: x}}", [], {}),
    "open and changed in much": (
        "tasks: {a: {do: x, priority: high}}",
        "tasks: {a: {do: y, retry: {attempts: 3}, priority: low, queue: q, timeout: 9s}}",
        [], {},
    ),
    "open with other conditions, another name and another join": (
        "tasks: {a: {do: x, conditions: ['true']}}", "tasks: {a: {do: x, name: first, conditions: ['input.n > 1'], join: all}}", [], {},
    ),
    "config alone": ("tasks: {s: {type: signal, timeout: 1h}}", "tasks: {s: {type: signal, timeout: 2h, name: t}}", [], {}),
    "open and renamed": ("tasks: {a: {do: x}}", "tasks: {q: {do: x}}", [], {"a": "q"}),
    "a wait that is renamed": ("tasks: {s: {type: signal, name: go}}", "tasks: {q: {type: signal, name: go}}", [], {"s": "q"}),
    "a child that is renamed": (
        "tasks: {c: {type: subworkflow, definition: kid}}", "tasks: {q: {type: subworkflow, definition: kid}}", [], {"c": "q"},
    ),
    "done and renamed": (
        "tasks: {a: {do: x, compensate: u}, b: {do: x, after: a}}", "tasks: {q: {do: x, compensate: u}, b: {do: x, after: q}}",
        [("a", 1)], {"a": "q"},
    ),
    "done and gone": ("tasks: {a: {do: x}, b: {do: x, after: a}}", "tasks: {b: {do: x}}", [("a", 1)], {}),
    "to undo and gone": (
        "tasks: {a: {do: x, compensate: u}, b: {do: x, after: a}}", "tasks: {b: {do: x}}", [("a", 1)], {},
    ),
    "to undo and changed": (
        "tasks: {a: {do: x, compensate: u}, b: {do: x, after: a}}", "tasks: {a: {do: x, compensate: v}, b: {do: x, after: a}}",
        [("a", 1)], {},
    ),
    "two of a body": (
        "tasks: {m: {type: map, items: '[1, 2]', body: {tasks: {a: {do: x}, b: {do: x, after: a}}}}}",
        "tasks: {m: {type: map, items: '[1, 2]', body: {tasks: {b: {do: x}}}}}",
        [("m[0]/a", 1)], {},
    ),
    "renamed with its body": (
        "tasks: {m: {type: loop, while: 'true', body: {tasks: {a: {do: x}, s: {type: signal, name: go, after: a}}}}}",
        "tasks: {m: {type: loop, while: 'true', body: {tasks: {q: {do: x}, r: {type: signal, name: go, after: q}}}}}",
        [("m[1]/a", 1)], {"m/a": "m/q", "m/s": "m/r"},
    ),
    "results of a map": (
        "tasks: {m: {type: map, items: '[1, 2]', limit: 1, body: {tasks: {a: {do: x}}}}}",
        "tasks: {m: {type: map, items: '[1, 2]', limit: 1, body: {tasks: {a: {do: x}, b: {do: x, after: a}}}}}",
        [("m[0]/a", 1)], {},
    ),
    "results of a map that has none yet": (
        "tasks: {m: {type: map, items: '[1, 2]', limit: 1, body: {tasks: {a: {do: x}}}}}",
        "tasks: {m: {type: map, items: '[1, 2]', limit: 1, body: {tasks: {a: {do: x}, b: {do: x, after: a}}}}}",
        [], {},
    ),
    "results of a map under another name": (
        "tasks: {m: {type: map, items: '[1, 2]', limit: 1, body: {tasks: {a: {do: x}, b: {do: x, after: a}}}}}",
        "tasks: {m: {type: map, items: '[1, 2]', limit: 1, body: {tasks: {a: {do: x}, q: {do: x, after: a}}}}}",
        [("m[0]/a", 1), ("m[0]/b", 1)], {"m/b": "m/q"},
    ),
    "armed by another kind": (
        "tasks: {g: {type: gateway, kind: event}, s: {type: signal, after: g}, t: {type: timer, delay: 1h, after: g}}",
        "tasks: {g: {type: gateway, kind: parallel}, s: {type: signal, after: g}, t: {type: timer, delay: 1h, after: g}}",
        [], {},
    ),
    "armed under another name": (
        "tasks: {g: {type: gateway, kind: event}, s: {type: signal, after: g}, t: {type: timer, delay: 1h, after: g}}",
        "tasks: {h: {type: gateway, kind: event}, s: {type: signal, after: h}, t: {type: timer, delay: 1h, after: h}}",
        [], {"g": "h"},
    ),
    "one of a gate is not of it": (
        "tasks: {g: {type: gateway, kind: event}, s: {type: signal, after: g}, t: {type: timer, delay: 1h, after: g}}",
        "tasks: {g: {type: gateway, kind: event}, s: {type: signal, after: g}, t: {type: timer, delay: 1h}}",
        [], {},
    ),
    "a join of all that was half there": (
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [a, b, c], join: all}}",
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [a, b, c], join: {n: 2}}}",
        [("a", 1)], {},
    ),
    "a join that would fire": (
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [a, b, c], join: all}}",
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [a, b, c], join: {n: 2}}}",
        [("a", 1), ("b", 1)], {},
    ),
    "a join that could not fire any more": (
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [b, c], join: {n: 2}}}\nlinks: [{from: a, to: j, when: 'false'}]",
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [b, c], join: {n: 3}}}\nlinks: [{from: a, to: j, when: 'false'}]",
        [("a", 1)], {},
    ),
    "passed in a row": (
        "tasks: {a: {do: x}, b: {do: x, after: a}}",
        "tasks: {n: {do: x}, o: {do: x, after: n}, a: {do: x, after: o}, b: {do: x, after: a}}", [], {},
    ),
    "passed after what is not over": (
        "tasks: {a: {do: x}, b: {do: x}}", "tasks: {a: {do: x}, n: {do: x, after: a}, b: {do: x, after: n}}", [], {},
    ),
    "passed in a loop and read outside": (
        "tasks: {l: {type: loop, while: 'true', body: {tasks: {a: {do: x}, b: {do: x, after: a}}}}}",
        "tasks: {l: {type: loop, while: 'true', body: {tasks: {n: {do: x}, a: {do: x, after: n}, b: {do: x, after: a, inputs: {v: {from: n}}}}}}}",
        [], {},
    ),
    "passed and read by all that reads": (
        "tasks: {a: {do: x}, b: {do: x, after: a}}",
        """
tasks:
  n: {do: x}
  a: {do: x, after: n}
  b: {do: x, after: a, conditions: ['tasks.n.output > 1'], inputs: {t: {template: '${tasks.n.output}'}}}
  c: {type: transform, set: {k: tasks.n.output}, after: b}
  d: {do: x, onComplete: [{set: {k: tasks.n.status}}], after: c, compensate: {activity: u, inputs: {p: {from: n}}}}
  e: {type: timer, delay: '${tasks.n.output}', after: d}
  f: {do: x}
  g: {type: map, items: 'tasks.n.output', body: {tasks: {i: {do: x, inputs: {v: {from: n}}}}}, after: e}
  h: {do: x, after: g, onError: [{publish: {topic: t, payload: '${tasks.n.output}'}}]}
links: [{from: e, to: f, when: tasks.n.output > 2}]
outputs: {o: tasks.n.output}
""", [], {},
    ),
    "passed and given as the result": (
        "tasks: {a: {do: x}}", "tasks: {n: {do: x}, a: {do: x, after: n}}\noutputs: {n: tasks.n.output, a: tasks.a.output}", [], {},
    ),
    "passed and hidden by the same name inside": (
        "tasks: {a: {do: x}, b: {do: x, after: a}}",
        "tasks: {n: {do: x}, a: {do: x, after: n}, b: {type: map, items: '[1]', after: a, body: {tasks: {n: {do: x}, i: {do: x, after: n, inputs: {v: {from: n}}}}}}}",
        [], {},
    ),
    "passed and read by a computed name": (
        "tasks: {a: {do: x}, b: {do: x, after: a}}",
        "tasks: {n: {do: x}, a: {do: x, after: n}, b: {do: x, after: a, conditions: ['tasks[input.which].output > 1']}}", [], {},
    ),
    "passed in a natural loop and read in it and after it": (
        "tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}}\nlinks: [{from: b, to: a, when: iteration < 3}]",
        "tasks: {a: {do: x}, n: {do: x, after: a}, b: {do: x, after: n, onComplete: [{set: {k: tasks.n.output}}]}, c: {do: x, after: b, inputs: {v: {from: n}}}}\nlinks: [{from: b, to: a, when: iteration < 3}]",
        [("a[1]/a", 1)], {},
    ),
    "a loop in one version": (
        "tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}}\nlinks: [{from: b, to: a, when: iteration < 3}]",
        "tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}}", [("a[1]/a", 1)], {},
    ),
    "a back link that is gone": (
        "tasks: {a: {do: x}, b: {do: x, after: a}, d: {do: x, after: a}, c: {do: x, after: b}}\nlinks: [{from: b, to: a, when: iteration < 3}, {from: d, to: a, when: iteration < 3}]",
        "tasks: {a: {do: x}, b: {do: x, after: a}, d: {do: x, after: a}, c: {do: x, after: b}}\nlinks: [{from: d, to: a, when: iteration < 3}]",
        [("a[1]/a", 1), ("a[1]/b", 1)], {},
    ),
    "a link out of a loop is gone": (
        "tasks: {a: {do: x}, b: {do: x, after: a}, d: {do: x, after: a}, c: {do: x, after: b}}\nlinks: [{from: b, to: a, when: iteration < 3}, {from: d, to: a, when: iteration < 3}]",
        "tasks: {a: {do: x}, b: {do: x, after: a}, d: {do: x, after: a}, c: {do: x, after: d}}\nlinks: [{from: b, to: a, when: iteration < 3}, {from: d, to: a, when: iteration < 3}]",
        [("a[1]/a", 1), ("a[1]/b", 1)], {},
    ),
    "a link out of a loop that stays": (
        "tasks: {a: {do: x}, b: {do: x, after: a}, d: {do: x, after: a}, c: {do: x, after: b}}\nlinks: [{from: b, to: a, when: iteration < 3}, {from: d, to: a, when: iteration < 3}]",
        "tasks: {a: {do: x}, b: {do: x, after: a}, d: {do: x, after: a}, c: {do: y, after: b}}\nlinks: [{from: b, to: a, when: iteration < 3}, {from: d, to: a, when: iteration < 3}]",
        [("a[1]/a", 1), ("a[1]/b", 1)], {},
    ),
    "a join of any that has fired and has a link more": (
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [a, b], join: any}}",
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [a, b, c], join: any}}",
        [("a", 1)], {},
    ),
    "a join of all that has fired and has a link more": (
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [a, b], join: all}}",
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, j: {do: x, after: [a, b, c], join: all}}",
        [("a", 1), ("b", 1)], {},
    ),
    "a new link to an end that was reached": (
        "tasks: {a: {do: x}, z: {do: x, after: a}, b: {do: x}}",
        "tasks: {a: {do: x}, z: {do: x, after: a}, b: {do: x}, end: {type: end}}\nlinks: [{from: a, to: end}, {from: z, to: end}, {from: b, to: end}]",
        [("a", 1), ("z", 1)], {},
    ),
    "a new link to an end that was not": (
        "tasks: {a: {do: x}, z: {do: x, after: a}, b: {do: x}}",
        "tasks: {a: {do: x}, z: {do: x, after: a}, b: {do: x}, end: {type: end}}\nlinks: [{from: a, to: end}, {from: z, to: end}, {from: b, to: end}]",
        [("a", 1)], {},
    ),
    "a start under another name": (
        "tasks: {a: {do: x}, b: {do: x, after: a}}", "tasks: {go: {type: start}, a: {do: x, after: go}, b: {do: x, after: a}}", [], {},
    ),
    "passed and part of the result": (
        "tasks: {a: {do: x}, z: {do: x}}",
        "tasks: {n: {do: x}, a: {do: x, after: n}, z: {do: x}, end: {type: end}}\nlinks: [{from: n, to: end}, {from: a, to: end}, {from: z, to: end}]", [("z", 1)], {},
    ),
    "passed and no part of the outputs": (
        "tasks: {a: {do: x}, z: {do: x}}\noutputs: {o: '1'}",
        "tasks: {n: {do: x}, a: {do: x, after: n}, z: {do: x}, end: {type: end}}\nlinks: [{from: n, to: end}, {from: a, to: end}, {from: z, to: end}]\noutputs: {o: '1'}", [("z", 1)], {},
    ),
    "four in the way": (
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x}, d: {do: x}, e: {do: x}}",
        "tasks: {a: {do: y}, b: {do: y}, c: {do: y}, d: {do: y}, e: {do: y}}", [], {},
    ),
}  # fmt: skip


def versions(*texts: str) -> World:
    kin: dict[str, Plan] = {}
    for number, text in enumerate(texts, 1):
        plan_of(text).join(kin, str(number))
    world = World(kin["1"])
    world.plans["kid"] = plan_of("id: kid\ntasks: {k: {do: x}}")
    return world


def told(name: str) -> dict[str, Any]:
    old, new, before, mapping = CASES[name]
    run = versions(old, new).start(None, {"n": 3})
    for key, output in before:
        run.complete(key, output)
    move = preview_of(run.flow, "2", mapping)
    assert (move.run, move.before, move.after, move.mapping) == ("run", "1", "2", mapping)
    return {
        "obstacles": [[each.why, each.key, each.message] for each in move.obstacles],
        "dropped": list(move.dropped),
        "renamed": move.renamed,
        "passed": list(move.passed),
    }


@pytest.mark.parametrize("name", CASES)
def test_a_preview_tells_all_of_it(name: str) -> None:
    assert told(name) == json.loads((HERE / "moves.json").read_text())[name]


def started(old: str, new: str, **more: Any) -> Case:
    return versions(old, new).start(None, None, **more)


A = "tasks: {a: {do: x}}"


def migrate(run: Case, version: str = "2", mapping: Mapping[str, str] | None = None) -> e.Event:
    command = c.MigrateRun(
        at=run.world.now, version=version, mapping=dict(mapping or {}), by="ann", reason="newer"
    )
    return run.command(command)[0]


def test_a_move_keeps_by_whom_why_and_from_where() -> None:
    run = started(A, A)

    assert migrate(run) == e.RunMigrated(
        at=NOON, version="2", was="1", mapping={}, passed=[], due=None, by="ann", reason="newer"
    )
    assert run.command(c.MigrateRun(at=NOON, version="2", mapping={})) == []


@pytest.mark.parametrize(
    ("old", "new", "more", "due"),
    [
        ("", "timeouts: {run: 100s}\n", {}, NOON + 100),
        ("timeouts: {run: 100s}\n", "timeouts: {run: 40s}\n", {}, NOON + 40),
        ("timeouts: {run: 100s}\n", "", {}, None),
        ("timeouts: {run: 100s}\n", "timeouts: {run: 100s}\n", {}, NOON + 100),
        ("", "timeouts: {run: 100s}\n", {"delay": 60}, NOON + 160),
        ("timeouts: {run: 100s}\n", "timeouts: {run: 40s}\n", {"delay": 60}, NOON + 100),
        ("limits: {runs: 1}\n", "limits: {runs: 2}\ntimeouts: {run: 40s}\n", {}, None),
    ],
)
def test_the_timeout_of_the_new_version_counts_from_the_same_moment(
    old: str, new: str, more: dict[str, Any], due: float | None
) -> None:
    run = started(old + A, new + A, **more)
    run.world.now += 10
    migrate(run)

    assert run.run.due == due
    assert due is None or (due, "#run") in run.run.dues


def test_a_timeout_that_a_pause_has_put_off_stays_so() -> None:
    run = started("timeouts: {run: 100s}\n" + A, "timeouts: {run: 40s}\n" + A)
    run.pause()
    run.world.now += 10
    run.resume()
    assert run.run.due == NOON + 110
    migrate(run)

    assert run.run.due == NOON + 50


def test_a_gate_under_another_name_still_has_one_winner() -> None:
    old, new, _, mapping = CASES["armed under another name"]
    run = started(old, new)
    migrate(run, mapping=mapping)
    assert run.task("s").group == "h"
    run.signal("s")

    assert run.status == "COMPLETED"


def test_what_waits_under_another_name_is_found_there() -> None:
    old = """
tasks:
  s: {type: signal, name: go, timeout: 60s}
  w: {type: event, topic: a.b, where: 'true'}
  p: {type: mutex, name: door, body: {tasks: {i: {type: signal, name: in}}}}
"""
    run = started(old, old.replace(" s:", " q:").replace(" w:", " v:"))
    migrate(run, mapping={"s": "q", "w": "v"})

    assert run.run.waiters == {"go": ["q"], "in": ["p[1]/i"]}
    assert run.run.listening == {"v": "a.b"}
    assert run.run.dues == [(NOON + 60, "q")]
    assert run.run.mutexes == {"door": ["p"]}


def test_what_a_child_did_is_undone_under_the_same_key() -> None:
    text = "tasks: {c: {type: subworkflow, definition: kid}, b: {do: x, after: c}}"
    run = started(text, text.replace("b: {do: x", "b: {do: x, name: again"))
    entry = Undo(key="k", activity="back", arguments=Raw(b"[]"))
    run.command(c.RecordChild(at=NOON, key="c", run="run/c", version="1"))
    run.command(c.CloseChild(at=NOON, key="c", status="COMPLETED", run="run/c", undo=(entry,)))
    assert [each.key for each in run.run.undo] == ["c/k"]
    migrate(run)

    assert [each.key for each in run.run.undo] == ["c/k"]


def test_the_last_pass_of_a_loop_is_read_under_the_names_of_today() -> None:
    old = """
tasks: {a: {do: x}, b: {do: x, after: a}, c: {do: x, after: b}, n: {do: x, after: b}}
links: [{from: n, to: a, when: iteration < 3}]
"""
    run = started(old, old.replace("b: {", "q: {").replace("after: b", "after: q"))
    for key in ("a", "b", "n"):
        run.complete(f"a[1]/{key}", key)
    last = run.task("a").last
    assert last is not None
    assert sorted(last) == ["a", "b", "n"]
    migrate(run, mapping={"b": "q"})

    last = run.task("a").last
    assert last is not None
    assert sorted(last) == ["a", "n", "q"]
    assert run.open == ["a[2]/a"]


def refused(run: Case, version: str = "2", mapping: Mapping[str, str] | None = None) -> Rejected:
    with pytest.raises(Rejected) as caught:
        migrate(run, version, mapping)
    return caught.value


def test_a_refusal_tells_the_first_three_and_how_many_there_are() -> None:
    old, new, *_ = CASES["four in the way"]
    error = refused(started(old, new))

    assert error.code == "migration-unsafe"
    assert error.message == (
        "run run cannot go on as version 2: `a` is open, and has changed (config.activity); "
        "`b` is open, and has changed (config.activity); `c` is open, and has changed (config.activity); and 2 more"
    )
    assert str(error.hint).startswith("let it go on until that is over, or change the new version")
    assert error.facts["run_id"] == "run"
    assert len(error.facts["obstacles"]) == 5
    three = refused(started("tasks: {a: {do: x}, b: {do: x}, c: {do: x}}", "tasks: {a: {do: y}, b: {do: y}, c: {do: y}}"))  # fmt: skip
    assert three.message.endswith("`c` is open, and has changed (config.activity)")
    fields = refused(started("tasks: {a: {do: x}}", "tasks: {a: {do: x, retry: {attempts: 3}, priority: low, queue: q}}"))  # fmt: skip
    assert fields.message.endswith("`a` is open, and has changed (retry, priority, queue)")


@pytest.mark.parametrize(
    ("mapping", "message", "hint"),
    [
        ({"z": "a"}, "the old version has no task `z`", "it has: a, end, m, m/end, m/i, m/start, start"),
        ({"a": "y" * 90}, f"the new version has no task `{'y' * 80}`", "it has: a, end, m, m/end, m/i, m/start, start"),
        ({"a": "m", "m": "m"}, "two tasks would become `m`", "map each task to one of its own"),
        ({"a": "m/i"}, "`a` and `m/i` are not in the same body",
         "a task stays in its body; map the task that has the body too, if that is renamed"),
    ],
)  # fmt: skip
def test_a_mapping_that_cannot_be_is_refused(
    mapping: dict[str, str], message: str, hint: str
) -> None:
    text = "tasks: {a: {do: x}, m: {type: map, items: '[1]', body: {tasks: {i: {do: x}}}}}"
    error = refused(started(text, text), mapping=mapping)

    assert (error.code, error.message, error.hint) == ("mapping-invalid", message, hint)


def test_long_lists_of_tasks_are_cut() -> None:
    text = f"tasks: {{{', '.join(f't{n:02}: {{do: x}}' for n in range(12))}}}"

    assert str(refused(started(text, text), mapping={"z": "a"}).hint).endswith("t06, t07, …")


def test_a_run_that_has_ended_stops_or_rewinds_is_not_moved() -> None:
    run = started(A, A)
    run.cancel()
    error = refused(run)
    assert (error.code, error.hint) == ("run-stopping", "`why` says what it waits for")
    assert error.facts == {"run_id": "run"}
    assert error.message == (
        "run run is being stopped and then ends CANCELLED; its version cannot be changed now"
    )
    with pytest.raises(NotFound) as caught:
        preview_of(run.flow, "9", {})
    assert caught.value.message == "run run is one of `flow`, which has no version '9'"
    assert caught.value.hint == "take one that is registered"
    run.fail("a", "cancelled")
    with pytest.raises(Rejected, match="run run has ended CANCELLED") as closed:
        preview_of(run.flow, "2", {})
    assert (closed.value.code, closed.value.facts) == ("run-closed", {"run_id": "run"})


if __name__ == "__main__":
    (HERE / "moves.json").write_text(
        json.dumps({name: told(name) for name in CASES}, indent=1, ensure_ascii=False) + "\n"
    )
