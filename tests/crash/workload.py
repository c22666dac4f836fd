"""Mixed runs for processes that die: definitions, activities that leave a trace, and what must come of each run.

Every run is known by its number alone, so that a later life goes on with what an earlier one began. Expected results are
computed here in plain Python, not read from the engine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock import Fail, activity
from penstock.engine import points
from penstock.sdk.attempt import current

_log = -1
seconds_max = 0.004
"""How long an activity takes at most; how long exactly follows from its run, key and attempt."""


def trace_to(path: str) -> None:
    """Lines of this process go to that file: each one write, so that a kill leaves whole lines."""
    global _log
    _log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def trace(*words: object) -> None:
    line = " ".join(map(str, words)) + "\n"
    os.write(_log, line.encode())


def _begin(*, undo: bool = False) -> tuple[str, ...]:
    here = current()
    generation = here.job.generation
    run = here.run_id if generation == 1 else f"{here.run_id}~{generation}"
    words = (run, ("undo:" if undo else "") + here.key, str(here.attempt))
    trace("begin", *words)
    return words


async def _during(words: tuple[str, ...]) -> None:
    share = (sum(map(ord, "".join(words))) % 7) / 7
    await asyncio.sleep(share * seconds_max)


@activity
async def step(value: int, add: int = 0) -> int:
    words = _begin()
    await _during(words)
    trace("end", *words)
    return value + add


@activity
def step_in_thread(value: int, add: int = 0) -> int:
    words = _begin()
    trace("end", *words)
    return value + add


@activity
async def total(values: list[Any]) -> int:
    words = _begin()
    trace("end", *words)
    return sum(values)


@activity
async def text(size: int) -> str:
    words = _begin()
    await _during(words)
    trace("end", *words)
    return "x" * size


@activity
async def length(text: str) -> int:
    words = _begin()
    trace("end", *words)
    return len(text)


@activity
async def flaky(value: int) -> int:
    words = _begin()
    await _during(words)
    if current().attempt <= 2:
        raise RuntimeError("not yet")
    trace("end", *words)
    return value


@activity
async def deaf(value: int) -> int:
    """Told to stop, it does what it was to do all the same."""
    words = _begin()
    told = False
    try:
        await asyncio.sleep(0.2)  # until it is told, in these workflows
    except asyncio.CancelledError:
        told = True
        if points.reach is not None:
            points.reach("deaf.told")
    await _during(words)
    trace("end", *words)
    if told and points.reach is not None:
        points.reach("deaf.done")
    return value


@activity
async def broken() -> None:
    _begin()
    raise Fail("broken for good", code="broken")


@activity
async def undo(value: int) -> None:
    words = _begin(undo=True)
    await _during(words)
    trace("end", *words)


@activity
async def shaky(value: int) -> None:
    """An undo that fails at first."""
    words = _begin(undo=True)
    if current().attempt == 1:
        raise RuntimeError("not yet")
    trace("end", *words)


ACTIVITIES = [step, step_in_thread, total, text, length, flaky, deaf, broken, undo, shaky]

N = {"from": "input", "path": "$.n"}


def _step(value: Any, add: int, *after: str, **more: Any) -> dict[str, Any]:
    task = {"do": "step", "inputs": {"value": value, "add": {"value": add}}, **more}
    return {**task, "after": list(after)} if after else task


UNDO = {"do": "undo", "inputs": {"value": N}}

SNAPSHOT_EVENTS = 8
"""After so many there is a snapshot."""
WORKFLOWS: list[Any] = []
"""Functions have a book of their own: `functions.py`."""

DEFINITIONS: list[dict[str, Any]] = [
    {
        "id": "sequence",
        "tasks": {
            "a": _step(N, 1),
            "b": {
                "do": "step_in_thread",
                "after": ["a"],
                "inputs": {"value": {"from": "a"}, "add": {"value": 10}},
            },
            "c": _step({"from": "b"}, 100, "b"),
        },
    },
    {
        "id": "rounds",
        "tasks": {
            "work": _step(
                {"from": "data", "path": "$.done"},
                1,
                onComplete=[{"set": {"done": "tasks.work.output"}}],
            ),
            "check": _step({"from": "work"}, 0, "work"),
            "last": _step({"from": "data", "path": "$.done"}, 1000),
        },
        "links": [
            {"from": "check", "to": "work", "when": "data.done < 4"},
            {"from": "check", "to": "last", "when": "data.done >= 4"},
        ],
        "data": {"done": 0},
    },
    {
        "id": "passes",
        "tasks": {
            "again": {
                "type": "loop",
                "until": "data.sum >= 6",
                "body": {
                    "tasks": {
                        "tick": _step(
                            {"from": "data", "path": "$.sum"},
                            2,
                            onComplete=[{"set": {"sum": "tasks.tick.output"}}],
                        )
                    }
                },
            },
            "last": {
                "do": "step",
                "after": ["again"],
                "inputs": {"value": {"from": "data", "path": "$.sum"}, "add": N},
            },
        },
        "data": {"sum": 0},
    },
    {
        "id": "items",
        "tasks": {
            "each": {
                "type": "map",
                "items": "input.items",
                "limit": 3,
                "body": _step({"from": "item"}, 1),
            },
            "sum": {"do": "total", "after": ["each"], "inputs": {"values": {"from": "each"}}},
        },
    },
    {
        "id": "letters",
        "tasks": {
            "first": _step(N, 1),
            "one": {"type": "signal", "name": "go", "after": ["first"]},
            "two": {"type": "signal", "name": "go", "after": ["one"]},
            "last": {
                "do": "step",
                "after": ["two"],
                "inputs": {"value": {"from": "one"}, "add": {"from": "two"}},
            },
        },
        "outputs": {"sum": "tasks.last.output", "first": "tasks.one.output"},
    },
    {
        "id": "nap",
        "tasks": {
            "a": _step(N, 1),
            "sleep": {"type": "timer", "delay": "20ms", "after": ["a"]},
            "b": _step({"from": "a"}, 10, "sleep"),
        },
    },
    {
        "id": "race",
        "tasks": {
            "wait": {"type": "gateway", "kind": "event"},
            "answer": {"type": "signal", "name": "answer", "after": ["wait"]},
            "silence": {"type": "timer", "delay": "${input.delay}", "after": ["wait"]},
            "answered": _step({"from": "answer"}, 1, "answer"),
            "silent": _step({"value": -1}, 0, "silence"),
        },
        "outputs": {"answered": "tasks.answered.status", "silent": "tasks.silent.status"},
    },
    {
        "id": "stubborn",
        "tasks": {
            "hard": {
                "do": "flaky",
                "inputs": {"value": N},
                "retry": {"attempts": 6, "first": "5ms", "factor": 1},
            },
            "last": _step({"from": "hard"}, 1, "hard"),
        },
    },
    {
        "id": "saga",
        "tasks": {
            "a": _step(N, 1, compensate=UNDO),
            "b": _step(N, 2, "a", compensate=UNDO),
            "c": {"do": "broken", "after": ["b"]},
        },
    },
    {
        "id": "booked",
        "tasks": {
            "x": _step(N, 1, compensate=UNDO),
            "y": _step({"from": "x"}, 1, "x", compensate=UNDO),
        },
    },
    {
        "id": "family",
        "tasks": {
            "child": {"type": "subworkflow", "definition": "sequence", "inputs": {"n": N}},
            "last": _step({"from": "child"}, 1000, "child"),
        },
    },
    {
        "id": "trip",
        "tasks": {
            "child": {"type": "subworkflow", "definition": "booked", "inputs": {"n": N}},
            "c": {"do": "broken", "after": ["child"]},
        },
    },
    {
        "id": "ledger",
        "tasks": {
            "left": {"type": "mutex", "name": "book", "body": {"tasks": {"put": _step(N, 1)}}},
            "right": {"type": "mutex", "name": "book", "body": {"tasks": {"put": _step(N, 2)}}},
            "sum": {
                "do": "step",
                "after": ["left", "right"],
                "inputs": {"value": {"from": "left"}, "add": {"from": "right"}},
            },
        },
    },
    {
        "id": "sender",
        "tasks": {
            "a": _step(
                N,
                1,
                onComplete=[
                    {"signal": {"run": "${input.to}", "name": "go", "payload": "${tasks.a.output}"}}
                ],
            ),
            "b": _step({"from": "a"}, 1, "a"),
        },
    },
    {
        "id": "receiver",
        "tasks": {
            "go": {"type": "signal", "name": "go"},
            "last": _step({"from": "go"}, 1, "go"),
        },
    },
    {
        "id": "quits",
        "tasks": {
            "a": _step(N, 1, compensate=UNDO),
            "b": _step(N, 1, "a", compensate=UNDO),
            "never": {"type": "signal", "name": "never", "after": ["b"]},
        },
    },
    {
        # Fails while tasks are under way that do not hear of it: what they do is undone, as all the rest.
        "id": "torn",
        "tasks": {
            "a": {
                "do": "step_in_thread",
                "inputs": {"value": N, "add": {"value": 1}},
                "compensate": UNDO,
            },
            "each": {
                "type": "map",
                "items": "input.items",
                "after": ["a"],
                "body": {
                    "do": "deaf",
                    "inputs": {"value": {"from": "item"}},
                    "compensate": {"do": "undo", "inputs": {"value": {"from": "item"}}},
                },
            },
            "alone": {"do": "deaf", "after": ["a"], "inputs": {"value": N}, "compensate": UNDO},
            "bad": {"do": "broken", "after": ["a"]},
        },
    },
    {
        "id": "parcel",
        "tasks": {
            "make": {"do": "text", "inputs": {"size": N}},
            "measure": {"do": "length", "after": ["make"], "inputs": {"text": {"from": "make"}}},
        },
    },
]


BACKFILLED = "2020-01-01T00:00:00Z"


@dataclass(frozen=True)
class Wanted:
    """One run: what is asked of it, in order, and what must come of it."""

    id: str
    definition: str
    input: Any
    result: Any = None
    status: str = "COMPLETED"
    code: str = ""
    """Of the failure."""
    undone: tuple[str, ...] | None = ()
    """Keys, in order; None: all that was done (of a function: by `step`), in reverse."""
    signals: tuple[tuple[str, Any], ...] = ()
    pauses: bool = False
    cancels: bool = False
    how: str = "start"
    """How it is started: by itself, or by a schedule's backfill, a debounced or a singleton start."""
    children: tuple[str, ...] = field(default=())
    updates: tuple[tuple[str, Any, Any], ...] = ()
    """Name, payload, and what is answered."""
    must: tuple[str, ...] = ()
    """Steps that are done, however the run ends."""
    generations: int = 1


