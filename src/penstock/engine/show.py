"""A run and its tasks as they are shown (SPEC 4.1), from its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.plan import Plan
from penstock.core.values import decode
from penstock.errors import NotFound
from penstock.model import events as e
from penstock.model.failure import Failure
from penstock.model.job import LogLine
from penstock.model.run import (
    COMPENSATED,
    COMPLETED,
    FAILED,
    OPEN_TASK,
    PENDING,
    REF_SHIFT,
    Ref,
    Run,
    TaskState,
)
from penstock.ports.runs import Moment, RunView, TaskView
from penstock.ports.store import Row

TASKS_SHOWN_MAX = 10_000
VALUES_SHOWN_MAX = 1_000


def shown(row: Row, plan: Plan, events: Sequence[e.Event]) -> RunView:
    """Folds the history once, noting each task as it was left."""
    flow = Flow(Run(id=row.id), plan)
    tasks: dict[str, TaskView] = {}
    path: list[str] = []
    logs: dict[str, tuple[LogLine, ...]] = {}
    for event in events:
        key = getattr(event, "key", None)
        if isinstance(key, str) and isinstance(
            event, e.TaskCompleted | e.TaskFailed | e.TimerFired | e.FormSubmitted | e.ChildClosed
        ):
            path.append(key)
        if isinstance(event, e.TaskCompleted | e.TaskRetried | e.TaskFailed | e.TaskLost):
            logs[event.key] = event.logs
        if flow.plan.function and isinstance(key, str):
            _note_step(flow, key, event, tasks)
        before = list(flow.run.scopes) if not event_closes(event) else []
        if event_closes(event):
            _note(flow, tasks, events)
        evolve(flow, event)
        if len(before) and any(scope not in flow.run.scopes for scope in before):
            _note_event(event, tasks)
    _note(flow, tasks, events)
    for key, lines in logs.items():
        if lines and key in tasks:
            tasks[key].logs = lines
    run = flow.run
    first = events[0] if events else None
    failure = run.failure
    return RunView(
        id=row.id, generation=row.generation, definition=row.definition, version=run.version or row.version, status=run.status,
        revision=run.revision, created_at=run.created_at, last_updated=run.updated_at, paused=run.paused,
        cancel_requested=run.cancel_requested,
        data={name: decode(bytes(write.value)) for name, write in run.data.items()},
        current_tasks=[key for key, task in tasks.items() if task.status in OPEN_TASK],
        execution_path=path, error_stack=_stack(failure), created_by=run.created_by, started_at=run.started_at,
        ended_at=run.ended_at, metadata=run.metadata, attributes=run.attributes, parent=run.parent,
        input=decode(bytes(first.input)) if isinstance(first, e.RunStarted) else None,
        output=_value(run.result_ref, events) if run.result is None else decode(run.result),
        tasks=list(tasks.values())[:TASKS_SHOWN_MAX],
    )  # fmt: skip


def event_closes(event: e.Event) -> bool:
    return isinstance(
        event,
        e.RunCompleted
        | e.RunFailed
        | e.RunCancelled
        | e.RunTimedOut
        | e.RunTerminated
        | e.RunContinued,
    )


def _note_event(event: e.Event, tasks: dict[str, TaskView]) -> None:
    """The task's scope left the state with this event: the event itself says how it ended."""
    match event:
        case e.TaskCompleted() | e.FormSubmitted():
            tasks[event.key] = TaskView(
                key=event.key, status="COMPLETED", output=decode(bytes(event.output)), ended_at=event.at,
                attempts=getattr(event, "attempt", 0),
            )  # fmt: skip
        case e.TaskFailed():
            tasks[event.key] = TaskView(
                key=event.key,
                status="CANCELLED" if event.cancelled else "FAILED",
                error=event.failure,
                attempts=event.attempt,
                ended_at=event.at,
            )
        case _:
            pass


