"""From where a run goes on in another generation, what that means, and the events that say so (SPEC 4.4).

A retry goes on from just before a task ended; a reset from the event that it names. Both give the events of the new
generation (copies, then `RunReset`, then the signals that came later) and, of an open run, the last one of the old.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.identity import REMEMBERED_SECONDS
from penstock.core.plan import Plan
from penstock.core.turn import apply
from penstock.errors import NotFound, Rejected
from penstock.model import events as e
from penstock.model.preview import Consequence, Preview
from penstock.model.run import (
    CANCELLED,
    FAILED,
    OPEN_TASK,
    TIMED_OUT,
    WAITING,
    Run,
    Undo,
)

RETRIABLE = (FAILED, CANCELLED, TIMED_OUT)


class Past(Struct):
    """A history as its reopening needs it."""

    events: list[e.Event]
    end: Run
    """The state after all of them."""
    pushed: dict[str, int]
    """When each entry that could be undone came to be, by its key."""
    ended: dict[str, int]
    """Where each task ended last, by its key."""
    stopping: int
    """The event with which the run began to stop, or 0."""
    loose: list[int]
    """Events after which another was owed, or while what came before was being undone: a generation cannot go on from
    there."""


class Walk:
    """Folds a history and notes what a reopening asks; `step` takes a moment, so that the caller can pause between."""

    def __init__(self, id: str, plan: Plan) -> None:
        self.flow = Flow(Run(id=id), plan)
        self.past = Past([], self.flow.run, {}, {}, 0, [])
        self._open: set[str] = set()
        self._undo = 0

    def step(self, event: e.Event) -> None:
        past, flow = self.past, self.flow
        run = flow.run
        undo = [entry.key for entry in run.undo] if isinstance(event, e.RunMigrated) else []
        evolve(flow, event)
        past.events.append(event)
        flow.effects = []
        seq = run.revision
        if run.pending or run.rewinding:
            past.loose.append(seq)
        if run.stopping is not None and not past.stopping:
            past.stopping = seq
        for entry in run.undo[self._undo :]:
            past.pushed.setdefault(entry.key, seq)
        self._undo = len(run.undo)
        opened = {
            flow.key(path, id)
            for path, scope in run.scopes.items()
            for id, state in scope.tasks.items()
            if state.status in OPEN_TASK
        }
        if isinstance(event, e.RunMigrated):
            for before, entry in zip(undo, run.undo, strict=True):
                past.pushed[entry.key] = past.pushed.pop(before, seq)
        else:
            for key in self._open - opened:
                past.ended[key] = seq
        key = getattr(event, "key", None)
        if isinstance(event, ENDS) and isinstance(key, str):
            past.ended[key] = seq  # also of one that began and ended with the same event
        self._open = opened


ENDS = (e.TaskCompleted, e.TaskFailed, e.TimerFired, e.FormSubmitted, e.ChildClosed)


def retry_point(past: Past, task: str | None) -> tuple[int, str]:
    """The event after which a retry goes on, and the task that it begins with; Rejected for a run or a task of which
    there is nothing to try again."""
    run = past.end
    if run.status not in RETRIABLE:
        what = f"has ended {run.status}" if run.closed else "is still open"
        raise Rejected(
            "not-retriable",
            f"run {run.id} {what}; only one that FAILED, was CANCELLED or TIMED_OUT is retried",
            hint="`reset` goes on from any event of its history",
        )
    undone = _undone(past.events)
    first = min((past.pushed[key] for key in undone if key in past.pushed), default=None)
    if task is not None:
        seq = past.ended.get(task)
        if seq is None:
            known = ", ".join(list(past.ended)[:10]) or "none"
            raise NotFound(
                f"run {run.id} has no task `{task}` that has ended", hint=f"it has: {known}"
            )
        point = min(seq, past.stopping or seq) - 1
        if first is not None and first <= point:
            key = next(key for key in undone if past.pushed.get(key) == first)
            raise Rejected(
                "retry-undone",
                f"`{key}` was done before `{task}` and has been undone: it would count as done",
                hint="retry without naming a task, which begins before all that was undone",
            )
        return point, task
    cause = run.failure.key if run.failure is not None and run.status == FAILED else ""
    end = past.ended.get(cause, past.stopping) if cause else past.stopping
    point = min(end, past.stopping or end)
    if first is not None and first < point:
        point = first
        cause = next(key for key in undone if past.pushed.get(key) == first)
        if first == 1:
            raise Rejected(
                "retry-undone",
                f"`{cause}` was done in a generation before and has been undone: it would count as done",
                hint="start the run again",
            )
    return point - 1, cause


def check_point(past: Past, to: int) -> None:
    """Rejected, if no generation can go on from there."""
    run, count = past.end, len(past.events)
    if not 1 <= to <= count:
        raise Rejected(
            "reset-point",
            f"run {run.id} has events 1 to {count}; it cannot go on from {to}",
            hint="`penstock history` numbers them; to begin from the very first, start it again",
        )
    last = past.stopping - 1 if past.stopping else count
    if to > last:
        raise Rejected(
            "reset-point",
            f"with event {past.stopping} run {run.id} began to stop; it cannot go on from event {to}",
            hint=f"take an event from 1 to {last}",
        )
    if to in past.loose or (run.closed and to == count):
        after = next(
            (n for n in range(to + 1, last + 1) if n not in past.loose and n < count), None
        )
        raise Rejected(
            "reset-point",
            f"what followed event {to} of run {run.id} belongs to it",
            hint=f"take event {after or to - 1}",
        )


def preview(past: Past, to: int, children: Sequence[str]) -> Preview:
    """What came after the point; `children` are those of the runs started later that are still open."""
    found: list[Consequence] = []
    ways = {entry.key for entry in undoable(past, to)}
    undone = _undone(past.events[to:])
    for seq, event in enumerate(past.events[to:], to + 1):
        match event:
            case e.TaskCompleted():
                if event.key not in undone:
                    found.append(Consequence("task", event.key, seq, event.key in ways))
            case e.ChildStarted():
                found.append(Consequence("child", event.key, seq, event.key in ways, event.run))
            case e.SignalSent():
                found.append(
                    Consequence("signal", event.key, seq, name=f"{event.name} to {event.run}")
                )
            case e.Published():
                found.append(Consequence("publish", event.key, seq, name=event.topic))
            case e.UndoCompleted() | e.UndoResolved(act="accept"):
                if past.pushed.get(event.key, to + 1) <= to:
                    found.append(Consequence("undone", event.key, seq))
            case _:
                pass
    names = [event.name for event in past.events[to:] if isinstance(event, e.SignalReceived)]
    run = past.end
    return Preview(run.id, run.generation, to, found, names, list(children))


def _undone(events: Sequence[e.Event]) -> set[str]:
    """Keys of the executions that were undone, by an activity or by hand."""
    return {
        event.key
        for event in events
        if isinstance(event, e.UndoCompleted)
        or (isinstance(event, e.UndoResolved) and event.act == "accept")
    }


def undoable(past: Past, to: int) -> list[Undo]:
    """What was done after the point and has a way back that was not taken, the oldest first."""
    run = past.end
    stuck = [undoing.entry for undoing in run.undo_failed]
    return [entry for entry in (*run.undo, *stuck) if past.pushed.get(entry.key, to + 1) > to]


def children_at(run: Run) -> dict[str, str]:
    """The children that the tasks of a run wait for, by key."""
    return {
        f"{path}/{id}" if path else id: state.child
        for path, scope in run.scopes.items()
        for id, state in scope.tasks.items()
        if state.child is not None and state.status == WAITING
    }


def children_after(past: Past, to: int, there: Run) -> dict[str, str]:
    """Children that the run may have begun after the point, by key."""
    kept = {*children_at(there).values(), *there.leaving.values()}
    found = {**children_at(past.end), **past.end.leaving}
    for event in past.events[to:]:
        if isinstance(event, e.ChildStarted):
            found[event.key] = event.run
    return {key: child for key, child in found.items() if child not in kept}


def signals_after(past: Past, to: int, at: float, exclude: Sequence[str]) -> list[e.Event]:
    """Those that came after the point, as they are given to the new generation; an update that was answered is not
    answered again."""
    answered = {event.id for event in past.events[to:] if isinstance(event, e.UpdateAnswered)}
    return [
        replace(
            event, at=at, outcomes=[], faults={}, update=event.update and event.id not in answered
        )
        for event in past.events[to:]
        if isinstance(event, e.SignalReceived) and event.name not in exclude
    ]


def known_after(past: Past, fact: e.RunReset) -> dict[str, tuple[float, str]]:
    """Ids of commands that the copies do not tell of, and that still count."""
    since = max(past.events[fact.to - 1].at, fact.at - REMEMBERED_SECONDS)
    return {id: entry for id, entry in past.end.commands.items() if entry[0] >= since}


def known_to(run: Run, at: float) -> dict[str, tuple[float, str]]:
    """Ids of commands that still count, for a generation that copies nothing."""
    return {id: entry for id, entry in run.commands.items() if entry[0] > at - REMEMBERED_SECONDS}


def reopen(flow: Flow, past: Past, fact: e.RunReset, exclude: Sequence[str] = ()) -> list[e.Event]:
    """The events of the new generation after the copies; `flow` is the run as the copies give it. May raise Need."""
    events: list[e.Event] = []
    for event in (fact, *signals_after(past, fact.to, fact.at, exclude)):
        apply(flow, event, events)
        if flow.run.closed or flow.run.stopping is not None:
            break  # what came later is of no use to it
    return events
