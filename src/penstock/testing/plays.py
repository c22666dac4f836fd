"""One play of somebody's workflows: the simulation of `testing/simulator.py` with their activities, world and people (SPEC 13)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import Raw, Struct

from penstock.core.keys import static
from penstock.model import events as e
from penstock.model import intents as i
from penstock.model.codec import decode_event
from penstock.model.job import Job
from penstock.model.run import Run
from penstock.ports.store import Append
from penstock.sdk.functions import Functions
from penstock.sdk.guard import Guard
from penstock.sdk.loop import Loop
from penstock.sdk.replay import Place, Read, Replay, line_of
from penstock.testing.apps import App
from penstock.testing.faults import Fault
from penstock.testing.findings import Finding
from penstock.testing.judging import Judge, Shadow
from penstock.testing.nodes import Node
from penstock.testing.pretending import (
    LATE,
    LOST,
    REFUSED,
    SECONDS_LEAST,
    SECONDS_MOST,
    TRANSIENT,
    UNDO_TRANSIENT,
    Call,
    Calls,
    Troupe,
)  # fmt: skip
from penstock.testing.scenario import Result, Scenario, Workload
from penstock.testing.simulator import Simulation
from penstock.testing.visitors import QUIET_SECONDS, Visitors
from penstock.testing.worlds import Effect, Ended, Standing, Teller, World

PATIENCE_SECONDS = 90.0
STEPS_MAX = 60_000
"""A play that takes more is given up, and counted."""
ATTEMPTS_MAX = 12
"""Later ones go well, whatever happens: who tries for ever gets there."""
_OURS = str(Path(__file__).resolve().parents[1])
_RUN = Loop.run.__code__
_ASYNCIO = str(Path(asyncio.__file__).parent)
_STANDARD = str(Path(asyncio.__file__).parents[1])


class Setup(Struct, frozen=True):
    """All that a play depends on, beside the code."""

    scenario: Scenario
    level: str = "rough"
    calm: bool = False
    """Nothing fails, and everybody answers."""
    pace: str = ""
    """Durations are drawn under this name."""
    stretch: float = 1.0
    paces: Mapping[str, float] = {}
    """Durations of single calls."""
    guard: bool = False
    """Workflow code is watched for what would make it nondeterministic."""
    spared: frozenset[str] = frozenset()
    """Attempts that go well, whatever was drawn."""


class Moment(Struct):
    """Something that happened."""

    at: float
    run: str
    what: Any
    """An event that was stored, an Effect, or words."""


class Witness(Judge):
    """A judge that remembers what happened."""

    play: Play

    def __init__(self) -> None:
        super().__init__()
        self._again = False

    def _after(self, shadow: Shadow, event: e.Event) -> None:
        super()._after(shadow, event)
        if not self._again:
            self.play.tell(shadow.flow.run.id, event)

    def taken_back(self, append: Append) -> None:
        self._again = True
        try:
            super().taken_back(append)
        finally:
            self._again = False
        number = len(append.payloads)
        story = self.play.story
        for place in range(len(story) - 1, -1, -1):
            if (
                number
                and story[place].run == append.row.id
                and isinstance(story[place].what, e.EVENT_TYPES)
            ):
                del story[place]
                number -= 1


class Placed(Replay):
    """A function whose steps say where they are written, and what they read."""

    places: dict[tuple[str, str], str]
    types: dict[tuple[str, str], Any]

    def want(self, intent: i.Intent, place: Place | None = None) -> None:
        super().want(intent, place)
        key = getattr(intent, "key", "")
        if key and not isinstance(intent, i.Drop):
            self._note(key, place)

    def wait(
        self, step: i.Waiting, read: Read | None, place: Place | None
    ) -> Generator[Any, Any, Any]:
        self._note(step.key, place)
        if isinstance(step, i.Await):
            self.types[self.workflow.name, step.key] = getattr(read, "annotation", Any)
        return super().wait(step, read, place)

    def _note(self, key: str, place: Place | None) -> None:
        index = self.workflow.name, key
        if index not in self.places:
            self.places[index] = _outside(place)


class PlacedFunctions(Functions):
    def __init__(self, functions: Sequence[Any], play: Play) -> None:
        super().__init__(functions)
        self._play = play
        self._guarded = play.setup.guard

    def begin(self, run: Run) -> Replay | None:
        found = self.get(run.definition)
        if found is None:
            return None
        program = Placed.__new__(Placed)
        program.places, program.types = self._play.places, self._play.types
        guard = Guard(found.function) if self._guarded else None
        program.__init__(found, run, self._contexts, guard)
        return program


class Play(Simulation, Teller):
    """See the module's docstring."""

    people = Visitors
    judging = Witness
    steps_max = STEPS_MAX

    def __init__(self, troupe: Troupe, setup: Setup, folder: str | None = None) -> None:
        self.app: App = troupe.app
        self.setup, self._troupe = setup, troupe
        self.places: dict[tuple[str, str], str] = {}
        """Of steps of functions, by workflow and key."""
        self.types: dict[tuple[str, str], Any] = {}
        """What signals are read as."""
        self.story: list[Moment] = []
        self.found: list[Finding] = []
        self.guessed: dict[str, str] = {}
        """Runs that were given something of which no type is known, and what."""
        self.mishaps: dict[str, str] = {}
        """Attempts that did not go well."""
        self.taken: dict[str, float] = {}
        """How long calls took."""
        self.standing = Standing()
        self._calls = Calls()
        self._said: set[str] = set()
        workload = Workload(
            self.app.rows, self.app.functions, entries=troupe.entries,
            functions=lambda functions: PlacedFunctions(functions, self), secrets=lambda name: f"secret-{name}",
        )  # fmt: skip
        super().__init__(setup.scenario, workload, folder)
        assert isinstance(self.judge, Witness)
        self.judge.play = self
        troupe.play = self
        model = self.app.model
        self.world: World | None = None if model is None else model.make(setup.scenario.seed, self)

    def play(self) -> Result:
        try:
            result = super().play()
            self._end_world()
        finally:
            World._here = None  # pyright: ignore[reportPrivateUsage]
        return result

    @property
    def patience(self) -> float:  # type: ignore[override]
        """Longer where time leaps: then something is still due."""
        return PATIENCE_SECONDS + 2 * QUIET_SECONDS * self.counts["leaps in time"]

    def now(self) -> float:
        """Simulated seconds since the beginning."""
        return self.loop.time() + self.loop.leapt

    def tell(self, run: str, what: Any) -> None:
        self.story.append(Moment(self.now(), run, what))

    def unserved(self, run: Run, key: str) -> str:
        """The activity of a task, if nobody here has it."""
        try:
            node = self.judge.shadows[run.id, run.generation].flow.locate(key)[2]
        except KeyError:
            return ""
        name = str(node.config.get("activity", ""))
        return "" if not name or name in self._troupe.served else name

    def definition_of(self, job: Job) -> str:
        return self.judge.shadows[job.run_id, job.generation].flow.run.definition

    # --- what activities ask ---------------------------------------------------------------------------------

    def draw(self, *what: object) -> Random:
        return Random("|".join(map(str, (self.scenario.seed, *what))))

    def ident(self, name: str, job: Job) -> str:
        return self._calls.ident(name, job)

    def mishap(self, call: Call) -> str:
        """What goes wrong with an attempt."""
        setup, job = self.setup, call.job
        name = f"{call.ident}|{job.attempt}"
        if (
            setup.calm
            or setup.level == "none"
            or job.attempt > ATTEMPTS_MAX
            or name in setup.spared
        ):
            return ""
        chance = self.draw("mishap", name)
        luck = chance.random() * (1.0 if setup.level == "rough" else 2.0)
        if job.undo:
            kind = "transient" if luck < UNDO_TRANSIENT else ""
        elif luck < TRANSIENT:
            kind = "lost" if setup.level == "rough" and chance.random() < LOST else "transient"
        elif luck < TRANSIENT + REFUSED:
            kind = "refused"
        else:
            kind = "late" if luck < TRANSIENT + REFUSED + LATE and call.limit() else ""
        if kind:
            self.mishaps[name] = kind
            self.counts[f"attempts {_MISHAPS[kind]}"] += 1
        return kind

    def seconds(self, call: Call) -> float:
        """How long an attempt takes."""
        given = self.setup.paces.get(call.ident)
        if given is None:
            chance = self.draw("pace", self.setup.pace, call.ident, call.job.attempt)
            span = None if self.app.model is None else self.app.model.takes.get(call.name)
            if span is not None:
                given = chance.uniform(*span)
            else:
                given = SECONDS_LEAST * (SECONDS_MOST / SECONDS_LEAST) ** chance.random()
                limit = call.limit()
                given = given if limit is None else min(given, limit / 2)
            given *= self.setup.stretch
        self.taken.setdefault(call.ident, given)
        return given

    # --- the world -------------------------------------------------------------------------------------------

    def effect(self, effect: Effect) -> None:
        self.counts["effects"] += 1
        times = self.standing.add(effect)
        self.tell(effect.run, effect)
        if times > 1 and not effect.repeats:
            run = self.judge.run(effect.run)
            name = activity_of(effect.key)
            place = self.place(run.definition, effect.key)
            what = "the undo of " if effect.undo else ""
            self._find(
                Finding(
                    "effect-repeated", "error", run.definition, name,
                    f"{what}`{name}` does `{effect.what}` to the world twice: attempt {effect.attempt} repeats what an "
                    "earlier one had done",
                    "an attempt may be made again after its effect: pass `current().idempotency_key` on, and do nothing "
                    "where it is known already",
                    place, effect.run,
                )
            )  # fmt: skip

    def undone(self, what: str, about: tuple[Any, ...]) -> None:
        self.standing.remove(what, about)
        self.tell(
            "", f"the world: {what}{' ' if about else ''}{', '.join(map(str, about))} is taken back"
        )

    def look(self, *, end: bool = False) -> None:
        """Whether the world is as it must be."""
        model = self.app.model
        if model is None or self.world is None:
            return
        for name, said in model.broken(self.world, end=end):
            self._find(
                Finding(
                    "world-broken", "error", model.world.__name__, name, f"`{name}` does not hold: {said}",
                    "see what was done to the world before it", model.place(name),
                )
            )  # fmt: skip

    def _end_world(self) -> None:
        if self.world is None or self.judge.problems:
            return
        ended: list[Ended] = []
        for id, generation in self.judge.newest.items():
            run = self.judge.shadows[id, generation].flow.run
            last = decode_event(self.judge.shadows[id, generation].payloads[-1])
            result = _value(last.output) if isinstance(last, e.RunCompleted) else None
            ended.append(Ended(id, run.definition, run.status, _value(run.input), result))
        self.world.runs = ended
        self.look(end=True)

    def _find(self, finding: Finding) -> None:
        if finding.ident not in self._said:
            self._said.add(finding.ident)
            self.found.append(finding)
            self.tell(finding.run, f"!{finding.message}")

    def place(self, workflow: str, key: str) -> str:
        """Where a step is written."""
        found = self.places.get((workflow, key)) or self.places.get(
            (workflow, key.rpartition("/")[2])
        )
        if found:
            return found
        node = self.app.nodes.get((workflow, static(key)))
        if node is not None:
            return node[1]
        kind = self.app.kinds.get(workflow)
        return "" if kind is None else kind.place

    # --- what breaks, told -----------------------------------------------------------------------------------

    def crash(self, node: Node) -> None:
        if node.place.alive:
            self.tell("", f"{node.name} dies")
        super().crash(node)

    async def _reopening(self, node: Node, delay: float) -> None:
        await super()._reopening(node, delay)
        self.tell("", f"{node.name} is there again")

    def _lose_power(self) -> None:
        self.tell("", "the power goes: all nodes die")
        super()._lose_power()

    async def _breaking(self, fault: Fault) -> None:
        async def told() -> None:
            await asyncio.sleep(fault.at)
            if fault.kind in _FAULTS:
                self.tell(
                    "",
                    _FAULTS[fault.kind].format(
                        node=f"node-{fault.node}", amount=f"{fault.amount:g}"
                    ),
                )

        await asyncio.gather(told(), super()._breaking(fault))


