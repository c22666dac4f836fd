"""A fixed sample of `make crash`: a few points, a few random kills, a few power losses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from crash.harness import Bell, Nursery, count_points, tell, tell_random
from crash.nursery import DIED
from crash.plans import given_up, points_of_functions
from crash.power import cuts
from crash.trouble import Trouble
from crash.victim import SQLITE_POINTS, Orders
from support.postgres import Server, serving

ENDING_RUNS = 12

SAMPLE: list[list[dict[str, Any]]] = [
    [{"kill": "append.before:9"}],
    [{"kill": "append.after:9"}],
    [{"kill": "sqlite.written:35"}, {"kill": "recovery.chunk:1"}],
    [{"kill": "report.before:40"}, {"kill": "stored.task_lost:3"}],
    [{"kill": "stored.undo_completed:1"}, {"kill": "recovery.owed:4"}],
    [{"kill": "schedule.decided:1"}, {"kill": "schedule.started:1"}],
    [{"kill": "debounce.decided:1"}, {"kill": "debounce.started:1"}],
    [{"kill": "singleton.named:1"}, {"kill": "singleton.named:1"}],
    [{"kill": "child.telling:1"}, {"stop": "stored.task_completed:3", "kill": "stop.drained:1"}],
]


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Nursery(tmp_path_factory.mktemp("nursery") / "errors") as nursery:
        yield nursery


@pytest.mark.parametrize("lives", SAMPLE, ids=lambda lives: lives[-1]["kill"])
def test_a_kill_at_a_named_point_costs_nothing(
    nursery: Nursery, tmp_path: Path, lives: list[dict[str, Any]]
) -> None:
    story = tell(nursery, tmp_path, "sample", lives)

    assert story.verdict.complaints == []
    assert story.missed == []
    assert story.kills == len(lives)


def test_kills_at_random_times_cost_nothing(nursery: Nursery, tmp_path: Path) -> None:
    story = tell_random(nursery, tmp_path, runs=68, kills=5, seed=1)

    assert story.verdict.complaints == []
    assert story.kills == 5


def test_a_life_that_ends_by_itself_is_reported_at_once_with_its_last_words(
    nursery: Nursery, tmp_path: Path
) -> None:
    bell = Bell(tmp_path / "bell")
    orders = Orders(str(tmp_path), str(tmp_path / "log"), bell=bell.path)  # no file to open

    begun = time.monotonic()
    status = nursery.live(orders, kill_after=0, bell=bell)
    took = time.monotonic() - begun
    bell.close()

    assert status == DIED
    assert took < 30
    assert "StoreError" in nursery.words()
    nursery.kill()  # nobody is there any more


def test_power_loss_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    story = cuts(tmp_path, count=15, seed=1)

    assert story.verdict.complaints == []


def test_a_disk_that_lies_about_syncs_is_noticed(tmp_path: Path) -> None:
    story = cuts(tmp_path, count=10, seed=2, lying=True, only_look=True, workers=1)

    assert story.verdict.complaints != []


ON_POSTGRES: list[list[dict[str, Any]]] = [
    [{"kill": "append.before:9"}, {"kill": "recovery.claimed:1"}],
    [{"kill": "append.after:9"}, {"kill": "stored.task_lost:3"}],
]


@pytest.mark.parametrize("lives", ON_POSTGRES, ids=lambda lives: lives[-1]["kill"])
def test_on_postgres_a_kill_at_a_named_point_costs_nothing(
    nursery: Nursery, tmp_path: Path, postgres: Server, lives: list[dict[str, Any]]
) -> None:
    story = tell(nursery, tmp_path, "sample", lives, server=postgres)

    assert story.verdict.complaints == []
    assert story.missed == []
    assert story.kills == len(lives)


def test_on_postgres_killed_engines_a_killed_server_and_cut_connections_cost_nothing(
    nursery: Nursery, tmp_path: Path
) -> None:
    with serving() as server:
        trouble = Trouble(server, 3, seconds=(0.1, 0.6))
        story = tell_random(
            nursery, tmp_path, runs=68, kills=5, seed=3, server=server, harm=trouble
        )

    assert story.verdict.complaints == []
    assert story.kills == 5
    assert trouble.kills + trouble.cuts > 0


FUNCTIONS: list[list[dict[str, Any]]] = [
    [{"kill": "append.after:9"}, {"kill": "program.told:4"}],
    [{"kill": "stored.task_completed:60"}, {"kill": "program.beside:1"}],
    [{"kill": "known.before:1"}, {"kill": "next.before:2"}, {"kill": "generation.after:1"}],
    [{"kill": "deaf.done:1>commit.taken:1>append.after:1"}, {"kill": "undo.begun:2"}],
    [{"kill": "stored.cancel_requested:1"}, {"kill": "stored.undo_completed:1"}],
    [{"kill": "stored.update_answered:2"}, {"kill": "child.telling:1"}],
    [{"kill": "append.after:12"}, {"bare": True, "kill": "stored.task_completed:2"}, {"kill": "stored.advanced:1"}],
]  # fmt: skip


@pytest.mark.parametrize("lives", FUNCTIONS, ids=lambda lives: lives[-1]["kill"])
def test_a_kill_costs_a_workflow_function_nothing(
    nursery: Nursery, tmp_path: Path, lives: list[dict[str, Any]]
) -> None:
    story = tell(nursery, tmp_path, "sample", lives, book="functions")

    assert story.verdict.complaints == []
    assert story.missed == []
    assert story.kills == len(lives)


ENDING = [
    "stored.task_failed:1", "snapshot.ending:1 then append.after:1", "deaf.done:1 then append.before:1", "deaf.done:1 then append.after:1",
    "deaf.done:1 then dispatch.before:1", "snapshot.ending:1 and stored.task_failed:1", "append.after:1 and undo.begun:1",
]  # fmt: skip


@pytest.mark.parametrize("name", ENDING)
def test_a_kill_costs_nothing_where_what_was_given_up_is_done_all_the_same(
    nursery: Nursery, tmp_path: Path, name: str
) -> None:
    lives = dict(given_up())[name]
    story = tell(nursery, tmp_path, name, lives, runs=ENDING_RUNS, book="ending")

    assert story.verdict.complaints == []
    assert story.missed == []
    assert story.kills == len(lives)
    # Not only what had been done before.
    assert story.verdict.events["undo_completed"] > 2 * ENDING_RUNS


def test_the_book_of_functions_comes_to_every_point_that_is_told_of_it(
    nursery: Nursery, tmp_path: Path
) -> None:
    first, second = count_points(nursery, tmp_path, runs=40, book="functions")

    missed = {*points_of_functions(), *SQLITE_POINTS} - {*first, *second}
    assert missed == {"dispatch.recorded"}  # that is for attempts that were lost twice


def test_kills_at_random_times_cost_workflow_functions_nothing(
    nursery: Nursery, tmp_path: Path
) -> None:
    story = tell_random(nursery, tmp_path, runs=72, kills=5, seed=1, book="functions")

    assert story.verdict.complaints == []
    assert story.kills == 5


def test_a_stop_while_functions_are_told_their_histories_costs_nothing(
    nursery: Nursery, tmp_path: Path
) -> None:
    lives = [{"kill": "stored.task_completed:90"}, {"stop": "program.beside:1"}]
    story = tell(nursery, tmp_path, "sample", lives, book="functions")

    assert story.verdict.complaints == []
    assert story.kills == 1


def test_on_postgres_a_kill_costs_a_workflow_function_nothing(
    nursery: Nursery, tmp_path: Path, postgres: Server
) -> None:
    lives = [{"kill": "append.after:20"}, {"kill": "program.told:4"}]
    story = tell(nursery, tmp_path, "sample", lives, server=postgres, book="functions")

    assert story.verdict.complaints == []
    assert story.missed == []
    assert story.kills == len(lives)
