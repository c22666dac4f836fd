"""`loop` tasks and natural loops: passes one after another, numbered from 1 (SPEC 2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.plan import EXIT
from penstock.core.values import Fault
from penstock.model.failure import Failure
from penstock.model.run import COMPLETED, FAILED, PENDING, RUNNING

if TYPE_CHECKING:
    from penstock.core.flow import Flow
    from penstock.core.plan import Node
    from penstock.model.run import Scope, TaskState


def begin_loop(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    if "while" in node.formulas and not flow.ask(
        node.formulas["while"], path, f"while of `{node.id}`", {"iteration": 0}
    ):
        flow.keep(state, 0, b"null")
        flow.complete(path, scope, node, state)
        return
    flow.enter(scope, state, RUNNING)
    _pass(flow, path, node, state)


def _pass(flow: Flow, path: str, node: Node, state: TaskState) -> None:
    state.number += 1
    inner = node.body or node.loop
    assert inner is not None
    flow.open_scope(
        f"{flow.key(path, node.id)}[{state.number}]", inner.path, path, node.id, state.number
    )


def end_pass(
    flow: Flow,
    path: str,
    scope: Scope,
    parent: Scope,
    node: Node,
    state: TaskState,
    failure: Failure | None,
) -> None:
    """A pass of a `loop` is over: its result is the loop's so far; then another pass, or the end."""
    assert scope.parent is not None
    outer = scope.parent
    more = True
    if failure is None:
        ref, raw = flow.result(scope)
        state.output = None
        flow.keep(state, ref, raw)
        try:
            for word, wanted in (("while", True), ("until", False)):
                guard = node.formulas.get(word)
                if guard is not None:
                    # Seen from inside the pass that just ended, so that the condition can read its tasks.
                    more = more and flow.ask(guard, path, f"{word} of `{node.id}`") is wanted
        except Fault as fault:
            failure = fault.failure
    limit = node.config.get("max")
    if failure is None and more and limit is not None and state.number >= limit:
        failure = Failure(
            code="loop-max", message=f"`{node.id}` still wants another pass after {limit}"
        )
    del flow.run.scopes[path]
    if failure is None and more:
        _remember(flow, scope, state)
        _pass(flow, outer, node, state)
        return
    state.last = None
    flow.shut(outer, parent, state)
    if failure is None:
        flow.complete(outer, parent, node, state)
    else:
        flow.fail(outer, parent, node, state, failure)


def begin_natural(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    flow.enter(scope, state, RUNNING)
    _pass(flow, path, node, state)


def next_pass(
    flow: Flow, path: str, scope: Scope, parent: Scope, node: Node, state: TaskState
) -> None:
    """A back link is true: fresh links, the same tasks; the last pass stays to be read."""
    assert scope.parent is not None
    _remember(flow, scope, state)
    del flow.run.scopes[path]
    _pass(flow, scope.parent, node, state)


def leave_natural(
    flow: Flow, path: str, scope: Scope, parent: Scope, node: Node, state: TaskState
) -> None:
    """No back link is true: the exit links are decided, once. A failure is that of the scope around."""
    assert scope.parent is not None
    _remember(flow, scope, state)
    del flow.run.scopes[path]
    flow.shut(scope.parent, parent, state)
    taken, saved = set(scope.exits), set(scope.saved)
    if scope.failure is not None:
        state.status, state.failure = FAILED, scope.failure
        taken = saved  # what an `always` link out of the loop leads to still runs
        flow.fail_scope(scope.parent, parent, scope.failure)
    else:
        state.status = COMPLETED
    for out in node.outs:
        index = out.edge.index
        if index in taken and out.role == EXIT and out.edge.on == "error":
            parent.left = True  # it leaves the loop around as well, and so ends it
        flow.route(
            scope.parent,
            parent,
            out,
            index in taken,
            rescue=index in saved or (index in taken and state.rescue),
        )


def _remember(flow: Flow, scope: Scope, state: TaskState) -> None:
    """Keep the tasks of a pass as it left them, those of loops inside it too."""
    last = state.last if state.last is not None else {}
    nodes = flow.plan.scopes[scope.plan].nodes
    for id, task in scope.tasks.items():
        if task.status == PENDING:
            continue
        if nodes[id].loop is not None:
            last.update(task.last or {})
        else:
            last[id] = task
    state.last = last