def torn(i: int) -> Wanted:
    input = {"n": i, "items": list(range(8))}
    return Wanted(f"torn-{i}", "torn", input, status="FAILED", code="broken", undone=None)


def _kinds() -> list[Callable[[int], Wanted]]:
    def run(kind: str, i: int, input: Any, result: Any = None, **more: Any) -> Wanted:
        return Wanted(f"{kind}-{i}", kind, input, result, **more)

    def items(i: int) -> Wanted:
        values = [(i + k) % 50 for k in range(8)]
        return run("items", i, {"items": values}, sum(values) + 8, pauses=i % 3 == 0)

    return [
        lambda i: run("sequence", i, {"n": i}, i + 111),
        lambda i: run("rounds", i, {"n": i}, 1004),
        lambda i: run("passes", i, {"n": i}, 6 + i),
        items,
        lambda i: run(
            "letters", i, {"n": i}, {"sum": i + 7, "first": i}, signals=(("go", i), ("go", 7))
        ),
        lambda i: run("nap", i, {"n": i}, i + 11),
        lambda i: run(
            "race",
            i,
            {"delay": "1h"},
            {"answered": "COMPLETED", "silent": "SKIPPED"},
            signals=(("answer", i),),
        ),
        lambda i: run("race", i, {"delay": "15ms"}, {"answered": "SKIPPED", "silent": "COMPLETED"}),
        lambda i: run("stubborn", i, {"n": i}, i + 1),
        lambda i: run("saga", i, {"n": i}, status="FAILED", code="broken", undone=("b", "a")),
        lambda i: run("family", i, {"n": i}, i + 1111, children=("child",)),
        lambda i: run(
            "trip",
            i,
            {"n": i},
            status="FAILED",
            code="broken",
            undone=("child/y", "child/x"),
            children=("child",),
        ),
        lambda i: run("ledger", i, {"n": i}, 2 * i + 3),
        lambda i: run("receiver", i, {"n": i}, i + 1),
        # Sent to the receiver before it, and both are to end.
        lambda i: run("sender", i, {"n": i - 2, "to": f"receiver-{i - 1}"}, i),
        lambda i: run(
            "quits", i, {"n": i}, status="CANCELLED", code="cancelled", undone=None, cancels=True
        ),
        lambda i: run("parcel", i, {"n": 5000 + i}, 5000 + i),
        lambda i: Wanted(f"timed-{i}/{BACKFILLED}", "sequence", {"n": i}, i + 111, how="schedule"),
        lambda i: Wanted(f"late-{i}", "sequence", {"n": i}, i + 111, how="debounce"),
        lambda i: Wanted(f"only-{i}", "sequence", {"n": i}, i + 111, how="singleton"),
        torn,
    ]


KINDS = _kinds()


def wanted(number: int) -> Wanted:
    return KINDS[number % len(KINDS)](number)
