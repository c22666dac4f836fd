"""(run, command) -> events: what a wish becomes, or why it is refused.

Policy is applied here (`TaskRetried` holds the due time), so that a changed policy never changes an old history.
Changes nothing: `core/turn.py` folds the events. The match, and the run's own rules; those for attempts are in
`core/attempts.py`, for waits in `core/waits.py`, for what operators do by hand in `core/hands.py`.
"""

from __future__ import annotations

from typing import assert_never

from msgspec import Raw

from penstock.core.attempts import (
    complete_task,
    defer_task,
    fail_task,
    lose_task,
    record_progress,
    start_task,
)
from penstock.core.flow import Flow
from penstock.core.hands import change_attributes, handle_wait, resolve_undo
from penstock.core.identity import repeated
from penstock.core.migration import migrate_run
from penstock.core.plan import Plan
from penstock.core.values import decode
from penstock.core.waits import (
    GRACE_SECONDS,
    change_form,
    close_child,
    heard,
    receive_event,
    receive_signal,
    record_child,
    wake,
)
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.run import Run

PRIORITIES = {"high": 0, "normal": 1, "low": 2}


def decide(flow: Flow, command: c.Command) -> list[e.Event]:
    """The events of one command, or Rejected."""
    run = flow.run
    if type(command) is c.CompleteTask and run.ended_at is None and run.revision:
        return complete_task(flow, command)  # by far the most common
    if isinstance(command, c.StartRun):
        return _start(flow, command)
    if run.revision == 0:
        raise Rejected("not-found", f"no run {run.id}")
    if isinstance(command, c.Wake):
        return wake(flow, command.at)
    if isinstance(command, c.Identified):
        if repeated(run, command.id, command.at, command.digest):
            return []
        accepted = e.CommandAccepted(at=command.at, id=command.id, digest=command.digest)
        return [accepted, *decide(flow, command.command)]
    if run.closed:
        if isinstance(command, c.SendSignal) and heard(run, command):
            return []  # a repeat gets the answer of the first
        raise Rejected(
            "run-closed", f"run {run.id} has ended {run.status}", run_id=run.id, status=run.status
        )
    match command:
        case c.CompleteTask():
            return complete_task(flow, command)
        case c.FailTask():
            return fail_task(flow, command)
        case c.LoseTask():
            return lose_task(flow, command)
        case c.StartTask():
            return start_task(flow, command)
        case c.RecordProgress():
            return record_progress(flow, command)
        case c.SendSignal():
            return receive_signal(flow, command)
        case c.OfferEvent():
            return receive_event(flow, command)
        case c.ClaimForm() | c.ReleaseForm() | c.DelegateForm() | c.SubmitForm():
            return change_form(flow, command)
        case c.RecordChild():
            return record_child(flow, command)
        case c.CloseChild():
            return close_child(flow, command)
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
        case c.AdvanceRun():
            if not run.heard or run.stopping is not None:
                return []
            return [e.Advanced(at=command.at)]
        case c.ForeseeMiss():
            if run.deadline is None or run.escalated or run.late:
                return []
            return [
                e.DeadlineForeseen(at=command.at, deadline=run.deadline, expected=command.expected)
            ]
        case c.PauseRun():
            if run.stopping is not None or run.asked:
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
            if run.stopping is not None or run.asked:
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
            return defer_task(flow, command)
        case c.HandleWait():
            return handle_wait(flow, command)
        case c.ResolveUndo():
            return resolve_undo(flow, command)
        case c.ChangeAttributes():
            return change_attributes(run, command)
        case c.MigrateRun():
            return migrate_run(flow, command)
        case c.TerminateRun():
            return [e.RunTerminated(at=command.at, by=command.by, reason=command.reason)]
        case _:
            assert_never(command)


def _stopping(run: Run, what: str) -> Rejected:
    doing = "undoes what it did" if run.compensating else "waits for what is still under way"
    if run.stopping is None:
        doing = "cleans up"
    return Rejected(
        "run-stopping",
        f"run {run.id} {what}: it {doing}, and then ends {run.stopping or run.asked}",
        hint="`why` says what it waits for; terminate it to end it at once, with nothing more undone",
        run_id=run.id,
    )


def _rewinding(run: Run) -> Rejected:
    return Rejected(
        "run-rewinding",
        f"run {run.id} undoes what the generation before had done; it goes on by itself after that",
        hint="`why` says what is being undone; cancel or terminate the run to end it",
    )


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
    due = command.due
    if due is None and timeout is not None:
        due = (begin or command.at) + timeout
    return [
        e.RunStarted(
            at=command.at, id=command.id, generation=command.generation, definition=command.definition,
            version=command.version, input=Raw(command.input),
            priority=PRIORITIES[definition.priority] if command.priority is None else command.priority,
            deadline=command.deadline, due=due, begin=begin,
            created_by=command.created_by, parent=command.parent, parent_key=command.parent_key,
            parent_generation=command.parent_generation, depth=command.depth, metadata=command.metadata,
            attributes=command.attributes, held=held, start_key=command.start_key,
            rules=1 if plan.function else e.RULES, later=command.later, known=command.known, undo=list(command.undo), origin=command.origin,
        )
    ]  # fmt: skip


def _waits(plan: Plan, command: c.StartRun) -> bool:
    """A parent cannot try again later, so that its child waits even where others are refused."""
    return plan.definition.limits.get("over") != "refuse" or command.parent is not None
