"""Operators' hands: what they may do to a wait, to an undo that failed, to the attributes (SPEC 4.4, 4.5, 4.9).

The first half decides, the second folds; each act keeps who and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.flow import Flow
from penstock.core.plan import Node
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.effects import Execute
from penstock.model.failure import Failure
from penstock.model.run import (
    COMPENSATED,
    COMPENSATING,
    RETRYING,
    RUNNING,
    UNDO_FAILED,
    WAITING,
    Run,
    TaskState,
    Undoing,
)

WAIT_ACTS = ("fire", "skip", "fail")
UNDO_ACTS = ("accept", "skip", "retry")
ATTRIBUTES_MAX = 200
"""Of one run."""


# --- deciding ------------------------------------------------------------------------------------------------


def handle_wait(flow: Flow, command: c.HandleWait) -> list[e.Event]:
    """Fire, skip or fail a waiting retry or timer; skip or fail a wait for a signal, an event, a form or a token."""
    run, key, act = flow.run, command.key, command.act
    if act not in WAIT_ACTS:
        raise Rejected(
            "act-unknown", f"`{act:.80}` is not fire, skip or fail", hint="take one of these"
        )
    undoing = run.undoing.get(key)
    if undoing is not None and undoing.due is not None and undoing.due > command.at:
        return _handle_undo(command, undoing)
    try:
        _, _, node, state = flow.locate(key)
    except KeyError:
        raise _no_wait(flow, key) from None
    kind = _kind(node, state, command.at)
    if kind is None:
        raise _no_wait(flow, key, state.status)
    if run.stopping is not None or state.told:
        raise Rejected(
            "run-stopping", f"run {run.id} is being stopped: nothing in it is waited for any more"
        )
    by, reason = command.by, command.reason
    match act:
        case "skip":
            return [e.TaskSkipped(at=command.at, key=key, by=by, reason=reason)]
        case "fail":
            failure = Failure(
                code="failed-by-operator", message=reason or f"{by or 'an operator'} failed `{key}`"
            )
            return [
                e.TaskFailed(
                    at=command.at, key=key, attempt=state.attempt, failure=failure, by=by or ""
                )
            ]
        case _:
            pass
    if kind == "retry":
        return [e.RetryFired(at=command.at, key=key, attempt=state.attempt, by=by, reason=reason)]
    if kind == "timer":
        return [e.TimerFired(at=command.at, key=key, by=by, reason=reason)]
    hint = {
        "signal": "send the signal",
        "event": "publish the event",
        "form": "submit the form",
        "token": "complete it",
    }[kind]
    raise Rejected(
        "not-fireable",
        f"`{key}` waits for {'an' if kind == 'event' else 'a'} {kind}, which only somebody else can give",
        hint=f"{hint}, or skip or fail the wait",
    )


def _handle_undo(command: c.HandleWait, undoing: Undoing) -> list[e.Event]:
    key = command.key
    if command.act == "fire":
        return [
            e.RetryFired(
                at=command.at, key=key, attempt=undoing.attempt, by=command.by, reason=command.reason, undo=True,
            )
        ]  # fmt: skip
    failure = undoing.failure or Failure(code="failed-by-operator", message=command.reason)
    failed = e.UndoFailed(
        at=command.at, key=key, attempt=undoing.attempt, failure=failure, by=command.by or "", reason=command.reason,
    )  # fmt: skip
    if command.act == "fail":
        return [failed]
    skipped = e.UndoResolved(
        at=command.at, key=key, act="skip", by=command.by, reason=command.reason
    )
    return [failed, skipped]


def _kind(node: Node, state: TaskState, at: float) -> str | None:
    """What the task waits for, of what an operator can lay hands on."""
    if state.deferred:
        return "token"
    if state.status == RETRYING and state.due is not None and state.due > at:
        return "retry"
    if state.status != WAITING:
        return None
    if state.form is not None:
        return "form"
    return node.type if node.type in ("timer", "signal", "event") else None


def _no_wait(flow: Flow, key: str, status: str = "") -> Rejected:
    what = f"is {status} and waits for nothing" if status else "is not open"
    return Rejected(
        "task-not-waiting",
        f"`{key}` of run {flow.run.id} {what} that can be fired, skipped or failed",
        hint="`why` lists what the run waits for, by key",
    )


def resolve_undo(flow: Flow, command: c.ResolveUndo) -> list[e.Event]:
    run = flow.run
    if command.act not in UNDO_ACTS:
        raise Rejected(
            "act-unknown",
            f"`{command.act:.80}` is not accept, skip or retry",
            hint="take one of these",
        )
    failed = next((each for each in run.undo_failed if each.entry.key == command.key), None)
    if failed is None:
        keys = ", ".join(f"`{each.entry.key}`" for each in run.undo_failed) or "none"
        raise Rejected(
            "undo-not-failed",
            f"no undo of `{command.key}` has failed in run {run.id}; failed: {keys}",
            hint="`why` lists the undos that wait for a decision",
        )
    return [
        e.UndoResolved(
            at=command.at, key=command.key, act=command.act, by=command.by, reason=command.reason,
            attempt=failed.attempt + 1 if command.act == "retry" else 0,
        )
    ]  # fmt: skip


def change_attributes(run: Run, command: c.ChangeAttributes) -> list[e.Event]:
    values = {
        name: value
        for name, value in command.values.items()
        if (
            name in run.attributes if value is None else run.attributes.get(name, _NOTHING) != value
        )
    }
    if not values:
        return []
    changed_attributes(run.attributes, values)
    return [e.AttributesChanged(at=command.at, values=values, by=command.by, reason=command.reason)]


_NOTHING = object()


# --- folding -------------------------------------------------------------------------------------------------


def fire_retry(flow: Flow, run: Run, event: e.RetryFired) -> None:
    if event.undo:
        undoing = run.undoing[event.key]
        undoing.due = event.at
    else:
        flow.locate(event.key)[3].due = event.at
    flow.effects.append(Execute(event.key, event.attempt, event.at, undo=event.undo))


def skip_task(flow: Flow, event: e.TaskSkipped) -> None:
    path, scope, node, state = flow.locate(event.key)
    flow.release(path, scope, node, state)
    flow.keep(state, 0, b"null")
    flow.skip(path, scope, node, state)


def resolved(flow: Flow, run: Run, event: e.UndoResolved) -> bool:
    """Whether the next undo may begin."""
    place = next(i for i, each in enumerate(run.undo_failed) if each.entry.key == event.key)
    failed = run.undo_failed.pop(place)
    if event.act == "retry":
        # What was tried before does not count: it has all its attempts again.
        run.undoing[event.key] = Undoing(failed.entry, attempt=event.attempt, cut=event.attempt - 1)
        flow.effects.append(Execute(event.key, event.attempt, undo=True))
        flow.mark_undone(event.key, COMPENSATING)
        return False
    flow.mark_undone(event.key, COMPENSATED if event.act == "accept" else UNDO_FAILED)
    return True


def changed_attributes(before: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a run when some are changed, None removes one; Rejected if they become too many."""
    after = {name: value for name, value in {**before, **values}.items() if value is not None}
    if len(after) > ATTRIBUTES_MAX and len(after) > len(before):
        raise Rejected(
            "attributes-too-many",
            f"a run has at most {ATTRIBUTES_MAX} attributes, and this would make {len(after)}",
        )
    return after


def attributes_after(run: Run, event: e.AttributesChanged) -> None:
    """A new mapping, so that whoever keeps the row sees that it changed."""
    merged = {**run.attributes, **event.values}
    run.attributes = {name: value for name, value in merged.items() if value is not None}


def defer(flow: Flow, event: e.TaskDeferred) -> None:
    state = flow.locate(event.key)[3]
    state.status, state.started, state.deferred = RUNNING, True, True
    state.started_at = event.began or event.at
    state.retry, state.due = event.retry, None
    if event.due is not None:
        state.due = flow.counted(event.due)
        flow.due(state.due, event.key)
