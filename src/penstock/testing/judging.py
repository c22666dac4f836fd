"""The judge of a simulation: what must hold after every commit, every attempt that begins and every answer (SPEC 4.2, 4.8).

It folds each run a second time from the bytes that were stored, and knows what the world did; the engine knows nothing of
it. What does not hold is noted in words, and the simulation ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.functions import FUNCTION, FunctionPlan
from penstock.core.invariants import broken
from penstock.core.plan import Plan
from penstock.core.values import decode
from penstock.model import events as e
from penstock.model.codec import decode_event, encode_run
from penstock.model.job import Done, Job, Outcome
from penstock.model.run import OPEN_TASK, WAITING, Run
from penstock.ports.store import Append, Row

if TYPE_CHECKING:
    from penstock.testing.nodes import Node

OF_ATTEMPTS = (
    e.TaskCompleted, e.TaskFailed, e.TaskRetried, e.TaskLost, e.TaskStarted, e.TaskDeferred, e.TaskProgressed,
)  # fmt: skip
OF_OWNERS = (
    *OF_ATTEMPTS, e.UndoCompleted, e.UndoRetried, e.UndoStarted, e.UndoLost, e.UndoFailed, e.TimerFired, e.Advanced,
)  # fmt: skip
"""What only the owner may say, unless somebody did it by hand."""
OF_UNDOS = (e.UndoCompleted, e.UndoRetried, e.UndoStarted, e.UndoLost, e.UndoFailed)
Name = tuple[str, int]
"""A run's id and generation."""


class Broken(Exception):
    """An invariant does not hold."""


class Shadow:
    """One generation of a run, folded from what was stored."""

    __slots__ = ("completed", "flow", "heard", "open", "payloads")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.payloads: list[bytes] = []
        self.completed: set[str] = set()
        """Keys of tasks whose completion is recorded."""
        self.heard: set[str] = set()
        """Ids of messages that are in the history."""
        self.open = True


