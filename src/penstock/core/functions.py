"""A workflow function as seen by the fold: its steps are tasks, what it wants stands in the events (SPEC 2.8).

`advance` is called at the end of each event: while the event is new the program is told what came of it, and what it
wants is written into the event's `outcomes`; on every later fold that is read back, and no code is needed. Where the code
is not at hand the run keeps what it is to be told (`Run.heard`), and an `Advanced` of whoever has it catches up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never, cast

from msgspec import Raw
from msgspec.structs import replace

from penstock.core.keys import GRACE
from penstock.core.plan import Node, Plan
from penstock.core.program import NeedProgram, Told
from penstock.core.values import encode
from penstock.model import intents as i
from penstock.model.definition import Compensate, Definition, Retry, Task, Timeouts
from penstock.model.effects import Abandon, Advance, Answer, Execute, OpenNext, StartChild
from penstock.model.events import (
    AttributesChanged,
    Published,
    RunCompleted,
    SignalSent,
    TaskCompleted,
)
from penstock.model.failure import Failure
from penstock.model.run import (
    CANCELLED,
    CLOSED,
    COMPLETED,
    FAILED,
    INLINE_BYTES_MAX,
    OPEN_TASK,
    REF_SHIFT,
    SCHEDULED,
    SKIPPED,
    WAITING,
    Letter,
    Run,
    Scope,
    TaskState,
    Undo,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.core.flow import Flow

FUNCTION = "function"
"""The version of every workflow function, and the kind of its scope."""
ADVANCES_MAX = 10_000
"""Times that one event may tell a function something: it takes letters that are there already without waiting."""
DEPTH_MAX = 64
STEPS_KEPT = 64
"""Steps of a function that all of its runs share: those of a long run would fill the memory."""
GRACE_SECONDS = 30.0
UNDO_RETRY = Retry(attempts=4, first=2.0, factor=2.0, maximum=60.0, jitter=0.0)
_NO_TIMEOUTS = Timeouts()


class Shape:
    """What all steps that are executed alike have in common: one object for them."""

    __slots__ = ("config",)

    def __init__(self, activity: str) -> None:
        self.config = {"activity": activity}


class PlainStep:
    """A step of a function in the place of a task's node: a call as most are, with nothing said about it."""

    __slots__ = ("config", "id", "shape")

    type = "activity"
    retry = compensate = queue = priority = None
    timeouts = _NO_TIMEOUTS
    # What a step never has.
    arrivals = outs = cancels = conditions = inputs = on_complete = on_error = ()
    added = body = gateway = key = loop = output_schema = schema = undo_inputs = None
    join, join_n, join_cancel = "merge", 1, False
    formulas = values = cast("dict[str, Any]", {})
    task = Task(type="activity")

    def __init__(self, id: str, shape: Shape) -> None:
        self.id, self.shape, self.config = id, shape, shape.config

    @property
    def path(self) -> str:
        return self.id


class Step(PlainStep):
    """Any other: what is said about it is its own."""

    __slots__ = ("compensate", "priority", "queue", "retry", "timeouts", "type")

    def __init__(self, plan: FunctionPlan, id: str, step: i.Waiting) -> None:
        self.id = id
        self.retry = self.compensate = self.queue = self.priority = None
        self.timeouts = _NO_TIMEOUTS
        match step:
            case i.Call():
                self.type = "activity"
                self.shape = plan.shape(step)
                self.config = self.shape.config
                self.retry, self.queue, self.priority = step.retry, step.queue, step.priority
                if step.timeouts is not None:
                    self.timeouts = step.timeouts
                if step.undo:
                    self.compensate = Compensate(activity=step.undo, retry=step.undo_retry)
            case i.Sleep():
                self.type, self.config, self.shape = "timer", {}, step
            case i.Await():
                self.type, self.config, self.shape = "signal", {"name": step.name}, step
            case i.Child():
                self.type, self.shape = "subworkflow", step
                self.config = {"detached": step.detached, "kept": step.kept}

    @property
    def works(self) -> bool:
        return self.type == "activity"


