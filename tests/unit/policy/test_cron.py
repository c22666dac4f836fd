"""Cron in zones, held against a computation of its own: every minute of the weeks around both clock changes is looked at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from penstock.policy.cron import Misfit, check, moments
from penstock.policy.zones import changes, iso, moment_of

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kathmandu"]
CRONS = [
    "* * * * *", "0 * * * *", "45 * * * *", "*/30 * * * *", "0 */2 * * *", "15,45 * * * *", "30 2 * * *",
    "30 1 * * *", "0 2 * * *", "0,15,30,45 1-3 * * *", "0 9 * * MON-FRI", "0 0 1 * *", "5 * * * SUN", "* 2 * * *",
]  # fmt: skip


def numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    names = {name: i for i, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])}
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if first == "*":
            first, last = str(low), str(high)
        begin = names.get(first, first)
        found |= set(range(int(begin), int(names.get(last, last) or begin) + 1, int(step or 1)))
    return found


def by_hand(cron: str, zone: ZoneInfo, begin: int, end: int) -> list[int]:
    """Minute by minute: the readings that fit; where minute and hour are fixed, each reading once, and those that the
    clock leaves out at the change."""
    minute, hour, day, month, weekday = cron.split()
    fields = [
        numbers(minute, 0, 59), numbers(hour, 0, 23), numbers(day, 1, 31), numbers(month, 1, 12), numbers(weekday, 0, 6),
    ]  # fmt: skip

    def fits(wall: datetime) -> bool:
        parts = (wall.minute, wall.hour, wall.day, wall.month, (wall.weekday() + 1) % 7)
        return all(part in field for part, field in zip(parts, fields, strict=True))

    fixed = "*" not in minute and "*" not in hour
    found: list[int] = []
    seen: set[datetime] = set()
    before: datetime | None = None
    for moment in range(begin - 86400, end, 60):
        wall = datetime.fromtimestamp(moment, zone).replace(tzinfo=None, fold=0)
        fires = fits(wall) and not (fixed and wall in seen)
        if fixed and before is not None and wall - before > timedelta(minutes=1):
            left_out = before + timedelta(minutes=1)
            while left_out < wall:
                fires = fires or fits(left_out)
                left_out += timedelta(minutes=1)
        seen.add(wall)
        before = wall
        if fires and moment > begin:
            found.append(moment)
    return found


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize("cron", CRONS)
def test_around_both_changes_it_fires_as_counted_by_hand(name: str, cron: str) -> None:
    zone = ZoneInfo(name)
    middles = changes(zone, 2026) or (1_774_742_400,)
    for middle in middles:
        begin, end = middle - 2 * 86400 - 60 * 7, middle + 2 * 86400

        found = list(takewhile(end.__gt__, map(int, moments(cron, zone, begin))))

        assert found == by_hand(cron, zone, begin, end)


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize("cron", ["45 * * * *", "30 2 * * *", "30 30 1 * * *", "*/20 * * * * *"])
def test_what_comes_next_does_not_depend_on_where_one_looks_from(name: str, cron: str) -> None:
    zone = ZoneInfo(name)
    begin = (changes(zone, 2026) or (1_774_742_400,))[-1] - 7200
    walk = list(takewhile(lambda at: at < begin + 4 * 3600, moments(cron, zone, begin)))

    for at, following in pairwise(walk):
        for look in (at, at + 0.5, (at + following) / 2, following - 0.001):
            assert next(moments(cron, zone, look)) == following


def test_the_changes_of_2026() -> None:
    assert [iso(at) for at in changes(ZoneInfo("Europe/Berlin"), 2026)] == [
        "2026-03-29T01:00:00Z",
        "2026-10-25T01:00:00Z",
    ]
    assert [iso(at) for at in changes(ZoneInfo("Australia/Lord_Howe"), 2026)] == [
        "2026-04-04T15:00:00Z",
        "2026-10-03T15:30:00Z",
    ]
    assert changes(ZoneInfo("UTC"), 2026) == ()


def test_with_seconds_a_reading_shown_twice_counts_once_and_one_left_out_comes_at_the_change() -> (
    None
):
    berlin = ZoneInfo("Europe/Berlin")
    autumn = datetime(2026, 10, 24, 22, tzinfo=UTC).timestamp()
    spring = datetime(2026, 3, 28, 23, tzinfo=UTC).timestamp()

    assert [
        iso(m) for m, _ in zip(moments("5 30 2 * * *", berlin, autumn), "ab", strict=False)
    ] == [
        "2026-10-25T00:30:05Z",
        "2026-10-26T01:30:05Z",
    ]
    assert iso(next(moments("5 30 2 * * *", berlin, spring))) == "2026-03-29T01:00:00Z"


def test_a_day_that_a_zone_left_out_is_its_next_moment() -> None:
    apia = ZoneInfo("Pacific/Apia")

    assert iso(moment_of(datetime(2011, 12, 30, 12), apia)) == "2011-12-30T10:00:00Z"  # noqa: DTZ001


def test_aliases() -> None:
    utc = ZoneInfo("UTC")
    for alias, expected in {
        "@hourly": "2026-01-01T01:00:00Z", "@daily": "2026-01-02T00:00:00Z", "@midnight": "2026-01-02T00:00:00Z",
        "@weekly": "2026-01-04T00:00:00Z", "@monthly": "2026-02-01T00:00:00Z", "@yearly": "2027-01-01T00:00:00Z",
        "@Annually": "2027-01-01T00:00:00Z",
    }.items():  # fmt: skip
        check(alias, ())
        assert iso(next(moments(alias, utc, 1_767_225_600.0))) == expected


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("0 0 30 2 *", "cron-never", "never fires"),
        ("0 0 31 4,6 *", "cron-never", "never fires"),
        ("61 * * * *", "cron-invalid", "`61` is no minute"),
        ("0 9 * * MO-FR", "cron-invalid", "day-of-week"),
        ("0 9 * *", "cron-invalid", "4 fields"),
        ("", "cron-invalid", "0 fields"),
        ("0 9 * * ?", "cron-invalid", "`?`"),
        ("0 0 9 * * MON 2026", "cron-invalid", "7 fields"),
        ("@reboot", "cron-invalid", "@reboot"),
        ("*/0 * * * *", "cron-invalid", "minute"),
        ("L/2 * L/x * *", "cron-invalid", ""),
        ("0 0 L,W/3 * *", "cron-invalid", ""),
        ("0 0 * * MON#2/2", "cron-invalid", ""),
        ("0 0 * * L", "cron-invalid", ""),
    ],
)
def test_what_means_nothing_is_refused_with_what_to_do(text: str, code: str, said: str) -> None:
    with pytest.raises(Misfit) as caught:
        check(text, ("cron",))

    assert caught.value.code == code
    assert said in caught.value.message
    assert caught.value.hint
