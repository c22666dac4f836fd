"""Links, joins and gateways: when a task fires, dies or waits, and which links it takes (SPEC 2.3).

What a task does once it fires is in `core/kinds/`; how it ends is in `core/scopes.py`. Methods of Flow, and what
they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import functions, kinds
from penstock.core.keys import with_key
from penstock.core.plan import BACK, INTERNAL, Edge, Node, Out
from penstock.core.values import Fault
from penstock.model.failure import Failure
from penstock.model.run import CANCELLED, FAILED, OPEN_TASK, PENDING, SKIPPED, Scope, TaskState

if TYPE_CHECKING:
    from penstock.core.flow import Flow

ADVANCES_MAX = 500_000
"""Links decided by one event; more is a definition that runs away without ever waiting."""


def arrive(flow: Flow, path: str, id: str, edge: Edge, taken: bool, rescue: bool) -> None:
    """A link is decided: does its target fire, die, starve or wait?"""
    scope = flow.run.scopes.get(path)
    if scope is None or scope.over:
        return
    flow.advances += 1
    if flow.advances > ADVANCES_MAX:
        _runaway(flow)
        return
    node = flow.plan.scopes[scope.plan].nodes[id]
    if node.type == "end" and node.join == "merge" and not node.config and not node.conditions:
        if taken and (scope.failure is None or rescue):
            scope.ended = True
        return
    state = scope.tasks.get(id)
    if state is None:
        state = scope.tasks[id] = TaskState()
    if taken:
        state.trues += 1
        state.rescue = state.rescue or rescue
    else:
        state.deads += 1
        if node.join != "merge" and not state.dead_link:
            state.dead_link = edge.index + 1
    if state.status != PENDING:
        return  # a later token of an `any` or `n` join: recorded and absorbed
    arrivals, trues, deads = len(node.arrivals), state.trues, state.deads
    if node.join == "merge":
        if trues + deads < arrivals:
            return
        satisfiable, fires = trues > 0, trues > 0
    else:
        wanted = arrivals if node.join == "all" else node.join_n
        fires = trues >= wanted
        satisfiable = arrivals - deads >= wanted
    if fires:
        flow.fire(path, scope, node, state)
    elif deads == arrivals:
        _die(flow, path, scope, node, state)
    elif not satisfiable and trues:
        dead = next((e.name for e in node.arrivals if e.index + 1 == state.dead_link), "")
        why = f"but {dead} is dead" if dead else f"but there are only {arrivals}"
        wanted = node.join_n if node.join == "n" else "all"
        failure = Failure(
            code="join-starved",
            message=f"`{id}` waits for {wanted} of its links, {why}",
            key=flow.key(path, id),
        )
        flow.fail(path, scope, node, state, failure)


def _runaway(flow: Flow) -> None:
    flow.todo.clear()
    flow.checks.clear()
    flow.stop(
        FAILED,
        Failure(
            code="advance-limit",
            message=f"one event decided more than {ADVANCES_MAX} links without a wait",
        ),
    )


def _die(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """All incoming links are dead: SKIPPED, and its own links die."""
    state.status, state.ended_at = SKIPPED, flow.at
    for out in node.outs:
        flow.route(path, scope, out, False)


def fire(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    if flow.run.stopping is not None:
        return
    if scope.failure is not None and not state.rescue:
        state.status, state.ended_at = CANCELLED, flow.at
        for out in node.outs:
            flow.route(path, scope, out, False)
        return
    if node.join_cancel:
        for id in node.cancels:
            other = scope.tasks.get(id)
            if other is not None and other.status in OPEN_TASK:
                flow.cancel_task(path, scope, id, other)
    state.scheduled_at = flow.at
    try:
        for guard in node.conditions:
            if not flow.ask(guard, path, f"condition of `{node.id}`"):
                state.status, state.ended_at = SKIPPED, flow.at
                flow.decide_links(path, scope, node, state)
                return
        begin = kinds.begin_added if node.added is not None else kinds.BEGIN[node.type]
        begin(flow, path, scope, node, state)
        limit = node.timeouts.task
        if limit is not None and state.status in OPEN_TASK:
            state.deadline = flow.counted(flow.at + limit)
            flow.due(state.deadline, flow.key(path, node.id))
    except Fault as fault:
        if state.status in OPEN_TASK:
            flow.shut(path, scope, state)
        flow.fail(path, scope, node, state, fault.failure)


def skip(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """Not done, and gone on from as if it were."""
    if node.shape is not None:
        functions.skipped(flow, scope, node, state)
        return
    state.status, state.ended_at = SKIPPED, flow.at
    if state.group is not None:
        flow.disarm(path, scope, state.group, node.id)
    if flow.run.stopping is None:
        flow.decide_links(path, scope, node, state)


def route(flow: Flow, path: str, scope: Scope, out: Out, taken: bool, rescue: bool = False) -> None:
    if taken and not rescue and scope.failure is not None:
        # In a failing scope only what an `always` link led to goes on, and what follows from it.
        state = scope.tasks.get(out.edge.source)
        rescue = state is not None and state.rescue
    if out.role == INTERNAL:
        flow.todo.append((path, out.target, out.edge, taken, rescue))
    elif taken:
        if out.role == BACK:
            scope.back = True
        else:
            scope.exits.append(out.edge.index)
            if rescue:
                scope.saved.append(out.edge.index)


def decide_links(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """The task is over, well: each of its links is decided, once."""
    if node.gateway is not None:
        flow.split(path, scope, node, state, flow.choose(path, node))
        return
    broken = False
    for out in node.outs:
        edge = out.edge
        taken = edge.on != "error" and not broken
        if taken and edge.guard is not None:
            try:
                taken = flow.ask(edge.guard, path, f"link {edge.name}")
            except Fault as fault:
                flow.fail_scope(path, scope, with_key(fault.failure, flow.key(path, node.id)))
                taken, broken = False, True
        flow.route(path, scope, out, taken)


def choose(flow: Flow, path: str, node: Node) -> set[int]:
    """Which links a gateway takes, by their places; Fault if none, or if an expression fails."""
    kind, default = node.gateway, node.config.get("default")
    taken: set[int] = set()
    for place, out in enumerate(node.outs):
        edge = out.edge
        if edge.on == "error" or (edge.target == default and kind in ("exclusive", "inclusive")):
            continue
        if edge.guard is None or flow.ask(edge.guard, path, f"link {edge.name}"):
            taken.add(place)
            if kind == "exclusive":
                break
    if not taken and default is not None:
        taken = {i for i, out in enumerate(node.outs) if out.edge.target == default}
    if not taken and node.outs:
        raise Fault(
            Failure(
                code="no-branch",
                message=f"no branch of `{node.id}` holds and it has no default",
            )
        )
    return taken


def split(
    flow: Flow, path: str, scope: Scope, node: Node, state: TaskState, taken: set[int]
) -> None:
    for place, out in enumerate(node.outs):
        if node.gateway == "event" and place in taken:
            continue
        flow.route(path, scope, out, place in taken)
    if node.gateway == "event":
        _arm(flow, path, scope, node, [node.outs[i] for i in sorted(taken)], rescue=state.rescue)


def _arm(flow: Flow, path: str, scope: Scope, node: Node, outs: list[Out], *, rescue: bool) -> None:
    """An event gateway: its targets wait together; the first in run order wins. One that is over as soon as it is
    armed (its signal was there, it is skipped, it fails) has won: those after it die."""
    nodes = flow.plan.scopes[scope.plan].nodes
    over = False
    for out in outs:
        state = scope.tasks.setdefault(out.target, TaskState())
        if over:
            state.deads += 1
            _die(flow, path, scope, nodes[out.target], state)
            continue
        state.trues += 1
        state.group, state.rescue = node.id, rescue
        flow.fire(path, scope, nodes[out.target], state)
        if state.status not in OPEN_TASK:
            over = True
            flow.disarm(path, scope, node.id, out.target)


def disarm(flow: Flow, path: str, scope: Scope, group: str, winner: str) -> None:
    for out in flow.plan.scopes[scope.plan].nodes[group].outs:
        state = scope.tasks.get(out.target)
        if (
            state is not None
            and out.target != winner
            and state.group == group
            and state.status in OPEN_TASK
        ):
            flow.cancel_task(path, scope, out.target, state)
