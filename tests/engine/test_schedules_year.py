"""A year of schedules over both clock changes in three zones, held against a count by hand (issue 3, Must be shown)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from penstock.policy.zones import iso
from penstock.testing.harness import SkipClock, harness

TICK = {"id": "tick", "tasks": {"a": {"type": "transform", "set": {"n": "1"}}}}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2027, 1, 1, tzinfo=UTC)
DAILY = ["00:00", "01:45", "02:15", "02:30"]
"""Readings that some zone leaves out or shows twice; fired each day, once."""


def readings(zone: ZoneInfo) -> Iterator[tuple[int, datetime]]:
    """Every quarter of an hour of the year, and what the wall shows."""
    moment = BEGIN - timedelta(days=1)
    while moment < END:
        yield int(moment.timestamp()), moment.astimezone(zone).replace(tzinfo=None, fold=0)
        moment += timedelta(minutes=15)


def by_hand(zone: ZoneInfo, reading: str) -> list[str]:
    """One firing a local day: at the first moment that shows the reading or, where none does, at the first after it."""
    hour, minute = map(int, reading.split(":"))
    found: dict[datetime, int] = {}
    for moment, wall in readings(zone):
        wanted = wall.replace(hour=hour, minute=minute)
        if wall >= wanted and wanted not in found:
            found[wanted] = moment
    return [
        iso(moment)
        for wanted, moment in sorted(found.items())
        if BEGIN.timestamp() < moment <= END.timestamp() and wanted.date() > datetime(2025, 12, 31).date()  # noqa: DTZ001
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "lost", "twice"),
    [
        ("Europe/Berlin", "2026-03-29T01:00:00Z", "2026-10-25T00:30:00Z"),
        ("America/New_York", "2026-03-08T07:00:00Z", None),
        ("Australia/Lord_Howe", "2026-10-03T15:30:00Z", "2026-04-04T14:45:00Z"),
    ],
)
async def test_a_year_of_days_and_hours(name: str, lost: str, twice: str | None) -> None:
    zone = ZoneInfo(name)
    clock = SkipClock(BEGIN.timestamp())
    async with harness(clock=clock) as engine:
        await engine.register(TICK)
        for number, reading in enumerate(DAILY):
            hour, minute = reading.split(":")
            await engine.schedules.create(
                f"cron-{number}", "tick", cron=f"{int(minute)} {int(hour)} * * *", zone=name
            )
        await engine.schedules.create(
            "calendar", "tick", calendar={"times": ["02:15"]}, zone=name, overlap="allow"
        )
        await engine.schedules.create("hourly", "tick", cron="45 * * 3,4,10,11 SUN", zone=name)
        await engine.schedules.create("elapsed", "tick", every="24h", zone=name)
        await engine.skip(days=365)
        counts = {view.id: view.counts.started for view in await engine.schedules.list()}
        rows = []
        after = None
        while page := await engine.list(limit=1000, after=after):
            rows += page
            after = page[-1].key

    fired: dict[str, list[str]] = {}
    for row in rows:
        schedule, _, nominal = row.id.partition("/")
        fired.setdefault(schedule, []).append(nominal)
        assert iso(row.created_at) == nominal  # on time, by the clock that skips
    fired = {schedule: sorted(nominals) for schedule, nominals in fired.items()}
    for number, reading in enumerate(DAILY):
        assert fired[f"cron-{number}"] == by_hand(zone, reading), reading
    assert fired["calendar"] == by_hand(zone, "02:15")
    assert fired["hourly"] == [
        iso(moment)
        for moment, wall in readings(zone)
        if wall.minute == 45 and wall.month in (3, 4, 10, 11) and wall.weekday() == 6
    ]
    assert len(fired["hourly"]) > 400  # every Sunday of the months with a change
    assert fired["elapsed"] == [iso(BEGIN.timestamp() + 86400 * day) for day in range(1, 366)]
    assert counts == {schedule: len(nominals) for schedule, nominals in fired.items()}
    # What the table says, said once more by hand: a reading left out comes at the change, one shown twice comes once.
    assert lost in fired["cron-2"]
    assert lost in fired["calendar"]
    if twice is not None:
        assert twice in fired["cron-3"] or twice in fired["cron-1"]
