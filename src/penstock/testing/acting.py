"""A Scenario acted on a real engine: does it do what the report says?

The engine is the one that runs everything, on a memory store and a clock that skips. Activities are stubs that wait until
the scenario says what comes of them; definitions that `subworkflow` tasks name are stubs too, so that their runs end as it
says. What is then seen is read from the stored history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.adapters.memory import MemoryStore
from penstock.adapters.memory_bus import MemoryBus
from penstock.core.plan import Plan
from penstock.dsl.load import Loaded
from penstock.engine.engine import Engine as Core
from penstock.engine.recovery import Ownership
from penstock.engine.runs import LocalRuns
from penstock.engine.settings import Settings
from penstock.errors import PenstockError
from penstock.model import events as e
from penstock.model.failure import Failure
from penstock.model.job import Broken, Cut, Done, Job, Outcome
from penstock.model.payload import encode_payload
from penstock.ports.activities import Served
from penstock.ports.runs import HistoryItem
from penstock.sdk.client import Run
from penstock.testing.harness import Harness, SkipClock
from penstock.verify.rehearsal import BEGIN, Rehearsal, Stage, Unplayable, judge
from penstock.verify.scenario import (
    BusEvent,
    Complete,
    EndChild,
    Fail,
    Fire,
    Scenario,
    Signal,
    Step,
    Submit,
)
from penstock.verify.verification import Signature

CHILD = "ends-as-the-scenario-says"
CHILD_TASK = "it"
RUN_ID = "counterexample"
Report = Callable[[Job, Outcome], None]


@dataclass(slots=True)
class Moment:
    """A step, and the events that came of it; without a step: the start."""

    step: Step | None
    items: list[HistoryItem] = field(default_factory=list[HistoryItem])


@dataclass(slots=True)
class Performance:
    """What was seen on the engine."""

    moments: list[Moment]
    seen: Rehearsal
    """`seen.shown`: it does what the report says."""
    twin: list[Moment] | None = None
    """The same in the other order, if the scenario has one."""


async def act(loaded: Loaded, scenario: Scenario) -> Performance:
    """Run it, and look."""
    plan = Plan(loaded.definition, loaded.vocabulary)
    moments, stage, stopped = await _acted(loaded, plan, scenario.input, scenario.steps)
    if scenario.shows.twin is None or stopped:
        seen = judge(scenario, stage, None, stopped)
        return Performance(moments, seen)
    twin, other, stopped = await _acted(loaded, plan, scenario.input, scenario.shows.twin)
    return Performance(moments, judge(scenario, stage, other, stopped), twin)


async def _acted(
    loaded: Loaded, plan: Plan, input: Any, steps: tuple[Step, ...]
) -> tuple[list[Moment], Stage, str]:
    """What happened step by step, the run as its stored events say, and what stopped it."""
    clock = SkipClock(BEGIN)  # as rehearsed: conditions may ask for the time
    stubs = Stubs()
    settings = Settings(drain_seconds=0, max_concurrent_tasks_per_node=100_000)
    core = Core(MemoryStore(clock=clock.now), stubs, clock, bus=MemoryBus(clock), settings=settings)
    ownership = Ownership(core)
    runs = LocalRuns(core, ownership)
    await core.open()
    await ownership.open(keep=False)
    harness = Harness(core, runs, clock)
    try:
        actor = Actor(harness, stubs, plan)
        stopped = await actor.play(loaded, input, steps)
        return actor.moments, actor.stage, stopped
    finally:
        await runs.close()


class Actor:
    """One run of one scenario."""

    def __init__(self, harness: Harness, stubs: Stubs, plan: Plan) -> None:
        self._harness, self._stubs, self._plan = harness, stubs, plan
        self._run: Run | None = None
        self.moments: list[Moment] = []
        self.stage = Stage(plan)

    async def play(self, loaded: Loaded, input: Any, steps: tuple[Step, ...]) -> str:
        """What stood in the way, if anything did."""
        try:
            kept = await self._harness.register(loaded, force="a counterexample is acted")
            await self._children(kept.id)
            self._run = await self._harness.start(kept.id, input, id=RUN_ID, version=kept.version)
            await self._look(None)
        except PenstockError as error:
            return f"the start is refused: {error.code}: {error.message}"
        for number, step in enumerate(steps, 2):
            try:
                await self._step(step)
            except Unplayable as unplayable:
                return f"step {number}: {unplayable}"
            except PenstockError as error:
                return f"step {number}: {error.code}: {error.message}"
            await self._look(step)
        return ""

    async def _children(self, own: str) -> None:
        """A definition for each that a `subworkflow` task names."""
        for scope in self._plan.scopes.values():
            for node in scope.nodes.values():
                if node.type != "subworkflow":
                    continue
                document: dict[str, Any] = {
                    "id": node.config["definition"],
                    "tasks": {CHILD_TASK: {"do": CHILD}},
                }
                version = node.config.get("version")
                if version:
                    document["version"] = version
                if version and document["id"] == own:
                    continue  # it begins itself, as it is
                await self._harness.register(document, force="a stub")

    async def _look(self, step: Step | None) -> None:
        """Until nothing happens by itself any more; then what is new in the history."""
        assert self._run is not None
        await self._harness.settle()
        items = await self._run.history()
        new = items[len(self.stage.events) :]
        self.moments.append(Moment(step, new))
        self.stage.recall([item.event for item in items])

    async def _step(self, step: Step) -> None:
        run = self._run
        assert run is not None
        match step:
            case Complete():
                self._stubs.settle(RUN_ID, step.key, Done(encode_payload(step.output)))
            case Fail():
                failure = Failure(code=step.code, message=step.message or step.code)
                self._stubs.settle(RUN_ID, step.key, Broken(failure, final=True))
            case Fire():
                await self._harness.skip(max(0.0, self._due(step.key) - self._harness.clock.now()))
            case Signal():
                await run.signal(step.name, step.payload)
            case Submit():
                await run.submit(step.key, step.output)
            case BusEvent():
                about = {"workflow_id": RUN_ID}
                await self._harness.bus.publish(
                    step.topic, step.data, type=step.kind, metadata=about
                )
            case EndChild():
                self._end_child(step)

    def _due(self, key: str) -> float:
        state = self.stage.tasks.get(key)
        dues = [] if state is None else [d for d in (state.due, state.deadline) if d is not None]
        if not dues:
            raise Unplayable(f"`{key}` waits for no time")
        return min(dues)

    def _end_child(self, step: EndChild) -> None:
        begun = [
            event.run
            for event in self.stage.events
            if isinstance(event, e.ChildStarted) and event.key == step.key
        ]
        if not begun:
            raise Unplayable(f"`{step.key}` has begun no run")
        if step.code:
            failure = Failure(code=step.code, message=step.code)
            self._stubs.settle(begun[-1], CHILD_TASK, Broken(failure, final=True))
            return
        with suppress(Unplayable):  # a detached one has ended for its parent when it began
            self._stubs.settle(begun[-1], CHILD_TASK, Done(encode_payload(step.output)))


class Stubs:
    """Activities that wait until they are told what came of them (`ports/activities.py`)."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[Job, Report]] = {}

    def settle(self, run_id: str, key: str, outcome: Outcome) -> None:
        """Unplayable if that task has no attempt under way."""
        held = self._open.pop((run_id, key), None)
        if held is None:
            raise Unplayable(f"`{key}` has no attempt under way")
        job, report = held
        report(job, outcome)

    def get(self, name: str) -> Served | None:
        return Served(name=name, kind="loop", open_ended=True)

    def names(self) -> list[str]:
        return []

    def signature(self, name: str) -> Signature | None:
        return None

    def begin(self, job: Job, report: Report) -> None:
        if job.undo:
            asyncio.get_running_loop().call_soon(report, job, Done(b"null"))
        else:
            self._open[job.run_id, job.key] = (job, report)

    def perform(self, job: Job) -> Outcome:
        raise AssertionError("no stub is transactional")

    def cancel(self, run_id: str, key: str, attempt: int) -> None:
        held = self._open.get((run_id, key))
        if held is not None and held[0].attempt == attempt:
            del self._open[run_id, key]
            failure = Failure(code="cancelled", message="it was told to stop")
            asyncio.get_running_loop().call_soon(held[1], held[0], Broken(failure))

    def on_heartbeat(self, listener: Callable[[Job, Any], None]) -> None:
        """None beats."""

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self, *, drain_seconds: float) -> None:
        for job, report in self._open.values():
            report(job, Cut())
        self._open.clear()
