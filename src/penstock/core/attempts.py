"""Rules for attempts: begun, deferred, completed, failed, retried, lost, given up as poison; of undos too (SPEC 4.3, 4.5).

A late or doubled report is refused: it names an attempt that is not the task's present one.
"""

from __future__ import annotations

from msgspec import Raw

from penstock.core.flow import Flow
from penstock.core.keys import static
from penstock.core.plan import Node
from penstock.core.values import decode
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.definition import Retry
from penstock.model.failure import Failure
from penstock.model.job import LogLine
from penstock.model.run import RETRYING, RUNNING, SCHEDULED, Run, TaskState, Undoing
from penstock.policy.retry import delay, lasting

POISON_LOSSES = 3
LOST_CAREFUL = 2
"""From this many losses in a row an attempt is begun only after its `TaskStarted` is stored (SPEC 4.3)."""
NO_RETRY = Retry(attempts=1)
STOPPED = "cancelled"
"""What an attempt fails with that was told to stop, and did."""


def _present(flow: Flow, key: str, attempt: int, generation: int) -> tuple[Node, TaskState]:
    """The task, if that attempt is its present one; a late or doubled result is refused."""
    if generation and generation != flow.run.generation:
        raise _older(flow.run, key, generation)
    try:
        _, _, node, state = flow.locate(key)
    except KeyError:
        if _ending(flow.run, key, attempt):
            return _given_up(flow, key, attempt)
        raise Rejected("stale-attempt", f"no open task `{key}` in run {flow.run.id}") from None
    if state.attempt != attempt or state.status not in (SCHEDULED, RUNNING, RETRYING):
        if _ending(flow.run, key, attempt):
            return _given_up(flow, key, attempt)
        raise Rejected(
            "stale-attempt",
            f"`{key}` is {state.status}, attempt {state.attempt}; attempt {attempt} came too late",
        )
    return node, state


def _ending(run: Run, key: str, attempt: int) -> bool:
    """Its task was given up, and is undone if the attempt is done all the same."""
    ending = run.ending.get(key)
    return ending is not None and ending.attempt == attempt


def _given_up(flow: Flow, key: str, attempt: int) -> tuple[Node, TaskState]:
    """In the place of the task, which is CANCELLED and perhaps gone: its attempt was told to stop."""
    state = TaskState(status=RUNNING, attempt=attempt, started=True, told=True)
    return flow.plan.node(static(key)), state


def _older(run: Run, key: str, generation: int) -> Rejected:
    return Rejected(
        "stale-attempt",
        f"run {run.id} is at generation {run.generation}: an attempt of `{key}` of generation {generation} came too late",
    )


def careful(run: Run, key: str, node: Node) -> bool:
    """The attempt may begin only after its `TaskStarted` is stored."""
    state_path, _, id = key.rpartition("/")
    scope = run.scopes.get(state_path)
    if scope is None or id not in scope.tasks:
        return False
    return scope.tasks[id].lost >= LOST_CAREFUL or bool(node.config.get("once"))


def start_task(flow: Flow, command: c.StartTask) -> list[e.Event]:
    run, key, attempt = flow.run, command.key, command.attempt
    if command.undo:
        if _undoing(flow, key, attempt, command.generation).started:
            return []
        return [e.UndoStarted(at=command.at, key=key, attempt=attempt, worker=command.worker)]
    state = _present(flow, key, attempt, command.generation)[1]
    if state.started:
        return []
    if run.paused and command.began is None:
        raise Rejected("run-paused", f"run {run.id} is paused: `{key}` is not begun")
    return [
        e.TaskStarted(
            at=command.at, key=key, attempt=attempt, worker=command.worker, began=command.began
        )
    ]


def record_progress(flow: Flow, command: c.RecordProgress) -> list[e.Event]:
    key, attempt = command.key, command.attempt
    _present(flow, key, attempt, command.generation)
    if _ending(flow.run, key, attempt):
        return []
    return [
        e.TaskProgressed(at=command.at, key=key, attempt=attempt, progress=Raw(command.progress))
    ]


