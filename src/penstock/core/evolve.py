"""(run, event) -> run: the fold. Total: it never refuses, and gives the same for ever.

With `replaying` false the event is new: expressions are evaluated and their outcomes written into it. With
`replaying` true it comes from the store, and the outcomes are read back.
"""

from __future__ import annotations

from typing import assert_never

from msgspec import Raw
from msgspec.structs import replace

from penstock.core import functions, hands
from penstock.core.flow import Flow
from penstock.core.generations import old_key, reset, resume, rewind
from penstock.core.identity import event_digest, event_name, remember, signal_digest
from penstock.core.keys import BEGIN, DEADLINE, RUN, static
from penstock.core.kinds.maps import add_item, go_on
from penstock.core.kinds.waits import take
from penstock.core.moving import move
from penstock.core.values import encode
from penstock.model import events as e
from penstock.model.effects import Admit, Answer, CancelChild, Execute
from penstock.model.failure import Failure
from penstock.model.run import (
    CANCELLED,
    COMPENSATED,
    COMPENSATING,
    COMPLETED,
    CONTINUED,
    CREATED,
    FAILED,
    INLINE_BYTES_MAX,
    REF_SHIFT,
    RETRYING,
    RUNNING,
    SCHEDULED,
    TERMINATED,
    TIMED_OUT,
    UNDO_FAILED,
    WAITING,
    Letter,
    Run,
    SignalOut,
    Write,
)

NOT_MOVING = (COMPENSATING, CREATED)


def evolve(flow: Flow, event: e.Event, *, replaying: bool = True) -> None:
    """Fold one event into the flow's run, in place."""
    run = flow.run
    flow.begin_event(event, run.revision + 1, replaying=replaying)
    if run.pending and type(event) is not e.UpdateAnswered:  # an answer comes before what is owed
        run.pending.pop(0)  # what was owed is this event
    _apply(flow, run, event)
    if not flow.plan.function:
        flow.drain()
    else:
        if flow.checks or flow.todo or run.dues or run.stopping is not None:
            flow.drain()
        if run.heard:
            functions.advance(flow)
    run.revision += 1
    run.updated_at = event.at
    if run.ended_at is None and run.status not in NOT_MOVING:
        run.status = RUNNING if run.active or run.outgoing or run.ending else WAITING


