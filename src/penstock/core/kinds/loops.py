"""`loop` tasks and natural loops: passes one after another, numbered from 1 (SPEC 2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    flow.open_scope(f"{flow.key(path, node.id)}[{state.number}]", inner.path, path, node.id, state.number)


def end_pass(
    flow: Flow, path: str, scope: Scope, parent: Scope, node: Node, state: TaskState, failure: Failure | None
) -> None:
    """A pass of a `loop` is over: its result is the loop's so far; then another pass, or the end."""
    assert scope.parent is not None
    outer = scope.parent
    if failure is not None:
        del flow.run.scopes[path]
        flow.shut(outer, parent, state)
        flow.fail(outer, parent, node, state, failure)
        return
    ref, raw = flow.result(scope)
    state.output = None
    flow.keep(state, ref, raw)
    more = True
    for word, wanted in (("while", True), ("until", False)):
        guard = node.formulas.get(word)
        if guard is not None:
            # Seen from inside the pass that just ended, so that the condition can read its tasks.
            more = more and flow.ask(guard, path, f"{word} of `{node.id}`") is wanted
    del flow.run.scopes[path]
    if not more:
        flow.shut(outer, parent, state)
        flow.complete(outer, parent, node, state)
        return
    limit = node.config.get("max")
    if limit is not None and state.number >= limit:
        flow.shut(outer, parent, state)
        flow.fail(
            outer, parent, node, state,
            Failure(code="loop-max", message=f"`{node.id}` still wants another pass after {limit}"),
        )  # fmt: skip
        return
    _pass(flow, outer, node, state)


def begin_natural(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    flow.enter(scope, state, RUNNING)
    _pass(flow, path, node, state)


def next_pass(flow: Flow, path: str, scope: Scope, parent: Scope, node: Node, state: TaskState) -> None:
    """A back link is true: fresh links, the same tasks; the last pass stays to be read."""
    assert scope.parent is not None
    _remember(scope, state)
    del flow.run.scopes[path]
    _pass(flow, scope.parent, node, state)


def leave_natural(
    flow: Flow, path: str, scope: Scope, parent: Scope, node: Node, state: TaskState
) -> None:
    """No back link is true: the exit links are decided, once. A failure is that of the scope around."""
    assert scope.parent is not None
    _remember(scope, state)
    del flow.run.scopes[path]
    flow.shut(scope.parent, parent, state)
    if scope.failure is not None:
        state.status, state.failure = FAILED, scope.failure
        flow.fail_scope(scope.parent, parent, scope.failure)
        return
    state.status = COMPLETED
    taken = set(scope.exits)
    for out in node.outs:
        flow.route(scope.parent, parent, out, out.edge.index in taken)


def _remember(scope: Scope, state: TaskState) -> None:
    last = state.last if state.last is not None else {}
    for id, task in scope.tasks.items():
        if task.status == PENDING:
            continue
        if task.last is not None:
            last.update(task.last)  # the tasks of an inner loop, as its last pass left them
        else:
            last[id] = task
    state.last = last
