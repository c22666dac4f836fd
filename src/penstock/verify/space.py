"""Space: every reachable state of a scope, by the real decide and evolve.

What a task does is left open (it completes or fails), and so is what a condition comes to, as far as `Cases` holds it
possible; values and times are not looked at. Tasks that do not meddle with each other are taken in one order. A state
is known by what can still happen in it, so that what lies behind does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.core.turn import turn
from penstock.model import commands as c
from penstock.model.codec import decode_run, encode_run
from penstock.model.failure import Failure
from penstock.model.run import OPEN_TASK, PENDING, Run, Scope
from penstock.verify.cases import Cases
from penstock.verify.models import Facts, Model, Move, Trail, Way
from penstock.verify.sketch import CANCEL, Sketch

BAD = frozenset({"join-starved", "no-branch", "deadlock", "no-end"})
FAILURE = Failure(code="error", message="error")
BRANCHES_MAX = 4_096
"""Ways in which one step may go on."""
TRAILS_MAX = 8
"""Ways to one fault, or to one task, that are kept."""


@dataclass(slots=True)
class Explored:
    """What was found."""

    ways: dict[Way, Trail] = field(default_factory=dict[Way, Trail])
    """How it ends."""
    others: dict[Way, list[Trail]] = field(default_factory=dict[Way, list[Trail]])
    """Other trails to where it ends so."""
    fired: dict[str, Trail] = field(default_factory=dict[str, Trail])
    """Tasks that have begun."""
    again: dict[str, list[Trail]] = field(default_factory=dict[str, list[Trail]])
    """Other ways to where they begin."""
    lasting: set[str] = field(default_factory=set[str])
    """Tasks that were open when a step was over."""
    bad: dict[tuple[str, str], list[Trail]] = field(
        default_factory=dict[tuple[str, str], list[Trail]]
    )
    """By code and task."""
    failing: bool = False
    """A task was seen that may fail by itself."""
    sudden: set[str] = field(default_factory=set[str])
    """Tasks by which it fails in a step that is about another, and so beside what else begins in that step."""
    at_once: bool = False
    """One of them in its first step."""
    states: int = 0
    over: bool = False
    """The budget was used up before all was seen."""
    aside: bool = False
    """That of what is around it, which says so."""


def explore(model: Model, cases: Cases, budget: int) -> Explored:
    """Every state, each once."""
    search = _Search(model, cases, budget)
    search.run()
    if model.may_fail:
        search.found.ways.setdefault(Way(failed=True), Trail(None, Move("start")))
    return search.found


class _Search:
    def __init__(self, model: Model, cases: Cases, budget: int) -> None:
        self.model, self.cases, self.budget = model, cases, budget
        self.found = Explored()
        self.seen: set[Any] = set()
        self.todo: list[_State] = []

    def run(self) -> None:
        self._step(_State(b"", {}, None, [], [], failing=False), "start", "")
        while self.todo and self.found.states <= self.budget:
            state = self.todo.pop()
            killed = [self._step(state, *action) for action in state.first]
            if any(killed):
                # What was taken first may end what else is open: so that must have its turn before it too.
                for action in state.rest:
                    self._step(state, *action)
        if self.todo or self.found.states > self.budget:
            self.found.over = True

    def _step(self, state: _State, verb: str, id: str) -> bool:
        """All that may come of it; whether that may end what else is open."""
        found, killed = self.found, False
        for sketch, move in _branches(self.model, self.cases, state, verb, id):
            here = Trail(state.trail, move)
            for each in sketch.fired:
                if each not in found.fired:
                    found.fired[each] = here
                elif len(more := found.again.setdefault(each, [])) < TRAILS_MAX:
                    more.append(here)
            if sketch.wide:
                found.over = True
            assert sketch.top is not None
            failure = sketch.top.failure
            killed = killed or failure is not None
            if failure is not None and not state.failing and not self._own(verb, id, failure):
                found.sudden.add(failure.key)
                found.at_once = found.at_once or state.trail is None
            if sketch.run.closed or sketch.run.stopping is not None:
                killed = True
                _ended(self.model, sketch, here, found)
                continue
            key = sketch.mark()
            if key not in self.seen:
                self.seen.add(key)
                found.states += 1
                scope = sketch.run.scopes[""]
                self._early(scope, here)
                first, rest = _order(self.model, scope)
                found.lasting.update(first, rest)
                left = encode_run(sketch.run)
                actions = list(_actions(self.model, scope, first, found, here))
                others = list(_actions(self.model, scope, rest, found, here))
                failing = failure is not None
                self.todo.append(_State(left, sketch.kept(), here, actions, others, failing))
        return killed and verb != "fail"

    def _own(self, verb: str, id: str, failure: Failure) -> bool:
        """It is the failure of the task that the step is about: nothing else has begun before it."""
        return verb == "fail" and (id in self.model.ways or failure.key == id)

    def _early(self, scope: Scope, here: Trail) -> None:
        """A fragment's last link may be decided while something in it is still open: others go on from there."""
        model = self.model
        if model.kind != "fragment" or scope.failure is not None:
            return
        leaver = scope.tasks.get(model.leaver)
        if scope.ended:
            self.found.ways.setdefault(Way(frozenset({model.exit})), here)
        elif leaver is not None and leaver.status not in OPEN_TASK | {PENDING}:
            self.found.ways.setdefault(Way(), here)


