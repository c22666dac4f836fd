"""Flow: how links, joins and scopes follow from events (SPEC 2.3); a definition as a Program.

One Flow belongs to one run in memory. `core/evolve.py` calls it for each event: it changes the run in place,
notes effects, and asks expressions through `ask`: while an event is applied for the first time their outcomes are
written into it, on every later replay they are read back from there, so that the state is the fold of the events.
Nothing here waits, reads a clock or does I/O.

Its methods live in files of their own, by what they are about: `core/links.py`, `core/scopes.py`, `core/stopping.py`,
`core/inputs.py`, `core/actions.py`; the types of task in `core/kinds/`. They reach one another through Flow alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any

from msgspec import Raw

from penstock.core import actions, inputs, kinds, links, scopes, stopping
from penstock.core.keys import BEGIN, DEADLINE, GRACE, RUN
from penstock.core.links import arrive
from penstock.core.owed import references
from penstock.core.plan import Edge, Node, Plan
from penstock.core.program import Host, Program
from penstock.core.scopes import quiet
from penstock.model.effects import Answer, Effect
from penstock.model.events import Event
from penstock.model.failure import Failure
from penstock.model.run import OPEN_TASK, Run, Scope, TaskState

HELD_BYTES_MAX = 8 << 20


class Flow:
    """See the module's docstring."""

    __slots__ = (
        "advances", "answers", "asked_bytes", "at", "checks", "cursor", "effects", "faults", "globals", "held", "host", "outcomes", "plan",
        "program", "replaying", "run", "seq", "todo", "values",
    )  # fmt: skip

    def __init__(self, run: Run, plan: Plan) -> None:
        self.run, self.plan = run, plan.of_run(run) if plan.function else plan
        self.program: Program | None = None
        """The code of a workflow function, as far as it has been told."""
        self.host: Host | None = None
        """Where such code is, if it is to go on here."""
        self.values: dict[int, Any] = {}
        """Decoded values by reference that are in memory though not in the state."""
        self.held = 0
        self.effects: list[Effect] = []
        self.answers: list[Answer] = []
        self.globals: Mapping[str, Any] = {}
        self.at = 0.0
        self.seq = 0
        self.outcomes: list[Raw] = []
        self.faults: dict[int, Failure] = {}
        self.replaying = False
        self.asked_bytes = 0
        """Of what expressions gave in the event that is being applied."""
        self.cursor = 0
        self.todo: list[tuple[str, str, Edge, bool, bool]] = []
        """Links to be decided, in order; a list that is walked while it grows, as a deque costs 600 bytes a run."""
        self.checks: list[str] = []
        self.advances = 0

    # --- one event -------------------------------------------------------------------------------------------

    def begin_event(self, event: Event, seq: int, *, replaying: bool) -> None:
        self.at, self.seq = event.at, seq
        self.outcomes, self.faults = event.outcomes, event.faults
        self.replaying, self.cursor, self.advances, self.asked_bytes = replaying, 0, 0, 0

    def drain(self) -> None:
        """Decide all links that follow from what has happened, then end the scopes in which nothing is open."""
        todo, checks, run = self.todo, self.checks, self.run
        scopes = run.scopes
        while True:
            if todo:
                for path, id, edge, taken, rescue in todo:
                    arrive(self, path, id, edge, taken, rescue)
                todo.clear()
            if checks:
                path = checks.pop()
                scope = scopes.get(path)
                if scope is not None and not scope.open and run.stopping is None:
                    quiet(self, path)
            elif not run.mutexes or not kinds.break_deadlock(self):
                break
        if run.stopping is not None:
            self.stop_further()
        dues = run.dues
        while dues and not self._holds(*dues[0]):
            heappop(dues)

    def evict(self) -> None:
        """Between turns: let go of values, but not of the items of open maps, which every turn asks for."""
        if self.held > HELD_BYTES_MAX:
            wanted = references(self.run)
            self.values = {ref: value for ref, value in self.values.items() if ref in wanted}
            self.held = 0

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

    # --- asking, values, inputs ------------------------------------------------------------------------------

    ask = inputs.ask
    asked = inputs.asked
    asked_count = inputs.asked_count
    asked_at = inputs.asked_at
    last_outcome = inputs.last_outcome
    hold = inputs.hold
    hold_live = inputs.hold_live
    resolve = inputs.resolve
    output = inputs.output
    input = inputs.run_input
    item = inputs.item
    fix_inputs = inputs.fix_inputs
    arguments = inputs.arguments
    arguments_of = inputs.arguments_of
    gather = inputs.gather

    # --- data, announcements, signals ------------------------------------------------------------------------

    do = actions.do
    announce = actions.announce
    set_data = actions.set_data
    apart = actions.apart
    take_letter = actions.take_letter
    forget_waiter = actions.forget_waiter
    answer = actions.answer
    answered = actions.answered
    deliver = actions.deliver

    # --- links, joins, gateways ------------------------------------------------------------------------------

    fire = links.fire
    skip = links.skip
    route = links.route
    decide_links = links.decide_links
    choose = links.choose
    split = links.split
    disarm = links.disarm

    # --- scopes, and how tasks end in them -------------------------------------------------------------------

    open_scope = scopes.open_scope
    enter = scopes.enter
    shut = scopes.shut
    keep = scopes.keep
    complete = scopes.complete
    fail = scopes.fail
    fail_scope = scopes.fail_scope
    result = scopes.result
    sending = scopes.sending
    go_on = scopes.go_on

    # --- giving up and undoing -------------------------------------------------------------------------------

    cancel_task = stopping.cancel_task
    release = stopping.release
    in_flight = stopping.in_flight
    cancel_inside = stopping.cancel_inside
    cancel_scope = stopping.cancel_scope
    stop = stopping.stop
    stop_further = stopping.stop_further
    give_up = stopping.give_up
    ended = stopping.ended
    undo_next = stopping.undo_next
    mark_undone = stopping.mark_undone
    push_undo = stopping.push_undo
    push_undo_of_left = stopping.push_undo_of_left
