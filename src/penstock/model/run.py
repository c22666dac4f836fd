"""Run and its tasks: all that is known after n events.

Owned by whoever folds events into it and changed in place by `core/evolve.py` alone. It is the fold of its
events and nothing else; what is only cached here for speed is marked so and left out of snapshots.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, field

from penstock.model.definition import Retry
from penstock.model.failure import Failure
from penstock.model.intents import Heard, Waiting

# Run status (SPEC 1).
CREATED, RUNNING, WAITING, COMPENSATING = "CREATED", "RUNNING", "WAITING", "COMPENSATING"
COMPLETED, FAILED, CANCELLED = "COMPLETED", "FAILED", "CANCELLED"
TERMINATED, TIMED_OUT, CONTINUED = "TERMINATED", "TIMED_OUT", "CONTINUED"
CLOSED = frozenset({COMPLETED, FAILED, CANCELLED, TERMINATED, TIMED_OUT, CONTINUED})

# Task status (SPEC 1); COMPLETED, FAILED, CANCELLED, RUNNING, WAITING are shared with runs.
PENDING, SCHEDULED, RETRYING, SKIPPED = "PENDING", "SCHEDULED", "RETRYING", "SKIPPED"
COMPENSATED, UNDO_FAILED = "COMPENSATED", "UNDO_FAILED"
OPEN_TASK = frozenset({SCHEDULED, RUNNING, WAITING, RETRYING})

INLINE_BYTES_MAX = 2048
"""Outputs up to this size stay in the state; larger ones are read by reference."""

REF_SHIFT = 20
"""A reference is `seq << REF_SHIFT | i`: of event `seq` its own output (0) or its i-th outcome."""

Ref = Any
"""0 (null), a reference, or a list or dict of such."""


class Undo(Struct, omit_defaults=True):
    """One completed execution that can be undone, with all that it takes."""

    key: str
    activity: str
    arguments: Raw
    attempts: int = 4
    first: float = 2.0
    factor: float = 2.0
    maximum: float = 60.0
    node: str = ""
    """Static path of the task, for what may be undone in parallel."""
    parallel: bool = False


class Undoing(Struct, omit_defaults=True):
    """An undo that is under way."""

    entry: Undo
    attempt: int = 1
    lost: int = 0
    due: float | None = None
    failure: Failure | None = None
    cut: int = 0
    """Attempts that a process which was asked to stop did not wait for: they count neither as tried nor as lost."""
    suspect: int = 0
    """Losses in a row; from the second on `UndoStarted` is stored before an attempt is begun."""
    poison: int = 0
    """Losses in a row that count."""
    started: bool = False
    """`UndoStarted` of this attempt is stored."""


class MapState(Struct, omit_defaults=True):
    """A map while its items run."""

    items: Ref = 0
    total: int = 0
    extra: list[int] = []
    """References of items that signals added."""
    closed: bool = True
    next: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    results: list[Ref] = []
    errors: dict[int, Failure] = {}
    done: bool = False
    """Enough items are done and its links are decided; the others end unheard."""


class FormState(Struct, omit_defaults=True):
    assignee: str | None = None
    claimed_by: str | None = None
    due: float | None = None
    escalated: bool = False


class TaskState(Struct, omit_defaults=True):
    """A task as its scope knows it; created when its first incoming link is decided."""

    status: str = PENDING
    trues: int = 0
    deads: int = 0
    dead_link: int = 0
    """Of a join that can starve: the first link that died, by its index from 1."""
    rescue: bool = False
    """Reached by an `always` link of a failed task: it still runs while its scope fails."""
    attempt: int = 0
    charged: int = 0
    """Attempts that count for the retry policy."""
    lost: int = 0
    """Losses in a row; from the second on `TaskStarted` is stored before an attempt is begun."""
    poison: int = 0
    """Losses in a row that count."""
    started: bool = False
    """`TaskStarted` of this attempt is stored."""
    deferred: bool = False
    """The activity has returned; the attempt is completed from outside."""
    retry: Retry | None = None
    """Of a deferred attempt: the activity's own policy."""
    output: bytes | None = None
    """JSON, if small."""
    ref: Ref = 0
    """Where the output is, small or not."""
    arguments: bytes | None = None
    """What inputs gave that could change later; the rest is derived from recorded outputs."""
    failure: Failure | None = None
    due: float | None = None
    absolute: bool = False
    """The due time was given as such: a pause does not shift it."""
    deadline: float | None = None
    scheduled_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    progress: bytes | None = None
    group: str | None = None
    """The event gateway that armed it."""
    number: int = 0
    """Passes begun, of a loop."""
    child: str | None = None
    map: MapState | None = None
    form: FormState | None = None
    last: dict[str, TaskState] | None = None
    """Of a loop: its tasks as the last pass left them."""
    step: Waiting | None = None
    """Of a workflow function: what it wanted, but for what it is called with."""
    told: bool = False
    """Of a workflow function that gave the step up: its attempt was told, ends, and is waited for by nobody."""


def still_open(state: TaskState) -> bool:
    """Open, or a map that had enough items and has others under way."""
    return state.status in OPEN_TASK or (state.map is not None and state.map.done)


