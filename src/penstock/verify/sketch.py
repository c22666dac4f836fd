"""Sketch: a Flow of which it is left open what conditions come to and how fragments end.

It is the real Flow in all that links, joins and scopes do; a script says which of what is possible happens, so that the
same step can be taken again in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw

from penstock.core import links, scopes
from penstock.core.flow import Flow
from penstock.core.plan import INTERNAL, Guard, Node
from penstock.core.values import Fault, Variables
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
from penstock.verify.instants import COMPLETE, FAIL, WAIT
from penstock.verify.models import Facts, Model, Way

CANCEL = Failure(code="cancelled", message="from another scope")
EXPRESSION = Failure(code="expression-failed", message="as it begins")


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
        choices = self.model.instant.get(node.id, ())
        if not choices or state.status not in OPEN_TASK:
            return
        choice = choices[self.pick(len(choices)) if len(choices) > 1 else 0]
        if choice == COMPLETE:
            self.shut(path, scope, state)
            if WAIT in choices:
                self.went.append((node.id, Way()))
            self.complete(path, scope, node, state)
        elif choice == FAIL:
            self.shut(path, scope, state)
            self.went.append((node.id, Way(failed=True)))
            self.fail(path, scope, node, state, EXPRESSION)

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
            # The link's own source is inside: whether this is what an `always` link led to is known of the whole.
            self.route(path, scope, out, taken, rescue=taken and state.rescue)

    def fail(  # type: ignore[override]
        self, path: str, scope: Scope, node: Node, state: TaskState, failure: Failure
    ) -> None:
        if failure.code == CANCEL.code:
            state.status = CANCELLED
            for out in node.outs:
                self.route(path, scope, out, False)
            return
        ways = self.model.ways.get(node.id)
        if (
            ways is None or not state.attempt
        ):  # a loop that never began: its header's own links are asked
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
        why = None if scope.failure is None else (scope.failure.code, scope.failure.key)
        return (
            frozenset(tasks), facts, scope.ended, scope.over, why, scope.back, scope.left,
            frozenset(scope.exits), frozenset(scope.saved),
        )  # fmt: skip
