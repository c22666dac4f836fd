"""Scopes: how they open, how the tasks in them end, fail and complete, and how they end themselves (SPEC 2.3).

The run is the outermost scope; each pass of a loop, item of a map and body of a mutex is one. Those that a type of
task holds end in `core/kinds/`. Methods of Flow, and what they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.structs import replace

from penstock.core import functions, kinds
from penstock.core.keys import with_key
from penstock.core.plan import EXIT, INTERNAL, Node
from penstock.core.values import Fault, encode
from penstock.model.events import RunCompleted, SignalSent
from penstock.model.failure import Failure
from penstock.model.run import (
    COMPLETED,
    FAILED,
    INLINE_BYTES_MAX,
    PENDING,
    SCHEDULED,
    Ref,
    Scope,
    TaskState,
    still_open,
)

if TYPE_CHECKING:
    from penstock.core.flow import Flow


def open_scope(
    flow: Flow,
    path: str,
    plan_path: str,
    parent: str | None,
    owner: str,
    number: int,
    item: Ref = 0,
) -> Scope:
    """A fresh scope, begun."""
    scope = flow.run.scopes[path] = Scope(
        plan=plan_path, parent=parent, owner=owner, number=number, item=item
    )
    entry = flow.plan.scopes[plan_path].entry
    if entry.type == "start":
        flow.decide_links(path, scope, entry, TaskState())
    else:
        state = scope.tasks[entry.id] = TaskState()
        flow.fire(path, scope, entry, state)
    flow.checks.append(path)
    return scope


def enter(flow: Flow, scope: Scope, state: TaskState, status: str) -> None:
    """The task is open from now on."""
    state.status = status
    scope.open += 1
    if status == SCHEDULED:
        flow.run.active += 1


def shut(flow: Flow, path: str, scope: Scope, state: TaskState) -> None:
    """The task is open no longer; what follows is the caller's."""
    scope.open -= 1
    if scope.open == 0:
        flow.checks.append(path)
    if state.attempt:
        flow.run.active -= 1
        if state.deferred:
            state.deferred = False
    state.ended_at = flow.at


def keep(flow: Flow, state: TaskState, ref: Ref, raw: bytes | None) -> None:
    """Keep an output: in the state if it is small, else by reference, held in memory for what comes next."""
    state.ref = ref
    if raw is not None and len(raw) <= INLINE_BYTES_MAX:
        state.output = raw
    elif raw is not None:
        flow.hold_live(ref, raw)


def complete(
    flow: Flow, path: str, scope: Scope, node: Node, state: TaskState, taken: set[int] | None = None
) -> None:
    """A task is done (its output is kept already): actions, undo entry, links (of a gateway: those it took)."""
    if node.shape is not None:
        functions.completed(flow, scope, node, state)
        return
    state.status, state.ended_at, state.failure = COMPLETED, flow.at, None
    run = flow.run
    run.tasks_done += 1
    if state.group is not None:
        flow.disarm(path, scope, state.group, node.id)
    try:
        if node.compensate is not None:
            flow.push_undo(path, node, state)
        for doing in node.on_complete:
            flow.do(path, node, doing)
    except Fault as fault:
        flow.fail_scope(path, scope, with_key(fault.failure, flow.key(path, node.id)))
        return
    if run.stopping is None:
        if taken is not None:
            flow.split(path, scope, node, state, taken)
        else:
            flow.decide_links(path, scope, node, state)


def fail(
    flow: Flow, path: str, scope: Scope, node: Node, state: TaskState, failure: Failure
) -> None:
    """A task failed for good: handled by a true error link, or its scope fails."""
    failure = with_key(failure, flow.key(path, node.id))
    if node.shape is not None:
        functions.failed(flow, scope, node, state, failure)
        return
    state.status, state.failure, state.ended_at = FAILED, failure, flow.at
    run = flow.run
    run.tasks_done += 1
    if state.group is not None:
        flow.disarm(path, scope, state.group, node.id)
    taken: dict[int, bool] = {}
    handled = False
    try:
        undoable = (
            node.compensate is not None
            and node.compensate.when == "attempted"
            and state.attempt > 0
        )
        if undoable:
            flow.push_undo(path, node, state)
        for doing in node.on_error:
            flow.do(path, node, doing)
        if run.stopping is not None:
            return
        for place, out in enumerate(node.outs):
            edge = out.edge
            if edge.on == "success":
                continue
            holds = edge.guard is None or flow.ask(edge.guard, path, f"link {edge.name}")
            taken[place] = holds
            handled = handled or (holds and edge.on == "error")
    except Fault as fault:
        flow.fail_scope(path, scope, replace(with_key(fault.failure, failure.key), cause=failure))
        for out in node.outs:
            flow.route(path, scope, out, False)
        return
    if handled:
        for place, out in enumerate(node.outs):
            holds = taken.get(place, False)
            if holds and out.role == EXIT and out.edge.on == "error":
                scope.left = True  # a true error link that leaves a loop ends it (SPEC 2.3)
            flow.route(path, scope, out, holds)
        return
    for place, out in enumerate(node.outs):
        if out.role == INTERNAL and taken.get(place):
            scope.tasks.setdefault(out.target, TaskState()).rescue = True  # it may be open already
    flow.fail_scope(path, scope, failure)
    for place, out in enumerate(node.outs):
        flow.route(path, scope, out, taken.get(place, False), rescue=taken.get(place, False))