class FunctionPlan(Plan):
    """What all runs of one workflow function have in common."""

    __slots__ = ("_plain", "_shapes", "steps")

    function = True

    def __init__(self, name: str, timeouts: Timeouts | None = None) -> None:
        super().__init__(
            Definition(id=name, tasks={"start": Task(type="start")}, timeouts=timeouts)
        )
        self.version = FUNCTION
        self._shapes: dict[Any, Shape] = {}
        self._plain: dict[str, Shape] = {}
        """Of steps about which nothing is said, by activity."""
        self.steps: dict[str, PlainStep] = {}
        """Such steps by id: one object for all runs, as of a definition's nodes."""

    def shape(self, step: i.Call) -> Shape:
        """One object for all steps that are executed alike."""
        key = (step.activity, step.retry, step.timeouts, step.queue, step.priority)
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = Shape(step.activity)
        return found

    def plain_step(self, id: str, step: i.Call) -> PlainStep:
        """Of a step about which nothing is said."""
        activity = step.activity
        shape = self._plain.get(activity)
        if shape is None:
            shape = self._plain[activity] = self.shape(step)
        made = PlainStep(id, shape)
        if len(self.steps) < STEPS_KEPT:
            self.steps[id] = made
        return made

    def takes(self, signal: str) -> bool:
        return self.declared is None or signal in self.declared

    def of_run(self, run: Run) -> Plan:
        return cast("Plan", RunPlan(self, run))


class RunScope:
    """The one scope of a function, in the place of a ScopePlan."""

    __slots__ = ("nodes",)

    path = owner = ""
    kind, parent, entry = FUNCTION, None, cast("Node", None)
    ends = results = ()
    inner = cast("dict[str, str]", {})

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {}


