"""A run as it is followed: looks of tasks, links and words, from its events alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from penstock.cli.follow import Followed, told
from penstock.core.flow import Flow
from penstock.core.plan import Plan
from penstock.core.turn import turn
from penstock.dsl.load import load
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.failure import Failure
from penstock.model.run import Run

AT = 1_000.0


class Story:
    """Commands given to a run, and what a follower makes of the events."""

    def __init__(self, text: str) -> None:
        plan = Plan(load(text).definition)
        self._flow = Flow(Run(id="r-1"), plan)
        self.followed = Followed("r-1", plan)
        self._seq = 0
        self.give(
            c.StartRun(at=AT, id="r-1", definition=plan.definition.id, version="1", input=b"null")
        )

    def give(self, command: c.Command) -> Story:
        outcome = turn(self._flow, [command])
        assert not outcome.refused
        for event in outcome.events:
            self._seq += 1
            self.followed.take(self._seq, event)
        return self

    def complete(
        self, key: str, output: bytes = b"1", *, attempt: int = 1, at: float = AT + 2
    ) -> Story:
        return self.give(
            c.CompleteTask(
                at=at, key=key, attempt=attempt, output=output, undo=key in self._flow.run.undoing
            )
        )

    def look(self, id: str, now: float = AT + 5) -> tuple[str, str, str]:
        look = self.followed.look(id, now)
        return look.symbol, look.style, look.detail

    def links(self) -> dict[str, str]:
        arcs = self.followed.definition.links
        return {
            f"{arcs[i].from_} {arcs[i].to}": state for i, state in self.followed.links().items()
        }


CHOICE = """
id: choice
tasks:
  work: {do: x}
  choose: {type: gateway, kind: exclusive, default: right, after: work}
  left: {do: x}
  right: {do: x}
links:
  - {from: choose, to: left, when: "tasks.work.output == 1"}
  - {from: choose, to: right}
"""


def test_a_task_shows_how_long_it_takes_and_then_took() -> None:
    story = Story(CHOICE)
    assert story.look("left") == ("·", "pending", "")
    assert story.look("work")[1:] == ("scheduled", "5.0s")

    assert story.complete("work").look("work") == ("✓", "completed", "2.0s")


def test_taken_and_dead_links_are_told_apart() -> None:
    links = Story(CHOICE).complete("work").links()

    assert links["choose left"] == "taken"
    assert links["choose right"] == "dead"
    assert "left end" not in links


def test_a_map_counts_its_items_to_the_end() -> None:
    story = Story("id: m\ntasks:\n  each: {type: map, items: '[1, 2, 3]', body: {do: x}}\n")
    assert story.look("each") == ("▶", "running", "0/3")
    story.complete("each[0]/x").complete("each[2]/x")
    assert story.look("each")[2] == "2/3"

    assert story.complete("each[1]/x").look("each") == ("✓", "completed", "3/3")


def test_the_tasks_of_a_natural_loop_show_their_newest_pass() -> None:
    story = Story(
        "id: loop\ntasks:\n  a: {do: x}\n  b: {do: x, after: a}\n"
        "links:\n  - {from: b, to: a, when: iteration < 3}\n"
    )
    story.complete("a[1]/a").complete("a[1]/b")
    assert story.look("a")[1] == "scheduled"
    assert story.look("b") == ("·", "pending", "")
    assert story.followed.passes("a") == 2

    story.complete("a[2]/a").complete("a[2]/b").complete("a[3]/a").complete("a[3]/b")
    assert story.followed.closed
    assert story.look("b")[0] == "✓"


def test_a_failed_run_shows_what_was_undone_after_it_is_closed() -> None:
    story = Story(
        "id: f\ntasks:\n  a: {do: x, compensate: y}\n  b: {do: x, after: a}\n  c: {do: x, after: b}\n"
    ).complete("a")
    story.give(c.FailTask(at=AT + 3, key="b", attempt=1, failure=Failure(code="bad"), final=True))
    assert story.look("a") == ("↶", "compensating", "")
    story.complete("a", attempt=1)

    assert story.followed.status == "FAILED"
    assert [story.look(id)[0] for id in "abc"] == ["↶", "✗", "⤼"]
    assert story.links()["b c"] == "dead"


def test_what_was_told_of_a_paused_run() -> None:
    story = Story("id: p\ntasks:\n  a: {do: x}\n").give(
        c.PauseRun(at=AT + 1, by="ann", reason="lunch")
    )

    assert story.followed.status == "PAUSED"
    assert story.look("a") == ("‖", "waiting", "")
    assert [line.text for line in story.followed.lines] == ["started", "paused by ann: lunch"]


def test_an_event_that_comes_twice_counts_once() -> None:
    story = Story(CHOICE)
    first = e.TaskCompleted(at=AT, key="work", attempt=1, output=Raw(b"1"))
    story.followed.take(1, first)

    assert story.followed.run.revision == 1


def test_an_attempt_that_is_recorded_late_says_when_it_began() -> None:
    assert told(e.TaskStarted(at=AT, key="a", attempt=1)) == "attempt 1 began"
    late = e.TaskStarted(at=AT + 1.5, key="a", attempt=1, began=AT)
    assert told(late) == "attempt 1 began 1.5s before"


FILLED: dict[str, Any] = {
    "generation": 2, "of": 1, "digest": "d", "values": {"region": "eu"}, "act": "accept",
    "key": "a", "attempt": 2, "failure": Failure(code="bad", message="worse"), "due": AT + 3, "id": "i", "definition": "d",
    "version": "1", "input": Raw(b"1"), "name": "n", "by": "ann", "to": "bob", "output": Raw(b"1"), "run": "r", "topic": "t",
    "was": "0", "status": "FAILED", "first": "a", "second": "b", "deadline": AT, "expected": AT + 9, "keys": ["a"],
}  # fmt: skip


@pytest.mark.parametrize("kind", e.EVENT_TYPES)
def test_every_event_has_its_words(kind: type[Any]) -> None:
    known = {name: value for name, value in FILLED.items() if name in kind.__struct_fields__}

    assert told(kind(at=AT, **known))