@dataclass(frozen=True, slots=True)
class _State:
    run: bytes
    facts: Facts
    trail: Trail | None
    first: list[tuple[str, str]]
    rest: list[tuple[str, str]]
    failing: bool


def _ended(model: Model, sketch: Sketch, here: Trail, found: Explored) -> None:
    scope, run = sketch.top, sketch.run
    assert scope is not None
    code = "" if run.failure is None else run.failure.code
    key = "" if run.failure is None else run.failure.key
    if model.kind == "fragment":
        taken = frozenset({model.exit}) if scope.ended else frozenset[int]()
    else:
        taken = frozenset(scope.saved if scope.failure is not None else scope.exits)
    if scope.failure is None and code == "no-end" and model.kind == "fragment":
        found.ways.setdefault(Way(), here)
        return
    if code in BAD:
        trails = found.bad.setdefault((code, key), [])
        if len(trails) < TRAILS_MAX:
            trails.append(here)
    failed = bool(code)
    back = not failed and scope.back and not scope.left
    way = Way(frozenset() if back else taken, failed, back, scope.left and not failed)
    if way not in found.ways:
        found.ways[way] = here
    elif len(more := found.others.setdefault(way, [])) < TRAILS_MAX:
        more.append(here)


def _order(model: Model, scope: Scope) -> tuple[list[str], list[str]]:
    """What is taken next, and what can wait: of what does not meddle with the rest the first, if it can go well."""
    opened = sorted(
        (id for id, task in scope.tasks.items() if task.status in OPEN_TASK),
        key=lambda id: -model.rank[id],
    )
    for id in opened:
        if id not in model.cancellable and id not in model.triggers and _completes(model, id):
            group = scope.tasks[id].group
            first = [o for o in opened if o == id or (group and scope.tasks[o].group == group)]
            return first, [other for other in opened if other not in first]
    return opened, []


def _completes(model: Model, id: str) -> bool:
    ways = model.ways.get(id)
    return id not in model.stuck and (ways is None or not all(way.failed for way in ways))


def _actions(
    model: Model, scope: Scope, ids: list[str], found: Explored, trail: Trail
) -> Iterator[tuple[str, str]]:
    """What may happen to these tasks."""
    for id in ids:
        ways = model.ways.get(id)
        owners = model.loose.get(id)
        if owners is not None and (not owners or any(_is_open(scope, each) for each in owners)):
            yield "cancel", id
        if _completes(model, id):
            yield "complete", id
        fails = not model.silent.get(id, False) if ways is None else any(w.failed for w in ways)
        if not fails:
            continue
        node = model.scope.nodes[id]
        handled = (
            any(out.edge.on != "success" for out in node.outs)
            if ways is None
            else any(w.failed and w.taken for w in ways)
        )
        if handled or scope.failure is not None:
            # Where a scope fails already, what goes on there goes on beside it, and meets its dead links.
            yield "fail", id
        elif not found.failing:
            # The first of those that fail by themselves; one that only an expression can make fail, if need be.
            found.failing = id in model.fallible
            if found.failing or Way(failed=True) not in found.ways:
                found.ways[Way(failed=True)] = Trail(trail, Move("fail", id))


def _is_open(scope: Scope, id: str) -> bool:
    task = scope.tasks.get(id)
    return task is not None and task.status in OPEN_TASK


def _branches(
    model: Model, cases: Cases, state: _State, verb: str, id: str
) -> Iterator[tuple[Sketch, Move]]:
    """One step, in all the ways it can go: taken again and again with other answers."""
    script: list[int] = []
    for count in range(BRANCHES_MAX):
        run = decode_run(state.run) if state.run else Run(id="sketch")
        sketch = Sketch(run, model, cases, dict(state.facts), script)
        turn(sketch, [_command(run, verb, id)])
        sketch.wide = count == BRANCHES_MAX - 1
        yield sketch, Move(verb, id, tuple(sketch.asks), tuple(sketch.went))
        script, widths = sketch.script, sketch.widths
        while script and script[-1] + 1 >= widths[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


def _command(run: Run, verb: str, id: str) -> c.Command:
    if verb == "start":
        return c.StartRun(at=0.0, id=run.id, definition="", version="", input=b"null")
    attempt = run.scopes[""].tasks[id].attempt
    if verb == "complete":
        return c.CompleteTask(at=0.0, key=id, attempt=attempt, output=b"null")
    failure = CANCEL if verb == "cancel" else FAILURE
    return c.FailTask(at=0.0, key=id, attempt=attempt, failure=failure, final=True)
