"""Sets: what each task reads and writes, where that is written, and which tasks are concurrent (SPEC 2.6, 3.5).

From inputs, expressions, actions and what is declared by `reads` and `writes`. A task writes its own results
(`tasks.ID`), run data by `set` and `transform`, and what it declares. Concurrent: neither lies on a path to the other;
what lies on different branches of one choice never meets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.core.plan import INTERNAL, Doing, Formula, Guard, Input, Node, Plan, ScopePlan, Value
from penstock.dsl.finding import Path
from penstock.verify.cases import Read
from penstock.verify.scopes import place
from penstock.verify.verification import Signature, signature_of_added

Moment = Literal["begin", "end"]
FIXED = frozenset({"input", "item", "index", "iteration", "run", "now"})
"""Roots of what no task of the run changes."""
CHOOSING = ("exclusive", "event")
WAYS_MAX = 8
"""Ways to one task that are told apart."""
Way = dict[str, int]
"""By choice, its branches that are open, as bits; a choice that is not named: all."""


@dataclass(frozen=True, slots=True)
class Touch:
    """One place where a task reads or writes something."""

    scope: ScopePlan
    node: Node
    path: Read
    """`("data", NAME, …)`, `("tasks", STATIC PATH)`, `("global", NAME, …)`, or the parts of a declared path."""
    writes: bool
    moment: Moment
    where: Path
    """In the document."""
    declared: bool = False
    """By `reads` or `writes`: the engine does not see it."""
    part: Read = ()
    """Of what a task gave: which part of it is read, as `("output", "total")`."""
    source: Any = None
    """The Input, Guard, Formula or Value that reads."""

    @property
    def name(self) -> str:
        """As people write it."""
        if self.path[0] == "tasks" and not self.declared:
            return ".".join(("tasks", self.path[1].rpartition("/")[2], *self.part))
        return ".".join(self.path)


class Sets:
    """All touches of a definition."""

    def __init__(self, plan: Plan, activities: Mapping[str, Signature] | None = None) -> None:
        self.plan = plan
        self.touches: list[Touch] = []
        for scope in plan.scopes.values():
            for node in scope.nodes.values():
                self.touches += _touches(plan, scope, node)
        self._imply(activities or {})

    def _imply(self, activities: Mapping[str, Signature]) -> None:
        """Parameters that no input gives are looked up by name, in the run's data first (SPEC 2.6)."""
        written = {
            path[1]
            for path in (touch.path for touch in self.writes)
            if path[0] == "data" and len(path) > 1
        }
        for scope in self.plan.scopes.values():
            for node in scope.nodes.values():
                if node.added is not None:
                    signature = signature_of_added(node.added)
                else:
                    called = node.config.get("activity", "") if node.type == "activity" else ""
                    signature = activities.get(called)
                if signature is None:
                    continue
                given = {each.name for each in node.inputs}
                for name in sorted(written & signature.parameters.keys() - given):
                    at = place(scope, node.id)
                    self.touches.append(Touch(scope, node, ("data", name), False, "begin", at))

    @property
    def reads(self) -> Iterator[Touch]:
        return (touch for touch in self.touches if not touch.writes)

    @property
    def writes(self) -> Iterator[Touch]:
        return (touch for touch in self.touches if touch.writes)


def resolve(plan: Plan, scope: ScopePlan, id: str) -> tuple[ScopePlan, Node] | None:
    """What `tasks.ID` means from a scope: the task itself, inside its loop if need be."""
    cursor: ScopePlan | None = scope
    while cursor is not None:
        found = _inside(plan, cursor, id)
        if found is not None:
            return found
        cursor = cursor.parent
    return None


def _inside(plan: Plan, scope: ScopePlan, id: str) -> tuple[ScopePlan, Node] | None:
    while True:
        node = scope.nodes.get(id)
        header = scope.inner.get(id)
        if header is None and (node is None or node.loop is None):
            return None if node is None else (scope, node)
        loop = scope.nodes[header or id].loop
        assert loop is not None
        scope = loop


# --- touches of one task -------------------------------------------------------------------------------------------


