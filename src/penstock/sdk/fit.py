"""Whether what a workflow function wants is what its history has, and how either is said (SPEC 2.8)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from msgspec import Raw

from penstock.model import intents as i
from penstock.model.failure import Failure
from penstock.ports.arguments import SECONDS_MAX

_FREE = ("retry", "timeouts", "queue", "priority", "undo_retry", "due", "version")
"""What may change while runs are open."""
_OURS = (("arguments-invalid", "Rejected"), ("output-invalid", ""))
"""Failures, by code and type, that we tell of what a function was given or gave."""


def same(now: i.Intent, then: i.Intent) -> bool:
    """Whether the run goes on alike. How patiently a step is tried, and for how long it is waited for, may change: what is
    recorded stays in force."""
    if i.ENCODER.encode(now) == i.ENCODER.encode(then):
        return True
    match now, then:
        case i.Call(), i.Call():
            alike = (now.key, now.activity, now.undo) == (then.key, then.activity, then.undo)
            return alike and _equal(now.arguments, then.arguments)
        case i.Sleep(), i.Sleep():
            return now.key == then.key
        case i.Await(), i.Await():
            return (now.key, now.name, now.update) == (then.key, then.name, then.update)
        case i.Drop(), i.Drop():
            return now.key == then.key
        case i.Child(), i.Child():
            return _which(now) == _which(then) and _equal(now.input, then.input)
        case i.Continue(), i.Continue():
            return _equal(now.input, then.input)
        case i.Finish(), i.Finish():
            return _equal(now.output, then.output)
        case i.Break(), i.Break():
            return _failed_alike(now.failure, then.failure)
        case _:
            return False


def _which(child: i.Child) -> tuple[str, str, str, bool, bool]:
    """What makes it another child; one that is not waited for is always kept."""
    return child.key, child.definition, child.id, child.detached, child.detached or child.kept


def _failed_alike(now: Failure, then: Failure) -> bool:
    if then.code == "deadlock" or then.message == "" or then.message.startswith("("):
        # As older histories tell it: an exception that could not be copied was lost, and texts were those of its arguments.
        return then.code in (now.code, "deadlock") and then.type in (now.type, "")
    if (now.code, now.type) == (then.code, then.type) and (now.code, now.type) in _OURS:
        return True  # its text quotes the signature, which may get a parameter with a default
    return now.code == then.code and _addressless(now.message) == _addressless(then.message)


def _addressless(message: str) -> str:
    """Where a value lay in memory, in a message of it, says nothing."""
    return re.sub(r"0x[0-9a-fA-F]+", "0x", message)


def _equal(now: Raw, then: Raw) -> bool:
    """As JSON values: the order of an object's members says nothing."""
    return _alike(msgspec.json.decode(now), msgspec.json.decode(then))


def _alike(now: Any, then: Any) -> bool:
    """Equal, and true is not 1."""
    if isinstance(now, dict) and isinstance(then, dict):
        one, other = cast("dict[str, Any]", now), cast("dict[str, Any]", then)
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(now, list) and isinstance(then, list):
        mine, theirs = cast("list[Any]", now), cast("list[Any]", then)
        return len(mine) == len(theirs) and all(map(_alike, mine, theirs))
    return isinstance(now, bool) == isinstance(then, bool) and now == then


def shown_both(then: i.Intent | None, now: i.Intent | None) -> tuple[str, str]:
    """Two that differ, so that it is seen in what."""
    recorded, wanted = shown_intent(then), shown_intent(now)
    if recorded != wanted or then is None or type(then) is not type(now):
        return recorded, wanted
    names = [
        name for name in then.__struct_fields__
        if name not in ("key", *_FREE) and getattr(then, name) != getattr(now, name)
    ]  # fmt: skip
    if not names:
        return (
            f"{recorded} as `{getattr(then, 'key', '')}`",
            f"{wanted} as `{getattr(now, 'key', '')}`",
        )
    parts = [_shown_parts(getattr(then, name), getattr(now, name)) for name in names]
    pairs = list(zip(names, parts, strict=True))
    return (
        f"{recorded} with {', '.join(f'{name}={part[0]}' for name, part in pairs)}",
        f"{wanted} with {', '.join(f'{name}={part[1]}' for name, part in pairs)}",
    )


def _shown_parts(then: Any, now: Any) -> tuple[str, str]:
    """Of what is long, from where it differs."""
    one, other = (
        bytes(each).decode("utf-8", "replace") if isinstance(each, Raw) else repr(each)
        for each in (then, now)
    )
    pairs = enumerate(zip(one, other, strict=False))
    start = max(0, next((at for at, (a, b) in pairs if a != b), min(len(one), len(other))) - 20)
    return tuple(
        f"{'…' if start else ''}{text[start : start + 80]}{'…' if len(text) > start + 80 else ''}"
        for text in (one, other)
    )  # pyright: ignore[reportReturnType]


def shown_intent(intent: i.Intent | None) -> str:
    """An intent as a line of the code would say it."""

    def text(raw: Raw) -> str:
        found = bytes(raw).decode("utf-8", "replace")
        return found if len(found) <= 200 else f"{found[:199]}…"

    match intent:
        case None:
            return "nothing"
        case i.Call():
            return f"call {intent.activity}{text(intent.arguments)}"
        case i.Sleep():
            if intent.due > SECONDS_MAX:
                return "sleep until the far future"
            return f"sleep until {datetime.fromtimestamp(intent.due, UTC).isoformat()}"
        case i.Await():
            return f"{'update' if intent.update else 'signal'} {intent.name}"
        case i.Child():
            return f"child {intent.definition}{text(intent.input)}"
        case i.Drop():
            return f"giving up {intent.key}"
        case i.Note():
            return f"{intent.key} = {text(intent.value)}"
        case i.Finish():
            return f"return {text(intent.output)}"
        case i.Break():
            return f"raise {intent.failure.type or intent.failure.code}: {intent.failure.message}"
        case _:
            return f"{type(intent).__name__.lower()} {getattr(intent, 'key', '')}".strip()
