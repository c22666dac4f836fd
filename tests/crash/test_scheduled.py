"""kill -9 at each point of a schedule's firing, on both stores: no start is doubled, none lost (SPEC 4.6; issue 3)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash import scheduled
from crash.harness import KILLED, Nursery

POINTS = [
    "schedule.before", "schedule.after", "schedule.decided", "decided.run_started", "append.before", "stored.run_started",
    "append.after", "settle.answered", "schedule.started",
]  # fmt: skip


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("scheduled") / "errors", "crash.scheduled") as nursery:
        yield nursery


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "a.db")
    return request.getfixturevalue("postgres_url")


async def test_a_kill_at_each_point_of_a_firing_doubles_none_and_loses_none(
    nursery: Nursery, place: str, tmp_path: Path
) -> None:
    """One database through all of them, each at the first, the second and some later time that it is reached."""
    dice = random.Random(3)
    death = str(tmp_path / "death")
    kills = [f"{point}:{n}" for n in (1, 2, dice.randrange(3, 9)) for point in POINTS]
    for kill in kills:
        nursery.bear(scheduled.Orders(place, death, kill=kill))
        assert nursery.wait() == KILLED, kill
    nursery.bear(scheduled.Orders(place, death))
    assert nursery.wait() == 0

    assert await scheduled.judge(place, death) == []