def _note_step(flow: Flow, key: str, event: e.Event, tasks: dict[str, TaskView]) -> None:
    """A step of a workflow function leaves the state when it has ended: as it was, and how the event ends it."""
    scope = flow.run.scopes.get("")
    state = None if scope is None else scope.tasks.get(key)
    if state is None:
        if isinstance(event, e.UndoCompleted) and key in tasks:
            tasks[key].status = COMPENSATED
        return
    node = flow.plan.scopes[""].nodes[key]
    view = tasks[key] = _view(key, state, node.type, node.priority, ())
    match event:
        case e.TaskCompleted() | e.ChildClosed(status="COMPLETED"):
            view.status, view.output, view.ended_at = (
                COMPLETED,
                decode(bytes(event.output)),
                event.at,
            )
        case e.TaskFailed() | e.ChildClosed():
            view.status, view.error, view.ended_at = FAILED, event.failure, event.at
        case e.TimerFired():
            view.status, view.ended_at = COMPLETED, event.at
        case _:
            pass


def _note(flow: Flow, tasks: dict[str, TaskView], events: Sequence[e.Event]) -> None:
    for path, scope in flow.run.scopes.items():
        plan = flow.plan.scopes[scope.plan]
        for id, state in scope.tasks.items():
            node = plan.nodes[id]
            key = flow.key(path, id)
            for inner, left in (state.last or {}).items():
                tasks[f"{key}[…]/{inner}"] = _view(f"{key}[…]/{inner}", left, "", None, events)
            if state.status == PENDING or node.type == "natural":
                continue
            tasks[key] = _view(key, state, node.type, node.priority, events, node.task.name)


def _view(
    key: str, state: TaskState, type: str, priority: Any, events: Sequence[e.Event], name: str = ""
) -> TaskView:
    ref: Ref = state.ref
    count = len(cast("list[Ref]", ref)) if isinstance(ref, list) else 0
    output: Any
    if state.output is not None:
        output = decode(state.output)
    elif count > VALUES_SHOWN_MAX:
        output = f"<{count:,} values: the history has them>"
    else:
        output = _value(ref, events)
    return TaskView(
        key=key, status=state.status, type=type, name=name, output=output, error=state.failure,
        attempts=state.attempt, priority=priority, scheduled_at=state.scheduled_at or None,
        started_at=state.started_at, ended_at=state.ended_at, due=state.due or state.deadline,
    )  # fmt: skip


def _value(ref: Ref, events: Sequence[e.Event]) -> Any:
    """What is kept by reference, from the events that have it."""
    if isinstance(ref, dict):
        return {name: _value(each, events) for name, each in cast("dict[str, Ref]", ref).items()}
    if isinstance(ref, list):
        return [_value(each, events) for each in cast("list[Ref]", ref)]
    if not ref:
        return None
    number = cast("int", ref)
    event, place = events[(number >> REF_SHIFT) - 1], number & ((1 << REF_SHIFT) - 1)
    if place:
        return decode(bytes(event.outcomes[place - 1]))
    kept = (getattr(event, field, None) for field in ("output", "payload", "input"))
    return next((decode(bytes(raw)) for raw in kept if raw is not None), None)


def _stack(failure: Failure | None) -> list[Failure]:
    found: list[Failure] = []
    while failure is not None:
        found.append(failure)
        failure = failure.cause
    return found


def count_until(id: str, events: Sequence[e.Event], at: Moment) -> int:
    """How many of the events had happened by then."""
    if isinstance(at, str):
        for count, event in enumerate(events, 1):
            if isinstance(event, e.SnapshotTaken) and event.name == at:
                return count
        raise NotFound(
            f"run {id} has no snapshot `{at:.80}`",
            hint="`run.history()` has the names, in its `snapshot_taken`",
        )
    if isinstance(at, int):
        if not 1 <= at <= len(events):
            raise NotFound(
                f"run {id} has events 1 to {len(events)}, not {at}", hint="take one of these"
            )
        return at
    count = sum(1 for event in events if event.at <= at.timestamp())
    if not count:
        raise NotFound(
            f"run {id} did not exist at {at.isoformat()}", hint="its first event says when it began"
        )
    return count
