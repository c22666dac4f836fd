"""Exploration: all scopes of a definition, each taken apart into fragments, each fragment explored alone.

A fragment that was explored is one task of what is around it, that ends in one of its ways. Bodies and natural loops are
scopes, and so fragments too. `verify/regions.py` takes a scope apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy

from msgspec.structs import replace

from penstock.core.plan import EXIT, INTERNAL, Edge, Guard, Node, Out, Plan, ScopePlan
from penstock.model.definition import Task
from penstock.verify.cases import Cases
from penstock.verify.instants import INSTANT, choices, racy, rounds
from penstock.verify.models import (
    Model,
    Move,
    Trail,
    Way,
    asks_at_begin,
    loose_ends,
    relate,
    silent,
    silent_body,
    sketched,
    standing_for,
    written,
)
from penstock.verify.mutexes import suspects
from penstock.verify.regions import Fragment, decompose, given_up
from penstock.verify.space import explore

WORK_MAX = 10_000_000
"""Tasks and links of a fragment times its states: what one state costs grows with them."""


class Exploration:
    """All scopes of a definition, inner before outer, each taken apart and explored."""

    def __init__(
        self, plan: Plan, cases: Cases, *, states: int, each: int, whole: bool = False
    ) -> None:
        self.plan, self.cases = plan, cases
        self.left, self.each, self.whole = states, each, whole
        self.scopes: dict[str, Fragment] = {}
        self.sudden: frozenset[str] = frozenset()
        self.loose = loose_ends(plan)
        self.contended = bool(suspects(plan))
        """A mutex may fail because of another."""
        for scope in reversed(_outer_first(plan.root)):
            self.scopes[scope.path] = self._scope(scope)

    @property
    def fragments(self) -> Iterator[Fragment]:
        for top in self.scopes.values():
            yield from top.every()

    def _scope(self, scope: ScopePlan) -> Fragment:
        left = self.left
        top = self._taken_apart(scope, racing=racy(scope))
        known: set[str] = set()
        while new := {id for part in top.every() for id in part.explored.sudden} - known:
            # It fails beside what else is open and begins in that step: what comes first makes a difference.
            known |= new
            spent, self.left, self.sudden = self.left, left, frozenset(known)
            again = self._taken_apart(scope, racing=True)
            self.sudden = frozenset()
            if any(part.explored.over for part in again.every()):
                self.left = min(self.left, spent)
                # Faults that were seen are faults still, but not all is seen.
                for part in top.every():
                    part.explored.aside = part is not top and not part.explored.over
                    _give_in(part)
                break
            top = again
        return top

    def _taken_apart(self, scope: ScopePlan, *, racing: bool) -> Fragment:
        top = Fragment(scope, frozenset(scope.nodes))
        if not self.whole:
            top = decompose(scope, self.loose.get(scope.path, {}), racing=racing)
        for fragment in list(top.every()):
            self._explore(fragment, racing=racing)
            if racing:
                self._settle(fragment)
        return top

    def _settle(self, fragment: Fragment) -> None:
        """What is over in the step in which it begins, by a failure in it or beside it, can't stand as one task: how far
        it comes is a matter of rounds."""
        while gone := _cut_short(fragment):
            self.left += fragment.explored.states
            for part in gone:
                part.dissolve()
            self._explore(fragment, racing=True)
        if fragment.explored.at_once and fragment.around is not None:
            fragment.dissolve()

    def _explore(self, fragment: Fragment, *, racing: bool) -> None:
        model = self._model(fragment, racing=racing)
        size = len(model.scope.nodes) + sum(len(n.outs) for n in model.scope.nodes.values())
        most = min(self.each, self.left, WORK_MAX // size)
        fragment.explored = explore(model, self.cases, most)
        self.left = max(0, self.left - fragment.explored.states)
        if fragment.explored.over:
            _give_in(fragment)

    def _model(self, fragment: Fragment, *, racing: bool) -> Model:
        scope = fragment.scope
        hidden = {id for part in fragment.inner for id in part.nodes}
        made = ScopePlan("", "run", None, "")
        kind = "pass" if scope.kind == "natural" else "scope"
        model = Model(_bare(self.plan), made, "fragment" if fragment.entry is not None else kind)
        for id in fragment.nodes - hidden:
            self._add(model, scope.nodes[id], racing)
        for part in fragment.inner:
            self._stand(model, part, racing)
        if fragment.entry is None or fragment.exit is None:
            made.entry = made.nodes[scope.entry.id]
        else:
            model.exit = fragment.exit.index
            model.leaver = next(
                id
                for id, node in made.nodes.items()
                if any(_same(out, fragment.exit) for out in node.outs)
            )
            made.entry = _start(fragment.entry)
            made.nodes[fragment.exit.target] = _end(fragment.exit)
        made.nodes = dict(sorted(made.nodes.items()))
        model.plan.scopes = {"": made}
        model.plan.root = made
        joins = any(node.join == "n" for node in scope.nodes.values())
        model.steady = not joins
        model.sudden = self.sudden & made.nodes.keys()
        loose = self.loose.get(scope.path, {})
        model.loose = {id: owners for id, owners in loose.items() if id in made.nodes}
        _prepare(model, scope)
        return model

    def _add(self, model: Model, node: Node, racing: bool) -> None:
        made = model.scope.nodes
        if node.loop is not None:
            made[node.id] = standing_for(node.id, node.arrivals, node.outs, node)
            inner = self.scopes[node.loop.path].explored
            model.ways[node.id] = _leaving(inner.ways)
            if any(way.failed and way.taken for way in model.ways[node.id]):
                model.saving.add(node.id)
            if inner.failing:
                model.fallible.add(node.id)
        else:
            made[node.id] = sketched(node)
            model.silent[node.id] = silent(node)
            soon = choices(node, racing=racing, silent=silent(node))
            if soon:
                model.instant[node.id] = soon
        model.writes[node.id] = _written(node)
        if node.works or node.type == "subworkflow":
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
        inner = self.scopes[node.body.path].explored
        completes = any(not way.failed for way in inner.ways)
        fails = any(way.failed for way in inner.ways)
        match node.type:
            case "map":
                completes = True  # of no items
                all_kept = (
                    node.config.get("onItemError") == "collect" and "tolerate" not in node.config
                )
                fails = fails and not all_kept
                fails = fails or "n" in node.config or bool(node.formulas["items"].expression.reads)
            case "loop":
                completes = completes or "while" in node.formulas
                reads = {r[0] for g in node.formulas.values() for r in g.expression.reads}
                fails = fails or "max" in node.config or bool(reads - {"iteration"})
            case _:
                fails = fails or self.contended
        if fails and inner.failing:
            model.fallible.add(node.id)
        if not completes:
            model.stuck.add(node.id)
        model.silent[node.id] = silent_body(node) and not fails

    def _stand(self, model: Model, part: Fragment, racing: bool) -> None:
        assert part.entry is not None
        assert part.exit is not None
        last = part.exit
        count = rounds(part.scope, part.nodes, part.entry) - 1 if racing else 0
        for number in range(count):  # where it is dead, that takes as many rounds as in the whole
            hop = Node(f" {part.id} {number}", "", Task(type="gateway"), None)
            bare = copy(part.exit)
            bare.guard, bare.on, bare.source = None, "success", hop.id
            hop.outs = [Out(bare, INTERNAL, last.target)]
            last = copy(part.exit)
            last.target = hop.id
            hop.arrivals = [last]
            model.scope.nodes[hop.id] = hop
        out = Out(last, INTERNAL, last.target)
        model.scope.nodes[part.id] = standing_for(part.id, [part.entry], [out])
        model.ways[part.id] = tuple(part.explored.ways)
        if any(way.failed and way.taken for way in part.explored.ways):
            model.saving.add(part.id)
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


def _cut_short(fragment: Fragment) -> list[Fragment]:
    """Parts of it that are never open when a step is over, though they begin."""
    found = fragment.explored
    if found.over:
        return []
    return [part for part in fragment.inner if part.id in found.fired.keys() - found.lasting]


def _give_in(fragment: Fragment) -> None:
    """Not all of it was seen: it may end in any way."""
    explored = fragment.explored
    explored.over = True
    trail = next(iter(explored.fired.values()), Trail(None, Move("start")))
    for way in _any_way(fragment):
        explored.ways.setdefault(way, trail)


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


def _same(out: Out, exit: Edge) -> bool:
    """It is that link, or (of a fragment that ends where the one around it does) stands for it."""
    return out.edge.index == exit.index and out.target == exit.target


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
            named = given_up(scope, node)
            node.config = {"tasks": sorted(named)}
            targets |= named
        targets &= nodes.keys()
        if any(out.edge.on == "always" for out in node.outs) or node.id in model.saving:
            # If it fails the rest is given up, and what it leads to goes on.
            beside = nodes.keys() - _triggers(nodes, {node.id}) - _followers(nodes, node.id)
            targets |= beside | {node.id} if len(beside) > 1 else set[str]()
        if targets:
            cancelling.add(node.id)
            cancellable |= targets
    model.cancellable = frozenset(cancellable | model.loose.keys())
    owners = {id for each in model.loose.values() for id in each}
    model.triggers = frozenset(
        _triggers(nodes, cancelling) | owners | _looking(model) | _hurting(model)
    )
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


def _hurting(model: Model) -> set[str]:
    """Tasks whose end may at once lead to one by which the scope fails: by a link to it, by one that may be dead, or by way
    of what is over as it begins."""
    nodes = model.scope.nodes
    before = _triggers(nodes, set(model.sudden)) | model.sudden
    found = set(model.sudden)
    for id in before:
        outs = nodes[id].outs
        dead = any(out.edge.on != "success" or out.edge.guard is not None for out in outs)
        dead = dead or id in model.ways or id in model.cancellable
        if dead or any(out.target in before and _passes(model, out.target) for out in outs):
            found.add(id)
    for node in nodes.values():
        if node.gateway == "event":  # the end of one is the end of the others
            targets = {out.target for out in node.outs}
            found |= targets if targets & before else set[str]()
    return found


def _passes(model: Model, id: str) -> bool:
    """It may be gone on from in the step in which it begins; one by which the scope fails ends there."""
    node = model.scope.nodes.get(id)
    if node is None or id in model.sudden or id in model.instant:
        return True
    return node.type in INSTANT or bool(node.conditions)


def _looking(model: Model) -> set[str]:
    """Tasks whose status a condition asks for while they may be open, and those that lead to such a condition: which of
    them comes first makes a difference."""
    nodes, found = model.scope.nodes, set[str]()
    if not model.watched:
        return found
    waits = all(node.join != "n" for node in nodes.values())
    for text, asked in model.asked.items():
        for owner, guard in asked:
            if guard.text != text:
                continue
            before = _triggers(nodes, {owner})
            for read in guard.expression.reads:
                id = read[1] if read[0] == "tasks" and read[2:] == ("status",) else owner
                if id == owner or id not in nodes or (waits and id in before):
                    continue
                if owner not in _triggers(nodes, {id}):
                    found |= {id, owner} | before
    return found


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


def _followers(nodes: dict[str, Node], id: str) -> set[str]:
    """Tasks to which there is a path from it."""
    found: set[str] = set()
    todo = [id]
    while todo:
        for out in nodes[todo.pop()].outs:
            if out.role == INTERNAL and out.target in nodes and out.target not in found:
                found.add(out.target)
                todo.append(out.target)
    return found


def _outer_first(root: ScopePlan) -> list[ScopePlan]:
    found = [root]
    for scope in found:
        for node in scope.nodes.values():
            inner = node.body or node.loop
            if inner is not None:
                found.append(inner)
    return found
