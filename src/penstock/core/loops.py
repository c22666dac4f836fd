"""Natural loops of a graph: cycles with one entry, outermost first (SPEC 2.3).

A strongly connected part with more than one task is a loop; the one task through which it is entered is its
header, links to the header from inside are its back links. Inner loops are found by asking again inside the loop,
without its back links. Nothing here recurses, so the size of a definition is no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Arc = tuple[str, str]


@dataclass(frozen=True)
class Loop:
    header: str
    body: frozenset[str]
    back: tuple[int, ...]
    """Indexes of the links that lead back to the header."""
    exits: tuple[int, ...]
    """Indexes of the links that leave the loop."""


@dataclass(frozen=True)
class Irreducible:
    """A cycle that is entered at more than one place."""

    cycle: tuple[str, ...]
    entries: tuple[str, ...]


def outer_loops(
    tasks: Iterable[str], arcs: Sequence[tuple[int, str, str]], start: str
) -> list[Loop | Irreducible]:
    """The outermost loops among these tasks; `arcs` are (index, from, to) with both ends in `tasks`."""
    following: dict[str, list[str]] = {task: [] for task in tasks}
    for _, source, target in arcs:
        following[source].append(target)
    own = {source for _, source, target in arcs if source == target}
    found: list[Loop | Irreducible] = []
    for part in components(following):
        if len(part) == 1 and not part & own:
            continue
        entries = {t for _, s, t in arcs if t in part and s not in part}
        if start in part:
            entries.add(start)
        if len(entries) != 1:
            found.append(Irreducible(cycle_in(part, following), tuple(sorted(entries))))
            continue
        header = next(iter(entries))
        found.append(
            Loop(
                header=header,
                body=frozenset(part),
                back=tuple(i for i, s, t in arcs if s in part and t == header),
                exits=tuple(i for i, s, t in arcs if s in part and t not in part),
            )
        )
    return found


def components(following: dict[str, list[str]]) -> list[set[str]]:
    """Strongly connected parts, by Tarjan's algorithm without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    parts: list[set[str]] = []
    for root in following:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(following[root]))]
        while work:
            task, rest = work[-1]
            for target in rest:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(following[target])))
                    break
                if target in on_stack:
                    low[task] = min(low[task], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[task])
                if low[task] == index[task]:
                    part: set[str] = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        part.add(member)
                        if member == task:
                            break
                    parts.append(part)
    return parts


def cycle_in(part: set[str], following: dict[str, list[str]]) -> tuple[str, ...]:
    """One cycle inside a strongly connected part, for a message."""
    first = min(part)
    path, seen = [first], {first: 0}
    while True:
        step = next(t for t in following[path[-1]] if t in part)
        if step in seen:
            return (*path[seen[step] :], step)
        seen[step] = len(path)
        path.append(step)
