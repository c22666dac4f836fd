"""Models made ready for an exploration, and the ways, moves and trails of one.

A Model is a scope, or a fragment of one (`verify/fragments.py`): everything that takes time is a plain task of which only
links, joins and conditions count, and a fragment that was explored before is one task too, that ends in one of its Ways.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any

from penstock.core.plan import Edge, Guard, Node, Plan, ScopePlan
from penstock.model.definition import Task, Timeouts
from penstock.verify.cases import Outcome, overlaps
from penstock.verify.instants import INSTANT

Facts = dict[str, tuple[Guard, Outcome]]
"""By text: what a condition has come to, where it would come to the same again."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a scope or fragment ends: with these of its outgoing links true, well or not."""

    taken: frozenset[int] = frozenset()
    failed: bool = False
    back: bool = False
    """Of a pass: there is another."""
    left: bool = False
    """Of a pass: a true error link leaves the loop."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step: what happened to which task, and what followed at once."""

    verb: str
    """`start`, `complete`, `fail` or `cancel`."""
    id: str = ""
    asks: tuple[tuple[Guard, Outcome], ...] = ()
    ways: tuple[tuple[str, Way], ...] = ()
    """Of fragments that ended in this step."""


@dataclass(frozen=True, slots=True)
class Trail:
    """A sequence of moves, by its last one."""

    before: Trail | None
    move: Move

    def moves(self) -> list[Move]:
        found: list[Move] = []
        trail: Trail | None = self
        while trail is not None:
            found.append(trail.move)
            trail = trail.before
        return found[::-1]


@dataclass(slots=True)
class Model:
    """What is explored at once."""

    plan: Plan
    scope: ScopePlan
    kind: str
    """`scope`, `fragment` or `pass`."""
    exit: int = -1
    """Of a fragment: the index of the link that leaves it."""
    leaver: str = ""
    """And the task that it comes from."""
    ways: dict[str, tuple[Way, ...]] = field(default_factory=dict[str, tuple[Way, ...]])
    """Of tasks that stand for a fragment or a natural loop."""
    silent: dict[str, bool] = field(default_factory=dict[str, bool])
    """By task: whether it can't fail."""
    instant: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By task: what may come of it as soon as it begins (`verify/instants.py`)."""
    writes: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """By task: the keys of the run's data that it sets."""
    asked: dict[str, list[tuple[str, Guard]]] = field(
        default_factory=dict[str, list[tuple[str, Guard]]]
    )
    """By text of a guard: the guards that read some of the same, with the tasks that ask them."""
    fallible: set[str] = field(default_factory=set[str])
    """Tasks whose attempts may fail."""
    saving: set[str] = field(default_factory=set[str])
    """Tasks that stand for others, of which something goes on though they fail."""
    stuck: set[str] = field(default_factory=set[str])
    """Tasks that can only fail."""
    steady: bool = True
    """What a task around has given does not change any more while this runs."""
    sudden: frozenset[str] = frozenset()
    """Tasks by which the scope may fail in a step that is about another: all that is open is cancelled then."""
    loose: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Tasks that may be cancelled from another scope, while one of these is open (none given: any time)."""
    cancellable: frozenset[str] = frozenset()
    triggers: frozenset[str] = frozenset()
    """Tasks whose end may at once cancel others."""
    rank: dict[str, int] = field(default_factory=dict[str, int])
    watched: frozenset[str] = frozenset()
    """Tasks whose status a condition reads."""
    errors: frozenset[str] = frozenset()
    """Texts of guards whose failing is handled, and so leads somewhere."""
    may_fail: bool = False
    """A failure that no task of it stands for: an expression."""


def sketched(node: Node) -> Node:
    """A task of which only its links, its join and its conditions count."""
    made = copy(node)
    made.inputs, made.formulas, made.values = [], {}, {}
    made.on_complete, made.on_error = [], []
    made.compensate, made.undo_inputs, made.key = None, None, None
    made.output_schema = made.schema = made.added = None
    made.body = made.loop = None
    made.timeouts = Timeouts()
    handles = any(out.edge.on != "success" for out in node.outs)
    if node.type in ("transform", "publish"):
        made.type = "activity" if handles else "transform"
    elif node.type not in INSTANT or node.added is not None:
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


def silent_body(node: Node) -> bool:
    """It fails only if its body does."""
    limit = node.task.timeout
    return limit is None or limit.task is None


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
                    _loosen(plan, scope, node.id, id, found)
    return found


def _loosen(
    plan: Plan, scope: ScopePlan, by: str, id: str, found: dict[str, dict[str, set[str]]]
) -> None:
    cursor: ScopePlan | None = scope
    while cursor is not None:
        inside = cursor
        while id in inside.inner:  # of a natural loop: in its present pass
            loop = inside.nodes[inside.inner[id]].loop
            assert loop is not None
            inside = loop
        if id in inside.nodes:
            if inside.nodes[id].gateway is not None:
                return  # it is over as soon as it begins: there is nothing to give up
            if inside is not cursor:
                header = cursor.nodes[cursor.inner[id]]
                if header.id == by or plan.concurrent(cursor.nodes[by].path, header.path):
                    found.setdefault(inside.path, {}).setdefault(id, set())
            elif cursor is not scope and (
                by == id or plan.concurrent(cursor.nodes[by].path, cursor.nodes[id].path)
            ):
                found.setdefault(inside.path, {}).setdefault(id, set()).add(by)
            return
        by, cursor = cursor.owner, cursor.parent


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
