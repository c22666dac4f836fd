"""Laws of data (SPEC 2.6, 3.5): where no race is reported the order of completion makes no difference; where a conflict is
recorded one had been.

What is promised: the same status, and of runs that complete the same result, the same completed tasks and the same data, but
for what passes through a handled failure that cancels. A body that fails, and whose error link handles that, cancels what
runs beside the failure inside it; which of those tasks had completed by then is by the order, and no race: a race is two
tasks that touch one path (3.5). So completed tasks may differ inside bodies that failed in both orders, there alone; and data
may differ in keys that those very tasks write, or that are computed from such keys.

`PENSTOCK_EXAMPLES=2000 pytest tests/laws/test_races.py` looks longer.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from laws.test_runs import CALM, CHILD_PLAN, LAW
from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.keys import static
from penstock.core.plan import Plan
from penstock.dsl.finding import Finding
from penstock.model import events as e
from penstock.model.codec import decode_event
from penstock.model.run import FAILED, Run
from penstock.verify.races import check_races
from penstock.verify.structure import examine_document
from penstock.verify.verification import Subject
from support.chance import Chance
from support.definitions import documents
from support.world import Case, World

NAMES = ("p", "q")
seen = Counter({"racing": 0, "quiet": 0})


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
    alike(document, *(world.cases["run"] for world in worlds))


def alike(document: dict[str, Any], one: Case, other: Case) -> None:
    """What is promised of two orders; see the module's docstring."""
    assert one.status == other.status, (one.failure, other.failure)
    if one.status != "COMPLETED":
        return
    assert one.result == other.result
    stray = Counter(one.completed())
    stray.subtract(other.completed())
    apart = {key for key, count in stray.items() if count}
    seen["cancelled"] += bool(apart)
    handled = tuple(f"{key}[" for key in failed(one) & failed(other)) or (" ",)
    assert all(key.startswith(handled) for key in apart), (apart, handled)
    free = passing(document, {static(key).rpartition("/")[2] for key in apart})
    datas = [{n: v for n, v in case.data.items() if n not in free} for case in (one, other)]
    assert datas[0] == datas[1], free


def failed(case: Case) -> set[str]:
    """Keys of the tasks that were seen to have failed."""
    replay, found = Flow(Run(id=case.id), case.plan), set[str]()
    for payload in case.stored:
        evolve(replay, decode_event(payload))
        for path, scope in replay.run.scopes.items():
            found |= {replay.key(path, id) for id, s in scope.tasks.items() if s.status == FAILED}
    return found


def passing(document: dict[str, Any], ids: set[str]) -> set[str]:
    """Keys of the data that these tasks write, and those that are computed from them."""
    writes: list[tuple[str, str, str]] = []
    for id, task in tasks_of(document):
        sets = [task.get("set", {}), *(do.get("set", {}) for do in task.get("onComplete", []))]
        writes += [(id, name, str(value)) for each in sets for name, value in each.items()]
    found = {name for id, name, _ in writes if id in ids}
    for _ in writes:
        found |= {n for _, n, value in writes if found & set(re.findall(r"data\.(\w+)", value))}
    return found


BROKEN = """
id: flow
data: {p: {value: 0}, q: {value: 0}, r: {value: 0}}
tasks:
  m:
    type: loop
    until: "true"
    body:
      tasks:
        a: {do: x}
        b: {do: x, onComplete: [{set: {r: '1'}}]}
        s: {do: x, onComplete: [{set: {p: '1'}}]}
        j: {do: x, join: all}
      links: [{from: a, to: j}, {from: b, to: j, when: 'false'}]
  h: {do: x, onComplete: [{set: {q: data.p + 1}}]}
links: [{from: m, to: h, "on": error}]
"""


def test_what_had_completed_when_a_handled_failure_cancels_is_by_the_order_and_no_race() -> None:
    """Found by the law above: `j` starves once `a` and `b` have completed, which cancels `s`, if that still runs."""
    document = yaml.safe_load(BROKEN)
    plan, found = races(document)
    assert found == []
    cases = [World(plan).start("flow") for _ in range(2)]
    for case, first in zip(cases, (["s"], []), strict=True):
        for id in (*first, "a", "b"):
            case.complete(f"m[1]/{id}", 1)
        case.complete("h", 1)

    assert [case.data for case in cases] == [{"p": 1, "q": 2, "r": 1}, {"p": 0, "q": 1, "r": 1}]
    assert passing(document, {"s"}) == {"p", "q"}
    alike(document, *cases)


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
    print(seen)
    assert min(seen["racing"], seen["quiet"]) > 10, seen
