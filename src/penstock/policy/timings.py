"""Timings as people write them, and why one is refused (SPEC 4.6): each complaint has its field, a code and what to do.

What a timing means, once it is one, is in `policy/calendars.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from difflib import get_close_matches
from math import isfinite
from typing import Any, cast

import msgspec

from penstock.errors import shown
from penstock.model.schedule import Calendar, Timing
from penstock.policy import cron, durations
from penstock.policy.calendars import WEEKDAYS, next_moment
from penstock.policy.cron import Misfit
from penstock.policy.zones import EPOCH, moment_of, zone_names, zone_of

FIELDS = (
    "cron",
    "every",
    "calendar",
    "zone",
    "exclude",
    "offset",
    "anchor",
    "after",
    "until",
    "jitter",
)
"""What a timing is written with."""
EVERY_SECONDS_MIN = 1.0
SECONDS_MAX = 3_200_000_000.0
"""A hundred years."""
YEARS = range(1900, 9000)
"""Those that a time may lie in: zones and clocks can be computed there."""
_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


def timing_of(given: Mapping[str, Any], at: float | None = None) -> Timing:
    """A timing as people write it: `cron`, `every`, `calendar`, `zone` and the rest; Misfit if it means nothing, or, from
    a moment on, never fires."""
    for name in given:
        if name not in FIELDS:
            meant = get_close_matches(name, FIELDS, 1)
            hint = f"did you mean `{meant[0]}`?" if meant else f"there are {', '.join(FIELDS)}"
            raise Misfit((name,), "schedule-invalid", f"a schedule has no `{name}`", hint)
    given = {name: value for name, value in given.items() if value is not None}
    if not ("cron" in given or "every" in given or "calendar" in given):
        raise Misfit(
            (), "schedule-invalid", "a schedule needs `cron`, `every` or `calendar`",
            "such as cron: `0 9 * * MON-FRI`",
        )  # fmt: skip
    zone = given.get("zone", "UTC")
    _check_zone(zone)
    every = _every(given["every"]) if "every" in given else None
    timing = Timing(
        cron=_crons(given.get("cron", ())), every=every, anchor=_anchor(given, every),
        calendar=_calendars(given.get("calendar", ())), zone=zone, exclude=_exclusions(given.get("exclude", ())),
        after=moment(given, "after"), until=moment(given, "until"), jitter=seconds(given, "jitter"),
    )  # fmt: skip
    if next_moment(timing, _long_ago(timing) if at is None else at) is None:
        raise Misfit(
            (), "schedule-never", "the schedule never fires",
            "look at its dates, `exclude`, `after` and `until`",
        )  # fmt: skip
    return timing


def _long_ago(timing: Timing) -> float:
    """A moment from which on each timing fires, if it does at all."""
    if timing.after is not None:
        return timing.after - 1
    first = [d for calendar in timing.calendar for d in calendar.dates]
    early = min((date.fromisoformat(d) for d in first), default=date(2024, 1, 1))
    begin = (datetime.combine(early, time(), tzinfo=EPOCH.tzinfo) - EPOCH) / timedelta(seconds=1)
    if timing.until is not None:
        begin = min(begin, timing.until - 86_400 * 366)
    return begin - 2 * 86_400


def _texts(value: Any, field: str) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(
        isinstance(each, str) for each in cast("list[Any]", values)
    ):
        raise Misfit(
            (field,), "schedule-invalid", f"`{field}` is {shown(value)}", "give a text or a list of texts"
        )  # fmt: skip
    return tuple(cast("list[str]", values))


def _crons(value: Any) -> tuple[str, ...]:
    texts = _texts(value, "cron")
    for place, text in enumerate(texts):
        cron.check(text, ("cron",) if isinstance(value, str) else ("cron", place))
    return texts


def _check_zone(zone: Any) -> None:
    if isinstance(zone, str) and zone_of(zone) is not None:
        return
    names = zone_names()
    text = zone if isinstance(zone, str) and zone.isprintable() else shown(zone)
    folded = {name.casefold(): name for name in names}
    last = {name.rpartition("/")[2].casefold(): name for name in names if "/" in name}
    meant = (
        folded.get(text.casefold().replace(" ", "_"))
        or last.get(text.casefold().replace(" ", "_"))
        or next(iter(get_close_matches(text, names, 1)), None)
    )
    hint = f"did you mean `{meant}`?" if meant else "such as Europe/Berlin, America/New_York or UTC"
    raise Misfit(("zone",), "zone-unknown", f"there is no time zone `{text:.60}`", hint)


def _every(value: Any) -> float:
    try:
        seconds = durations.seconds(_plain(value))
    except durations.Unreadable as error:
        raise Misfit(("every",), "interval-invalid", str(error), "write 15m, 1h or PT5M") from None
    if seconds > SECONDS_MAX:
        raise Misfit(
            ("every",), "interval-invalid", "an interval of centuries", "at most 100 years"
        )
    if not isfinite(seconds) or seconds < EVERY_SECONDS_MIN:
        raise Misfit(
            ("every",), "interval-invalid", f"an interval of {seconds:g} s is too short",
            f"at least {EVERY_SECONDS_MIN:g} s; inside a run use a loop",
        )  # fmt: skip
    return round(seconds, 3)


def seconds(given: Mapping[str, Any], field: str) -> float:
    try:
        seconds = durations.seconds(_plain(given.get(field, 0)))
    except durations.Unreadable as error:
        raise Misfit(
            (field,), "schedule-invalid", f"`{field}`: {error}", "write 30s or 5m"
        ) from None
    if not isfinite(seconds) or seconds > SECONDS_MAX:
        raise Misfit((field,), "schedule-invalid", f"`{field}` is endless", "write 30s or 5m")
    return seconds


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _anchor(given: Mapping[str, Any], every: float | None) -> float:
    if every is None:
        for name in ("anchor", "offset"):
            if name in given:
                raise Misfit(
                    (name,), "schedule-invalid", f"`{name}` belongs to `every`", "give `every` too"
                )
        return 0.0
    return (moment(given, "anchor") or 0.0) + seconds(given, "offset")


def moment(given: Mapping[str, Any], field: str) -> float | None:
    """A time: a datetime with a zone, its text, or seconds since 1970."""
    value = given.get(field)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise Misfit(
                (field,), "schedule-invalid", f"`{field}` is no time: `{value:.60}`",
                "write 2026-03-01T00:00:00Z",
            ) from None  # fmt: skip
    if isinstance(value, datetime):
        zone = zone_of(given.get("zone", "UTC"))
        assert zone is not None
        if value.year in YEARS:
            if value.tzinfo is None:
                return moment_of(value, zone)
            return (value - EPOCH) / timedelta(seconds=1)
    elif value is None:
        return None
    elif isinstance(value, int | float) and not isinstance(value, bool) and -2e9 < value < 2e11:
        return float(value)
    raise Misfit(
        (field,), "schedule-invalid", f"`{field}` is no time: {shown(value)}",
        "write 2026-03-01T00:00:00Z",
    )  # fmt: skip


def _exclusions(value: Any) -> tuple[str, ...]:
    given: Any = value
    if isinstance(value, list | tuple):
        given = [_day_text(each) for each in cast("list[Any]", value)]
    texts = _texts(_day_text(given), "exclude")
    for place, text in enumerate(texts):
        field = ("exclude", place) if not isinstance(value, str) else ("exclude",)
        first, slash, last = text.partition("/")
        try:
            if slash and date.fromisoformat(first) > date.fromisoformat(last):
                raise Misfit(
                    field, "calendar-invalid", f"`{text}` ends before it begins", "turn it round"
                )
            if not slash and len(text) == 5:
                date.fromisoformat(f"2024-{text}")
            elif not slash:
                date.fromisoformat(text)
        except Misfit:
            raise
        except ValueError:
            raise Misfit(
                field, "calendar-invalid", f"`{text:.60}` is no day",
                "write 2026-12-25, 12-25 for every year, or 2026-12-24/2027-01-01",
            ) from None  # fmt: skip
    return texts


def _day_text(value: Any) -> Any:
    return (
        value.isoformat() if isinstance(value, date) and not isinstance(value, datetime) else value
    )


def _calendars(value: Any) -> tuple[Calendar, ...]:
    many = isinstance(value, list | tuple)
    found: list[Calendar] = []
    for place, each in enumerate(cast("list[Any]", value) if many else [value]):
        field = ("calendar", place) if many else ("calendar",)
        found.append(_calendar(each, field))
    return tuple(found)


def _calendar(value: Any, field: tuple[str | int, ...]) -> Calendar:
    if isinstance(value, Calendar):
        value = msgspec.to_builtins(value)
    if not isinstance(value, dict):
        raise Misfit(
            field, "calendar-invalid", f"a calendar is an object, not {shown(value)}",
            "such as {weekdays: [MON, FRI], times: ['09:00']}",
        )  # fmt: skip
    fields = {
        name: [_day_text(e) for e in cast("list[Any]", v)] if isinstance(v, list | tuple) else [_day_text(v)]
        for name, v in cast("dict[str, Any]", value).items()
    }  # fmt: skip
    if isinstance(fields.get("weekdays"), list):
        fields["weekdays"] = [_weekday(each) for each in fields["weekdays"]]
    try:
        calendar = msgspec.convert(fields, Calendar)
    except (ValueError, TypeError, RecursionError) as error:  # of msgspec, or of what it reads
        raise Misfit(
            field, "calendar-invalid", f"a calendar has no such part: {error!s:.200}",
            "it has times, dates, weekdays, months and days",
        ) from None  # fmt: skip
    _check_calendar(calendar, field)
    return calendar


def _weekday(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.upper()
    return text[:3] if text in _WEEKDAYS else text


def _check_calendar(calendar: Calendar, field: tuple[str | int, ...]) -> None:
    checks: list[tuple[str, Sequence[Any], Callable[[Any], bool], str]] = [
        ("weekdays", calendar.weekdays, WEEKDAYS.__contains__, f"one of {', '.join(WEEKDAYS)}"),
        ("months", calendar.months, range(1, 13).__contains__, "1 to 12"),
        ("days", calendar.days, lambda d: 1 <= d <= 31 or -31 <= d <= -1, "1 to 31, or -1 for the last"),
        ("dates", calendar.dates, _is_date, "such as 2026-12-25"),
        ("times", calendar.times, _is_time, "such as 09:00 or 17:30:15"),
    ]  # fmt: skip
    for name, values, good, hint in checks:
        for value in values:
            if not good(value):
                raise Misfit(
                    (*field, name), "calendar-invalid", f"`{value}` does not belong in `{name}`", hint
                )  # fmt: skip
    if not calendar.times:
        raise Misfit(
            (*field, "times"), "calendar-invalid", "a calendar needs a time of day", "such as 09:00"
        )


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).year in YEARS
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    try:
        each = time.fromisoformat(text)
    except ValueError:
        return False
    return each.tzinfo is None and not each.microsecond and ":" in text
