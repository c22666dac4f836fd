"""Scenarios of the engine's own simulation: a seed says which runs there are, what people do and what breaks.

Each seed draws its own weather: some faults often, some never, so that what hides behind another is found too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from random import Random
from typing import Any

from msgspec.structs import replace

from penstock.core.plan import Plan
from penstock.model.schedule import OVERLAPS
from penstock.ports.store import DefinitionRow
from penstock.testing.faults import KINDS, Fault
from penstock.testing.simulator import Deed, Scenario, Start, Timetable, Workload, definition_row
from simulation.activities import ACTIVITIES, INSIDE, booked
from simulation.functions import FUNCTIONS, STARTED
from support.definitions import CHILD, Making, document_of

POOL = 300
"""Definitions by chance that scenarios choose from."""
SECONDS = 25.0
"""Of virtual time in which things break."""

ACTS = (
    "cancel", "cancel", "terminate", "pause", "pause", "snapshot", "snapshot", "signal", "retry", "reset",
    "attributes", "resume", "fire", "skip",
)  # fmt: skip

FIVE: dict[str, Any] = {
    "id": "five",
    "tasks": {
        f"t{i}": {
            "do": "x",
            **({"after": f"t{i - 1}"} if i else {}),
            "retry": {"attempts": 6, "first": 0.2},
        }
        for i in range(5)
    },
}
NAP: dict[str, Any] = {
    "id": "nap",
    "tasks": {
        "a": {"do": "x", "retry": {"attempts": 5, "first": 0.1}},
        "wait": {"type": "timer", "delay": "3s", "after": "a"},
        "b": {"do": "x", "after": "wait", "compensate": "undo"},
        "go": {"type": "signal", "name": "go", "timeout": "10s", "after": "b"},
        "again": {"type": "timer", "delay": "500ms", "after": "go"},
        "c": {"do": "x", "after": "again"},
    },
}
ASKED: dict[str, Any] = {
    "id": "asked",
    "tasks": {
        "a": {"do": "x", "retry": {"attempts": 5, "first": 0.1}},
        "ask": {
            "type": "signal",
            "name": "ask",
            "reply": "tasks.a.output",
            "timeout": "25s",
            "after": "a",
        },
        "b": {"do": "x", "after": "ask", "compensate": "undo"},
    },
}
BOOKS: dict[str, Any] = {
    "id": "books",
    "tasks": {
        "a": {"do": "x", "retry": {"attempts": 5, "first": 0.1}},
        "book1": {"do": "book", "after": "a", "retry": {"attempts": 8, "first": 0.1}},
        "book2": {"do": "book", "after": "a", "retry": {"attempts": 8, "first": 0.1}},
        "book3": {"do": "book", "after": ["book1", "book2"], "compensate": "undo"},
    },
}


@cache
def definition(number: int) -> tuple[DefinitionRow, Plan]:
    """The definition of that number, the same in every process."""
    chance = Random(f"definition {number}")
    making = Making(chance.choice, chance.randint, calm=False)
    return definition_row({**document_of(making), "id": f"flow{number}"})


@lru_cache(maxsize=1)
def _fixed() -> list[tuple[DefinitionRow, Plan]]:
    return [definition_row(each) for each in (CHILD, FIVE, NAP, ASKED, BOOKS)]


def workload_of(scenario: Scenario) -> Workload:
    """What a scenario needs."""
    numbers = {int(s.definition[4:]) for s in scenario.starts if s.definition.startswith("flow")}
    definitions = [*_fixed(), *(definition(number) for number in sorted(numbers))]
    activities = INSIDE if scenario.store == "sqlite" else ACTIVITIES
    return Workload(definitions, FUNCTIONS, activities, audit=booked)


def scenario_of(
    seed: int, *, store: str | None = None, only: Sequence[str] = (), runs: int = 0
) -> Scenario:
    """Every fourth is on SQLite, unless `store` says otherwise; `only` and `runs` say what is started, and how often."""
    chance = Random(f"scenario {seed}")
    count = chance.choice([3, 6, 10, 16])
    starts = [_start(chance, seed, number, only) for number in range(runs or count)]
    if seed % 16 in (7, 11) and not only:  # on SQLite: what is inside of transactions
        for number, start in enumerate(starts[::2]):
            name = ("books", "fn_book")[number % 2]
            starts[2 * number] = replace(start, definition=name, input={"n": start.input["n"]})
    nodes = chance.choice([1, 2, 2, 3])
    return Scenario(
        seed=seed,
        store=store or ("sqlite" if seed % 4 == 3 else "memory"),
        nodes=nodes,
        starts=starts,
        deeds=_deeds(chance, starts),
        schedules=_schedules(chance, seed, only),
        faults=_faults(chance, nodes),
        cache_runs=chance.choice([0, 3, 1000, 1000, 1000]),
        tasks_max=chance.choice([1, 3, 1000, 1000]),
    )


def _start(chance: Random, seed: int, number: int, only: Sequence[str]) -> Start:
    kind = chance.random()
    if only:
        name = chance.choice(only)
    elif kind < 0.4:
        name = f"flow{chance.randrange(POOL)}"
    elif kind < 0.55:
        name = chance.choice(["five", "nap", "asked", "books"])
    else:
        name = chance.choice(STARTED).__name__
    id = "run" if number == 0 else f"s{seed}-{number}"
    given: dict[str, Any] = {"n": chance.randrange(6)}
    if not name.startswith("fn_"):
        given["items"] = [1, 2, 3][: chance.randrange(4)]
    return Start(round(chance.random() * 6, 3), id, name, given)


def _schedules(chance: Random, seed: int, only: Sequence[str]) -> list[Timetable]:
    if only or chance.random() > 0.2:
        return []
    name = chance.choice(["five", "nap", "fn_steps", "fn_nap", "fn_cart"])
    until = chance.choice([12.0, 20.0, 28.0])
    overlap = chance.choice(OVERLAPS)
    every = chance.choice([3.0, 4.0, 7.0])
    at = round(chance.random() * 4, 3)
    return [Timetable(at, f"plan{seed}", name, every, until, overlap, {"n": 1})]


def _deeds(chance: Random, starts: list[Start]) -> list[Deed]:
    found: list[Deed] = []
    for start in starts:
        if chance.random() < 0.35:
            act = chance.choice(ACTS)
            name = chance.choice(["go", "stop", "approve", "add"]) if act == "signal" else ""
            found.append(Deed(round(start.at + chance.random() * 15, 3), act, start.id, name))
    return found


def _faults(chance: Random, nodes: int) -> list[Fault]:
    faults: list[Fault] = []
    for kind in KINDS:
        if chance.random() < 0.45:
            continue
        for _ in range(chance.choice([1, 1, 2, 4])):
            faults.append(
                Fault(
                    round(chance.random() * SECONDS, 3),
                    kind,
                    chance.randrange(nodes),
                    _amount(chance, kind),
                )
            )
    return sorted(faults, key=lambda each: each.at)


def _amount(chance: Random, kind: str) -> float:
    match kind:
        case "crash" | "power":
            return float(chance.choice([0, 3, 20, 60, 200]) + chance.randrange(20))
        case "jump":
            return chance.choice([-30.0, -2.0, 0.5, 7.0, 40.0])
        case "stall" | "cut":
            return chance.choice([0.5, 3.0, 9.0])
        case "late":
            return chance.random() * 3
        case _:
            return chance.choice([0.3, 1.0, 4.0])
