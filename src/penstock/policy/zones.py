"""Local time: which moment a wall clock means, and when a zone changes its offset (SPEC 4.6).

Pure: depends on the zone's rules alone (the package `tzdata` where the system has none). A clock that is set forward
leaves out some readings: they mean the moment of the change. One that is set back shows some readings twice: the first
is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PROBE = 86_400


def zone_of(name: str) -> ZoneInfo | None:
    """The zone of that name, or None if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def zone_names() -> set[str]:
    return available_timezones()


def reading(moment: float, zone: ZoneInfo) -> datetime:
    """What a clock on the wall shows then; without a zone."""
    return _utc(moment).astimezone(zone).replace(tzinfo=None, fold=0)


def moment_of(wall: datetime, zone: ZoneInfo) -> float:
    """The moment that a reading means."""
    moment = _seconds(wall.replace(tzinfo=zone, fold=0))
    if reading(moment, zone) == wall:
        return moment
    change = _last_change(zone, moment)
    return moment if change is None else float(change)


def offset(moment: float, zone: ZoneInfo) -> float:
    """Seconds that local time is ahead of UTC."""
    ahead = _utc(moment).astimezone(zone).utcoffset()
    assert ahead is not None
    return ahead.total_seconds()


def next_change(moment: float, before: float, zone: ZoneInfo) -> float | None:
    """The first change of offset after a moment and up to another."""
    for year in range(_utc(moment).year, _utc(before).year + 1):
        for change in changes(zone, year):
            if moment < change <= before:
                return float(change)
    return None


@lru_cache(maxsize=4096)
def changes(zone: ZoneInfo, year: int) -> tuple[int, ...]:
    """When the offset changes in a year (of UTC), as first seconds of the new one."""
    begin = int(_seconds(datetime(year, 1, 1, tzinfo=UTC)))
    end = int(_seconds(datetime(year + 1, 1, 1, tzinfo=UTC))) if year < 9999 else begin
    return tuple(_changes(zone, begin, end))


def _changes(zone: ZoneInfo, begin: int, end: int) -> Iterator[int]:
    at, ahead = begin - 1, offset(begin - 1, zone)
    while at < end - 1:
        later = min(at + _PROBE, end - 1)
        if offset(later, zone) != ahead:
            low, high = at, later
            while high - low > 1:
                middle = (low + high) // 2
                if offset(middle, zone) == ahead:
                    low = middle
                else:
                    high = middle
            yield high
            at, ahead = high, offset(high, zone)
        else:
            at = later


def _last_change(zone: ZoneInfo, moment: float) -> int | None:
    year = _utc(moment).year
    found = [c for each in (year - 1, year) for c in changes(zone, each) if c <= moment]
    return found[-1] if found else None


def _utc(moment: float) -> datetime:
    return EPOCH + timedelta(seconds=moment)


def _seconds(moment: datetime) -> float:
    return (moment - EPOCH) / timedelta(seconds=1)


def iso(moment: float) -> str:
    """A moment in UTC, the name that it has in a run's id: `2026-03-29T01:00:00Z`; milliseconds only if it has some."""
    whole = _utc(round(moment * 1000) / 1000)
    text = whole.strftime("%Y-%m-%dT%H:%M:%S")
    millis = whole.microsecond // 1000
    return f"{text}.{millis:03}Z" if millis else f"{text}Z"
