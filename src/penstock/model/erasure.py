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

GONE = "<erased>"
_GONE = Raw(msgspec.json.encode(GONE))
_EMPTY: dict[str, Any] = {
    "logs": (),
    "metadata": {},
    "attributes": {},
    "values": {},
    "undo": [],
    "reason": "",
    "beside": {},
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)\Z")


def scrubbed(event: Event, *, function: bool) -> bytes:
    """The event, of a workflow function's run or of a definition's, without its payloads, as JSON."""
    outcome = _wants if function else _outcome
    fields = event.__struct_fields__
    changes: dict[str, Any] = {name: value for name, value in _EMPTY.items() if name in fields}
    changes |= {name: _GONE for name in fields if isinstance(getattr(event, name), Raw)}
    changes["outcomes"] = [Raw(msgspec.json.encode(outcome(raw))) for raw in event.outcomes]
    changes["faults"] = {place: _failure(fault) for place, fault in event.faults.items()}
    if getattr(event, "refused", ""):
        changes["refused"] = GONE  # that it was stays
    failure = getattr(event, "failure", None)
    if failure is not None:
        changes["failure"] = _failure(failure)
    return ENCODER.encode(replace(event, erased=True, **changes))


def _failure(failure: Failure) -> Failure:
    cause = None if failure.cause is None else _failure(failure.cause)
    return Failure(code=failure.code, message=GONE, type=failure.type, key=failure.key, cause=cause)


def _wants(raw: Raw) -> list[Intent]:
    """Which steps the function wanted stays; with what goes."""
    return [_intent(each) for each in DECODER.decode(raw)]


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
