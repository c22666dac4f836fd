"""Deadlines: one timer for each limit."""

from __future__ import annotations

import pytest

from penstock.sdk.deadlines import Deadlines
from unit.sdk.desk import ManualClock


@pytest.fixture
def expired() -> list[tuple[str, float]]:
    return []


@pytest.fixture
def deadlines(clock: ManualClock, expired: list[tuple[str, float]]) -> Deadlines[str]:
    return Deadlines(clock, lambda item, limit: expired.append((item, limit)))


def test_each_runs_out_in_its_own_time(
    clock: ManualClock, deadlines: Deadlines[str], expired: list[tuple[str, float]]
) -> None:
    deadlines.add("a", 10)
    deadlines.add("short", 3)
    clock.advance(4)
    deadlines.add("b", 10)
    assert expired == [("short", 3)]

    clock.advance(6)
    assert expired[1:] == [("a", 10)]
    clock.advance(3.9)
    assert len(expired) == 2
    clock.advance(0.2)
    assert expired[2:] == [("b", 10)]
    assert clock.pending == 0


def test_a_thousand_share_a_timer_and_none_is_left_behind(
    clock: ManualClock, deadlines: Deadlines[str], expired: list[tuple[str, float]]
) -> None:
    for number in range(1000):
        deadlines.add(str(number), 30)
    assert clock.pending == 1

    for number in range(1000):
        deadlines.remove(str(number), 30)
    assert clock.pending == 0
    clock.advance(60)
    assert expired == []


def test_what_is_added_or_removed_by_an_expiry_is_heeded(clock: ManualClock) -> None:
    seen: list[str] = []

    def expired(item: str, _limit: float) -> None:
        seen.append(item)
        deadlines.remove("second", 5)
        if item == "first":
            deadlines.add("again", 5)

    deadlines = Deadlines[str](clock, expired)
    deadlines.add("first", 5)
    deadlines.add("second", 5)

    clock.advance(5)
    assert seen == ["first"]
    clock.advance(5)
    assert seen == ["first", "again"]


def test_to_remove_what_is_not_there_is_no_error(deadlines: Deadlines[str]) -> None:
    deadlines.remove("a", 5)
    deadlines.add("b", 5)
    deadlines.remove("a", 5)
