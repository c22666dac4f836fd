"""Rehearsal: a Scenario played on the core, without an engine; does it show what it claims?

The turns are the engine's own (`core/turn.py`). What is not of interest happens by itself: a run that waits for a
place is admitted, children begin, signals to other runs arrive, undos succeed. Nothing is reported as refuted that
was not rehearsed (SPEC 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.core import scopes
from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.inputs import arguments_of
from penstock.core.owed import owed
from penstock.core.plan import Plan
from penstock.core.turn import turn
from penstock.core.values import Data, Need, decode, encode
from penstock.errors import PenstockError
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model.codec import decode_event, encode_event, value_at
from penstock.model.failure import Failure
from penstock.model.run import COMPLETED, OPEN_TASK, PENDING, REF_SHIFT, Ref, Run, Scope, TaskState
from penstock.verify.scenario import (
    BusEvent,
    Complete,
    EndChild,
    Fail,
    Fire,
    Scenario,
    Shows,
    Signal,
    Step,
    Submit,
    alone,
    told,
)

BEGIN = 1_767_225_600.0
"""When a rehearsal begins: 2026-01-01."""
RUN_ID = "rehearsal"
SETTLE_MAX = 10_000
"""Things that happen by themselves after one step; more is a scenario that does not settle."""
SCOPES_MAX = 2_000
"""Passes, and items of maps, that one step may begin: the engine would go on for far longer (SPEC 2.4)."""


class Unplayable(Exception):
    """A step that can't happen when its turn comes."""


class Runaway(Unplayable):
    """A step after which the run goes on and on without waiting for anything: dear, and to be tried few times."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run stands after all steps."""

    status: str
    code: str
    result: Any
    data: dict[str, Any]
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    """What tasks were called with, by key."""
    tasks: dict[str, str] = field(default_factory=dict[str, str])
    """How each task was last seen, by key."""

    def part(self, differs: str) -> Any:
        name = differs.partition(".")[2]
        match differs.partition(".")[0]:
            case "":
                return self
            case "status":
                return self.status, self.code
            case "result":
                return self.result
            case "inputs":
                return self.inputs.get(name) if name else self.inputs
            case "tasks":
                return self.tasks.get(name) if name else self.tasks
            case _:
                return self.data.get(name) if name else self.data


@dataclass(slots=True)
class Rehearsal:
    """What came of it."""

    shown: bool = False
    why: str = ""
    """If not shown: what stood in the way."""
    outcome: Outcome | None = None
    events: list[e.Event] = field(default_factory=list[e.Event])
    tasks: dict[str, TaskState] = field(default_factory=dict[str, TaskState])
    """Every task that was seen, as it was last seen, by key."""


def rehearse(plan: Plan, scenario: Scenario) -> Rehearsal:
    """Play it and look."""
    stage, other, stopped = Stage(plan), None, ""
    try:
        stage.play(scenario.input, scenario.steps)
        if scenario.shows.twin is not None:
            other = Stage(plan)
            other.play(scenario.input, scenario.shows.twin)
    except Unplayable as unplayable:
        stopped = str(unplayable)
    return judge(scenario, stage, other, stopped)


def judge(scenario: Scenario, stage: Stage, twin: Stage | None, stopped: str) -> Rehearsal:
    """Whether what was played shows what is claimed; `stopped` says what kept it from being played to its end.

    A twin shows something about the order only if nothing else differs: it has the same steps, each as often.
    """
    shows = scenario.shows
    if shows.twin is not None:
        stopped = _unlike(scenario.steps, shows.twin) or stopped
    if stopped:
        return Rehearsal(why=stopped, events=stage.events)
    seen = Rehearsal(outcome=stage.outcome(), events=stage.events, tasks=stage.tasks)
    seen.why = _missing(shows, seen, None if twin is None else twin.outcome())
    seen.shown = not seen.why
    return seen


def _unlike(steps: Sequence[Step], twin: Sequence[Step]) -> str:
    """What one of two orders has and the other has not; empty if they have the same steps."""
    for one, other, where in ((twin, steps, "other order"), (steps, twin, "first order")):
        left = alone(one, other)
        if left:
            return f"not the same steps in another order: only in the {where} {told(left[0])}"
    return ""


