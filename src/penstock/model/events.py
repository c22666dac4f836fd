"""What can have happened to a run: immutable facts, as they are stored.

A released event keeps its tag and meaning for ever; a new field has a default. Each event carries all that
`core/evolve.py` needs: what an expression, a schema check or a template gave while the event was first applied is
in `outcomes`, in the order in which it was asked for, and is read back from there on every later replay (SPEC 4.1).
Nothing that can be derived is stored: that a task became ready follows from the event before it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from penstock.model.definition import Retry
from penstock.model.failure import Failure
from penstock.model.job import LogLine
from penstock.model.run import Undo

RULES = 2
"""The rule set that `RunStarted` names: how links, joins and scopes follow from events. Since 2 what a definition gives up
is undone if it is done all the same (SPEC 4.5)."""

NULL = Raw(b"null")


class _Event(Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True):
    at: float
    """When the command was given, by the clock of whoever decided it."""
    outcomes: list[Raw] = []
    """Filled while the event is applied for the first time; then never again."""
    faults: dict[int, Failure] = {}
    """Which of the outcomes were errors."""
    beside: dict[str, tuple[str, int]] = {}
    """Fields too large to stand here: the digest of the bytes that are kept beside the event, and their size as JSON."""
    erased: bool = False
    """Its payloads were erased; what they were is not known any more."""

    @property
    def type(self) -> str:
        return type(self).__struct_config__.tag  # pyright: ignore


class Origin(Struct, frozen=True, omit_defaults=True):
    """The start of a run that has gone on in other generations by itself: what a repeat of it is held against, when the
    generation of that start is cleared away."""

    at: float
    digest: str
    """Of the input."""
    start_key: str = ""


class RunStarted(_Event, frozen=True, tag="run_started"):
    """The first event of a run: all that it was started with."""

    id: str
    """Of the run."""
    definition: str
    """Its id."""
    version: str
    """The version of the definition, for as long as the run lives."""
    input: Raw
    """What it was started with."""
    rules: int = 1
    """How links, joins and scopes follow from the events."""
    generation: int = 1
    priority: int = 1
    """0 high, 1 normal, 2 low."""
    deadline: float | None = None
    """When it should have ended; soft."""
    due: float | None = None
    """The run's own timeout ends it then."""
    begin: float | None = None
    """A delayed start: nothing runs before."""
    created_by: str | None = None
    """Who started it."""
    parent: str | None = None
    """The run that started it, if it is a subworkflow."""
    parent_key: str | None = None
    """The task there."""
    parent_generation: int = 1
    """The generation there."""
    depth: int = 0
    """How many subworkflows deep it is."""
    metadata: dict[str, Any] = {}
    """What the start gave along."""
    attributes: dict[str, Any] = {}
    """What the run is found by."""
    held: bool = False
    """Nothing runs before it is admitted: its definition limits how many are open (SPEC 4.10)."""
    start_key: str = ""
    """The idempotency key of the start."""
    later: dict[str, str] = {}
    """Children of the generation in whose place it starts that are not wanted any more, by the key of their task."""
    known: dict[str, tuple[float, str]] = {}
    """Ids of commands that the generation before had accepted within 24 h."""
    undo: list[Undo] = []
    """What the generation before had done and can be undone, if this one goes on for it."""
    origin: Origin | None = None
    """The start of the first generation, if this one goes on for it."""


class RunReset(_Event, frozen=True, tag="run_reset"):
    """The first event of a generation that is not a copy: the run goes on from event `to` of generation `of`.

    All events before it are copies, byte for byte, so that what they did keeps its names (a child's id, a message's).
    """

    generation: int
    of: int
    """The generation before."""
    to: int
    """Its last event that is kept."""
    cause: str = "reset"
    """`reset` or `retry`."""
    task: str | None = None
    """The task that a retry begins with."""
    by: str | None = None
    reason: str = ""
    since: float | None = None
    """Waits have the time left that they had then; without it, at event `to`."""
    due: float | None = None
    """The run's own timeout, counted anew."""
    renewed: list[str] = []
    """Tasks whose child is of no use any more (it failed, or was told to stop): they get a new one."""
    later: dict[str, str] = {}
    """Children of the generation before that are not wanted any more, by the key of their task."""
    undo: list[Undo] = []
    """What was done after event `to` and is to be undone, before anything goes on."""
    known: dict[str, tuple[float, str]] = {}
    """Ids of commands that the generation before had accepted after event `to`."""