_MISHAPS = {
    "transient": "failed for now",
    "lost": "done whose answer was lost",
    "refused": "refused",
    "late": "too late",
}
_FAULTS = {
    "restart": "{node} is restarted",
    "stall": "{node} stands still for {amount} s",
    "jump": "the clock of {node} jumps by {amount} s",
    "slow": "the store is slow for {amount} s",
    "failing": "the store fails now and then for {amount} s",
    "unsure": "commits fail for {amount} s, done or not",
    "full": "the disk is full for {amount} s",
    "partition": "nodes do not hear of each other for {amount} s",
    "cut": "{node} does not reach the store for {amount} s",
    "deaf": "callers do not hear their answers for {amount} s",
}


def activity_of(key: str) -> str:
    """The activity, or task, of a key."""
    return static(key.partition("#")[0]).rpartition("/")[2]


def _value(raw: bytes | Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(bytes(raw))


def _outside(place: Place | None) -> str:
    """Where in the application's code; of a timer that asyncio sets, who asked asyncio."""
    if place is not None and not _inner(place[0].co_filename):
        return f"{place[0].co_filename}:{line_of(place)}"
    frame: Any = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code is not _RUN:
        if not _inner(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def own_code(filename: str) -> bool:
    """Of the application, and neither ours nor Python's."""
    return not filename.startswith((_OURS, _STANDARD, "<"))


def _inner(filename: str) -> bool:
    return filename.startswith((_OURS, _ASYNCIO, "<"))