def _touches(plan: Plan, scope: ScopePlan, node: Node) -> Iterator[Touch]:
    at = place(scope, node.id)
    if node.loop is None:
        yield Touch(scope, node, ("tasks", node.path), True, "end", at)
    else:
        yield from _of_passes(plan, scope, node)
    for where, moment, part in parts_of(node, at):
        yield from _reads_of(plan, scope, node, part, moment, where)
    for out in node.outs:
        if out.role == INTERNAL and out.edge.guard is not None and node.loop is None:
            where = link_place(scope, out.edge.index)
            yield from _reads_of(plan, scope, node, out.edge.guard, "end", where)
    for name, where, moment in _written(node, at):
        yield Touch(scope, node, ("data", name), True, moment, where)
    for field, writes, texts in (("reads", False, node.task.reads), ("writes", True, node.task.writes)):  # fmt: skip
        for index, text in enumerate(texts):
            path, moment = declared_path(plan, text), "end" if writes else "begin"
            if path[0] not in FIXED:
                yield Touch(scope, node, path, writes, moment, (*at, field, index), declared=True)


def _of_passes(plan: Plan, scope: ScopePlan, node: Node) -> Iterator[Touch]:
    """Links back and out of a natural loop are decided when nothing in the pass is open: the loop reads then."""
    assert node.loop is not None
    for inner in node.loop.nodes.values():
        for out in inner.outs:
            if out.role != INTERNAL and out.edge.guard is not None:
                where = link_place(node.loop, out.edge.index)
                yield from _reads_of(plan, node.loop, inner, out.edge.guard, "end", where, (scope, node))  # fmt: skip


def link_place(scope: ScopePlan, index: int) -> Path:
    return (*place(scope, "")[:-2], "links", index, "condition", "expression")


def declared_path(plan: Plan, text: str) -> Read:
    """`data.total` and the like; a bare name is a key of the run's data if there is one, else something outside."""
    parts = tuple(text.split("."))
    if parts[0] in plan.definition.data:
        return ("data", *parts)
    return parts


def parts_of(node: Node, at: Path) -> Iterator[tuple[Path, Moment, Any]]:
    """Everything of a task that reads, where it stands and when it is asked."""
    for index, guard in enumerate(node.conditions):
        yield (*at, "conditions", index, "expression"), "begin", guard
    for given in node.inputs:
        yield (*at, "inputs", given.name), "begin", given
    for given in node.undo_inputs or ():
        yield (*at, "compensate", "inputs", given.name), "end", given
    for name, formula in node.formulas.items():
        inner = ("config", "set", name) if node.type == "transform" else ("config", name)
        yield (*at, *inner), "end" if name == "reply" else "begin", formula
    for name, value in node.values.items():
        yield (*at, "config", name), "begin", value
    if node.key is not None:
        yield (*at, "limits", "key"), "begin", node.key
    for field, doings in (("onComplete", node.on_complete), ("onError", node.on_error)):
        for index, doing in enumerate(doings):
            for name, formula in doing.set:
                yield (*at, field, index, "set", name), "end", formula
            if doing.value is not None:
                yield (*at, field, index, doing.kind), "end", doing.value


def _written(node: Node, at: Path) -> Iterator[tuple[str, Path, Moment]]:
    if node.type == "transform":
        for name in node.formulas:
            yield name, (*at, "config", "set", name), "begin"
    doings: tuple[tuple[str, list[Doing]], ...] = (
        ("onComplete", node.on_complete),
        ("onError", node.on_error),
    )
    for field, actions in doings:
        for index, doing in enumerate(actions):
            for name, _ in doing.set:
                yield name, (*at, field, index, "set", name), "end"


def _reads_of(
    plan: Plan,
    scope: ScopePlan,
    node: Node,
    part: Any,
    moment: Moment,
    where: Path,
    reader: tuple[ScopePlan, Node] | None = None,
) -> Iterator[Touch]:
    """`reader`: who does it, if it is not the task in whose words it is written."""
    by_scope, by = reader or (scope, node)
    for read in sorted(reads_of(part)):
        if read[0] in FIXED:
            continue
        if read[0] != "tasks":
            yield Touch(by_scope, by, read, False, moment, where, source=part)
        elif len(read) > 1:
            found = resolve(plan, scope, read[1])
            if found is not None and found[1] is not node:
                yield Touch(
                    by_scope, by, ("tasks", found[1].path), False, moment, where,
                    part=read[2:], source=part,
                )  # fmt: skip


