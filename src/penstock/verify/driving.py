"""Driving: from what an exploration found to a run with concrete values that shows it.

A trail through fragments is unfolded into what happens to which task, in order, and what each condition must come to;
values that make them so are found; then a run is played on the core, and what happened is written down as a Scenario.
A task of which the trail says nothing completes with something that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.core.keys import static
from penstock.core.plan import Guard, Node, Plan, ScopePlan
from penstock.errors import ExpressionError
from penstock.expr.schema import Schema, compile_schema
from penstock.model.failure import Failure
from penstock.model.run import CANCELLED, OPEN_TASK, PENDING, SKIPPED, TaskState
from penstock.verify.cases import ABSENT, Cases, Outcome, Values, examples, unique
from penstock.verify.events import fitting_event
from penstock.verify.filling import constants_of, filled, guesses_of, reads_of
from penstock.verify.fragments import Exploration
from penstock.verify.models import Trail, Way
from penstock.verify.outputs import output_schema
from penstock.verify.regions import Fragment
from penstock.verify.rehearsal import Runaway, Stage, Unplayable
from penstock.verify.samples import accepts, resolve
from penstock.verify.scenario import (
    Complete,
    EndChild,
    Fail,
    Fire,
    Scenario,
    Shows,
    Signal,
    Step,
    Submit,
)
from penstock.verify.verification import Signature

STEPS_MAX = 150_000
"""Steps that all runs of one verification may take."""
WORK_MAX = 60_000_000
"""Steps times tasks: what one step costs grows with them."""
RUNAWAYS_MAX = 4
"""Runs that never wait; they are tried that often, then no more runs are driven."""
ROAM_MAX = 120
"""Steps of a run that roams."""
ROAMING_MAX = 60_000
"""Steps times tasks of all runs that roam for one goal."""
GOALS_MAX = 4
"""So many times as much may be roamed in one verification."""
STRAY_MAX = 400
"""Steps of a run that no trail asked for; more is a run that goes nowhere."""

Goal = Callable[[Stage], Shows | None]
"""What is to be seen; None as long as it is not."""


@dataclass(slots=True)
class Route:
    """What is to happen, and what conditions must come to."""

    acts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(`complete` or `fail`, static path of a task)"""
    asks: list[tuple[Guard, Outcome]] = field(default_factory=list[tuple[Guard, Outcome]])
    spared: set[str] = field(default_factory=set[str])
    """Tasks that are to be cancelled: nothing happens to them if anything else can."""
    bodies: set[str] = field(default_factory=set[str])
    """Tasks whose body is passed: all that is in it goes first."""

    def later(self, path: str) -> tuple[bool, bool]:
        """Of tasks of which nothing is said: which come after others."""
        inside = any(path.startswith(f"{body}/") for body in self.bodies)
        return path in self.spared, not inside


T = TypeVar("T")