class RunPlan:
    """The plan of one run of a function: it grows and shrinks with the run's steps."""

    __slots__ = ("base", "definition", "nodes", "on_bus", "publishes", "queued", "scopes", "steps")

    function = True
    awaits = False
    runs_max = input_schema = None
    version = FUNCTION

    def __init__(self, base: FunctionPlan, run: Run) -> None:
        self.base, self.definition, self.steps = base, base.definition, base.steps
        self.queued = self.publishes = self.on_bus = False
        inside = RunScope()
        self.nodes, self.scopes = inside.nodes, {"": inside}
        scope = run.scopes.get("")
        if scope is not None:
            for id, state in scope.tasks.items():
                if state.step is not None:
                    self.add(id, state.step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def add(self, id: str, step: i.Waiting) -> PlainStep:
        if (
            type(step) is i.Call
            and step.retry is None
            and step.timeouts is None
            and step.queue is None
            and step.priority is None
            and not step.undo
        ):
            plain = self.steps.get(id)
            if plain is None or plain.config["activity"] != step.activity:
                plain = self.base.plain_step(id, step)
            self.nodes[id] = plain
            return plain
        node = Step(self.base, id, step)
        if node.queue is not None or node.priority is not None:
            self.queued = True
        self.nodes[id] = node
        return node


# --- what happens to the function ----------------------------------------------------------------------------


def open_function(flow: Flow) -> None:
    """The run begins."""
    run = flow.run
    run.scopes[""] = Scope()
    run.heard.append(
        i.Heard("start", output=run.input, ref=0 if run.input is not None else 1 << REF_SHIFT)
    )


def ask_to_stop(flow: Flow, status: str, failure: Failure) -> None:
    """The function gets the chance to clean up; it is told once."""
    run = flow.run
    run.asked = status
    run.due = None
    run.failure = run.failure or failure
    if "" not in run.scopes or run.answer is not None or run.next_input is not None:
        flow.stop(status, failure, gently=True, grace=flow.at + GRACE_SECONDS)
        return
    run.heard.append(i.Heard("cancel", failure=failure))


def done(flow: Flow, event: TaskCompleted) -> bool:
    """As `keep`, `shut` and `completed`, of a step as most are, in one place: the hot path. False of any other."""
    run, key = flow.run, event.key
    scope = run.scopes[""]
    plan: Any = flow.plan
    state, node = scope.tasks[key], plan.nodes[key]
    if run.stopping is not None or run.answer is not None or run.next_input is not None:
        return False
    if state.told or node.compensate is not None or not state.attempt:
        return False
    raw = bytes(event.output)
    if len(raw) <= INLINE_BYTES_MAX:
        run.heard.append(i.Heard("done", key, raw))
    else:
        ref = flow.seq << REF_SHIFT
        flow.hold_live(ref, raw)
        run.heard.append(i.Heard("done", key, None, ref))
    del scope.tasks[key], plan.nodes[key]
    scope.open -= 1
    run.active -= 1
    run.tasks_done += 1
    return True  # nothing open is not the end: the function says what is


def completed(flow: Flow, scope: Scope, node: Node, state: TaskState) -> None:
    """A step is done; its output is kept already."""
    state.status, state.ended_at, state.failure = COMPLETED, flow.at, None
    flow.run.tasks_done += 1
    if node.compensate is not None:
        flow.push_undo("", node, state)
    _tell(flow, scope, node, state, "done")
    if flow.run.answer is None and flow.run.next_input is None:
        flow.checks.clear()  # nothing open is not the end: the function says what is


def skipped(flow: Flow, scope: Scope, node: Node, state: TaskState) -> None:
    """An operator does not want it to be waited for: the function goes on, with nothing."""
    state.status, state.ended_at, state.failure = SKIPPED, flow.at, None
    flow.run.tasks_done += 1
    _tell(flow, scope, node, state, "skipped")


def failed(flow: Flow, scope: Scope, node: Node, state: TaskState, failure: Failure) -> None:
    """A step has failed for good."""
    state.status, state.ended_at, state.failure = FAILED, flow.at, failure
    flow.run.tasks_done += 1
    _tell(flow, scope, node, state, "failed")


def take(flow: Flow, scope: Scope, node: Node, state: TaskState, letter: Letter) -> None:
    """The signal is this step's."""
    flow.keep(state, letter.ref, letter.payload)
    state.status, state.ended_at = COMPLETED, flow.at
    flow.run.tasks_done += 1
    step = cast("i.Await", state.step)
    _tell(flow, scope, node, state, "done", letter.id if letter.update and step.update else "")
    if letter.update and not step.update:
        flow.answered(Answer(letter.id, b"null"))


def _tell(flow: Flow, scope: Scope, node: Node, state: TaskState, kind: str, id: str = "") -> None:
    """The function is to hear of it; the step itself leaves the state, so that a run of 100,000 has room."""
    run = flow.run
    if run.stopping is not None:
        return
    if state.told:
        _forget(flow, scope, node.id)
        return
    run.heard.append(
        i.Heard(
            kind,
            node.id,
            state.output,
            0 if state.output is not None else state.ref,
            state.failure,
            id,
        )
    )
    _forget(flow, scope, node.id)


def told(run: Run, key: str) -> bool:
    """The attempt of that step was told to stop, as its function gave it up."""
    scope = run.scopes.get("")
    state = None if scope is None else scope.tasks.get(key)
    return state is not None and state.told


def given_up(flow: Flow, scope: Scope, id: str, state: TaskState) -> None:
    """An attempt that was told to stop has done so."""
    if state.told and flow.run.stopping is None:
        _forget(flow, scope, id)


def _forget(flow: Flow, scope: Scope, id: str) -> None:
    del scope.tasks[id]
    flow.plan.scopes[""].nodes.pop(id, None)


def quiet(flow: Flow) -> None:
    """Nothing is open in the run; if its function has returned, it ends."""
    run = flow.run
    if run.finished or flow.sending():
        return
    if run.next_input is not None:
        flow.effects.append(OpenNext())
    if run.answer is None or run.leaving:
        return
    run.finished = True
    run.pending.append(RunCompleted(at=flow.at, output=Raw(run.answer)))


# --- what the function wants ---------------------------------------------------------------------------------


def advance(flow: Flow) -> None:
    """Tell the function what it has not heard, and do what it wants, until it waits."""
    run = flow.run
    if run.stopping is not None or run.status in CLOSED:
        run.heard.clear()
        return
    times = 0
    while times < ADVANCES_MAX:
        times += 1
        place = flow.cursor
        if flow.replaying:
            if place >= len(flow.outcomes):
                return  # its code was not there
            wanted = i.DECODER.decode(flow.outcomes[place])
            if flow.program is not None:
                flow.program.replay(_told(flow), wanted)
        else:
            program = flow.program or _program(flow)
            if program is None:
                flow.effects.append(Advance())
                return
            heard = run.heard
            if len(heard) == 1 and heard[0].output is not None:  # as it mostly is
                told = Told(flow.at, flow.seq, heard, [heard[0].output])
            else:
                told = _told(flow)
            wanted = program.advance(told)
            program.advanced = flow.seq
            try:
                encoded = i.ENCODER.encode(wanted)
            except Exception as error:  # what `sdk/context.py` has not seen: what woke it is kept
                wanted = i.unkept(error)
                encoded = i.ENCODER.encode(wanted)
            flow.outcomes.append(Raw(encoded))
        flow.cursor = place + 1
        run.heard = []  # the program has the other
        run.advanced = flow.seq
        for each in wanted:
            if type(each) is i.Call:
                _call(flow, each)
            else:
                _do(flow, each)
        if flow.checks or run.stopping is not None or run.dues:
            flow.drain()
        if run.stopping is not None:
            run.heard.clear()
        if not run.heard:
            return
    if run.heard:
        message = f"one event told the function something {ADVANCES_MAX} times without a wait"
        flow.stop(FAILED, Failure(code="advance-limit", message=message))
        run.heard.clear()
        flow.drain()


def _program(flow: Flow) -> Any:
    """The function itself; None if its code is not here."""
    if flow.program is None and flow.host is not None:
        if flow.run.advanced:
            raise NeedProgram
        flow.program = flow.host.begin(flow.run)
    return flow.program


def _told(flow: Flow) -> Told:
    heard = flow.run.heard
    outputs: list[bytes | None] = []
    for each in heard:
        output = each.output
        if output is None and each.ref:
            output = encode(flow.resolve(each.ref))
        outputs.append(output)
    return Told(flow.at, flow.seq, heard, outputs)


def _call(flow: Flow, call: i.Call) -> None:
    run, key = flow.run, call.key
    scope = run.scopes[""]
    state = scope.tasks[key] = TaskState(
        status=SCHEDULED, attempt=1, scheduled_at=flow.at, step=call
    )
    plan: Any = flow.plan
    node = plan.steps.get(key)
    if (
        node is not None
        and call.retry is None
        and call.timeouts is None
        and call.queue is None
        and call.priority is None
        and not call.undo
        and node.config["activity"] == call.activity
    ):  # as most are, and without a call of Python's: the hot path
        plan.nodes[key] = node
    else:
        plan.add(key, call)
    scope.open += 1  # as `enter` does
    run.active += 1
    flow.effects.append(Execute(key, 1))
    if call.timeouts is not None and call.timeouts.task is not None:
        state.deadline = flow.counted(flow.at + call.timeouts.task)
        flow.due(state.deadline, key)


def _do(flow: Flow, intent: i.Intent) -> None:
    run = flow.run
    match intent:
        case i.Call():
            _call(flow, intent)
        case i.Finish():
            run.answer = bytes(intent.output)
            _leave(flow, {} if run.parent is None else _still_to_end(flow, intent))
        case i.Sleep():
            scope, _, state = _begin(flow, intent)
            state.due, state.absolute = intent.due, True
            flow.enter(scope, state, WAITING)
            flow.due(intent.due, intent.key)
        case i.Await():
            scope, node, state = _begin(flow, intent)
            letter = flow.take_letter(intent.name, intent.key)
            if letter is not None:
                take(flow, scope, node, state, letter)
                return
            if intent.due is not None:
                state.due, state.absolute = intent.due, True
                flow.due(intent.due, intent.key)
            flow.enter(scope, state, WAITING)
            run.waiters.setdefault(intent.name, []).append(intent.key)
        case i.Child():
            _begin_child(flow, intent)
        case i.Drop():
            scope = run.scopes[""]
            state = scope.tasks.get(intent.key)
            if state is None:
                return
            if intent.gently and flow.in_flight(state):
                _tell_to_stop(flow, state, intent.key)
                return
            if state.status in OPEN_TASK:
                flow.cancel_task("", scope, intent.key, state, links=False)
            _forget(flow, scope, intent.key)
        case i.Note():
            pass
        case i.Send():
            id = f"{run.id}/{run.generation}/{flow.seq}/{intent.key}"
            run.pending.append(
                SignalSent(
                    at=flow.at, key=intent.key, run=intent.run, name=intent.name, payload=intent.payload, id=id
                )
            )  # fmt: skip
        case i.Publish():
            plan = cast("RunPlan", flow.plan)
            plan.publishes = plan.on_bus = True
            run.pending.append(
                Published(at=flow.at, key=intent.key, topic=intent.topic, payload=intent.payload)
            )
        case i.Tag():
            run.pending.append(AttributesChanged(at=flow.at, values=intent.values))
        case i.Reply():
            flow.answered(Answer(intent.id, bytes(intent.output), intent.refused))
        case i.Push():
            _push(flow, intent)
        case i.Break():
            gently = bool(run.asked)
            if gently:
                run.failure = None  # that it was asked to stop is not how it ended
            elif ending := _still_to_end(flow, intent):
                _give_up_steps(flow, but=ending)
                gently = True
            flow.stop(FAILED, intent.failure, gently=gently, grace=flow.at + GRACE_SECONDS)
        case i.Stop():
            flow.stop(run.asked or CANCELLED, None, gently=True, grace=flow.at + GRACE_SECONDS)
        case i.Continue():
            run.next_input = bytes(intent.input)
            _leave(flow, _still_to_end(flow, intent))
        case _:
            assert_never(intent)


def _begin(flow: Flow, step: i.Waiting) -> tuple[Scope, Node, TaskState]:
    scope = flow.run.scopes[""]
    state = scope.tasks[step.key] = TaskState(step=step, scheduled_at=flow.at)
    plan: Any = flow.plan
    return scope, plan.add(step.key, step), state


def _begin_child(flow: Flow, intent: i.Child) -> None:
    run = flow.run
    scope, node, state = _begin(flow, intent)
    if run.depth + 1 > DEPTH_MAX:
        message = (
            f"`{intent.key}` would be a child run {DEPTH_MAX + 1} deep, and at most {DEPTH_MAX} are started inside one another: "
            "a workflow that starts itself needs an end, or `continue_as_new`"
        )
        failed(
            flow,
            scope,
            node,
            state,
            Failure(code="depth-exceeded", message=message, key=intent.key),
        )
        return
    given = {"definition": intent.definition, "version": intent.version, "input": intent.input}
    state.arguments = encode(given)
    generation = "" if run.generation == 1 else f"~{run.generation}"
    state.child = intent.id or f"{run.id}{generation}/{intent.key}"
    flow.enter(scope, state, WAITING)
    flow.effects.append(StartChild(intent.key))


def _push(flow: Flow, intent: i.Push) -> None:
    retry = intent.retry or UNDO_RETRY
    flow.run.undo.append(
        Undo(
            key=intent.key, activity=intent.activity, arguments=intent.arguments, attempts=retry.attempts,
            first=retry.first, factor=retry.factor, maximum=retry.maximum,
        )
    )  # fmt: skip


def _tell_to_stop(flow: Flow, state: TaskState, key: str) -> None:
    """As `stop` does: it may be done before it hears of that, and is undone then."""
    if not state.told:
        state.told = True
        flow.effects.append(Abandon(key, state.attempt))


def _leave(flow: Flow, ending: dict[str, TaskState]) -> None:
    """The function has ended well; what of these is done all the same goes along, to be undone."""
    _give_up_steps(flow, but=ending)
    for id, state in ending.items():
        _tell_to_stop(flow, state, id)
    if ending:
        flow.run.grace = flow.at + GRACE_SECONDS
        flow.due(flow.run.grace, GRACE)
    flow.checks.append("")


def _still_to_end(flow: Flow, end: i.Break | i.Continue | i.Finish) -> dict[str, TaskState]:
    """Attempts that are under way as the function ends, and can be undone if they are done all the same. That there are
    any stands in the event: where it does not, they were not waited for."""
    if flow.replaying and not end.gently:
        return {}
    nodes = flow.plan.scopes[""].nodes
    found = {
        id: state
        for id, state in flow.run.scopes[""].tasks.items()
        if nodes[id].compensate is not None and flow.in_flight(state)
    }
    if found and not flow.replaying:
        place = flow.cursor - 1
        *before, _ = i.DECODER.decode(flow.outcomes[place])
        flow.outcomes[place] = Raw(i.ENCODER.encode([*before, replace(end, gently=True)]))
    return found


def _give_up_steps(flow: Flow, but: Collection[str] = ()) -> None:
    """The function has ended: what it left open is not waited for."""
    scope = flow.run.scopes[""]
    if not scope.tasks:
        return
    for id, state in list(scope.tasks.items()):
        if id in but:
            continue
        if state.status in OPEN_TASK:
            flow.cancel_task("", scope, id, state, links=False)
        _forget(flow, scope, id)
