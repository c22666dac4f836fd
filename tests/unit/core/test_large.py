"""No run dies of its size (SPEC 4.8): nothing here recurses, and what is finished costs nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.model import events as e
from penstock.model.codec import decode_event, decode_run, encode_event, encode_run
from penstock.model.run import SKIPPED, Run
from support.large import Large


def dag(tasks: int, seed: int) -> dict[str, Any]:
    """Each task follows up to three earlier ones, some links by chance, some tasks only if."""
    chance = random.Random(seed)
    made: dict[str, Any] = {}
    links: list[dict[str, Any]] = []
    for number in range(tasks):
        id = f"t{number}"
        made[id] = {"do": "x"}
        if chance.random() < 0.1:
            made[id]["when"] = chance.choice(["true", "false", "input % 2 == 0"])
        for source in (
            {chance.randrange(max(0, number - 50), number) for _ in range(3)} if number else ()
        ):
            link = {"from": f"t{source}", "to": id}
            if chance.random() < 0.3:
                link["when"] = chance.choice(
                    ["true", "false", "input % 3 == 0", f"tasks.t{source}.output == 1"]
                )
            links.append(link)
    return {"tasks": made, "links": links}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_dag_of_2000_tasks_runs_each_at_most_once_and_after_all_it_depends_on(seed: int) -> None:
    document = dag(2000, seed)
    large = Large(document, seed).play(seed, output=1)
    before: dict[str, list[str]] = {id: [] for id in document["tasks"]}
    for link in document["links"]:
        before[link["to"]].append(link["from"])

    assert large.run.status == "COMPLETED"
    assert len(large.begun) == len(set(large.begun))
    assert len(large.begun) > 200
    begun = set(large.begun)
    done: set[str] = set()
    begins = iter(_order(large))
    for what, key in begins:
        if what == "done":
            done.add(key)
        else:
            assert all(source in done or source not in begun for source in before[key]), key


def _order(large: Large) -> list[tuple[str, str]]:
    """Begins and ends in the order in which they happened, told by a replay."""
    flow = Flow(Run(id="large"), large.plan)
    found: list[tuple[str, str]] = []
    for event in large.events:
        if isinstance(event, e.TaskCompleted):
            found.append(("done", event.key))
        evolve(flow, event)
        found += [
            ("begun", effect.key) for effect in flow.effects if type(effect).__name__ == "Execute"
        ]
        flow.effects.clear()
    return found


def test_a_loop_of_10000_passes_keeps_the_state_small() -> None:
    large = Large(
        {"tasks": {"l": {"type": "loop", "while": "iteration < 10000", "body": {"do": "x"}}}}
    )
    large.play(output=1)

    assert large.run.status == "COMPLETED"
    assert large.count == 10_002
    assert large.begun[-1] == "l[10000]/x"


def test_a_natural_loop_of_10000_passes_keeps_the_state_small() -> None:
    large = Large(
        {
            "tasks": {"h": {"do": "x"}, "t": {"do": "x", "after": "h"}, "z": {"do": "x"}},
            "links": [
                {"from": "t", "to": "h", "when": "iteration < 10000"},
                {"from": "t", "to": "z", "when": "iteration >= 10000"},
            ],
        }
    )
    large.play()

    assert large.run.status == "COMPLETED"
    assert large.count == 20_003


def test_10000_passes_that_never_wait_are_one_event() -> None:
    large = Large(
        {
            "tasks": {
                "l": {
                    "type": "loop",
                    "while": "iteration < 10000",
                    "body": {"type": "transform", "set": {"v": "iteration"}},
                }
            },
            "outputs": {"v": "data.v"},
        }
    )

    assert large.run.status == "COMPLETED"
    assert large.run.result == b'{"v":10000}'
    assert large.count == 2


def test_a_flow_that_never_waits_and_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.links.ADVANCES_MAX", 20_000)
    large = Large(
        {
            "tasks": {
                "l": {
                    "type": "loop",
                    "while": "true",
                    "body": {"type": "transform", "set": {"v": "1"}},
                }
            }
        }
    )

    assert large.run.failure is not None
    assert large.run.failure.code == "advance-limit"


def test_a_map_over_50000_items_runs_at_most_its_limit_at_a_time() -> None:
    large = Large(
        {
            "tasks": {
                "m": {
                    "type": "map",
                    "items": "input",
                    "limit": 100,
                    "body": {"do": "x", "inputs": {"i": {"from": "item"}}},
                }
            }
        },
        list(range(50_000)),
        keep=False,
        batch=50,
    ).play(output=7)

    assert large.run.status == "COMPLETED"
    assert large.count == 50_002
    assert large.peak <= 100


def test_a_chain_of_3000_transforms_is_one_event_and_no_recursion() -> None:
    tasks = {f"t{i}": {"type": "transform", "set": {"v": f"{i}"}} for i in range(3000)}
    links = [{"from": f"t{i}", "to": f"t{i + 1}"} for i in range(2999)]

    large = Large({"tasks": tasks, "links": links, "outputs": {"v": "data.v"}})

    assert large.run.result == b'{"v":2999}'


def test_a_fan_of_5000_tasks_comes_back_from_a_snapshot() -> None:
    tasks: dict[str, Any] = {f"t{i}": {"do": "x"} for i in range(5000)}
    tasks["j"] = {"do": "x", "after": list(tasks)}
    large = Large({"tasks": tasks})
    half = large.ready[:2500]
    large.ready, rest = half, large.ready[2500:]
    large.play(output="o")
    snapshot = encode_run(large.run)
    assert encode_run(decode_run(snapshot)) == snapshot

    again = Flow(Run(id="large"), large.plan)
    for event in large.events:
        evolve(again, decode_event(encode_event(event)))
    assert encode_run(again.run) == snapshot

    large.flow = Flow(decode_run(snapshot), large.plan)
    large.ready = rest
    large.play(output="o")
    assert large.run.status == "COMPLETED"
    assert not any(
        state.status == SKIPPED
        for scope in large.run.scopes.values()
        for state in scope.tasks.values()
    )


def test_failing_one_of_5000_open_items_cancels_the_others_in_one_go() -> None:
    from penstock.model import commands as c
    from penstock.model.failure import Failure

    large = Large(
        {
            "tasks": {
                "m": {
                    "type": "map",
                    "items": "input",
                    "body": {"type": "loop", "until": "true", "body": {"do": "x"}},
                }
            }
        },
        list(range(5000)),
    )
    large._take([c.FailTask(at=1.0, key="m[7]/loop[1]/x", attempt=1, failure=Failure(code="boom"))])

    assert large.run.status == "FAILED"
