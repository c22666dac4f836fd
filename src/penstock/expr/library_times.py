"""Timestamps and durations: conversions, arithmetic, and what they show on a calendar or clock.

Zones are IANA names or offsets such as `+05:30`. What time it is now is a variable, never asked here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.expr.registry import function
from penstock.expr.values import (
    Fault,
    Frame,
    duration_nanos,
    duration_of,
    timestamp_nanos,
    timestamp_of,
)

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)
_DURATION = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_UNIT_NANOS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9,
    "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def timestamp_text(value: datetime) -> str:
    """RFC 3339 in UTC, with as many fraction digits as it needs."""
    nanos = timestamp_nanos(value)
    seconds, rest = divmod(nanos, 10**9)
    whole = timestamp_of(seconds * 10**9)
    text = (
        f"{whole.year:04}-{whole.month:02}-{whole.day:02}"
        f"T{whole.hour:02}:{whole.minute:02}:{whole.second:02}"
    )
    return text + (f".{rest:09}".rstrip("0") if rest else "") + "Z"


def duration_text(value: timedelta) -> str:
    """Seconds with as many fraction digits as it needs, as in `1.5s`."""
    nanos = duration_nanos(value)
    seconds, rest = divmod(abs(nanos), 10**9)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{'-' if nanos < 0 else ''}{seconds}{fraction}s"


@function("timestamp(string) -> timestamp")
def timestamp_of_string(frame: Frame, text: str) -> datetime:
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise Fault(f"timestamp(): not RFC 3339: {text[:40]!r}")
    year, month, day, hour, minute, second = (int(match[n]) for n in range(1, 7))
    try:
        plain = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise Fault(f"timestamp(): {error}: {text[:40]!r}") from None
    nanos = timestamp_nanos(plain) + int((match[7] or "0").ljust(9, "0"))
    zone = match[8]
    if zone not in ("Z", "z"):
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            raise Fault(f"timestamp(): no such zone offset: {zone}")
        offset = (hours * 60 + minutes) * 60 * 10**9
        nanos += offset if zone[0] == "-" else -offset
    return timestamp_of(nanos)


@function("timestamp(int) -> timestamp")
def timestamp_of_int(frame: Frame, seconds: int) -> datetime:
    return timestamp_of(seconds * 10**9)


@function("timestamp(timestamp) -> timestamp", "duration(duration) -> duration")
def same_time(frame: Frame, value: object) -> object:
    return value


@function("duration(string) -> duration")
def duration_of_string(frame: Frame, text: str) -> timedelta:
    return duration_of(nanos_of_text(text))


def nanos_of_text(text: str) -> int:
    """`1h30m`, `1.5s`, `-10ms` in nanoseconds."""
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    total, at = 0, 0
    while at < len(body):
        match = _DURATION.match(body, at)
        if match is None or not (match[1] or match[2]) or len(body) > 100:
            raise Fault(f"duration(): not a duration: {text[:40]!r}")
        unit = _UNIT_NANOS[match[3]]
        total += int(match[1] or "0") * unit
        fraction = match[2] or ""
        total += int(fraction or "0") * unit // 10 ** len(fraction)
        at = match.end()
    if at == 0:
        raise Fault(f"duration(): not a duration: {text[:40]!r}")
    return -total if text[0] == "-" else total


@function("int(timestamp) -> int")
def int_of_timestamp(frame: Frame, value: datetime) -> int:
    return timestamp_nanos(value) // 10**9


@function("string(timestamp) -> string")
def string_of_timestamp(frame: Frame, value: datetime) -> str:
    return timestamp_text(value)


@function("string(duration) -> string")
def string_of_duration(frame: Frame, value: timedelta) -> str:
    return duration_text(value)


# Arithmetic.


@function("_+_(timestamp, duration) -> timestamp")
def add_duration(frame: Frame, a: datetime, b: timedelta) -> datetime:
    return timestamp_of(timestamp_nanos(a) + duration_nanos(b))


@function("_+_(duration, timestamp) -> timestamp")
def add_timestamp(frame: Frame, a: timedelta, b: datetime) -> datetime:
    return timestamp_of(duration_nanos(a) + timestamp_nanos(b))


@function("_+_(duration, duration) -> duration")
def add_durations(frame: Frame, a: timedelta, b: timedelta) -> timedelta:
    return duration_of(duration_nanos(a) + duration_nanos(b))


@function("_-_(timestamp, timestamp) -> duration")
def subtract_timestamps(frame: Frame, a: datetime, b: datetime) -> timedelta:
    return duration_of(timestamp_nanos(a) - timestamp_nanos(b))


@function("_-_(timestamp, duration) -> timestamp")
def subtract_duration(frame: Frame, a: datetime, b: timedelta) -> datetime:
    return timestamp_of(timestamp_nanos(a) - duration_nanos(b))


@function("_-_(duration, duration) -> duration")
def subtract_durations(frame: Frame, a: timedelta, b: timedelta) -> timedelta:
    return duration_of(duration_nanos(a) - duration_nanos(b))


# What a timestamp shows in a zone.


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    match = _OFFSET.fullmatch(name)
    if match is not None:
        hours, minutes = int(match[2]), int(match[3])
        if hours > 23 or minutes > 59:
            raise Fault(f"no such time zone: {name!r}")
        offset = timedelta(hours=hours, minutes=minutes)
        return timezone(-offset if match[1] == "-" else offset)
    if not name or len(name) > 64:
        raise Fault(f"no such time zone: {name[:64]!r}")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Fault(f"no such time zone: {name!r}") from None


# The calendar repeats after 400 years, weekdays too.
_CYCLE_YEARS, _CYCLE = 400, timedelta(days=146_097)


def _shown(value: datetime, zone: str) -> tuple[datetime, int]:
    """The time on the wall there, and how many years to add to what it says."""
    timestamp_nanos(value)
    there = _zone(zone)
    try:
        return value.astimezone(there), 0
    except (OverflowError, ValueError):
        # The first or the last hours that there are: look a cycle nearer, where they exist.
        shift = _CYCLE if value.year < 5000 else -_CYCLE
        shifted = (value.astimezone(UTC) + shift).astimezone(there)
        return shifted, -_CYCLE_YEARS if value.year < 5000 else _CYCLE_YEARS


@function("(timestamp).getFullYear() -> int", "(timestamp).getFullYear(string) -> int")
def get_full_year(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    there, years = _shown(value, zone)
    return there.year + years


@function("(timestamp).getMonth() -> int", "(timestamp).getMonth(string) -> int")
def get_month(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    return _shown(value, zone)[0].month - 1


@function("(timestamp).getDayOfYear() -> int", "(timestamp).getDayOfYear(string) -> int")
def get_day_of_year(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    return _shown(value, zone)[0].timetuple().tm_yday - 1


@function("(timestamp).getDayOfMonth() -> int", "(timestamp).getDayOfMonth(string) -> int")
def get_day_of_month(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    return _shown(value, zone)[0].day - 1


@function("(timestamp).getDate() -> int", "(timestamp).getDate(string) -> int")
def get_date(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    return _shown(value, zone)[0].day


@function("(timestamp).getDayOfWeek() -> int", "(timestamp).getDayOfWeek(string) -> int")
def get_day_of_week(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    return _shown(value, zone)[0].isoweekday() % 7


@function("(timestamp).getHours() -> int", "(timestamp).getHours(string) -> int")
def get_hours(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    return _shown(value, zone)[0].hour


@function("(timestamp).getMinutes() -> int", "(timestamp).getMinutes(string) -> int")
def get_minutes(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    return _shown(value, zone)[0].minute


@function("(timestamp).getSeconds() -> int", "(timestamp).getSeconds(string) -> int")
def get_seconds(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    return _shown(value, zone)[0].second


@function("(timestamp).getMilliseconds() -> int", "(timestamp).getMilliseconds(string) -> int")
def get_milliseconds(frame: Frame, value: datetime, zone: str = "UTC") -> int:
    return _shown(value, zone)[0].microsecond // 1000


# What a duration is in a unit: hours, minutes and seconds as a total, milliseconds as the remainder.


def _toward_zero(nanos: int, unit: int) -> int:
    whole = abs(nanos) // unit
    return -whole if nanos < 0 else whole


@function("(duration).getHours() -> int")
def duration_hours(frame: Frame, value: timedelta) -> int:
    return _toward_zero(duration_nanos(value), 3600 * 10**9)


@function("(duration).getMinutes() -> int")
def duration_minutes(frame: Frame, value: timedelta) -> int:
    return _toward_zero(duration_nanos(value), 60 * 10**9)


@function("(duration).getSeconds() -> int")
def duration_seconds(frame: Frame, value: timedelta) -> int:
    return _toward_zero(duration_nanos(value), 10**9)


@function("(duration).getMilliseconds() -> int")
def duration_milliseconds(frame: Frame, value: timedelta) -> int:
    nanos = duration_nanos(value)
    rest = abs(nanos) % 10**9 // 10**6
    return -rest if nanos < 0 else rest
