"""Fragments: a scope taken apart where one link leads in and one leads out; each part is explored alone.

Two links are the only way into and out of what lies between them if every cycle of the graph, its end joined to its
start and its directions forgotten, goes through both or neither. Such pairs share a label that is made from the
cycles; each pair is then looked at again, so that a label never decides alone. A fragment that was explored is one
task of what is around it, that ends in one of its ways. Bodies and natural loops are scopes, and so fragments too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.core.plan import EXIT, INTERNAL, Edge, Guard, Node, Out, Plan, ScopePlan
from penstock.model.definition import Task
from penstock.verify.cases import Cases
from penstock.verify.models import (
    asks_at_begin,
    loose_ends,
    relate,
    silent,
    sketched,
    standing_for,
    written,
)
from penstock.verify.space import Explored, Model, Way, explore

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


class Exploration:
    """All scopes of a definition, inner before outer, each taken apart and explored."""

    def __init__(
        self, plan: Plan, cases: Cases, *, states: int, each: int, whole: bool = False
    ) -> None:
        self.plan, self.cases = plan, cases
        self.left, self.each, self.whole = states, each, whole
        self.scopes: dict[str, Fragment] = {}
        self.loose = loose_ends(plan)
        for scope in reversed(_outer_first(plan.root)):
            loose = self.loose.get(scope.path, {})
            top = decompose(scope, loose) if not whole else Fragment(scope, frozenset(scope.nodes))
            self.scopes[scope.path] = top
            for fragment in top.every():
                self._explore(fragment)

    @property
    def fragments(self) -> Iterator[Fragment]:
        for top in self.scopes.values():
            yield from top.every()

    def _explore(self, fragment: Fragment) -> None:
        model = self._model(fragment)
        fragment.explored = explore(model, self.cases, min(self.each, self.left))
        self.left = max(0, self.left - fragment.explored.states)
        if fragment.explored.over:
            every = _any_way(fragment)
            for way in every:
                fragment.explored.ways.setdefault(way, next(iter(fragment.explored.fired.values())))

    def _model(self, fragment: Fragment) -> Model:
        scope = fragment.scope
        hidden = {id for part in fragment.inner for id in part.nodes}
        made = ScopePlan("", "run", None, "")
        kind = "pass" if scope.kind == "natural" else "scope"
        model = Model(_bare(self.plan), made, "fragment" if fragment.entry is not None else kind)
        for id in fragment.nodes - hidden:
            self._add(model, scope.nodes[id])
        for part in fragment.inner:
            self._stand(model, part)
        if fragment.entry is None or fragment.exit is None:
            made.entry = made.nodes[scope.entry.id]
        else:
            model.exit = fragment.exit.index
            made.entry = _start(fragment.entry)
            made.nodes[fragment.exit.target] = _end(fragment.exit)
        made.nodes = dict(sorted(made.nodes.items()))
        model.plan.scopes = {"": made}
        model.plan.root = made
        joins = any(node.join == "n" for node in scope.nodes.values())
        model.steady = not joins
        loose = self.loose.get(scope.path, {})
        model.loose = {id: owners for id, owners in loose.items() if id in made.nodes}
        _prepare(model, scope)
        return model

    def _add(self, model: Model, node: Node) -> None:
        made = model.scope.nodes
        if node.loop is not None:
            made[node.id] = standing_for(node.id, node.arrivals, node.outs, node)
            inner = self.scopes[node.loop.path].explored
            model.ways[node.id] = _leaving(inner.ways)
            if inner.failing:
                model.fallible.add(node.id)
        else:
            made[node.id] = sketched(node)
            model.silent[node.id] = silent(node)
        model.writes[node.id] = _written(node)
        if node.type in ("activity", "http", "subworkflow"):
            model.fallible.add(node.id)
        if asks_at_begin(node):
            model.may_fail = True
        if any(out.edge.guard is not None for out in node.outs):
            model.may_fail = True
        if node.body is not None:
            self._body(model, node)

    def _body(self, model: Model, node: Node) -> None:
        """A task with a body completes if a pass may, or if there need not be one; it fails if one may."""
        assert node.body is not None
        if self.scopes[node.body.path].explored.failing:
            model.fallible.add(node.id)
        ways = self.scopes[node.body.path].explored.ways
        completes = any(not way.failed for way in ways)
        none = node.type == "map" or (node.type == "loop" and "while" in node.formulas)
        if not completes and not none:
            model.silent[node.id] = False
            model.stuck.add(node.id)

    def _stand(self, model: Model, part: Fragment) -> None:
        assert part.entry is not None
        assert part.exit is not None
        out = Out(part.exit, INTERNAL, part.exit.target)
        model.scope.nodes[part.id] = standing_for(part.id, [part.entry], [out])
        model.ways[part.id] = tuple(part.explored.ways)
        if part.explored.failing:
            model.fallible.add(part.id)
        names: set[str] = set()
        for id in part.nodes:
            names |= _written(part.scope.nodes[id])
        model.writes[part.id] = frozenset(names)


def _written(node: Node) -> frozenset[str]:
    """With all that is inside it."""
    names = set(written(node))
    todo = [node.body or node.loop]
    while todo:
        scope = todo.pop()
        if scope is not None:
            for each in scope.nodes.values():
                names |= written(each)
                todo.append(each.body or each.loop)
    return frozenset(names)


def _any_way(fragment: Fragment) -> list[Way]:
    """Of a fragment that is not known: anything."""
    if fragment.exit is not None:
        return [Way(frozenset({fragment.exit.index})), Way(), Way(failed=True)]
    if fragment.scope.kind == "natural":
        exits = {
            o.edge.index for n in fragment.scope.nodes.values() for o in n.outs if o.role == EXIT
        }
        return [Way(frozenset({index})) for index in exits] + [Way(failed=True), Way(back=True)]
    return [Way(), Way(failed=True)]


def _leaving(ways: Iterable[Way]) -> tuple[Way, ...]:
    """How a loop ends: as a pass does that is not followed by another."""
    return tuple({Way(way.taken, way.failed): None for way in ways if not way.back})


def _bare(plan: Plan) -> Plan:
    """Of the plan only what a sketch needs."""
    made = copy(plan)
    made.definition = replace(plan.definition, data={}, timeouts=None, limits={})
    made.input_schema, made.outputs, made.runs_max = None, None, None
    made.merges, made.conflicts = {}, {}
    return made


def _start(entry: Edge) -> Node:
    made = Node(" start", " start", Task(type="start"), None)
    bare = copy(entry)
    bare.guard, bare.on = None, "success"
    made.outs = [Out(bare, INTERNAL, entry.target)]
    return made


def _end(exit: Edge) -> Node:
    made = Node(exit.target, exit.target, Task(type="end"), None)
    made.arrivals = [exit]
    return made


def _prepare(model: Model, scope: ScopePlan) -> None:
    """What the exploration wants to know beforehand."""
    nodes = model.scope.nodes
    relate(model)
    model.errors = frozenset(
        guard.text
        for node in nodes.values()
        if any(out.edge.on != "success" for out in node.outs)
        for guard in (*node.conditions, *_guards_of_gateway(node))
    )
    cancellable: set[str] = set()
    cancelling: set[str] = set()
    for node in nodes.values():
        targets = set(node.cancels) if node.join_cancel else set[str]()
        if node.type == "cancel":
            named = _named(scope, node)
            node.config = {"tasks": sorted(named)}
            targets |= named
        targets &= nodes.keys()
        if targets:
            cancelling.add(node.id)
            cancellable |= targets
    model.cancellable = frozenset(cancellable | model.loose.keys())
    owners = {id for each in model.loose.values() for id in each}
    model.triggers = frozenset(_triggers(nodes, cancelling) | owners)
    order: dict[str, int] = {}
    todo = [model.scope.entry.id]
    if model.scope.entry.id not in nodes:
        todo = [out.target for out in model.scope.entry.outs]
    while todo:
        id = todo.pop()
        if id not in order and id in nodes:
            order[id] = len(order)
            todo += [out.target for out in nodes[id].outs if out.role == INTERNAL][::-1]
    model.rank = {id: order.get(id, 0) for id in nodes}


def _guards_of_gateway(node: Node) -> list[Guard]:
    if node.gateway is None:
        return []
    return [out.edge.guard for out in node.outs if out.edge.guard is not None]


def _triggers(nodes: dict[str, Node], cancelling: set[str]) -> set[str]:
    """Tasks from which a cancelling one may be reached without a wait."""
    before: dict[str, set[str]] = {}
    for node in nodes.values():
        for out in node.outs:
            if out.role == INTERNAL:
                before.setdefault(out.target, set()).add(node.id)
    found: set[str] = set()
    todo = list(cancelling)
    while todo:
        for id in before.get(todo.pop(), ()):
            if id not in found:
                found.add(id)
                # A dead link passes a task at once, whatever its type.
                todo.append(id)
    return found


# --- taking apart --------------------------------------------------------------------------------------------------


def decompose(scope: ScopePlan, loose: dict[str, set[str]] | None = None) -> Fragment:
    """The scope as fragments within fragments."""
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
                and _apart(scope, nodes, exit, loose or {})
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


def _apart(scope: ScopePlan, nodes: frozenset[str], exit: Edge, loose: dict[str, set[str]]) -> bool:
    """Nothing outside cancels what is inside, nor the other way round."""
    for id, owners in loose.items():
        if id in nodes and not owners <= nodes:
            return False
        if id not in nodes and owners & nodes:
            return False
    for node in scope.nodes.values():
        targets: set[str] = set()
        if node.join_cancel:
            targets = set(node.cancels) & nodes
        elif node.type == "cancel":
            targets = _named(scope, node)
        if node.id in nodes:
            if node.type == "cancel" and not targets <= nodes:
                return False
        elif targets & nodes and _reaches(scope, node.id, exit):
            return False
    return True


def _named(scope: ScopePlan, node: Node) -> set[str]:
    """Tasks of the scope that a `cancel` gives up; those inside loops are another matter."""
    names: list[str] = node.config.get("tasks", [])
    return {id for id in names if id in scope.nodes and id not in scope.inner}


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


def _outer_first(root: ScopePlan) -> list[ScopePlan]:
    found = [root]
    for scope in found:
        for node in scope.nodes.values():
            inner = node.body or node.loop
            if inner is not None:
                found.append(inner)
    return found