def _apply(flow: Flow, run: Run, event: e.Event) -> None:
    match event:
        case e.TaskCompleted():
            if run.ending and event.key in run.ending:
                flow.ended(event.key, bytes(event.output))
                return
            if flow.plan.function and functions.done(flow, event):
                return
            path, scope, node, state = flow.locate(event.key)
            if event.began is not None:
                state.started_at = event.began
            flow.keep(state, flow.seq << REF_SHIFT, bytes(event.output))
            flow.shut(path, scope, state)
            flow.complete(path, scope, node, state)
        case e.RunStarted():
            _start(flow, run, event)
        case e.RunCompleted():
            run.result = bytes(event.output) if event.ref is None else None
            run.result_ref = event.ref
            _close(run, COMPLETED, event.at)
        case e.TaskRetried():
            _, _, _, state = flow.locate(event.key)
            state.status, state.failure, state.due = (
                RETRYING,
                event.failure,
                flow.counted(event.due),
            )
            state.attempt, state.charged = event.attempt + 1, state.charged + 1
            state.lost, state.poison, state.started = 0, 0, False
            state.deferred = False
            if event.progress != e.NULL:
                state.progress = bytes(event.progress)
            flow.effects.append(Execute(event.key, state.attempt, state.due))
        case e.TaskFailed():
            if run.ending and event.key in run.ending:
                flow.ended(event.key, None)
                return
            path, scope, node, state = flow.locate(event.key)
            if event.cancelled:
                flow.cancel_task(path, scope, node.id, state, links=False, tell=False)
                functions.given_up(flow, scope, node.id, state)
            else:
                flow.release(path, scope, node, state, tell=event.failure.code == "timeout")
                flow.fail(path, scope, node, state, event.failure)
        case e.TaskLost():
            _, _, _, state = flow.locate(event.key)
            state.attempt = event.attempt + 1
            state.lost = state.lost if event.cut else state.lost + 1
            state.poison = state.poison + 1 if event.counted else state.poison
            state.status, state.started, state.due = SCHEDULED, False, None
            state.deferred = False
            if event.progress != e.NULL:
                state.progress = bytes(event.progress)
            flow.effects.append(Execute(event.key, state.attempt))
        case e.TaskStarted():
            _, _, _, state = flow.locate(event.key)
            state.status, state.started, state.started_at = RUNNING, True, event.began or event.at
            state.due = None
        case e.TaskProgressed():
            flow.locate(event.key)[3].progress = bytes(event.progress)
        case e.SignalReceived():
            _signal(flow, run, event)
        case e.EventReceived():
            _event(flow, run, event)
        case e.TimerFired():
            path, scope, node, state = flow.locate(event.key)
            flow.shut(path, scope, state)
            flow.keep(state, 0, b"null")
            flow.complete(path, scope, node, state)
        case e.ChildStarted():
            path, scope, node, state = flow.locate(event.key)
            state.started_at = event.at
            if node.config.get("detached"):
                flow.ask(
                    lambda _: {"run": event.run, "version": event.version},
                    path,
                    f"child of `{node.id}`",
                )
                flow.keep(state, *flow.asked())
                flow.shut(path, scope, state)
                flow.complete(path, scope, node, state)
        case e.ChildClosed():
            _child(flow, event)
        case e.FormClaimed():
            form = flow.locate(event.key)[3].form
            assert form is not None
            form.claimed_by = event.by
        case e.FormReleased():
            form = flow.locate(event.key)[3].form
            assert form is not None
            form.claimed_by = None
        case e.FormDelegated():
            form = flow.locate(event.key)[3].form
            assert form is not None
            form.assignee, form.claimed_by = event.to, None
        case e.FormEscalated():
            state = flow.locate(event.key)[3]
            assert state.form is not None
            state.form.escalated, state.due = True, None
        case e.FormSubmitted():
            path, scope, node, state = flow.locate(event.key)
            flow.keep(state, flow.seq << REF_SHIFT, bytes(event.output))
            flow.shut(path, scope, state)
            flow.complete(path, scope, node, state)
        case (
            e.Published()
            | e.DataConflicted()
            | e.SnapshotTaken()
            | e.UpdateAnswered()
            | e.Advanced()
        ):
            pass
        case e.CommandAccepted():
            remember(run, event.id, event.at, event.digest)
        case e.SignalSent():
            flow.deliver(event.id, SignalOut(event.key, event.run, event.name, event.payload))
        case e.SignalDelivered():
            run.outgoing.pop(event.id, None)
            flow.go_on()
        case e.RunBegun():
            run.begin = None
            _open(flow, run, event.at)
        case e.RunAdmitted():
            run.held, run.due = False, event.due
            if run.due is not None:
                flow.due(run.due, RUN)
            _open(flow, run, event.at)
        case e.DeadlineForeseen():
            run.escalated = True
        case e.DeadlineMissed():
            run.late = True
        case e.RunPaused():
            run.paused, run.paused_at = True, event.at
        case e.RunResumed():
            resume(flow, run, event.at)
        case e.CancelRequested():
            run.cancel_requested = True
            failure = Failure(code="cancelled", message=event.reason or "cancelled")
            if flow.plan.function:
                if run.paused:
                    resume(flow, run, event.at)
                functions.ask_to_stop(flow, CANCELLED, failure)
            else:
                flow.stop(CANCELLED, failure, gently=True, grace=event.due)
        case e.TimeoutReached():
            run.due = None
            failure = Failure(code="timeout", message="the run's own timeout is over")
            if flow.plan.function:
                functions.ask_to_stop(flow, TIMED_OUT, failure)
            else:
                flow.stop(TIMED_OUT, failure, gently=True, grace=event.due)
        case e.GraceEnded():
            flow.give_up()
        case e.UndoCompleted():
            run.undoing.pop(event.key)
            flow.mark_undone(event.key, COMPENSATED)
            _undo_on(flow, run, event.at)
        case e.UndoRetried():
            undoing = run.undoing[event.key]
            undoing.attempt, undoing.failure, undoing.due = (
                event.attempt + 1,
                event.failure,
                event.due,
            )
            undoing.suspect, undoing.poison, undoing.started = 0, 0, False
            flow.effects.append(Execute(event.key, undoing.attempt, event.due, undo=True))
        case e.UndoStarted():
            run.undoing[event.key].started = True
        case e.UndoLost():
            undoing = run.undoing[event.key]
            undoing.attempt, undoing.due, undoing.started = event.attempt + 1, None, False
            if event.cut:
                undoing.cut += 1
            else:
                undoing.lost += 1
                undoing.suspect += 1
                undoing.poison += event.counted
            flow.effects.append(Execute(event.key, undoing.attempt, undo=True))
        case e.UndoFailed():
            undoing = run.undoing.pop(event.key)
            undoing.failure = event.failure
            run.undo_failed.append(undoing)
            flow.mark_undone(event.key, UNDO_FAILED)
            _undo_on(flow, run, event.at)
        case e.RunFailed():
            run.failure = event.failure
            _close(run, FAILED, event.at)
        case e.RunCancelled():
            _close(run, CANCELLED, event.at)
        case e.RunTimedOut():
            _close(run, TIMED_OUT, event.at)
        case e.RunTerminated():
            run.stopping = TERMINATED
            for path in list(run.scopes):
                flow.cancel_scope(path)
            run.failure = Failure(code="terminated", message=event.reason or "terminated")
            leaving = dict(run.leaving)
            _close(run, TERMINATED, event.at)
            run.leaving = leaving  # nobody waits for them, but they are still to be told
        case e.TaskDeferred():
            hands.defer(flow, event)
        case e.TaskSkipped():
            hands.skip_task(flow, event)
        case e.RetryFired():
            hands.fire_retry(flow, run, event)
        case e.UndoResolved():
            if hands.resolved(flow, run, event):
                _undo_on(flow, run, event.at)
        case e.AttributesChanged():
            hands.attributes_after(run, event)
        case e.RunContinued():
            run.stopping = CONTINUED
            _close(
                run, CONTINUED, event.at
            )  # what it had open is the next generation's to keep or to stop
        case e.RunReset():
            reset(flow, run, event)
        case e.RunMigrated():
            move(flow, event)
        case _:
            assert_never(event)


