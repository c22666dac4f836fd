"""Compensation: every task that has effects and no way back, where something after it can fail (SPEC 3.7).

What an activity does the engine can't see: it is held to have effects, unless it declares what it `reads` and writes
nothing. Each one is named as a note, with a run that fails and leaves its effect in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from penstock.core.keys import static
from penstock.core.plan import INTERNAL, Node, ScopePlan
from penstock.verify.driving import Driver, Route
from penstock.verify.rehearsal import Stage
from penstock.verify.scenario import Scenario, Shows
from penstock.verify.scopes import place
from penstock.verify.sets import Order, Orders
from penstock.verify.verification import Proof, Subject

RULE = "3.7"
CODE = "undo-missing"
PLAYS_MAX = 40
"""Runs that are played to show it."""
EACH_MAX = 4
"""Tasks that are let fail for one that has no way back."""
STEPS_MAX = 8_000
"""Steps of all these runs together."""
NAMED_MAX = 20
"""Tasks with a note of their own; the others share one."""
HARMLESS = ("GET", "HEAD", "OPTIONS")
HINT = "give it `compensate: ACTIVITY`; if it has no effects, declare what it `reads`"

Place = tuple[ScopePlan, Node]


def check_compensation(subject: Subject) -> None:
    Compensation(subject).check()


class Compensation:
    def __init__(self, subject: Subject) -> None:
        self._subject, self._plan = subject, subject.plan
        self._orders = Orders(subject.plan)
        self._scenarios: dict[str, Scenario] = {}
        """By static path: a run that fails and leaves it as it is."""

    def check(self) -> None:
        exposed = [one for one in self._lasting() if next(self._failing(*one), None) is not None]
        self._play(exposed)
        if not exposed:
            message = "every task with effects has a way back, or nothing fails after it"
            self._subject.prove(RULE, message)
            return
        # Where nothing is ever undone one note is enough; else each is told, as it may have been forgotten.
        caring = any(
            node.compensate for scope in self._plan.scopes.values() for node in scope.nodes.values()
        )
        alone = NAMED_MAX if caring or len(exposed) == 1 else 0
        for scope, node in exposed[:alone]:
            message = (
                f"`{node.path}` {effects(node)}, and has no way back if what comes later fails"
            )
            self._note(scope, node, message)
        rest = exposed[alone:]
        if rest:
            names = ", ".join(f"`{node.path}`" for _, node in rest[:5]) + (
                ", …" if len(rest) > 5 else ""
            )
            more = "more " if alone else ""
            message = f"{len(rest)} {more}tasks have no way back if what comes later fails: {names}"
            self._note(*rest[0], message)
        count = "1 task has" if len(exposed) == 1 else f"{len(exposed)} tasks have"
        message = f"{count} no way back, and whether that matters only you know: "
        message += ", ".join(f"`{node.path}`" for _, node in exposed[:5])
        message += " and others" if len(exposed) > 5 else ""
        self._subject.proofs.append(Proof(RULE, "unknown", message))

    # --- who is exposed ------------------------------------------------------------------------------------------

    def _lasting(self) -> Iterator[Place]:
        for scope in self._plan.scopes.values():
            for node in scope.nodes.values():
                if node.compensate is None and effects(node):
                    yield scope, node

    def _failing(self, scope: ScopePlan, node: Node) -> Iterator[Place]:
        """What may fail so that the run does, with that task done; the last first."""
        inner: Node | None = None
        cursor: ScopePlan | None = scope
        while cursor is not None:
            order = self._orders.of(cursor)
            at = inner or node
            for id in reversed(order.line):
                other = cursor.nodes[id]
                if other is not at and _beyond(cursor, order, at, other):
                    yield from filter(self._runs, _fallible(cursor, other))
            if at is not node and (at.type in ("map", "loop") or at.loop is not None):
                yield from filter(self._runs, _fallible(cursor, at))  # another pass or item
            inner = cursor.parent.nodes[cursor.owner] if cursor.parent is not None else None
            cursor = cursor.parent

    def _runs(self, one: Place) -> bool:
        """Some run begins it, as far as is known."""
        driver = self._subject.driver
        if driver is None:
            return True
        explored = driver.holder(one[1].path).explored
        return explored.over or one[1].id in explored.fired

    # --- showing it ----------------------------------------------------------------------------------------------

    def _play(self, exposed: list[Place]) -> None:
        driver = self._subject.driver
        if driver is None:
            return
        wanted = {node.path for _, node in exposed}
        plays, begun = 0, driver.steps
        for scope, node in exposed[: NAMED_MAX + 1]:
            for _, failing in islice(self._failing(scope, node), EACH_MAX):
                if node.path in self._scenarios:
                    break
                if plays >= PLAYS_MAX or driver.steps - begun > STEPS_MAX:
                    return
                plays += 1
                self._fail(driver, node, failing, wanted)

    def _fail(self, driver: Driver, node: Node, failing: Node, wanted: set[str]) -> None:
        """A run in which the one task completes and the other fails; whatever it shows is kept."""
        route = Route()
        for each in (failing, node):
            holder = driver.holder(each.path)
            trail = holder.explored.fired.get(each.id)
            if trail is None:
                return
            there = driver.route_to(holder, trail)
            route.asks += there.asks
            own = ("complete", failing.path)
            route.acts += [act for act in there.acts if act not in route.acts and act != own]
        # All else that is open completes first.
        known = {("complete", failing.path), *route.acts}
        for around in self._plan.scopes.values():
            for id in self._orders.of(around).line:
                act = ("complete", around.nodes[id].path)
                if act not in known:
                    route.acts.append(act)
        route.acts.append(("fail", failing.path))
        ended: list[Stage] = []

        def goal(stage: Stage) -> Shows | None:
            if stage.run.status != "FAILED":
                return None
            ended.append(stage)
            return Shows(status="FAILED")

        scenario = driver.drive(route, goal)
        if scenario is None:
            return
        for key, state in ended[-1].tasks.items():
            path = static(key)
            if path in wanted and state.status == "COMPLETED" and path not in self._scenarios:
                shows = Shows(status="FAILED", task=key, task_status="COMPLETED")
                self._scenarios[path] = replace(scenario, shows=shows)

    def _note(self, scope: ScopePlan, node: Node, message: str) -> None:
        scenario = self._scenarios.get(node.path)
        self._subject.notes.add(
            CODE, place(scope, node.id), message, HINT, key=True, level="note", counterexample=scenario
        )  # fmt: skip


def effects(node: Node) -> str:
    """What a task may leave behind, in words; empty: nothing."""
    if node.added is not None:
        if node.task.reads and not node.task.writes:
            return ""
        return node.added.leaves(node.config)
    match node.type:
        case "activity":
            if node.task.reads and not node.task.writes:
                return ""
            return f"calls `{node.config.get('activity', '')}`"
        case "http":
            method = node.config.get("method", "GET")
            if (
                isinstance(method, str)
                and method.upper() in HARMLESS
                and not _given(node, "method")
            ):
                return ""
            return "sends a request" if _given(node, "method") else f"sends a {method} request"
        case "publish":
            return "publishes"
        case "subworkflow":
            return "runs another workflow"
        case _:
            return ""


def _given(node: Node, name: str) -> bool:
    return any(given.name == name for given in node.inputs)


def _beyond(scope: ScopePlan, order: Order, task: Node, other: Node) -> bool:
    """The other may fail when the task is over, or before it and yet lead to it."""
    if order.leads(task.id, other.id) or order.concurrent(task.id, other.id):
        return True
    if not order.leads(other.id, task.id):
        return False

    def leads(id: str) -> bool:
        return id == task.id or order.leads(id, task.id)

    inside = [out for out in other.outs if out.role == INTERNAL]
    if any(out.edge.on == "always" and leads(out.target) for out in inside):
        return True  # what an `always` link leads to still runs, then the run fails
    # A join that does not wait for all: what leads to it may still be under way.
    return any(
        join.join == "n"
        and other.id not in join.cancels
        and order.leads(other.id, join.id)
        and leads(join.id)
        for join in scope.nodes.values()
    )


def _fallible(scope: ScopePlan, node: Node) -> Iterator[Place]:
    """The task, or those in it, if a failure of it goes on to its scope."""
    if any(out.edge.on == "error" and out.edge.guard is None for out in node.outs):
        return
    inner = node.body or node.loop
    if inner is not None:
        if node.type == "map" and node.config.get("onItemError") == "collect":
            return
        for other in inner.nodes.values():
            yield from _fallible(inner, other)
        return
    waits = node.type in ("signal", "form") and "timeout" in node.config
    if node.works or node.type == "subworkflow" or waits:
        yield scope, node