def _missing(shows: Shows, seen: Rehearsal, twin: Outcome | None) -> str:
    """What of the claim was not seen; empty if all was."""
    outcome = seen.outcome
    assert outcome is not None
    if shows.status and outcome.status != shows.status:
        how = f"{outcome.status} {outcome.code}".rstrip()
        return f"the run is {how}, not {shows.status}"
    if shows.code and outcome.code != shows.code:
        return f"the run has the failure `{outcome.code}`, not `{shows.code}`"
    if shows.event and not any(event.type == shows.event for event in seen.events):
        return f"there is no {shows.event} in the history"
    if twin is not None and outcome.part(shows.differs) == twin.part(shows.differs):
        return "both orders have the same outcome"
    if shows.task:
        state = seen.tasks.get(shows.task)
        status = "never" if state is None or state.status == PENDING else state.status
        if shows.task_status and status != shows.task_status:
            return f"`{shows.task}` is {status}, not {shows.task_status}"
        code = "" if state is None or state.failure is None else state.failure.code
        if shows.task_code and code != shows.task_code:
            return f"`{shows.task}` has the failure `{code}`, not `{shows.task_code}`"
        if shows.passes and (state is None or state.number < shows.passes):
            return f"`{shows.task}` has begun fewer than {shows.passes} passes"
    return ""


def _stirs(effect: f.Effect) -> bool:
    """It is done without anybody."""
    match effect:
        case f.Execute():
            return effect.undo
        case f.Answer():
            return False
        case _:
            return True


class Watched(Flow):
    """A Flow that remembers every scope it opened: those that are over leave the run."""

    __slots__ = ("opened", "seen")

    def __init__(self, run: Run, plan: Plan) -> None:
        super().__init__(run, plan)
        self.seen: dict[str, Scope] = {}
        self.opened = 0
        """Scopes of this turn; counted where the run is played, not where what an engine stored is read again."""

    def open_scope(  # type: ignore[override]
        self, path: str, plan_path: str, parent: str | None, owner: str, number: int, item: Ref = 0
    ) -> Scope:
        self.opened += not self.replaying
        if self.opened > SCOPES_MAX:
            raise Runaway(f"one step begins more than {SCOPES_MAX} passes without a wait")
        scope = scopes.open_scope(self, path, plan_path, parent, owner, number, item)
        self.seen[path] = scope
        return scope


