"""Trials: a definition run many times by chance, and what was seen of the rules of SPEC 3 that it breaks.

Nothing of the verifier takes part. Runs are turns of the core in a `World`; inputs, outputs and payloads are drawn from the
schemas (with the constants of the definition and what is next to them, as that is where conditions change), tasks fail,
everything happens in any order. Seeing is the only proof here: what is `seen` is so; what is not seen may still be.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.core import links, scopes
from penstock.core.flow import Flow
from penstock.core.keys import static
from penstock.core.plan import Node, Plan
from penstock.core.values import Variables
from penstock.errors import PenstockError, Rejected
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model.failure import Failure
from penstock.model.run import OPEN_TASK, PENDING, SKIPPED, Run, Scope, TaskState
from support.draws import Draw, constants
from support.world import Case, World, encode

STEPS_MAX = 350
PASSES_MAX = 40
"""No loop of a good definition has so many passes: one that has goes on for ever."""
INJECTED = "injected"
"""The code of failures that chance makes."""
SERIOUS = frozenset({"no-branch", "join-starved", "no-end", "deadlock", "advance-limit"})
MISSING = frozenset({"expression-failed", "input-missing"})
EFFECTS = frozenset({"activity", "publish", "subworkflow"})

Seen = tuple[str, str]
"""A kind of fault, and the task (static path) at which it was seen."""


class Watching(Flow):
    """A Flow that tells what happens in it."""

    __slots__ = ("watch",)
    watch: Watch

    def fail(  # type: ignore[override]
        self, path: str, scope: Scope, node: Node, state: TaskState, failure: Failure
    ) -> None:
        if scope.failure is None and self.run.stopping is None:
            self.watch.failed(node.path, failure)
        scopes.fail(self, path, scope, node, state, failure)

    def fail_scope(self, path: str, scope: Scope, failure: Failure) -> None:  # type: ignore[override]
        if scope.failure is None and self.run.stopping is None:
            self.watch.failed(static(failure.key) or scope.plan, failure)
        scopes.fail_scope(self, path, scope, failure)

    def fire(self, path: str, scope: Scope, node: Node, state: TaskState) -> None:  # type: ignore[override]
        links.fire(self, path, scope, node, state)
        if state.status not in (SKIPPED, PENDING) and state.scheduled_at > 0:
            self.watch.began.add(node.path)

    def complete(  # type: ignore[override]
        self, path: str, scope: Scope, node: Node, state: TaskState, taken: set[int] | None = None
    ) -> None:
        self.watch.done.add(node.path)
        scopes.complete(self, path, scope, node, state, taken)

    def choose(self, path: str, node: Node) -> set[int]:  # type: ignore[override]
        if node.gateway == "exclusive" and not node.config.get("ordered"):
            self.watch.weigh(self, path, node)
        return links.choose(self, path, node)


@dataclass
class Watch:
    """What was seen in the runs of one definition."""

    plan: Plan
    seen: dict[Seen, str] = field(default_factory=dict)
    """With what it was seen by, in words."""
    began: set[str] = field(default_factory=set)
    held: dict[str, set[tuple[bool | None, ...]]] = field(default_factory=dict)
    """Of exclusive gateways: which of their conditions held together."""
    ends: Counter[str] = field(default_factory=Counter)
    done: set[str] = field(default_factory=set)
    """What has completed in this run."""
    runs: int = 0
    faulty: bool = False
    """This run has failed at something that chance did not make."""

    def note(self, kind: str, where: str, words: str) -> None:
        self.seen.setdefault((kind, where), words)

    def failed(self, where: str, failure: Failure) -> None:
        where = static(failure.key) or where
        if failure.code in SERIOUS and "of its items" not in failure.message:
            self.faulty = True
            self.note(failure.code, where, failure.message)
        elif failure.code in MISSING:
            self.faulty = True
            self.note("fails", where, failure.message)

    def weigh(self, flow: Flow, path: str, node: Node) -> None:
        default = node.config.get("default")
        row: list[bool | None] = []
        for out in node.outs:
            if out.edge.on == "error" or out.edge.target == default or out.edge.guard is None:
                continue
            try:
                row.append(out.edge.guard(Variables(flow, path, None)))
            except (PenstockError, LookupError, TypeError, ValueError, ArithmeticError):
                row.append(None)
        self.held.setdefault(node.path, set()).add(tuple(row))

    def conclude(self) -> dict[Seen, str]:
        """What follows from all runs together."""
        seen = dict(self.seen)
        for where, rows in self.held.items():
            for i, j in _pairs(len(next(iter(rows)))):
                both = any(row[i] and row[j] for row in rows)
                if both and any(row[i] and row[j] is False for row in rows):
                    seen["overlap", where] = f"conditions {i + 1} and {j + 1} both held"
        for scope in self.plan.scopes.values():
            for node in scope.nodes.values():
                if node.type not in ("start", "end") and node.path not in self.began:
                    seen["never-runs", node.path] = f"it began in none of {self.runs} runs"
        if not self.ends["COMPLETED"]:
            seen["never-completes", ""] = f"none of {self.runs} runs completed: {dict(self.ends)}"
        return seen


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    for i in range(count):
        for j in range(i + 1, count):
            yield i, j


class Watched(Case):
    """A Case whose flow is watched."""

    def __init__(self, world: World, id: str, plan: Plan, watch: Watch) -> None:
        super().__init__(world, id, plan)
        self.watch = watch
        self.flow = self._flow()

    def _flow(self) -> Watching:
        flow = Watching(Run(id=self.id), self.plan)
        flow.watch = self.watch
        return flow

    def replayed(self, upto: int | None = None) -> Flow:
        from penstock.core.evolve import evolve
        from penstock.model.codec import decode_event

        flow = self._flow()
        for payload in self.stored[:upto]:
            evolve(flow, decode_event(payload))
        flow.effects = []
        return flow


@dataclass(frozen=True)
class Outcome:
    """How a run ended, for comparison of orders."""

    status: str
    code: str
    result: str
    data: str
    arguments: str


class Trial:
    """One run: `outcomes` says what comes of tasks, `order` which of them happens next."""

    def __init__(
        self,
        watch: Watch,
        draw: Draw,
        *,
        outcomes: int,
        order: int,
        fail: float,
        stubborn: bool = False,
    ) -> None:
        self.watch, self.draw, self.plan = watch, draw, watch.plan
        self.outcomes, self.fail, self.stubborn = outcomes, fail, stubborn
        self.order = random.Random(order)
        self.world = World(watch.plan)
        self.case = Watched(self.world, "run", watch.plan, watch)
        self.world.cases["run"] = self.case
        self.failures = self.steps = self.published = 0
        self.calls: dict[str, Any] = {}

    # --- what is drawn ---------------------------------------------------------------------------------------

    def dice(self, key: str, what: str = "") -> random.Random:
        """Depends on the task, not on the order; a stubborn one does the same in each pass."""
        return random.Random(f"{self.outcomes}/{static(key) if self.stubborn else key}/{what}")

    def output(self, key: str, node: Node) -> Any:
        schema = node.task.output_schema
        if node.type in ("signal", "form"):
            schema = node.config.get("schema")
        return self.draw.value(schema, self.dice(key))

    def input(self) -> Any:
        schema = self.plan.definition.input_schema
        return self.draw.value(schema if schema is not None else {"type": "object"}, self.dice(""))

    # --- what happens ----------------------------------------------------------------------------------------

    def play(self) -> Case:
        watch, case = self.watch, self.case
        watch.runs += 1
        watch.faulty = False
        watch.done.clear()
        case.command(
            c.StartRun(
                at=self.world.now, id="run", definition=self.plan.definition.id, version="1", input=encode(self.input())
            )
        )  # fmt: skip
        while not case.run.closed and self.steps < STEPS_MAX:
            self.steps += 1
            self._settle()
            self._look()
            if case.run.closed:
                break
            moves = list(self._moves())
            due = case.due()
            if due is not None and (not moves or self.order.random() < 0.15):
                self.world.now = max(self.world.now, due)
                case.command(c.Wake(at=self.world.now))
            elif moves:
                self._do(*self.order.choice(moves))
            else:
                watch.note("stuck", "", f"nothing can happen, and {case.waiting} wait")
                break
        watch.ends[case.status] += 1
        self._look_back()
        return case

    def _settle(self) -> None:
        """What needs nobody."""
        case = self.case
        for mark, effect in list(case.todo.items()):
            if case.run.closed:
                return
            match effect:
                case f.Admit():
                    case.command(c.AdmitRun(at=self.world.now))
                case f.StartChild():
                    case.todo.pop(mark)
                    state = case.task(effect.key)
                    assert state.child is not None
                    case.command(
                        c.RecordChild(
                            at=self.world.now, key=effect.key, run=state.child, version="1"
                        )
                    )
                case f.CancelChild():
                    case.todo.pop(mark)
                    case.command(c.CloseChild(at=self.world.now, key=mark[1], status="CANCELLED"))
                case f.Deliver():
                    case.command(c.RecordDelivery(at=self.world.now, id=effect.id))
                case _:
                    pass

    def _moves(self) -> Iterator[tuple[str, str]]:
        case = self.case
        run = case.run
        for mark in case.todo:
            if mark[0] == "execute" and case.ready(mark[1]):
                yield ("undo" if mark[2] else "attempt"), mark[1]
        for name in run.waiters:
            yield "signal", name
        for key in run.listening:
            yield "event", key
        for key, state in case.tasks():
            if state.status != "WAITING":
                continue
            if state.form is not None:
                yield "form", key
            elif state.child is not None and case.flow.locate(key)[2].type == "subworkflow":
                yield "child", key
        if self.published < len(case.of(e.Published)):
            yield "published", ""

    def _do(self, kind: str, key: str) -> None:
        case = self.case
        node = case.flow.locate(key)[2] if kind in ("attempt", "form", "child", "event") else None
        match kind:
            case "attempt":
                assert node is not None
                self._called(key, node)
                if self.dice(key, "fails").random() < self.fail:
                    self.failures += 1
                    case.fail(key, INJECTED, final=True)
                else:
                    case.complete(key, self.output(key, node))
            case "undo":
                case.complete(key)
            case "signal":
                waiting = self.plan.signals[key][0]
                more = waiting.type == "map"
                payload = self.order.choice([None, "more"]) if more else self.output(key, waiting)
                case.signal(key, payload)
            case "form":
                assert node is not None
                case.submit(key, self.output(key, node), by="ann")
            case "child":
                assert node is not None
                self._child(key, node)
            case "published":
                event = case.of(e.Published)[self.published]
                self.published += 1
                self._offer(event.topic, bytes(event.payload))
            case _:
                assert node is not None
                self._offer(case.run.listening[key], encode(self._event(node)))

    def _child(self, key: str, node: Node) -> None:
        if self.dice(key, "fails").random() < self.fail:
            self.failures += 1
            failure = Failure(code=INJECTED, message=INJECTED)
            command = c.CloseChild(at=self.world.now, key=key, status="FAILED", failure=failure)
        else:
            made = encode(self.output(key, node))
            command = c.CloseChild(at=self.world.now, key=key, status="COMPLETED", output=made)
        self.case.command(command)

    def _event(self, node: Node) -> dict[str, Any]:
        """What its `where` may ask for: of each field the input's own, or a constant."""
        text = str(node.config.get("where", ""))
        given = self.input()
        known = [value for value in constants(text) if isinstance(value, str)] or ["a"]
        made: dict[str, Any] = {}
        for name in re.findall(r"event\.data\.(\w+)", text):
            own = given.get(name) if isinstance(given, dict) else None
            made[name] = own if own is not None and self.order.random() < 0.8 else self.order.choice(known)  # fmt: skip
        return made

    def _offer(self, topic: str, data: bytes) -> None:
        with suppress(Rejected):  # it fits nobody
            self.case.command(
                c.OfferEvent(at=self.world.now, id=f"e{self.steps}", topic=topic, run="run", data=data)
            )  # fmt: skip

    # --- what is seen ----------------------------------------------------------------------------------------

    def _called(self, key: str, node: Node) -> None:
        """What a task is called with, and whether a task it reads was never done."""
        if key in self.calls or key in self.case.run.undoing:
            return
        given = self.calls[key] = self.case.arguments(key)
        for source in node.inputs:
            whole = source.source is not None and source.path is None
            if not whole or given.get(source.name) is not None:
                continue
            path = key.rpartition("/")[0]
            scope = self.case.run.scopes[path]
            state = scope.tasks.get(source.source or "")
            known = source.source in self.plan.scopes[scope.plan].nodes
            if known and (state is None or state.status != "COMPLETED"):
                words = f"`{source.name}` is null, as `{source.source}` is not done"
                self.watch.note("fails", node.path, words)

    def _look(self) -> None:
        case = self.case
        for event in case.of(e.DataConflicted):
            pair = f"{static(event.first)} and {static(event.second)} both write {event.name}"
            self.watch.note("race", static(event.second), pair)
        declared: dict[str, Node] = {}
        for path, scope in case.run.scopes.items():
            nodes = self.plan.scopes[scope.plan].nodes
            for id, state in scope.tasks.items():
                node = nodes[id]
                if state.number > PASSES_MAX:
                    self.watch.note("endless", node.path, f"it has begun {state.number} passes")
                if state.status in OPEN_TASK and (node.task.reads or node.task.writes):
                    declared[case.flow.key(path, id)] = node
        self._beside(declared)

    def _beside(self, declared: dict[str, Node]) -> None:
        """Two are open at one time, and one writes what the other touches outside."""
        for key, node in declared.items():
            for other, beside in declared.items():
                touched = {*beside.task.reads, *beside.task.writes}
                if key != other and touched & set(node.task.writes):
                    words = f"{node.path} writes what {beside.path} touches, at one time"
                    self.watch.note("race", node.path, words)

    def _look_back(self) -> None:
        case = self.case
        if case.status == "COMPLETED":
            for key, state in case.tasks():
                if state.status == PENDING:
                    self.watch.note("left-open", static(key), "it waits though the run is over")
        failure = case.failure
        if failure is not None:
            self.watch.failed(static(failure.key), failure)
        if case.status == "FAILED" and not self.watch.faulty:
            self._left_behind()

    def _left_behind(self) -> None:
        """The run failed as a task failed: whose effects stand?"""
        for path in self.watch.done:
            node = self.plan.node(path)
            task = node.task
            if (
                node.type in EFFECTS
                and not (task.reads and not task.writes)
                and not task.compensate
            ):
                self.watch.note("left-behind", node.path, "the run failed, and it stays done")

    def outcome(self) -> Outcome:
        case = self.case
        result = json.dumps(case.result, sort_keys=True) if case.status == "COMPLETED" else ""
        calls = json.dumps(self.calls, sort_keys=True)
        data = json.dumps(case.data, sort_keys=True)
        return Outcome(case.status, case.code, result, data, calls)