class RunMigrated(_Event, frozen=True, tag="run_migrated"):
    """From here on the run is one of another version of its definition (SPEC 2.7)."""

    version: str
    """Of the definition, from now on."""
    was: str
    """The version before."""
    mapping: dict[str, str] = {}
    """Tasks that have another name now, by their old one."""
    passed: list[str] = []
    """New tasks that come before what has begun: they count as skipped."""
    due: float | None = None
    """The run's own timeout ends it then."""
    by: str | None = None
    reason: str = ""
    keyed: bool = False
    """What renamed tasks appended has its place by their names of today."""


class RunBegun(_Event, frozen=True, tag="run_begun"):
    """The delay of a delayed start is over."""


class RunAdmitted(_Event, frozen=True, tag="run_admitted"):
    """Fewer runs of the definition are open than its limit says: this one may begin."""

    due: float | None = None
    """The run's own timeout ends it then."""


class Advanced(_Event, frozen=True, tag="advanced"):
    """A workflow function was told what had come while its code was not there; what it wanted next is in `outcomes`."""


class DeadlineForeseen(_Event, frozen=True, tag="deadline_foreseen"):
    """By what runs of the definition took so far, this one will miss its deadline: it goes first from now on."""

    deadline: float
    """When it should have ended."""
    expected: float
    """When it would end."""


class DeadlineMissed(_Event, frozen=True, tag="deadline_missed"):
    """The run is open at its deadline, which is soft: it goes on (SPEC 5.1)."""

    deadline: float
    """When it should have ended."""


class TaskStarted(_Event, frozen=True, tag="task_started"):
    """Kept only where it matters: `once`, after losses, and attempts older than a second (SPEC 4.3)."""

    key: str
    attempt: int
    worker: str = ""
    began: float | None = None


class TaskDeferred(_Event, frozen=True, tag="task_deferred"):
    """The activity has returned, and the attempt stays open: it is completed from outside, by its token."""

    key: str
    attempt: int
    due: float | None = None
    """When the attempt has taken too long."""
    retry: Retry | None = None
    """The activity's own policy, for when it fails."""
    began: float | None = None
    logs: tuple[LogLine, ...] = ()


class TaskProgressed(_Event, frozen=True, tag="task_progressed"):
    """The activity told how far it is; its next attempt can go on from there."""

    key: str
    attempt: int
    progress: Raw = NULL


class TaskCompleted(_Event, frozen=True, tag="task_completed"):
    """The attempt gave its result: it is never executed again."""

    key: str
    attempt: int
    output: Raw = NULL
    began: float | None = None
    logs: tuple[LogLine, ...] = ()


class TaskRetried(_Event, frozen=True, tag="task_retried"):
    """The attempt failed and another is due."""

    key: str
    attempt: int
    failure: Failure
    due: float
    progress: Raw = NULL
    logs: tuple[LogLine, ...] = ()


class TaskFailed(_Event, frozen=True, tag="task_failed"):
    """The task has failed for good: there is no other attempt, and its error links are taken."""

    key: str
    attempt: int
    failure: Failure
    logs: tuple[LogLine, ...] = ()
    by: str | None = None
    """Who failed it by hand."""
    cancelled: bool = False
    """It was told to stop with its run, and did: it is CANCELLED, and no action of `onError` is taken."""


class TaskSkipped(_Event, frozen=True, tag="task_skipped"):
    """An operator would not have the task waited for: it counts as skipped by a condition."""

    key: str
    by: str | None = None
    reason: str = ""


class RetryFired(_Event, frozen=True, tag="retry_fired"):
    """An operator would not have the next attempt wait for its time."""

    key: str
    attempt: int
    by: str | None = None
    reason: str = ""
    undo: bool = False
    """It is an attempt of the task's undo."""


class TaskLost(_Event, frozen=True, tag="task_lost"):
    """The attempt may have begun in a process that died; the next one is not charged to the policy."""

    key: str
    attempt: int
    counted: bool = False
    """It counts towards `poison`: it was begun under suspicion, or its own child process died."""
    cut: bool = False
    """The process was asked to stop and did not wait for it: that says nothing against the attempt."""
    progress: Raw = NULL
    logs: tuple[LogLine, ...] = ()


class TimerFired(_Event, frozen=True, tag="timer_fired"):
    """A wait is over: a timer is due, or a signal, form or task has waited for long enough."""

    key: str
    by: str | None = None
    """Who fired it by hand."""
    reason: str = ""


