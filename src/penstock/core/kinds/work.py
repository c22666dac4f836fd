"""Tasks that are done elsewhere: activity, http, subworkflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.values import Fault
from penstock.model.effects import Execute, StartChild
from penstock.model.failure import Failure
from penstock.model.run import SCHEDULED, WAITING

if TYPE_CHECKING:
    from penstock.core.flow import Flow
    from penstock.core.plan import Node
    from penstock.model.run import Scope, TaskState

DEPTH_MAX = 64
"""Subworkflows inside subworkflows."""


def begin_activity(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    if node.inputs:
        flow.fix_inputs(path, scope, node, state)
    schedule(flow, path, scope, node, state)


def begin_http(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """The request is fixed when the task fires, so that every attempt sends the same."""

    def request(variables: Any) -> dict[str, Any]:
        made = {name: value(variables) for name, value in node.values.items()}
        made.update(flow.gather(path, [i for i in node.inputs if i.secret is None], variables))
        return made

    flow.ask(request, path, f"request of `{node.id}`")
    state.arguments = flow.last_outcome()
    schedule(flow, path, scope, node, state)


def schedule(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    key = flow.key(path, node.id)
    flow.enter(scope, state, SCHEDULED)
    state.attempt = 1
    flow.effects.append(Execute(key, 1))


def begin_subworkflow(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    run = flow.run
    if run.depth + 1 > DEPTH_MAX:
        raise Fault(
            Failure(
                code="depth-exceeded",
                message=f"`{node.id}` would be subworkflow number {DEPTH_MAX + 1} deep",
            )
        )
    definition = flow.ask(
        lambda variables: {
            "definition": node.values["definition"](variables),
            "version": node.values["version"](variables) if "version" in node.values else None,
            "input": flow.gather(path, node.inputs, variables),
        },
        path,
        f"config of `{node.id}`",
    )
    del definition
    state.arguments = flow.last_outcome()
    key = flow.key(path, node.id)
    generation = "" if run.generation == 1 else f"~{run.generation}"
    state.child = f"{run.id}{generation}/{key}"
    flow.enter(scope, state, WAITING)
    flow.effects.append(StartChild(key))
