"""Instants: what may be over in the very step in which it begins, and so comes before or after what else is.

Which of two tasks comes first in one step makes a difference only where what is open is then cancelled: by a task, in a
scope that is `racy`, or because the scope fails in that step, by a join that starves or a gateway without a branch. What
was over before that has led on, what was not is given up. Links are decided in rounds, each a link further than the
last; a fragment that stands as one task must not bring a path round that race by being shorter.
"""

from __future__ import annotations

from penstock.core.plan import INTERNAL, Edge, Node, ScopePlan
from penstock.expr.tree import ListLiteral, Literal

INSTANT = frozenset({"start", "end", "gateway", "transform", "publish", "cancel"})
"""Types that are over as soon as they fire."""
WAIT, COMPLETE, FAIL = "wait", "complete", "fail"


def racy(scope: ScopePlan) -> bool:
    """A task of it cancels others."""
    return any(
        node.join_cancel
        or node.type == "cancel"
        or (node.type == "end" and node.config.get("terminate"))
        for node in scope.nodes.values()
    )


def hasty(node: Node) -> bool:
    """It may be gone on from as soon as it fires, though its kind may take time."""
    if node.type in INSTANT or node.conditions:
        return True
    return _prompt(node) or (_handled(node) and _stumbles(node))


def _prompt(node: Node) -> bool:
    """It may complete as it fires, though its kind takes time."""
    match node.type:
        case "signal":
            return not node.config.get("transient")  # it may have come before
        case "map":
            items = node.formulas["items"].expression.tree
            return not isinstance(items, ListLiteral) or all(each.optional for each in items.items)
        case "loop":
            return "while" in node.formulas
        case _:
            return False


def _stumbles(node: Node) -> bool:
    """It may fail as it fires: by an expression, or by what it finds there."""
    match node.type:
        case "map":
            items = node.formulas["items"].expression.tree
            if not isinstance(items, ListLiteral):
                return True
            given = [each for each in items.items if isinstance(each.value, Literal)]
            return len(given) < max(len(items.items), node.config.get("n", 0))
        case "loop":
            return _prompt(node)
        case "activity" | "signal" | "timer" | "event" | "form":
            return bool(node.inputs) or not all(each.constant for each in node.values.values())
        case _:
            return True


def _handled(node: Node) -> bool:
    return any(out.edge.on != "success" for out in node.outs)


def choices(node: Node, *, racing: bool, silent: bool) -> tuple[str, ...]:
    """What may come of it as it fires; empty: it waits, as its kind does."""
    handled = _handled(node)
    if node.type in ("transform", "publish") and handled:
        return (COMPLETE,) if silent else (COMPLETE, FAIL)
    if not racing or node.type in INSTANT:
        return ()
    soon = [COMPLETE] * _prompt(node) + [FAIL] * (handled and _stumbles(node))
    return (WAIT, *soon) if soon else ()


def rushes(scope: ScopePlan, nodes: frozenset[str], entry: Edge, exit: Edge) -> bool:
    """Whether there is a way from the one link to the other on which nothing need wait."""
    todo, seen = [entry.target], {entry.target}
    while todo:
        node = scope.nodes[todo.pop()]
        if not hasty(node):
            continue
        for out in node.outs:
            if out.edge is exit:
                return True
            if out.role == INTERNAL and out.target in nodes and out.target not in seen:
                seen.add(out.target)
                todo.append(out.target)
    return False


def rescuable(scope: ScopePlan) -> set[str]:
    """Tasks that may run while their scope fails: those that an `always` link leads to, and what follows."""
    found: set[str] = set()
    todo: list[str] = []
    for node in scope.nodes.values():
        todo += [o.target for o in node.outs if o.role == INTERNAL and o.edge.on == "always"]
    while todo:
        id = todo.pop()
        if id not in found:
            found.add(id)
            todo += [o.target for o in scope.nodes[id].outs if o.role == INTERNAL]
    return found


def rounds(scope: ScopePlan, nodes: frozenset[str], entry: Edge) -> int:
    """How many links further it is dead than where it begins: the longest way through it."""
    far: dict[str, int] = {}
    stack = [entry.target]
    while stack:
        id = stack[-1]
        after = [o.target for o in scope.nodes[id].outs if o.role == INTERNAL and o.target in nodes]
        left = [target for target in after if target not in far]
        if left:
            stack += left
            continue
        far[id] = 1 + max((far[target] for target in after), default=0)
        stack.pop()
    return far[entry.target]