class Scope(Struct, omit_defaults=True):
    """What holds tasks: the run itself, a pass of a loop, an item of a map, the body of a mutex."""

    plan: str = ""
    """Static path: ids joined by `/`."""
    parent: str | None = None
    """Path of the scope around it."""
    owner: str = ""
    """Id of the task in that scope to which it belongs."""
    number: int = 0
    """Pass (from 1) or item (from 0)."""
    tasks: dict[str, TaskState] = {}
    open: int = 0
    ended: bool = False
    over: bool = False
    """A terminating end fired: nothing begins here any more."""
    failure: Failure | None = None
    """The scope fails with this once nothing in it is open."""
    back: bool = False
    """Of a natural loop's pass: a back link is true."""
    left: bool = False
    """Of a natural loop's pass: a true error link leaves it, so that there is no next one."""
    exits: list[int] = []
    """Of a natural loop's pass: exit links that are true."""
    saved: list[int] = []
    """Of a natural loop's pass that fails: exit links that what an `always` link led to has taken."""
    item: Ref = 0


class Ending(Struct, omit_defaults=True):
    """An attempt of a task that was given up and can be undone: it was told to stop, and may be done all the same."""

    attempt: int
    scopes: dict[str, Scope] = {}
    """Those around its task, but for the run's own, with what was completed in them: its undo may ask for that when
    they are gone."""


class Letter(Struct, omit_defaults=True):
    """A signal that waits for a waiter, or an update that waits for its answer."""

    ref: Ref
    payload: bytes | None = None
    """JSON, if small."""
    id: str = ""
    update: bool = False


class Write(Struct, omit_defaults=True):
    """A key of the run's data as it stands."""

    single: Raw = field(name="value", default=Raw(b"null"))
    key: str = ""
    """Who wrote last."""
    node: str = ""
    parts: list[tuple[str, Raw]] = []
    """With `merge: append`: who wrote what, in key order."""

    @property
    def value(self) -> Raw:
        """JSON; of parts it is made when it is read, so that a write costs the same among 100,000."""
        if not self.parts:
            return self.single
        return Raw(b"[" + b",".join([bytes(raw) for _, raw in self.parts]) + b"]")


class Run(Struct, omit_defaults=True):
    """One generation of a run."""

    id: str = ""
    generation: int = 1
    definition: str = ""
    version: str = ""
    rules: int = 1
    status: str = CREATED
    revision: int = 0
    paused: bool = False
    paused_at: float | None = None
    cancel_requested: bool = False
    priority: int = 1
    deadline: float | None = None
    due: float | None = None
    begin: float | None = None
    held: bool = False
    """It waits to be admitted."""
    escalated: bool = False
    """It will probably miss its deadline, and goes first."""
    late: bool = False
    """It has missed its deadline."""
    created_at: float = 0.0
    created_by: str | None = None
    started_at: float | None = None
    updated_at: float = 0.0
    ended_at: float | None = None
    parent: str | None = None
    parent_key: str | None = None
    parent_generation: int = 1
    depth: int = 0
    metadata: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    input: bytes | None = None
    data: dict[str, Write] = {}
    scopes: dict[str, Scope] = {}
    active: int = 0
    """Attempts that are scheduled, running or retrying."""
    dues: list[tuple[float, str]] = []
    """A heap of what is due when, by task key; entries that no longer hold are dropped at the top."""
    signals: dict[str, list[Letter]] = {}
    """Received, not yet taken, in order per name."""
    waiters: dict[str, list[str]] = {}
    """Keys of the tasks that wait for a name, in order."""
    listening: dict[str, str] = {}
    """Keys of the tasks that wait for a bus event, in order, and the topic of each."""
    mutexes: dict[str, list[str]] = {}
    """Keys in order of arrival; the first holds it."""
    commands: dict[str, tuple[float, str]] = {}
    """Ids of commands and messages accepted in the last 24 h, with when and a digest of what was asked."""
    undo: list[Undo] = []
    undoing: dict[str, Undoing] = {}
    undo_failed: list[Undoing] = []
    outgoing: dict[str, SignalOut] = {}
    """Signals to other runs that are not yet known to have arrived; the run does not close before they have."""
    leaving: dict[str, str] = {}
    """Children that were told to stop and have not ended yet, by the key of their task; the run waits for them."""
    ending: dict[str, Ending] = {}
    """Attempts that were told to stop, have not ended yet and are undone if they are done all the same, by key."""
    stopping: str | None = None
    """The status to end with: the run is being cancelled, timed out or failed, and starts nothing new."""
    grace: float | None = None
    """When attempts that were told to stop and are still open are given up."""
    compensating: bool = False
    rewinding: bool = False
    """What the generation before did after the point of a reset is being undone; nothing else begins meanwhile."""
    rewind: list[Undo] = []
    """What of that is not begun."""
    failure: Failure | None = None
    finished: bool = False
    """An end fired and nothing is open: `RunCompleted` is owed."""
    result: bytes | None = None
    result_ref: Ref = 0
    pending: list[Any] = []
    """Events that are owed by what was just applied, and follow it in the same append."""
    tasks_done: int = 0
    heard: list[Heard] = []
    """Of a workflow function: what it has not been told yet, as its code is not here."""
    advanced: int = 0
    """The last event at which it was told something."""
    asked: str = ""
    """It was asked to stop, and ends with this status once it has cleaned up."""
    answer: bytes | None = None
    """It has returned this; the run waits for what is on its way."""
    next_input: bytes | None = None
    """It goes on in another generation, with this input."""

    @property
    def closed(self) -> bool:
        return self.status in CLOSED


class SignalOut(Struct, omit_defaults=True):
    key: str
    run: str
    name: str
    payload: Raw