def reads_of(part: Any) -> Iterable[Read]:
    """What an expression, template or input reads."""
    match part:
        case Guard() | Formula():
            return part.expression.reads
        case Value():
            return part.reads
        case Input():
            if part.template is not None:
                return part.template.reads
            return () if part.source is None else (_source_of(part),)
        case _:
            return ()


def _source_of(given: Input) -> Read:
    """Where an input is read, as far as its path is a plain one."""
    assert given.source is not None
    special = given.source in (*FIXED, "data", "global")
    root: Read = (given.source,) if special else ("tasks", given.source, "output")
    return (*root, *(() if given.path is None else plain(given.path.text)))


def plain(path: str) -> Read:
    """The names at the beginning of a JSONPath, up to what is not a plain name."""
    names: list[str] = []
    for name in path.removeprefix("$").split(".")[1:]:
        if not name.replace("_", "a").isalnum():
            bare = name.partition("[")[0]
            if bare and bare.replace("_", "a").isalnum():
                names.append(bare)
            break
        names.append(name)
    return tuple(names)


# --- who is concurrent with whom -----------------------------------------------------------------------------------


class Order:
    """Which tasks of a scope come after which, and which exclude one another; as bits."""

    def __init__(self, scope: ScopePlan) -> None:
        self.scope = scope
        self.place = {id: number for number, id in enumerate(scope.nodes)}
        self.ids = list(scope.nodes)
        order = self.line = topological(scope)
        """Each after all that lead to it."""
        self.after: dict[str, int] = {}
        """By id: all that lie behind it."""
        self.before: dict[str, int] = dict.fromkeys(scope.nodes, 0)
        for id in reversed(order):
            mask = 0
            for out in scope.nodes[id].outs:
                if out.role == INTERNAL:
                    mask |= 1 << self.place[out.target] | self.after[out.target]
            self.after[id] = mask
        for id in order:
            bit = 1 << self.place[id]
            for out in scope.nodes[id].outs:
                if out.role == INTERNAL:
                    self.before[out.target] |= bit | self.before[id]
        self._full = _full(scope)
        self._ways = self._reached(order)
        """By id: the ways by which it is reached, each as the branches that are open in each choice."""

    def leads(self, first: str, second: str) -> bool:
        """There is a path."""
        return bool(self.after[first] >> self.place[second] & 1)

    def apart(self, id: str) -> int:
        """All that neither lead to it nor come after it."""
        every = (1 << len(self.ids)) - 1
        return every & ~(self.after[id] | self.before[id] | 1 << self.place[id])

    def exclusive(self, first: str, second: str) -> bool:
        """They lie on different branches of some choice, whichever way they are reached: never both run."""
        return all(
            any(choice in right and not mask & right[choice] for choice, mask in left.items())
            for left in self._ways[first]
            for right in self._ways[second]
        )

    def concurrent(self, first: str, second: str) -> bool:
        return bool(self.apart(first) >> self.place[second] & 1) and not self.exclusive(first, second)  # fmt: skip

    def _reached(self, order: list[str]) -> dict[str, list[Way]]:
        found: dict[str, list[Way]] = {}
        places = {
            node.id: {out.edge.index: place for place, out in enumerate(node.outs)}
            for node in self.scope.nodes.values()
        }
        for id in order:
            node = self.scope.nodes[id]
            arrivals: list[list[Way]] = []
            for edge in node.arrivals:
                source = self.scope.nodes[self.scope.inner.get(edge.source, edge.source)]
                choices = dict(_branch(source, places[source.id].get(edge.index, 0)))
                arrivals.append([w for way in found[source.id] if (w := _both(way, choices)) is not None])  # fmt: skip
            if node.join == "all" and arrivals:
                ways = arrivals[0]
                for other in arrivals[1:]:
                    both = (_both(one, two) for one in ways for two in other)
                    ways = _fewer([way for way in both if way is not None], self._full)
            else:
                ways = _fewer([way for ways in arrivals for way in ways], self._full)
            found[id] = ways or [{}]
        return found