class SignalReceived(_Event, frozen=True, tag="signal_received"):
    """A signal or an update came; it is kept until somebody takes it."""

    name: str
    """Of the signal."""
    payload: Raw = NULL
    by: str | None = None
    id: str = ""
    """Of the message, where it can come twice; of the update, where an answer is awaited."""
    update: bool = False
    """Whoever sent it awaits an answer."""


class EventReceived(_Event, frozen=True, tag="event_received"):
    """A bus event that belongs to the run, and the tasks that it belongs to, in the order in which they began to wait."""

    id: str
    """Of the bus event: it is taken once."""
    topic: str
    """On which it was published."""
    keys: list[str]
    """Of the tasks that take it."""
    kind: str = ""
    """The type of the bus event."""
    source: str = ""
    """Who published it."""
    payload: Raw = NULL
    """Its data, which is the output of the tasks."""


class FormClaimed(_Event, frozen=True, tag="form_claimed"):
    """Somebody wants to fill the form in; nobody else can meanwhile."""

    key: str
    by: str


class FormReleased(_Event, frozen=True, tag="form_released"):
    """Whoever claimed the form gave it back."""

    key: str
    by: str


class FormDelegated(_Event, frozen=True, tag="form_delegated"):
    """Whoever claimed the form gave it to another."""

    key: str
    by: str
    to: str
    """Who has it now."""


class FormSubmitted(_Event, frozen=True, tag="form_submitted"):
    """The form was filled in."""

    key: str
    by: str | None
    output: Raw


class FormEscalated(_Event, frozen=True, tag="form_escalated"):
    """The form is overdue; it stays open."""

    key: str


class ChildStarted(_Event, frozen=True, tag="child_started"):
    """The run of a subworkflow exists."""

    key: str
    run: str
    version: str = ""
    """Of its definition."""


class ChildClosed(_Event, frozen=True, tag="child_closed"):
    """The run of a subworkflow has ended."""

    key: str
    status: str
    """How it ended."""
    output: Raw = NULL
    failure: Failure | None = None
    undo: list[Undo] = []
    """What it has done and can undo, if this run is to."""


class Published(_Event, frozen=True, tag="published"):
    """For whoever listens; followers of the log hand it on."""

    key: str
    topic: str
    """Where to."""
    payload: Raw = NULL


class SignalSent(_Event, frozen=True, tag="signal_sent"):
    """A signal to another run, which gets it as soon as this is on disk."""

    key: str
    run: str
    name: str
    """Of the signal."""
    payload: Raw = NULL
    id: str = ""
    """Of the message."""


class SignalDelivered(_Event, frozen=True, tag="signal_delivered"):
    """The other run has the signal, or refused it."""

    id: str
    """Of the message."""
    refused: str = ""
    """Why the other run refused it."""


class DataConflicted(_Event, frozen=True, tag="data_conflicted"):
    """Two concurrent tasks wrote one key of the data without a merge; the later write is read."""

    name: str
    """The key of the data."""
    first: str
    """The task whose write is not read any more."""
    second: str
    """The task whose write is read."""


class SnapshotTaken(_Event, frozen=True, tag="snapshot_taken"):
    """Somebody gave this moment of the run a name (SPEC 4.7)."""

    name: str
    """Of the moment."""
    by: str | None = None


class CommandAccepted(_Event, frozen=True, tag="command_accepted"):
    """The command that the events after this one came of had an id: a repeat gets the answer of the first (SPEC 4.4)."""

    id: str
    """Of the command."""
    digest: str
    """Of what it asked for: the same id with something else is refused."""


class UpdateAnswered(_Event, frozen=True, tag="update_answered"):
    """Somebody took the update; whoever sent it finds the answer here, in any process."""

    id: str
    """Of the update."""
    output: Raw = NULL
    refused: str = ""
    """Why it was refused."""


class RunPaused(_Event, frozen=True, tag="run_paused"):
    """No new attempt begins until the run is resumed."""

    by: str | None = None
    reason: str = ""


class RunResumed(_Event, frozen=True, tag="run_resumed"):
    """The run goes on."""

    by: str | None = None
    reason: str = ""


class CancelRequested(_Event, frozen=True, tag="cancel_requested"):
    """Somebody asked the run to stop: it ends what is under way, undoes what it did, and ends CANCELLED."""

    by: str | None = None
    reason: str = ""
    due: float = 0.0
    """When attempts that have not ended by then are given up."""


