"""Every public function of runs, control and lists, with a wrong argument in every place (SPEC 4.4, 4.10).

The parameters are those of the signatures, so that a new one is walked too. Each call works, or is refused by an error
of ours that has a code and says what to do; none gives a traceback of Python's, and none hangs.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Engine, Run
from penstock.adapters.memory import MemoryStore
from penstock.model.token import Token, token_text
from penstock.ports.store import Query
from penstock.sdk.projection import Projection
from penstock.testing.harness import Harness, SkipClock, harness
from support.stores import Make
from support.wrong import WRONG, WRONG_FOR_STORES, complaint, named, places

DEFINITION = {
    "id": "d",
    "queries": {"seen": "input"},
    "tasks": {
        "s": {"type": "signal", "name": "go", "reply": "1"},
        "f": {"type": "form", "schema": {}},
    },
}


@pytest.fixture
async def engine(
    make_store: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    monkeypatch.chdir(tmp_path)  # some of the wrong values are good names of files
    clock = SkipClock()
    async with harness(store=make_store(clock=clock.now), clock=clock) as made:
        await made.register(DEFINITION)
        yield made


NUMBERS = itertools.count(1)


def given(cls: type, name: str, run: Run) -> dict[str, Any]:
    """What a call needs to go well, but for what stands in it."""
    token = token_text(Token(run.id, "s", 1, 1))
    needed: dict[str, Any] = {
        "definition": "d", "id": run.id if cls is not Engine else f"n{next(NUMBERS)}", "input": 1, "inputs": [1], "to": 1,
        "key": "f", "token": token, "values": {"a": 1}, "data": 1, "by": "ann", "signal": "go", "message": "m", "act": "accept",
        "listener": lambda _: None, "handler": lambda _: None, "types": None, "value": 1, "name": "go", "reason": "r",
    }  # fmt: skip
    special: dict[tuple[str, str], dict[str, Any]] = {
        ("Engine", "get"): {"id": run.id},
        ("Engine", "register"): {"source": DEFINITION},
        ("Run", "query"): {"name": "seen"},
        ("Run", "delegate"): {"to": "bob"},
    }
    return {**needed, **special.get((cls.__name__, name), {})}


OPEN_FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("Engine", "list"): Query.__struct_fields__,
    ("Engine", "set_global"): ("a", "b"),
}
"""What a `**parameter` may be named."""
UNWALKED = {"close", "result", "watch", "wait", "batch", "set_queue"}
"""Functions that wait for something, by design, or take nothing; the last two are walked in test_wrong_schedules.py."""


def functions(cls: type) -> list[tuple[str, Callable[..., Any]]]:
    found = inspect.getmembers(cls, inspect.isfunction)
    return [(n, f) for n, f in found if not n.startswith("_") and n not in UNWALKED]


async def subject(engine: Harness, cls: type) -> tuple[Any, Run]:
    run = await engine.start("d", 1)
    return (run if cls is Run else engine), run


async def call(function: Callable[..., Any], arguments: dict[str, Any], done: list[Any]) -> None:
    outcome = function(**arguments)
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if function.__name__ == "on":
        outcome.close()
    elif isinstance(outcome, Projection):
        await outcome.close(forget=True)  # with a useless handler it comes to no rest
    done.append(outcome)


@pytest.mark.parametrize("cls", [Run, Engine])
async def test_a_wrong_argument_works_or_is_refused_clearly(engine: Harness, cls: type) -> None:
    found: list[str] = []
    values = WRONG if isinstance(engine.core.store, MemoryStore) else WRONG_FOR_STORES
    for name, function in functions(cls):
        plain, required = places(function)
        whose, run = await subject(engine, cls)
        for place in [*plain, *OPEN_FIELDS.get((cls.__name__, name), ())]:
            for wrong in values:
                right = given(cls, name, run)
                arguments = {n: right[n] for n in required if n in right} | {place: wrong}
                done: list[Any] = []
                problem = await complaint(lambda: call(getattr(whose, name), arguments, done))  # noqa: B023
                if problem:
                    found.append(f"{cls.__name__}.{name}({place}={named(wrong)}): {problem}")
                if done:  # what was refused has changed nothing
                    await engine.settle()
                    whose, run = await subject(engine, cls)
        run = await engine.start("d", 1)  # nothing of it harmed the engine
        assert await run.status() == "WAITING", name
    assert not found, f"{len(found)} calls:\n" + "\n".join(found)
