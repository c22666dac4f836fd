"""The five operators: what they give, what they refuse, and what a document becomes again (SPEC 2.4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import activity
from penstock.dsl.algebra import (
    Block,
    Choice,
    Leaf,
    Parallel,
    Sequence,
    Way,
    canonical,
    loop,
    nothing,
    task,
    when,
)
from penstock.dsl.compose import DEPTH_MAX, compose
from penstock.dsl.decompose import decompose
from penstock.dsl.load import load, load_file
from penstock.errors import Rejected
from penstock.verify.structure import examine_document
from support.world import given

EXAMPLES = Path(__file__).parents[3] / "examples"
a, b, c, d = (task("x", id=name) for name in "abcd")
SIGNAL = task("go", type="signal")
TIMER = task("late", type="timer", delay="5s")


def links(block: Block) -> set[tuple[str, str]]:
    return {(link["from"], link["to"]) for link in compose("flow", block).document["links"]}


def test_a_leaf_is_called_after_its_activity_and_counted() -> None:
    @activity(name="pay")
    async def charge() -> None: ...

    def book() -> None: ...

    made = compose("flow", task(charge) >> charge >> book >> "mail.send" >> task(book, id="pay_2"))

    assert list(made.document["tasks"]) == [
        "start", "pay", "pay_3", "book", "mail_send", "pay_2", "end"
    ]  # fmt: skip


def test_underscores_stand_for_capitals() -> None:
    leaf = task("x", output_schema={"type": "string"}, on_error=[{"set": {"n": "1"}}])

    assert set(leaf.fields) == {"do", "outputSchema", "onError"}


def test_every_type_of_task_can_be_a_leaf() -> None:
    block = (
        task("x")
        >> task("calc", type="transform", set={"n": "input.n"})
        >> task("cool", type="timer", delay="1s")
        >> task("tell", type="publish", topic="t", payload={"n": 1})
        >> task("ask", type="form", schema={})
        >> task("sub", type="subworkflow", definition="other")
        >> task("web", type="http", method="GET", url="http://localhost")
        >> task("each", type="map", items="[1, 2]", body=task("x") | task("y"))
        >> task("held", type="mutex", config={"name": "m"}, body=task("z"))
        >> task("stop", type="cancel", tasks=["cool"])
    )
    document = compose("flow", block).document

    assert examine_document(document).errors == []
    read = decompose(document)
    assert read.rest == ()
    assert decompose(read).document == read.document
    assert {"x_2", "y"} <= set(document["tasks"]["each"]["config"]["body"]["tasks"])


def test_no_gateway_is_written_where_a_task_does() -> None:
    assert links(a >> (b | c) >> d) == {
        ("start", "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "end")
    }  # fmt: skip


def test_several_before_several_meet_in_a_gateway() -> None:
    document = compose("flow", (a | b) >> (c | d)).document

    assert document["tasks"]["fork_1"] == {
        "type": "gateway", "config": {"kind": "parallel"}, "join": "merge"
    }  # fmt: skip


def test_a_guard_in_a_choice_is_a_when_without_otherwise() -> None:
    assert when("input.n > 1", a) + b == when("input.n > 1", a, b)
    assert when("p", a) + when("q", b) + c == when("p", a, when("q", b, c))
    assert when("p", a, when("q", b)) == when("p", a) + when("q", b) + nothing


@pytest.mark.parametrize(("n", "done"), [(5, ["a", "d"]), (2, ["b", "d"]), (0, ["c", "d"])])
def test_the_first_guard_that_holds_is_taken(n: int, done: list[str]) -> None:
    block = (when("input.n > 3", a) + when("input.n > 1", b) + c) >> d
    case = given(compose("flow", block).document, {"n": n})
    while case.open:
        case.complete(case.open[0])

    assert case.completed() == done


def test_an_empty_way_with_a_guard_comes_before_those_after_it() -> None:
    """Both the guard and the default lead on: the guard must still be asked first."""
    block = (when("input.n > 3", nothing) + when("input.n > 1", b) + nothing) >> d
    done: dict[int, list[str]] = {}
    for n in (5, 2, 0):
        case = given(compose("flow", block).document, {"n": n})
        while case.open:
            case.complete(case.open[0])
        done[n] = case.completed()

    assert done == {5: ["d"], 2: ["b", "d"], 0: ["d"]}
    assert canonical(decompose(compose("flow", block)).block) == canonical(
        decompose(decompose(compose("flow", block))).block
    )


def test_without_guards_the_first_from_outside_wins() -> None:
    case = given(compose("flow", SIGNAL >> a | b >> c).document)  # precedence: | binds least
    assert case.waiting == ["go", "b"]

    case = given(compose("flow", (SIGNAL >> a) + (TIMER >> b)).document)
    case.skip(6)
    assert case.open == ["b"]


def test_a_loop_may_run_zero_times() -> None:
    document = compose("flow", loop(a, while_="iteration < input.n", id="again") >> b).document

    assert given(document, {"n": 0}).open == ["b"]
    assert given(document, {"n": 1}).open == ["again[1]/a"]


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: a + b, "`a` is an alternative without a guard"),
    (lambda: SIGNAL + a, "`a` is an alternative without a guard"),
    (lambda: a + when("true", b), "`a` has no guard and hides"),
    (lambda: SIGNAL + nothing, "nothing is an alternative"),
    (lambda: a >> 3, "3 is no task"),
    (lambda: task(), "needs an activity"),
    (lambda: task(3), "is no activity"),
    (lambda: task(a, type="timer"), "named by a text"),
    (lambda: task("x", id="no id"), "is no id"),
    (lambda: task(type="map", items="[]"), "needs a `body`"),
    (lambda: loop(a), "exactly one of"),
    (lambda: loop(a, while_="p", until="q"), "exactly one of"),
    (lambda: when(3, a), "3 is no condition"),
    (lambda: when("", a), "is no condition"),
    (lambda: compose("flow", a >> a).document, "are called `a`"),
    (lambda: compose("flow", task("e", type="end") >> a).document, "follow an end"),
    (lambda: compose("flow", nested(DEPTH_MAX + 2)).document, "nested more than"),
]


@pytest.mark.parametrize(("build", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_has_no_meaning_is_refused(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(Rejected, match=said.replace("`", ".")) as refused:
        build()

    assert refused.value.code == "algebra-invalid"


def nested(depth: int) -> Block:
    block: Block = a
    for _ in range(depth):
        block = when("true", block)
    return block


def test_a_hundred_blocks_within_each_other_are_read_back() -> None:
    block = nested(100)

    read_back = decompose(compose("flow", block))
    assert read_back.rest == ()
    assert decompose(read_back).document == read_back.document
    assert len(read_back.document["tasks"]) == 103


def read(text: str) -> Any:
    return decompose(load("id: flow\n" + text))


def test_branches_that_meet_early_are_a_block_of_their_own() -> None:
    made = read(
        "tasks: {a: {do: x}, b: {do: x}, c: {do: x, after: [a, b]}, d: {do: x}, e: {do: x, after: [c, d]}}"
    )

    assert made.rest == ()
    assert [type(part) for part in made.block.parts] == [Parallel, Leaf]
    assert [type(branch) for branch in made.block.parts[0].branches] == [Sequence, Leaf]


def test_what_is_not_made_of_blocks_is_named_and_the_rest_is_read() -> None:
    made = read(
        """
