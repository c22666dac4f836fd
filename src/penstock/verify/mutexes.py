"""Mutexes that wait for each other: the one deadlock that links can't make (SPEC 2.3, end).

If no two names are taken in both orders by tasks that may be open together, there is none. Otherwise runs are played in
many orders until one shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.loops import components
from penstock.core.plan import Node, Plan, ScopePlan

Holding = tuple[ScopePlan, Node, ScopePlan, Node]
"""A mutex that is taken (scope, task) while another is held (scope, task)."""


def suspects(plan: Plan) -> list[Holding]:
    """Mutexes by which a deadlock is not ruled out, each while another is held."""
    held = list(_nested(plan))
    certain = [each for each in held if _name(each[1]) == _name(each[3])]
    if certain:
        return certain[:1]
    after: dict[str, list[str]] = {}
    for _, inner, _, outer in held:
        after.setdefault(_name(outer), []).append(_name(inner))
        after.setdefault(_name(inner), [])
    for names in components(after):
        round = [each for each in held if {_name(each[1]), _name(each[3])} <= names]
        if len(names) == 2:
            round = [one for one in round if any(_clash(plan, one, other) for other in round)]
        if len(names) > 1 and round:
            return round
    return []


def _clash(plan: Plan, one: Holding, other: Holding) -> bool:
    if _name(one[1]) != _name(other[3]) or _name(one[3]) != _name(other[1]):
        return False
    return _together(plan, (one[2], one[3]), (other[2], other[3]))


def _nested(plan: Plan) -> Iterator[Holding]:
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            cursor = scope
            while node.type == "mutex" and cursor.parent is not None:
                owner = cursor.parent.nodes[cursor.owner]
                if owner.type == "mutex":
                    yield scope, node, cursor.parent, owner
                cursor = cursor.parent


def _together(plan: Plan, one: tuple[ScopePlan, Node], other: tuple[ScopePlan, Node]) -> bool:
    """Both may be open at one time, as far as the graph says."""
    left, right = _line(*one), _line(*other)
    for (scope, first), (beside, second) in zip(left, right, strict=False):
        assert scope is beside
        if first is not second:
            return plan.concurrent(first.path, second.path)
        if first.type == "map" and first.config.get("limit") != 1:
            return True
    return False


def _line(scope: ScopePlan, node: Node) -> list[tuple[ScopePlan, Node]]:
    """The task and those around it, outermost first."""
    line = [(scope, node)]
    while scope.parent is not None:
        node = scope.parent.nodes[scope.owner]
        scope = scope.parent
        line.append((scope, node))
    return line[::-1]


def _name(node: Node) -> str:
    return str(node.config["name"])
