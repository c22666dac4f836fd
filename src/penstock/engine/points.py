"""Named points where a process may be killed: `tests/crash` does, and judges what is left.

Off, which is always but there, a point costs one look at a module's attribute. A call site is one line:
`if points.reach is not None: points.reach("append.before")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.turn import Turn

reach: Callable[[str], None] | None = None
"""Called with the name of each point that is reached, if anybody wants to know."""

POINTS = {
    "commit.taken": "commands have left the inbox, nothing is decided",
    "append.before": "decided, not stored",
    "append.after": "stored; nobody was answered, nothing was begun",
    "settle.answered": "the callers of one run are answered, its effects are not performed",
    "settle.performed": "the effects of one run are performed, those of the next are not",
    "dispatch.before": "an attempt is to begin",
    "dispatch.recorded": "its TaskStarted is stored, it has not begun",
    "dispatch.after": "an attempt has begun",
    "report.before": "an attempt has ended, nobody knows",
    "report.after": "its result is in the inbox",
    "snapshot.before": "a snapshot is to be stored",
    "snapshot.after": "a snapshot is stored",
    "timer.before": "a timer is due, its run is not yet woken",
    "undo.begun": "an attempt of a compensation has begun",
    "child.before": "a child is wanted and not started",
    "child.after": "a child is started, its parent does not know",
    "child.telling": "a child has ended, its parent does not know",
    "inside.begun": "the transaction of an activity is open, nothing is called",
    "inside.returned": "a transactional activity has returned, nothing is decided",
    "inside.decided": "its result is decided, its transaction is open",
    "inside.committed": "its writes and its result are committed; the engine does not know",
    "request.found": "requests are committed, their runs are not started",
    "request.started": "the runs of requests are stored, the requests are still there",
    "request.dropped": "the requests are gone",
    "deliver.before": "a signal to another run is on its way",
    "deliver.after": "it has arrived, the sender does not know",
    "route.kept": "a bus event is kept for the owner, nobody was answered",
    "route.before": "a bus event is to be offered to the runs that wait for it",
    "route.after": "it is in their histories; nobody was answered",
    "route.dropped": "what was kept is gone",
    "outbox.before": "what runs published is to be handed on",
    "outbox.saved": "how far that got is stored",
    "schedule.before": "what a schedule does next is decided, not stored",
    "schedule.after": "it is stored; nothing more has begun, nobody waits for it",
    "schedule.decided": "a schedule's starts are decided and stored, none has begun",
    "schedule.started": "they are started, the schedule does not know",
    "debounce.decided": "a window has ended and is stored as such, its run has not begun",
    "debounce.started": "its run is started, the record does not know",
    "singleton.named": "the run of a key is stored as such, it has not begun",
    "generation.before": "a generation is to be opened, nothing is stored",
    "generation.after": "it is stored; nobody was answered, nobody told",
    "known.before": "workflow functions are to be written down by name, nothing else is done",
    "known.after": "they are written down; nobody owns the database yet",
    "next.before": "a workflow function wants its next generation, nothing of it is there",
    "program.before": "the history of a function is to be told to it again",
    "program.beside": "it is told beside the commits; what comes for its run waits",
    "program.told": "it has been told, and has not gone on",
    "batch.page": "the runs of a step are written down, nothing is done to them",
    "batch.acted": "the act is done to them, the record does not say so",
    "resume.written": "that a definition is resumed is written down, it is still paused",
    "resume.dropped": "it is paused no more, nobody was told",
    "recovery.claimed": "the database is ours, nothing is recovered",
    "recovery.chunk": "some of the open runs are taken, others are not",
    "recovery.lost": "one run's lost attempts are known, not stored",
    "recovery.owed": "what a run is owed is to be performed",
    "recovery.done": "all open runs are taken",
    "stop.draining": "the engine is asked to stop",
    "stop.drained": "what was under way has ended and is stored",
    "stop.released": "the database has no owner any more",
}
"""What is true at each. For each type of event there are two more, around its append: `decided.TYPE`, `stored.TYPE`."""


def each(prefix: str, taken: Iterable[tuple[Any, Any, Any, Turn, Any]]) -> None:
    """The point of every event of a commit."""
    if reach is not None:
        for _, _, _, turn, _ in taken:
            for event in turn.events:
                reach(f"{prefix}.{event.type}")
