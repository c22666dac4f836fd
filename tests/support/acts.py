"""Runs that are driven by lines of text, and what is open after each: `done pay 5 => ship`.

Activities wait until a line says what comes of them, so that the order of everything is the line's.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.adapters.memory import MemoryStore
from penstock.adapters.memory_bus import MemoryBus
from penstock.engine.engine import Engine as Core
from penstock.engine.recovery import Ownership
from penstock.engine.runs import LocalRuns
from penstock.engine.settings import Settings
from penstock.model.failure import Failure
from penstock.model.job import Broken, Done, Job, Outcome
from penstock.model.payload import encode_payload
from penstock.policy.durations import seconds
from penstock.sdk.client import Run
from penstock.testing.acting import Report, Stubs
from penstock.testing.harness import Harness, SkipClock


class Told(Stubs):
    """Stubs whose attempts are found by the key of their task, in whatever run it is."""

    def __init__(self) -> None:
        super().__init__()
        self._run_of: dict[str, str] = {}

    def begin(self, job: Job, report: Report) -> None:
        self._run_of[job.key] = job.run_id
        super().begin(job, report)

    def tell(self, key: str, outcome: Outcome) -> None:
        self.settle(self._run_of[key], key, outcome)


@asynccontextmanager
async def stage() -> AsyncGenerator[tuple[Harness, Told]]:
    """An engine in memory whose clock skips, and its activities."""
    clock, stubs = SkipClock(), Told()
    core = Core(
        MemoryStore(clock=clock.now),
        stubs,
        clock,
        bus=MemoryBus(clock),
        settings=Settings(drain_seconds=0),
    )
    ownership = Ownership(core)
    runs = LocalRuns(core, ownership)
    await core.open()
    await ownership.open(keep=False)
    try:
        yield Harness(core, runs, clock), stubs
    finally:
        await runs.close()


async def seen(engine: Harness, stubs: Told, definition: str, acts: Sequence[str]) -> list[str]:
    """The acts, each with what is open after it (without what only holds others); last, how the run ended."""
    lines: list[str] = []
    run: Run | None = None
    for act in acts:
        if run is None:
            run = await engine.start(definition, _value(act.removeprefix("start")))
        else:
            await _do(engine, stubs, run, act)
        await engine.settle()
        view = await run.show()
        open_ = [key for key in view.current_tasks if not _holds(key, view.current_tasks)]
        lines.append(f"{act} => {', '.join(open_)}".rstrip())
    assert run is not None
    status = await run.status()
    ended = await run.show()
    left = [
        f"{task.key} {task.status}"
        for task in ended.tasks
        if task.status not in ("COMPLETED", "SKIPPED")
    ]
    return [*lines, ", ".join([status, *left])]


async def _do(engine: Harness, stubs: Told, run: Run, act: str) -> None:
    verb, _, rest = act.partition(" ")
    what, _, value = rest.partition(" ")
    match verb:
        case "done":
            stubs.tell(what, Done(encode_payload(_value(value))))
        case "fail":
            stubs.tell(what, Broken(Failure(code=value, message=value), final=True))
        case "signal":
            await run.signal(what, _value(value))
        case "later":
            await engine.skip(seconds(what))
        case "cancel":
            await run.cancel()
        case _:
            raise AssertionError(f"`{verb}` is no act")


def _value(text: str) -> Any:
    return json.loads(text) if text.strip() else None


def _holds(key: str, others: Sequence[str]) -> bool:
    return any(other.startswith((f"{key}[", f"{key}/")) for other in others)
