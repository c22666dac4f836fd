"""Timings: calendars, intervals and exclusions together; jitter; what is refused and where."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from penstock.model.schedule import Timing
from penstock.policy.calendars import count_up_to, delayed, moments, next_moment
from penstock.policy.cron import Misfit
from penstock.policy.timings import timing_of
from penstock.policy.zones import iso

YEAR = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def first(timing: Timing, many: int, after: float = YEAR) -> list[str]:
    return [iso(at) for at in islice(moments(timing, after), many)]


def test_parts_of_a_timing_are_one_list_without_repeats() -> None:
    timing = timing_of({"cron": ["0 6 * * *", "@daily"], "every": "12h"})

    assert first(timing, 5) == [
        "2026-01-01T06:00:00Z", "2026-01-01T12:00:00Z", "2026-01-02T00:00:00Z", "2026-01-02T06:00:00Z",
        "2026-01-02T12:00:00Z",
    ]  # fmt: skip


def test_intervals_count_from_their_anchor() -> None:
    assert first(timing_of({"every": "90m", "offset": "10m"}), 2) == [
        "2026-01-01T00:10:00Z",
        "2026-01-01T01:40:00Z",
    ]
    anchored = timing_of({"every": timedelta(days=2), "anchor": "2026-01-03T04:00:00Z"})
    assert first(anchored, 2) == ["2026-01-01T04:00:00Z", "2026-01-03T04:00:00Z"]


def test_a_calendar_by_rule_and_by_date() -> None:
    timing = timing_of(
        {
            "calendar": {
                "weekdays": ["Friday"], "days": list(range(-7, 0)), "dates": [date(2026, 1, 5)],
                "times": ["17:30", "09:00"],
            },
            "zone": "America/New_York",
        }
    )  # fmt: skip

    assert first(timing, 4) == [  # the fifth, and each month's last Friday
        "2026-01-05T14:00:00Z", "2026-01-05T22:30:00Z", "2026-01-30T14:00:00Z", "2026-01-30T22:30:00Z",
    ]  # fmt: skip


def test_dates_alone_are_those_dates() -> None:
    timing = timing_of({"calendar": {"dates": ["2026-05-01", "2026-03-01"], "times": "08:00"}})

    assert first(timing, 9) == ["2026-03-01T08:00:00Z", "2026-05-01T08:00:00Z"]
    assert next_moment(timing, YEAR * 2) is None


def test_holidays_are_left_out_in_local_days() -> None:
    timing = timing_of(
        {
            "cron": "0 0 * * *", "zone": "Europe/Berlin",
            "exclude": ["01-03", "2026-01-05/2026-01-07", "2026-01-09"],
        }
    )  # fmt: skip

    assert first(timing, 4) == [
        "2026-01-01T23:00:00Z", "2026-01-03T23:00:00Z", "2026-01-07T23:00:00Z", "2026-01-09T23:00:00Z",
    ]  # fmt: skip


def test_from_and_until() -> None:
    timing = timing_of(
        {"every": "1d", "after": "2026-02-01T00:00:00Z", "until": "2026-02-03T00:00:00Z"}
    )

    assert first(timing, 9) == ["2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z"]
    local = timing_of({"every": "1d", "after": datetime(2026, 2, 1), "zone": "Asia/Tokyo"})  # noqa: DTZ001
    assert first(local, 1) == ["2026-02-01T00:00:00Z"]


def test_a_year_of_minutes_away_from_the_exclusions_is_quick_and_exclusions_of_years_end() -> None:
    timing = timing_of({"cron": "* * * * *", "exclude": ["2026-01-01/2030-12-31"]})

    assert first(timing, 1) == ["2031-01-01T00:00:00Z"]


def test_jitter_is_drawn_from_id_and_time_and_never_reaches_the_next() -> None:
    timing = timing_of({"every": "1m", "jitter": "10m"})
    nominals = list(islice(moments(timing, YEAR), 200))
    dues = [delayed(timing, "s", at) for at in nominals]

    assert dues == [delayed(timing, "s", at) for at in nominals]
    assert dues != [delayed(timing, "other", at) for at in nominals]
    assert all(0 <= due - at < 60 for at, due in zip(nominals, dues, strict=True))
    assert len({round(due - at) for at, due in zip(nominals, dues, strict=True)}) > 40


def test_counting_stops_at_the_limit_and_says_where() -> None:
    minutes = timing_of({"cron": "* * * * *"})

    assert count_up_to(minutes, YEAR, YEAR + 600, 100) == (11, None)
    count, where = count_up_to(minutes, YEAR, YEAR + 86400, 100)
    assert count > 100
    assert where == YEAR + 99 * 60
    every = timing_of({"every": 60})
    assert count_up_to(every, YEAR, YEAR + 600, 100) == (11, None)
    assert count_up_to(every, YEAR, YEAR + 86400, 100) == (1441, YEAR + 99 * 60)


@pytest.mark.parametrize(
    ("given", "code", "field"),
    [
        ({}, "schedule-invalid", ()),
        ({"zone": "UTC"}, "schedule-invalid", ()),
        ({"cron": "0 9 * * *", "zone": "Europe/Berln"}, "zone-unknown", ("zone",)),
        ({"cron": "0 9 * * *", "zone": "../../etc/passwd"}, "zone-unknown", ("zone",)),
        ({"cron": "0 9 * * *", "zone": ""}, "zone-unknown", ("zone",)),
        ({"cron": "0 9 * * *", "zone": 3}, "zone-unknown", ("zone",)),
        ({"cron": ["0 9 * * *", "0 99 * * *"]}, "cron-invalid", ("cron", 1)),
        ({"cron": 5}, "schedule-invalid", ("cron",)),
        ({"every": 0}, "interval-invalid", ("every",)),
        ({"every": "0s"}, "interval-invalid", ("every",)),
        ({"every": -5}, "interval-invalid", ("every",)),
        ({"every": float("nan")}, "interval-invalid", ("every",)),
        ({"every": float("inf")}, "interval-invalid", ("every",)),
        ({"every": "soon"}, "interval-invalid", ("every",)),
        ({"every": 1e300}, "interval-invalid", ("every",)),
        ({"every": "1d", "anchor": 1e300}, "schedule-invalid", ("anchor",)),
        ({"every": "1d", "anchor": "0001-01-01T00:00:00Z"}, "schedule-invalid", ("anchor",)),
        ({"every": "1d", "until": "9999-12-31T23:59:59"}, "schedule-invalid", ("until",)),
        ({"calendar": {"dates": ["0001-01-01"]}}, "calendar-invalid", ("calendar", "dates")),
        ({"every": True}, "interval-invalid", ("every",)),
        ({"cron": "@daily", "offset": "5m"}, "schedule-invalid", ("offset",)),
        ({"cron": "@daily", "jitter": 1e300}, "schedule-invalid", ("jitter",)),
        ({"cron": "@daily", "jitter": "much"}, "schedule-invalid", ("jitter",)),
        ({"cron": "@daily", "after": "tomorrow"}, "schedule-invalid", ("after",)),
        ({"cron": "@daily", "exclude": ["2026-02-30"]}, "calendar-invalid", ("exclude", 0)),
        ({"cron": "@daily", "exclude": "2026-03-02/2026-03-01"}, "calendar-invalid", ("exclude",)),
        ({"calendar": {"weekdays": ["MITTWOCH"]}}, "calendar-invalid", ("calendar", "weekdays")),
        ({"calendar": [{"months": [13]}]}, "calendar-invalid", ("calendar", 0, "months")),
        ({"calendar": {"times": ["25:00"]}}, "calendar-invalid", ("calendar", "times")),
        ({"calendar": {"days": [0]}}, "calendar-invalid", ("calendar", "days")),
        ({"calendar": {"hours": [3]}}, "calendar-invalid", ("calendar",)),
        ({"calendar": "daily"}, "calendar-invalid", ("calendar",)),
        ({"calendar": {"months": [2], "days": [30]}}, "schedule-never", ()),
        ({"cron": "@daily", "after": "2026-02-02T00:00:00Z", "until": "2026-02-01T00:00:00Z"}, "schedule-never", ()),
        ({"calendar": {"dates": ["2026-12-25"]}, "exclude": "12-25"}, "schedule-never", ()),
        ({"crn": "@daily"}, "schedule-invalid", ("crn",)),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused_at_its_place(
    given: dict[str, Any], code: str, field: tuple[str | int, ...]
) -> None:
    with pytest.raises(Misfit) as caught:
        timing_of(given)

    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.hint


def test_a_zone_that_was_meant_is_named() -> None:
    for wrong, meant in {"europe/berlin": "Europe/Berlin", "new york": "America/New_York"}.items():
        with pytest.raises(Misfit) as caught:
            timing_of({"cron": "@daily", "zone": wrong})
        assert meant in caught.value.hint
