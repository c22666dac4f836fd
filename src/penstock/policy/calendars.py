"""The moments that a timing means: cron, interval and calendars together, without excluded days (SPEC 4.6).

Pure: the same timing gives the same moments for ever. Nothing here knows what time it is, and chance is drawn from a
schedule's id and the nominal time.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from heapq import merge
from math import ceil, floor
from zlib import crc32
from zoneinfo import ZoneInfo

from penstock.model.schedule import Calendar, Timing
from penstock.policy import cron
from penstock.policy.zones import iso, moment_of, reading

WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
DAYS_EXCLUDED_MAX = 4_000
"""A timing whose next moments are excluded for so many days in a row never fires."""
_DAYS_AHEAD = 366 * 9
_DAY = timedelta(days=1)


def moments(timing: Timing, after: float) -> Iterator[float]:
    """Every moment after one, in order, each once."""
    zone = ZoneInfo(timing.zone)
    if timing.after is not None:
        after = max(after, timing.after - 0.001)
    excluded = 0
    excludes = excluder(timing.exclude)
    while True:
        jump = None
        last = after
        for moment in merge(*_sources(timing, zone, after)):
            if moment <= last:
                continue  # two parts of the timing mean the same moment
            if timing.until is not None and moment >= timing.until:
                return
            day = reading(moment, zone).date()
            if excludes(day):
                excluded += 1
                if excluded > DAYS_EXCLUDED_MAX or day.year >= 9998:
                    return
                jump = moment_of(datetime.combine(day + _DAY, time()), zone)
                break
            excluded, last = 0, moment
            yield moment
        if jump is None:
            return
        after = max(last, jump - 0.001)


def next_moment(timing: Timing, after: float) -> float | None:
    return next(moments(timing, after), None)


def delayed(timing: Timing, schedule: str, nominal: float) -> float:
    """When the start of a nominal time is due: late by its jitter, and never as late as the next one."""
    if timing.jitter <= 0:
        return nominal
    following = next_moment(timing, nominal)
    most = timing.jitter if following is None else min(timing.jitter, following - nominal)
    draw = crc32(f"{schedule}/{iso(nominal)}".encode()) / 2**32  # 0 up to 1
    return nominal + draw * most


def _sources(timing: Timing, zone: ZoneInfo, after: float) -> list[Iterator[float]]:
    found = [cron.moments(text, zone, after) for text in timing.cron]
    if timing.every is not None:
        found.append(_intervals(timing.every, timing.anchor, after))
    found += [_of_calendar(each, zone, after) for each in timing.calendar]
    return found


def _intervals(every: float, anchor: float, after: float) -> Iterator[float]:
    count = floor((after - anchor) / every)
    while True:
        moment = round(anchor + count * every, 3)
        if moment > after:
            yield moment
        count += 1


def _of_calendar(calendar: Calendar, zone: ZoneInfo, after: float) -> Iterator[float]:
    times = sorted(time.fromisoformat(text) for text in calendar.times)
    last = after
    for day in _days(calendar, reading(after, zone).date()):
        for each in times:
            moment = moment_of(datetime.combine(day, each), zone)
            if moment > last:
                last = moment
                yield moment


def _days(calendar: Calendar, begin: date) -> Iterator[date]:
    """Days from that one on; ends where nine years bring none."""
    dates = sorted(date.fromisoformat(text) for text in calendar.dates)
    if dates and not (calendar.weekdays or calendar.months or calendar.days):
        yield from (day for day in dates if day >= begin)
        return
    named, idle, day = set(dates), 0, begin
    while idle < _DAYS_AHEAD and day < date.max - _DAY:
        if day in named or _by_rule(calendar, day):
            idle = 0
            yield day
        else:
            idle += 1
        day += _DAY


def _by_rule(calendar: Calendar, day: date) -> bool:
    if calendar.months and day.month not in calendar.months:
        return False
    if calendar.weekdays and WEEKDAYS[day.weekday()] not in calendar.weekdays:
        return False
    if calendar.days:
        length = monthrange(day.year, day.month)[1]
        return day.day in calendar.days or day.day - length - 1 in calendar.days
    return True


def excluder(exclude: Sequence[str]) -> Callable[[date], bool]:
    """Whether a day is left out."""
    days, yearly, spans = set[date](), set[str](), list[tuple[date, date]]()
    for text in exclude:
        if "/" in text:
            first, _, last = text.partition("/")
            spans.append((date.fromisoformat(first), date.fromisoformat(last)))
        elif len(text) == 5:
            yearly.add(text)
        else:
            days.add(date.fromisoformat(text))

    def excludes(day: date) -> bool:
        return (
            day in days
            or f"{day.month:02}-{day.day:02}" in yearly
            or any(first <= day <= last for first, last in spans)
        )

    return excludes


def count_up_to(timing: Timing, begin: float, end: float, limit: int) -> tuple[int, float | None]:
    """How many moments lie from `begin` to `end`, both included; past the limit also where it was reached."""
    count, last = 0, None
    if timing.every is not None and not (timing.cron or timing.calendar or timing.exclude):
        first = max(begin, timing.after or begin)
        final = end if timing.until is None else min(end, timing.until - 0.001)
        count = max(
            0,
            floor((final - timing.anchor) / timing.every)
            - ceil((first - timing.anchor) / timing.every)
            + 1,
        )
        if count <= limit:
            return count, None
        return count, timing.anchor + (
            ceil((first - timing.anchor) / timing.every) + limit - 1
        ) * timing.every
    for moment in moments(timing, begin - 0.001):
        if moment > end:
            break
        count += 1
        if count > limit:
            return count, last
        last = moment
    return count, None
