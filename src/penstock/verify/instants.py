"""Instants: what may be over in the very step in which it begins, and so comes before or after what else is.

Which of two tasks comes first in one step makes a difference only where one of them cancels what is open: a scope with
such a task is `racy`. Links are decided in rounds, each a link further than the last; a fragment that stands as one task
must not bring a dead path round that race by being shorter.
"""

from __future__ import annotations

from penstock.core.plan import INTERNAL, Edge, Node, ScopePlan

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
    """It may be gone on from as soon as it fires, though its kind takes time."""
    match node.type:
        case "signal":
            return not node.config.get("transient")  # it may have come before
        case "map":
            items = node.formulas["items"].expression
            return bool(items.reads) or items.text.replace(" ", "") == "[]"
        case "loop":
            return "while" in node.formulas
        case _:
            return node.type in INSTANT or bool(node.conditions)


def choices(node: Node, *, racing: bool, silent: bool) -> tuple[str, ...]:
    """What may come of it as it fires; empty: it waits, as its kind does."""
    handled = any(out.edge.on != "success" for out in node.outs)
    if node.type in ("transform", "publish") and handled:
        return (COMPLETE,) if silent else (COMPLETE, FAIL)
    if racing and node.type in ("signal", "map", "loop") and hasty(node):
        fails = handled and node.type != "signal" and bool(node.formulas)
        return (WAIT, COMPLETE, FAIL) if fails else (WAIT, COMPLETE)
    return ()


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
