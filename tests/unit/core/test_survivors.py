"""Lines that mutants changed and no test saw (docs/concepts/survival.md): what is loaded ahead, digests of large signals, errors
as expressions see them, keys of failures in nested scopes, data and names after a move, from where a retry goes on, links of loops."""

from __future__ import annotations

import pytest

from penstock.core.identity import digest_of, signal_digest
from penstock.core.loops import Irreducible, Loop, outer_loops
from penstock.core.owed import leaves, references
from penstock.core.pairing import Pairing, _around
from penstock.core.plan import Plan
from penstock.core.reopening import retry_point
from penstock.core.values import Variables, error_value
from penstock.errors import NotFound
from penstock.model.failure import Failure
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX
from penstock.model.run import MapState, Run, Scope, TaskState
from support.world import World, given, plan_of

# --- what is loaded ahead


def running(*states: TaskState, item: object = 0) -> Run:
    scope = Scope(item=item, tasks={f"t{n}": state for n, state in enumerate(states)})
    return Run(scopes={"": Scope(), "m": scope})


@pytest.mark.parametrize(
    ("following", "wanted"), [(0, {21, 22, 23}), (2, {21, 22, 23}), (3, {22, 23}), (5, set[int]())]
)
def test_of_items_that_signals_added_those_are_loaded_ahead_that_are_still_to_come(
    following: int, wanted: set[int]
) -> None:
    """Two came with the map, three by signals."""
    held = MapState(items=7, total=5, extra=[21, 22, 23], next=following)

    assert references(running(TaskState(), TaskState(map=held))) == {7} | wanted


def test_a_map_that_had_enough_loads_nothing_and_the_next_one_its_own() -> None:
    enough = TaskState(map=MapState(items=7, total=2, done=True))
    other = TaskState(map=MapState(items=8, total=2))

    assert references(running(enough, other)) == {8}


def test_the_item_of_a_scope_is_loaded_ahead_where_it_is_a_reference() -> None:
    assert references(running(item=31)) == {31}
    assert references(running(item=[7, 1])) == set()
    assert references(running(TaskState(map=MapState(items=0, total=1)), item=0)) == set()


def test_a_tree_of_references_is_taken_to_its_leaves() -> None:
    found = {9}
    leaves({"a": [1, {"b": 2}, [3]], "c": 4}, found)

    assert found == {1, 2, 3, 4, 9}


# --- digests and errors


def test_of_a_signal_that_is_kept_beside_its_event_the_size_is_told_apart_and_nothing_else() -> (
    None
):
    most = INLINE_PAYLOAD_BYTES_MAX

    assert signal_digest("go", b"1", most) == digest_of(b"go\0" + b"1")
    assert signal_digest("go", b"1", most + 1) == digest_of(b"go\0%d bytes" % (most + 1))
    assert signal_digest("go", b"2", most + 1) == signal_digest("go", b"1", most + 1)
    assert signal_digest("go", b"1", most + 2) != signal_digest("go", b"1", most + 1)


def test_an_error_has_its_details_and_its_cause() -> None:
    cause = Failure(code="away", message="no line", type="OSError", details={"n": 1})
    failure = Failure(code="bad", message="no", type="E", details=[2], cause=cause)

    assert error_value(failure) == {
        "code": "bad", "message": "no", "type": "E", "details": [2],
        "cause": {"code": "away", "message": "no line", "type": "OSError", "details": {"n": 1}, "cause": None},
    }  # fmt: skip


def test_the_roots_are_named() -> None:
    run = given("tasks:\n  a: {do: x}\n")
    roots = Variables(run.flow, "")

    assert list(roots) == ["input", "tasks", "data", "global", "run", "now"]
    assert len(roots) == 6


# --- keys of failures in nested scopes


def test_a_join_that_starves_in_a_body_is_named_with_its_scope() -> None:
    run = given(
        """
tasks:
  m:
    type: map
    items: '[1]'
    body:
      tasks: {a: {do: x}, b: {do: x}, j: {do: x, join: all}}
      links: [{from: a, to: j}, {from: b, to: j, when: 'false'}]
"""
    )
    run.complete("m[0]/a")
    run.complete("m[0]/b")

    failure = run.failure
    while failure is not None and failure.code != "join-starved":
        failure = failure.cause
    assert failure is not None
    assert failure.key == "m[0]/j"


