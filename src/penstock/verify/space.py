"""Space: every reachable state of a scope, by the real decide and evolve.

What a task does is left open (it completes or fails), and so is what a condition comes to, as far as `Cases` holds it
possible; values and times are not looked at. Tasks that do not meddle with each other are taken in one order. A state
is known by what can still happen in it, so that what lies behind does not count.

A `Model` is a scope, or a fragment of one (`verify/fragments.py`), made ready: everything that takes time is a plain
task, and a fragment that was explored before is one task too, that ends in one of its `Way`s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

from penstock.core import links, scopes
from penstock.core.flow import Flow
from penstock.core.plan import INTERNAL, Guard, Node, Plan, ScopePlan
from penstock.core.turn import turn
from penstock.core.values import Fault, Variables
from penstock.model import commands as c
from penstock.model.codec import decode_run, encode_run
from penstock.model.failure import Failure
from penstock.model.run import (
    CANCELLED,
    FAILED,
    OPEN_TASK,
    PENDING,
    SKIPPED,
    Ref,
    Run,
    Scope,
    TaskState,
)
from penstock.verify.cases import Cases, Outcome

BAD = frozenset({"join-starved", "no-branch", "deadlock", "no-end"})
FAILURE = Failure(code="error", message="error")
CANCEL = Failure(code="cancelled", message="from another scope")
BRANCHES_MAX = 4_096
"""Ways in which one step may go on."""
TRAILS_MAX = 8
"""Ways to one fault that are kept."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a scope or fragment ends: with these of its outgoing links true, well or not."""

    taken: frozenset[int] = frozenset()
    failed: bool = False
    back: bool = False
    """Of a pass: there is another."""
    left: bool = False
    """Of a pass: a true error link leaves the loop."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step: what happened to which task, and what followed at once."""

    verb: str
    """`start`, `complete`, `fail` or `cancel`."""
    id: str = ""
    asks: tuple[tuple[Guard, Outcome], ...] = ()
    ways: tuple[tuple[str, Way], ...] = ()
    """Of fragments that ended in this step."""


@dataclass(frozen=True, slots=True)
class Trail:
    """A sequence of moves, by its last one."""

    before: Trail | None
    move: Move

    def moves(self) -> list[Move]:
        found: list[Move] = []
        trail: Trail | None = self
        while trail is not None:
            found.append(trail.move)
            trail = trail.before
        return found[::-1]