def _undo_on(flow: Flow, run: Run, at: float) -> None:
    """One undo is over: the next."""
    if run.compensating:
        flow.undo_next()
    else:
        rewind(flow, run, at)


def _start(flow: Flow, run: Run, event: e.RunStarted) -> None:
    if event.version != flow.plan.version and flow.plan.version:
        flow.plan = flow.plan.of(event.version)  # it was migrated later on
    run.id, run.generation, run.rules = event.id, event.generation, event.rules
    run.definition, run.version = event.definition, event.version
    run.priority, run.deadline, run.due, run.begin = (
        event.priority,
        event.deadline,
        event.due,
        event.begin,
    )
    run.created_at, run.created_by = event.at, event.created_by
    run.parent, run.parent_key, run.depth = event.parent, event.parent_key, event.depth
    run.parent_generation = event.parent_generation
    run.metadata, run.attributes = event.metadata, event.attributes
    raw = bytes(event.input)
    if len(raw) <= INLINE_BYTES_MAX:
        run.input = raw
    else:
        flow.hold_live(flow.seq << REF_SHIFT, raw)
    for name, datum in flow.plan.definition.data.items():
        run.data[name] = Write(Raw(encode(datum.value)))
    run.held = event.held
    run.undo = list(event.undo)
    run.commands.update(event.known)
    for key, child in event.later.items():
        left = old_key(event.generation - 1, key)
        run.leaving[left] = child
        flow.effects.append(CancelChild(left, child))
    if run.due is not None:
        flow.due(run.due, RUN)
    if run.deadline is not None:
        flow.due(run.deadline, DEADLINE)
    if run.begin is not None:
        flow.due(run.begin, BEGIN)
    elif run.held:
        flow.effects.append(Admit())
    else:
        _open(flow, run, event.at)


def _open(flow: Flow, run: Run, at: float) -> None:
    """The run begins, if nothing holds it."""
    if run.held:
        flow.effects.append(Admit())
        return
    run.status, run.started_at = RUNNING, at
    if flow.plan.function:
        functions.open_function(flow)
    else:
        flow.open_scope("", "", None, "", 0)


