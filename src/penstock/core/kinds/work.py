"""Tasks that are done elsewhere: activity, http, subworkflow, and those of plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.inputs import own
from penstock.core.values import Fault
from penstock.core.vocabulary import CONFIG
from penstock.errors import Rejected
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


def begin_added(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """Of a plugin. What its config comes to is fixed when it fires, and fits the plugin's schema, or it fails so."""

    def made(variables: Any) -> dict[str, Any]:
        config = {name: value(variables) for name, value in node.values.items()}
        if node.schema is not None:  # something in it is known only now
            wrong = node.schema.problems(config)
            if wrong:
                raise Rejected("field-invalid", wrong)
            if node.added is not None and (wrong := node.added.refused(own(config))):
                raise Rejected("plugin-check", wrong)
        inputs = flow.gather(path, [i for i in node.inputs if i.secret is None], variables)
        return {**inputs, CONFIG: config}

    flow.ask(made, path, f"config of `{node.id}`")
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
