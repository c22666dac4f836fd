"""What a run is doing, task by task, folded from its events as they come.

The same fold as the engine's own, so that a run can be followed from any process; beside the state it notes which links
were taken and how each task ended, which the state of a closed run no longer has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.cli.graph import Link, Look, Task
from penstock.cli.humane import duration, until
from penstock.cli.timeline import Timeline
from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.owed import Reason, reasons
from penstock.core.plan import BACK, NeedPlan, Node, Out, Plan
from penstock.model import events as e
from penstock.model.definition import Definition
from penstock.model.run import CLOSED, OPEN_TASK, PENDING, Run, Scope, TaskState

Versions = Callable[[str, str], Awaitable[Definition]]
"""Gives a version of a definition."""
EVENTS_KEPT = 200
SPINNER = "◐◓◑◒"
SYMBOLS = {
    "PENDING": "·", "SCHEDULED": "▶", "RUNNING": "▶", "WAITING": "⏳", "RETRYING": "↻", "COMPLETED": "✓",
    "FAILED": "✗", "SKIPPED": "⤼", "CANCELLED": "⊘", "COMPENSATING": "↶", "COMPENSATED": "↶", "UNDO_FAILED": "✗",
}  # fmt: skip
BODIED = frozenset({"map", "loop", "mutex"})


class Traced(Flow):
    """A Flow that notes how each link was decided, by the place of its scope and its own."""

    __slots__ = ("links",)

    def __init__(self, run: Run, plan: Plan) -> None:
        super().__init__(run, plan)
        self.links: dict[int, str] = {}
        """Of the definition's own links, by index."""

    def route(self, path: str, scope: Scope, out: Out, taken: bool, rescue: bool = False) -> None:
        if _outermost(self.plan, scope.plan):
            if taken:
                self.links[out.edge.index] = "taken"
            elif out.role != BACK:
                self.links[out.edge.index] = "dead"
        super().route(path, scope, out, taken, rescue)

    def move_links(self, event: e.RunMigrated) -> None:
        """The links that are decided, by their places in another version."""
        names, new = event.mapping, self.plan.of(event.version).definition
        places = {(link.from_, link.to, link.on): place for place, link in enumerate(new.links)}
        decided, self.links = self.links, {}
        for place, state in decided.items():
            link = self.plan.definition.links[place]
            name = names.get(link.from_, link.from_), names.get(link.to, link.to), link.on
            if name in places:
                self.links[places[name]] = state


def _outermost(plan: Plan, path: str) -> bool:
    """The scope holds tasks of the definition itself: the run, or a pass of a natural loop in it."""
    scope = plan.scopes[path]
    while scope.kind == "natural" and scope.parent is not None:
        scope = scope.parent
    return scope.kind == "run"


@dataclass(frozen=True)
class Line:
    """An event in the words of people."""

    seq: int
    at: float
    type: str
    key: str
    text: str


def _compiled(definition: Definition) -> Plan:
    """With the plugins that are installed here."""
    from penstock.core.vocabulary import PLAIN, mentioned
    from penstock.wiring import installed_plugins

    wanted = mentioned(definition)
    return Plan(definition, installed_plugins().added(wanted) if wanted else PLAIN)


