"""A whole year of schedules over both clock changes in four zones (issue 3, Must be shown). What is expected is counted by
looking at a clock on the wall every quarter of an hour, with nothing but `zoneinfo`: every change of the year lies on one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from penstock.testing.harness import Harness, SkipClock, harness

TICK = {"id": "tick", "tasks": {"a": {"type": "transform", "set": {"n": "1"}}}}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2027, 1, 1, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
DAILY = ["00:00", "00:30", "01:45", "02:15", "02:30", "23:30"]
"""Readings that one of the zones leaves out or shows twice; fired each day, once."""
SUNDAYS = "02:30"
"""Of each week, on the very days of the changes."""

Wall = list[tuple[datetime, datetime]]
"""Moments and what the clock shows then, without a zone."""
Wanted = dict[str, tuple[dict[str, Any], list[datetime]]]
"""By id: the words of a schedule, and when it must fire."""


def wall_of(zone: ZoneInfo) -> Wall:
    """From a few days before the year, so that each of its own days is seen from its beginning."""
    count = (END - BEGIN) // QUARTER + 4 * 96
    moments = [BEGIN + QUARTER * (n - 3 * 96) for n in range(count)]
    return [(at, at.astimezone(zone).replace(tzinfo=None, fold=0)) for at in moments]


def once_a_day(
    wall: Wall, reading: str, on: Callable[[date], bool] = lambda day: True
) -> list[datetime]:
    """Of a local day the first moment that shows the reading or, where none does, the first that shows a later one."""
    hour, minute = map(int, reading.split(":"))
    found: dict[date, datetime] = {}
    for at, shown in wall:
        if (shown.hour, shown.minute) >= (hour, minute) and on(shown.date()):
            found.setdefault(shown.date(), at)
    return in_the_year(found.values())


def whenever(wall: Wall, fits: Callable[[datetime], bool]) -> list[datetime]:
    """Every moment whose reading fits, also one that is shown twice."""
    return in_the_year(at for at, shown in wall if fits(shown))


def elapsed(**step: float) -> list[datetime]:
    """Steps of time that no clock change touches, from 1970."""
    length = timedelta(**step)
    at = datetime(1970, 1, 1, tzinfo=UTC) + (BEGIN - datetime(1970, 1, 1, tzinfo=UTC)) // length * length  # fmt: skip
    return in_the_year(at + length * n for n in range((END - BEGIN) // length + 2))


def in_the_year(moments: Any) -> list[datetime]:
    return [at for at in moments if BEGIN < at <= END]


def is_last_of_month(day: date) -> bool:
    return (day + timedelta(days=1)).month != day.month


def wanted(wall: Wall) -> Wanted:
    found: Wanted = {}
    for number, reading in enumerate(DAILY):
        hour, minute = map(int, reading.split(":"))
        days = once_a_day(wall, reading)
        found[f"daily-{number}"] = {"cron": f"{minute} {hour} * * *"}, days
        found[f"calendar-{number}"] = {"calendar": {"times": [reading]}}, days
    late = {"cron": "30 2 * * *", "jitter": "2h"}
    found["jittered"] = late, once_a_day(wall, "02:30")
    found["weekly"] = {"cron": "30 2 * * SUN"}, once_a_day(wall, SUNDAYS, lambda d: d.weekday() == 6)  # fmt: skip
    found["weekly-calendar"] = (
        {"calendar": {"weekdays": ["SUN"], "times": [SUNDAYS]}},
        once_a_day(wall, SUNDAYS, lambda d: d.weekday() == 6),
    )
    found["monthly"] = (
        {"calendar": {"days": [-1], "times": ["23:30"]}},
        once_a_day(wall, "23:30", is_last_of_month),
    )
    found["monthly-cron"] = {"cron": "0 0 L * *"}, once_a_day(wall, "00:00", is_last_of_month)
    found["summer-only"] = (
        {"cron": "0 0 * 4-9 *", "exclude": ["2026-06-01/2026-06-30", "07-04"]},
        once_a_day(wall, "00:00", lambda d: 4 <= d.month <= 9 and d.month != 6 and (d.month, d.day) != (7, 4)),
    )  # fmt: skip
    found["hourly"] = {"cron": "45 * * * *"}, whenever(wall, lambda w: w.minute == 45)
    found["six-hourly"] = (
        {"cron": "0 */6 * * *"},
        whenever(wall, lambda w: w.minute == 0 and w.hour % 6 == 0),
    )
    found["every-day"] = {"every": "24h"}, elapsed(days=1)
    found["every-week"] = {"every": "7d", "jitter": "30d"}, elapsed(weeks=1)
    return found


ZONES = {
    # The first moment of summer time, where readings are left out; and the first of those that are shown twice.
    "Europe/Berlin": (("02:30", "2026-03-29T01:00:00Z"), ("02:30", "2026-10-25T00:30:00Z")),
    "America/New_York": (("02:30", "2026-03-08T07:00:00Z"), ("01:45", "2026-11-01T05:45:00Z")),
    "America/Santiago": (("00:30", "2026-09-06T04:00:00Z"), ("23:30", "2026-04-05T02:30:00Z")),
    "Australia/Lord_Howe": (("02:15", "2026-10-03T15:30:00Z"), ("01:45", "2026-04-04T14:45:00Z")),
}


@dataclass
class Year:
    wanted: dict[str, Wanted]
    """By zone and id."""
    fired: dict[tuple[str, str], list[tuple[datetime, datetime]]]
    """By zone and id: the nominal time, and when the run was started."""
    counts: dict[tuple[str, str], Any]


@pytest.fixture(scope="module")
def year() -> Year:
    """One engine has the schedules of all zones: what is due at the same moment fires together."""
    return asyncio.run(_year())


async def _year() -> Year:
    zones = list(ZONES)
    year = Year({zone: wanted(wall_of(ZoneInfo(zone))) for zone in zones}, defaultdict(list), {})
    async with harness(clock=SkipClock(BEGIN.timestamp())) as engine:
        await engine.register(TICK)
        for zone, schedules in year.wanted.items():
            for id, (words, _) in schedules.items():
                await engine.schedules.create(
                    f"{zones.index(zone)}.{id}", "tick", zone=zone, **words
                )
        await engine.skip(days=365)
        for view in await engine.schedules.list(limit=1000):
            number, _, id = view.id.partition(".")
            year.counts[zones[int(number)], id] = view.counts
        for row in await rows_of(engine):
            schedule, _, nominal = row.id.partition("/")
            number, _, id = schedule.partition(".")
            begun = datetime.fromtimestamp(row.created_at, UTC)
            year.fired[zones[int(number)], id].append((datetime.fromisoformat(nominal), begun))
    return year


@pytest.mark.parametrize("name", ZONES)
def test_a_whole_year(year: Year, name: str) -> None:
    schedules, (lost, twice) = year.wanted[name], ZONES[name]
    fired = {id: year.fired[name, id] for id in schedules}
    counts = {id: year.counts[name, id] for id in schedules}
    for id, (words, expected) in schedules.items():
        found = sorted(fired[id])
        if "jitter" not in words:
            assert [at for at, _ in found] == expected, id
            assert all(begun == at for at, begun in found), id  # on time, by the clock that skips
        else:  # the last may be held back beyond the end of the year
            assert [at for at, _ in found] in (expected, expected[:-1]), id
            most = timedelta(hours=2) if id == "jittered" else timedelta(days=7)
            assert all(at <= begun <= at + most for at, begun in found), id
            assert all(begun < at for (_, begun), (at, _) in pairwise(found)), id
            assert len({begun - at for at, begun in found}) > 40, id
        assert (counts[id].started, counts[id].skipped, counts[id].missed, counts[id].failed) == (
            len(found), 0, 0, 0,
        ), id  # fmt: skip
    # What the table says, said once more by hand: a reading left out fires at the change, one shown twice at the first.
    for reading, moment in (lost, twice):
        for kind in ("daily", "calendar"):
            days = [at for at, _ in fired[f"{kind}-{DAILY.index(reading)}"]]
            at = datetime.fromisoformat(moment)
            assert [each for each in days if abs(each - at) < timedelta(hours=20)] == [at]
    assert len(fired["hourly"]) == 8760 + (
        name == "Australia/Lord_Howe"
    )  # 01:45 is shown twice, no :45 left out


async def rows_of(engine: Harness) -> list[Any]:
    rows: list[Any] = []
    after = None
    while page := await engine.list(limit=1000, after=after):
        rows += page
        after = page[-1].key
    return rows
