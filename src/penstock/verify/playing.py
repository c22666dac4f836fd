"""Playing: a Solution's values as a run on the core, until something is seen; what happened is a Scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from penstock.core.plan import Formula, Guard, Node, Plan, ScopePlan, Value
from penstock.model.run import OPEN_TASK, TaskState
from penstock.verify.cases import ABSENT, Read, Values
from penstock.verify.driving import RUNAWAYS_MAX, Driver, Goal
from penstock.verify.events import fitting_event
from penstock.verify.knowledge import Knowledge
from penstock.verify.rehearsal import Runaway, Stage, Unplayable
from penstock.verify.samples import sample
from penstock.verify.scenario import Complete, EndChild, Fail, Fire, Scenario, Signal, Step, Submit
from penstock.verify.scopes import map_around
from penstock.verify.solver import Solution
from penstock.verify.substitution import plain_path

STEPS_MAX = 300
DRIVES_MAX = 40
"""Runs that are driven where playing the solver's values did not come there by itself."""


class Player:
    """Plays solutions of one definition."""

    def __init__(self, plan: Plan, knowledge: Knowledge) -> None:
        self._plan, self._knowledge = plan, knowledge
        self._reads: dict[str, list[tuple[str, ...]]] | None = None
        self._drives = self._runaways = 0

    def play(
        self,
        solution: Solution,
        goal: Goal,
        *,
        within: ScopePlan | None = None,
        spared: str = "",
        steps_max: int = STEPS_MAX,
    ) -> Scenario | None:
        """A scenario in which the goal is seen; None if the run went elsewhere. `within`: where `item` was read;
        `spared`: a task to which nothing happens if anything else can."""
        if self._runaways >= RUNAWAYS_MAX:
            return None
        stage = Stage(self._plan)
        solution = self._with_item(solution, within)
        given = solution.input
        if not solution.values.has_input or self._plan.definition.input_schema is None:
            given = self._guessed("input", given)
        steps: list[Step] = []
        try:
            stage.start(given)
            while True:
                shows = goal(stage)
                if shows is not None:
                    return Scenario(given, tuple(steps), shows)
                step = self._next(stage, solution, spared)
                if step is None and spared:
                    step = self._next(stage, solution, "")
                if step is None or len(steps) >= steps_max:
                    return None
                stage.step(step)
                steps.append(step)
        except Runaway:
            self._runaways += 1
            return None
        except Unplayable:
            return None

    def show(
        self,
        driver: Driver | None,
        node: Node,
        reads: Iterable[Read],
        solution: Solution,
        goal: Goal,
        *,
        spared: str = "",
    ) -> Scenario | None:
        """A run with these values, as it comes, or driven to the task that reads this."""
        scope = self._plan.scopes[node.path.rpartition("/")[0]]
        found = self.play(solution, goal, within=scope, spared=spared)
        if found is not None or driver is None or self._drives >= DRIVES_MAX:
            return found
        self._drives += 1
        holder = driver.holder(node.path)
        trail = holder.explored.fired.get(node.id)
        if trail is None:
            return None
        variables = solution.values.variables()
        given: Values = {}
        for read in reads:
            if read[0] == "input" or (read[0] == "tasks" and read[2:3] == ("output",)):
                given[read] = _at(variables, read)
        return driver.drive(driver.route_to(holder, trail), goal, given=given)

    def _with_item(self, solution: Solution, scope: ScopePlan | None) -> Solution:
        """The same, with the item in the list that the map goes through, if that can be given from outside."""
        body = map_around(scope)
        if body is None or solution.values.item is None:
            return solution
        return self._with(solution, body, solution.values.item)

    def _with(self, solution: Solution, body: ScopePlan, item: Any) -> Solution:
        if body.parent is None:
            return solution
        items = body.parent.nodes[body.owner].formulas["items"].expression
        match plain_path(items.tree):
            case ("input", *rest):
                values = replace(solution.values, has_input=True)
                return replace(solution, input=_at_path(solution.input, rest, [item]), values=values)  # fmt: skip
            case ("tasks", str(id), "output", *rest):
                output = _at_path(solution.outputs.get(id), rest, [item])
                return replace(solution, outputs={**solution.outputs, id: output})
            case ("item", *rest):
                outer = map_around(body.parent)
                if outer is None:
                    return solution
                around = sample(self._knowledge.item(outer))
                return self._with(solution, outer, _at_path(around, rest, [item]))
            case _:
                return solution

    def _next(self, stage: Stage, solution: Solution, spared: str) -> Step | None:
        for path, scope in stage.run.scopes.items():
            nodes = self._plan.scopes[scope.plan].nodes
            for id, state in scope.tasks.items():
                node = nodes[id]
                if id == spared:
                    continue
                if state.status in OPEN_TASK and node.body is None and node.loop is None:
                    step = self._step(stage, stage.flow.key(path, id), node, state, solution)
                    if step is not None:
                        return step
                if state.map is not None and not state.map.closed:
                    return Signal(node.config["more"], None)
        return None

    def _step(
        self, stage: Stage, key: str, node: Node, state: TaskState, solution: Solution
    ) -> Step | None:
        wanted = solution.values.tasks.get(node.id, {}).get("status")
        if wanted == "FAILED":
            if node.type == "subworkflow":
                return EndChild(key, code="error")
            if state.attempt:
                error = cast("dict[str, Any]", solution.values.tasks[node.id].get("error") or {})
                return Fail(key, str(error.get("code", "error")), str(error.get("message", "")))
            if state.due is not None or state.deadline is not None:
                return Fire(key)
        match node.type:
            case "timer":
                return Fire(key)
            case "subworkflow":
                return EndChild(key, self._output(node, solution))
            case "signal":
                return Signal(node.config["name"], self._output(node, solution))
            case "form":
                return Submit(key, self._output(node, solution))
            case "event":
                return fitting_event(stage, key, node, self._output(node, solution))
            case _:
                return Complete(key, self._output(node, solution)) if state.attempt else None

    def _output(self, node: Node, solution: Solution) -> Any:
        schema = self._knowledge.output_schema(node)
        if schema is not None:
            return solution.outputs[node.id] if node.id in solution.outputs else sample(schema)
        return self._guessed(node.id, solution.outputs.get(node.id))

    def _guessed(self, source: str, value: Any) -> Any:
        """The value, with something in all that is read of it anywhere: nothing fails for want of it."""
        if self._reads is None:
            self._reads = _reads(self._plan)
        for path in self._reads.get(source, ()):
            value = _put(value, path)
        return value


