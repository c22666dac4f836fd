"""Laws of the five operators (SPEC 2.4): grouping and order of branches make no difference, a document is read back as
what it was made of, and a run does what the blocks say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from laws.test_runs import CHILD_PLAN, LAW, plan, played
from penstock.dsl.algebra import (
    Block,
    Choice,
    Leaf,
    Parallel,
    Rest,
    Sequence,
    canonical,
    choice,
    loop,
    nothing,
    parallel,
    sequence,
    when,
)
from penstock.dsl.compose import compose
from penstock.dsl.decompose import decompose
from penstock.model.events import RunStarted
from support.chance import CALM, Chance
from support.definitions import documents
from support.world import Case, World, decode

GUARDS = ("input.n % 2 == 0", "input.n > 3", "true", "false", "input.n % 3 == 1")


class Making:
    """Blocks with leaves that all have names of their own."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.count = draw, 0

    def leaf(self) -> Block:
        self.count += 1
        return Leaf(f"t{self.count}", {"type": "activity", "config": {"activity": "x"}})

    def block(self, depth: int) -> Block:
        shapes = ["leaf"] if depth <= 0 else ["leaf", "seq", "par", "when", "one", "loop", "event"]
        match self.draw(st.sampled_from(shapes)):
            case "seq":
                return sequence(*self.blocks(depth, 2, 3))
            case "par":
                return parallel(*self.blocks(depth, 2, 3))
            case "when":
                guard = self.draw(st.sampled_from(GUARDS))
                inner = self.blocks(depth, 1, 2)
                return when(guard, *inner)
            case "one":
                ways = [when(g, b) for g, b in zip(GUARDS, self.blocks(depth, 1, 3), strict=False)]
                last = self.draw(st.sampled_from(["block", "nothing", "events"]))
                end = nothing if last == "nothing" else self.block(depth - 1)
                return choice(*ways, *(self.events(2, depth) if last == "events" else [end]))
            case "loop":
                self.count += 1
                id, passes = f"l{self.count}", self.draw(st.integers(0, 2))
                made = loop(self.block(depth - 1), while_=f"iteration < {passes}", id=id)
                config = {"while": made.fields["while"]}
                return Leaf(id, {"type": "loop", "config": config}, made.body)
            case "event":
                return choice(*self.events(self.draw(st.integers(2, 3)), depth))
            case _:
                return self.leaf()

    def blocks(self, depth: int, least: int, most: int) -> list[Block]:
        return [self.block(depth - 1) for _ in range(self.draw(st.integers(least, most)))]

    def events(self, count: int, depth: int) -> list[Block]:
        found: list[Block] = []
        for _ in range(count):
            self.count += 1
            id = f"s{self.count}"
            wait: Block = Leaf(id, {"type": "signal", "config": {"name": id}})
            found.append(sequence(wait, self.leaf(), self.block(depth - 1)))
        return found


@st.composite
def blocks(draw: Any, count: int = 1, depth: int = 3) -> Any:
    making = Making(draw)
    made = [making.block(depth) for _ in range(count)]
    return made[0] if count == 1 else made


def document(block: Block) -> dict[str, Any]:
    return compose("flow", block).document


@LAW
@given(blocks(count=3))
def test_grouping_makes_no_difference(three: list[Block]) -> None:
    a, b, c = three

    assert (a >> b) >> c == a >> (b >> c)
    assert (a | b) | c == a | (b | c)
    assert document((a >> b) >> c) == document(a >> (b >> c))
    assert document((a | b) | c) == document(a | (b | c))
    assert nothing >> a == a == a >> nothing == a | nothing


@LAW
@given(blocks(count=2), st.integers(0, 1 << 32), st.integers(0, 1 << 32))
def test_the_order_of_parallel_branches_makes_no_difference(
    two: list[Block], outcomes: int, luck: int
) -> None:
    a, b = two

    assert canonical(a | b) == canonical(b | a)
    one = played(document(a | b), luck, CALM, outcomes).cases["run"]
    other = played(document(b | a), luck, CALM, outcomes).cases["run"]
    if not any(event.type == "signal_received" for event in (*one.events, *other.events)):
        assert one.status == other.status
        assert sorted(one.completed()) == sorted(other.completed())


