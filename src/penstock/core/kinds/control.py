"""Tasks that are over as soon as they fire: end, gateway, transform, publish, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.actions import with_topic
from penstock.core.values import encode
from penstock.model.run import COMPLETED, Ref, still_open

if TYPE_CHECKING:
    from penstock.core.flow import Flow
    from penstock.core.plan import Node
    from penstock.model.run import Scope, TaskState


def begin_gateway(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """It chooses before it completes: one that finds no branch fails, and has done nothing."""
    flow.complete(
        path, scope, node, state, None if node.gateway is None else flow.choose(path, node)
    )


def begin_end(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    scope.ended = True
    flow.complete(path, scope, node, state)
    if node.config.get("terminate"):
        scope.over = True
        for id, other in list(scope.tasks.items()):
            if still_open(other):
                flow.cancel_task(path, scope, id, other, links=False)


def begin_transform(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """Each name in order, so that a later expression sees what an earlier one set."""
    refs: dict[str, Ref] = {}
    parts: list[bytes] = []
    for name, formula in node.formulas.items():
        asked_before = flow.asked_count()
        flow.set_data(path, node, name, formula, f"`{name}` of `{node.id}`")
        ref, raw = flow.asked_at(asked_before)
        refs[name] = ref
        parts.append(encode(name) + b":" + raw)
    flow.keep(state, refs, b"{" + b",".join(parts) + b"}")
    flow.complete(path, scope, node, state)


def begin_publish(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    message = flow.ask(
        lambda variables: with_topic(
            {name: value(variables) for name, value in node.values.items()}
        ),
        path,
        f"message of `{node.id}`",
    )
    flow.announce(flow.key(path, node.id), "publish", message)
    flow.complete(path, scope, node, state)


def _cancel(flow: Flow, path: str, id: str) -> None:
    """One task of a scope, or of the present pass of a natural loop in it."""
    scope = flow.run.scopes[path]
    header = flow.plan.scopes[scope.plan].inner.get(id)
    state = scope.tasks.get(header or id)
    if state is None or not still_open(state):
        return
    if header is None:
        flow.cancel_task(path, scope, id, state)
    else:
        _cancel(flow, f"{flow.key(path, header)}[{state.number}]", id)


def begin_cancel(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """Open tasks of these names, here or in the scopes around, are given up."""
    state.status = COMPLETED
    cursor: str | None = path
    wanted = set(node.config.get("tasks", ()))
    while cursor is not None and wanted:
        around = flow.run.scopes[cursor]
        plan = flow.plan.scopes[around.plan]
        for id in sorted(wanted & (plan.nodes.keys() | plan.inner.keys())):
            wanted.discard(id)
            _cancel(flow, cursor, id)
        cursor = around.parent
    if path in flow.run.scopes:
        flow.complete(path, scope, node, state)