def _close(run: Run, status: str, at: float) -> None:
    """Terminal: what was open is gone; the history has it all."""
    run.status, run.ended_at = status, at
    run.paused, run.paused_at = False, None
    run.scopes.clear()
    run.dues.clear()
    run.waiters.clear()
    run.listening.clear()
    run.signals.clear()
    run.mutexes.clear()
    run.pending.clear()
    run.undoing.clear()
    run.outgoing.clear()
    run.leaving.clear()
    run.ending.clear()
    run.active, run.grace, run.due, run.begin, run.held = 0, None, None, None, False
    run.rewinding = False
    run.heard.clear()
    run.finished = True


def _signal(flow: Flow, run: Run, event: e.SignalReceived) -> None:
    if event.id:
        size = event.beside["payload"][1] if event.beside else len(bytes(event.payload))
        digest = signal_digest(event.name, bytes(event.payload), size)
        remember(run, event.id, event.at, digest)
    raw = bytes(event.payload)
    letter = Letter(
        ref=flow.seq << REF_SHIFT,
        payload=raw if len(raw) <= INLINE_BYTES_MAX else None,
        id=event.id,
        update=event.update,
    )
    if letter.payload is None:
        flow.hold_live(flow.seq << REF_SHIFT, raw)
    waiting = run.waiters.get(event.name)
    if waiting and run.stopping is None:
        path, scope, node, state = flow.locate(waiting[0])
        if node.type == "map":
            add_item(flow, path, scope, node, state, letter)
            go_on(flow, path, scope, node, state)
            return
        flow.forget_waiter(event.name, waiting[0])
        flow.shut(path, scope, state)
        take(flow, path, scope, node, state, letter)
    elif event.name not in flow.plan.transient:
        run.signals.setdefault(event.name, []).append(letter)
    elif event.update:
        flow.answered(
            Answer(
                event.id, b"null", refused=f"nobody waits for `{event.name}`, and it is not kept"
            )
        )


def _event(flow: Flow, run: Run, event: e.EventReceived) -> None:
    remember(run, event_name(event.id), event.at, event_digest(event.topic))
    for key in event.keys:
        if key not in run.listening:
            continue  # another that was armed with it has won
        path, scope, node, state = flow.locate(key)
        del run.listening[key]
        flow.shut(path, scope, state)
        flow.keep(state, flow.seq << REF_SHIFT, bytes(event.payload))
        flow.complete(path, scope, node, state)


def _child(flow: Flow, event: e.ChildClosed) -> None:
    if event.key in flow.run.leaving:
        _child_left(flow, event)
        return
    path, scope, node, state = flow.locate(event.key)
    flow.shut(path, scope, state)
    if event.status == COMPLETED:
        if node.compensate is None:
            _inherit(flow, event)
        flow.keep(state, flow.seq << REF_SHIFT, bytes(event.output))
        flow.complete(path, scope, node, state)
        return
    failure = Failure(
        code="child-failed"
        if event.status == FAILED
        else f"child-{event.status.lower().replace('_', '-')}",
        message=f"run {state.child} ended {event.status}" + _because(event.failure),
        cause=event.failure,
    )
    flow.fail(path, scope, node, state, failure)


def _because(failure: Failure | None) -> str:
    """What the child failed with; if that was a child of its own, what that one failed with, and so on."""
    while failure is not None and failure.cause is not None and failure.code.startswith("child-"):
        failure = failure.cause
    return f": {failure.message}" if failure is not None and failure.message else ""


def _inherit(flow: Flow, event: e.ChildClosed) -> None:
    """What the child did can be undone here, under its task's key (SPEC 4.5)."""
    for entry in event.undo:
        flow.run.undo.append(replace(entry, key=f"{event.key}/{entry.key}", node=""))


def _child_left(flow: Flow, event: e.ChildClosed) -> None:
    """A child that was given up has ended; if it was done before it heard of that, it is undone with the rest."""
    del flow.run.leaving[event.key]
    if event.status == COMPLETED and not event.key.startswith("~"):  # of this generation
        # A step of a function is gone from the plan with its task; a child has nothing in the place of its own undo there.
        node = None if flow.plan.function else flow.plan.node(static(event.key))
        if node is None or node.compensate is None:
            _inherit(flow, event)
        else:
            flow.push_undo_of_left(event.key, node, bytes(event.output))
    flow.go_on()
