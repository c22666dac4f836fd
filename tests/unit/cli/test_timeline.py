"""The steps of a function over time (cli/timeline.py)."""

from __future__ import annotations

from penstock.cli.timeline import Timeline
from penstock.model import events as e
from penstock.model.run import Run, Scope, TaskState


def text(timeline: Timeline, now: float, most: int = 200) -> list[str]:
    return ["".join(part for part, _ in row) for row in timeline.draw(40, now, most)]


def stepped(count: int) -> tuple[Timeline, Run]:
    """Steps one after the other, a second each; the last is open."""
    made, run = Timeline(), Run(id="r")
    run.created_at = 100.0
    scope = run.scopes[""] = Scope()
    for number in range(1, count + 1):
        scope.tasks = {f"pay#{number}": TaskState(status="SCHEDULED")}
        made.take(run, e.RunBegun(at=99.0 + number))
    return made, run


def test_bars_stand_where_their_time_was() -> None:
    made, _ = stepped(2)

    first, second = text(made, 102.0)
    assert first.startswith("✓  pay#1  ━")
    assert second.startswith("▶  pay#2   ")
    assert second.index("━") == first.rindex("━") + 1
    assert (first.split()[-1], second.split()[-1]) == ("1.0s", "1.0s")
    assert made.progress() == (1, 2)


def test_of_very_many_steps_the_last_are_drawn() -> None:
    made, _ = stepped(1_000)

    drawn = text(made, 1_100.0, 5)
    assert drawn[0] == "  … 995 steps before"
    assert [line.split()[1] for line in drawn[1:]] == [f"pay#{n}" for n in range(996, 1_001)]


def test_what_is_open_when_a_run_ends_was_cancelled() -> None:
    made, run = stepped(1)
    run.status, run.ended_at = "TERMINATED", 103.0
    made.take(run, e.RunTerminated(at=103.0))

    (drawn,) = text(made, 500.0)
    assert drawn.startswith("⊘  pay#1")
    assert drawn.split()[-1] == "3.0s"


def test_without_steps_nothing_is_drawn() -> None:
    assert text(Timeline(), 5.0) == []
