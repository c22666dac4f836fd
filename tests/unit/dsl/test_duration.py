"""Durations as people write them."""

from __future__ import annotations

import re

import pytest

from penstock.policy.durations import PATTERN, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86_400),
        ("1w", 604_800),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("1m500ms", 60.5),
        ("0s", 0),
        ("PT5M", 300),
        ("PT0.25S", 0.25),
        ("P1DT2H", 93_600),
        ("P2W", 1_209_600),
        ("100ms", 0.1),
    ],
)
def test_a_duration_is_so_many_seconds(text: str, expected: float) -> None:
    assert parse(text) == expected
    assert re.search(PATTERN, text)


@pytest.mark.parametrize(
    "text",
    ["", "30", "s", "30 s", "30parsecs", "-5s", "P1M", "P1Y", "5M", "PT", "P", "1e3s", "5s\n"],
)
def test_what_is_none_is_refused(text: str) -> None:
    assert parse(text) is None
