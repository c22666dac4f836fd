"""A world without I/O: several runs, a clock that is moved by hand, and effects that wait to be done.

What the engine does around the core, in the fewest words: a turn per command, `Need` answered from what was stored
before that turn (never from the turn itself), effects kept until they are done. Tests say what happens and when;
`support/chance.py` lets a seed say it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.owed import owed
from penstock.core.plan import Plan
from penstock.core.reopening import (
    Walk,
    check_point,
    children_after,
    children_at,
    known_after,
    reopen,
    undoable,
)
from penstock.core.turn import turn
from penstock.core.values import Need
from penstock.dsl.load import load, load_document
from penstock.errors import PenstockError
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model.codec import decode_event, encode_event, encode_run, value_at
from penstock.model.failure import Failure
from penstock.model.run import COMPLETED, OPEN_TASK, REF_SHIFT, RETRYING, Run, TaskState

NOON = 1000.0
"""Where the clock of a world begins."""
decode = msgspec.json.decode
encode = msgspec.json.encode


def plan_of(source: str | Mapping[str, Any]) -> Plan:
    """The plan of a definition, given as YAML or as a document; `id` may be left out."""
    if isinstance(source, str):
        if "id:" not in source.split("tasks:")[0]:
            source = "id: flow\n" + source
        return Plan(load(source).definition)
    return Plan(load_document({"id": "flow", **source}).definition)


class Case:
    """One run: its flow, its history as stored, and what the world still has to do for it."""

    def __init__(self, world: World, id: str, plan: Plan) -> None:
        self.world, self.id = world, id
        self.flow = world.kind(Run(id=id), plan)
        self.stored: list[bytes] = []
        self.events: list[e.Event] = []
        self.todo: dict[tuple[Any, ...], f.Effect] = {}
        """Effects that were noted and not yet done, by what they are about."""
        self.done: list[f.Effect] = []
        """Every effect that was noted, in order."""
        self.answers: dict[str, Any] = {}
        self.refused: PenstockError | None = None
        self.earlier: Case | None = None
        """The generation before."""
        self.needs = 0

    # --- what it is ------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        return self.flow.run

    @property
    def plan(self) -> Plan:
        """Of the version that it is of now."""
        return self.flow.plan

    @property
    def status(self) -> str:
        return self.run.status

    @property
    def failure(self) -> Failure | None:
        return self.run.failure

    @property
    def code(self) -> str:
        return "" if self.run.failure is None else self.run.failure.code

    @property
    def result(self) -> Any:
        assert self.status == COMPLETED, (self.status, self.run.failure)
        if self.run.result is not None:
            return decode(self.run.result)
        return self.value(self.run.result_ref)

    @property
    def data(self) -> dict[str, Any]:
        from penstock.core.values import Data

        view = Data(self.flow)
        return {name: view[name] for name in self.run.data}

    def value(self, ref: Any) -> Any:
        """What a reference means, read from the stored events."""
        if isinstance(ref, dict):
            return {k: self.value(v) for k, v in ref.items()}
        if isinstance(ref, list):
            return [self.value(v) for v in ref]
        if not ref:
            return None
        return decode(value_at(self.stored[(ref >> REF_SHIFT) - 1], ref))

    def task(self, key: str) -> TaskState:
        path, _, id = key.rpartition("/")
        return self.run.scopes[path].tasks[id]

    def output(self, key: str) -> Any:
        state = self.task(key)
        return decode(state.output) if state.output is not None else self.value(state.ref)

    def has(self, key: str) -> bool:
        path, _, id = key.rpartition("/")
        return path in self.run.scopes and id in self.run.scopes[path].tasks

    def statuses(self) -> dict[str, str]:
        return {key: state.status for key, state in self.tasks()}

    def tasks(self) -> list[tuple[str, TaskState]]:
        return [
            (f"{path}/{id}" if path else id, state)
            for path, scope in self.run.scopes.items()
            for id, state in scope.tasks.items()
        ]

    @property
    def open(self) -> list[str]:
        """Keys of the attempts that can be begun or are under way, undos included."""
        return [k[1] for k in self.todo if k[0] == "execute"]

    @property
    def undoing(self) -> list[str]:
        return [k[1] for k in self.todo if k[0] == "execute" and k[2]]

    @property
    def waiting(self) -> list[str]:
        return [key for key, state in self.tasks() if state.status in OPEN_TASK]

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def completed(self) -> list[str]:
        """Keys of the tasks whose completion was recorded, in order."""
        return [event.key for event in self.of(e.TaskCompleted)]

    def abandoned(self) -> list[str]:
        return [effect.key for effect in self.done if isinstance(effect, f.Abandon)]

    def arguments(self, key: str) -> dict[str, Any]:
        while True:
            try:
                return self.flow.arguments(key)[0]
            except Need as need:
                self._bring(need, self.flow)

    # --- what happens ----------------------------------------------------------------------------------------

    def command(self, *commands: c.Command) -> list[e.Event]:
        """One turn; the events, or the refusal of a lone command."""
        while True:
            try:
                outcome = turn(self.flow, commands)
                break
            except Need as need:
                self.needs += 1
                held = dict(self.flow.values)
                self.flow = self.replayed()
                self.flow.values.update(
                    {r: v for r, v in held.items() if r >> REF_SHIFT <= len(self.stored)}
                )
                self._bring(need, self.flow)
        self.stored += [encode_event(event) for event in outcome.events]
        self.events += outcome.events
        for effect in outcome.effects:
            self._note(effect)
        self._tidy()
        for check in self.world.checks:
            check(self, outcome)
        self.refused = next(iter(outcome.refused.values()), None)
        if len(commands) == 1 and outcome.refused:
            raise outcome.refused[0]
        return outcome.events

    def replayed(self, upto: int | None = None) -> Flow:
        """The run as its stored events say."""
        flow = self.world.kind(Run(id=self.id), self.plan)
        for payload in self.stored[:upto]:
            evolve(flow, decode_event(payload))
        flow.effects = []
        return flow

    def digest(self) -> bytes:
        return encode_run(self.run)

    def _bring(self, need: Need, flow: Flow) -> None:
        for ref in need.refs:
            seq = ref >> REF_SHIFT
            assert seq <= len(self.stored), f"event {seq} is needed before it is stored"
            raw = value_at(self.stored[seq - 1], ref)
            flow.hold(ref, decode(raw), len(raw))

    def _note(self, effect: f.Effect) -> None:
        self.done.append(effect)
        match effect:
            case f.Execute():
                self.todo[("execute", effect.key, effect.undo)] = effect
            case f.StartChild():
                self.todo[("child", effect.key)] = effect
            case f.CancelChild():
                self.todo[("cancel", effect.key)] = effect
            case f.Deliver():
                self.todo[("deliver", effect.id)] = effect
            case f.Admit():
                self.todo[("admit",)] = effect
            case f.Answer():
                self.answers[effect.id] = (
                    ("refused", effect.refused) if effect.refused else decode(effect.output)
                )
            case f.Abandon():
                pass

    def _tidy(self) -> None:
        """Drop what the state does not want any more; a late result would be refused."""
        run = self.run
        wanted: set[tuple[Any, ...]] = set()
        for effect in owed(run):
            match effect:
                case f.Execute() | f.Abandon():
                    undo = isinstance(effect, f.Execute) and effect.undo
                    wanted.add(("execute", effect.key, undo, effect.attempt))
                case f.StartChild():
                    wanted.add(("child", effect.key))
                case f.CancelChild():
                    wanted.add(("cancel", effect.key))
                case f.Deliver():
                    wanted.add(("deliver", effect.id))
                case f.Admit():
                    wanted.add(("admit",))
                case _:
                    pass
        for mark, effect in list(self.todo.items()):
            full = (*mark, effect.attempt) if isinstance(effect, f.Execute) else mark
            if full not in wanted and mark[0] != "cancel":
                del self.todo[mark]

    def attempt(self, key: str) -> int:
        if key in self.run.undoing:
            return self.run.undoing[key].attempt
        if key in self.run.ending:
            return self.run.ending[key].attempt
        return self.task(key).attempt

    def complete(
        self, key: str, output: Any = None, *, attempt: int | None = None, undo: bool | None = None
    ) -> list[e.Event]:
        return self.command(
            c.CompleteTask(
                at=self.world.now, key=key, attempt=self.attempt(key) if attempt is None else attempt,
                output=encode(output), undo=key in self.run.undoing if undo is None else undo,
            )
        )  # fmt: skip

    def fail(
        self,
        key: str,
        code: str = "error",
        message: str = "",
        *,
        attempt: int | None = None,
        **more: Any,
    ) -> list[e.Event]:
        more.setdefault("undo", key in self.run.undoing)
        return self.command(
            c.FailTask(
                at=self.world.now, key=key, attempt=self.attempt(key) if attempt is None else attempt,
                failure=Failure(code=code, message=message or code, type=more.pop("type", "")), **more,
            )
        )  # fmt: skip

    def begin(self, key: str, worker: str = "w") -> list[e.Event]:
        return self.command(
            c.StartTask(
                at=self.world.now, key=key, attempt=self.attempt(key), worker=worker, undo=key in self.run.undoing,
            )
        )  # fmt: skip

    def lose(self, key: str, **more: Any) -> list[e.Event]:
        more.setdefault("undo", key in self.run.undoing)
        return self.command(
            c.LoseTask(at=self.world.now, key=key, attempt=self.attempt(key), **more)
        )

    def signal(self, name: str, payload: Any = None, **more: Any) -> list[e.Event]:
        return self.command(
            c.SendSignal(at=self.world.now, name=name, payload=encode(payload), **more)
        )

    def submit(self, key: str, output: Any, by: str | None = None) -> list[e.Event]:
        return self.command(c.SubmitForm(at=self.world.now, key=key, output=encode(output), by=by))

    def pause(self) -> list[e.Event]:
        return self.command(c.PauseRun(at=self.world.now))

    def resume(self) -> list[e.Event]:
        return self.command(c.ResumeRun(at=self.world.now))

    def cancel(self) -> list[e.Event]:
        return self.command(c.CancelRun(at=self.world.now))

    def terminate(self) -> list[e.Event]:
        return self.command(c.TerminateRun(at=self.world.now))

    def migrate(self, version: str, mapping: Mapping[str, str] | None = None) -> list[e.Event]:
        return self.command(
            c.MigrateRun(at=self.world.now, version=version, mapping=dict(mapping or {}))
        )

    def walked(self) -> Walk:
        walk = Walk(self.id, self.plan)
        for payload in self.stored:
            walk.step(decode_event(payload))
        return walk

    def reset(
        self, to: int, *, keep: bool = False, exclude: tuple[str, ...] = (), **fact: Any
    ) -> Case:
        """Go on from event `to` in another generation; with `keep` the old case, ended, is what comes back."""
        past, world = self.walked().past, self.world
        check_point(past, to)
        there = self.replayed(to).run
        fact.setdefault("later", self._still_open(children_after(past, to, there)))
        fact.setdefault("renewed", self._useless(children_at(there)))
        undo = undoable(past, to) if fact.pop("undo", False) else []
        made = e.RunReset(
            at=world.now,
            generation=self.run.generation + 1,
            of=self.run.generation,
            to=to,
            undo=undo,
            **fact,
        )
        made = msgspec.structs.replace(made, known=known_after(past, made))
        new = Case(world, self.id, self.plan)
        new.stored = self.stored[:to]
        new.events = [decode_event(payload) for payload in new.stored]
        new.earlier = self
        while True:
            held = new.flow.values
            new.flow = new.replayed()
            new.flow.values.update(held)
            made = msgspec.structs.replace(made, outcomes=[], faults={})
            try:
                events = reopen(new.flow, past, made, exclude)
                break
            except Need as need:
                new._bring(need, new.flow)
        new.stored += [encode_event(event) for event in events]
        new.events += events
        for effect in new.flow.effects:
            new._note(effect)
        new._tidy()
        if not self.run.closed:
            last = e.RunContinued(at=world.now, generation=made.generation)
            evolve(self.flow, last, replaying=False)
            self.stored.append(encode_event(last))
            self.events.append(last)
            self.todo.clear()
        world.cases[self.id] = new
        for check in world.checks:
            check(new, None)
        return self if keep else new

    def _still_open(self, children: dict[str, str]) -> dict[str, str]:
        cases = self.world.cases
        return {k: id for k, id in children.items() if id not in cases or not cases[id].run.closed}

    def _useless(self, children: dict[str, str]) -> list[str]:
        found: list[str] = []
        for key, id in children.items():
            case = self.world.cases.get(id)
            if case is not None and case.status != COMPLETED and case.run.stopping is not None:
                found.append(key)
        return found

    def due(self) -> float | None:
        """When the run next wants to be woken."""
        return None if self.run.paused or not self.run.dues else self.run.dues[0][0]

    def skip(self, seconds: float) -> None:
        """Let time pass; what is due on the way fires at its time."""
        self.world.skip(seconds)

    def ready(self, key: str) -> bool:
        """The attempt may begin now: it is not a retry that is due later, and the run is not paused."""
        if key in self.run.undoing:
            due = self.run.undoing[key].due
            return due is None or due <= self.world.now
        if key in self.run.ending:
            return True
        state = self.task(key)
        late = state.status == RETRYING and state.due is not None and state.due > self.world.now
        return not late and not self.run.paused


class World:
    """Definitions, runs, time."""

    def __init__(
        self,
        *definitions: str | Mapping[str, Any] | Plan,
        at: float = NOON,
        kind: type[Flow] = Flow,
    ) -> None:
        self.kind = kind
        """Of the flow of each run."""
        self.plans: dict[str, Plan] = {}
        for each in definitions:
            plan = each if isinstance(each, Plan) else plan_of(each)
            self.plans[plan.definition.id] = plan
        self.cases: dict[str, Case] = {}
        self.now = at
        self.checks: list[Callable[[Case, Any], None]] = []
        self.cut = False
        """What was still open was terminated, as it took too many steps."""

    def start(
        self, definition: str | None = None, input: Any = None, *, id: str = "run", **more: Any
    ) -> Case:
        plan = self.plans[definition] if definition is not None else next(iter(self.plans.values()))
        case = self.cases[id] = Case(self, id, plan)
        case.command(
            c.StartRun(
                at=self.now,
                id=id,
                definition=plan.definition.id,
                version=plan.version or "1",
                input=encode(input),
                **more,
            )
        )
        return case

    def skip(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            dues = [(case.due(), case) for case in self.cases.values() if not case.run.closed]
            dues = sorted(
                (d for d in dues if d[0] is not None and d[0] <= until), key=lambda d: d[0]
            )
            if not dues:
                break
            when, case = dues[0]
            self.now = max(self.now, when)
            events = case.command(c.Wake(at=self.now))
            assert events, (when, case.run.dues)
        self.now = until

    def start_child(self, parent: Case, key: str) -> Case:
        """Do what `StartChild` asks for: the child exists, and the parent knows."""
        state = parent.task(key)
        assert state.child is not None
        assert state.arguments is not None
        asked = decode(state.arguments)
        if state.child not in self.cases:
            self.start(
                asked["definition"], asked["input"], id=state.child, parent=parent.id, parent_key=key,
                depth=parent.run.depth + 1,
            )  # fmt: skip
        parent.todo.pop(("child", key), None)
        parent.command(c.RecordChild(at=self.now, key=key, run=state.child, version="1"))
        return self.cases[state.child]

    def close_child(self, child: Case) -> list[e.Event]:
        """Tell the parent how its child ended."""
        run = child.run
        assert run.closed
        assert run.parent is not None
        assert run.parent_key is not None
        output = encode(child.result) if run.status == COMPLETED else b"null"
        return self.cases[run.parent].command(
            c.CloseChild(
                at=self.now, key=run.parent_key, status=run.status, output=output, failure=run.failure, run=run.id,
                undo=tuple(run.undo) if run.status == COMPLETED else (),
            )
        )  # fmt: skip

    def deliver(self, case: Case, id: str) -> None:
        """Bring a signal to another run, and tell the sender what came of it."""
        out = case.run.outgoing[id]
        refused = ""
        target = self.cases.get(out.run)
        if target is None:
            refused = "run-unknown"
        else:
            try:
                target.command(
                    c.SendSignal(at=self.now, name=out.name, payload=bytes(out.payload), id=id)
                )
            except PenstockError as error:
                refused = error.code
        case.command(c.RecordDelivery(at=self.now, id=id, refused=refused))


def given(
    source: str | Mapping[str, Any],
    input: Any = None,
    *others: str | Mapping[str, Any],
    **more: Any,
) -> Case:
    """A run of that definition, started."""
    return World(source, *others).start(None, input, **more)


NULL = Raw(b"null")