def orderly(document: Mapping[str, Any]) -> bool:
    """The order of events has no say in it, if there is no race (SPEC 2.6)."""
    text = json.dumps(document)
    words = ('"any"', '"n":', '"event"', '"cancel"', '"more"', '"last"', '"form"')
    return not any(word in text for word in words)


def tried(document: Mapping[str, Any], plan: Plan, *, runs: int, seed: int = 0) -> dict[Seen, str]:
    """All that was seen in so many runs."""
    watch, draw = Watch(plan), Draw(constants(document))
    compare = orderly(document)
    for number in range(runs):
        fail = (0.0, 0.0, 0.15, 0.4)[number % 4]
        stubborn = number % 3 == 0
        outcomes = seed * 1_000_003 + number
        trial = Trial(watch, draw, outcomes=outcomes, order=number, fail=fail, stubborn=stubborn)
        trial.play()
        if any(kind in ("endless", "advance-limit") for kind, _ in watch.seen):
            break  # each such run is long, and says the same
        if compare and number % 2 == 0:
            _compare(watch, draw, trial, outcomes, fail, stubborn)
    return watch.conclude()


def _compare(
    watch: Watch, draw: Draw, first: Trial, outcomes: int, fail: float, stubborn: bool
) -> None:
    """The same in another order."""
    other = Trial(watch, draw, outcomes=outcomes, order=-outcomes - 7, fail=fail, stubborn=stubborn)
    other.play()
    one, two = first.outcome(), other.outcome()
    ended = [trial.case.status for trial in (first, other)]
    if one == two or "COMPLETED" not in ended or not other.case.run.closed:
        return
    if ended == ["COMPLETED"] * 2 or not (first.failures or other.failures):
        differs = next(name for name in ("status", "result", "data", "arguments") if getattr(one, name) != getattr(two, name))  # fmt: skip
        watch.note("race", "", f"two orders differ in {differs}: {getattr(one, differs)} and {getattr(two, differs)}")  # fmt: skip
