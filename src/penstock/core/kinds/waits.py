"""Tasks that wait for time, for a message, or for a person: timer, signal, event, form."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core import functions
from penstock.core.actions import shown
from penstock.core.values import Fault
from penstock.errors import Rejected
from penstock.model.failure import Failure
from penstock.model.run import WAITING, FormState
from penstock.policy.durations import Unreadable, seconds
from penstock.policy.topics import is_pattern

if TYPE_CHECKING:
    from penstock.core.flow import Flow
    from penstock.core.plan import Node, Value
    from penstock.model.run import Letter, Scope, TaskState


def begin_timer(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    if "until" in node.values:
        state.due, state.absolute = _moment(flow, path, node, node.values["until"]), True
    else:
        state.due = flow.counted(flow.at + _duration(flow, path, node, node.values["delay"]))
    flow.enter(scope, state, WAITING)
    flow.due(state.due, flow.key(path, node.id))


def begin_signal(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    name, key = node.config["name"], flow.key(path, node.id)
    letter: Letter | None = flow.take_letter(name, key)
    if letter is not None:
        take(flow, path, scope, node, state, letter)
        return
    if "timeout" in node.values:
        state.due = flow.counted(flow.at + _duration(flow, path, node, node.values["timeout"]))
        flow.due(state.due, key)
    flow.enter(scope, state, WAITING)
    flow.run.waiters.setdefault(name, []).append(key)


def take(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState, letter: Letter) -> None:
    """The signal is this task's; its payload is the output."""
    if node.shape is not None:
        functions.take(flow, scope, node, state, letter)
        return
    flow.keep(state, letter.ref, letter.payload)
    flow.complete(path, scope, node, state)
    if letter.update:
        flow.answer(path, node, letter.id)


def begin_event(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """From now on; what the bus carried before is not kept for it."""
    value = node.values["topic"]
    if value.constant:
        topic = str(value({}))  # looked at when it was registered
    else:
        topic = flow.ask(lambda seen: _pattern(value(seen)), path, f"topic of `{node.id}`")
    key = flow.key(path, node.id)
    if "timeout" in node.values:
        state.due = flow.counted(flow.at + _duration(flow, path, node, node.values["timeout"]))
        flow.due(state.due, key)
    flow.enter(scope, state, WAITING)
    flow.run.listening[key] = topic


def _pattern(topic: Any) -> str:
    """Asked once, as it begins: to what is no pattern no event is ever sent, and it would wait for ever."""
    if not isinstance(topic, str) or not is_pattern(topic):
        raise Rejected("topic-invalid", f"`{shown(topic)}` is no topic, and no pattern of topics")
    return topic


def begin_form(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    form = state.form = FormState()
    if "assignee" in node.values:
        assignee = _value(flow, path, node, node.values["assignee"], "assignee")
        form.assignee = None if assignee is None else str(assignee)
    if "due" in node.values:
        form.due = state.due = flow.counted(
            flow.at + _duration(flow, path, node, node.values["due"])
        )
        flow.due(state.due, flow.key(path, node.id))
    flow.enter(scope, state, WAITING)


def _value(flow: Flow, path: str, node: Node, value: Value, what: str) -> Any:
    if value.constant:
        return value({})
    return flow.ask(value, path, f"{what} of `{node.id}`")


def _duration(flow: Flow, path: str, node: Node, value: Value) -> float:
    given = _value(flow, path, node, value, "duration")
    try:
        return seconds(given)
    except Unreadable as error:
        raise Fault(
            Failure(code="expression-failed", message=f"duration of `{node.id}`: {error}")
        ) from error


def _moment(flow: Flow, path: str, node: Node, value: Value) -> float:
    given = _value(flow, path, node, value, "time")
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError as error:
        raise Fault(
            Failure(code="expression-failed", message=f"time of `{node.id}`: {error}")
        ) from error
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