@dataclass(slots=True)
class Model:
    """What is explored at once."""

    plan: Plan
    scope: ScopePlan
    kind: str
    """`scope`, `fragment` or `pass`."""
    exit: int = -1
    """Of a fragment: the index of the link that leaves it."""
    ways: dict[str, tuple[Way, ...]] = field(default_factory=dict[str, tuple[Way, ...]])
    """Of tasks that stand for a fragment or a natural loop."""
    silent: dict[str, bool] = field(default_factory=dict[str, bool])
    """By task: whether it can't fail."""
    writes: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """By task: the keys of the run's data that it sets."""
    asked: dict[str, list[tuple[str, Guard]]] = field(
        default_factory=dict[str, list[tuple[str, Guard]]]
    )
    """By text of a guard: the guards that read some of the same, with the tasks that ask them."""
    fallible: set[str] = field(default_factory=set[str])
    """Tasks whose attempts may fail."""
    stuck: set[str] = field(default_factory=set[str])
    """Tasks that can only fail."""
    steady: bool = True
    """What a task around has given does not change any more while this runs."""
    loose: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Tasks that may be cancelled from another scope, while one of these is open (none given: any time)."""
    cancellable: frozenset[str] = frozenset()
    triggers: frozenset[str] = frozenset()
    """Tasks whose end may at once cancel others."""
    rank: dict[str, int] = field(default_factory=dict[str, int])
    watched: frozenset[str] = frozenset()
    """Tasks whose status a condition reads."""
    errors: frozenset[str] = frozenset()
    """Texts of guards whose failing is handled, and so leads somewhere."""
    may_fail: bool = False
    """A failure that no task of it stands for: an expression."""


@dataclass(slots=True)
class Explored:
    """What was found."""

    ways: dict[Way, Trail] = field(default_factory=dict[Way, Trail])
    fired: dict[str, Trail] = field(default_factory=dict[str, Trail])
    """Tasks that have begun."""
    bad: dict[tuple[str, str], list[Trail]] = field(
        default_factory=dict[tuple[str, str], list[Trail]]
    )
    """By code and task."""
    failing: bool = False
    """A task was seen that may fail by itself."""
    states: int = 0
    over: bool = False
    """The budget was used up before all was seen."""


def explore(model: Model, cases: Cases, budget: int) -> Explored:
    """Every state, each once."""
    found = Explored()
    seen: set[Any] = set()
    todo: list[tuple[bytes, Facts, Trail | None, list[tuple[str, str]]]] = []
    todo.append((b"", {}, None, [("start", "")]))
    while todo:
        state, facts, trail, steps = todo.pop()
        for verb, id in steps:
            for sketch, move in _branches(model, cases, state, facts, verb, id):
                here = Trail(trail, move)
                for each in sketch.fired:
                    found.fired.setdefault(each, here)
                if sketch.wide:
                    found.over = True
                if sketch.run.closed or sketch.run.stopping is not None:
                    _ended(model, sketch, here, found)
                    continue
                key = sketch.mark()
                if key in seen:
                    continue
                seen.add(key)
                found.states += 1
                if found.states > budget:
                    found.over = True
                    return found
                actions = list(_actions(model, sketch.run.scopes[""], found, here))
                todo.append((encode_run(sketch.run), sketch.kept(), here, actions))
    if model.may_fail:
        found.ways.setdefault(Way(failed=True), Trail(None, Move("start")))
    return found


Facts = dict[str, tuple[Guard, Outcome]]
"""By text: what a condition has come to, where it would come to the same again."""


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
    found.ways.setdefault(way, here)


def _actions(
    model: Model, scope: Scope, found: Explored, trail: Trail
) -> Iterator[tuple[str, str]]:
    """What may happen next; of what does not meddle with the rest, only the first."""
    opened = sorted(
        (id for id, task in scope.tasks.items() if task.status in OPEN_TASK),
        key=lambda id: -model.rank[id],
    )
    opened_all = set(opened)
    free = next(
        (id for id in opened if id not in model.cancellable and id not in model.triggers), None
    )
    if free is not None:
        group = scope.tasks[free].group
        opened = [id for id in opened if id == free or (group and scope.tasks[id].group == group)]
    for id in opened:
        ways = model.ways.get(id)
        owners = model.loose.get(id)
        if owners is not None and (not owners or owners & opened_all):
            yield "cancel", id
        if id not in model.stuck and (ways is None or not all(way.failed for way in ways)):
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
        if handled:
            yield "fail", id
        elif scope.failure is None and not found.failing:
            # The first of those that fail by themselves; one that only an expression can make fail, if need be.
            found.failing = id in model.fallible
            if found.failing or Way(failed=True) not in found.ways:
                found.ways[Way(failed=True)] = Trail(trail, Move("fail", id))


def _branches(
    model: Model, cases: Cases, state: bytes, facts: Facts, verb: str, id: str
) -> Iterator[tuple[Sketch, Move]]:
    """One step, in all the ways it can go: taken again and again with other answers."""
    script: list[int] = []
    for count in range(BRANCHES_MAX):
        run = decode_run(state) if state else Run(id="sketch")
        sketch = Sketch(run, model, cases, dict(facts), script)
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


class Sketch(Flow):
    """A Flow whose conditions come to what a script says, and whose fragments end as it says."""

    __slots__ = (
        "asks", "cases", "facts", "fired", "model", "place", "script", "top", "went", "wide", "widths",
    )  # fmt: skip

    def __init__(
        self, run: Run, model: Model, cases: Cases, facts: Facts, script: list[int]
    ) -> None:
        super().__init__(run, model.plan)
        self.model, self.cases, self.facts = model, cases, facts
        self.script, self.place = list(script), 0
        self.widths: list[int] = []
        self.asks: list[tuple[Guard, Outcome]] = []
        self.went: list[tuple[str, Way]] = []
        self.fired: list[str] = []
        self.top: Scope | None = run.scopes.get("")
        self.wide = False

    # --- what is left open -----------------------------------------------------------------------------------

    def pick(self, count: int) -> int:
        """One of so many; the script says which, and learns that there was a choice."""
        place = self.place
        self.place += 1
        if place >= len(self.script):
            self.script.append(0)
        self.widths.append(count)
        return self.script[place]

    def ask(  # type: ignore[override]
        self, compute: Any, path: str, what: str, extra: Any = None
    ) -> Any:
        self.cursor += 1
        if not isinstance(compute, Guard):
            self.outcomes.append(Raw(b"1"))
            return 1
        outcome = self._outcome(compute)
        self.outcomes.append(Raw(b"true" if outcome is True else b"false"))
        if outcome == "error":
            failure = Failure(code="expression-failed", message=what)
            self.faults[self.cursor - 1] = failure
            raise Fault(failure)
        return outcome

    def _outcome(self, guard: Guard) -> Outcome:
        reads = guard.expression.reads
        if not reads or all(self._status(read) for read in reads):
            try:
                return guard(Variables(self, ""))
            except Exception:  # whatever it raises, it is no answer
                return "error"
        known = self.facts.get(guard.text)
        if known is not None:
            return known[1]
        both: tuple[Outcome, Outcome] = (True, False)
        options: list[Outcome] = [
            each for each in both if self.cases.possible(self.facts, guard, each)
        ]
        if guard.text in self.model.errors:
            options.append("error")
        outcome = options[self.pick(len(options))] if len(options) > 1 else (*options, True)[0]
        self.asks.append((guard, outcome))
        if all(self._steady(read) for read in reads):
            self.facts[guard.text] = (guard, outcome)
        return outcome

    def _status(self, read: tuple[str, ...]) -> bool:
        return len(read) == 3 and read[::2] == ("tasks", "status") and read[1] in self._own()

    def _own(self) -> dict[str, Node]:
        return self.model.scope.nodes

    def _steady(self, read: tuple[str, ...]) -> bool:
        """What is read there stays as it is, for as long as nothing here says otherwise."""
        match read[0]:
            case "input" | "item" | "index" | "iteration" | "run" | "data":
                return True
            case "tasks":
                if len(read) < 2 or read[1] not in self._own():
                    return self.model.steady and len(read) > 1
                scope = self.run.scopes.get("")
                state = None if scope is None else scope.tasks.get(read[1])
                return state is not None and state.status not in OPEN_TASK | {PENDING}
            case _:
                return False

    # --- what the core does otherwise --------------------------------------------------------------------------

    def open_scope(  # type: ignore[override]
        self, path: str, plan_path: str, parent: str | None, owner: str, number: int, item: Ref = 0
    ) -> Scope:
        scope = scopes.open_scope(self, path, plan_path, parent, owner, number, item)
        self.top = scope
        if self.model.kind == "pass":
            scope.ended = True  # a pass needs no end
        return scope

    def fire(self, path: str, scope: Scope, node: Node, state: TaskState) -> None:  # type: ignore[override]
        links.fire(self, path, scope, node, state)
        if state.status not in (SKIPPED, PENDING, CANCELLED):
            self.fired.append(node.id)

    def announce(self, key: str, kind: str, value: Any) -> None:  # type: ignore[override]
        pass

    def complete(  # type: ignore[override]
        self, path: str, scope: Scope, node: Node, state: TaskState, taken: set[int] | None = None
    ) -> None:
        written = self.model.writes.get(node.id)
        if written:
            self.facts = {
                text: fact
                for text, fact in self.facts.items()
                if not any(
                    r[0] == "data" and (len(r) == 1 or r[1] in written)
                    for r in fact[0].expression.reads
                )
            }
        scopes.complete(self, path, scope, node, state, taken)

    def decide_links(self, path: str, scope: Scope, node: Node, state: TaskState) -> None:  # type: ignore[override]
        ways = self.model.ways.get(node.id)
        if ways is None:
            links.decide_links(self, path, scope, node, state)
            return
        way = self._go([way for way in ways if not way.failed], node)
        for out in node.outs:
            taken = out.edge.index in way.taken
            if taken and out.role != INTERNAL and out.edge.on == "error":
                scope.left = True
            self.route(path, scope, out, taken)

    def fail(  # type: ignore[override]
        self, path: str, scope: Scope, node: Node, state: TaskState, failure: Failure
    ) -> None:
        if failure.code == CANCEL.code:
            state.status = CANCELLED
            for out in node.outs:
                self.route(path, scope, out, False)
            return
        ways = self.model.ways.get(node.id)
        if ways is None:
            scopes.fail(self, path, scope, node, state, failure)
            return
        way = self._go([way for way in ways if way.failed], node)
        state.status, state.failure = FAILED, failure
        self.fail_scope(path, scope, failure)
        for out in node.outs:
            taken = out.edge.index in way.taken
            self.route(path, scope, out, taken, rescue=taken)

    def _go(self, ways: Sequence[Way], node: Node) -> Way:
        way = ways[self.pick(len(ways))] if len(ways) > 1 else ways[0]
        self.went.append((node.id, way))
        return way

    # --- what a state is known by ------------------------------------------------------------------------------

    def kept(self) -> Facts:
        """What is known and may still be asked about."""
        scope = self.run.scopes[""]
        kept: Facts = {}
        for text, fact in self.facts.items():
            for id, _ in self.model.asked.get(text, ()):
                state = scope.tasks.get(id)
                if state is None or state.status in OPEN_TASK or state.status == PENDING:
                    kept[text] = fact
                    break
        return kept

    def mark(self) -> Any:
        """Equal for states in which the same can still happen."""
        scope = self.run.scopes[""]
        tasks: list[tuple[Any, ...]] = []
        for id, state in scope.tasks.items():
            status = state.status
            if status in OPEN_TASK:
                tasks.append((id, "open", state.rescue, state.trues, state.deads))
            elif status == PENDING:
                tasks.append((id, state.trues, state.deads, state.rescue))
            else:
                waits = state.trues + state.deads < len(self.model.scope.nodes[id].arrivals)
                if (
                    waits
                    or id in self.model.watched
                    or (state.rescue and scope.failure is not None)
                ):
                    tasks.append((id, status, state.rescue))
        facts = frozenset((text, fact[1]) for text, fact in self.kept().items())
        return (
            frozenset(tasks), facts, scope.ended, scope.over, scope.failure is not None, scope.back, scope.left,
            frozenset(scope.exits), frozenset(scope.saved),
        )  # fmt: skip
