"""Models made ready for an exploration: tasks of which only links, joins and conditions count."""

from __future__ import annotations

from copy import copy
from typing import Any

from penstock.core.plan import Edge, Guard, Node, Plan, ScopePlan
from penstock.model.definition import Task, Timeouts
from penstock.verify.cases import overlaps
from penstock.verify.space import Model

INSTANT = frozenset({"start", "end", "gateway", "transform", "publish", "cancel"})
"""Types that are over as soon as they fire."""


def sketched(node: Node) -> Node:
    """A task of which only its links, its join and its conditions count."""
    made = copy(node)
    made.inputs, made.formulas, made.values = [], {}, {}
    made.on_complete, made.on_error = [], []
    made.compensate, made.undo_inputs, made.key = None, None, None
    made.output_schema = made.schema = None
    made.body = made.loop = None
    made.timeouts = Timeouts()
    handles = any(out.edge.on != "success" for out in node.outs)
    if node.type in ("transform", "publish"):
        made.type = "activity" if handles else "transform"
    elif node.type not in INSTANT:
        made.type = "activity"
    if node.type not in ("gateway", "end", "cancel"):
        made.config = {}
    return made


def standing_for(id: str, arrivals: list[Edge], outs: list[Any], join: Node | None = None) -> Node:
    """A task that stands for a fragment, or (with its own join) for a natural loop."""
    made = Node(id, id, Task(type="activity"), None)
    made.arrivals, made.outs = arrivals, outs
    if join is not None:
        made.join, made.join_n = join.join, join.join_n
        made.join_cancel, made.cancels = join.join_cancel, join.cancels
    return made


def silent(node: Node) -> bool:
    """It can't fail once it has begun; one whose failure is handled may fail as it begins too."""
    if node.task.timeout is not None and node.task.timeout.task is not None:
        return False
    constant = all(value.constant for value in node.values.values())
    match node.type:
        case "timer" | "signal" | "form" | "event":
            handled = any(out.edge.on != "success" for out in node.outs)
            return "timeout" not in node.config and (constant or not handled)
        case "start" | "end" | "cancel":
            return True
        case "transform":
            return not node.formulas
        case _:
            return False


def asks_at_begin(node: Node) -> bool:
    """An expression may fail before it has begun, or as it ends."""
    if node.conditions or node.formulas or node.on_complete:
        return True
    return not all(value.constant for value in node.values.values())


def written(node: Node) -> frozenset[str]:
    """Keys of the run's data that the task sets."""
    names = set(node.formulas) if node.type == "transform" else set[str]()
    for doing in (*node.on_complete, *node.on_error):
        if doing.kind == "set":
            names.update(name for name, _ in doing.set)
    return frozenset(names)


def loose_ends(plan: Plan) -> dict[str, dict[str, set[str]]]:
    """Tasks that a `cancel` in another scope gives up: by scope and id, while which tasks there are open (none: any
    time)."""
    found: dict[str, dict[str, set[str]]] = {}
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            if node.type == "cancel":
                for id in node.config.get("tasks", ()):
                    _loosen(scope, id, found)
    return found


def _loosen(scope: ScopePlan, id: str, found: dict[str, dict[str, set[str]]]) -> None:
    cursor: ScopePlan | None = scope
    owner = ""
    while cursor is not None:
        inside = cursor
        while id in inside.inner:  # of a natural loop: in its present pass
            loop = inside.nodes[inside.inner[id]].loop
            assert loop is not None
            inside = loop
        if id in inside.nodes:
            if inside is not cursor:
                found.setdefault(inside.path, {}).setdefault(id, set())
            elif owner:
                found.setdefault(inside.path, {}).setdefault(id, set()).add(owner)
            return
        owner, cursor = cursor.owner, cursor.parent


def relate(model: Model) -> None:
    """Note which guards of the model read some of the same."""
    owned: list[tuple[str, Guard]] = []
    for node in model.scope.nodes.values():
        owned += [(node.id, guard) for guard in node.conditions]
        owned += [(node.id, out.edge.guard) for out in node.outs if out.edge.guard is not None]
    watched: set[str] = set()
    for _, guard in owned:
        model.asked.setdefault(guard.text, [])
        watched.update(
            r[1] for r in guard.expression.reads if r[0] == "tasks" and r[2:] == ("status",)
        )
    model.watched = frozenset(watched)
    for text in model.asked:
        one = next(guard for _, guard in owned if guard.text == text)
        model.asked[text] = [(id, other) for id, other in owned if overlaps(one, other)]