tasks:
  a: {do: x}
  b: {do: x, after: a}
  c: {do: x, after: a}
  d: {do: x, after: [b, c]}
  e: {do: x, after: [c]}
  f: {do: x, after: [d, e]}
  g: {do: x, after: [f]}
"""
    )

    (rest,) = made.rest
    assert set(rest.tasks) == {"a", "b", "c", "d", "e"}
    assert "c" in rest.why
    assert [getattr(part, "id", "rest") for part in made.block.parts] == ["rest", "f", "g"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tasks: {a: {do: x}, b: {do: x, after: {from: a, on: error}}}", "is taken on error"),
        ("tasks: {a: {do: x}, b: {do: x, after: {from: a, when: 'true'}}}", "a condition"),
        ("tasks: {a: {do: x}, b: {do: x, after: a}}\nlinks: [{from: b, to: a, when: 'false'}]", "back to `a`"),
        ("tasks: {g: {type: gateway, kind: inclusive}, a: {do: x, after: {from: g, when: 'true'}}, b: {do: x, after: g}}", "inclusive"),
        ("tasks: {g: {type: gateway, kind: exclusive}, a: {do: x, after: {from: g, when: 'true'}}}", "one way"),
        ("tasks: {g: {type: gateway, kind: exclusive}, a: {do: x, after: g}, b: {do: x, after: {from: g, when: 'true'}}}", "has no condition"),
        ("tasks: {s: {type: start, onComplete: {set: {n: '1'}}}, a: {do: x}}\nlinks: [{from: s, to: a, when: 'true'}]", "condition"),
    ],
)  # fmt: skip
def test_the_rest_says_why(text: str, why: str) -> None:
    made = read(text)

    assert why in made.rest[0].why
    assert examine_document(made.document).errors == []


def test_a_gateway_that_is_spoken_of_stays() -> None:
    made = read(
        """
tasks:
  a: {do: x}
  b: {do: x}
  both: {type: gateway, kind: parallel, after: [a, b]}
  c: {do: x, after: both, when: 'tasks.both.status == "COMPLETED"'}
"""
    )

    assert "both" in made.document["tasks"]


def test_a_join_that_counts_keeps_what_it_counts() -> None:
    made = read(
        """
tasks:
  a: {do: x}
  b: {do: x}
  any: {type: gateway, kind: parallel, join: merge, after: [a, b]}
  c: {do: x, after: any, join: all}
"""
    )

    assert [link["from"] for link in made.document["links"] if link["to"] == "c"] == ["any"]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_examples_are_read_back(file: Path) -> None:
    made = decompose(load_file(file))

    assert examine_document(made.document).errors == []
    assert decompose(made.document).document == made.document


def test_a_choice_is_read_back_as_it_was() -> None:
    block = when("input.n > 1", a) + when("input.n > 0", b) + c
    read_back = decompose(compose("flow", block)).block

    assert isinstance(read_back, Choice)
    assert [way.guard for way in read_back.ways] == ["input.n > 1", "input.n > 0", None]
    assert all(isinstance(way, Way) for way in read_back.ways)
