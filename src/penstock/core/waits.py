"""Rules for waits: what is due, signals, forms, children (SPEC 2.2, 4.4)."""

from __future__ import annotations

from difflib import get_close_matches

from msgspec import Raw

from penstock.core.attempts import fail_task
from penstock.core.flow import Flow
from penstock.core.identity import event_digest, event_name, repeated, signal_digest
from penstock.core.keys import BEGIN, DEADLINE, GRACE, RUN
from penstock.core.plan import Plan
from penstock.core.values import Variables, decode
from penstock.errors import PenstockError, Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.failure import Failure
from penstock.model.run import WAITING, Run, TaskState
from penstock.policy.topics import topic_matches

GRACE_SECONDS = 30.0
"""How long activities that were told to stop may take (SPEC 4.4)."""


def wake(flow: Flow, at: float) -> list[e.Event]:
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
        state.due != when or node.type not in ("timer", "signal", "event", "form")
    ):
        failure = Failure(
            code="timeout",
            message=f"`{key}` took longer than its task timeout of {node.timeouts.task:g} s",
        )
        return [e.TaskFailed(at=at, key=key, attempt=state.attempt, failure=failure)]
    if state.deferred:
        failure = Failure(code="timeout", message=f"`{key}` was not completed from outside in time")
        return fail_task(flow, c.FailTask(at=at, key=key, attempt=state.attempt, failure=failure))
    if node.type == "timer":
        return [e.TimerFired(at=at, key=key)]
    if node.type == "form":
        return [e.FormEscalated(at=at, key=key)]
    if node.type == "event":
        topic = run.listening[key]
        failure = Failure(
            code="timeout", message=f"`{key}` waited in vain for an event on `{topic}`"
        )
        return [e.TaskFailed(at=at, key=key, attempt=state.attempt, failure=failure)]
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
        raise Rejected(
            "task-not-waiting",
            f"no task `{key:.80}` waits in run {flow.run.id}",
            hint="`why` lists what the run waits for, by key",
        )
    return state


def heard(run: Run, command: c.SendSignal) -> bool:
    """The message came before."""
    if not command.id:
        return False
    digest = signal_digest(command.name, command.payload, len(command.payload))
    return repeated(run, command.id, command.at, digest)


def receive_signal(flow: Flow, command: c.SendSignal) -> list[e.Event]:
    run, name = flow.run, command.name
    declared = flow.plan.signals.get(name)
    if not flow.plan.takes(name):
        raise undeclared(flow.plan, run.definition, name)
    if heard(run, command):
        return []
    if flow.plan.fits is not None:
        flow.plan.fits(name, command.payload)
    if run.stopping is not None:
        raise Rejected("run-stopping", f"run {run.id} is being stopped and takes no more signals")
    waiting = run.waiters.get(name)
    node = flow.locate(waiting[0])[2] if waiting else declared[0] if declared else None
    if node is not None and node.schema is not None:
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


def undeclared(plan: Plan, definition: str, name: str) -> Rejected:
    known = sorted(plan.declared or () if plan.function else plan.signals)
    near = get_close_matches(name, known, 1)
    how = (
        "name it in `@workflow(signals=…)`"
        if plan.function
        else "declare it by a task of type signal"
    )
    return Rejected(
        "signal-undeclared",
        f"`{definition}` declares no signal `{name:.80}`; it declares: {', '.join(known) or 'none'}",
        hint=f"did you mean `{near[0]}`?" if near else how,
    )


def receive_event(flow: Flow, command: c.OfferEvent) -> list[e.Event]:
    """The bus event, if tasks wait to which it belongs: all of them, as each would hear it on the bus."""
    run = flow.run
    if run.stopping is not None or not run.listening:
        return []
    digest = event_digest(command.topic)
    if repeated(run, event_name(command.id), command.at, digest):
        return []
    flow.at = command.at
    variables = {"event": event_value(command)}
    found: list[str] = []
    unfit: PenstockError | None = None
    for key, topic in run.listening.items():
        if not topic_matches(topic, command.topic):
            continue
        path, _, node, _ = flow.locate(key)
        if node.config.get("type", command.kind) != command.kind:
            continue
        try:
            if node.formulas["where"](Variables(flow, path, variables)):
                found.append(key)
        except PenstockError as error:
            unfit = unfit or Rejected(
                "event-unfit",
                f"event {command.id} on `{command.topic}`: `where` of `{key}`: {error.message}",
                hint="ask with has(…) before you read what an event may not have",
            )
    if not found:
        if unfit is not None:
            raise unfit
        return []
    return [
        e.EventReceived(
            at=command.at, id=command.id, topic=command.topic, keys=found, kind=command.kind,
            source=command.source, payload=Raw(command.data),
        )
    ]  # fmt: skip


def event_value(command: c.OfferEvent) -> dict[str, object]:
    """A bus event as `where` sees it."""
    return {
        "id": command.id, "topic": command.topic, "type": command.kind, "source": command.source,
        "run": command.run, "data": decode(command.data),
    }  # fmt: skip


def change_form(
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


def record_child(flow: Flow, command: c.RecordChild) -> list[e.Event]:
    state = _waiting(flow, command.key)
    if state.child != command.run:
        raise Rejected("task-not-waiting", f"`{command.key}` waits for run {state.child}")
    if state.started_at is not None:
        return []
    return [
        e.ChildStarted(at=command.at, key=command.key, run=command.run, version=command.version)
    ]


def close_child(flow: Flow, command: c.CloseChild) -> list[e.Event]:
    return [
        e.ChildClosed(
            at=command.at, key=_parting(flow, command), status=command.status, output=Raw(command.output),
            failure=command.failure, undo=list(command.undo),
        )
    ]  # fmt: skip


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
