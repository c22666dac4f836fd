"""Where `make crash` kills: for each named point the lives of one database, the last of which is killed there.

What the book of functions must reach is written down here, so that a point that nobody comes to any more is noticed.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Any

from crash.victim import SQLITE_POINTS
from penstock.engine.points import POINTS

Life = dict[str, Any]

OF_FUNCTIONS = ("known.", "next.", "program.", "generation.")
"""Points that the book of functions reaches, and that of definitions does not."""
ELSEWHERE = ("request.", "inside.", "batch.", "resume.", "route.", "outbox.")
"""Points that have lives of their own: `test_transactions.py`, `test_control.py`, `test_bus.py`."""
NO_FUNCTION = (
    "request.", "inside.", "batch.", "resume.", "route.kept", "route.dropped", "schedule.", "debounce.", "singleton.",
)  # fmt: skip
"""Points of what starts runs, or acts on many, whatever they are: the book of definitions has them, or the tests above."""
EVENTS_OF_FUNCTIONS = (
    "attributes_changed", "cancel_requested", "child_closed", "child_started", "event_received", "published",
    "run_cancelled", "run_completed", "run_failed", "run_paused", "run_resumed", "run_started", "run_timed_out",
    "signal_delivered", "signal_received", "signal_sent", "task_completed", "task_failed", "task_lost", "task_retried",
    "task_started", "timeout_reached", "timer_fired", "undo_completed", "undo_lost", "undo_retried", "update_answered",
)  # fmt: skip
"""Each is decided and stored, which are two points. `advanced` has lives of its own, below; a generation's last and first
events are stored between `generation.before` and `generation.after`."""


def plans(
    first: dict[str, int],
    second: dict[str, int],
    dice: random.Random,
    own: Collection[str] = SQLITE_POINTS,
    book: str = "workload",
) -> Iterator[tuple[str, list[Life]]]:
    """For each point: its first occurrence, and a later one if there is; in the life where it is reached."""
    if book == "ending":
        yield from given_up()
        return
    if book == "functions":
        yield from without_the_code()
        yield from done_all_the_same()
        names = {*points_of_functions(), *own, *first, *second}
    else:
        apart = (*ELSEWHERE, *OF_FUNCTIONS)
        names = {*POINTS, *own, *first, *second}
        names -= {name for name in POINTS if name.startswith(apart)}
    for name in sorted(names - {"snapshot.ending"}):  # which only the third book is sure to reach
        before: list[Life] = []
        count = first.get(name, 0)
        recovering = name.startswith("recovery.") or count == 0
        if name.startswith("stop."):
            # A stop on the way, with attempts under way, not at the end when nothing is left to lose.
            for at in ("append.after:8", "stored.task_completed:40"):
                yield f"{name} after {at}", [{"stop": at, "kill": f"{name}:1"}]
            continue
        if name == "dispatch.recorded" or (
            recovering and not name.startswith("recovery.") and not second.get(name)
        ):
            # Only attempts that were lost twice are recorded before they begin.
            lost = "stored.task_lost:1>dispatch.after:1"
            twice = [{"kill": "append.after:12"}, {"kill": lost}]
            yield f"{name}:1", [*twice, {"kill": f"{name}:1"}]
            continue
        if recovering:
            before, count = [{"kill": "append.after:12"}], second.get(name, 0)
        for number in sorted({1, dice.randint(2, max(2, count // 2))} if count > 1 else {1}):
            yield f"{name}:{number}", [*before, {"kill": f"{name}:{number}"}]


def points_of_functions() -> set[str]:
    """What the book of functions reaches, whatever the store."""
    named = {name for name in POINTS if not name.startswith(NO_FUNCTION)}
    return named | {
        f"{when}.{event}" for event in EVENTS_OF_FUNCTIONS for when in ("decided", "stored")
    }


def without_the_code() -> Iterator[tuple[str, list[Life]]]:
    """Lives of a process that has not the code of the functions; then of one that has it, and tells them what came meanwhile."""
    begun: list[Life] = [
        {"kill": "append.after:12"},
        {"bare": True, "kill": "stored.task_completed:2"},
    ]
    # A batch may hold all that is under way: what is to be stored later must not have been before.
    at = "stored.task_completed:3"
    decided: Life = {"bare": True, "kill": "decided.task_completed:2"}
    yield f"{at} without the code", [begun[0], decided, {"bare": True, "kill": at}]
    at = "recovery.done:1"
    yield f"{at} without the code", [*begun, {"bare": True, "kill": at}]
    for at in ("decided.advanced:1", "stored.advanced:1"):
        yield at, [*begun, {"kill": at}]
    for at in ("generation.before:1", "generation.after:1"):
        yield f"{at} without the code", [{"kill": "next.before:1"}, {"bare": True, "kill": at}]


def done_all_the_same() -> Iterator[tuple[str, list[Life]]]:
    """Steps that were told to stop, and are done: from there to where they are undone, or go along."""
    for way in (
        ("report.before:1",),
        ("report.after:1",),
        ("commit.taken:1", "append.before:1"),
        ("commit.taken:1", "append.after:1"),
        ("commit.taken:1", "append.after:1", "undo.begun:1"),
        ("commit.taken:1", "append.after:1", "next.before:1"),
        ("commit.taken:1", "append.after:1", "generation.after:1"),
    ):
        yield f"deaf.done:1 then {way[-1]}", [{"kill": ">".join(("deaf.done:1", *way))}]


def given_up() -> Iterator[tuple[str, list[Life]]]:
    """Tasks of a definition that are under way as another fails: from its failure to where they are undone."""
    # A kill leaves some runs for the life that follows; what was told to stop is not all done at once.
    plain: Life = {"pace": 0.005, "seconds": 0.03}
    told, kept = ("deaf.told:1",), ("snapshot.ending:1",)
    done = ("deaf.done:1", "commit.taken:1", "append.after:1")
    for way in (
        ("decided.task_failed:1",),
        ("stored.task_failed:1",),
        ("stored.task_failed:1", "settle.performed:1"),
        told,
        (*told, "snapshot.before:1"),
        kept,
        ("deaf.done:1",),
        ("deaf.done:1", "report.before:1"),
        ("deaf.done:1", "report.after:1"),
        ("deaf.done:1", "commit.taken:1", "append.before:1"),
        done,
        (*kept, *done),
        (*done, "dispatch.before:1"),
        (*done, "undo.begun:1"),
        (*done, "decided.undo_completed:1"),
        (*done, "stored.undo_completed:1"),
    ):
        name = " then ".join(dict.fromkeys((way[0], way[-1])))
        yield name, [{**plain, "kill": ">".join(way)}]
    for way, again in (
        (told, "recovery.lost:1"),
        (told, "decided.task_failed:1"),
        (kept, "recovery.lost:1"),
        (kept, "stored.task_failed:1"),
        (kept, "undo.begun:1"),
        (done, "recovery.owed:1"),
        (done, "undo.begun:1"),
        ((*done, "undo.begun:1"), "stored.undo_lost:1"),
    ):
        lives = [{**plain, "kill": ">".join(way)}, {**plain, "kill": again}]
        yield f"{way[-1]} and {again}", lives