class Dice:
    """Chance that is the same wherever it is thrown (splitmix64)."""

    def __init__(self, number: int) -> None:
        self._state = number << 20
        self.free = False
        """There was a choice."""

    def pick(self, options: Sequence[T]) -> T:
        self.free = self.free or len(options) > 1
        self._state = found = (self._state + 0x9E3779B97F4A7C15) % (1 << 64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            found = ((found ^ (found >> shift)) * factor) % (1 << 64)
        return options[(found ^ (found >> 31)) % len(options)]


class Driver:
    """Makes runs of one definition go where they are wanted."""

    def __init__(
        self,
        exploration: Exploration,
        activities: Mapping[str, Signature] | None = None,
        *,
        work: int = WORK_MAX,
    ) -> None:
        self._activities = activities
        self._palettes: dict[str, list[Any]] = {}
        self._checks: dict[str, Schema | None] = {}
        """Of what activities say they give, by path of the task."""
        self.exploration, self.plan = exploration, exploration.plan
        self.cases: Cases = exploration.cases
        self.guesses = guesses_of(self.plan)
        self.steps = 0
        """Taken so far, by all runs."""
        self.steps_max = min(STEPS_MAX, work // max(1, _size(self.plan)))
        self.roamed = 0
        """Steps of runs that roam."""
        self.roaming_max = max(ROAM_MAX, ROAMING_MAX // max(1, _size(self.plan)))
        self._holder: dict[str, Fragment] = {}
        for fragment in exploration.fragments:
            inside = {id for part in fragment.inner for id in part.nodes}
            for id in fragment.nodes - inside:
                self._holder[_path(fragment.scope, id)] = fragment

    def holder(self, path: str) -> Fragment:
        """The innermost fragment in which a task is, by its static path."""
        return self._holder[path]

    # --- unfolding --------------------------------------------------------------------------------------------

    def route_to(self, fragment: Fragment, trail: Trail) -> Route:
        """From the start of the run along the trail."""
        route = Route()
        self._reach(fragment, route)
        self._along(fragment, trail, route)
        return route

    def _reach(self, fragment: Fragment, route: Route) -> None:
        """To where the fragment begins."""
        if fragment.around is not None:
            self._reach(fragment.around, route)
            trail = fragment.around.explored.fired.get(fragment.id)
            if trail is not None:
                self._along(fragment.around, trail, route)
            return
        scope = fragment.scope
        if scope.parent is None:
            return
        holder = self._holder[_path(scope.parent, scope.owner)]
        self._reach(holder, route)
        trail = holder.explored.fired.get(scope.owner)
        if trail is not None:
            self._along(holder, trail, route)
        _ask(scope.parent.nodes[scope.owner], "while", route)

    def _along(self, fragment: Fragment, trail: Trail, route: Route) -> None:
        inner = {part.id: part for part in fragment.inner}
        for move in trail.moves():
            if move.verb != "start":
                went = next((way for id, way in move.ways if id == move.id), None)
                part = inner.get(move.id)
                if part is not None:
                    self._through(part, went or Way(failed=True), route)
                else:
                    self._task(fragment.scope, move.verb, move.id, went, route)
            for id, way in move.ways:
                if id == move.id:
                    continue
                if way.failed:  # as soon as it began
                    route.acts.append(("fail", _path(fragment.scope, id)))
                elif fragment.scope.nodes[id].body is None:
                    route.acts.append(("complete", _path(fragment.scope, id)))
            route.asks += move.asks

    def _through(self, fragment: Fragment, way: Way, route: Route) -> None:
        trail = fragment.explored.ways.get(way)
        if trail is not None:
            self._along(fragment, trail, route)

    def _task(self, scope: ScopePlan, verb: str, id: str, way: Way | None, route: Route) -> None:
        node = scope.nodes[id]
        body = node.body or node.loop
        if verb == "cancel":
            route.spared.add(_path(scope, id))
            return
        if body is None:
            route.acts.append((verb, _path(scope, id)))
            return
        route.bodies.add(_path(scope, id))
        top = self.exploration.scopes[body.path]
        for ended in top.explored.ways:
            if ended.back or ended.failed != (verb == "fail"):
                continue
            if way is None or ended.taken == way.taken:
                self._through(top, ended, route)
                break
        if verb != "fail":
            _ask(node, "until", route)

    # --- playing ----------------------------------------------------------------------------------------------

    def drive(self, route: Route, goal: Goal, *, given: Values | None = None) -> Scenario | None:
        """A scenario that shows it, if one is found; `given` are values that must be."""
        if self.steps > self.steps_max:
            return None
        wanted = {**self._absent(route), **(given or {})}
        for values in self._values(route.asks):
            scenario = self._play({**values, **wanted}, route, goal)
            if scenario is not None:
                return scenario
        return None

    def _absent(self, route: Route) -> Values:
        """What a task reads that is to fail because of it."""
        found: Values = {}
        for verb, path in route.acts:
            node = self.plan.node(path)
            if verb == "fail" and node.type in ("transform", "publish"):
                found.update({r: ABSENT for r in reads_of(node) if r[0] == "input" and len(r) > 1})
        return found

    def _values(self, asks: Sequence[tuple[Guard, Outcome]]) -> Iterator[Values]:
        """Values with which the conditions come to what is wanted, the likeliest first."""
        found = self.cases.values(asks)
        if found is not None:
            yield found
            return
        for count in (len(asks) // 2, len(asks) // 4, 1):
            found = self.cases.values(asks[-count:]) if asks else None
            if found is not None:
                yield found
        yield {}

    def _play(self, values: Values, route: Route, goal: Goal) -> Scenario | None:
        stage = Stage(self.plan)
        input = filled(self.plan.definition.input_schema, self.guesses, values, ("input",))
        steps: list[Step] = []
        wanted, stray = route.acts[::-1], 0
        try:
            stage.start(input)
            while True:
                shows = goal(stage)
                if shows is not None:
                    return Scenario(input, tuple(steps), shows)
                step = self._next(stage, wanted, values, route)
                if step is None or stray > STRAY_MAX:
                    return None
                stray += step[1]
                self.steps += 1
                stage.step(step[0])
                steps.append(step[0])
        except Unplayable as unplayable:
            self._charge(unplayable)
            return None

    def _charge(self, unplayable: Unplayable) -> None:
        if isinstance(unplayable, Runaway):
            self.steps += self.steps_max // RUNAWAYS_MAX

    def go_on(self, stage: Stage, steps_max: int) -> list[Step]:
        """Let everything complete until the run ends; what happened."""
        steps: list[Step] = []
        try:
            while not stage.run.closed and len(steps) < steps_max:
                step = self._next(stage, [], {}, Route())
                if step is None:
                    break
                stage.step(step[0])
                steps.append(step[0])
        except Unplayable as unplayable:
            self._charge(unplayable)
        return steps

    def wander(self, number: int, goals: Sequence[Goal]) -> Scenario | None:
        """A run in an order of its own, one for each number, in which each task completes."""
        if self.steps > self.steps_max:
            return None
        stage, steps = Stage(self.plan), list[Step]()
        input = filled(self.plan.definition.input_schema, self.guesses, {}, ("input",))
        dice = Dice(number)
        try:
            stage.start(input)
            for _ in range(STRAY_MAX):
                for goal in goals:
                    shows = goal(stage)
                    if shows is not None:
                        return Scenario(input, tuple(steps), shows)
                opened = self._opened(stage, all=True)
                step = None
                if opened:
                    key, node, state = dice.pick(list(opened.values()))
                    step = self._step(stage, "complete", key, node, state, {})
                if step is None:
                    return None
                stage.step(step)
                steps.append(step)
        except Unplayable as unplayable:
            self._charge(unplayable)
        return None

    def roam(self, count: int, goal: Goal) -> Scenario | None:
        """Runs whose input and outputs are drawn from what conditions compare with: for what depends on so many values that
        nobody can say which it takes. As many as that, or as their steps allow; one, if there is nothing to draw."""
        most = min(self.roamed + self.roaming_max, GOALS_MAX * self.roaming_max)
        for number in range(count):
            if self.steps > self.steps_max or self.roamed >= most:
                return None
            dice, before = Dice(number), self.steps
            found = self._roam(dice, goal)
            self.roamed += self.steps - before
            if found is not None:
                return found
            if not dice.free:
                return None
        return None

    def _roam(self, dice: Dice, goal: Goal) -> Scenario | None:
        stage, steps = Stage(self.plan), list[Step]()
        inputs: list[Values] = [{}, *self.cases.inputs(self._conditions)]
        input = filled(self.plan.definition.input_schema, self.guesses, dice.pick(inputs), ("input",))  # fmt: skip
        try:
            stage.start(input)
            for _ in range(ROAM_MAX):
                shows = goal(stage)
                if shows is not None:
                    return Scenario(input, tuple(steps), shows)
                opened = list(self._opened(stage).values())
                if not opened:
                    return None
                key, node, state = dice.pick(opened)
                read = ("tasks", node.id, "output")
                values: Values = {read: dice.pick(self._palette(node))}
                step = self._step(stage, "complete", key, node, state, values)
                if step is None:
                    return None
                self.steps += 1
                stage.step(step)
                steps.append(step)
        except Unplayable as unplayable:
            self._charge(unplayable)
        return None

    @property
    def _conditions(self) -> list[Guard]:
        nodes = [node for scope in self.plan.scopes.values() for node in scope.nodes.values()]
        return [out.edge.guard for node in nodes for out in node.outs if out.edge.guard is not None]

    def _palette(self, node: Node) -> list[Any]:
        """Outputs of a task that may make a difference."""
        if node.path not in self._palettes:
            schema = output_schema(node, self._activities)
            found = [filled(schema, self.guesses, {}, ("tasks", node.id, "output"))]
            known = resolve(schema, schema)
            more = (*examples(known), *constants_of(self.plan))
            self._palettes[node.path] = unique([*found, *(v for v in more if accepts(schema, v))])
        return self._palettes[node.path]

    def _opened(self, stage: Stage, *, all: bool = False) -> dict[str, tuple[str, Node, TaskState]]:
        """Tasks that wait for something from outside, by static path: the first of each, or (by key) all."""
        opened: dict[str, tuple[str, Node, TaskState]] = {}
        for path, scope in stage.run.scopes.items():
            nodes = self.plan.scopes[scope.plan].nodes
            for id, state in scope.tasks.items():
                node = nodes[id]
                if state.status in OPEN_TASK and node.body is None and node.loop is None:
                    key = stage.flow.key(path, id)
                    opened.setdefault(key if all else node.path, (key, node, state))
        return opened

    def _next(
        self, stage: Stage, wanted: list[tuple[str, str]], values: Values, route: Route
    ) -> tuple[Step, bool] | None:
        """What happens next, and whether no trail asked for it. The next that is wanted is the last of the list."""
        scope = stage.run.scopes.get("")
        if wanted and "/" not in wanted[-1][1] and scope is not None:
            verb, path = wanted[-1]
            state, node = scope.tasks.get(path), self.plan.root.nodes.get(path)
            if state is not None and node is not None and state.status in OPEN_TASK:
                step = self._step(stage, verb, path, node, state, values)
                if step is not None:
                    wanted.pop()
                    return step, False
        opened = self._opened(stage)
        for place in range(len(wanted) - 1, -1, -1):
            verb, path = wanted[place]
            if path in opened:
                del wanted[place]
                step = self._step(stage, verb, *opened[path], values)
                if step is not None:
                    return step, False
        for path in sorted(opened, key=route.later):
            step = self._step(stage, "complete", *opened[path], values)
            if step is not None:
                return step, True
        for scope in stage.run.scopes.values():  # a map that waits for more
            nodes = self.plan.scopes[scope.plan].nodes
            for id, state in scope.tasks.items():
                held, config = state.map, nodes[id].config
                if held is not None and not held.closed:
                    few = held.total - held.failed < config.get("n", 0)
                    return Signal(config["more"], 1 if few else None), True
        return None

    def _step(
        self, stage: Stage, verb: str, key: str, node: Node, state: TaskState, values: Values
    ) -> Step | None:
        if verb == "fail":
            match node.type:
                case "subworkflow":
                    return EndChild(key, code="error")
                case _ if state.attempt:
                    code = values.get(("tasks", node.id, "error", "code"))
                    return Fail(key, code if isinstance(code, str) and code else "error")
                case _ if state.due is not None or state.deadline is not None:
                    return Fire(key)
                case _:
                    return None
        schema = output_schema(node, self._activities)
        output = filled(schema, self.guesses, values, ("tasks", node.id, "output"))
        if node.type == "activity" and node.task.output_schema is None and schema is not None:
            self._fits(node, schema, output)  # the engine does not look at annotations
        match node.type:
            case "subworkflow":
                return EndChild(key, output)
            case "timer":
                return Fire(key)
            case "signal":
                return Signal(node.config["name"], output)
            case "form":
                return Submit(key, output)
            case "event":
                return fitting_event(stage, key, node, output)
            case _ if state.attempt:
                return Complete(key, output)
            case _:
                return None

    def _fits(self, node: Node, schema: Any, output: Any) -> None:
        """Unplayable if the activity of this task says that it never gives that."""
        if node.path not in self._checks:
            try:
                self._checks[node.path] = compile_schema(schema)
            except (ExpressionError, ValueError):
                self._checks[node.path] = None
        check = self._checks[node.path]
        if check is not None and not check.accepts(output):
            raise Unplayable(f"`{node.path}` gives nothing like that")


def _size(plan: Plan) -> int:
    return sum(len(scope.nodes) for scope in plan.scopes.values())


def _ask(loop: Node, word: str, route: Route) -> None:
    """A pass is to be begun (`while`), or to be the last (`until`)."""
    guard = loop.formulas.get(word) if loop.type == "loop" else None
    if isinstance(guard, Guard):
        route.asks.append((guard, True))


def _path(scope: ScopePlan, id: str) -> str:
    return f"{scope.path}/{id}" if scope.path else id


# --- goals -----------------------------------------------------------------------------------------------------


def failing(code: str, path: str) -> Goal:
    """The run fails with that code because of that task, or the task does and somebody takes care of it."""

    def goal(stage: Stage) -> Shows | None:
        failure = stage.run.failure
        if stage.run.closed and failure is not None and failure.code == code:
            return Shows(status=stage.run.status, code=code) if _about(failure, path) else None
        if stage.run.stopping is not None and not stage.run.closed:
            return None
        for key, state in _sightings(stage, path):
            if state.failure is not None and state.failure.code == code:
                return Shows(task=key, task_status=state.status, task_code=code)
        return None

    return goal


def _sightings(stage: Stage, path: str) -> Iterator[tuple[str, TaskState]]:
    """A task, by its static path, in every scope that ever held it."""
    around, _, id = path.rpartition("/")
    if not around:
        scope = stage.flow.seen.get("")
        state = None if scope is None else scope.tasks.get(id)
        if state is not None:
            yield id, state
        return
    for where, scope in stage.flow.seen.items():
        if scope.plan == around and id in scope.tasks:
            yield stage.flow.key(where, id), scope.tasks[id]


def _about(failure: Failure, path: str) -> bool:
    return not path or not failure.key or static(failure.key) == path


def begun(path: str) -> Goal:
    """That task has begun."""

    def goal(stage: Stage) -> Shows | None:
        for key, state in _sightings(stage, path):
            if has_run(state):
                return Shows(task=key, task_status=state.status)
        return None

    return goal


def closed(stage: Stage) -> Shows | None:
    """The run ends, however."""
    failure = stage.run.failure
    if not stage.run.closed:
        return None
    return Shows(status=stage.run.status, code="" if failure is None else failure.code)


def ran(stage: Stage) -> set[str]:
    """Static paths of the tasks that have begun."""
    return {static(key) for key, state in stage.tasks.items() if has_run(state)}


def has_run(state: TaskState) -> bool:
    """It has begun, whatever came of it."""
    if state.status == CANCELLED:
        return state.scheduled_at > 0
    return state.status not in (PENDING, SKIPPED)


def completed(stage: Stage) -> Shows | None:
    """The run completes."""
    return Shows(status="COMPLETED") if stage.run.status == "COMPLETED" else None
