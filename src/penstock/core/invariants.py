"""What holds of every Run between two events; asserted by the laws, the simulator and the verifier.

Nothing here is needed to run: it says again, from another side, what `core/flow.py` and its parts keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.core.flow import Flow
from penstock.core.keys import BEGIN, DEADLINE, GRACE, RUN
from penstock.core.owed import owed, reasons
from penstock.core.plan import Node
from penstock.model.run import (
    COMPENSATING,
    OPEN_TASK,
    PENDING,
    RETRYING,
    RUNNING,
    SCHEDULED,
    TERMINATED,
    WAITING,
    Run,
    Scope,
    TaskState,
    still_open,
)

Tasks = Sequence[tuple[str, Scope, Node, TaskState]]
"""All that are in the state, by key."""


def broken(flow: Flow) -> list[str]:
    """What does not hold, in words; empty for a sound run."""
    run = flow.run
    if run.closed:
        return list(_closed(run))
    tasks = list(_tasks(flow))
    return [
        *_counters(flow, tasks),
        *_scopes(flow, tasks),
        *_waits(flow, tasks),
        *_mutexes(flow, tasks),
        *_dues(flow, tasks),
        *_maps(flow, tasks),
        *_undo(run),
        *_going_on(flow, tasks),
    ]


def _tasks(flow: Flow) -> Iterator[tuple[str, Scope, Node, TaskState]]:
    for path, scope in flow.run.scopes.items():
        nodes = flow.plan.scopes[scope.plan].nodes
        for id, state in scope.tasks.items():
            yield flow.key(path, id), scope, nodes[id], state


def _closed(run: Run) -> Iterator[str]:
    for name in (
        "scopes", "dues", "waiters", "listening", "signals", "mutexes", "pending", "undoing", "outgoing", "ending",
    ):  # fmt: skip
        if getattr(run, name):
            yield f"a closed run keeps {name}"
    if run.leaving and run.status != TERMINATED:
        yield "a closed run keeps leaving"
    if run.active or run.paused or run.ended_at is None:
        yield "a closed run is active, paused or has not ended"


def _counters(flow: Flow, tasks: Tasks) -> Iterator[str]:
    run = flow.run
    for path, scope in run.scopes.items():
        counted = sum(still_open(state) for state in scope.tasks.values())
        if counted != scope.open:
            yield f"scope `{path}` says {scope.open} open, and has {counted}"
    attempts = sum(
        state.attempt > 0 and state.status in (SCHEDULED, RUNNING, RETRYING)
        for _, _, _, state in tasks
    )
    if attempts != run.active:
        yield f"the run says {run.active} attempts, and has {attempts}"
    for key, _, node, state in tasks:
        if state.trues + state.deads > len(node.arrivals):
            yield f"`{key}` has {len(node.arrivals)} links, and {state.trues + state.deads} were decided"
        if state.status in OPEN_TASK and state.ended_at is not None:
            yield f"`{key}` is {state.status} and has ended"


def _scopes(flow: Flow, tasks: Tasks) -> Iterator[str]:
    run = flow.run
    for path, scope in run.scopes.items():
        if scope.parent is None:
            if path:
                yield f"scope `{path}` has no parent"
            continue
        parent = run.scopes.get(scope.parent)
        owner = None if parent is None else parent.tasks.get(scope.owner)
        if owner is None or not still_open(owner):
            yield f"scope `{path}` belongs to nobody who is open"
        if path != f"{flow.key(scope.parent, scope.owner)}[{scope.number}]":
            yield f"scope `{path}` has another path than its owner gives it"
        if not scope.open and run.stopping is None:
            yield f"nothing is open in scope `{path}`, and it has not ended"
    inside: dict[str, int] = {}
    for scope in run.scopes.values():
        if scope.parent is not None:
            key = flow.key(scope.parent, scope.owner)
            inside[key] = inside.get(key, 0) + 1
    for key, _, node, state in tasks:
        holds = node.body is not None or node.loop is not None
        if holds and state.status == RUNNING and state.map is None and inside.get(key) != 1:
            yield f"`{key}` runs with {inside.get(key, 0)} scopes"


def _waits(flow: Flow, tasks: Tasks) -> Iterator[str]:
    run = flow.run
    waiting = [key for keys in run.waiters.values() for key in keys]
    if len(waiting) != len(set(waiting)):
        yield "a task waits twice for a signal"
    known = dict[str, tuple[Node, TaskState]]()
    for key, _, node, state in tasks:
        known[key] = (node, state)
        if node.type == "signal" and state.status == WAITING and key not in waiting:
            yield f"`{key}` waits for a signal that will not find it"
        if (node.type == "event" and state.status == WAITING) is not (key in run.listening):
            yield f"`{key}` is {state.status}, and the bus has another idea of it"
    for key in run.listening:
        if key not in known:
            yield f"`{key}` listens to the bus and is not there"
    for name, keys in run.waiters.items():
        for key in keys:
            node, state = known.get(key, (None, None))
            if node is None or state is None or state.status not in OPEN_TASK:
                yield f"signal `{name}` would go to `{key}`, which does not wait"
            elif name not in (node.config.get("name"), node.config.get("more")):
                yield f"`{key}` waits for another signal than `{name}`"
        if not keys or run.signals.get(name):
            yield f"signal `{name}` is there and is waited for, or its list is empty"
    if any(not letters for letters in run.signals.values()):
        yield "an empty list of signals is kept"


def _mutexes(flow: Flow, tasks: Tasks) -> Iterator[str]:
    run = flow.run
    if run.stopping is not None:
        return
    queued: dict[str, int] = {}
    for queue in run.mutexes.values():
        for key in queue:
            queued[key] = queued.get(key, 0) + 1
    for key, _, node, state in tasks:
        if node.type == "mutex" and state.status in OPEN_TASK and queued.get(key) != 1:
            yield f"mutex task `{key}` stands {queued.get(key, 0)} times in line"
    for name, queue in run.mutexes.items():
        for place, key in enumerate(queue):
            try:
                state = flow.locate(key)[3]
            except KeyError:
                yield f"`{key}` stands in line for mutex `{name}`, and is gone"
                continue
            if state.status != (RUNNING if place == 0 else WAITING):
                yield f"`{key}` is {state.status} at place {place} of mutex `{name}`"


def _dues(flow: Flow, tasks: Tasks) -> Iterator[str]:
    run = flow.run
    heap = run.dues
    if any(heap[(i - 1) // 2] > heap[i] for i in range(1, len(heap))):
        yield "the due times are no heap"
    if run.paused:
        return
    entries = set(heap)
    wanted: list[tuple[float, str]] = []
    deadline = None if run.late else run.deadline
    for when, name in (
        (run.due, RUN), (run.grace, GRACE), (run.begin, BEGIN), (deadline, DEADLINE),
    ):  # fmt: skip
        if when is not None:
            wanted.append((when, name))
    for key, _, _, state in tasks:
        if state.status == WAITING and state.due is not None:
            wanted.append((state.due, key))
        if state.status in OPEN_TASK and state.deadline is not None:
            wanted.append((state.deadline, key))
    for entry in wanted:
        if entry not in entries:
            yield f"nothing will wake `{entry[1]}` at {entry[0]}"


def _maps(flow: Flow, tasks: Tasks) -> Iterator[str]:
    for key, _, node, state in tasks:
        held = state.map
        if held is None:
            if node.type == "map" and state.status == RUNNING:
                yield f"map `{key}` runs without its state"
            continue
        prefix = key + "["
        inside = sum(
            path.startswith(prefix) and "/" not in path[len(prefix) :] for path in flow.run.scopes
        )
        if inside != held.active:
            yield f"map `{key}` says {held.active} items run, and has {inside}"
        if not held.done and held.completed + held.failed + held.active != held.next:
            yield f"map `{key}` has lost count of its items"
        if len(held.results) != held.next or held.next > held.total:
            yield f"map `{key}` has {len(held.results)} results for {held.next} of {held.total} items"


def _undo(run: Run) -> Iterator[str]:
    keys = [entry.key for entry in (*run.undo, *run.rewind)]
    keys += [*run.undoing, *(failed.entry.key for failed in run.undo_failed)]
    if len(keys) != len(set(keys)):
        yield "one execution would be undone twice"
    if run.undoing and not run.compensating and not run.rewinding and run.stopping is None:
        yield "something is undone before the run compensates"
    if run.rewinding and not (run.paused and (run.undoing or run.undo_failed)):
        yield "the run rewinds and undoes nothing"
    if run.compensating and run.stopping is None:
        yield "the run compensates and does not stop"
    if run.compensating and any(
        state.status in OPEN_TASK for scope in run.scopes.values() for state in scope.tasks.values()
    ):
        yield "the run compensates while tasks are open"


def _going_on(flow: Flow, tasks: Tasks) -> Iterator[str]:
    """No run is stuck: between turns an open one waits for a named thing (SPEC 4.8)."""
    run = flow.run
    if run.pending:
        return
    if run.finished:
        yield "the run is finished and not closed"
    if not reasons(run):
        yield "the run waits for nothing"
    if run.paused != (run.paused_at is not None) or (run.paused and run.stopping is not None):
        yield "the pause is not sound"
    if run.begin is None and not run.held and run.stopping is None and "" not in run.scopes:
        yield "a run that has begun has no scope"
    if run.status == COMPENSATING and not run.compensating:
        yield "the run says COMPENSATING and does not"
    for key, scope, node, state in tasks:
        decided = state.trues + state.deads == len(node.arrivals) > 0
        if state.status == PENDING and decided and run.stopping is None and not scope.over:
            yield f"all links of `{key}` are decided, and it has not fired"
    if run.paused and not owed(run) and not reasons(run):
        yield "a paused run wants nothing"
