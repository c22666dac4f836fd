"""Certain: which tasks of a scope are over, for sure, when another one begins.

More than dominators know: an `all` join waits for every way in, and a `merge` for each of which it is certain that it is
taken. A way is certain if nothing on it may choose, be cancelled, or fail and be taken care of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.core.plan import INTERNAL, Edge, Node, Out, Plan, ScopePlan
from penstock.verify.sets import topological

TASKS_MAX = 3_000
"""Of a scope that is looked at this way, each task held against all; of larger ones dominators say what they know."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Tasks that have begun and are over, the last first, and those of them that have not failed."""

    tasks: Sequence[str]
    well: frozenset[str]


class Certain:
    """Of one scope, as bits."""

    def __init__(self, plan: Plan, scope: ScopePlan) -> None:
        self._scope = scope
        self._line = topological(scope)
        """Each task after all that lead to it."""
        self._place = {id: number for number, id in enumerate(self._line)}
        self._calm = not _disturbed(plan, scope)
        self._over: dict[str, int] = {}
        self._well: dict[str, int] = {}
        self._above: dict[str, str | None] | None = None
        if len(scope.nodes) > TASKS_MAX:
            self._above = dominators(scope)
            return
        self._meetings = [
            node
            for node in scope.nodes.values()
            if (node.join == "all" and len(node.arrivals) > 1)
            or (node.join == "n" and node.join_n > 1)
        ]
        """Tasks that more than one link must lead to."""
        self._leads = self._leading()
        for id in self._line:
            node = scope.nodes[id]
            self._over[id], self._well[id] = self._joined(node.arrivals, node.join)

    def before(self, id: str) -> Ended:
        """When that task begins."""
        if self._above is not None:
            return self._chain(id, self._above)
        return self._ended(self._over[id], self._well[id])

    def final(self) -> Ended:
        """When the run is over, well: some link to an end was taken, and all others are decided."""
        arrivals = [edge for end in self._scope.ends for edge in end.arrivals]
        if self._above is not None:
            return Ended((), frozenset())
        over, well = self._joined(arrivals, "n")
        waits = self._calm and not terminating(self._scope)
        return self._ended(self._implied(over) if waits else over, well)

    def _chain(self, id: str, above: Mapping[str, str | None]) -> Ended:
        tasks: list[str] = []
        well: set[str] = set()
        at, upper = id, above.get(id)
        while upper is not None:
            arrivals = self._scope.nodes[at].arrivals
            tasks.append(upper)
            if len(arrivals) == 1 and arrivals[0].on == "success":
                well.add(upper)
            at, upper = upper, above.get(upper)
        return Ended(tasks, frozenset(well))

    def _ended(self, over: int, well: int) -> Ended:
        found: list[str] = []
        good: set[str] = set()
        while over:
            place = over.bit_length() - 1
            found.append(self._line[place])
            if well >> place & 1:
                good.add(self._line[place])
            over ^= 1 << place
        return Ended(found, frozenset(good))

    def _joined(self, arrivals: Sequence[Edge], join: str) -> tuple[int, int]:
        """What is over, and what did not fail, when a task with these links begins."""
        ways = [(edge, *self._through(edge)) for edge in arrivals]
        if not ways:
            return 0, 0
        _, over, well = ways[0]
        for _, more, fine in ways[1:]:
            if join == "all":
                over, well = over | more, well | fine
            else:
                over, well = over & more, well & fine
        every = 0
        for _, more, _ in ways:
            every |= more
        if join != "merge" or not self._calm or not every & ~over:
            return over, well
        grown = True
        while grown:
            grown, sure = False, self._implied(over)
            for edge, more, fine in ways:
                if more & ~over and self._taken(edge, sure):
                    over, well, grown = over | more, well | fine, True
        return over, well

    def _through(self, edge: Edge) -> tuple[int, int]:
        """The same of one link that is taken."""
        source = self._source(edge)
        bit = 1 << self._place[source.id]
        return self._over[source.id] | bit, self._well[source.id] | (bit if edge.on == "success" else 0)  # fmt: skip

    def _source(self, edge: Edge) -> Node:
        return self._scope.nodes[self._scope.inner.get(edge.source, edge.source)]

    def _taken(self, edge: Edge, begun: int) -> bool:
        """It is certain that the link is taken, if those tasks have begun and the scope does not fail."""
        source = self._source(edge)
        return _free(source, edge) and bool(begun >> self._place[source.id] & 1)

    def _implied(self, over: int) -> int:
        """What begins some time for sure, if that has begun and the scope does not fail."""
        found = self._led(over)
        grown = True
        while grown:
            grown = False
            for node in self._meetings:
                bit = 1 << self._place[node.id]
                taken = [self._taken(edge, found) for edge in node.arrivals]
                wanted = len(taken) if node.join == "all" else node.join_n
                if not found & bit and sum(taken) >= wanted:
                    found, grown = found | self._leads[node.id], True
        return found

    def _led(self, begun: int) -> int:
        found, left = begun, begun
        while left:
            place = left.bit_length() - 1
            found |= self._leads[self._line[place]]
            left ^= 1 << place
        return found

    def _leading(self) -> dict[str, int]:
        """By task: what begins for sure once it has begun, by one link alone."""
        found: dict[str, int] = {}
        for id in reversed(self._line):
            node = self._scope.nodes[id]
            mask, outs = 0, [out for out in node.outs if out.edge.on == "success"]
            if node.loop is None and len(outs) == len(node.outs) and outs:
                targets = [self._led_to(out, found) for out in outs]
                if node.gateway is not None:  # one of its links is taken, or it fails
                    mask = targets[0]
                    for target in targets[1:]:
                        mask &= target
                for out, target in zip(outs, targets, strict=True):
                    mask |= target if _free(node, out.edge) else 0
            found[id] = mask | 1 << self._place[id]
        return found

    def _led_to(self, out: Out, found: Mapping[str, int]) -> int:
        if out.role != INTERNAL or self._scope.nodes[out.target] in self._meetings:
            return 0
        return found[out.target]


