"""Laws of the four ways to orchestrate (SPEC 2.5): rewritten as another, a definition does the same."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from laws.test_runs import LAW
from penstock.core.plan import Plan
from penstock.dsl.load import load_document
from penstock.dsl.rewrite import rewrite
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model import events as e
from penstock.verify.structure import examine_document
from support.world import Case, World

FOUND: Counter[str] = Counter()


@st.composite
def flows(draw: Any) -> dict[str, Any]:
    """Tasks that read earlier ones; some links are read off the inputs, some are only an order."""
    tasks: dict[str, Any] = {}
    links: list[dict[str, Any]] = []
    count = draw(st.integers(2, 6))
    pure = draw(st.booleans())
    for n in range(count):
        id = f"t{n}"
        task: dict[str, Any] = {"do": "x", "inputs": {"n": "${input.n}"}}
        for m in range(n):
            if draw(st.integers(1, 3)) == 1:
                how = draw(st.sampled_from(["from", "text", "link", "guarded"]))
                if how in ("link", "guarded") and pure:
                    how = "from"
                if how == "from":
                    task["inputs"][f"p{m}"] = {"from": f"t{m}"}
                elif how == "text":
                    task["inputs"][f"p{m}"] = "${tasks.t" + str(m) + ".output}"
                link: dict[str, Any] = {"from": f"t{m}", "to": id}
                if how == "guarded":
                    link["condition"] = "input.n > 2"
                links.append(link)
        if draw(st.integers(1, 6)) == 1:
            task["join"] = "all"
        if draw(st.integers(1, 8)) == 1:
            task["conditions"] = ["input.n > 2"]
        if draw(st.integers(1, 8)) == 1:
            task["onComplete"] = [{"set": {"seen": f'"{id}"'}}]
        tasks[id] = task
    document: dict[str, Any] = {"id": "flow", "tasks": tasks, "links": links}
    if draw(st.booleans()):
        document["outputs"] = {"n": "input.n"}
        if not pure:
            for task in tasks.values():
                task["inputs"] = {"n": "${input.n}"}
    document["data"] = {"seen": {"merge": "append"}}
    return document


def play(document: dict[str, Any], seed: int, fails: bool) -> Case:
    """A run with a bus: what it publishes is offered to it, in order."""
    chance = random.Random(seed)
    examined = examine_document(document)
    assert examined.errors == [], examined.errors
    case = World(Plan(examined.accepted().definition)).start(None, {"n": seed % 5})
    told = 0
    for _ in range(500):
        for seq, event in enumerate(case.events, 1):
            if seq > told and isinstance(event, e.Published) and not case.run.closed:
                case.command(
                    c.OfferEvent(
                        at=case.world.now, id=f"run/1/{seq}", topic=event.topic, kind=event.topic, run="run",
                        data=bytes(event.payload),
                    )
                )  # fmt: skip
            told = max(told, seq)
        if case.run.closed or not case.open:
            if told == len(case.events):
                break
            continue
        key = chance.choice(case.open)
        name = key.rpartition("/")[2]
        if fails and name == "t1":
            case.fail(key, "boom", final=True)
        else:
            case.complete(key, [name, case.arguments(key)])
    return case


def done(case: Case) -> list[str]:
    return sorted(key.rpartition("/")[2] for key in case.completed())


@LAW
@given(flows(), st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.booleans())
def test_the_other_way_gives_the_same_tasks_and_outcome(
    document: dict[str, Any], first: int, second: int, fails: bool
) -> None:
    second += (first - second) % 5  # the same input
    before = play(document, first, fails)
    for way in ("data", "event", "rule"):
        try:
            made = rewrite(document, way)
        except Rejected as refused:
            FOUND[f"{way} refused" if refused.code == "rewrite-impossible" else "?"] += 1
            continue
        FOUND[way] += 1
        assert load_document(made).definition.orchestration == way
        after = play(made, second, fails)
        assert (before.status, before.code) == (after.status, after.code), (way, after.failure)
        if before.status == "COMPLETED":
            assert done(before) == done(after)
            assert before.result == after.result
        back = rewrite(made, "control")
        again = play(back, second, fails)
        assert (before.status, before.code) == (again.status, again.code), way
        if before.status == "COMPLETED":
            assert done(before) == done(again)
            assert before.result == again.result
        if way == "event":
            assert not any(task["type"] == "event" for task in back["tasks"].values())


@LAW
@given(flows())
def test_to_derive_what_is_derived_changes_nothing(document: dict[str, Any]) -> None:
    for way in ("data", "event", "rule"):
        try:
            made = rewrite(document, way)
        except Rejected:
            continue
        once = load_document(made).document
        assert load_document(once).document == once


def test_the_generator_reaches_all_ways(capsys: Any) -> None:
    with capsys.disabled():
        print("\nrewritten, or refused:", dict(sorted(FOUND.items())))
    assert "?" not in FOUND
    assert {"data", "event", "rule", "data refused", "event refused", "rule refused"} <= set(FOUND)