CANCELS = """
tasks:
  m:
    type: map
    items: '[1]'
    body:
      tasks:
        a: {do: x, compensate: {activity: u, when: attempted, inputs: {p: '${tasks.b.output.no}'}}}
        b: {do: x}
        k: {type: cancel, tasks: [a], after: b}
  s: {type: signal, after: m}
"""


def test_what_was_attempted_and_is_cancelled_in_a_body_is_undone_by_its_key() -> None:
    run = given(CANCELS)
    run.begin("m[0]/a")
    run.complete("m[0]/b", {"no": 1})

    assert [entry.key for entry in run.run.undo] == ["m[0]/a"]


def test_so_is_what_stops_in_a_body_as_its_run_is_cancelled() -> None:
    run = given(CANCELS.replace("tasks.b.output.no", "item"))
    run.begin("m[0]/a")
    run.cancel()
    run.fail("m[0]/b", "cancelled")
    run.fail("m[0]/a", "cancelled")

    assert run.code == "cancelled"
    assert run.undoing == ["m[0]/a"]


def test_an_undo_that_can_not_be_noted_fails_the_scope_of_what_is_cancelled_by_its_key() -> None:
    run = given(CANCELS)
    run.begin("m[0]/a")
    run.complete("m[0]/b", {})

    failure = run.failure
    while failure is not None and failure.cause is not None:
        failure = failure.cause
    assert failure is not None
    assert failure.key == "m[0]/a"


# --- after a move

OLD = """
id: flow
data: {plain: {value: 1}, one: {value: 0}, two: {value: 0}, log: {merge: append}}
tasks:
  a: {do: x, onComplete: [{set: {one: '1', log: '"a"'}}]}
  g: {do: x, onComplete: [{set: {two: '2'}}]}
  m:
    type: map
    items: '[1]'
    body: {tasks: {i: {do: x}, w: {type: loop, until: 'true', body: {tasks: {k: {do: x}}}, after: i}}}
    after: [a, g]
  s: {type: signal, after: m}
  o: {type: map, items: '[1]', body: {tasks: {i: {do: x}}}, after: s}
"""
NEW = """
id: flow
data: {plain: {value: 1}, one: {value: 0}, two: {value: 0}, log: {merge: append}}
tasks:
  z: {do: x, onComplete: [{set: {one: '1', log: '"a"'}}]}
  m:
    type: map
    items: '[1]'
    body: {tasks: {h: {do: x}, w: {type: loop, until: 'true', body: {tasks: {k: {do: x}}}, after: h}}}
    after: z
  s: {type: signal, after: m}
"""
MAPPING = {"a": "z", "m/i": "m/h"}


def test_a_datum_is_of_who_wrote_it_under_the_name_of_today_or_of_nobody() -> None:
    kin: dict[str, Plan] = {}
    for version, text in (("1", OLD), ("2", NEW)):
        plan_of(text).join(kin, version)
    run = World(kin["1"]).start()
    run.complete("a")
    run.complete("g")
    run.complete("m[0]/i")
    run.migrate("2", MAPPING)

    data = run.run.data
    assert (data["one"].key, data["one"].node) == ("z", "z")
    assert (data["two"].key, data["two"].node, bytes(data["two"].value)) == ("", "", b"2")
    assert bytes(data["one"].value) == b"1"
    assert (data["plain"].key, bytes(data["plain"].value)) == ("", b"1")
    assert run.data == {"plain": 1, "one": 1, "two": 2, "log": ["a"]}


@pytest.mark.parametrize(
    ("key", "was", "now", "today"),
    [
        ("a", "a", "z", "z"),
        ("g", "g", None, "g"),
        ("m", "m", "m", "m"),
        ("m[0]", "m", "m", "m[0]"),
        ("m[0]/i", "m/i", "m/h", "m[0]/h"),
        ("m[3]/w[2]/k", "m/w/k", "m/w/k", "m[3]/w[2]/k"),
        ("m[0]/i/deep[1]/er", "m/i", "m/h", "m[0]/h/deep[1]/er"),
        ("a/b", "a", "z", "z/b"),
        ("o[0]/i", "o/i", None, "o[0]/i"),
        ("none/a", None, None, "none/a"),
    ],
)
def test_a_key_of_old_is_found_under_the_names_of_today(
    key: str, was: str | None, now: str | None, today: str
) -> None:
    found, after, name = Pairing(plan_of(OLD), plan_of(NEW), MAPPING).node(key)

    assert (found and found.path, after and after.path, name) == (was, now, today)