class TimeoutReached(_Event, frozen=True, tag="timeout_reached"):
    """The run's own timeout; it stops, compensates and ends TIMED_OUT."""

    due: float = 0.0


class GraceEnded(_Event, frozen=True, tag="grace_ended"):
    """Attempts that were told to stop have not; they are given up."""


class UndoCompleted(_Event, frozen=True, tag="undo_completed"):
    """What a task did is undone."""

    key: str
    attempt: int
    logs: tuple[LogLine, ...] = ()


class UndoRetried(_Event, frozen=True, tag="undo_retried"):
    """The undo failed, and is tried again."""

    key: str
    attempt: int
    failure: Failure
    due: float
    logs: tuple[LogLine, ...] = ()


class UndoStarted(_Event, frozen=True, tag="undo_started"):
    """Stored before an undo that was lost again and again is begun once more (SPEC 4.3)."""

    key: str
    attempt: int
    worker: str = ""


class UndoLost(_Event, frozen=True, tag="undo_lost"):
    """The undo may have begun in a process that died; it is tried again."""

    key: str
    attempt: int
    cut: bool = False
    """The process was asked to stop and did not wait for it."""
    counted: bool = False
    """It counts towards `poison`."""


class UndoFailed(_Event, frozen=True, tag="undo_failed"):
    """The undo failed for good: it waits for an operator."""

    key: str
    attempt: int
    failure: Failure
    logs: tuple[LogLine, ...] = ()
    by: str | None = None
    """Who did not wait for its next attempt; None: the undo itself failed."""
    reason: str = ""


class UndoResolved(_Event, frozen=True, tag="undo_resolved"):
    """An operator has decided what becomes of an undo that failed."""

    key: str
    act: str
    """`accept`: it was undone by hand; `skip`: it is not undone; `retry`: it is tried again."""
    attempt: int = 0
    by: str | None = None
    reason: str = ""


class AttributesChanged(_Event, frozen=True, tag="attributes_changed"):
    """The attributes that the run is found by have changed."""

    values: dict[str, Any]
    """Null removes a name."""
    by: str | None = None
    reason: str = ""


class RunCompleted(_Event, frozen=True, tag="run_completed"):
    """The run has ended as it should."""

    output: Raw = NULL
    ref: Any = None
    """Where the result is, if it is too large to be kept twice."""


class RunFailed(_Event, frozen=True, tag="run_failed"):
    """The run has ended by a failure that nothing in it took care of; what it did is undone."""

    failure: Failure


class RunCancelled(_Event, frozen=True, tag="run_cancelled"):
    """The run has ended because somebody asked it to."""

    failure: Failure | None = None


class RunTimedOut(_Event, frozen=True, tag="run_timed_out"):
    """The run has ended because it took longer than its timeout."""

    failure: Failure | None = None


class RunTerminated(_Event, frozen=True, tag="run_terminated"):
    """The run was ended at once; nothing was undone."""

    by: str | None = None
    reason: str = ""
    generation: int = 0
    """The generation that was started in its place, if that is why."""


class RunContinued(_Event, frozen=True, tag="run_continued"):
    """The run goes on in another generation, which was opened in the same commit."""

    generation: int
    by: str | None = None
    reason: str = ""


Event = (
    RunStarted | RunReset | RunBegun | TaskStarted | TaskDeferred | TaskProgressed | TaskCompleted | TaskRetried | TaskFailed | TaskLost
    | TaskSkipped | RetryFired
    | TimerFired | SignalReceived | EventReceived | FormClaimed | FormReleased | FormDelegated | FormSubmitted | FormEscalated
    | ChildStarted | ChildClosed | Published | SignalSent | SignalDelivered | DataConflicted
    | SnapshotTaken | CommandAccepted | UpdateAnswered
    | RunAdmitted | DeadlineForeseen | DeadlineMissed
    | RunPaused | RunResumed | CancelRequested | TimeoutReached | GraceEnded
    | UndoCompleted | UndoRetried | UndoStarted | UndoLost | UndoFailed | UndoResolved | AttributesChanged
    | RunCompleted | RunFailed | RunCancelled | RunTimedOut | RunTerminated
    | RunContinued | RunMigrated | Advanced
)  # fmt: skip

EVENT_TYPES: tuple[type[Event], ...] = Event.__args__  # type: ignore[attr-defined]
ENCODER = msgspec.json.Encoder()
DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)  # type: ignore[arg-type]
