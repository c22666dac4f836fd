"""Reordering: a run, and the same things happening to it in another order; do they come out differently?

A run is driven to where both tasks did what they do; then the event that made the first do it is put off until the
second has. What each task returns stays the same, so that nothing but the order differs; if the run then goes another way,
so that other things happen, both are played no further than to where both tasks have done it.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace

from penstock.core.keys import static
from penstock.core.plan import Node
from penstock.model.run import PENDING
from penstock.verify.cases import Read, Values
from penstock.verify.driving import Driver, Route
from penstock.verify.rehearsal import Outcome, Stage, Unplayable
from penstock.verify.samples import accepts, sample
from penstock.verify.scenario import (
    Complete,
    EndChild,
    Scenario,
    Shows,
    Signal,
    Step,
    Submit,
    alone,
)
from penstock.verify.sets import Touch
from penstock.verify.verification import Subject

STEPS_MAX = 12_000
"""Steps that all runs of one verification may take."""
REST_MAX = 200
"""Steps to the end of the run, once both tasks have done it."""
KEYS_MAX = 6
"""Keys of one task, and pairs of them, that are looked at."""
SAME = "every order that was tried has the same outcome"
OVER = ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED")

Found = tuple[str, Scenario | None]
"""What stood in the way, or the scenario."""
Twin = tuple[list[Step], Outcome]
"""The steps in the other order, and what came of them."""


class Reordering:
    def __init__(self, subject: Subject) -> None:
        self._subject, self._plan = subject, subject.plan
        self._steps = 0
        self._whole = True
        """The run was played to its end; what comes later may make good what the order did."""

    def find(self, one: Touch, other: Touch, items: Node | None) -> Found:
        """Two orders that come out differently, for two touches."""
        if one.declared or other.declared:
            return "what it touches is outside of the engine", None
        driver = self._subject.driver
        if driver is None:
            return "no runs were played", None
        if self._steps > STEPS_MAX:
            return "the budget is used up", None
        base = self._base(driver, one, other, items)
        if base is None:
            return "no run was found in which both happen", None
        reason = SAME
        for steps in self._variants(base):
            if self._steps > STEPS_MAX:
                return "the budget is used up", None
            reason, found = self._twin(driver, base.input, steps, one, other, items)
            if found is not None:
                return "", found
        return reason, None

    def _base(
        self, driver: Driver, one: Touch, other: Touch, items: Node | None
    ) -> Scenario | None:
        """A whole run in which both tasks take part."""
        route = Route()
        for touch in (one, other):
            path = touch.node.path
            holder = driver.holder(path)
            trail = holder.explored.fired.get(touch.node.id)
            if trail is None:
                return None
            there = driver.route_to(holder, trail)
            route.acts += [act for act in there.acts if act not in route.acts]
            route.asks += there.asks
            if "onError" in touch.where[-4:-1]:
                route.acts.append(("fail", path))
        given = {} if items is None else self._many(items)
        wanted = 1 if items is None else 2
        reached: list[Stage] = []

        def goal(stage: Stage) -> Shows | None:
            for touch in (one, other):
                if len(_moments(stage, touch)) < wanted:
                    return None
            reached.append(stage)
            return Shows()

        before = driver.steps
        found = driver.drive(route, goal, given=given)
        self._steps += driver.steps - before
        if found is None:
            return None
        rest = driver.go_on(reached[-1], REST_MAX)
        self._steps += len(rest)
        self._whole = reached[-1].run.closed
        return replace(found, steps=(*found.steps, *rest)) if self._whole else found

    def _many(self, node: Node) -> Values:
        """Two items for a map, if they come from outside."""
        found: Values = {}
        for read in node.formulas["items"].expression.reads:
            if read[0] in ("input", "tasks"):
                found[read] = self._two(read)
        return found

    def _two(self, read: Read) -> list[Any]:
        schema: Any = None
        if read[0] == "input":
            schema = self._plan.definition.input_schema
            for name in (*read[1:], "items"):
                node = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
                schema = node.get("items") if name == "items" else node.get("properties", {}).get(name)  # fmt: skip
        if schema is None:
            return [1, 2]
        first = sample(schema)
        return [first, _varied(first, 2, schema)]

    # --- the other order -----------------------------------------------------------------------------------------

    def _twin(
        self,
        driver: Driver,
        given: Any,
        steps: list[Step],
        one: Touch,
        other: Touch,
        items: Node | None,
    ) -> Found:
        stage = Stage(self._plan)
        places: list[dict[str, int]] = [{}, {}]
        """Of both: by key, after which step it was done; 0 is the start."""
        try:
            stage.start(given)
            self._look(stage, (one, other), places, 0)
            for number, step in enumerate(steps, 1):
                stage.step(step)
                self._look(stage, (one, other), places, number)
        except Unplayable:
            return "no run was found in which both happen", None
        if self._whole:  # with other outputs the run may have gone another way, and not be over yet
            steps = [*steps, *driver.go_on(stage, REST_MAX)]
        self._steps += len(steps)
        outcome = stage.outcome()
        reason = "no run was found in which both happen"
        for pair in _pairs(places[0], places[1], items):
            first, second = sorted(pair)
            if first == second:
                reason = "both happen at the same event, in the order of the document"
                continue
            if first == 0:
                early = one if pair[0] == 0 else other
                reason = f"`{early.node.path}` does so as the run begins, always before"
                continue
            reason = "the second never happens before the first"
            for until in dict.fromkeys((second - 1, len(steps) - 1)):
                twin = self._put_off(
                    driver, given, steps, first - 1, second - 1, until, whole=self._whole
                )
                if twin is None:
                    continue
                scenario = self._compared(given, steps, outcome, twin, (one, other), second)
                if scenario is None and _other_steps(steps, twin[0]):
                    scenario = self._so_far(
                        driver, given, steps, first - 1, second - 1, (one, other)
                    )
                if scenario is not None:
                    return "", scenario
                reason = SAME
        return reason, None

    def _compared(
        self,
        given: Any,
        steps: list[Step],
        outcome: Outcome,
        twin: Twin,
        race: tuple[Touch, Touch],
        second: int,
    ) -> Scenario | None:
        differs = "" if _other_steps(steps, twin[0]) else _difference(outcome, twin[1], *race)
        if differs and self._beside(differs, given, steps[:second], twin[0], *race):
            return None
        shows = Shows(twin=tuple(twin[0]), differs=differs)
        return Scenario(given, tuple(steps), shows) if differs else None

    def _so_far(
        self,
        driver: Driver,
        given: Any,
        steps: list[Step],
        first: int,
        second: int,
        race: tuple[Touch, Touch],
    ) -> Scenario | None:
        """After the second of both: what then happens depends on the order, and is not the same any more."""
        so_far, stage = steps[: second + 1], Stage(self._plan)
        twin = self._put_off(driver, given, so_far, first, second, second, whole=False)
        if twin is None:
            return None
        stage.play(given, tuple(so_far))
        self._steps += len(so_far)
        return self._compared(given, so_far, stage.outcome(), twin, race, second + 1)

    def _beside(
        self,
        differs: str,
        given: Any,
        steps: list[Step],
        twin: list[Step],
        one: Touch,
        other: Touch,
    ) -> bool:
        """Two that write, and the difference is elsewhere, though they leave the same in both orders: it is not theirs."""
        if not other.writes or one.path[0] != "data" or differs == f"data.{one.path[1]}":
            return False
        same = [each for each in twin if each in steps]
        left: list[Any] = []
        try:
            for order in (steps, same):
                stage = Stage(self._plan)
                stage.play(given, tuple(order))
                left.append(stage.outcome().part(f"data.{one.path[1]}"))
        except Unplayable:
            return False
        return left[0] == left[1]

    def _look(
        self, stage: Stage, touches: tuple[Touch, Touch], places: list[dict[str, int]], number: int
    ) -> None:
        for touch, seen in zip(touches, places, strict=True):
            for key in _moments(stage, touch):
                seen.setdefault(key, number)

    def _put_off(
        self,
        driver: Driver,
        given: Any,
        steps: list[Step],
        first: int,
        second: int,
        until: int,
        *,
        whole: bool,
    ) -> Twin | None:
        """The first step after the second, and after all until then that can be without it; to the end, if `whole`."""
        stage = Stage(self._plan)
        played: list[Step] = []
        waiting: list[Step] = []

        def attempt(step: Step) -> bool:
            self._steps += 1
            try:
                stage.step(step)
            except Unplayable:
                return False
            played.append(step)
            return True

        try:
            stage.start(given)
        except Unplayable:
            return None
        for number, step in enumerate(steps):
            if number == first:
                waiting.append(step)
            elif not attempt(step):
                if number == second:
                    return None
                waiting.append(step)
            if number >= until:
                waiting = [each for each in waiting if not attempt(each)]
        if whole:
            played += driver.go_on(stage, REST_MAX)
        return played, stage.outcome()

    # --- values that tell ----------------------------------------------------------------------------------------

    def _variants(self, base: Scenario) -> list[list[Step]]:
        """The steps with outputs that differ from task to task, and as they were."""
        varied = [self._vary(step, number) for number, step in enumerate(base.steps, 2)]
        plain = list(base.steps)
        return [varied, plain] if varied != plain else [plain]

    def _vary(self, step: Step, number: int) -> Step:
        match step:
            case Complete() | Submit() | EndChild() if not getattr(step, "code", ""):
                node = self._plan.node(static(step.key))
                schema = node.task.output_schema or node.config.get("schema")
                return replace(step, output=_varied(step.output, number, schema))
            case Signal():
                nodes = self._plan.signals.get(step.name, [])
                if any(node.type == "map" for node in nodes):
                    return step
                schema = next((n.config["schema"] for n in nodes if "schema" in n.config), None)
                return replace(step, payload=_varied(step.payload, number, schema))
            case _:
                return step


def _varied(value: Any, number: int, schema: Any) -> Any:
    """Something like it that no other task gives."""
    for option in (_other(value, number), _other(value, 1)):
        if accepts(schema, option):
            return option
    return value


def _other(value: Any, number: int) -> Any:
    match value:
        case bool():
            return number % 2 == 0
        case int() | float():
            return value + number
        case str():
            return f"{value}{number}"
        case None:
            return number
        case dict():
            fields = cast("dict[str, Any]", value)
            return {name: _other(each, number) for name, each in fields.items()}
        case list():
            return [_other(each, number) for each in cast("list[Any]", value)]
        case _:
            return value


# --- what is seen --------------------------------------------------------------------------------------------------


def _moments(stage: Stage, touch: Touch) -> list[str]:
    """Keys of the task in which it has done it by now."""
    found: list[str] = []
    for path, scope in stage.flow.seen.items():
        state = scope.tasks.get(touch.node.id) if scope.plan == touch.scope.path else None
        if state is None or state.status == PENDING:
            continue
        done = state.status in OVER if touch.moment == "end" else True
        if done and state.status != "SKIPPED":
            found.append(stage.flow.key(path, touch.node.id))
    return found


def _other_steps(steps: list[Step], twin: list[Step]) -> bool:
    return bool(alone(steps, twin) or alone(twin, steps))


def _pairs(
    left: dict[str, int], right: dict[str, int], items: Node | None
) -> list[tuple[int, int]]:
    """When each did it; of a map, in two items. The last times first: nothing writes over them."""
    pairs = [
        (a, b)
        for one, a in list(left.items())[-KEYS_MAX:]
        for other, b in list(right.items())[-KEYS_MAX:]
        if items is None or one != other
    ]
    return sorted(set(pairs), reverse=True)[:KEYS_MAX]


def _difference(one: Outcome, other: Outcome, writer: Touch, second: Touch) -> str:
    """Where two outcomes differ by that race, what is plainest first: in what both write, or in what the reader read
    and what came of it."""
    named = writer.path[1] if writer.path[0] == "data" and len(writer.path) > 1 else ""
    alike = one.status == other.status and one.code == other.code
    failed = alike and bool(one.code)
    wrote = all(_ended(one, each) == _ended(other, each) for each in (writer, second))
    wanted: list[str] = []
    if named and (second.writes or _sets(second.node, named)) and (wrote or not alike):
        wanted.append(f"data.{named}")
    if not second.writes or not failed:
        wanted += _after(one, other, writer, second, named, failed=failed)
    return next((part for part in wanted if one.part(part) != other.part(part)), "")


def _after(
    one: Outcome, other: Outcome, writer: Touch, second: Touch, named: str, *, failed: bool
) -> list[str]:
    """What may come of it; of runs that fail alike, only what the reader itself was called with, and how it ended."""
    reader = second.node.path
    own = [f"inputs.{key}" for key in one.inputs if key in other.inputs and static(key) == reader]
    ends = [f"tasks.{key}" for key in one.tasks if key in other.tasks and static(key) == reader]
    if failed:
        return [*own, *ends]
    data = [f"data.{name}" for name in {**one.data, **other.data} if name != named]
    inputs = [f"inputs.{key}" for key in one.inputs if key in other.inputs]
    ways = [f"tasks.{key}" for key in {**one.tasks, **other.tasks} if static(key) != writer.node.path]  # fmt: skip
    return ["status", "result", *data, *own, *inputs, *ends, *ways]


def _ended(outcome: Outcome, touch: Touch) -> list[str]:
    """How the task of a touch ended, wherever it ran."""
    return [status for key, status in sorted(outcome.tasks.items()) if static(key) == touch.node.path]  # fmt: skip


def _sets(node: Node, name: str) -> bool:
    doings = (*node.on_complete, *node.on_error)
    return (node.type == "transform" and name in node.formulas) or any(
        name == each for doing in doings for each, _ in doing.set
    )
