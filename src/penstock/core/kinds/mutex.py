"""`mutex {name, body}`: held while its body is open, within the run, in order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.values import Fault
from penstock.model.failure import Failure
from penstock.model.run import RUNNING, WAITING

if TYPE_CHECKING:
    from penstock.core.flow import Flow
    from penstock.core.plan import Node
    from penstock.model.run import Scope, TaskState


def begin_mutex(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    key, name = flow.key(path, node.id), node.config["name"]
    queue = flow.run.mutexes.setdefault(name, [])
    if queue and key.startswith(queue[0] + "["):
        message = f"`{key}` waits for mutex `{name}`, held by `{queue[0]}`, which waits for `{key}`"
        raise Fault(Failure(code="deadlock", message=message))
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


def break_deadlock(flow: Flow) -> bool:
    """If all that is open waits for mutexes that it holds itself, the last one in line fails (SPEC 2.3, end)."""
    run = flow.run
    if run.active or run.waiters or run.stopping is not None or run.outgoing:
        return False
    if all(len(queue) == 1 for queue in run.mutexes.values()):
        return False
    for scope in run.scopes.values():
        nodes = flow.plan.scopes[scope.plan].nodes
        for id, state in scope.tasks.items():
            if state.status == WAITING and nodes[id].type != "mutex":
                return False
    waits = [
        f"`{key}` waits for mutex `{name}`, held by `{queue[0]}`"
        for name, queue in run.mutexes.items()
        for key in queue[1:]
    ]
    key = [key for queue in run.mutexes.values() for key in queue[1:]][-1]
    path, scope, node, state = flow.locate(key)
    flow.shut(path, scope, state)
    leave_mutex(flow, node, key)
    flow.fail(path, scope, node, state, Failure(code="deadlock", message="; ".join(waits)))
    return True


def end_body(
    flow: Flow,
    path: str,
    scope: Scope,
    parent: Scope,
    node: Node,
    state: TaskState,
    failure: Failure | None,
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