class Followed:
    """One run, as far as its events have come."""

    def __init__(self, run_id: str, plan: Plan) -> None:
        self.flow = Traced(Run(id=run_id), plan)
        self.lines: deque[Line] = deque(maxlen=EVENTS_KEPT)
        self.result: bytes | None = None
        self._root: Scope | None = None
        self._counts: dict[str, tuple[int, int, int]] = {}
        self._undone: dict[str, int] = {}
        self._inner: dict[str, dict[str, TaskState]] = {}
        self.timeline = Timeline() if plan.function else None
        """Of a workflow function: it has no graph."""

    @property
    def run(self) -> Run:
        return self.flow.run

    @property
    def plan(self) -> Plan:
        """Of the version that the run is of now."""
        return self.flow.plan

    @property
    def definition(self) -> Definition:
        return self.plan.definition

    @property
    def status(self) -> str:
        return "PAUSED" if self.run.paused else self.run.status

    @property
    def closed(self) -> bool:
        return self.run.status in CLOSED

    async def follow(self, seq: int, event: e.Event, versions: Versions) -> None:
        """As `take`, with the versions that the run goes through loaded when they are come to."""
        while True:
            try:
                return self.take(seq, event)
            except NeedPlan as need:
                found = await versions(self.definition.id, need.version)
                _compiled(found).join(self.plan.kin, need.version)

    def take(self, seq: int, event: e.Event) -> None:
        """Fold the next event; one that is known already changes nothing."""
        if seq <= self.run.revision:
            return
        if isinstance(event, e.RunMigrated):
            self.flow.move_links(event)
        key = getattr(event, "key", "")
        top = key.partition("/")[0].partition("[")[0]
        self._remember()
        self._count(top)
        evolve(self.flow, event)
        self.flow.effects.clear()
        self._root = self.run.scopes.get("", self._root)
        self._count(top)
        if self.timeline is not None:
            self.timeline.take(self.run, event)
        if isinstance(event, e.UndoCompleted):
            self._undone[top] = self._undone.get(top, 0) + 1
        if isinstance(event, e.RunCompleted):
            self.result = bytes(event.output) if event.ref is None else None
        self.lines.append(Line(seq, event.at, event.type, key, told(event)))

    def _remember(self) -> None:
        """Passes of natural loops leave the state when the run ends; their tasks are still to be shown."""
        for path, scope in self.run.scopes.items():
            if path and _outermost(self.plan, scope.plan):
                self._inner.setdefault(scope.plan, {}).update(scope.tasks)

    def _count(self, id: str) -> None:
        state = None if self._root is None else self._root.tasks.get(id)
        if state is not None and state.map is not None:
            held = state.map
            self._counts[id] = (
                held.completed + held.failed,
                held.total + len(held.extra),
                held.failed,
            )
        elif state is not None and id in self._counts and state.status == "COMPLETED":
            _, total, failed = self._counts[id]  # the last item took the map out of the state
            self._counts[id] = (total, total, failed)

    # --- as it is shown ----------------------------------------------------------------------------------------

    def tasks(self) -> list[Task]:
        """What the graph is laid out with."""
        return tasks_of(self.definition)

    def links(self) -> dict[int, str]:
        """Taken and dead ones, by their place in the definition."""
        found = dict(self.flow.links)
        for index, link in enumerate(self.definition.links):
            state = self.state(link.to)
            if state is None or index in found:
                continue
            if state.group == link.from_:  # armed by an event gateway
                found[index] = "dead" if state.status in ("CANCELLED", "SKIPPED") else "taken"
        return found

    def state(self, id: str) -> TaskState | None:
        """The task of the definition as its newest pass knows it."""
        scope, plan, path = self._root, self.plan.root, ""
        while scope is not None:
            header = plan.inner.get(id)
            if header is None:
                return scope.tasks.get(id)
            composite = scope.tasks.get(header)
            inner = plan.nodes[header].loop
            if composite is None or inner is None:
                return None
            path = (
                f"{path}/{header}[{composite.number}]" if path else f"{header}[{composite.number}]"
            )
            pass_ = self.run.scopes.get(path)
            if pass_ is None:
                return (composite.last or {}).get(id) or self._inner.get(inner.path, {}).get(id)
            scope, plan = pass_, inner
        return None

    def look(self, id: str, now: float) -> Look:
        node = self.definition.tasks[id]
        if node.type == "start":
            return Look("●", "completed" if self._root is not None else "pending")
        state = self.state(id)
        if node.type == "end":
            return self._end(id, state)
        if state is None or state.status == PENDING:
            return Look("·", "pending")
        status = state.status
        symbol, style = SYMBOLS[status], status.lower()
        if self.closed and status in OPEN_TASK:
            symbol, style = SYMBOLS["CANCELLED"], "cancelled"
        if self.run.paused and status in ("SCHEDULED", "RETRYING") and not state.started:
            return Look("‖", "waiting")  # it begins when the run is resumed
        if style in ("scheduled", "running"):
            symbol = SPINNER[int(now * 4) % 4] if node.type not in BODIED else "▶"
        return Look(symbol, style, self._detail(id, node.type, state, now))

    def _end(self, id: str, state: TaskState | None) -> Look:
        if state is not None and state.status in ("COMPLETED", "SKIPPED"):
            return Look("◉" if state.status == "COMPLETED" else "○", state.status.lower())
        reached = any(
            self.flow.links.get(i) == "taken"
            for i, link in enumerate(self.definition.links)
            if link.to == id
        )
        return Look("◉", "completed") if reached else Look("○", "pending")

    def _detail(self, id: str, type: str, state: TaskState, now: float) -> str:
        match state.status:
            case "SKIPPED" | "CANCELLED" | "UNDO_FAILED":
                return ""
            case "COMPENSATED" | "COMPENSATING":
                return ""
            case "RETRYING":
                return "" if state.due is None else until(state.due, now)
            case "WAITING":
                return "" if state.due is None else until(state.due, now)
            case _:
                pass
        if id in self._undone and type in BODIED:
            return f"↶ {self._undone[id]}"
        if type == "map" and state.map is not None:
            self._count(id)
        if type == "map" and id in self._counts:
            done, total, failed = self._counts[id]
            return f"{done}/{total}" + (f" ✗{failed}" if failed else "")
        if type == "loop" and state.number:
            return f"{state.number}×"
        if type in ("gateway", "transform", "publish", "cancel"):
            return ""
        began = state.started_at or state.scheduled_at
        if not began:
            return ""
        return duration((state.ended_at if state.ended_at is not None else now) - began)

    def passes(self, id: str) -> int:
        """Of a natural loop's header: how often it was begun."""
        state = None if self._root is None else self._root.tasks.get(id)
        node = self.plan.root.nodes.get(id)
        return (
            state.number if state is not None and node is not None and node.loop is not None else 0
        )

    def progress(self) -> tuple[int, int]:
        """Tasks that are over, of all that the definition has; of a function, of those that began."""
        if self.timeline is not None:
            return self.timeline.progress()
        ids = [
            id for id, task in self.definition.tasks.items() if task.type not in ("start", "end")
        ]
        over = 0
        for id in ids:
            state = self.state(id)
            over += state is not None and state.status != PENDING and state.status not in OPEN_TASK
        return over, len(ids)

    def why(self) -> list[Reason]:
        return reasons(self.run)

    def node(self, key: str) -> Node | None:
        try:
            return self.flow.locate(key)[2]
        except KeyError:
            return None


