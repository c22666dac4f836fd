"""Flow: how links, joins and scopes follow from events (SPEC 2.3); a definition as a Program.

One Flow belongs to one run in memory. `core/evolve.py` calls it for each event: it changes the run in place,
notes effects, and asks expressions through `ask`: while an event is applied for the first time their outcomes are
written into it, on every later replay they are read back from there, so that the state is the fold of the events.
Nothing here waits, reads a clock or does I/O. The types of task live in `core/kinds/`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any, cast

from msgspec import UNSET, Raw
from msgspec.structs import replace

from penstock.core import kinds
from penstock.core.owed import references
from penstock.core.plan import BACK, EXIT, INTERNAL, Doing, Edge, Input, Node, Out, Plan
from penstock.core.values import Fault, Need, PathMissing, Variables, decode, encode, find
from penstock.errors import PenstockError
from penstock.expr.paths import MISSING
from penstock.model.definition import Retry
from penstock.model.effects import Abandon, Answer, CancelChild, Deliver, Effect, Execute
from penstock.model.events import (
    DataConflicted,
    Event,
    Published,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunTimedOut,
    SignalSent,
)
from penstock.model.failure import Failure
from penstock.model.run import (
    CANCELLED,
    COMPENSATING,
    COMPLETED,
    FAILED,
    INLINE_BYTES_MAX,
    OPEN_TASK,
    PENDING,
    REF_SHIFT,
    RETRYING,
    RUNNING,
    SCHEDULED,
    SKIPPED,
    WAITING,
    Ref,
    Run,
    Scope,
    SignalOut,
    TaskState,
    Undo,
    Undoing,
    Write,
    still_open,
)

ADVANCES_MAX = 500_000
"""Links decided by one event; more is a definition that runs away without ever waiting."""
HELD_BYTES_MAX = 8 << 20
UNDO_RETRY = Retry(attempts=4, first=2.0, factor=2.0, maximum=60.0, jitter=0.0)
"""Three retries after 2, 4 and 8 s (SPEC 4.5)."""


class Flow:
    """See the module's docstring."""

    __slots__ = (
        "_advances", "_checks", "_cursor", "_faults", "_held", "_outcomes", "_replaying", "_todo", "answers", "at",
        "effects", "globals", "plan", "run", "seq", "values",
    )  # fmt: skip

    def __init__(self, run: Run, plan: Plan) -> None:
        self.run, self.plan = run, plan
        self.values: dict[int, Any] = {}
        """Decoded values by reference that are in memory though not in the state."""
        self._held = 0
        self.effects: list[Effect] = []
        self.answers: list[Answer] = []
        self.globals: Mapping[str, Any] = {}
        self.at = 0.0
        self.seq = 0
        self._outcomes: list[Raw] = []
        self._faults: dict[int, Failure] = {}
        self._replaying = False
        self._cursor = 0
        self._todo: list[tuple[str, str, Edge, bool, bool]] = []
        """Links to be decided, in order; a list that is walked while it grows, as a deque costs 600 bytes a run."""
        self._checks: list[str] = []
        self._advances = 0

    # --- one event -------------------------------------------------------------------------------------------

    def begin_event(self, event: Event, seq: int, *, replaying: bool) -> None:
        self.at, self.seq = event.at, seq
        self._outcomes, self._faults = event.outcomes, event.faults
        self._replaying, self._cursor, self._advances = replaying, 0, 0

    def evict(self) -> None:
        """Between turns: let go of values, but not of the items of open maps, which every turn asks for."""
        if self._held > HELD_BYTES_MAX:
            wanted = references(self.run)
            self.values = {ref: value for ref, value in self.values.items() if ref in wanted}
            self._held = 0

    def drain(self) -> None:
        """Decide all links that follow from what has happened, then end the scopes in which nothing is open."""
        todo, checks, run = self._todo, self._checks, self.run
        scopes = run.scopes
        while True:
            if todo:
                for arrival in todo:
                    self._arrive(*arrival)
                todo.clear()
            if checks:
                path = checks.pop()
                scope = scopes.get(path)
                if scope is not None and not scope.open and run.stopping is None:
                    self._quiet(path)
            elif not run.mutexes or not kinds.break_deadlock(self):
                break
        if run.stopping is not None:
            self.stop_further()
        dues = run.dues
        while dues and not self._holds(*dues[0]):
            heappop(dues)

    # --- asking ----------------------------------------------------------------------------------------------

    def ask(
        self,
        compute: Callable[[Any], Any],
        path: str,
        what: str,
        extra: Mapping[str, Any] | None = None,
    ) -> Any:
        """The outcome of an expression in a scope: computed and recorded once, read back ever after."""
        index = self._cursor
        self._cursor = index + 1
        if self._replaying:
            if index in self._faults:
                raise Fault(self._faults[index])
            return decode(self._outcomes[index])
        try:
            value = compute(Variables(self, path, extra))
            raw = b"true" if value is True else b"false" if value is False else encode(value)
        except PenstockError as error:
            failure = Failure(code=error.code, message=f"{what}: {error.message}")
        except (TypeError, ValueError, OverflowError, ArithmeticError, LookupError) as error:
            failure = Failure(code="expression-failed", message=f"{what}: {error}")
        else:
            self._outcomes.append(Raw(raw))
            return value
        self._outcomes.append(Raw(b"null"))
        self._faults[index] = failure
        raise Fault(failure)

    def asked(self) -> tuple[int, bytes]:
        """Reference and JSON of the outcome asked last."""
        return self.seq << REF_SHIFT | self._cursor, bytes(self._outcomes[self._cursor - 1])

    def asked_count(self) -> int:
        return self._cursor

    def asked_at(self, place: int) -> tuple[int, bytes]:
        """Reference and JSON of the outcome asked at that place, counted from 0 in this event."""
        return self.seq << REF_SHIFT | place + 1, bytes(self._outcomes[place])

    def last_outcome(self) -> bytes:
        return bytes(self._outcomes[self._cursor - 1])

    def hold_live(self, ref: Ref, raw: bytes) -> None:
        """Hold a value that was just recorded, which nothing can load before it is stored; a replay leaves that to
        Need."""
        if not self._replaying and ref != 0:
            self._hold_leaves(ref, decode(raw))
            self._held += len(raw)

    def _hold_leaves(self, ref: Ref, value: Any) -> None:
        if isinstance(ref, int):
            if ref:
                self.values[ref] = value
        elif isinstance(ref, list):
            for inner, part in zip(cast("list[Ref]", ref), value, strict=True):
                self._hold_leaves(inner, part)
        else:
            for name, inner in cast("dict[str, Ref]", ref).items():
                self._hold_leaves(inner, value[name])

    def hold(self, ref: int, value: Any, size: int) -> None:
        """Keep a value in memory for the turns to come; it can always be loaded again."""
        self.values[ref] = value
        self._held += size

    def resolve(self, ref: Ref) -> Any:
        """The value behind a reference, or Need."""
        if isinstance(ref, int):
            if ref == 0:
                return None
            try:
                return self.values[ref]
            except KeyError:
                raise Need({ref}) from None
        missing: set[int] = set()
        result = self._resolve(ref, missing)
        if missing:
            raise Need(missing)
        return result

    def _resolve(self, ref: Ref, missing: set[int]) -> Any:
        if isinstance(ref, dict):
            return {k: self._resolve(v, missing) for k, v in cast("dict[str, Ref]", ref).items()}
        if isinstance(ref, list):
            return [self._resolve(v, missing) for v in cast("list[Ref]", ref)]
        if ref == 0:
            return None
        if ref not in self.values:
            missing.add(ref)
            return None
        return self.values[ref]

    def output(self, state: TaskState) -> Any:
        if state.output is not None:
            return decode(state.output)
        return self.resolve(state.ref)

    def input(self) -> Any:
        if self.run.input is not None:
            return decode(self.run.input)
        return self.resolve(1 << REF_SHIFT)

    def item(self, scope: Scope) -> Any:
        """The item that a scope of a map works on."""
        ref = scope.item
        if isinstance(ref, list):
            return self.resolve(ref[0])[ref[1]]
        return self.resolve(ref)

    # --- links and joins -------------------------------------------------------------------------------------

    def open_scope(
        self, path: str, plan_path: str, parent: str | None, owner: str, number: int, item: Ref = 0
    ) -> Scope:
        """A fresh scope, begun."""
        scope = self.run.scopes[path] = Scope(
            plan=plan_path, parent=parent, owner=owner, number=number, item=item
        )
        entry = self.plan.scopes[plan_path].entry
        if entry.type == "start":
            self._decide_links(path, scope, entry, TaskState())
        else:
            state = scope.tasks[entry.id] = TaskState()
            self._fire(path, scope, entry, state)
        self._checks.append(path)
        return scope

    def _arrive(self, path: str, id: str, edge: Edge, taken: bool, rescue: bool) -> None:
        """A link is decided: does its target fire, die, starve or wait?"""
        scope = self.run.scopes.get(path)
        if scope is None or scope.over:
            return
        self._advances += 1
        if self._advances > ADVANCES_MAX:
            self._runaway()
            return
        node = self.plan.scopes[scope.plan].nodes[id]
        if node.type == "end" and node.join == "merge" and not node.config and not node.conditions:
            if taken and (scope.failure is None or rescue):
                scope.ended = True
            return
        state = scope.tasks.get(id)
        if state is None:
            state = scope.tasks[id] = TaskState()
        if taken:
            state.trues += 1
            state.rescue = state.rescue or rescue
        else:
            state.deads += 1
            if node.join != "merge" and not state.dead_link:
                state.dead_link = edge.index + 1
        if state.status != PENDING:
            return  # a later token of an `any` or `n` join: recorded and absorbed
        arrivals, trues, deads = len(node.arrivals), state.trues, state.deads
        if node.join == "merge":
            if trues + deads < arrivals:
                return
            satisfiable, fires = trues > 0, trues > 0
        else:
            wanted = arrivals if node.join == "all" else node.join_n
            fires = trues >= wanted
            satisfiable = arrivals - deads >= wanted
        if fires:
            self._fire(path, scope, node, state)
        elif deads == arrivals:
            self._die(path, scope, node, state)
        elif not satisfiable and trues:
            dead = next((e.name for e in node.arrivals if e.index + 1 == state.dead_link), "")
            why = f"but {dead} is dead" if dead else f"but there are only {arrivals}"
            wanted = node.join_n if node.join == "n" else "all"
            failure = Failure(
                code="join-starved",
                message=f"`{id}` waits for {wanted} of its links, {why}",
                key=self.key(path, id),
            )
            self.fail(path, scope, node, state, failure)

    def _die(self, path: str, scope: Scope, node: Node, state: TaskState) -> None:
        """All incoming links are dead: SKIPPED, and its own links die."""
        state.status, state.ended_at = SKIPPED, self.at
        for out in node.outs:
            self.route(path, scope, out, False)

    def _fire(self, path: str, scope: Scope, node: Node, state: TaskState) -> None:
        if self.run.stopping is not None:
            return
        if scope.failure is not None and not state.rescue:
            state.status, state.ended_at = CANCELLED, self.at
            for out in node.outs:
                self.route(path, scope, out, False)
            return
        if node.join_cancel:
            for id in node.cancels:
                other = scope.tasks.get(id)
                if other is not None and other.status in OPEN_TASK:
                    self.cancel_task(path, scope, id, other)
        state.scheduled_at = self.at
        try:
            for guard in node.conditions:
                if not self.ask(guard, path, f"condition of `{node.id}`"):
                    state.status, state.ended_at = SKIPPED, self.at
                    self._decide_links(path, scope, node, state)
                    return
            kinds.BEGIN[node.type](self, path, scope, node, state)
            limit = node.timeouts.task
            if limit is not None and state.status in OPEN_TASK:
                state.deadline = self.counted(self.at + limit)
                self.due(state.deadline, self.key(path, node.id))
        except Fault as fault:
            if state.status in OPEN_TASK:
                self.shut(path, scope, state)
            self.fail(path, scope, node, state, fault.failure)

    def skip(self, path: str, scope: Scope, node: Node, state: TaskState) -> None:
        """Not done, and gone on from as if it were."""
        state.status, state.ended_at = SKIPPED, self.at
        if state.group is not None:
            self._disarm(path, scope, state.group, node.id)
        if self.run.stopping is None:
            self._decide_links(path, scope, node, state)

    def route(self, path: str, scope: Scope, out: Out, taken: bool, rescue: bool = False) -> None:
        if taken and not rescue and scope.failure is not None:
            # In a failing scope only what an `always` link led to goes on, and what follows from it.
            state = scope.tasks.get(out.edge.source)
            rescue = state is not None and state.rescue
        if out.role == INTERNAL:
            self._todo.append((path, out.target, out.edge, taken, rescue))
        elif taken:
            if out.role == BACK:
                scope.back = True
            else:
                scope.exits.append(out.edge.index)
                if rescue:
                    scope.saved.append(out.edge.index)

    def _decide_links(self, path: str, scope: Scope, node: Node, state: TaskState) -> None:
        """The task is over, well: each of its links is decided, once."""
        if node.gateway is not None:
            self._split(path, scope, node, state, self.choose(path, node))
            return
        broken = False
        for out in node.outs:
            edge = out.edge
            taken = edge.on != "error" and not broken
            if taken and edge.guard is not None:
                try:
                    taken = self.ask(edge.guard, path, f"link {edge.name}")
                except Fault as fault:
                    self.fail_scope(path, scope, with_key(fault.failure, self.key(path, node.id)))
                    taken, broken = False, True
            self.route(path, scope, out, taken)

    def choose(self, path: str, node: Node) -> set[int]:
        """Which links a gateway takes, by their places; Fault if none, or if an expression fails."""
        kind, default = node.gateway, node.config.get("default")
        taken: set[int] = set()
        for place, out in enumerate(node.outs):
            edge = out.edge
            if edge.on == "error" or (
                edge.target == default and kind in ("exclusive", "inclusive")
            ):
                continue
            if edge.guard is None or self.ask(edge.guard, path, f"link {edge.name}"):
                taken.add(place)
                if kind == "exclusive":
                    break
        if not taken and default is not None:
            taken = {i for i, out in enumerate(node.outs) if out.edge.target == default}
        if not taken and node.outs:
            raise Fault(
                Failure(
                    code="no-branch",
                    message=f"no branch of `{node.id}` holds and it has no default",
                )
            )
        return taken

    def _split(
        self, path: str, scope: Scope, node: Node, state: TaskState, taken: set[int]
    ) -> None:
        for place, out in enumerate(node.outs):
            if node.gateway == "event" and place in taken:
                continue
            self.route(path, scope, out, place in taken)
        if node.gateway == "event":
            self._arm(path, scope, node, [node.outs[i] for i in sorted(taken)], rescue=state.rescue)

    def _arm(self, path: str, scope: Scope, node: Node, outs: list[Out], *, rescue: bool) -> None:
        """An event gateway: its targets wait together; the first in run order wins. One that is over as soon as it is
        armed (its signal was there, it is skipped, it fails) has won: those after it die."""
        nodes = self.plan.scopes[scope.plan].nodes
        over = False
        for out in outs:
            state = scope.tasks.setdefault(out.target, TaskState())
            if over:
                state.deads += 1
                self._die(path, scope, nodes[out.target], state)
                continue
            state.trues += 1
            state.group, state.rescue = node.id, rescue
            self._fire(path, scope, nodes[out.target], state)
            if state.status not in OPEN_TASK:
                over = True
                self._disarm(path, scope, node.id, out.target)

    def _disarm(self, path: str, scope: Scope, group: str, winner: str) -> None:
        for out in self.plan.scopes[scope.plan].nodes[group].outs:
            state = scope.tasks.get(out.target)
            if (
                state is not None
                and out.target != winner
                and state.group == group
                and state.status in OPEN_TASK
            ):
                self.cancel_task(path, scope, out.target, state)

    # --- how tasks end ---------------------------------------------------------------------------------------

    def enter(self, scope: Scope, state: TaskState, status: str) -> None:
        """The task is open from now on."""
        state.status = status
        scope.open += 1
        if status == SCHEDULED:
            self.run.active += 1

    def shut(self, path: str, scope: Scope, state: TaskState) -> None:
        """The task is open no longer; what follows is the caller's."""
        scope.open -= 1
        if scope.open == 0:
            self._checks.append(path)
        if state.attempt:
            self.run.active -= 1
            if state.deferred:
                state.deferred = False
        state.ended_at = self.at

    def keep(self, state: TaskState, ref: Ref, raw: bytes | None) -> None:
        """Keep an output: in the state if it is small, else by reference, held in memory for what comes next."""
        state.ref = ref
        if raw is not None and len(raw) <= INLINE_BYTES_MAX:
            state.output = raw
        elif raw is not None:
            self.hold_live(ref, raw)

    def complete(
        self, path: str, scope: Scope, node: Node, state: TaskState, taken: set[int] | None = None
    ) -> None:
        """A task is done (its output is kept already): actions, undo entry, links (of a gateway: those it took)."""
        state.status, state.ended_at, state.failure = COMPLETED, self.at, None
        run = self.run
        run.tasks_done += 1
        if state.group is not None:
            self._disarm(path, scope, state.group, node.id)
        try:
            if node.compensate is not None:
                self._push_undo(path, node, state)
            for doing in node.on_complete:
                self._do(path, node, doing)
        except Fault as fault:
            self.fail_scope(path, scope, with_key(fault.failure, self.key(path, node.id)))
            return
        if run.stopping is None:
            if taken is not None:
                self._split(path, scope, node, state, taken)
            else:
                self._decide_links(path, scope, node, state)

    def fail(self, path: str, scope: Scope, node: Node, state: TaskState, failure: Failure) -> None:
        """A task failed for good: handled by a true error link, or its scope fails."""
        failure = with_key(failure, self.key(path, node.id))
        state.status, state.failure, state.ended_at = FAILED, failure, self.at
        run = self.run
        run.tasks_done += 1
        if state.group is not None:
            self._disarm(path, scope, state.group, node.id)
        taken: dict[int, bool] = {}
        handled = False
        try:
            undoable = (
                node.compensate is not None
                and node.compensate.when == "attempted"
                and state.attempt > 0
            )
            if undoable:
                self._push_undo(path, node, state)
            for doing in node.on_error:
                self._do(path, node, doing)
            if run.stopping is not None:
                return
            for place, out in enumerate(node.outs):
                edge = out.edge
                if edge.on == "success":
                    continue
                holds = edge.guard is None or self.ask(edge.guard, path, f"link {edge.name}")
                taken[place] = holds
                handled = handled or (holds and edge.on == "error")
        except Fault as fault:
            self.fail_scope(
                path, scope, replace(with_key(fault.failure, failure.key), cause=failure)
            )
            for out in node.outs:
                self.route(path, scope, out, False)
            return
        if handled:
            for place, out in enumerate(node.outs):
                holds = taken.get(place, False)
                if holds and out.role == EXIT and out.edge.on == "error":
                    scope.left = True  # a true error link that leaves a loop ends it (SPEC 2.3)
                self.route(path, scope, out, holds)
            return
        for place, out in enumerate(node.outs):
            if out.role == INTERNAL and taken.get(place):
                scope.tasks.setdefault(
                    out.target, TaskState()
                ).rescue = True  # it may be open already
        self.fail_scope(path, scope, failure)
        for place, out in enumerate(node.outs):
            self.route(path, scope, out, taken.get(place, False), rescue=taken.get(place, False))

    def fail_scope(self, path: str, scope: Scope, failure: Failure) -> None:
        """Open siblings are cancelled; once nothing is open, the failure goes to whoever holds the scope."""
        if scope.failure is None:
            scope.failure = failure
        for id, state in list(scope.tasks.items()):
            if still_open(state) and not state.rescue:
                self.cancel_task(path, scope, id, state)
        self._checks.append(path)

    def cancel_task(
        self, path: str, scope: Scope, id: str, state: TaskState, *, links: bool = True
    ) -> None:
        """An open task is given up, with all that is inside it."""
        key = self.key(path, id)
        node = self.plan.scopes[scope.plan].nodes[id]
        run = self.run
        if state.status == COMPLETED:  # a map that had enough items: those that were left
            self.cancel_inside(key, state)
            state.map = None
            self.shut(path, scope, state)
            return
        self.release(path, scope, node, state)
        state.status = CANCELLED
        if (
            node.compensate is not None
            and node.compensate.when == "attempted"
            and state.attempt > 0
        ):
            try:
                self._push_undo(path, node, state)
            except Fault as fault:
                scope.failure = scope.failure or with_key(fault.failure, key)
        if links and run.stopping is None:
            for out in node.outs:
                self.route(path, scope, out, False)

    def release(
        self, path: str, scope: Scope, node: Node, state: TaskState, *, tell: bool = True
    ) -> None:
        """Let go of all that an open task holds: its attempt (which is told), its child, its place in a queue, what is
        inside it."""
        key, told = self.key(path, node.id), tell and self.in_flight(state)
        self.shut(path, scope, state)
        if told:
            self.effects.append(Abandon(key, state.attempt))
        if state.child is not None:
            self.effects.append(CancelChild(key, state.child))
            if not node.config.get("detached"):
                self.run.leaving[key] = state.child  # its start may be under way, recorded or not
        if node.type in ("signal", "map"):
            self.forget_waiter(node.config.get("name") or node.config.get("more") or "", key)
        if node.body is not None or node.loop is not None:
            state.status = CANCELLED
            self.cancel_inside(key, state)
            state.map = None
        if node.type == "mutex":
            kinds.leave_mutex(self, node, key)

    def in_flight(self, state: TaskState) -> bool:
        """An attempt may be under way: that it has begun is not always recorded."""
        if state.status == RETRYING:
            return state.due is not None and state.due <= self.at
        return state.attempt > 0 and state.status in (SCHEDULED, RUNNING)

    def cancel_inside(self, key: str, state: TaskState) -> None:
        """Give up the pass, the items or the body that a task holds."""
        numbers = (state.number or 1,) if state.map is None else range(state.map.next)
        for number in numbers:
            self.cancel_scope(f"{key}[{number}]")

    def cancel_scope(self, path: str) -> None:
        scope = self.run.scopes.get(path)
        if scope is None:
            return
        for id, state in list(scope.tasks.items()):
            if still_open(state):
                self.cancel_task(path, scope, id, state, links=False)
        self.run.scopes.pop(path, None)

    def forget_waiter(self, name: str, key: str) -> None:
        waiting = self.run.waiters.get(name)
        if waiting is not None and key in waiting:
            waiting.remove(key)
            if not waiting:
                del self.run.waiters[name]

    # --- how scopes end --------------------------------------------------------------------------------------

    def _quiet(self, path: str) -> None:
        """Nothing was open in the scope when this was noted; if that still holds, it ends."""
        run = self.run
        scope = run.scopes.get(path)
        if scope is None or scope.open or run.stopping is not None:
            return
        plan = self.plan.scopes[scope.plan]
        if plan.kind == "run":
            self._finish(scope)
            return
        assert scope.parent is not None
        parent = run.scopes[scope.parent]
        node = self.plan.scopes[parent.plan].nodes[scope.owner]
        state = parent.tasks[scope.owner]
        failure = scope.failure
        if plan.kind == "natural":
            if failure is None and scope.back and not scope.left:
                kinds.next_pass(self, path, scope, parent, node, state)
                return
            kinds.leave_natural(self, path, scope, parent, node, state)
            return
        if failure is None and not scope.ended:
            failure = self._no_end(scope, path)
        kinds.END[plan.kind](self, path, scope, parent, node, state, failure)

    def _no_end(self, scope: Scope, path: str) -> Failure:
        where = f"`{path}`" if path else "the run"
        waiting = [
            f"`{id}` waits for {', '.join(e.name for e in self.plan.scopes[scope.plan].nodes[id].arrivals)}"
            for id, state in scope.tasks.items()
            if state.status == PENDING
        ]
        if waiting:
            return Failure(
                code="deadlock", message=f"nothing is open in {where}: " + "; ".join(waiting)
            )
        return Failure(code="no-end", message=f"no end of {where} was reached")

    def result(self, scope: Scope) -> tuple[Ref, bytes | None]:
        """What a scope gives: the output of the one task before its end, or an object of those by id."""
        plan = self.plan.scopes[scope.plan]
        if len(plan.results) == 1:
            state = self._result_state(scope, plan.results[0])
            if state is None:
                return 0, b"null"
            return state.ref, state.output if state.output is not None or state.ref else b"null"
        refs: dict[str, Ref] = {}
        parts: list[bytes] | None = []
        for id in plan.results:
            state = self._result_state(scope, id)
            if state is None or state.status != COMPLETED:
                continue
            refs[id] = state.ref
            if state.output is not None or state.ref == 0:
                if parts is not None:
                    parts.append(encode(id) + b":" + (state.output or b"null"))
            else:
                parts = None
        if not refs:
            return 0, b"null"
        if parts is None:
            for id in refs:
                state = self._result_state(scope, id)
                if state is not None and state.output is not None:
                    self.hold_live(state.ref, state.output)
        return refs, None if parts is None else b"{" + b",".join(parts) + b"}"

    def _result_state(self, scope: Scope, id: str) -> TaskState | None:
        header = self.plan.scopes[scope.plan].inner.get(id)
        if header is None:
            return scope.tasks.get(id)
        loop = scope.tasks.get(header)
        return None if loop is None or loop.last is None else loop.last.get(id)

    def _finish(self, scope: Scope) -> None:
        """The run's own scope is quiet: it completes, or fails."""
        run = self.run
        if run.finished:
            return
        failure = scope.failure
        if failure is None and not scope.ended:
            failure = self._no_end(scope, "")
        if failure is None and (run.leaving or self._sending()):
            return
        if failure is None and self.plan.outputs is not None:
            parts: list[bytes] = []
            try:
                for name, formula in self.plan.outputs.items():
                    self.ask(formula, "", f"output `{name}`")
                    parts.append(encode(name) + b":" + self.asked()[1])
            except Fault as fault:
                failure = fault.failure
            else:
                run.finished = True
                run.pending.append(
                    RunCompleted(at=self.at, output=Raw(b"{" + b",".join(parts) + b"}"))
                )
                return
        if failure is not None:
            self.stop(FAILED, failure)
            return
        ref, raw = self.result(scope)
        run.finished = True
        if raw is not None:
            run.pending.append(RunCompleted(at=self.at, output=Raw(raw)))
        else:
            run.pending.append(RunCompleted(at=self.at, ref=ref))

    def _sending(self) -> bool:
        """Signals to other runs are on their way: a run that closed would not send them again after a crash."""
        run = self.run
        return bool(run.outgoing) or any(isinstance(each, SignalSent) for each in run.pending)

    def go_on(self) -> None:
        """A child has left or a signal has arrived: perhaps that was the last thing to wait for."""
        if self.run.compensating:
            self.undo_next()
        else:
            self._checks.append("")

    def _runaway(self) -> None:
        self._todo.clear()
        self._checks.clear()
        self.stop(
            FAILED,
            Failure(
                code="advance-limit",
                message=f"one event decided more than {ADVANCES_MAX} links without a wait",
            ),
        )

    # --- stopping and compensation ---------------------------------------------------------------------------

    def stop(
        self, status: str, failure: Failure | None, *, gently: bool = False, grace: float = 0.0
    ) -> None:
        """The run ends with this status once all that is open has ended and what can be undone is undone."""
        run = self.run
        if run.stopping is not None:
            return
        run.stopping, run.failure = status, run.failure or failure
        run.paused, run.paused_at = False, None
        run.grace = run.due = None
        if run.rewinding:
            run.undo += run.rewind
            run.rewind, run.rewinding = [], False
        for path in list(run.scopes):
            scope = run.scopes.get(path)
            if scope is None:
                continue
            for id, state in list(scope.tasks.items()):
                if state.status not in OPEN_TASK:
                    continue
                node = self.plan.scopes[scope.plan].nodes[id]
                if gently and self.in_flight(state):
                    self.effects.append(Abandon(self.key(path, id), state.attempt))
                elif gently and (
                    node.body is not None or node.loop is not None or state.child is not None
                ):
                    # What is inside ends first; children after the attempts.
                    self.forget_waiter(node.config.get("more", ""), self.key(path, id))
                else:
                    self.cancel_task(path, scope, id, state, links=False)
        if gently and run.active:
            run.grace = grace
            heappush(run.dues, (grace, GRACE))
        self.stop_further()

    def stop_further(self) -> None:
        """While stopping: attempts end first, then children, then what was done is undone, then the run."""
        run = self.run
        if run.stopping is None or run.closed or run.compensating or run.finished:
            return
        if run.active:
            return
        waiting = False
        for path, scope in run.scopes.items():
            for id, state in scope.tasks.items():
                if (
                    state.child is not None
                    and state.status == WAITING
                    and state.started_at is not None
                ):
                    waiting = True
                    if not state.started:
                        state.started = True
                        self.effects.append(CancelChild(self.key(path, id), state.child))
        if waiting or run.leaving:
            return
        for path in list(run.scopes):
            scope = run.scopes.get(path)
            if scope is not None:
                for id, state in list(scope.tasks.items()):
                    if state.status in OPEN_TASK:
                        self.cancel_task(path, scope, id, state, links=False)
        if run.leaving:
            return  # children whose start was not recorded
        run.grace = None
        run.compensating = True
        if run.undo:
            run.status = COMPENSATING
        self.undo_next()

    def give_up(self) -> None:
        """The grace is over: attempts that were told to stop are counted as cancelled."""
        run = self.run
        run.grace = None
        for path in list(run.scopes):
            scope = run.scopes.get(path)
            if scope is not None:
                for id, state in list(scope.tasks.items()):
                    if state.status in OPEN_TASK and state.attempt and state.child is None:
                        self.cancel_task(path, scope, id, state, links=False)
        self.stop_further()

    def undo_next(self) -> None:
        """Undo one by one in reverse order of completion; `parallel` neighbours that are concurrent together."""
        run = self.run
        if run.undoing:
            return
        if run.undo:
            group = [run.undo.pop()]
            while (
                group[0].parallel
                and run.undo
                and run.undo[-1].parallel
                and all(self._independent(run.undo[-1], other) for other in group)
            ):
                group.append(run.undo.pop())
            for entry in group:
                run.undoing[entry.key] = Undoing(entry)
                self.effects.append(Execute(entry.key, 1, undo=True))
                self._mark(entry.key, COMPENSATING)
            return
        if run.undo_failed or run.finished or self._sending():
            return
        run.finished = True
        match run.stopping:
            case "CANCELLED":
                run.pending.append(RunCancelled(at=self.at, failure=run.failure))
            case "TIMED_OUT":
                run.pending.append(RunTimedOut(at=self.at, failure=run.failure))
            case _:
                assert run.failure is not None
                run.pending.append(RunFailed(at=self.at, failure=run.failure))

    def _independent(self, first: Undo, second: Undo) -> bool:
        return bool(first.node and second.node) and self._apart(first.key, second.key)

    def _mark(self, key: str, status: str) -> None:
        """Show the task's own status, if it is still in the state."""
        path, _, id = key.rpartition("/")
        scope = self.run.scopes.get(path)
        if scope is not None and id in scope.tasks:
            scope.tasks[id].status = status

    def mark_undone(self, key: str, status: str) -> None:
        self._mark(key, status)

    def _push_undo(self, path: str, node: Node, state: TaskState) -> None:
        """Arguments are fixed now: what they come from may have left the memory when they are needed."""
        compensate = node.compensate
        assert compensate is not None
        key = self.key(path, node.id)
        if node.undo_inputs is not None:
            inputs = node.undo_inputs
            arguments = self.ask(
                lambda variables: self.gather(path, inputs, variables), path, f"undo of `{node.id}`"
            )
            raw = encode(arguments)
        elif state.output is not None:
            raw = b"[" + state.output + b"]"
        else:
            raw = encode([self.ask(lambda _: self.output(state), path, f"undo of `{node.id}`")])
        self.push_undo(key, node, raw)

    def push_undo_of_left(self, key: str, node: Node, output: bytes) -> None:
        """Of a child that was done after all: its task is CANCELLED, perhaps gone with its scope, and is put back as it
        would have been for as long as the arguments are asked for."""
        if node.undo_inputs is None:
            self.push_undo(key, node, b"[" + output + b"]")
            return
        run, path = self.run, key.rpartition("/")[0]
        added: list[str] = []
        around, there = path, path
        while around not in run.scopes:
            parent, _, last = around.rpartition("/")
            owner, _, number = last.partition("[")
            gone = Scope(static(around), parent, owner, int(number[:-1]), item=[[], 0])
            run.scopes[around] = gone  # its item is not known any more: to ask for it is an error
            added.append(around)
            around = there = parent
        tasks = run.scopes[path].tasks
        before = tasks.get(node.id)
        tasks[node.id] = state = TaskState(status=COMPLETED, output=output)
        failure = None
        try:
            self._push_undo(path, node, state)
        except Fault as fault:
            failure = with_key(fault.failure, key)
        finally:
            if before is None:
                del tasks[node.id]
            else:
                tasks[node.id] = before
            for each in added:
                del run.scopes[each]
        if failure is not None:
            self.fail_scope(there, run.scopes[there], failure)

    def push_undo(self, key: str, node: Node, raw: bytes) -> None:
        compensate = node.compensate
        assert compensate is not None
        retry = compensate.retry or UNDO_RETRY
        self.run.undo.append(
            Undo(
                key=key, activity=compensate.activity, arguments=Raw(raw), attempts=retry.attempts, first=retry.first,
                factor=retry.factor, maximum=retry.maximum, node=node.path, parallel=compensate.parallel,
            )
        )  # fmt: skip

    # --- inputs ----------------------------------------------------------------------------------------------

    def fix_inputs(self, path: str, scope: Scope, node: Node, state: TaskState) -> None:
        """Check that every input is there, and record those that could change before the attempt is over."""
        moving: list[Input] = []
        for given in node.inputs:
            read = given.source is not None and (
                given.path or not self._settled(scope, given.source)
            )
            if given.template is not None or read:
                moving.append(given)
        if moving:
            self.ask(
                lambda variables: self.gather(path, moving, variables),
                path,
                f"inputs of `{node.id}`",
            )
            state.arguments = bytes(self._outcomes[self._cursor - 1])

    def arguments(self, key: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        return self.arguments_of(*self.locate(key))

    def arguments_of(
        self, path: str, scope: Scope, node: Node, state: TaskState
    ) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """What an attempt is called with, the caller's own, and which parameters are secrets; may raise Need."""
        fixed: dict[str, Any] = {} if state.arguments is None else decode(state.arguments)
        values: dict[str, Any] = {}
        secrets: list[tuple[str, str]] = []
        for given in node.inputs:
            name = given.name
            if given.secret is not None:
                secrets.append((name, given.secret))
            elif name in fixed:
                values[name] = fixed[name]
            elif given.value is not UNSET:
                values[name] = own(given.value)
            else:
                before = scope.tasks.get(given.source or "")
                if before is not None and before.output is not None:
                    values[name] = decode(before.output)
                elif given.source == "input" and self.run.input is not None:
                    values[name] = decode(self.run.input)
                else:
                    values[name] = own(self._source(path, given.source or ""))
        if fixed:
            for name, value in fixed.items():
                values.setdefault(name, value)
        return values, secrets

    def _settled(self, scope: Scope, source: str) -> bool:
        """The source can never change again, so that reading it later gives the same."""
        if source in ("input", "item", "index", "iteration"):
            return True
        state = scope.tasks.get(source)
        return state is not None and state.status == COMPLETED

    def _source(self, path: str, source: str) -> Any:
        if source == "input":
            return self.input()
        variables = Variables(self, path)
        if source in ("item", "index", "iteration", "data", "global"):
            value = variables[source]
            return dict(value) if source in ("data", "global") else value
        found = find(self, path, source)
        return None if found is None else self.output(found[1])

    def gather(self, path: str, inputs: list[Input], variables: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for given in inputs:
            if given.template is not None:
                values[given.name] = given.template(variables)
            elif given.value is not UNSET:
                values[given.name] = given.value
            else:
                value = self._source(path, given.source or "")
                if given.path is not None:
                    value = given.path.read(value)
                if value is MISSING:
                    if given.default is UNSET:
                        raise PathMissing(
                            given.name, given.source or "", given.path.text if given.path else "$"
                        )
                    value = given.default
                values[given.name] = value
        return values

    # --- data and actions ------------------------------------------------------------------------------------

    def _do(self, path: str, node: Node, doing: Doing) -> None:
        key = self.key(path, node.id)
        if doing.kind == "set":
            for name, formula in doing.set:
                self.set_data(path, node, name, formula, f"`{name}` set by `{node.id}`")
            return
        assert doing.value is not None
        value = self.ask(doing.value, path, f"{doing.kind} of `{node.id}`")
        self.announce(key, doing.kind, value)

    def announce(self, key: str, kind: str, value: Any) -> None:
        """A publish, a signal to another run, or a notice: an event of its own, which followers hand on."""
        run = self.run
        if kind == "signal":
            id = f"{run.id}/{run.generation}/{self.seq}/{len(run.pending)}"
            run.pending.append(
                SignalSent(
                    at=self.at, key=key, run=str(value.get("run", "")), name=str(value.get("name", "")),
                    payload=Raw(encode(value.get("payload"))), id=id,
                )
            )  # fmt: skip
        elif kind == "publish":
            run.pending.append(
                Published(
                    at=self.at,
                    key=key,
                    topic=str(value["topic"]),
                    payload=Raw(encode(value.get("payload"))),
                )
            )
        else:
            run.pending.append(
                Published(at=self.at, key=key, topic="workflow.notify", payload=Raw(encode(value)))
            )

    def set_data(self, path: str, node: Node, name: str, formula: Any, what: str) -> Any:
        """Write a key of the run's data, merged as the definition says (SPEC 2.6)."""
        value = self.ask(formula, path, what)
        raw = self._outcomes[self._cursor - 1]
        run, key = self.run, self.key(path, node.id)
        merge = self.plan.merges.get(name)
        before = run.data.get(name)
        if merge == "append":
            if before is None or not before.key:
                first = None if before is None else decode(before.single)
                begun = cast("list[Any]", first) if isinstance(first, list) else []
                before = run.data[name] = Write(parts=[("", Raw(encode(each))) for each in begun])
            insort(before.parts, (key, raw), key=lambda part: natural(part[0]))
            before.key, before.node = key, node.path
            return value
        if merge is not None and merge != "last":
            current = None if before is None else decode(before.single)
            if before is not None and (before.key or current is not None):
                self.ask(merge, path, f"merge of `{name}`", {"current": current, "value": value})
                raw = self._outcomes[self._cursor - 1]
        elif merge is None and before is not None and before.key and self._apart(before.key, key):
            run.pending.append(DataConflicted(at=self.at, name=name, first=before.key, second=key))
        run.data[name] = Write(raw, key, node.path)
        return value

    def _apart(self, first: str, second: str) -> bool:
        """Two executions are concurrent: they differ in an item of a map (in a pass they follow one another), or, in
        one and the same scope, neither task lies on a path to the other."""
        static = ""
        for a, b in zip(first.split("/"), second.split("/"), strict=False):
            left, right = a.partition("[")[0], b.partition("[")[0]
            if a != b:
                one, other = (f"{static}/{left}", f"{static}/{right}") if static else (left, right)
                return (
                    self.plan.node(one).type == "map"
                    if left == right
                    else self.plan.concurrent(one, other)
                )
            static = f"{static}/{left}" if static else left
        return False

    # --- keys and times --------------------------------------------------------------------------------------

    @staticmethod
    def key(path: str, id: str) -> str:
        return f"{path}/{id}" if path else id

    def locate(self, key: str) -> tuple[str, Scope, Node, TaskState]:
        """A task by its key; KeyError if it is not in the state (any more)."""
        path, _, id = key.rpartition("/") if "/" in key else ("", "", key)
        scope = self.run.scopes[path]
        return path, scope, self.plan.scopes[scope.plan].nodes[id], scope.tasks[id]

    def counted(self, when: float) -> float:
        """A due time that is relative to now. In a pause no time passes: it is counted from where the pause began, and
        the resume shifts it."""
        since = self.run.paused_at
        return when if since is None else when - (self.at - since)

    def due(self, when: float, key: str) -> None:
        heappush(self.run.dues, (when, key))

    def _holds(self, when: float, key: str) -> bool:
        """The entry of the heap still means something."""
        run = self.run
        if key == RUN:
            return run.due == when
        if key == GRACE:
            return run.grace == when
        if key == BEGIN:
            return run.begin == when
        if key == DEADLINE:
            return run.deadline == when and not run.late
        try:
            state = self.locate(key)[3]
        except KeyError:
            return False
        return state.status in OPEN_TASK and when in (state.due, state.deadline)

    def take_letter(self, name: str, key: str) -> Any:
        """The oldest signal of that name that nobody has taken, or None."""
        letters = self.run.signals.get(name)
        if not letters:
            return None
        letter = letters.pop(0)
        if not letters:
            del self.run.signals[name]
        return letter

    def answer(self, path: str, node: Node, id: str) -> None:
        """An update was taken by a signal task: evaluate its reply."""
        reply = node.formulas.get("reply")
        raw = b"null"
        if reply is not None:
            try:
                self.ask(reply, path, f"reply of `{node.id}`")
                raw = self.asked()[1]
            except Fault as fault:
                self.answered(Answer(id, b"null", refused=fault.failure.message))
                return
        self.answered(Answer(id, raw))

    def answered(self, answer: Answer) -> None:
        self.effects.append(answer)
        self.answers.append(answer)

    def deliver(self, id: str, out: SignalOut) -> None:
        self.run.outgoing[id] = out
        self.effects.append(Deliver(id))


RUN, GRACE, BEGIN, DEADLINE = "#run", "#grace", "#begin", "#deadline"
"""Entries of the heap of due times that are the run's own, not a task's."""


def static(key: str) -> str:
    """The path of a task in its definition."""
    return "/".join([segment.partition("[")[0] for segment in key.split("/")])


def own(value: Any) -> Any:
    """A copy, where the value could be changed by whoever gets it."""
    return decode(encode(value)) if isinstance(value, dict | list) else value


def natural(key: str) -> list[tuple[int, str]]:
    """Keys in order: `items[2]` before `items[10]`."""
    parts: list[tuple[int, str]] = []
    for segment in key.split("/"):
        id, _, number = segment.partition("[")
        parts.append((0, id))
        parts.append((int(number[:-1]) if number else -1, ""))
    return parts


def with_key(failure: Failure, key: str) -> Failure:
    if failure.key:
        return failure
    return replace(failure, key=key)
