"""Durations as people write them, into seconds: `500ms`, `30s`, `1h30m`, `2d`, `PT5M`, `P1DT2H`.

Months and years are refused: they have no fixed length.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.errors import shown

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
SHORT = rf"(?:{_NUMBER}(?:ms|[smhdw]))+"
ISO = rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
PATTERN = rf"^(?:{SHORT}|{ISO})$"

_WHOLE = re.compile(rf"(?:{SHORT}|{ISO})\Z")
_PART = re.compile(rf"({_NUMBER})(ms|[A-Za-z])")
_MILLISECONDS = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}


class Unreadable(ValueError):
    """Not a duration."""


def parse(text: str) -> int | float | None:
    """How long that is in seconds, or None if it is no duration."""
    if not _WHOLE.match(text):
        return None
    parts = _PART.findall(text)
    if not parts:
        return None
    total = sum(float(count) * _MILLISECONDS[unit.lower()] for count, unit in parts) / 1_000
    return int(total) if total.is_integer() else total


def seconds(given: Any) -> float:
    """A number of seconds, or a text; Unreadable otherwise. Never negative."""
    if isinstance(given, str):
        found = parse(given)
        if found is None:
            raise Unreadable(f"`{given:.60}` is not a duration; write 30s, 5m or PT5M")
        return float(found)
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise Unreadable(f"{shown(given)} is not a duration in seconds")
    try:
        return float(given)
    except OverflowError:
        raise Unreadable(f"{shown(given)} is too long for a duration") from None