def defer_task(flow: Flow, command: c.DeferTask) -> list[e.Event]:
    """The attempt will be completed from outside."""
    key, attempt = command.key, command.attempt
    state = _present(flow, key, attempt, command.generation)[1]
    if state.deferred:
        return []
    if flow.run.stopping is not None or state.told:
        failure = Failure(code=STOPPED, message=f"`{key}` is not waited for")
        return [_stopped(command.at, key, attempt, failure)]
    return [
        e.TaskDeferred(
            at=command.at, key=key, attempt=attempt, due=command.due, retry=command.retry, began=command.began,
            logs=command.logs,
        )
    ]  # fmt: skip


def complete_task(flow: Flow, command: c.CompleteTask) -> list[e.Event]:
    key, attempt = command.key, command.attempt
    if command.undo:
        _undoing(flow, key, attempt, command.generation)
        return [e.UndoCompleted(at=command.at, key=key, attempt=attempt, logs=command.logs)]
    node, _ = _present(flow, key, attempt, command.generation)
    if node.output_schema is not None:
        problems = node.output_schema.problems(decode(command.output))
        if problems:
            failure = Failure(
                code="output-invalid",
                message=f"the output of `{key}` does not fit its outputSchema: {problems}",
            )
            return [
                e.TaskFailed(
                    at=command.at, key=key, attempt=attempt, failure=failure, logs=command.logs
                )
            ]
    return [
        e.TaskCompleted(
            at=command.at,
            key=key,
            attempt=attempt,
            output=Raw(command.output),
            began=command.began,
            logs=command.logs,
        )
    ]


def fail_task(flow: Flow, command: c.FailTask) -> list[e.Event]:
    run, key, attempt, failure = flow.run, command.key, command.attempt, command.failure
    logs = command.logs
    if command.undo:
        return _fail_undo(flow, command)
    node, state = _present(flow, key, attempt, command.generation)
    progress = e.NULL if command.progress is None else Raw(command.progress)
    if run.stopping is not None or state.told:
        return [_stopped(command.at, key, attempt, failure, logs)]
    if command.died and (command.once or node.config.get("once")):
        return [_unknown(command.at, key, attempt, failure, logs)]
    if command.died:
        if state.poison + 1 >= POISON_LOSSES:
            return [_poisoned(command.at, key, attempt, failure, logs)]
        return [
            e.TaskLost(
                at=command.at, key=key, attempt=attempt, counted=True, progress=progress, logs=logs
            )
        ]
    policy = node.retry or command.retry or state.retry or NO_RETRY
    charged = state.charged + 1
    if (
        command.final
        or charged >= policy.attempts
        or lasting(failure.code, failure.type, policy.never)
    ):
        return [e.TaskFailed(at=command.at, key=key, attempt=attempt, failure=failure, logs=logs)]
    due = command.at + delay(
        charged, first=policy.first, factor=policy.factor, maximum=policy.maximum, jitter=policy.jitter,
        seed=f"{run.id}/{key}/{attempt}",
    )  # fmt: skip
    return [
        e.TaskRetried(
            at=command.at,
            key=key,
            attempt=attempt,
            failure=failure,
            due=due,
            progress=progress,
            logs=logs,
        )
    ]


def _stopped(
    at: float, key: str, attempt: int, failure: Failure, logs: tuple[LogLine, ...] = ()
) -> e.Event:
    """The attempt is over while the run is being stopped: CANCELLED if that is why, FAILED by an error of its own."""
    return e.TaskFailed(
        at=at, key=key, attempt=attempt, failure=failure, logs=logs, cancelled=failure.code == STOPPED
    )  # fmt: skip


def _poisoned(
    at: float, key: str, attempt: int, cause: Failure | None, logs: tuple[LogLine, ...] = ()
) -> e.Event:
    failure = Failure(
        code="poison",
        message=f"`{key}` was lost {POISON_LOSSES} times in a row while it ran; it is not tried again",
        cause=cause,
    )
    return e.TaskFailed(at=at, key=key, attempt=attempt, failure=failure, logs=logs)


