"""Job of an attempt: what its activity is called with and within which limits, as the run's state says now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec.json import encode

from penstock.core.decide import PRIORITIES
from penstock.core.flow import Flow
from penstock.core.plan import Formula, Node
from penstock.core.values import Variables, decode
from penstock.core.vocabulary import PREFIX
from penstock.engine.queues import Ticket
from penstock.model.intents import Call
from penstock.model.job import Job
from penstock.model.run import RETRYING, RUNNING, SCHEDULED, Run
from penstock.ports.activities import Served

if TYPE_CHECKING:
    from penstock.engine.engine import Engine


class Route:
    """What every attempt of one task has in common."""

    __slots__ = (
        "activity", "heartbeat", "implied", "key", "key_limit", "key_name", "once", "patience", "priority", "queue",
        "served", "start_to_close",
    )  # fmt: skip

    def __init__(self, flow: Flow, node: Node, served: Served | None, activity: str) -> None:
        limits, defaults = node.timeouts, flow.plan.definition.timeouts
        self.activity, self.served = activity, served
        self.start_to_close = (
            limits.start_to_close
            or (defaults and defaults.start_to_close)
            or (served and served.start_to_close)
        )
        self.heartbeat = (
            limits.heartbeat or (defaults and defaults.heartbeat) or (served and served.heartbeat)
        )
        self.patience = limits.schedule_to_start or (defaults and defaults.schedule_to_start)
        told = node.added is None and bool(node.config.get("once"))
        self.once = told or bool(served and served.once)
        plan = flow.plan
        self.queue: str = plan.queue_of(node)
        self.priority = None if node.priority is None else PRIORITIES[node.priority]
        own = node.key is not None
        self.key: Formula | None = node.key or plan.key
        keyed = node.task.limits if own else plan.definition.limits
        self.key_limit = int(keyed.get("concurrency", 1))
        default = f"{plan.definition.id}/{node.path}" if own else plan.definition.id
        self.key_name = str(keyed.get("name", default))
        given = {each.name for each in node.inputs}
        self.implied: tuple[str, ...] = ()
        """Parameters that no input names: looked up by name (SPEC 2.6)."""
        if served is not None and node.type != "http" and node.shape is None:
            self.implied = tuple(name for name in served.parameters if name not in given)


class Jobs:
    """Makes jobs of tickets; keeps what all attempts of a task have in common."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._routes: dict[Any, Route] = {}

    def route(self, flow: Flow, node: Node) -> Route:
        known = node if node.shape is None else node.shape
        route = self._routes.get(known)
        if route is None:
            if node.added is not None:
                activity = PREFIX + node.type
            else:
                activity = "http" if node.type == "http" else str(node.config.get("activity", ""))
            route = self._routes[known] = Route(
                flow, node, self._engine.activities.get(activity), activity
            )
        return route

    def job(self, flow: Flow, ticket: Ticket) -> Job | None:
        """The attempt as a job, or None if the state does not want it any more; Need for values that are not here."""
        run_id, key, attempt, undo, generation = ticket
        run = flow.run
        if run.closed or run.generation != generation:
            return None
        if undo:
            return self._undo_job(run, key, attempt)
        try:
            path, scope, node, state = flow.locate(key)
        except KeyError:
            return None
        if (
            state.attempt != attempt
            or run.paused
            or state.status not in (SCHEDULED, RETRYING, RUNNING)
        ):
            return None
        if run.stopping is not None or state.told:
            return None
        step = state.step
        if step is None:
            arguments, secrets = flow.arguments_of(path, scope, node, state)
        else:
            assert type(step) is Call
            arguments, secrets = decode(step.arguments), []
        route = self._routes.get(node.shape or node) or self.route(flow, node)
        if route.implied:
            self._imply(flow, route.implied, arguments)
        progress = None if state.progress is None else decode(state.progress)
        # By position, as names cost as much again: this is made for every attempt.
        return Job(
            run_id, run.generation, key, attempt, route.activity, arguments, route.start_to_close, route.heartbeat,
            progress, secrets, route.once, False, self._engine.clock.now(), state.lost, state.poison, state.started,
            route.queue, run.priority if route.priority is None else route.priority,
        )  # fmt: skip

    def key(self, flow: Flow, path: str, route: Route) -> str | None:
        """What the task's key limit counts by, or None if it has none; Need, or an EvaluationError."""
        if route.key is None:
            return None
        flow.at, flow.globals = self._engine.clock.now(), self._engine.globals
        value = route.key(Variables(flow, path))
        text = value if isinstance(value, str) else encode(value, order="sorted").decode()
        return f"{route.key_name}:{text}"

    def _undo_job(self, run: Run, key: str, attempt: int) -> Job | None:
        undoing = run.undoing.get(key)
        if undoing is None or undoing.attempt != attempt:
            return None
        return Job(
            run_id=run.id, generation=run.generation, key=key, attempt=attempt, activity=undoing.entry.activity,
            arguments=decode(bytes(undoing.entry.arguments)), undo=True, started_at=self._engine.clock.now(),
            lost=undoing.suspect, poison=undoing.poison, recorded=undoing.started,
        )  # fmt: skip

    def _imply(self, flow: Flow, names: tuple[str, ...], values: dict[str, Any]) -> None:
        """Parameters that no input names, from run data, the run's input, global data (SPEC 2.6)."""
        run = flow.run
        given: Any = flow.input() if run.input is not None else None
        for name in names:
            if name in values:
                continue
            if name in run.data:
                values[name] = decode(bytes(run.data[name].value))
            elif isinstance(given, dict) and name in given:
                values[name] = cast("dict[str, Any]", given)[name]
            elif name in self._engine.globals:
                values[name] = self._engine.globals[name]


def due_of(flow: Flow, ticket: Ticket) -> float | None:
    """When the attempt is to begin, as the state says now."""
    if flow.run.generation != ticket[4]:
        return None
    if ticket[3]:
        undoing = flow.run.undoing.get(ticket[1])
        return None if undoing is None or undoing.attempt != ticket[2] else undoing.due
    try:
        state = flow.locate(ticket[1])[3]
    except KeyError:
        return None
    return state.due if state.status == RETRYING and state.attempt == ticket[2] else None


def underway(flow: Flow, job: Job) -> bool:
    """It is recorded that the attempt begins, and nothing has come of it yet."""
    run = flow.run
    if run.generation != job.generation:
        return False
    if job.undo:
        undoing = run.undoing.get(job.key)
        return undoing is not None and undoing.attempt == job.attempt and undoing.started
    try:
        state = flow.locate(job.key)[3]
    except KeyError:
        return False
    stopping = run.stopping is not None or state.told
    return state.started and state.attempt == job.attempt and not stopping
