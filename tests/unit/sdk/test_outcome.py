"""What an activity raised, as a failure: its trace is Python's own, also the second time."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from penstock.sdk import outcome


def _deep(n: int, last: Callable[[], None]) -> None:
    if n:
        _deep(n - 1, last)
    else:
        last()


def _one() -> None:
    raise ValueError("one")


def _two() -> None:
    _ = {}["here"], 1  # what failed of the line is marked
    raise ValueError("two")


def _raised(n: int, last: Callable[[], None]) -> Exception:
    try:
        _deep(n, last)
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("n", [0, 1, 2, 8, 30])
@pytest.mark.parametrize("last", [_one, _two])
def test_a_trace_is_that_of_python_every_time(n: int, last: Callable[[], None]) -> None:
    for _ in range(3):
        error = _raised(n, last)
        frames = traceback.format_tb(error.__traceback__, limit=-outcome.FRAMES_MAX)
        assert outcome.broken("a", error, None).failure.trace == "".join(frames)


def test_not_all_traces_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "TRACES_MAX", 3)
    monkeypatch.setattr(outcome, "_traces", {})
    for n in range(20):
        outcome.broken("a", _raised(n, _one), None)
        assert len(outcome._traces) <= 3  # pyright: ignore[reportPrivateUsage]


def test_code_that_takes_the_place_of_another_has_a_trace_of_its_own() -> None:
    traces: set[str] = set()
    for number in range(200):
        place: dict[str, Callable[[], None]] = {}
        exec(compile(f"def f{number}():\n    raise ValueError", "<made>", "exec"), place)
        traces.add(outcome.broken("a", _raised(0, place[f"f{number}"]), None).failure.trace)
    assert len(traces) == 200