class Stage:
    """One run without an engine: its flow, its history, and a clock that moves when a step needs it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.flow = Watched(Run(id=RUN_ID), plan)
        self.now = BEGIN
        self.events: list[e.Event] = []
        self.restless = True
        """Something may happen by itself."""

    @property
    def run(self) -> Run:
        return self.flow.run

    @property
    def tasks(self) -> dict[str, TaskState]:
        """Every task that was seen, as it was last seen, by key."""
        return {
            self.flow.key(path, id): state
            for path, scope in self.flow.seen.items()
            for id, state in scope.tasks.items()
        }

    def play(self, input: Any, steps: tuple[Step, ...]) -> None:
        """Unplayable if a step can't happen."""
        self.start(input)
        for number, step in enumerate(steps, 1):
            try:
                self.step(step)
            except Unplayable as unplayable:
                raise type(unplayable)(f"step {number}: {unplayable}") from None

    def start(self, input: Any) -> None:
        definition = self.plan.definition
        self.command(
            c.StartRun(
                at=self.now,
                id=RUN_ID,
                definition=definition.id,
                version=definition.version or "1",
                input=encode(input),
            )
        )
        self._settle()

    def step(self, step: Step) -> None:
        self.command(self._command(step))
        self._settle()

    def command(self, command: c.Command) -> None:
        """One turn; Unplayable if it is refused."""
        while True:
            try:
                self.flow.opened = 0
                outcome = turn(self.flow, [command])
                break
            except Need as need:
                self._again(need)
        if outcome.refused:
            error: PenstockError = outcome.refused[0]
            raise Unplayable(f"{error.code}: {error.message}")
        self.events += outcome.events
        if not self.restless:
            self.restless = any(_stirs(effect) for effect in outcome.effects)

    def recall(self, events: Sequence[e.Event]) -> None:
        """The run as these events, which an engine has stored, say."""
        self.events = list(events)
        self.flow.values.clear()
        self._again(Need(set()))

    def outcome(self) -> Outcome:
        run = self.run
        data = Data(self.flow)
        result: Any = None
        if run.status == COMPLETED:
            result = decode(run.result) if run.result is not None else self._value(run.result_ref)
        code = "" if run.failure is None else run.failure.code
        statuses = {key: state.status for key, state in self.tasks.items()}
        values = {name: data[name] for name in run.data}
        return Outcome(run.status, code, result, values, self._inputs(), statuses)

    def _inputs(self) -> dict[str, Any]:
        """What each task was called with; what could change was recorded, the rest is as it was."""
        found: dict[str, Any] = {}
        for path, scope in self.flow.seen.items():
            for id, state in scope.tasks.items():
                node = self.plan.scopes[scope.plan].nodes[id]
                if not state.attempt or not node.inputs:
                    continue
                with suppress(KeyError, Need):  # of a scope that is gone nothing is said
                    given = arguments_of(self.flow, path, scope, node, state)[0]
                    found[self.flow.key(path, id)] = given
        return found

    # --- what happens ----------------------------------------------------------------------------------------

    def _command(self, step: Step) -> c.Command:
        at = self.now
        match step:
            case Complete():
                attempt = self._open(step.key).attempt
                return c.CompleteTask(
                    at=at, key=step.key, attempt=attempt, output=encode(step.output)
                )
            case Fail():
                attempt = self._open(step.key).attempt
                failure = Failure(code=step.code, message=step.message or step.code)
                return c.FailTask(at=at, key=step.key, attempt=attempt, failure=failure, final=True)
            case Fire():
                state = self._open(step.key)
                dues = [due for due in (state.due, state.deadline) if due is not None]
                if not dues:
                    raise Unplayable(f"`{step.key}` waits for no time")
                self.now = max(self.now, min(dues))
                return c.Wake(at=self.now)
            case Signal():
                return c.SendSignal(at=at, name=step.name, payload=encode(step.payload))
            case BusEvent():
                return c.OfferEvent(
                    at=at, id=f"event-{len(self.events)}", topic=step.topic, kind=step.kind, run=self.run.id,
                    data=encode(step.data),
                )  # fmt: skip
            case Submit():
                return c.SubmitForm(at=at, key=step.key, output=encode(step.output))
            case EndChild():
                state = self._open(step.key)
                detached = self.flow.locate(step.key)[2].config.get("detached")
                if detached and not step.code and state.child is not None:
                    return c.RecordChild(at=at, key=step.key, run=state.child, version="1")
                if not step.code:
                    return c.CloseChild(
                        at=at, key=step.key, status=COMPLETED, output=encode(step.output)
                    )
                failure = Failure(code=step.code, message=step.code)
                return c.CloseChild(at=at, key=step.key, status="FAILED", failure=failure)

    def _open(self, key: str) -> TaskState:
        try:
            state = self.flow.locate(key)[3]
        except KeyError:
            state = TaskState()
        if state.status not in OPEN_TASK:
            raise Unplayable(f"`{key}` is {state.status}, not open")
        return state

    def _settle(self) -> None:
        """What is not of interest, until nothing of it is left."""
        for _ in range(SETTLE_MAX if self.restless else 0):
            command = self._next()
            if command is None:
                self.restless = False
                return
            self.command(command)
        if self.restless:
            raise Unplayable("what follows from it does not come to an end")

    def _next(self) -> c.Command | None:
        run, at = self.run, self.now
        if run.closed:
            return None
        if run.begin is not None:
            self.now = max(at, run.begin)
            return c.Wake(at=self.now)
        for effect in owed(run):
            match effect:
                case f.Admit():
                    return c.AdmitRun(at=at)
                case f.StartChild():
                    _, _, node, state = self.flow.locate(effect.key)
                    begins = state.started_at is None and not node.config.get("detached")
                    if begins and state.child is not None:
                        return c.RecordChild(at=at, key=effect.key, run=state.child, version="1")
                case f.CancelChild():
                    return c.CloseChild(at=at, key=effect.key, status="CANCELLED")
                case f.Deliver():
                    return c.RecordDelivery(at=at, id=effect.id)
                case f.Execute(undo=True):
                    return c.CompleteTask(
                        at=at, key=effect.key, attempt=effect.attempt, output=b"null", undo=True
                    )
                case f.Abandon():
                    failure = Failure(code="cancelled", message="it was told to stop")
                    return c.FailTask(
                        at=at, key=effect.key, attempt=effect.attempt, failure=failure
                    )
                case f.Execute() | f.Answer() | f.Advance() | f.OpenNext():
                    pass
        return None

    # --- values that left the memory -------------------------------------------------------------------------

    def _again(self, need: Need) -> None:
        """The run as its events say, with what was asked for."""
        flow = Watched(Run(id=RUN_ID), self.plan)
        stored = [encode_event(event) for event in self.events]
        for payload in stored:
            evolve(flow, decode_event(payload))
        held = self.flow.values
        flow.effects = []
        flow.values = {r: v for r, v in held.items() if r >> REF_SHIFT <= len(stored)}
        self.flow = flow
        for ref in need.refs:
            flow.values[ref] = self._value(ref)

    def _value(self, ref: Ref) -> Any:
        if isinstance(ref, dict):
            return {k: self._value(v) for k, v in cast("dict[str, Ref]", ref).items()}
        if isinstance(ref, list):
            return [self._value(v) for v in cast("list[Ref]", ref)]
        if not ref:
            return None
        place = cast("int", ref)
        raw = value_at(encode_event(self.events[(place >> REF_SHIFT) - 1]), place)
        assert isinstance(raw, bytes)
        return decode(raw)
