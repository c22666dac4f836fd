"""What a schedule starts, as people write it: in Python, on the command line, in a definition's `triggers` (SPEC 2.1, 4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Raw, json

from penstock.errors import shown
from penstock.model.payload import encode_payload
from penstock.model.schedule import BUFFER_MAX, CATCH_UP_SECONDS, OVERLAPS, Plan
from penstock.policy import timings
from penstock.policy.cron import Misfit

PLAN_FIELDS = (
    "definition", "input", "version", "priority", "attributes", "metadata", "overlap", "buffer", "catch_up",
)  # fmt: skip
PRIORITIES = ("high", "normal", "low")
LATER = ("event", "webhook", "chat")
"""Triggers that are no schedules."""
_OWN = ("name", "paused")


def plan_of(words: Mapping[str, Any], now: float | None = None) -> Plan:
    """A plan in the words of `schedules.create`; Misfit at the word that is wrong."""
    given = dict(words)
    rest = {name: given.pop(name) for name in PLAN_FIELDS if name in given}
    timing = timings.timing_of(given, now)
    overlap = "skip" if rest.get("overlap") is None else rest["overlap"]
    if not isinstance(overlap, str) or overlap not in OVERLAPS:
        raise unknown_overlap(overlap)
    buffer = 1 if rest.get("buffer") is None else rest["buffer"]
    if type(buffer) is not int or not 1 <= buffer <= BUFFER_MAX:
        raise Misfit(
            ("buffer",), "schedule-invalid", f"`buffer` is {shown(buffer)}", f"a whole number from 1 to {BUFFER_MAX}"
        )  # fmt: skip
    catch_up = rest.get("catch_up")
    priority = rest.get("priority")
    if priority is not None and not (isinstance(priority, str) and priority in PRIORITIES):
        raise Misfit(
            ("priority",), "priority-unknown", f"{shown(priority)} is no priority", "take high, normal or low"
        )  # fmt: skip
    version = rest.get("version")
    if version is not None and not isinstance(version, str):
        raise Misfit(
            ("version",), "schedule-invalid", f"`version` is {shown(version)}", "give a text such as 1.0.0"
        )  # fmt: skip
    return Plan(
        definition=rest["definition"], timing=timing, input=Raw(encode_payload(rest.get("input"))),
        version=version, priority=priority, attributes=_kept(rest, "attributes"),
        metadata=_kept(rest, "metadata"), overlap=overlap, buffer=buffer,
        catch_up=CATCH_UP_SECONDS if catch_up is None else timings.seconds({"catch_up": catch_up}, "catch_up"),
    )  # fmt: skip


def words_of(trigger: Mapping[str, Any], definition: str) -> dict[str, Any]:
    """A definition's trigger in the words of `plan_of`."""
    words = {name: value for name, value in trigger.items() if name not in _OWN}
    if "catchUp" in words:
        words["catch_up"] = words.pop("catchUp")
    return {**words, "definition": definition}


def schedule_id(definition: str, place: int, trigger: Mapping[str, Any]) -> str:
    """Of the schedule that a trigger declares; by its name, or by its place from 1."""
    return f"{definition}.{trigger.get('name') or place + 1}"


def unknown_overlap(overlap: Any) -> Misfit:
    return Misfit(
        ("overlap",), "overlap-unknown", f"{shown(overlap)} is no overlap policy", f"take {', '.join(OVERLAPS)}"
    )  # fmt: skip


def _kept(given: Mapping[str, Any], field: str) -> dict[str, Any]:
    values = given.get(field)
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise Misfit(
            (field,), "schedule-invalid", f"`{field}` is {shown(values)}", "give an object of names and values"
        )  # fmt: skip
    return json.decode(encode_payload(dict(cast("Mapping[str, Any]", values))))