def _branch(source: Node, place: int) -> Iterator[tuple[str, int]]:
    """The choices that are made by taking that link: a gateway's, and whether the task failed."""
    if source.loop is not None:
        return
    edge = source.outs[place].edge
    if edge.on != "always":
        yield f"{source.id} ended", 1 if edge.on == "success" else 2
    if source.gateway in CHOOSING and edge.on != "error":
        yield source.id, 1 << place


def _full(scope: ScopePlan) -> dict[str, int]:
    """By choice: all its branches."""
    found: dict[str, int] = {}
    for node in scope.nodes.values():
        found[f"{node.id} ended"] = 3
        if node.gateway in CHOOSING:
            places = (n for n, out in enumerate(node.outs) if out.edge.on != "error")
            found[node.id] = sum(1 << n for n in places)
    return found


def _both(one: Way, other: Way) -> Way | None:
    """Both hold; None if they can't."""
    found = dict(one)
    for choice, mask in other.items():
        found[choice] = found.get(choice, -1) & mask
        if not found[choice]:
            return None
    return found


def _fewer(ways: list[Way], full: Mapping[str, int]) -> list[Way]:
    """The same ways, or a few that hold all of them: those that differ in one choice are one, and what is open is left
    out."""
    merged = True
    while merged:
        merged = False
        kept: list[Way] = []
        for way in ways:
            for number, known in enumerate(kept):
                one = _merged(known, way, full)
                if one is not None:
                    kept[number], merged = one, True
                    break
            else:
                kept.append(way)
        ways = kept
    if len(ways) > WAYS_MAX:
        found = ways[0]
        for way in ways[1:]:
            found = {choice: mask | way[choice] for choice, mask in found.items() if choice in way}
        return [found]
    return ways


def _merged(one: Way, other: Way, full: Mapping[str, int]) -> Way | None:
    if one.keys() != other.keys():
        if all(choice in other and other[choice] | mask == mask for choice, mask in one.items()):
            return one  # the other is a case of it
        if all(choice in one and one[choice] | mask == mask for choice, mask in other.items()):
            return other
        return None
    differ = [choice for choice in one if one[choice] != other[choice]]
    if len(differ) > 1:
        return None
    found = dict(one)
    for choice in differ:
        found[choice] |= other[choice]
        if found[choice] == full[choice]:
            del found[choice]
    return found


def topological(scope: ScopePlan) -> list[str]:
    """Each task after all that lead to it."""
    waits = dict.fromkeys(scope.nodes, 0)
    for node in scope.nodes.values():
        for out in node.outs:
            if out.role == INTERNAL:
                waits[out.target] += 1
    order = [id for id, count in waits.items() if not count]
    for id in order:
        for out in scope.nodes[id].outs:
            if out.role == INTERNAL:
                waits[out.target] -= 1
                if not waits[out.target]:
                    order.append(out.target)
    return order


class Orders:
    """The Order of each scope, made when first asked."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._made: dict[str, Order] = {}

    def of(self, scope: ScopePlan) -> Order:
        if scope.path not in self._made:
            self._made[scope.path] = Order(scope)
        return self._made[scope.path]

    def within(self, scope: ScopePlan, node: Node, outer: ScopePlan) -> Node | None:
        """The task of `outer` in which that task is, or which it is."""
        while scope is not outer:
            if scope.parent is None:
                return None
            node, scope = scope.parent.nodes[scope.owner], scope.parent
        return node


def by_root(touches: Iterable[Touch]) -> Mapping[Read, list[Touch]]:
    """Grouped by what may be the same: the key of data, the task, the name outside; what is read whole is in every
    group of it."""
    found: dict[Read, list[Touch]] = {}
    whole: list[Touch] = []
    for touch in touches:
        if touch.path[0] not in ("data", "global", "tasks"):
            found.setdefault(touch.path[:1], []).append(touch)
        elif len(touch.path) == 1:
            whole.append(touch)
        else:
            found.setdefault(touch.path[:2], []).append(touch)
    for touch in whole:
        for root, group in found.items():
            if root[0] == touch.path[0]:
                group.append(touch)
    return found


def overlap(left: Read, right: Read) -> bool:
    return left[: len(right)] == right[: len(left)]