def fail_scope(flow: Flow, path: str, scope: Scope, failure: Failure) -> None:
    """Open siblings are cancelled; once nothing is open, the failure goes to whoever holds the scope."""
    if scope.failure is None:
        scope.failure = failure
    for id, state in list(scope.tasks.items()):
        if still_open(state) and not state.rescue:
            flow.cancel_task(path, scope, id, state)
    flow.checks.append(path)


def quiet(flow: Flow, path: str) -> None:
    """Nothing was open in the scope when this was noted; if that still holds, it ends."""
    run = flow.run
    scope = run.scopes.get(path)
    if scope is None or scope.open or run.stopping is not None:
        return
    plan = flow.plan.scopes[scope.plan]
    if plan.kind == "run":
        _finish(flow, scope)
        return
    if plan.kind == functions.FUNCTION:
        functions.quiet(flow)
        return
    assert scope.parent is not None
    parent = run.scopes[scope.parent]
    node = flow.plan.scopes[parent.plan].nodes[scope.owner]
    state = parent.tasks[scope.owner]
    failure = scope.failure
    if plan.kind == "natural":
        if failure is None and scope.back and not scope.left:
            kinds.next_pass(flow, path, scope, parent, node, state)
            return
        kinds.leave_natural(flow, path, scope, parent, node, state)
        return
    if failure is None and not scope.ended:
        failure = _no_end(flow, scope, path)
    kinds.END[plan.kind](flow, path, scope, parent, node, state, failure)


def _no_end(flow: Flow, scope: Scope, path: str) -> Failure:
    where = f"`{path}`" if path else "the run"
    waiting = [
        f"`{id}` waits for {', '.join(e.name for e in flow.plan.scopes[scope.plan].nodes[id].arrivals)}"
        for id, state in scope.tasks.items()
        if state.status == PENDING
    ]
    if waiting:
        return Failure(
            code="deadlock", message=f"nothing is open in {where}: " + "; ".join(waiting)
        )
    return Failure(code="no-end", message=f"no end of {where} was reached")


def result(flow: Flow, scope: Scope) -> tuple[Ref, bytes | None]:
    """What a scope gives: the output of the one task before its end, or an object of those by id."""
    plan = flow.plan.scopes[scope.plan]
    if len(plan.results) == 1:
        state = _result_state(flow, scope, plan.results[0])
        if state is None:
            return 0, b"null"
        return state.ref, state.output if state.output is not None or state.ref else b"null"
    refs: dict[str, Ref] = {}
    parts: list[bytes] | None = []
    for id in plan.results:
        state = _result_state(flow, scope, id)
        if state is None or state.status != COMPLETED:
            continue
        refs[id] = state.ref
        if state.output is not None or state.ref == 0:
            if parts is not None:
                parts.append(encode(id) + b":" + (state.output or b"null"))
        else:
            parts = None
    if not refs:
        return 0, b"null"
    if parts is None:
        for id in refs:
            state = _result_state(flow, scope, id)
            if state is not None and state.output is not None:
                flow.hold_live(state.ref, state.output)
    return refs, None if parts is None else b"{" + b",".join(parts) + b"}"


def _result_state(flow: Flow, scope: Scope, id: str) -> TaskState | None:
    header = flow.plan.scopes[scope.plan].inner.get(id)
    if header is None:
        return scope.tasks.get(id)
    loop = scope.tasks.get(header)
    return None if loop is None or loop.last is None else loop.last.get(id)


def _finish(flow: Flow, scope: Scope) -> None:
    """The run's own scope is quiet: it completes, or fails."""
    run = flow.run
    if run.finished:
        return
    failure = scope.failure
    if failure is None and not scope.ended:
        failure = _no_end(flow, scope, "")
    if failure is None and (run.leaving or flow.sending()):
        return
    if failure is None and run.ending and run.parent is not None:
        return  # what is done all the same is its parent's to undo
    if failure is None and flow.plan.outputs is not None:
        parts: list[bytes] = []
        try:
            for name, formula in flow.plan.outputs.items():
                flow.ask(formula, "", f"output `{name}`")
                parts.append(encode(name) + b":" + flow.asked()[1])
        except Fault as fault:
            failure = fault.failure
        else:
            run.finished = True
            run.pending.append(RunCompleted(at=flow.at, output=Raw(b"{" + b",".join(parts) + b"}")))
            return
    if failure is not None:
        flow.stop(FAILED, failure)
        return
    ref, raw = flow.result(scope)
    run.finished = True
    if raw is not None:
        run.pending.append(RunCompleted(at=flow.at, output=Raw(raw)))
    else:
        run.pending.append(RunCompleted(at=flow.at, ref=ref))


def sending(flow: Flow) -> bool:
    """Signals to other runs are on their way: a run that closed would not send them again after a crash."""
    run = flow.run
    return bool(run.outgoing) or any(isinstance(each, SignalSent) for each in run.pending)


def go_on(flow: Flow) -> None:
    """A child has left or a signal has arrived: perhaps that was the last thing to wait for."""
    if flow.run.compensating:
        flow.undo_next()
    else:
        flow.checks.append("")
