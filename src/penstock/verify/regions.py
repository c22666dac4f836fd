"""Regions: a scope taken apart where one link leads in and one leads out.

Two links are the only way into and out of what lies between them if every cycle of the graph, its end joined to its
start and its directions forgotten, goes through both or neither. Such pairs share a label that is made from the
cycles; each pair is then looked at again, so that a label never decides alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.core.plan import INTERNAL, Edge, Node, ScopePlan
from penstock.verify.certain import dominators
from penstock.verify.instants import rescuable, rushes
from penstock.verify.space import Explored

CHUNK = 16
"""Parts of a sequence that are taken as one."""
_END = ""
Arc = tuple[int, str, str]
"""(index of the link, from, to)"""


@dataclass(slots=True)
class Fragment:
    """A scope (`entry` and `exit` are None), or what lies between two of its links."""

    scope: ScopePlan
    nodes: frozenset[str]
    entry: Edge | None = None
    exit: Edge | None = None
    inner: list[Fragment] = field(default_factory=list["Fragment"])
    around: Fragment | None = None
    explored: Explored = field(default_factory=Explored)

    @property
    def id(self) -> str:
        """Of the task that stands for it."""
        return "" if self.entry is None else self.entry.target

    @property
    def name(self) -> str:
        """For people."""
        where = f"`{self.scope.path}`" if self.scope.path else "the run"
        if self.entry is None or self.exit is None:
            return where
        return f"what lies between `{self.entry.target}` and `{self.exit.source}`"

    def every(self) -> Iterator[Fragment]:
        """With all inside it, inner before outer."""
        for fragment in self.inner:
            yield from fragment.every()
        yield self

    def dissolve(self) -> None:
        """Its tasks, and the fragments inside it, are those of the one around it."""
        around = self.around
        assert around is not None
        around.inner = [part for part in around.inner if part is not self] + self.inner
        for fragment in self.inner:
            fragment.around = around


def decompose(
    scope: ScopePlan, loose: dict[str, set[str]] | None = None, *, racing: bool = False
) -> Fragment:
    """The scope as fragments within fragments; `racing`: what comes first in one step makes a difference."""
    top = Fragment(scope, frozenset(scope.nodes))
    edges = {
        o.edge.index: o.edge for n in scope.nodes.values() for o in n.outs if o.role == INTERNAL
    }
    arcs = _arcs(scope)
    order = _topological(scope, arcs)
    groups: dict[int, list[Arc]] = {}
    for arc, label in zip(arcs, _labels(arcs, order), strict=True):
        groups.setdefault(label, []).append(arc)
    found: list[Fragment] = []
    rescued = rescuable(scope)
    for group in groups.values():
        inside = [arc for arc in group if arc[2] != _END]
        if len(inside) < 2:
            continue
        inside.sort(key=lambda arc: order[arc[2]])
        for first, last in _pairs(len(inside)):
            entry, exit = edges[inside[first][0]], edges[inside[last][0]]
            nodes = _between(scope, entry, exit)
            if (
                nodes is not None
                and 1 < len(nodes) < len(scope.nodes)
                and entry.target not in rescued  # there it goes on where others stop
                and not (racing and rushes(scope, nodes, entry, exit))
                and _apart(scope, nodes, entry, exit, loose or {})
            ):
                found.append(Fragment(scope, nodes, entry, exit))
    _nest(top, found)
    return top


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    """Neighbours, then longer and longer stretches of a sequence of links."""
    width = 1
    while width < count:
        for first in range(0, count - 1, width):
            last = min(first + width, count - 1)
            if width == 1 or last - first > 1:
                yield first, last
        width *= CHUNK


def _nest(top: Fragment, found: list[Fragment]) -> None:
    """Each into the smallest that holds it."""
    found.sort(key=lambda fragment: -len(fragment.nodes))
    holder: dict[str, Fragment] = dict.fromkeys(top.nodes, top)
    seen: set[frozenset[str]] = set()
    for fragment in found:
        if fragment.nodes in seen:
            continue
        around = holder[fragment.id]
        if not fragment.nodes <= around.nodes or any(
            holder[id] is not around for id in fragment.nodes
        ):
            continue
        seen.add(fragment.nodes)
        fragment.around = around
        around.inner.append(fragment)
        for id in fragment.nodes:
            holder[id] = fragment


def _arcs(scope: ScopePlan) -> list[Arc]:
    arcs: list[Arc] = []
    extra = -1
    for node in scope.nodes.values():
        for out in node.outs:
            if out.role == INTERNAL:
                arcs.append((out.edge.index, node.id, out.target))
            else:
                arcs.append((extra, node.id, _END))
                extra -= 1
        if not node.outs:
            arcs.append((extra, node.id, _END))
            extra -= 1
    return arcs


def _topological(scope: ScopePlan, arcs: list[Arc]) -> dict[str, int]:
    waits = dict.fromkeys(scope.nodes, 0)
    after: dict[str, list[str]] = {}
    for _, source, target in arcs:
        if target != _END:
            waits[target] += 1
            after.setdefault(source, []).append(target)
    ready = [id for id, count in waits.items() if not count]
    order: dict[str, int] = {}
    for id in ready:
        order[id] = len(order)
        for target in after.get(id, ()):
            waits[target] -= 1
            if not waits[target]:
                ready.append(target)
    order[_END] = len(order)
    return order


def _labels(arcs: list[Arc], order: dict[str, int]) -> list[int]:
    """Links with the same label lie on the same cycles: each link that closes a cycle of the undirected graph has a
    number, and every other one the numbers of all cycles through it, mixed."""
    joined = [*arcs, (0, _END, min(order, key=lambda id: order[id]))]
    around: dict[str, list[tuple[int, str]]] = {}
    for place, (_, source, target) in enumerate(joined):
        around.setdefault(source, []).append((place, target))
        around.setdefault(target, []).append((place, source))
    label = [0] * len(joined)
    mixed: dict[str, int] = dict.fromkeys(around, 0)
    depth: dict[str, int] = {}
    used: set[int] = set()
    for root in around:
        if root in depth:
            continue
        depth[root] = 0
        work = [(root, -1, iter(around[root]))]
        while work:
            at, came, rest = work[-1]
            for place, to in rest:
                if place in used:
                    continue
                used.add(place)
                if to not in depth:
                    depth[to] = len(depth)
                    work.append((to, place, iter(around[to])))
                    break
                label[place] = _number(place)
                mixed[at] ^= label[place]
                mixed[to] ^= label[place]
            else:
                work.pop()
                if came >= 0:
                    label[came] = mixed[at]
                    mixed[work[-1][0]] ^= mixed[at]
    return label[:-1]


def _number(place: int) -> int:
    """Far from that of every other place."""
    value = 0
    for step in (1, 2):
        part = (place * 2 + step) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        part = (part ^ part >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        part = (part ^ part >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        value = value << 64 | (part ^ part >> 31)
    return value


def _between(scope: ScopePlan, entry: Edge, exit: Edge) -> frozenset[str] | None:
    """The tasks between two links, if these are the only ones that lead in and out."""
    found = {entry.target}
    todo = [entry.target]
    while todo:
        node = scope.nodes[todo.pop()]
        if not node.outs or (node is scope.entry):
            return None
        for out in node.outs:
            if out.role != INTERNAL:
                return None
            if out.edge is not exit and out.target not in found:
                found.add(out.target)
                todo.append(out.target)
    if exit.source not in found or exit.target in found:
        return None
    for id in found:
        for edge in scope.nodes[id].arrivals:
            source = scope.inner.get(edge.source, edge.source)
            if edge is not entry and source not in found:
                return None
    return frozenset(found)


def _apart(
    scope: ScopePlan,
    nodes: frozenset[str],
    entry: Edge,
    exit: Edge,
    loose: dict[str, set[str]],
) -> bool:
    """Nothing outside cancels what is inside, nor the other way round."""
    for id, owners in loose.items():
        if id in nodes and not owners <= nodes:
            return False
        if id not in nodes and owners & nodes:
            return False
    early = any(scope.nodes[id].join == "n" for id in nodes)  # left while something in it is open
    for node in scope.nodes.values():
        targets: set[str] = set()
        if node.join_cancel:
            targets = set(node.cancels)
        elif node.type == "cancel":
            targets = given_up(scope, node)
        if node.id in nodes:
            if node.join_cancel:
                # Whatever leads to it, and so what lies before the fragment: most of that is over by then.
                targets &= _left_open(scope, entry) if not targets <= nodes else nodes
            if not targets <= nodes:
                return False
        elif targets & nodes and (early or _reaches(scope, node.id, exit)):
            return False
    return True


def _left_open(scope: ScopePlan, entry: Edge) -> set[str]:
    """Tasks that may be open still when the link is taken: a join on the way did not wait for them."""
    found: set[str] = set()
    above = dominators(scope)
    for id in _before(scope, entry.source):
        join = scope.nodes[id]
        if join.join != "n":
            continue
        there = _before(scope, id)
        still = set(there)
        cursor: str | None = id
        while cursor is not None:  # what is on every way to it is over
            still.discard(cursor)
            cursor = above.get(cursor)
        if join.join_cancel:
            todo = list(still.difference(join.cancels))
            still = set(todo)  # what it cancels is over, unless one that goes on leads to it
            while todo:
                for out in scope.nodes[todo.pop()].outs:
                    if out.role == INTERNAL and out.target in there - still - {id}:
                        still.add(out.target)
                        todo.append(out.target)
        found |= still
    return found


def _before(scope: ScopePlan, id: str) -> set[str]:
    """The task, and all from which there is a path to it."""
    at = scope.inner.get(id, id)
    found, todo = {at}, [at]
    while todo:
        for edge in scope.nodes[todo.pop()].arrivals:
            source = scope.inner.get(edge.source, edge.source)
            if source not in found:
                found.add(source)
                todo.append(source)
    return found


def given_up(scope: ScopePlan, node: Node) -> set[str]:
    """Tasks of the scope that a `cancel` gives up; those inside loops are another matter."""
    names: list[str] = node.config.get("tasks", [])
    there = {id for id in names if id in scope.nodes and id not in scope.inner}
    return {id for id in there if scope.nodes[id].gateway is None}  # which is never open


def _reaches(scope: ScopePlan, id: str, without: Edge) -> bool:
    """Whether there is a path to the task that does not pass that link."""
    todo, seen = [scope.entry.id], {scope.entry.id}
    while todo:
        for out in scope.nodes[todo.pop()].outs:
            if out.role == INTERNAL and out.edge is not without and out.target not in seen:
                if out.target == id:
                    return True
                seen.add(out.target)
                todo.append(out.target)
    return False
