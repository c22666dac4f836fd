"""Cycles of a graph: natural loops with their nesting, and those that have more than one way in.

A natural loop has one header that every way into it passes; a link back to that header closes it. Pure
graph theory over names: no task, no type. Nothing recurses, so that size is no danger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.core.loops import components as parts

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Loop:
    """Links are named by their index. `parent` is the header of the loop around this one."""

    header: str
    body: frozenset[str]
    """The header and every task from which it is reached again, inner loops included."""
    back: tuple[int, ...]
    exits: tuple[int, ...]
    entries: tuple[int, ...]
    parent: str | None


def natural_loops(tasks: Iterable[str], links: Sequence[Edge], start: str) -> list[Loop]:
    """Every natural loop that `start` reaches, one a header, outer ones before inner ones."""
    flow = _Flow(list(tasks), links, start)
    bodies: dict[int, set[int]] = {}
    backs: dict[int, list[int]] = {}
    for index in flow.back_links():
        origin, header = flow.ends[index]
        backs.setdefault(header, []).append(index)
        body = bodies.setdefault(header, {header})
        stack = [origin]
        while stack:
            at = stack.pop()
            if at not in body:
                body.add(at)
                stack.extend(before for before, _ in flow.before[at] if flow.order[before] >= 0)
    headers = sorted(bodies, key=lambda header: (-len(bodies[header]), flow.order[header]))
    parents = _parents(headers, bodies)
    return [
        flow.loop(header, bodies[header], backs[header], parents.get(header)) for header in headers
    ]


def nearest_dominators(tasks: Iterable[str], links: Sequence[Edge], start: str) -> dict[str, str]:
    """Of each task that `start` reaches, the last one before it that every way to it passes."""
    flow = _Flow(list(tasks), links, start)
    return {flow.names[at]: flow.names[above] for at, above in flow.above.items()}


def irreducible_cycles(tasks: Iterable[str], links: Sequence[Edge], start: str) -> list[list[str]]:
    """A shortest cycle, in order, of each group of tasks that go round without a single way in."""
    flow = _Flow(list(tasks), links, start)
    back = set(flow.back_links())
    rest = [
        (flow.names[a], flow.names[b])
        for index, (a, b) in enumerate(flow.ends)
        if index not in back and a >= 0 and b >= 0 and flow.order[a] >= 0
    ]
    return cycles(flow.names, rest)


def cycles(tasks: Sequence[str], links: Sequence[Edge]) -> list[list[str]]:
    """A shortest cycle through the first task of each component that has one."""
    groups = components(tasks, links)
    after: dict[str, list[str]] = {}
    for origin, to in links:
        if groups[origin] == groups[to]:
            after.setdefault(origin, []).append(to)
    found: list[list[str]] = []
    seen: set[int] = set()
    for task in tasks:
        if groups[task] not in seen and task in after:
            seen.add(groups[task])
            found.append(_round_trip(task, after))
    return found


def components(tasks: Sequence[str], links: Iterable[Edge]) -> dict[str, int]:
    """Tasks that reach each other share a number."""
    following: dict[str, list[str]] = {task: [] for task in tasks}
    for source, target in links:
        if source in following and target in following:
            following[source].append(target)
    return {task: number for number, part in enumerate(parts(following)) for task in part}


def retreating(tasks: Sequence[str], links: Sequence[Edge], start: str) -> set[int]:
    """Indexes of the links that lead back to a task still on the way, walking from `start` in order."""
    names, numbers, _ = _indexed(tasks, ())
    after: list[list[tuple[int, int]]] = [[] for _ in names]
    for index, (origin, to) in enumerate(links):
        if origin in numbers and to in numbers:
            after[numbers[origin]].append((numbers[to], index))
    state = [0] * len(names)
    back: set[int] = set()
    for root in (numbers[start], *range(len(names))):
        if state[root]:
            continue
        state[root] = 1
        work = [(root, iter(after[root]))]
        while work:
            at, ways = work[-1]
            for to, index in ways:
                if state[to] == 1:
                    back.add(index)
                elif state[to] == 0:
                    state[to] = 1
                    work.append((to, iter(after[to])))
                    break
            else:
                state[at] = 2
                work.pop()
    return back


class _Flow:
    """A graph from its start, with the order and the dominators of what start reaches."""

    def __init__(self, tasks: list[str], links: Sequence[Edge], start: str) -> None:
        self.names, numbers, _ = _indexed(tasks, ())
        self.ends = [(numbers.get(a, -1), numbers.get(b, -1)) for a, b in links]
        self.after: list[list[int]] = [[] for _ in self.names]
        self.before: list[list[tuple[int, int]]] = [[] for _ in self.names]
        for index, (origin, to) in enumerate(self.ends):
            if origin >= 0 and to >= 0:
                self.after[origin].append(to)
                self.before[to].append((origin, index))
        self.order = [-1] * len(self.names)
        """Reverse postorder from start; -1 if start does not reach it."""
        self._sequence: list[int] = []
        if start in numbers:
            self._number(numbers[start])
        self._above = self._dominators()
        self._first, self._last = self._intervals()

    @property
    def above(self) -> dict[int, int]:
        """The nearest dominator of each task but the start."""
        return {at: self._above[at] for at in self._sequence[1:]}

    def dominates(self, upper: int, lower: int) -> bool:
        return self._first[upper] <= self._first[lower] and self._last[lower] <= self._last[upper]

    def back_links(self) -> list[int]:
        return [
            index
            for index, (origin, to) in enumerate(self.ends)
            if origin >= 0 and to >= 0 and self.order[origin] >= 0 and self.dominates(to, origin)
        ]

    def loop(self, header: int, body: set[int], back: list[int], parent: int | None) -> Loop:
        closing = set(back)
        entries = [index for origin, index in self.before[header] if origin not in body]
        exits = [
            index
            for index, (a, b) in enumerate(self.ends)
            if a in body and b not in body and b >= 0
        ]
        return Loop(
            header=self.names[header],
            body=frozenset(self.names[member] for member in body),
            back=tuple(sorted(closing)),
            exits=tuple(exits),
            entries=tuple(sorted(entries)),
            parent=None if parent is None else self.names[parent],
        )

    def _number(self, start: int) -> None:
        postorder: list[int] = []
        seen = [False] * len(self.names)
        seen[start] = True
        work = [(start, iter(self.after[start]))]
        while work:
            at, ways = work[-1]
            for to in ways:
                if not seen[to]:
                    seen[to] = True
                    work.append((to, iter(self.after[to])))
                    break
            else:
                postorder.append(at)
                work.pop()
        self._sequence = postorder[::-1]
        for position, at in enumerate(self._sequence):
            self.order[at] = position

    def _dominators(self) -> list[int]:
        """The nearest dominator of each, by the fixed point over reverse postorder."""
        above = [-1] * len(self.names)
        if not self._sequence:
            return above
        order = self.order
        start = self._sequence[0]
        above[start] = start
        changed = True
        while changed:
            changed = False
            for at in self._sequence[1:]:
                nearest = -1
                for before, _ in self.before[at]:
                    if above[before] < 0:
                        continue
                    if nearest < 0:
                        nearest = before
                        continue
                    other = before
                    while nearest != other:
                        if order[nearest] > order[other]:
                            nearest = above[nearest]
                        else:
                            other = above[other]
                if above[at] != nearest:
                    above[at] = nearest
                    changed = True
        return above

    def _intervals(self) -> tuple[list[int], list[int]]:
        """Where each subtree of the dominator tree begins and ends, so that one look tells."""
        below: list[list[int]] = [[] for _ in self.names]
        for at in self._sequence[1:]:
            below[self._above[at]].append(at)
        first, last = [-1] * len(self.names), [-2] * len(self.names)
        clock = 0
        work = [(at, False) for at in self._sequence[:1]]
        while work:
            at, leaving = work.pop()
            if leaving:
                last[at] = clock
                continue
            first[at] = clock
            clock += 1
            work.append((at, True))
            work.extend((child, False) for child in below[at])
        return first, last


def _parents(headers: list[int], bodies: dict[int, set[int]]) -> dict[int, int]:
    """The smallest loop around each; headers come largest first."""
    inside: dict[int, int] = {}
    parents: dict[int, int] = {}
    for header in headers:
        if header in inside:
            parents[header] = inside[header]
        for member in bodies[header]:
            if member != header:
                inside[member] = header
    return parents


def _round_trip(task: str, after: dict[str, list[str]]) -> list[str]:
    came_from: dict[str, str] = {}
    waiting = deque([task])
    while waiting:
        at = waiting.popleft()
        for to in after.get(at, ()):
            if to == task:
                trip = [at]
                while trip[-1] != task:
                    trip.append(came_from[trip[-1]])
                return trip[::-1]
            if to not in came_from:
                came_from[to] = at
                waiting.append(to)
    raise AssertionError(task)


def _indexed(
    tasks: Sequence[str], links: Iterable[Edge]
) -> tuple[list[str], dict[str, int], list[list[int]]]:
    names = list(dict.fromkeys(tasks))
    numbers = {name: number for number, name in enumerate(names)}
    after: list[list[int]] = [[] for _ in names]
    for origin, to in links:
        if origin in numbers and to in numbers:
            after[numbers[origin]].append(numbers[to])
    return names, numbers, after
