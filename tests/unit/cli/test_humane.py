"""Times and durations as people say them."""

from __future__ import annotations

import pytest

from penstock.cli.humane import ago, due_words, duration, left, local, pace, span, until
from penstock.model.intents import Sleep
from penstock.sdk.fit import shown_intent


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0ms"), (0.0004, "0ms"), (0.24, "240ms"), (0.9996, "1.0s"), (1.24, "1.2s"), (9.96, "10s"), (59.6, "1m00s"),
        (192, "3m12s"), (7500, "2h05m"), (86_399, "23h59m"), (4 * 86_400 + 3 * 3600, "4d3h"),
    ],
)  # fmt: skip
def test_a_duration_is_short_and_as_exact_as_one_cares(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        (-5, "due"),
        (0.2, "in 1s"),
        (59, "in 59s"),
        (100, "in 2m"),
        (7100, "in 2h"),
        (172_799, "in 2d"),
        (100_000, "in 28h"),
    ],
)
def test_what_is_due_is_told_in_one_unit(rest: float, text: str) -> None:
    assert until(1000 + rest, 1000) == text


@pytest.mark.parametrize(
    ("past", "text"), [(0.2, "just now"), (12, "12s ago"), (10_800, "3h ago"), (-60, "in 60s")]
)
def test_what_is_past_is_told_from_now(past: float, text: str) -> None:
    assert ago(10_000_000 - past, 10_000_000) == text


def test_the_date_is_left_out_today() -> None:
    assert len(local(1_000_000_000, 1_000_000_000)) == len("01:46:40")
    assert local(1_000_000_000, 1_000_200_000).startswith("2001-09-0")


def test_what_is_due_is_not_called_so_twice() -> None:
    assert due_words("attempt 2 of `a` is due", 10.0, 11.0) == ""
    assert due_words("attempt 2 of `a` is due", 13.0, 11.0) == "in 2s"
    assert due_words("timer `t` is to fire", 10.0, 11.0) == "due"


def test_a_pace_and_what_is_left_at_it() -> None:
    assert [pace(done, 2.0) for done in (0, 1, 7, 30, 16_428)] == ["-", "0.5/s", "3.5/s", "15/s", "8,214/s"]  # fmt: skip
    assert pace(5, 0.0) == "-"
    assert left(100, 900, 10.0) == "1m30s"
    assert [left(0, 900, 10.0), left(100, 0, 10.0), left(100, -3, 10.0)] == ["-"] * 3


def test_a_span_is_exact() -> None:
    assert [span(s) for s in (0, 0.25, 1.5, 90, 300, 129_600, 172_800.0)] == ["0s", "250ms", "1.5s", "90s", "5m", "36h", "2d"]  # fmt: skip


@pytest.mark.parametrize("when", [2.6e11, 1e300])
def test_a_time_that_no_calendar_has_is_told_all_the_same(when: float) -> None:
    assert local(when, 0.0) == "in the far future"
    assert shown_intent(Sleep("sleep#1", when)) == "sleep until the far future"
