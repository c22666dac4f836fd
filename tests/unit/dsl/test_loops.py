"""Natural loops, their nesting, and cycles with more than one way in."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.loops import Irreducible, outer_loops
from penstock.dsl.loops import (
    Edge,
    components,
    cycles,
    irreducible_cycles,
    natural_loops,
    retreating,
)


def edges(text: str) -> list[Edge]:
    return [(a, b) for a, b in (pair.split(">") for pair in text.split())]


def tasks(links: list[Edge]) -> list[str]:
    return list(dict.fromkeys(name for link in links for name in link))


def test_a_graph_without_cycles_has_no_loops() -> None:
    links = edges("s>a s>b a>c b>c c>e")

    assert natural_loops(tasks(links), links, "s") == []
    assert irreducible_cycles(tasks(links), links, "s") == []


def test_a_loop_has_a_header_a_body_back_links_entries_and_exits() -> None:
    links = edges("s>a a>b b>c c>a c>e b>x x>e")

    (loop,) = natural_loops(tasks(links), links, "s")

    assert loop.header == "a"
    assert loop.body == {"a", "b", "c"}
    assert [links[i] for i in loop.back] == [("c", "a")]
    assert [links[i] for i in loop.entries] == [("s", "a")]
    assert [links[i] for i in loop.exits] == [("c", "e"), ("b", "x")]
    assert loop.parent is None


def test_links_back_to_one_header_make_one_loop() -> None:
    links = edges("s>a a>b a>c b>a c>a a>e")

    (loop,) = natural_loops(tasks(links), links, "s")

    assert loop.body == {"a", "b", "c"}
    assert [links[i] for i in loop.back] == [("b", "a"), ("c", "a")]


def test_a_task_that_leads_to_itself_is_a_loop() -> None:
    links = edges("s>a a>a a>e")

    (loop,) = natural_loops(tasks(links), links, "s")

    assert (loop.header, loop.body, loop.back) == ("a", {"a"}, (1,))


def test_inner_loops_know_the_loop_around_them() -> None:
    links = edges("s>a a>b b>c c>b c>d d>d d>a d>e")

    loops = natural_loops(tasks(links), links, "s")

    assert [(loop.header, sorted(loop.body), loop.parent) for loop in loops] == [
        ("a", ["a", "b", "c", "d"], None),
        ("b", ["b", "c"], "a"),
        ("d", ["d"], "a"),
    ]


def test_a_cycle_with_two_ways_in_is_named() -> None:
    links = edges("s>a s>b a>b b>a a>e")

    assert irreducible_cycles(tasks(links), links, "s") == [["a", "b"]]
    assert natural_loops(tasks(links), links, "s") == []


def test_a_natural_loop_beside_a_cycle_with_two_ways_in_is_still_found() -> None:
    links = edges("s>a a>a a>b a>c b>c c>b c>e")

    assert [loop.header for loop in natural_loops(tasks(links), links, "s")] == ["a"]
    assert irreducible_cycles(tasks(links), links, "s") == [["b", "c"]]


def test_what_start_does_not_reach_takes_no_part() -> None:
    links = edges("s>e x>y y>x x>e")

    assert natural_loops(tasks(links), links, "s") == []
    assert irreducible_cycles(tasks(links), links, "s") == []
    assert cycles(tasks(links), links) == [["x", "y"]]


def test_links_to_nowhere_are_passed_over_and_keep_their_index() -> None:
    links = edges("s>a a>nowhere a>b b>a nobody>a b>e")

    (loop,) = natural_loops(["s", "a", "b", "e"], links, "s")

    assert loop.back == (3,)
    assert loop.exits == (5,)
    assert loop.entries == (0,)
    assert retreating(["s", "a", "b", "e"], links, "s") == {3}


def test_without_a_start_nothing_is_reached() -> None:
    links = edges("a>b b>a")

    assert natural_loops(["a", "b"], links, "s") == []
    assert components(["a", "b"], [*links, ("a", "nowhere")]) == {"a": 0, "b": 0}


graphs = st.integers(2, 9).flatmap(
    lambda size: st.lists(
        st.tuples(st.integers(0, size - 1), st.integers(1, size - 1)), max_size=3 * size
    ).map(lambda pairs: ([f"t{n}" for n in range(size)], [(f"t{a}", f"t{b}") for a, b in pairs]))
)


def reach(origin: str, links: list[Edge], *, avoiding: str | None = None) -> set[str]:
    found = {origin} if origin != avoiding else set[str]()
    waiting = list(found)
    while waiting:
        at = waiting.pop()
        for a, b in links:
            if a == at and b not in found and b != avoiding:
                found.add(b)
                waiting.append(b)
    return found


@settings(max_examples=300)
@given(graphs)
def test_loops_are_what_their_definition_says(graph: tuple[list[str], list[Edge]]) -> None:
    names, links = graph
    reached = reach("t0", links)
    loops = {loop.header: loop for loop in natural_loops(names, links, "t0")}

    back = {
        index
        for index, (a, b) in enumerate(links)
        if a in reached and (a == b or a not in reach("t0", links, avoiding=b))
    }
    assert {index for loop in loops.values() for index in loop.back} == back
    for loop in loops.values():
        expected = {
            name
            for name in reached
            if name == loop.header
            or any(
                links[index][0] in reach(name, links, avoiding=loop.header) for index in loop.back
            )
        }
        assert loop.body == expected
        if loop.parent is not None:
            assert loop.body < loops[loop.parent].body
    rest = [link for index, link in enumerate(links) if index not in back and link[0] in reached]
    found = irreducible_cycles(names, links, "t0")
    groups = components(names, rest)
    cyclic = {groups[a] for a, b in rest if groups[a] == groups[b]}
    assert {groups[cycle[0]] for cycle in found} == cyclic
    for cycle in found:
        assert all(pair in rest for pair in zip(cycle, [*cycle[1:], cycle[0]], strict=True))


def test_two_thousand_tasks_and_ten_thousand_links_take_no_time() -> None:
    names = [f"t{n}" for n in range(2000)]
    links = [(names[n], names[n + 1]) for n in range(1999)]
    links += [(names[n], names[min(1999, n + 2 + n % 7)]) for n in range(1999)]
    links += [(names[n + n % 11], names[n]) for n in range(1, 1900)]
    links += [(names[n], names[n + 3]) for n in range(1900)]
    links += [(names[1999 - n], names[n]) for n in range(1, 990)]
    links += links[:1300]
    began = time.process_time()

    natural_loops(names, links, names[0])
    irreducible_cycles(names, links, names[0])
    components(names, links)

    assert len(links) > 9_000
    assert time.process_time() - began < 2


def test_hundreds_of_loops_inside_each_other_are_no_danger() -> None:
    names = [f"t{n}" for n in range(500)]
    links = [(names[n], names[n + 1]) for n in range(499)]
    links += [(names[499], name) for name in names[1:]]

    loops = natural_loops(names, links, names[0])

    assert len(loops) == 499
    assert [loop.parent for loop in loops[:3]] == [None, "t1", "t2"]


@settings(max_examples=200)
@given(graphs)
def test_the_core_finds_the_same_loops(graph: tuple[list[str], list[Edge]]) -> None:
    names, links = graph
    reached = reach("t0", links)
    arcs = [(i, a, b) for i, (a, b) in enumerate(links) if a in reached and b in reached]
    found: list[tuple[str, frozenset[str], tuple[int, ...]]] = []
    irreducible = False
    waiting = [([name for name in names if name in reached], arcs, "t0")]
    while waiting:
        inside, inner, entry = waiting.pop()
        for part in outer_loops(inside, inner, entry):
            if isinstance(part, Irreducible):
                irreducible = True
                continue
            found.append((part.header, part.body, part.back))
            rest = [
                (i, a, b)
                for i, a, b in inner
                if a in part.body and b in part.body and i not in part.back
            ]
            waiting.append(([name for name in inside if name in part.body], rest, part.header))

    assert irreducible == bool(irreducible_cycles(names, links, "t0"))
    if not irreducible:
        own = natural_loops(names, links, "t0")
        assert sorted(found) == sorted((loop.header, loop.body, loop.back) for loop in own)