def test_around_a_natural_loop_are_the_loops_and_the_body_that_it_is_in() -> None:
    plan = plan_of(
        """
tasks:
  m:
    type: map
    items: '[1]'
    body:
      tasks: {a: {do: x}, b: {do: x}, c: {do: x}, d: {do: x}}
      links:
        - {from: a, to: b}
        - {from: b, to: c}
        - {from: c, to: b, when: 'false'}
        - {from: c, to: d, when: 'true'}
        - {from: d, to: a, when: 'false'}
"""
    )
    natural = {path for path, scope in plan.scopes.items() if scope.kind == "natural"}
    assert len(natural) == 2
    inner, outer = (plan.scopes[path] for path in sorted(natural, key=len, reverse=True))
    (body,) = (scope for scope in plan.scopes.values() if scope.kind == "map")

    assert _around(inner) == [outer, body]
    assert _around(outer) == [body]
    assert _around(body) == []
    assert _around(plan.root) == []


# --- from where a retry goes on, and links of loops


def test_a_retry_of_what_ended_after_the_run_began_to_stop_goes_on_before_that() -> None:
    run = given("tasks: {a: {do: x}, b: {do: x}}\n")
    run.complete("a", 1)
    run.begin("b")
    run.cancel()
    run.complete("b", 1)
    past = run.walked().past

    assert (run.status, past.stopping, past.ended["a"], past.ended["b"]) == ("CANCELLED", 4, 2, 5)
    assert retry_point(past, "b") == (3, "b")
    assert retry_point(past, "a") == (1, "a")
    assert retry_point(past, None) == (3, "")


def test_a_retry_of_a_run_that_failed_goes_on_before_it_began_to_stop() -> None:
    """Also if the task that it failed by ended later, or is not known to have ended."""
    run = given("tasks:\n  a: {do: x}\n  f: {do: x, after: a}\n")
    run.complete("a", 1)
    run.fail("f")
    past = run.walked().past
    assert (past.stopping, past.ended["f"]) == (3, 3)
    past.ended["f"] = 5
    assert retry_point(past, None) == (2, "f")
    del past.ended["f"]
    assert retry_point(past, None) == (2, "f")


def test_what_has_ended_is_named_where_a_retry_asks_for_something_else_ten_of_them_at_most() -> (
    None
):
    run = given("tasks: {" + ", ".join(f"t{n}: {{do: x}}" for n in range(12)) + "}\n")
    for number in range(11):
        run.complete(f"t{number}")
    run.cancel()
    run.fail("t11", "cancelled")
    with pytest.raises(NotFound) as caught:
        retry_point(run.walked().past, "z")
    assert caught.value.hint == "it has: " + ", ".join(f"t{n}" for n in range(10))

    none = given("tasks: {s: {type: signal}}\n").walked().past
    none.end.status = "CANCELLED"
    with pytest.raises(NotFound) as caught:
        retry_point(none, "z")
    assert caught.value.hint == "it has: none"


def test_a_loop_has_the_links_back_to_its_header_and_those_that_leave_it() -> None:
    arcs = [
        (0, "s", "a"), (1, "a", "b"), (2, "b", "a"), (3, "b", "c"), (4, "c", "a"), (5, "c", "d"), (6, "a", "e"),
        (7, "d", "d"), (8, "d", "e"),
    ]  # fmt: skip

    assert sorted(outer_loops("sabcde", arcs, "s"), key=str) == [
        Loop(header="a", body=frozenset("abc"), back=(2, 4), exits=(5, 6)),
        Loop(header="d", body=frozenset("d"), back=(7,), exits=(8,)),
    ]


def test_where_the_first_task_is_in_a_loop_it_is_its_header_or_the_loop_has_two_entries() -> None:
    ring = [(0, "a", "b"), (1, "b", "a")]

    assert outer_loops("ab", ring, "a") == [Loop("a", frozenset("ab"), (1,), ())]
    (two,) = outer_loops("abs", [*ring, (2, "s", "b"), (3, "s", "a")], "s")
    assert isinstance(two, Irreducible)
    assert two.entries == ("a", "b")
    both = [(4, "p", "p"), (5, "p", "s"), (6, "a", "q"), (7, "q", "q")]  # before it and after it
    found = outer_loops("pabsq", [*ring, (2, "s", "b"), (3, "s", "a"), *both], "p")
    assert {type(each) for each in found} == {Irreducible, Loop}
    assert sorted(each.header for each in found if isinstance(each, Loop)) == ["p", "q"]
