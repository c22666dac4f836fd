"""Each invariant finds the state that breaks it, and names it (SPEC 4.8): a checker that is silent proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from penstock.core.invariants import broken
from penstock.model.run import Letter, Scope, Undo, Undoing
from support.world import NOON, Case, World, given

ONE = "tasks:\n  a: {do: x}\n"
MAP = "tasks:\n  m: {type: map, items: '[1, 2]', limit: 1, body: {do: x}}\n"
LOOP = "tasks:\n  l: {type: loop, while: 'true', body: {do: x}}\n"
SIGNAL = "tasks:\n  s: {type: signal, name: go}\n  t: {type: signal, name: go}\n"
EVENT = "tasks:\n  w: {type: event, topic: a.b, where: 'true'}\n  a: {do: x}\n"
TIMER = "tasks:\n  t: {type: timer, delay: 5s}\n"
MUTEX = """
tasks:
  p: {type: mutex, name: door, body: {do: x}}
  q: {type: mutex, name: door, body: {do: x}}
"""
ENTRY = Undo(key="a", activity="back", arguments=Raw(b"[]"))


def undoing() -> Case:
    run = given("tasks:\n  a: {do: x, compensate: back}\n  b: {do: x, after: a}\n")
    run.complete("a")
    run.cancel()
    run.fail("b", "cancelled")
    return run


@pytest.mark.parametrize("source", [ONE, MAP, LOOP, SIGNAL, EVENT, TIMER, MUTEX])
def test_a_sound_run_breaks_nothing(source: str) -> None:
    run = given(source)
    assert broken(run.flow) == []
    run.pause()
    assert broken(run.flow) == []
    run.resume()
    run.cancel()
    assert broken(run.flow) == []
    if not run.run.closed:
        run.terminate()
        assert broken(run.flow) == []


def test_a_sound_run_that_undoes_breaks_nothing() -> None:
    run = undoing()
    assert run.undoing == ["a"]
    assert broken(run.flow) == []
    for _ in range(4):
        run.fail("a")
        assert broken(run.flow) == []
    assert [each.entry.key for each in run.run.undo_failed] == ["a"]


CLOSED: list[tuple[str, Any]] = [
    ("scopes", {"": Scope(plan="", parent=None, owner="", number=0)}),
    ("dues", [(1.0, "a")]),
    ("waiters", {"go": ["a"]}),
    ("listening", {"a": "t"}),
    ("signals", {"go": [Letter(ref=1, payload=b"1")]}),
    ("mutexes", {"m": ["a"]}),
    ("undoing", {"a": Undoing(ENTRY)}),
    ("outgoing", {"a": 1}),
    ("leaving", {"a": "b"}),
]


@pytest.mark.parametrize(("name", "value"), CLOSED, ids=[name for name, _ in CLOSED])
def test_a_closed_run_keeps_nothing(name: str, value: Any) -> None:
    run = given(ONE)
    run.complete("a")
    setattr(run.run, name, value)

    assert broken(run.flow) == [f"a closed run keeps {name}"]


def test_a_terminated_run_still_has_children_to_tell() -> None:
    world = World(
        "id: flow\ntasks:\n  c: {type: subworkflow, definition: other}\n",
        "id: other\ntasks:\n  a: {do: x}\n",
    )
    run = world.start("flow")
    world.start_child(run, "c")
    run.terminate()

    assert run.run.leaving
    assert broken(run.flow) == []


@pytest.mark.parametrize(("name", "value"), [("active", 1), ("paused", True)])
def test_a_closed_run_is_at_rest(name: str, value: Any) -> None:
    run = given(ONE)
    run.complete("a")
    setattr(run.run, name, value)

    assert broken(run.flow) == ["a closed run is active, paused or has not ended"]


def _set(path: str, **values: Any) -> Callable[[Case], None]:
    """Of the run (``), a scope (`m[0]/`) or a task (`m[0]/x`)."""

    def change(run: Case) -> None:
        target: Any = run.run
        if path == "/":
            target = run.run.scopes[""]
        elif path.endswith("/"):
            target = run.run.scopes[path[:-1]]
        elif path:
            target = run.task(path)
        for name, value in values.items():
            setattr(target, name, value)

    return change


def _forget(name: str, key: str) -> Callable[[Case], None]:
    def change(run: Case) -> None:
        del getattr(run.run, name)[key]

    return change


def _put(name: str, key: str, value: Any) -> Callable[[Case], None]:
    def change(run: Case) -> None:
        getattr(run.run, name)[key] = value

    return change


BROKEN: list[tuple[str, Callable[[Case], None], str]] = [
    (ONE, _set("/", open=2), "scope `` says 2 open, and has 1"),
    (ONE, _set("", active=0), "the run says 0 attempts, and has 1"),
    (ONE, _set("a", trues=2), "`a` has 1 links, and 2 were decided"),
    (ONE, _set("a", deads=1), "`a` has 1 links, and 2 were decided"),
    (ONE, _set("a", ended_at=NOON), "`a` is SCHEDULED and has ended"),
    (MAP, _set("m[0]/", parent=None), "scope `m[0]` has no parent"),
    (MAP, _set("m[0]/", parent="z"), "scope `m[0]` belongs to nobody who is open"),
    (MAP, _set("m[0]/", owner="z"), "scope `m[0]` belongs to nobody who is open"),
    (MAP, _set("m", status="COMPLETED", map=None), "scope `m[0]` belongs to nobody who is open"),
    (MAP, _set("m[0]/", number=1), "scope `m[0]` has another path than its owner gives it"),
    (MAP, _set("m[0]/", open=0), "nothing is open in scope `m[0]`, and it has not ended"),
    (LOOP, _forget("scopes", "l[1]"), "`l` runs with 0 scopes"),
    (
        LOOP,
        _put("scopes", "l[2]", Scope(plan="l", parent="", owner="l", number=2)),
        "`l` runs with 2 scopes",
    ),
    (SIGNAL, _put("waiters", "go", ["s", "t", "s"]), "a task waits twice for a signal"),
    (SIGNAL, _put("waiters", "go", ["s"]), "`t` waits for a signal that will not find it"),
    (EVENT, _forget("listening", "w"), "`w` is WAITING, and the bus has another idea of it"),
    (
        EVENT,
        _put("listening", "a", "a.b"),
        "`a` is SCHEDULED, and the bus has another idea of it",
    ),
    (EVENT, _put("listening", "z", "a.b"), "`z` listens to the bus and is not there"),
    (
        SIGNAL,
        _put("waiters", "go", ["s", "t", "z"]),
        "signal `go` would go to `z`, which does not wait",
    ),
    (
        SIGNAL,
        _set("s", status="COMPLETED"),
        "signal `go` would go to `s`, which does not wait",
    ),
    (SIGNAL, _put("waiters", "on", ["s"]), "`s` waits for another signal than `on`"),
    (
        SIGNAL,
        _put("signals", "go", [Letter(ref=1)]),
        "signal `go` is there and is waited for, or its list is empty",
    ),
    (
        ONE,
        _put("waiters", "go", []),
        "signal `go` is there and is waited for, or its list is empty",
    ),
    (ONE, _put("signals", "go", []), "an empty list of signals is kept"),
    (MUTEX, _put("mutexes", "door", ["p"]), "mutex task `q` stands 0 times in line"),
    (MUTEX, _put("mutexes", "door", ["p", "q", "q"]), "mutex task `q` stands 2 times in line"),
    (
        MUTEX,
        _put("mutexes", "door", ["p", "q", "z"]),
        "`z` stands in line for mutex `door`, and is gone",
    ),
    (
        MUTEX,
        _put("mutexes", "door", ["q", "p"]),
        "`q` is WAITING at place 0 of mutex `door`",
    ),
    (
        MUTEX,
        _put("mutexes", "door", ["q", "p"]),
        "`p` is RUNNING at place 1 of mutex `door`",
    ),
    (TIMER, _set("", dues=[(2.0, "t"), (NOON + 5, "t"), (1.0, "t")]), "the due times are no heap"),
    (TIMER, _set("", dues=[]), f"nothing will wake `t` at {NOON + 5}"),
    (ONE, _set("a", deadline=7.0), "nothing will wake `a` at 7.0"),
    (ONE, _set("", due=7.0), "nothing will wake `#run` at 7.0"),
    (ONE, _set("", grace=7.0), "nothing will wake `#grace` at 7.0"),
    (ONE, _set("", begin=7.0), "nothing will wake `#begin` at 7.0"),
    (ONE, _set("", deadline=7.0), "nothing will wake `#deadline` at 7.0"),
    (MAP, _set("m", map=None), "map `m` runs without its state"),
    (MAP, lambda run: _held(run, active=2), "map `m` says 2 items run, and has 1"),
    (MAP, lambda run: _held(run, completed=1), "map `m` has lost count of its items"),
    (MAP, lambda run: _held(run, failed=1), "map `m` has lost count of its items"),
    (MAP, lambda run: _held(run, results=[]), "map `m` has 0 results for 1 of 2 items"),
    (
        MAP,
        lambda run: _held(run, next=3, results=[0, 0, 0]),
        "map `m` has 3 results for 3 of 2 items",
    ),
    (ONE, _set("", undo=[ENTRY, ENTRY]), "one execution would be undone twice"),
    (ONE, _set("", undo=[ENTRY], rewind=[ENTRY]), "one execution would be undone twice"),
    (
        ONE,
        _set("", undo=[ENTRY], undoing={"a": Undoing(ENTRY)}),
        "one execution would be undone twice",
    ),
    (
        ONE,
        _set("", undo=[ENTRY], undo_failed=[Undoing(ENTRY)]),
        "one execution would be undone twice",
    ),
    (
        ONE,
        _set("", undoing={"a": Undoing(ENTRY)}),
        "something is undone before the run compensates",
    ),
    (ONE, _set("", rewinding=True), "the run rewinds and undoes nothing"),
    (
        ONE,
        _set("", rewinding=True, paused=True, paused_at=NOON),
        "the run rewinds and undoes nothing",
    ),
    (
        ONE,
        _set("", rewinding=True, undoing={"a": Undoing(ENTRY)}),
        "the run rewinds and undoes nothing",
    ),
    (ONE, _set("", compensating=True), "the run compensates and does not stop"),
    (ONE, _set("", compensating=True), "the run compensates while tasks are open"),
    (ONE, _set("", finished=True), "the run is finished and not closed"),
    (ONE, _set("a", status="COMPLETED"), "the run waits for nothing"),
    (ONE, _set("", paused=True), "the pause is not sound"),
    (ONE, _set("", paused_at=NOON), "the pause is not sound"),
    (ONE, _set("", paused=True, paused_at=NOON, stopping="CANCELLED"), "the pause is not sound"),
    (ONE, _forget("scopes", ""), "a run that has begun has no scope"),
    (ONE, _set("", status="COMPENSATING"), "the run says COMPENSATING and does not"),
    (ONE, _set("a", status="PENDING"), "all links of `a` are decided, and it has not fired"),
]


def _held(run: Case, **values: Any) -> None:
    for name, value in values.items():
        setattr(run.task("m").map, name, value)


@pytest.mark.parametrize(
    ("source", "change", "message"), BROKEN, ids=[f"{n} {b[2]}" for n, b in enumerate(BROKEN)]
)
def test_what_is_broken_is_named(source: str, change: Callable[[Case], None], message: str) -> None:
    run = given(source)
    assert broken(run.flow) == []
    change(run)

    assert message in broken(run.flow)


def test_what_still_follows_is_not_yet_to_go_on() -> None:
    """Between an event and the one that it leads to, a run may look as if it had ended."""
    run = given(ONE)
    run.run.finished = True
    run.run.pending = [run.events[0]]

    assert broken(run.flow) == []


@pytest.mark.parametrize(
    ("source", "change"),
    [
        (TIMER, _set("", dues=[], paused=True, paused_at=NOON)),
        (MUTEX, _set("", mutexes={}, stopping="FAILED", grace=None)),
        (ONE, _set("", deadline=7.0, late=True)),
    ],
    ids=[
        "in a pause nothing is woken",
        "what stops leaves its lines",
        "a deadline that was missed",
    ],
)
def test_what_is_no_breach_is_not_named(source: str, change: Callable[[Case], None]) -> None:
    run = given(source)
    change(run)

    assert broken(run.flow) == []
