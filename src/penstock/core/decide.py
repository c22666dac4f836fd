"""(run, command) -> events: what a wish becomes, or why it is refused.

Policy is applied here (`TaskRetried` holds the due time), so that a changed policy never changes an old history.
Changes nothing: `core/turn.py` folds the events.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import assert_never

from msgspec import Raw

from penstock.core.flow import BEGIN, DEADLINE, GRACE, RUN, Flow
from penstock.core.hands import change_attributes, handle_wait, resolve_undo
from penstock.core.identity import repeated, signal_digest
from penstock.core.plan import Node, Plan
from penstock.core.values import decode
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.definition import Retry
from penstock.model.failure import Failure
from penstock.model.job import LogLine
from penstock.model.run import RETRYING, RUNNING, SCHEDULED, WAITING, Run, TaskState, Undoing
from penstock.policy.retry import delay, lasting

GRACE_SECONDS = 30.0
"""How long activities that were told to stop may take (SPEC 4.4)."""
POISON_LOSSES = 3
LOST_CAREFUL = 2
"""From this many losses in a row an attempt is begun only after its `TaskStarted` is stored (SPEC 4.3)."""
PRIORITIES = {"high": 0, "normal": 1, "low": 2}
NO_RETRY = Retry(attempts=1)


def decide(flow: Flow, command: c.Command) -> list[e.Event]:
    """The events of one command, or Rejected."""
    run = flow.run
    if type(command) is c.CompleteTask and run.ended_at is None and run.revision:
        return _complete(flow, command)  # by far the most common
    if isinstance(command, c.StartRun):
        return _start(flow, command)
    if run.revision == 0:
        raise Rejected("run-unknown", f"no run {run.id}")
    if isinstance(command, c.Wake):
        return _wake(flow, command.at)
    if isinstance(command, c.Identified):
        if repeated(run, command.id, command.at, command.digest):
            return []
        accepted = e.CommandAccepted(at=command.at, id=command.id, digest=command.digest)
        return [accepted, *decide(flow, command.command)]
    if run.closed:
        if isinstance(command, c.SendSignal) and _heard(run, command):
            return []  # a repeat gets the answer of the first
        raise Rejected(
            "run-closed", f"run {run.id} has ended {run.status}", run_id=run.id, status=run.status
        )
    match command:
        case c.CompleteTask():
            return _complete(flow, command)
        case c.FailTask():
            return _fail(flow, command)
        case c.LoseTask():
            return _lose(flow, command)
        case c.StartTask(undo=True):
            if _undo(flow, command.key, command.attempt, command.generation).started:
                return []
            return [
                e.UndoStarted(
                    at=command.at, key=command.key, attempt=command.attempt, worker=command.worker
                )
            ]
        case c.StartTask():
            state = _attempt(flow, command.key, command.attempt, command.generation)[1]
            if state.started:
                return []
            if run.paused and command.began is None:
                raise Rejected(
                    "run-paused", f"run {run.id} is paused: `{command.key}` is not begun"
                )
            return [
                e.TaskStarted(
                    at=command.at,
                    key=command.key,
                    attempt=command.attempt,
                    worker=command.worker,
                    began=command.began,
                )
            ]
        case c.RecordProgress():
            _attempt(flow, command.key, command.attempt, command.generation)
            return [
                e.TaskProgressed(
                    at=command.at,
                    key=command.key,
                    attempt=command.attempt,
                    progress=Raw(command.progress),
                )
            ]
        case c.SendSignal():
            return _signal(flow, command)
        case c.ClaimForm() | c.ReleaseForm() | c.DelegateForm() | c.SubmitForm():
            return _form(flow, command)
        case c.RecordChild():
            state = _waiting(flow, command.key)
            if state.child != command.run:
                raise Rejected("task-not-waiting", f"`{command.key}` waits for run {state.child}")
            if state.started_at is not None:
                return []
            return [
                e.ChildStarted(
                    at=command.at, key=command.key, run=command.run, version=command.version
                )
            ]
        case c.CloseChild():
            return [
                e.ChildClosed(
                    at=command.at, key=_parting(flow, command), status=command.status, output=Raw(command.output),
                    failure=command.failure, undo=list(command.undo),
                )
            ]  # fmt: skip
        case c.RecordDelivery():
            if command.id not in run.outgoing:
                return []
            return [e.SignalDelivered(at=command.at, id=command.id, refused=command.refused)]
        case c.NameSnapshot():
            return [e.SnapshotTaken(at=command.at, name=command.name, by=command.by)]
        case c.AdmitRun():
            if not run.held or run.begin is not None or run.paused or run.stopping is not None:
                return []
            timeouts = flow.plan.definition.timeouts
            timeout = None if timeouts is None else timeouts.run
            due = None if timeout is None else command.at + timeout
            return [e.RunAdmitted(at=command.at, due=due)]
        case c.ForeseeMiss():
            if run.deadline is None or run.escalated or run.late:
                return []
            return [
                e.DeadlineForeseen(at=command.at, deadline=run.deadline, expected=command.expected)
            ]
        case c.PauseRun():
            if run.stopping is not None:
                raise _stopping(run, "cannot be paused any more")
            if run.rewinding:
                raise _rewinding(run)
            if run.paused:
                return []
            return [e.RunPaused(at=command.at, by=command.by, reason=command.reason)]
        case c.ResumeRun():
            if not run.paused:
                return []
            if run.rewinding:
                raise _rewinding(run)
            return [e.RunResumed(at=command.at, by=command.by, reason=command.reason)]
        case c.CancelRun():
            if run.cancel_requested:
                return []
            if run.stopping is not None:
                raise _stopping(run, "needs no cancelling")
            return [
                e.CancelRequested(
                    at=command.at,
                    by=command.by,
                    reason=command.reason,
                    due=command.at + GRACE_SECONDS,
                )
            ]
        case c.DeferTask():
            state = _attempt(flow, command.key, command.attempt, command.generation)[1]
            if state.deferred:
                return []
            if run.stopping is not None:
                failure = Failure(code="cancelled", message=f"`{command.key}` is not waited for")
                return [
                    e.TaskFailed(
                        at=command.at, key=command.key, attempt=command.attempt, failure=failure
                    )
                ]
            return [
                e.TaskDeferred(
                    at=command.at, key=command.key, attempt=command.attempt, due=command.due, retry=command.retry,
                    began=command.began, logs=command.logs,
                )
            ]  # fmt: skip
        case c.HandleWait():
            return handle_wait(flow, command)
        case c.ResolveUndo():
            return resolve_undo(flow, command)
        case c.ChangeAttributes():
            return change_attributes(run, command)
        case c.TerminateRun():
            return [e.RunTerminated(at=command.at, by=command.by, reason=command.reason)]
        case _:
            assert_never(command)


def _stopping(run: Run, what: str) -> Rejected:
    doing = "undoes what it did" if run.compensating else "waits for what is still under way"
    return Rejected(
        "run-stopping",
        f"run {run.id} {what}: it {doing}, and then ends {run.stopping}",
        hint="`why` says what it waits for; terminate it to end it at once, with nothing more undone",
        run_id=run.id,
    )


def _rewinding(run: Run) -> Rejected:
    return Rejected(
        "run-rewinding",
        f"run {run.id} undoes what the generation before had done; it goes on by itself after that",
        hint="`why` says what is being undone; cancel or terminate the run to end it",
    )


def _parting(flow: Flow, command: c.CloseChild) -> str:
    """The key under which the run knows the child that has ended."""
    run = flow.run
    if command.run:
        for key, child in run.leaving.items():
            if child == command.run:
                return key
    elif command.key in run.leaving:
        return command.key
    state = _waiting(flow, command.key)
    if command.run and state.child != command.run:
        raise Rejected(
            "task-not-waiting", f"`{command.key}` waits for run {state.child}, not {command.run}"
        )
    return command.key


def _start(flow: Flow, command: c.StartRun) -> list[e.Event]:
    plan, run = flow.plan, flow.run
    if run.revision:
        raise Rejected("id-taken", f"run {run.id} exists already", run_id=run.id)
    if plan.input_schema is not None:
        problems = plan.input_schema.problems(decode(command.input))
        if problems:
            raise Rejected(
                "input-invalid",
                f"the input does not fit the inputSchema of `{command.definition}`: {problems}",
                hint="change the input, or the definition's inputSchema",
            )
    definition = plan.definition
    held = plan.runs_max is not None and _waits(plan, command)
    timeout = None if held or definition.timeouts is None else definition.timeouts.run
    begin = None if not command.delay else command.at + command.delay
    return [
        e.RunStarted(
            at=command.at, id=command.id, generation=command.generation, definition=command.definition,
            version=command.version, input=Raw(command.input),
            priority=PRIORITIES[definition.priority] if command.priority is None else command.priority,
            deadline=command.deadline, due=None if timeout is None else (begin or command.at) + timeout, begin=begin,
            created_by=command.created_by, parent=command.parent, parent_key=command.parent_key,
            parent_generation=command.parent_generation, depth=command.depth, metadata=command.metadata,
            attributes=command.attributes, held=held, start_key=command.start_key,
        )
    ]  # fmt: skip


def _waits(plan: Plan, command: c.StartRun) -> bool:
    """A parent cannot try again later, so that its child waits even where others are refused."""
    return plan.definition.limits.get("over") != "refuse" or command.parent is not None


# --- attempts (SPEC 4.3) -------------------------------------------------------------------------------------


def _attempt(flow: Flow, key: str, attempt: int, generation: int) -> tuple[Node, TaskState]:
    """The task, if that attempt is its present one; a late or doubled result is refused."""
    if generation and generation != flow.run.generation:
        raise _older(flow.run, key, generation)
    try:
        _, _, node, state = flow.locate(key)
    except KeyError:
        raise Rejected("stale-attempt", f"no open task `{key}` in run {flow.run.id}") from None
    if state.attempt != attempt or state.status not in (SCHEDULED, RUNNING, RETRYING):
        raise Rejected(
            "stale-attempt",
            f"`{key}` is {state.status}, attempt {state.attempt}; attempt {attempt} came too late",
        )
    return node, state


def _older(run: Run, key: str, generation: int) -> Rejected:
    return Rejected(
        "stale-attempt",
        f"run {run.id} is at generation {run.generation}: an attempt of `{key}` of generation {generation} came too late",
    )


def _complete(flow: Flow, command: c.CompleteTask) -> list[e.Event]:
    key, attempt = command.key, command.attempt
    if command.undo:
        _undo(flow, key, attempt, command.generation)
        return [e.UndoCompleted(at=command.at, key=key, attempt=attempt, logs=command.logs)]
    node, _ = _attempt(flow, key, attempt, command.generation)
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


def _fail(flow: Flow, command: c.FailTask) -> list[e.Event]:
    run, key, attempt, failure = flow.run, command.key, command.attempt, command.failure
    logs = command.logs
    if command.undo:
        return _fail_undo(flow, command)
    node, state = _attempt(flow, key, attempt, command.generation)
    progress = e.NULL if command.progress is None else Raw(command.progress)
    if run.stopping is not None:
        return [e.TaskFailed(at=command.at, key=key, attempt=attempt, failure=failure, logs=logs)]
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


def _lose(flow: Flow, command: c.LoseTask) -> list[e.Event]:
    """The process that may have begun the attempt died."""
    key, attempt, run = command.key, command.attempt, flow.run
    if command.undo:
        undoing = _undo(flow, key, attempt, command.generation)
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
    node, state = _attempt(flow, key, attempt, command.generation)
    if state.deferred or (
        state.status == RETRYING and state.due is not None and state.due > command.at
    ):
        return []  # it had not begun, or needs nobody here
    if run.stopping is not None:
        failure = Failure(
            code="cancelled", message=f"`{key}` was lost while the run was being stopped"
        )
        return [e.TaskFailed(at=command.at, key=key, attempt=attempt, failure=failure)]
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


def _undo(flow: Flow, key: str, attempt: int, generation: int) -> Undoing:
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
    undoing = _undo(flow, command.key, command.attempt, command.generation)
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


# --- waits ---------------------------------------------------------------------------------------------------


def _wake(flow: Flow, at: float) -> list[e.Event]:
    """The first thing that is due, if any; the turn asks until there is none."""
    run = flow.run
    if run.closed or run.paused or not run.dues:
        return []
    when, key = run.dues[0]
    if when > at:
        return []
    if key == RUN:
        return [e.TimeoutReached(at=at, due=at + GRACE_SECONDS)]
    if key == GRACE:
        return [e.GraceEnded(at=at)]
    if key == BEGIN:
        return [e.RunBegun(at=at)]
    if key == DEADLINE:
        return [e.DeadlineMissed(at=at, deadline=when)]
    _, _, node, state = flow.locate(key)
    if state.deadline == when and (
        state.due != when or node.type not in ("timer", "signal", "form")
    ):
        failure = Failure(
            code="timeout",
            message=f"`{key}` took longer than its task timeout of {node.timeouts.task:g} s",
        )
        return [e.TaskFailed(at=at, key=key, attempt=state.attempt, failure=failure)]
    if state.deferred:
        failure = Failure(code="timeout", message=f"`{key}` was not completed from outside in time")
        return _fail(flow, c.FailTask(at=at, key=key, attempt=state.attempt, failure=failure))
    if node.type == "timer":
        return [e.TimerFired(at=at, key=key)]
    if node.type == "form":
        return [e.FormEscalated(at=at, key=key)]
    failure = Failure(
        code="timeout", message=f"`{key}` waited in vain for signal `{node.config.get('name')}`"
    )
    return [e.TaskFailed(at=at, key=key, attempt=state.attempt, failure=failure)]


def _waiting(flow: Flow, key: str) -> TaskState:
    try:
        state = flow.locate(key)[3]
    except KeyError:
        state = None
    if state is None or state.status != WAITING:
        raise Rejected("task-not-waiting", f"no task `{key}` waits in run {flow.run.id}")
    return state


def _heard(run: Run, command: c.SendSignal) -> bool:
    """The message came before."""
    if not command.id:
        return False
    digest = signal_digest(command.name, command.payload, len(command.payload))
    return repeated(run, command.id, command.at, digest)


def _signal(flow: Flow, command: c.SendSignal) -> list[e.Event]:
    run, name = flow.run, command.name
    declared = flow.plan.signals.get(name)
    if declared is None:
        near = get_close_matches(name, flow.plan.signals, 1)
        known = ", ".join(sorted(flow.plan.signals)) or "none"
        raise Rejected(
            "signal-undeclared",
            f"`{run.definition}` declares no signal `{name}`; it declares: {known}",
            hint=f"did you mean `{near[0]}`?" if near else "declare it by a task of type signal",
        )
    if _heard(run, command):
        return []
    if run.stopping is not None:
        raise Rejected("run-stopping", f"run {run.id} is being stopped and takes no more signals")
    waiting = run.waiters.get(name)
    node = flow.locate(waiting[0])[2] if waiting else declared[0]
    if node.schema is not None:
        problems = node.schema.problems(decode(command.payload))
        if problems:
            raise Rejected(
                "signal-invalid",
                f"the payload of signal `{name}` does not fit its schema: {problems}",
            )
    return [
        e.SignalReceived(
            at=command.at,
            name=name,
            payload=Raw(command.payload),
            by=command.by,
            id=command.id,
            update=command.update,
        )
    ]


def _form(
    flow: Flow, command: c.ClaimForm | c.ReleaseForm | c.DelegateForm | c.SubmitForm
) -> list[e.Event]:
    state = _waiting(flow, command.key)
    form = state.form
    if form is None:
        raise Rejected("not-a-form", f"`{command.key}` is not a form")
    held = form.claimed_by
    if held is not None and held != command.by:
        raise Rejected(
            "form-claimed",
            f"`{command.key}` is claimed by {held}",
            hint=f"{held} must release it first",
        )
    match command:
        case c.ClaimForm():
            return (
                []
                if held == command.by
                else [e.FormClaimed(at=command.at, key=command.key, by=command.by)]
            )
        case c.ReleaseForm():
            return (
                []
                if held is None
                else [e.FormReleased(at=command.at, key=command.key, by=command.by)]
            )
        case c.DelegateForm():
            return [e.FormDelegated(at=command.at, key=command.key, by=command.by, to=command.to)]
        case c.SubmitForm():
            node = flow.locate(command.key)[2]
            if node.schema is not None:
                problems = node.schema.problems(decode(command.output))
                if problems:
                    raise Rejected(
                        "form-invalid",
                        f"the form `{command.key}` is not filled in right: {problems}",
                    )
            return [
                e.FormSubmitted(
                    at=command.at, key=command.key, by=command.by, output=Raw(command.output)
                )
            ]


def careful(run: Run, key: str, node: Node) -> bool:
    """The attempt may begin only after its `TaskStarted` is stored."""
    state_path, _, id = key.rpartition("/")
    scope = run.scopes.get(state_path)
    if scope is None or id not in scope.tasks:
        return False
    return scope.tasks[id].lost >= LOST_CAREFUL or bool(node.config.get("once"))
