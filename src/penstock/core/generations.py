"""What the first event of a new generation does to the state that the copied events before it gave (SPEC 4.4).

Attempts that were open are begun anew, waits go on with the time they had left, children are kept or begun anew, and
what is to be undone is undone first. Which point a generation goes on from is chosen in `core/reopening.py`.
"""

from __future__ import annotations

from penstock.core.flow import Flow
from penstock.core.keys import BEGIN, DEADLINE, GRACE, RUN
from penstock.core.owed import owed
from penstock.model import events as e
from penstock.model.effects import Execute
from penstock.model.run import RETRYING, RUNNING, SCHEDULED, WAITING, Run, Undo, Undoing


def old_key(generation: int, key: str) -> str:
    """A task of an earlier generation, told apart from that of today: no id begins with a tilde."""
    return f"~{generation}/{key}"


def task_key(key: str) -> str:
    """The key that a task had in its own generation."""
    while key.startswith("~"):
        key = key.partition("/")[2]
    return key


def reset(flow: Flow, run: Run, event: e.RunReset) -> None:
    """Go on from where the copies end."""
    run.generation = event.generation
    run.ending.clear()  # they were told, and are not of this generation
    run.grace = None if run.stopping is None else run.grace
    for path, scope in run.scopes.items():
        for id, state in scope.tasks.items():
            if state.attempt and state.status in (SCHEDULED, RUNNING, RETRYING):
                state.status, state.attempt, state.charged = SCHEDULED, 1, 0
                state.lost, state.poison, state.started = 0, 0, False
                state.due, state.deferred = None, False
            elif state.child is not None and state.status == WAITING:
                key = flow.key(path, id)
                if key in event.renewed:
                    state.child = f"{run.id}~{run.generation}/{key}"
                    state.started_at, state.started = None, False
    for key, child in event.later.items():
        run.leaving[old_key(event.of, key)] = child
    for id, (at, digest) in event.known.items():
        run.commands[id] = (at, digest)
    run.paused, run.paused_at = True, run.paused_at or event.since or run.updated_at
    if event.due is not None:
        run.due = event.due - (
            event.at - run.paused_at
        )  # the pause that ends now, or later, shifts it
    if not event.undo:
        resume(flow, run, event.at)
        return
    run.rewinding = True
    run.rewind = [_of_old(entry, event.of) for entry in event.undo]
    flow.effects.extend(owed(run))
    rewind(flow, run, event.at)


def _of_old(entry: Undo, generation: int) -> Undo:
    return Undo(
        key=old_key(generation, entry.key), activity=entry.activity, arguments=entry.arguments,
        attempts=entry.attempts, first=entry.first, factor=entry.factor, maximum=entry.maximum,
    )  # fmt: skip


def rewind(flow: Flow, run: Run, at: float) -> None:
    """Undo the next of what came after the point, the newest first; then the run goes on."""
    if run.undoing:
        return
    if run.rewind:
        entry = run.rewind.pop()
        run.undoing[entry.key] = Undoing(entry)
        flow.effects.append(Execute(entry.key, 1, undo=True))
    elif not run.undo_failed:
        run.rewinding = False
        resume(flow, run, at)


def resume(flow: Flow, run: Run, at: float) -> None:
    """Relative waits are shifted by the pause, absolute ones are not; what may begin, begins."""
    began = run.paused_at or at
    shift = at - began
    run.paused, run.paused_at = False, None
    run.dues.clear()
    if run.due is not None:
        run.due += shift
        flow.due(run.due, RUN)
    if run.begin is not None:
        run.begin += shift
        flow.due(run.begin, BEGIN)
    if run.deadline is not None and not run.late:
        flow.due(run.deadline, DEADLINE)
    if run.grace is not None:
        flow.due(run.grace, GRACE)
    for path, scope in run.scopes.items():
        for id, state in scope.tasks.items():
            underway = state.status == RETRYING and state.due is not None and state.due < began
            if state.due is not None and not state.absolute and not underway:
                state.due += shift
                if state.form is not None:
                    state.form.due = state.due
            if state.deadline is not None:
                state.deadline += shift
            key = flow.key(path, id)
            if state.due is not None and (state.status == WAITING or state.deferred):
                flow.due(state.due, key)
            if state.deadline is not None:
                flow.due(state.deadline, key)
    flow.effects.extend(owed(run))