def _unknown(
    at: float, key: str, attempt: int, cause: Failure | None, logs: tuple[LogLine, ...] = ()
) -> e.Event:
    failure = Failure(
        code="outcome-unknown",
        message=f"`{key}` runs at most once and was lost while it ran; whether it took effect is not known",
        cause=cause,
    )
    return e.TaskFailed(at=at, key=key, attempt=attempt, failure=failure, logs=logs)


def lose_task(flow: Flow, command: c.LoseTask) -> list[e.Event]:
    """The process that may have begun the attempt died."""
    key, attempt, run = command.key, command.attempt, flow.run
    if command.undo:
        undoing = _undoing(flow, key, attempt, command.generation)
        if command.cut:
            return [e.UndoLost(at=command.at, key=key, attempt=attempt, cut=True)]
        if undoing.due is not None and undoing.due > command.at:
            return []
        careful = undoing.suspect >= LOST_CAREFUL
        if careful and not undoing.started:
            return []  # it had not begun
        if careful and undoing.poison + 1 >= POISON_LOSSES:
            failure = Failure(
                code="poison",
                message=f"the undo of `{key}` was lost {POISON_LOSSES} times in a row while it ran",
            )
            return [e.UndoFailed(at=command.at, key=key, attempt=attempt, failure=failure)]
        return [e.UndoLost(at=command.at, key=key, attempt=attempt, counted=careful)]
    node, state = _present(flow, key, attempt, command.generation)
    waits = state.status == RETRYING and state.due is not None and state.due > command.at
    if state.deferred or (waits and not command.cut):
        return []  # it had not begun, or needs nobody here; who was cut had begun, though the clock was set back
    if run.stopping is not None or state.told:
        failure = Failure(code=STOPPED, message=f"`{key}` was lost while the run was being stopped")
        return [_stopped(command.at, key, attempt, failure)]
    if command.once or node.config.get("once"):
        if not state.started:
            return []  # a `once` attempt is begun only after its TaskStarted is stored
        return [_unknown(command.at, key, attempt, None)]
    progress = e.NULL if command.progress is None else Raw(command.progress)
    if command.cut:
        return [e.TaskLost(at=command.at, key=key, attempt=attempt, cut=True, progress=progress)]
    careful = state.lost >= LOST_CAREFUL
    if careful and not state.started:
        return []  # from the second loss on an attempt without TaskStarted has not begun
    counted = careful and state.started
    if counted and state.poison + 1 >= POISON_LOSSES:
        return [_poisoned(command.at, key, attempt, state.failure)]
    return [e.TaskLost(at=command.at, key=key, attempt=attempt, counted=counted, progress=progress)]


# --- undos ---------------------------------------------------------------------------------------------------


def _undoing(flow: Flow, key: str, attempt: int, generation: int) -> Undoing:
    if generation and generation != flow.run.generation:
        raise _older(flow.run, key, generation)
    undoing = flow.run.undoing.get(key)
    if undoing is None:
        raise Rejected("stale-attempt", f"`{key}` is not being undone in run {flow.run.id}")
    if undoing.attempt != attempt:
        raise Rejected(
            "stale-attempt", f"undo of `{key}` is at attempt {undoing.attempt}, not {attempt}"
        )
    return undoing


def _fail_undo(flow: Flow, command: c.FailTask) -> list[e.Event]:
    undoing = _undoing(flow, command.key, command.attempt, command.generation)
    entry = undoing.entry
    charged = undoing.attempt - undoing.lost - undoing.cut
    if command.final or charged >= entry.attempts:
        return [
            e.UndoFailed(
                at=command.at,
                key=command.key,
                attempt=command.attempt,
                failure=command.failure,
                logs=command.logs,
            )
        ]
    due = command.at + delay(
        charged, first=entry.first, factor=entry.factor, maximum=entry.maximum, jitter=0.0, seed=""
    )
    return [
        e.UndoRetried(
            at=command.at,
            key=command.key,
            attempt=command.attempt,
            failure=command.failure,
            due=due,
            logs=command.logs,
        )
    ]