def tasks_of(definition: Definition) -> list[Task]:
    found: list[Task] = []
    for id, task in definition.tasks.items():
        if task.type in ("start", "end"):
            found.append(Task(id, "point", 0))
        elif task.type == "gateway":
            found.append(Task(id, "gateway", 0))
        elif task.type in ("transform", "publish", "cancel"):
            found.append(Task(id, detail=0))
        else:
            found.append(Task(id, detail=8 if task.type == "map" else 6))
    return found


def links_of(definition: Definition) -> list[Link]:
    return [Link(link.from_, link.to) for link in definition.links]


def told(event: e.Event) -> str:
    """An event in a few words."""
    match event:
        case e.RunStarted():
            return "started" + (f" by {event.created_by}" if event.created_by else "")
        case e.RunBegun():
            return "begun"
        case e.RunAdmitted():
            return "admitted"
        case e.DeadlineForeseen():
            return "will probably miss its deadline; it goes first from now on"
        case e.DeadlineMissed():
            return "missed its deadline"
        case e.TaskStarted():
            # Of one that takes long it is recorded a while after it began.
            since = event.at - (event.began or event.at)
            return f"attempt {event.attempt} began" + (
                f" {duration(since)} before" if since else ""
            )
        case e.SnapshotTaken():
            return f"snapshot `{event.name}`" + (f" by {event.by}" if event.by else "")
        case e.TaskProgressed():
            return f"attempt {event.attempt}: progress {_short(event.progress)}"
        case e.TaskCompleted():
            tries = f" at attempt {event.attempt}" if event.attempt > 1 else ""
            return f"completed{tries}" + (
                f": {_short(event.output)}" if event.output != e.NULL else ""
            )
        case e.TaskRetried():
            return f"attempt {event.attempt} failed: {event.failure.text}; again {until(event.due, event.at)}"
        case e.TaskFailed():
            word = "stopped" if event.cancelled else "failed"
            return f"{word}: {event.failure.text}"
        case e.TaskLost():
            return f"attempt {event.attempt} was lost with its process; another begins"
        case e.TimerFired():
            return "fired" + _who(event.by, event.reason) if event.by is not None else "time is up"
        case e.SignalReceived():
            by = f" by {event.by}" if event.by else ""
            return f"signal {event.name} received{by}: {_short(event.payload)}"
        case e.EventReceived():
            kind = f" of type {event.kind}" if event.kind else ""
            return f"event{kind} on {event.topic} received: {_short(event.payload)}"
        case e.FormClaimed():
            return f"claimed by {event.by}"
        case e.FormReleased():
            return f"released by {event.by}"
        case e.FormDelegated():
            return f"delegated by {event.by} to {event.to}"
        case e.FormSubmitted():
            return (
                "filled in" + (f" by {event.by}" if event.by else "") + f": {_short(event.output)}"
            )
        case e.FormEscalated():
            return "overdue"
        case e.ChildStarted():
            return f"run {event.run} started"
        case e.ChildClosed():
            return f"its run ended {event.status}"
        case e.Published():
            return f"published to {event.topic}: {_short(event.payload)}"
        case e.SignalSent():
            return f"signal {event.name} sent to run {event.run}"
        case e.SignalDelivered():
            return f"signal refused: {event.refused}" if event.refused else "signal delivered"
        case e.DataConflicted():
            return f"{event.first} and {event.second} both wrote {event.name}"
        case e.RunPaused():
            return "paused" + _who(event.by, event.reason)
        case e.RunResumed():
            return "resumed" + _who(event.by, event.reason)
        case e.CancelRequested():
            return "cancel requested" + _who(event.by, event.reason)
        case e.TimeoutReached():
            return "the run's timeout is over"
        case e.GraceEnded():
            return "attempts that did not stop are given up"
        case e.UndoCompleted():
            return "undone"
        case e.UndoRetried():
            return f"undo failed: {event.failure.text}; again {until(event.due, event.at)}"
        case e.UndoStarted():
            return f"undo began, with care: attempt {event.attempt}"
        case e.UndoLost():
            return "undo was lost with its process; another begins"
        case e.UndoFailed():
            by = "" if event.by is None else _who(event.by, event.reason)
            return f"could not be undone: {event.failure.text}{by}"
        case e.RunCompleted():
            return "completed" + (f": {_short(event.output)}" if event.ref is None else "")
        case e.RunFailed():
            return f"failed: {event.failure.text}"
        case e.RunCancelled():
            return "cancelled"
        case e.RunTimedOut():
            return "timed out"
        case e.RunTerminated():
            return "terminated" + _who(event.by, event.reason)
        case e.RunReset():
            what = "retried" if event.cause == "retry" else "reset"
            start = f", beginning with {event.task}" if event.task else ""
            return f"{what}: goes on from event {event.to} of generation {event.of}{start}" + _who(
                event.by, event.reason
            )
        case e.Advanced():
            return "its code goes on"
        case e.RunMigrated():
            names = ", ".join(f"{before} is {after}" for before, after in event.mapping.items())
            renamed = f" ({names})" if names else ""
            return f"moved from version {event.was} to {event.version}{renamed}" + _who(
                event.by, event.reason
            )
        case e.RunContinued():
            return f"goes on as generation {event.generation}" + _who(event.by, event.reason)
        case e.TaskDeferred():
            return f"attempt {event.attempt} waits to be completed from outside"
        case e.TaskSkipped():
            return "skipped" + _who(event.by, event.reason)
        case e.RetryFired():
            return f"attempt {event.attempt} begins before its time" + _who(event.by, event.reason)
        case e.CommandAccepted():
            return f"command {event.id} accepted"
        case e.UpdateAnswered():
            return f"update refused: {event.refused}" if event.refused else "update answered"
        case e.UndoResolved():
            acts = {"accept": "accepted as undone", "skip": "left as it is", "retry": "tried again"}
            return f"its undo is {acts[event.act]}" + _who(event.by, event.reason)
        case e.AttributesChanged():
            names = ", ".join(event.values)
            return f"attributes changed: {names}" + _who(event.by, event.reason)


def _who(by: str | None, reason: str) -> str:
    return (f" by {by}" if by else "") + (f": {reason}" if reason else "")


def _short(raw: object) -> str:
    text = bytes(raw).decode("utf-8", "replace")  # type: ignore[call-overload]
    return text if len(text) <= 80 else text[:79] + "…"
