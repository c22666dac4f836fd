"""Stopping: tasks, scopes and the run are given up, and what was done is undone (SPEC 4.4, 4.5).

Methods of Flow, and what they need.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from heapq import heappush
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Raw

from penstock.core import functions, kinds
from penstock.core.keys import GRACE, static, with_key
from penstock.core.plan import Node
from penstock.core.values import Fault, encode
from penstock.model.definition import Retry
from penstock.model.effects import Abandon, CancelChild, Execute
from penstock.model.events import RunCancelled, RunFailed, RunTimedOut
from penstock.model.failure import Failure
from penstock.model.run import (
    CANCELLED,
    COMPENSATING,
    COMPLETED,
    OPEN_TASK,
    RETRYING,
    RUNNING,
    SCHEDULED,
    TERMINATED,
    WAITING,
    Ending,
    Scope,
    TaskState,
    Undo,
    Undoing,
    still_open,
)

if TYPE_CHECKING:
    from penstock.core.flow import Flow

GRACE_SECONDS = 30.0
RULES_ENDING = 2
"""The first rule set in which a definition waits for attempts that can be undone."""
NOTHING_KNOWN: Mapping[str, Scope] = MappingProxyType({})
UNDO_RETRY = Retry(attempts=4, first=2.0, factor=2.0, maximum=60.0, jitter=0.0)
"""Three retries after 2, 4 and 8 s (SPEC 4.5)."""


def cancel_task(
    flow: Flow,
    path: str,
    scope: Scope,
    id: str,
    state: TaskState,
    *,
    links: bool = True,
    tell: bool = True,
    wait: bool = True,
) -> None:
    """An open task is given up, with all that is inside it; its attempt is told, unless it is over. One that can be undone
    is undone if it is done all the same, unless it was waited for long enough."""
    key = flow.key(path, id)
    node = flow.plan.scopes[scope.plan].nodes[id]
    run = flow.run
    if state.status == COMPLETED:  # a map that had enough items: those that were left
        flow.cancel_inside(key, state)
        state.map = None
        flow.shut(path, scope, state)
        return
    if wait and tell and node.compensate is not None and node.shape is None:
        _let_end(flow, path, scope, node, state)
    flow.release(path, scope, node, state, tell=tell)
    state.status = CANCELLED
    if node.compensate is not None and node.compensate.when == "attempted" and state.attempt > 0:
        try:
            flow.push_undo(path, node, state)
        except Fault as fault:
            scope.failure = scope.failure or with_key(fault.failure, key)
    if links and run.stopping is None:
        for out in node.outs:
            flow.route(path, scope, out, False)


def _let_end(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """Its attempt may be done before it hears that it is not wanted: every completed execution can be undone (SPEC 4.5)."""
    run = flow.run
    assert node.compensate is not None
    if run.rules < RULES_ENDING or run.stopping == TERMINATED or not flow.in_flight(state):
        return
    if node.compensate.when == "attempted":
        return  # it is undone, done or not
    key, around = flow.key(path, node.id), dict[str, Scope]()
    while scope.parent is not None:
        around[path] = Scope(
            plan=scope.plan, parent=scope.parent, owner=scope.owner, number=scope.number, item=scope.item,
            tasks={id: copy(task) for id, task in scope.tasks.items() if task.status == COMPLETED},
        )  # fmt: skip
        path = scope.parent
        scope = run.scopes[path]
    run.ending[key] = Ending(state.attempt, around)
    if run.stopping is None or run.grace is None:
        run.grace = flow.at + GRACE_SECONDS
        heappush(run.dues, (run.grace, GRACE))


def ended(flow: Flow, key: str, output: bytes | None) -> None:
    """An attempt that was told to stop has ended; if it was done before it heard of that, it is undone with the rest."""
    run = flow.run
    ending = run.ending.pop(key)
    if not run.ending and run.stopping is None:
        run.grace = None
    if output is not None:
        flow.push_undo_of_left(key, flow.plan.node(static(key)), output, ending.scopes)
    flow.go_on()


def release(
    flow: Flow, path: str, scope: Scope, node: Node, state: TaskState, *, tell: bool = True
) -> None:
    """Let go of all that an open task holds: its attempt (which is told), its child, its place in a queue, what is
    inside it."""
    key, told = flow.key(path, node.id), tell and flow.in_flight(state)
    flow.shut(path, scope, state)
    if told:
        flow.effects.append(Abandon(key, state.attempt))
    if state.child is not None and not node.config.get("kept"):
        flow.effects.append(CancelChild(key, state.child))
        if not node.config.get("detached"):
            flow.run.leaving[key] = state.child  # its start may be under way, recorded or not
    if node.type == "event":
        flow.run.listening.pop(key, None)
    if node.type in ("signal", "map"):
        flow.forget_waiter(node.config.get("name") or node.config.get("more") or "", key)
    if node.body is not None or node.loop is not None:
        state.status = CANCELLED
        flow.cancel_inside(key, state)
        state.map = None
    if node.type == "mutex":
        kinds.leave_mutex(flow, node, key)


def in_flight(flow: Flow, state: TaskState) -> bool:
    """An attempt may be under way: that it has begun is not always recorded."""
    if state.status == RETRYING:
        return state.due is not None and state.due <= flow.at
    return state.attempt > 0 and state.status in (SCHEDULED, RUNNING)


def cancel_inside(flow: Flow, key: str, state: TaskState) -> None:
    """Give up the pass, the items or the body that a task holds."""
    numbers = (state.number or 1,) if state.map is None else range(state.map.next)
    for number in numbers:
        flow.cancel_scope(f"{key}[{number}]")


def cancel_scope(flow: Flow, path: str) -> None:
    scope = flow.run.scopes.get(path)
    if scope is None:
        return
    for id, state in list(scope.tasks.items()):
        if still_open(state):
            flow.cancel_task(path, scope, id, state, links=False)
    flow.run.scopes.pop(path, None)


def stop(
    flow: Flow, status: str, failure: Failure | None, *, gently: bool = False, grace: float = 0.0
) -> None:
    """The run ends with this status once all that is open has ended and what can be undone is undone."""
    run = flow.run
    if run.stopping is not None:
        return
    run.stopping, run.failure = status, run.failure or failure
    run.paused, run.paused_at = False, None
    before, run.grace, run.due = run.grace, None, None
    if run.rewinding:
        run.undo += run.rewind
        run.rewind, run.rewinding = [], False
    for path in list(run.scopes):
        scope = run.scopes.get(path)
        if scope is None:
            continue
        for id, state in list(scope.tasks.items()):
            if state.status not in OPEN_TASK:
                continue
            node = flow.plan.scopes[scope.plan].nodes[id]
            if gently and flow.in_flight(state):
                flow.effects.append(Abandon(flow.key(path, id), state.attempt))
            elif gently and (
                node.body is not None or node.loop is not None or state.child is not None
            ):
                # What is inside ends first; children after the attempts.
                flow.forget_waiter(node.config.get("more", ""), flow.key(path, id))
            else:
                flow.cancel_task(path, scope, id, state, links=False)
    if run.ending and not (gently and run.active):
        run.grace = run.grace or before
    elif gently and run.active:
        run.grace = grace
        heappush(run.dues, (grace, GRACE))
    flow.stop_further()


def stop_further(flow: Flow) -> None:
    """While stopping: attempts end first, then children, then what was done is undone, then the run."""
    run = flow.run
    if run.stopping is None or run.closed or run.compensating or run.finished:
        return
    if run.active or run.ending:
        return
    waiting = False
    for path, scope in run.scopes.items():
        for id, state in scope.tasks.items():
            if state.child is not None and state.status == WAITING and state.started_at is not None:
                waiting = True
                if not state.started:
                    state.started = True
                    flow.effects.append(CancelChild(flow.key(path, id), state.child))
    if waiting or run.leaving:
        return
    for path in list(run.scopes):
        scope = run.scopes.get(path)
        if scope is not None:
            for id, state in list(scope.tasks.items()):
                if state.status in OPEN_TASK:
                    flow.cancel_task(path, scope, id, state, links=False)
    if run.leaving:
        return  # children whose start was not recorded
    run.grace = None
    run.compensating = True
    if run.undo:
        run.status = COMPENSATING
    flow.undo_next()


def give_up(flow: Flow) -> None:
    """The grace is over: attempts that were told to stop are counted as cancelled."""
    run = flow.run
    run.grace = None
    run.ending.clear()
    if run.stopping is None and not flow.plan.function:
        flow.go_on()
        return
    for path in list(run.scopes):
        scope = run.scopes.get(path)
        if scope is not None:
            for id, state in list(scope.tasks.items()):
                if state.status in OPEN_TASK and state.attempt and state.child is None:
                    flow.cancel_task(path, scope, id, state, links=False, wait=False)
                    functions.given_up(flow, scope, id, state)
    flow.stop_further()


def undo_next(flow: Flow) -> None:
    """Undo one by one in reverse order of completion; `parallel` neighbours that are concurrent together."""
    run = flow.run
    if run.undoing:
        return
    if run.undo:
        group = [run.undo.pop()]
        while (
            group[0].parallel
            and run.undo
            and run.undo[-1].parallel
            and all(_independent(flow, run.undo[-1], other) for other in group)
        ):
            group.append(run.undo.pop())
        for entry in group:
            run.undoing[entry.key] = Undoing(entry)
            flow.effects.append(Execute(entry.key, 1, undo=True))
            flow.mark_undone(entry.key, COMPENSATING)
        return
    if run.undo_failed or run.finished or flow.sending():
        return
    run.finished = True
    match run.stopping:
        case "CANCELLED":
            run.pending.append(RunCancelled(at=flow.at, failure=run.failure))
        case "TIMED_OUT":
            run.pending.append(RunTimedOut(at=flow.at, failure=run.failure))
        case _:
            assert run.failure is not None
            run.pending.append(RunFailed(at=flow.at, failure=run.failure))


def _independent(flow: Flow, first: Undo, second: Undo) -> bool:
    return bool(first.node and second.node) and flow.apart(first.key, second.key)


def mark_undone(flow: Flow, key: str, status: str) -> None:
    """Show the task's own status, if it is still in the state."""
    path, _, id = key.rpartition("/")
    scope = flow.run.scopes.get(path)
    if scope is not None and id in scope.tasks:
        scope.tasks[id].status = status


