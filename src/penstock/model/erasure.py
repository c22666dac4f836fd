"""What is left of an event once its payloads are erased (SPEC 6.3).

That it happened, when, to which task and by whom stays; what was in it goes: inputs, outputs, payloads, progress, logs,
messages of failures, metadata, attributes, and what expressions gave, of which only the shape is kept, as a history
could not be folded without it.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from penstock.model.events import ENCODER, Event
from penstock.model.failure import Failure
from penstock.model.intents import DECODER, Break, Intent, Reply, Tag
from penstock.model.run import INLINE_BYTES_MAX, Undo

GONE = "<erased>"
_GONE = Raw(msgspec.json.encode(GONE))
_GONE_FAR = Raw(msgspec.json.encode(f"{GONE} "))
"""In the place of what a state refers to: see `far`."""
_FAR = Raw(b" " * INLINE_BYTES_MAX + bytes(_GONE))
_EMPTY: dict[str, Any] = {
    "logs": (),
    "metadata": {},
    "attributes": {},
    "values": {},
    "reason": "",
    "beside": {},
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)\Z")


def far(event: Event) -> Event:
    """An erased event as it is read: what was too long to be kept in a state is so again, so that whoever folds it refers to
    it as the first time, and finds what was asked for then in its place."""
    changes = {
        name: _FAR
        for name in event.__struct_fields__
        if isinstance(raw := getattr(event, name), Raw) and bytes(raw) == bytes(_GONE_FAR)
    }
    return replace(event, **changes) if changes else event


def scrubbed(event: Event, *, function: bool) -> bytes:
    """The event, of a workflow function's run or of a definition's, without its payloads, as JSON."""
    outcome = _wants if function else _outcome
    fields = event.__struct_fields__
    changes: dict[str, Any] = {name: value for name, value in _EMPTY.items() if name in fields}
    for name in fields:
        raw: Any = getattr(event, name)
        if isinstance(raw, Raw):
            changes[name] = _GONE if len(memoryview(raw)) <= INLINE_BYTES_MAX else _GONE_FAR
    changes["outcomes"] = [Raw(msgspec.json.encode(outcome(raw))) for raw in event.outcomes]
    changes["faults"] = {place: _failure(fault) for place, fault in event.faults.items()}
    undo: Any = getattr(event, "undo", None)
    if isinstance(undo, list):  # what is undone later names them
        changes["undo"] = [replace(each, arguments=_GONE) for each in cast("list[Undo]", undo)]
    if getattr(event, "refused", ""):
        changes["refused"] = GONE  # that it was stays
    failure = getattr(event, "failure", None)
    if failure is not None:
        changes["failure"] = _failure(failure)
    return ENCODER.encode(replace(event, erased=True, **changes))


def _failure(failure: Failure) -> Failure:
    cause = None if failure.cause is None else _failure(failure.cause)
    return Failure(code=failure.code, message=GONE, type=failure.type, key=failure.key, cause=cause)


def _wants(raw: Raw) -> Any:
    """Which steps the function wanted stays; with what goes. Not all is that: what undoes a step was asked for, too."""
    try:
        return [_intent(each) for each in DECODER.decode(raw)]
    except msgspec.ValidationError:
        return _outcome(raw)


def _intent(intent: Intent) -> Intent:
    fields = intent.__struct_fields__
    changes: dict[str, Any] = {
        name: _GONE for name in fields if isinstance(getattr(intent, name), Raw)
    }
    match intent:
        case Break():
            changes["failure"] = _failure(intent.failure)
        case Tag():
            changes["values"] = {}
        case Reply() if intent.refused:
            changes["refused"] = GONE
        case _:
            pass
    return replace(intent, **changes)


def _outcome(raw: Raw) -> Any:
    """Decisions, numbers and times by themselves stay: which way the run went, and when."""
    value = msgspec.json.decode(raw)
    if isinstance(value, str) and _TIME.match(value):
        return value
    return value if value is None or isinstance(value, bool | int | float) else _shape(value)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_shape(each) for each in cast("list[Any]", value)]
    if isinstance(value, str):
        return GONE
    return value if value is None or isinstance(value, bool) else 0