def _free(source: Node, edge: Edge) -> bool:
    """Once its task has begun, the link is taken, or the scope fails."""
    if edge.on != "success" or edge.guard is not None or source.loop is not None:
        return False
    if any(out.edge.on != "success" for out in source.outs):
        return False
    if source.gateway is not None and source.gateway != "parallel":
        return False
    return not any(out.edge.guard is not None for out in source.outs if source.gateway)


def terminating(scope: ScopePlan) -> list[Node]:
    """Ends that give up what is still open."""
    return [node for node in scope.ends if node.config.get("terminate")]


def _disturbed(plan: Plan, scope: ScopePlan) -> bool:
    """Something in it may be cancelled, or goes on after a failure."""
    if any(
        node.join_cancel or any(out.edge.on == "always" for out in node.outs)
        for node in scope.nodes.values()
    ):
        return True
    return any(node.type == "cancel" for each in plan.scopes.values() for node in each.nodes.values())  # fmt: skip


def dominators(scope: ScopePlan) -> dict[str, str | None]:
    """For each task the nearest that lies on every way to it; None for where the scope begins."""
    following = {
        id: [out.target for out in node.outs if out.role == INTERNAL]
        for id, node in scope.nodes.items()
    }
    order = _order(scope.entry.id, following)
    place = {id: number for number, id in enumerate(order)}
    before: dict[str, list[str]] = {id: [] for id in order}
    for id in order:
        for target in following[id]:
            if target in place:
                before[target].append(id)
    found: dict[str, str | None] = {scope.entry.id: None}
    for id in order[1:]:  # a scope has no cycles: one round is enough
        above: str | None = None
        for source in before[id]:
            if source not in found:
                continue
            above = source if above is None else _meet(above, source, found, place)
        found[id] = above
    return found


def _order(entry: str, following: Mapping[str, Sequence[str]]) -> list[str]:
    """Each task after all that lead to it."""
    order: list[str] = []
    seen = {entry}
    stack = [(entry, iter(following[entry]))]
    while stack:
        id, rest = stack[-1]
        for target in rest:
            if target not in seen and target in following:
                seen.add(target)
                stack.append((target, iter(following[target])))
                break
        else:
            stack.pop()
            order.append(id)
    return order[::-1]


def _meet(a: str, b: str, found: Mapping[str, str | None], place: Mapping[str, int]) -> str:
    while a != b:
        if place[a] > place[b]:
            a = found[a] or a
        else:
            b = found[b] or b
    return a