@LAW
@given(blocks())
def test_what_was_compiled_is_read_back(block: Block) -> None:
    read = decompose(compose("flow", block))

    assert read.rest == ()
    assert canonical(read.block) == canonical(block)
    assert document(read.block) == document(block)


@LAW
@given(blocks(), st.integers(0, 1 << 32))
def test_a_run_does_what_the_blocks_say(block: Block, luck: int) -> None:
    world = World(plan(document(block)), CHILD_PLAN)
    case = world.start("flow", {"n": luck % 7, "items": []})
    Chance(world, luck, odds=CALM).play()

    expected = said(block, case, "")
    if expected is None:
        assert (case.status, case.code) == ("FAILED", "no-branch")
    else:
        assert case.status == "COMPLETED", case.failure
        assert sorted(case.completed()) == sorted(expected)
        assert in_order(block, case, "")


HOLDS = {
    "input.n % 2 == 0": lambda n: n % 2 == 0,
    "input.n > 3": lambda n: n > 3,
    "true": lambda n: True,
    "false": lambda n: False,
    "input.n % 3 == 1": lambda n: n % 3 == 1,
}


def said(block: Block, case: Case, path: str) -> list[str] | None:
    """Keys of the activities that the block does; None if it finds no branch."""
    match block:
        case Leaf():
            if block.body is None:
                return [path + str(block.id)] if block.type == "activity" else []
            passes = int(block.fields["config"]["while"].split()[-1])
            rounds = [f"{path}{block.id}[{n}]/" for n in range(1, passes + 1)]
            return together(said(block.body, case, inner) for inner in rounds)
        case Sequence():
            return together(said(part, case, path) for part in block.parts)
        case Parallel():
            return together(said(part, case, path) for part in block.branches)
        case Choice():
            way = taken(block, case, path)
            return way if way is None else said(way, case, path)
        case Rest():
            raise AssertionError(block)


def taken(block: Choice, case: Case, path: str) -> Block | None:
    number = decode(case.of(RunStarted)[0].input)["n"]
    for way in block.ways:
        if way.guard is not None and HOLDS[way.guard](number):
            return way.then
    opened = [way.then for way in block.ways if way.guard is None]
    if not opened:
        return nothing if len(block.ways) == 1 else None
    if len(opened) == 1:
        return opened[0]
    begun = [one for one in opened if path + str(one.parts[1].id) in case.completed()]  # type: ignore[union-attr]
    assert len(begun) == 1
    return begun[0]


def together(parts: Any) -> list[str] | None:
    found: list[str] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return found


def in_order(block: Block, case: Case, path: str) -> bool:
    """The parts of every sequence were done one after another."""
    if isinstance(block, Parallel):
        return all(in_order(part, case, path) for part in block.branches)
    if isinstance(block, Choice):
        way = taken(block, case, path)
        return way is None or in_order(way, case, path)
    if isinstance(block, Sequence):
        done = case.completed()
        places = [[done.index(key) for key in said(p, case, path) or ()] for p in block.parts]
        full = [each for each in places if each]
        ordered = all(max(a) < min(b) for a, b in pairwise(full))
        return ordered and all(in_order(part, case, path) for part in block.parts)
    return True


@LAW
@given(documents(calm=True), st.integers(0, 1 << 32), st.integers(0, 1 << 32))
def test_any_graph_is_read_back_as_one_that_does_the_same(
    made: dict[str, Any], outcomes: int, luck: int
) -> None:
    read = decompose(made)
    again = read.document
    one = played(made, luck, CALM, outcomes).cases["run"]
    other = played(again, luck, CALM, outcomes).cases["run"]

    assert (one.status, one.code) == (other.status, other.code)
    if one.status == "COMPLETED":
        assert sorted(one.completed()) == sorted(other.completed())
        assert one.data == other.data
        assert one.result == other.result
    assert decompose(again).document == again
