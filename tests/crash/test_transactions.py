"""kill -9 around shared transactions: the application's tables and the histories agree after every one (SPEC 4.3)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crash import bank
from crash.harness import KILLED, Nursery

KILLS = [
    "app.inserted:3", "app.committed:1", "app.committed:5", "request.found:1", "request.started:1", "request.dropped:1",
    "inside.begun:1", "inside.begun:4", "app.paid:1", "app.paid:6", "inside.returned:2", "inside.decided:1",
    "inside.decided:9", "inside.committed:1", "inside.committed:7", "append.before:4", "append.after:4",
    "stored.undo_completed:1", "recovery.lost:2",
]  # fmt: skip


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with Nursery(tmp_path_factory.mktemp("bank") / "errors", "crash.bank") as nursery:
        yield nursery


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'bank.db'}"
    return request.getfixturevalue("postgres_url")


def live(nursery: Nursery, orders: bank.Orders) -> int:
    nursery.bear(orders)
    return nursery.wait()


async def test_a_kill_at_each_point_leaves_tables_and_histories_agreed(
    nursery: Nursery, url: str
) -> None:
    """One database through all of them: each life goes on where the one before was killed, with more orders."""
    reached: list[str] = []
    for number, kill in enumerate(KILLS):
        status = live(nursery, bank.Orders(url, last=4 * (number + 1), kill=kill))
        assert status in (KILLED, 0), kill
        if status == KILLED:
            reached.append(kill)
        assert await bank.judge(url, ended=False) == [], kill

    assert live(nursery, bank.Orders(url, last=4 * len(KILLS))) == 0
    assert await bank.judge(url, ended=True) == []
    assert set(KILLS) - set(reached) <= {"stored.undo_completed:1", "recovery.lost:2"}


async def test_kills_at_generated_points_leave_them_agreed(nursery: Nursery, url: str) -> None:
    dice = random.Random(7)
    names = sorted({kill.partition(":")[0] for kill in KILLS})
    killed = 0
    for number in range(12):
        kill = f"{dice.choice(names)}:{dice.randint(1, 6)}"
        killed += live(nursery, bank.Orders(url, last=4 * (number + 1), kill=kill)) == KILLED
        assert await bank.judge(url, ended=False) == [], kill

    assert live(nursery, bank.Orders(url, last=48)) == 0
    assert await bank.judge(url, ended=True) == []
    assert killed >= 6
