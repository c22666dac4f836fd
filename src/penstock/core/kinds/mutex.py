"""`mutex {name, body}`: held while its body is open, within the run, in order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.failure import Failure
from penstock.model.run import RUNNING, WAITING

if TYPE_CHECKING:
    from penstock.core.flow import Flow
    from penstock.core.plan import Node
    from penstock.model.run import Scope, TaskState


def begin_mutex(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    key = flow.key(path, node.id)
    queue = flow.run.mutexes.setdefault(node.config["name"], [])
    queue.append(key)
    flow.enter(scope, state, WAITING)
    if queue[0] == key:
        _open(flow, key)


def _open(flow: Flow, key: str) -> None:
    path, _, node, state = flow.locate(key)
    assert node.body is not None
    state.status = RUNNING
    flow.open_scope(f"{key}[1]", node.body.path, path, node.id, 1)


def leave_mutex(flow: Flow, node: Node, key: str) -> None:
    """Let go, whether it was held or waited for; the next in line gets it."""
    queue = flow.run.mutexes[node.config["name"]]
    held = queue[0] == key
    queue.remove(key)
    if not queue:
        del flow.run.mutexes[node.config["name"]]
    elif held and flow.run.stopping is None:
        _open(flow, queue[0])


def end_body(
    flow: Flow, path: str, scope: Scope, parent: Scope, node: Node, state: TaskState, failure: Failure | None
) -> None:
    assert scope.parent is not None
    ref, raw = flow.result(scope)
    del flow.run.scopes[path]
    flow.shut(scope.parent, parent, state)
    if failure is None:
        flow.keep(state, ref, raw)
        flow.complete(scope.parent, parent, node, state)
    else:
        flow.fail(scope.parent, parent, node, state, failure)
    leave_mutex(flow, node, flow.key(scope.parent, node.id))