def push_undo(flow: Flow, path: str, node: Node, state: TaskState) -> None:
    """Arguments are fixed now: what they come from may have left the memory when they are needed."""
    compensate = node.compensate
    assert compensate is not None
    key = flow.key(path, node.id)
    if node.undo_inputs is not None:
        inputs = node.undo_inputs
        arguments = flow.ask(
            lambda variables: flow.gather(path, inputs, variables), path, f"undo of `{node.id}`"
        )
        raw = encode(arguments)
    elif state.output is not None:
        raw = b"[" + state.output + b"]"
    else:
        raw = encode([flow.ask(lambda _: flow.output(state), path, f"undo of `{node.id}`")])
    _push(flow, key, node, raw)


def push_undo_of_left(
    flow: Flow, key: str, node: Node, output: bytes, known: Mapping[str, Scope] = NOTHING_KNOWN
) -> None:
    """Of a child or an attempt that was done after all: its task is CANCELLED, perhaps gone with its scope, and is put
    back as it would have been for as long as the arguments are asked for."""
    if node.undo_inputs is None:
        _push(flow, key, node, b"[" + output + b"]")
        return
    run, path = flow.run, key.rpartition("/")[0]
    added: list[str] = []
    around, there = path, path
    while around not in run.scopes:
        parent, _, last = around.rpartition("/")
        owner, _, number = last.partition("[")
        gone = Scope(static(around), parent, owner, int(number[:-1]), item=[[], 0])
        run.scopes[around] = known.get(
            around, gone
        )  # its item is not known any more: to ask for it is an error
        added.append(around)
        around = there = parent
    tasks = run.scopes[path].tasks
    before = tasks.get(node.id)
    tasks[node.id] = state = TaskState(status=COMPLETED, output=output)
    failure = None
    try:
        flow.push_undo(path, node, state)
    except Fault as fault:
        failure = with_key(fault.failure, key)
    finally:
        if before is None:
            del tasks[node.id]
        else:
            tasks[node.id] = before
        for each in added:
            del run.scopes[each]
    if failure is not None:
        flow.fail_scope(there, run.scopes[there], failure)


def _push(flow: Flow, key: str, node: Node, raw: bytes) -> None:
    compensate = node.compensate
    assert compensate is not None
    retry = compensate.retry or UNDO_RETRY
    flow.run.undo.append(
        Undo(
            key=key, activity=compensate.activity, arguments=Raw(raw), attempts=retry.attempts, first=retry.first,
            factor=retry.factor, maximum=retry.maximum, node=node.path, parallel=compensate.parallel,
        )
    )  # fmt: skip
