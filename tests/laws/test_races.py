"""Laws of data (SPEC 2.6, 3.5): where no race is reported the order of completion makes no difference; where a conflict is
recorded one had been.

`PENSTOCK_EXAMPLES=2000 pytest tests/laws/test_races.py` looks longer.
"""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from laws.test_runs import CALM, CHILD_PLAN, LAW
from penstock.core.plan import Plan
from penstock.dsl.finding import Finding
from penstock.model import events as e
from penstock.verify.races import check_races
from penstock.verify.structure import examine_document
from penstock.verify.verification import Subject
from support.chance import Chance
from support.definitions import documents
from support.world import World

NAMES = ("p", "q")
seen = {"racing": 0, "quiet": 0}


def tasks_of(body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for id, task in body["tasks"].items():
        found.append((id, task))
        if "body" in task:
            found += tasks_of(task["body"])
    return found


@st.composite
def sharing(draw: Any) -> dict[str, Any]:
    """Definitions whose tasks write and read keys of the run's data without a merge."""
    document = draw(documents(calm=True))
    document["data"].update({name: {"value": 0} for name in NAMES})
    document.pop("outputs", None)
    able = [
        (id, task)
        for id, task in tasks_of(document)
        if task.get("type") not in ("gateway", "publish")
    ]
    for _ in range(draw(st.integers(1, 4))):
        _, task = draw(st.sampled_from(able))
        name, other = draw(st.permutations(NAMES))
        value = draw(st.sampled_from(["1", "2", "3", f"data.{name} + 1", f"data.{other}", f"data.{name} * 2 + data.{other}"]))  # fmt: skip
        task.setdefault("onComplete", []).append({"set": {name: value}})
    return document


def races(document: dict[str, Any]) -> tuple[Plan, list[Finding]]:
    loaded = examine_document(document).accepted()
    subject = Subject(loaded, Plan(loaded.definition))
    check_races(subject)
    return subject.plan, [f for f in subject.notes.findings if f.code == "data-race"]


def play(plan: Plan, luck: int, outcomes: int) -> World:
    world = World(plan, CHILD_PLAN)
    world.start("flow", {"n": outcomes % 7, "items": list(range(outcomes % 4))})
    Chance(world, luck, outcomes=outcomes, odds=CALM).play()
    return world


@LAW
@given(sharing(), st.integers(0, 1 << 32), st.integers(0, 1 << 32), st.integers(0, 1 << 32))
def test_where_no_race_is_reported_every_order_of_completion_gives_the_same_outcome(
    document: dict[str, Any], outcomes: int, first: int, second: int
) -> None:
    plan, found = races(document)
    seen["racing" if found else "quiet"] += 1
    assume(not [f for f in found if f.level != "note"])
    worlds = [play(plan, luck, outcomes) for luck in (first, second)]
    assume(not any(world.cut for world in worlds))
    one, other = (world.cases["run"] for world in worlds)

    assert one.status == other.status, (one.failure, other.failure)
    if one.status == "COMPLETED":
        assert one.result == other.result
        assert one.data == other.data
        assert sorted(one.completed()) == sorted(other.completed())


@LAW
@given(sharing(), st.integers(0, 1 << 32))
def test_a_conflict_that_is_recorded_was_reported_before(
    document: dict[str, Any], luck: int
) -> None:
    plan, found = races(document)
    case = play(plan, luck, luck).cases["run"]

    for conflict in case.of(e.DataConflicted):
        assert any(f"`data.{conflict.name}`" in f.message for f in found), (conflict, found)


def test_both_kinds_of_definitions_were_looked_at() -> None:
    assert min(seen.values()) > 10, seen