class Judge:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.alarm: Callable[[], None] = lambda: None
        """Called when something does not hold."""
        self.shadows: dict[Name, Shadow] = {}
        self.newest: dict[str, int] = {}
        """The newest generation of each run."""
        self.plans: dict[tuple[str, str], Plan] = {}
        self.accepted: dict[str, set[str]] = {}
        """Ids of commands and messages that are in a run's histories."""
        self.answers: dict[str, dict[str, tuple[bytes, str]]] = {}
        """Recorded answers to updates: what was given, or why it was refused."""
        self.outputs: dict[tuple[str, int, str, int, bool], list[bytes]] = {}
        """What the world gave, by run, generation, key, attempt and whether it was an undo."""
        self.keys: dict[str, tuple[str, int, str, bool]] = {}
        """Idempotency keys, and whose they are."""
        self._begun: dict[tuple[str, int, str, bool, int], tuple[Node, int]] = {}
        """Attempts, where, and with which token: each has its number, and begins at most once, whatever happens to its
        process."""
        self.events = 0
        self.attempts = 0
        self._digest = sha256()

    def note(self, problem: str) -> None:
        """Something does not hold."""
        self.problems.append(problem)
        self.alarm()

    # --- what was stored -------------------------------------------------------------------------------------

    def appended(self, node: Node, append: Append, newest: int) -> None:
        """Right after the commit, before anybody else knows of it; `newest` is the owner's token from before it."""
        row = append.row
        name = row.id, row.generation
        shadow = self.shadows.get(name)
        if shadow is None:
            shadow = self.shadows[name] = Shadow(self._flow(row))
            self.newest[row.id] = max(row.generation, self.newest.get(row.id, 0))
        flow = shadow.flow
        copied = append.expected == 0 and row.generation > 1  # of the generation before
        if append.token is not None and append.token < newest:
            self._broken(shadow, f"an append with token {append.token}, and there is a newer owner")
        for payload in append.payloads:
            event = decode_event(payload)
            self._before(shadow, event)
            alone = append.token is None and not copied and isinstance(event, OF_OWNERS)
            if alone and getattr(event, "by", None) is None:
                self._broken(shadow, f"{event.type} is the owner's to say, and has no token")
            try:
                evolve(flow, event)
            except Exception as error:
                self._broken(
                    shadow, f"{event.type} cannot be folded: {type(error).__name__}: {error}"
                )
            self._after(shadow, event)
        flow.effects.clear()
        shadow.open = row.open
        shadow.payloads += append.payloads
        self.events += len(append.payloads)
        for text in (f"{row.id}\n{row.generation}\n".encode(), *append.payloads):
            self._digest.update(text)
        self._look(shadow, node, append)

    def _flow(self, row: Row) -> Flow:
        plan = self.plans.get((row.definition, row.version))
        if plan is None and row.version == FUNCTION:
            plan = self.plans[row.definition, row.version] = FunctionPlan(row.definition)
        assert plan is not None, (row.definition, row.version)
        return Flow(Run(id=row.id), plan)

    def _before(self, shadow: Shadow, event: e.Event) -> None:
        run = shadow.flow.run
        if run.closed:
            self._broken(shadow, f"{event.type} after the end: terminal is final")
        if isinstance(event, OF_ATTEMPTS):
            ending = run.ending.get(event.key)
            state = self._state(shadow, event.key) if ending is None else None
            if ending is not None and isinstance(event, e.TaskCompleted | e.TaskFailed):
                if ending.attempt != event.attempt:
                    self._broken(shadow, f"{event.type} of another attempt of `{event.key}`")
            elif state is None or state.status not in OPEN_TASK:
                self._broken(shadow, f"{event.type} of `{event.key}`, which is not open")
            elif state.attempt != event.attempt:
                self._broken(
                    shadow,
                    f"{event.type} of attempt {event.attempt} of `{event.key}`, whose attempt is {state.attempt}",
                )
            if isinstance(event, e.TaskCompleted):
                self._check_output(shadow, event)
        elif isinstance(event, OF_UNDOS):
            undoing = run.undoing.get(event.key)
            if undoing is None or undoing.attempt != event.attempt:
                self._broken(shadow, f"{event.type} of an attempt that is not the undo's")
        elif isinstance(event, e.TimerFired):
            state = self._state(shadow, event.key)
            if state is None or state.status != WAITING:
                self._broken(shadow, f"the timer `{event.key}` fired, and nobody waits for it")
            elif state.due is not None and event.by is None and event.at < state.due:
                self._broken(shadow, f"the timer `{event.key}` fired before its time")

    def _check_output(self, shadow: Shadow, event: e.TaskCompleted) -> None:
        """What is recorded is what the world gave."""
        run = shadow.flow.run
        if event.key in shadow.completed:
            self._broken(shadow, f"`{event.key}` is completed twice")
        given = self.outputs.get((run.id, run.generation, event.key, event.attempt, False))
        if given is not None and not event.beside and bytes(event.output) not in given:
            self._broken(shadow, f"`{event.key}` has another output than its activity gave")
        if given is None and run.generation == 1:
            self._broken(shadow, f"`{event.key}` is completed, and nobody executed it")

    def _state(self, shadow: Shadow, key: str) -> Any:
        try:
            return shadow.flow.locate(key)[3]
        except KeyError:
            return None

    def _after(self, shadow: Shadow, event: e.Event) -> None:
        match event:
            case e.TaskCompleted():
                shadow.completed.add(event.key)
            case e.RunReset():
                shadow.completed.clear()
            case e.CommandAccepted() | e.SignalReceived() if event.id:
                if isinstance(event, e.SignalReceived) and event.id in shadow.heard:
                    self._broken(shadow, f"message {event.id} is received twice")
                shadow.heard.add(event.id)
                self.accepted.setdefault(shadow.flow.run.id, set()).add(event.id)
            case e.UpdateAnswered():
                answers = self.answers.setdefault(shadow.flow.run.id, {})
                answer = bytes(event.output), event.refused
                if answers.setdefault(event.id, answer) != answer:
                    self._broken(shadow, f"update {event.id} is answered twice, and otherwise")
            case _:
                pass

    def _look(self, shadow: Shadow, node: Node, append: Append) -> None:
        """After a whole append: the run is sound, and is in memory what it is on disk."""
        flow, row = shadow.flow, append.row
        for problem in broken(flow):
            self._broken(shadow, problem)
        if flow.run.revision != row.revision or flow.run.status != row.status:
            self._broken(shadow, "the row says another revision or status than the events")
        entry = node.core.cache.get(row.id)
        if entry is not None and entry.row is row and not flow.run.pending:
            here = encode_run(entry.flow.run)
            if here != encode_run(flow.run):
                self._broken(shadow, "the state in memory is not the fold of the events")

    def taken_back(self, append: Append) -> None:
        """Nobody was told of it, and it is gone: the newest of its run."""
        name = append.row.id, append.row.generation
        before = self.shadows[name]
        left = before.payloads[: -len(append.payloads)]
        if not left:
            del self.shadows[name]
            self.newest[name[0]] -= 1
            if not self.newest[name[0]]:
                del self.newest[name[0]]
            return
        shadow = self.shadows[name] = Shadow(self._flow(append.row))
        for payload in left:
            event = decode_event(payload)
            evolve(shadow.flow, event)
            self._after(shadow, event)
        shadow.flow.effects.clear()
        shadow.payloads = left

    # --- what the world did ----------------------------------------------------------------------------------

    def begun(self, node: Node, job: Job, *, owns: bool) -> None:
        """An attempt begins. One who owns the database no longer may not know how far the run is; nobody else may
        execute again what is recorded, or begin what is not."""
        self.attempts += 1
        whose = job.run_id, job.generation, job.key, job.undo
        if not owns:
            node.simulation.counts["attempts begun by who was taken over from"] += 1
        else:
            here = node, node.simulation.disk.token()
            before = self._begun.get((*whose, job.attempt))
            self._begun[*whose, job.attempt] = here
            if before is None:
                pass
            elif before != here and node.simulation.clocks_differ():
                # A retry that was due by a clock that went before this one, in a process that was gone, or taken over
                # from, before anything of it was recorded: by the clock of whoever came next it was not due, and nobody
                # can know that it had begun. It is due again as the attempt that it is, also where it had begun.
                node.simulation.counts["retries due again by another clock"] += 1
            else:
                self.note(f"attempt {job.attempt} of `{job.key}` of run {job.run_id} begins twice")
        if self.keys.setdefault(job.idempotency_key, whose) != whose:
            self.note(f"two tasks have the idempotency key {job.idempotency_key}")
        shadow = self.shadows.get((job.run_id, job.generation))
        if shadow is None:
            self.note(f"`{job.key}` of run {job.run_id} begins before its run is on disk")
            return
        run = shadow.flow.run
        if job.undo:
            undoing = run.undoing.get(job.key)
            if owns and not run.closed and (undoing is None or undoing.attempt != job.attempt):
                self._broken(shadow, f"an undo of `{job.key}` begins that is not recorded")
            return
        if owns and job.key in shadow.completed:
            self._broken(shadow, f"`{job.key}` is recorded, and is executed again")
        state = self._state(shadow, job.key)
        if state is not None and state.status in OPEN_TASK:
            if job.attempt > state.attempt:
                self._broken(
                    shadow, f"attempt {job.attempt} of `{job.key}` begins before it is on disk"
                )
            elif owns and job.attempt < state.attempt:
                self._broken(
                    shadow, f"attempt {job.attempt} of `{job.key}` begins after a later one"
                )

    def gave(self, job: Job, outcome: Outcome) -> None:
        """What came of an attempt."""
        if isinstance(outcome, Done):
            whose = job.run_id, job.generation, job.key, job.attempt, job.undo
            self.outputs.setdefault(whose, []).append(bytes(outcome.output))

    def answered(self, run_id: str, command_id: str = "") -> None:
        """A caller has an answer: what it asked for is on disk."""
        if run_id not in self.newest:
            self.note(f"run {run_id} is answered for, and is not on disk")
        elif command_id and command_id not in self.accepted.get(run_id, ()):
            self.note(f"command {command_id} to run {run_id} is answered, and is not on disk")

    def replied(self, run_id: str, update_id: str, answer: Any) -> None:
        """A caller has the answer to its update: it is what is on disk."""
        recorded = self.answers.get(run_id, {}).get(update_id)
        if recorded is None:
            self.note(f"update {update_id} of run {run_id} is answered, and is not on disk")
        elif recorded[1] or decode(Raw(recorded[0])) != answer:
            self.note(f"update {update_id} of run {run_id} is answered otherwise than recorded")

    # --- at the end ------------------------------------------------------------------------------------------

    def run(self, run_id: str) -> Run:
        """The newest generation as it is on disk."""
        return self.shadows[run_id, self.newest[run_id]].flow.run

    def open_runs(self) -> list[str]:
        return [id for id, generation in self.newest.items() if self.shadows[id, generation].open]

    def digest(self) -> str:
        """Of all events, in the order in which they were stored."""
        return self._digest.hexdigest()

    def _broken(self, shadow: Shadow, problem: str) -> None:
        run = shadow.flow.run
        self.note(f"run {run.id} generation {run.generation} at {run.revision}: {problem}")