def _reads(plan: Plan) -> dict[str, list[tuple[str, ...]]]:
    """Paths below `input`, and below the outputs of tasks, that expressions read."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for read in _all_reads(plan):
        if len(read) > 1 and read[0] == "input":
            found.setdefault("input", []).append(read[1:])
        elif len(read) > 3 and read[0] == "tasks" and read[2] == "output":
            found.setdefault(read[1], []).append(read[3:])
    return found


def _all_reads(plan: Plan) -> Iterable[tuple[str, ...]]:
    parts: list[Formula | Guard | Value] = list((plan.outputs or {}).values())
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            # Not of conditions: what those read the solution says.
            parts += [*node.formulas.values(), *node.values.values()]
            parts += [given.template for given in node.inputs if given.template is not None]
    for part in parts:
        if isinstance(part, Formula):
            yield from part.expression.reads
        elif isinstance(part, Value):
            yield from part.reads


def _at(variables: Any, path: Read) -> Any:
    for name in path:
        if not isinstance(variables, Mapping) or name not in variables:
            return ABSENT
        variables = cast("Mapping[str, Any]", variables)[name]
    return variables


def _at_path(whole: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    node = dict(cast("dict[str, Any]", whole)) if isinstance(whole, dict) else {}
    node[path[0]] = _at_path(node.get(path[0]), path[1:], value)
    return node


def _put(whole: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return 1 if whole is None else whole
    if whole is not None and not isinstance(whole, dict):
        return whole
    node = dict(cast("dict[str, Any]", whole or {}))
    node[path[0]] = _put(node.get(path[0]), path[1:])
    return node
