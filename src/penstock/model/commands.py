"""What may be asked of a run: wishes, turned into events or refused.

Time, ids and chance come in here and nowhere else. Commands are not stored.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from penstock.model.definition import Retry
from penstock.model.events import Origin
from penstock.model.failure import Failure
from penstock.model.job import LogLine
from penstock.model.run import Undo

NULL = Raw(b"null")


class _Command(Struct, frozen=True):
    at: float


class StartRun(_Command, frozen=True):
    id: str
    definition: str
    version: str
    input: bytes
    generation: int = 1
    priority: int | None = None
    deadline: float | None = None
    delay: float | None = None
    created_by: str | None = None
    parent: str | None = None
    parent_key: str | None = None
    parent_generation: int = 1
    depth: int = 0
    metadata: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    start_key: str = ""
    later: dict[str, str] = {}
    """See `events.RunStarted`, as for `known`."""
    known: dict[str, tuple[float, str]] = {}
    undo: tuple[Undo, ...] = ()
    origin: Origin | None = None
    due: float | None = None
    """When the run's own timeout ends it, if that is counted already."""


class StartTask(_Command, frozen=True):
    """Record that an attempt begins (or began at `began`)."""

    key: str
    attempt: int
    worker: str = ""
    began: float | None = None
    undo: bool = False
    generation: int = 0
    """Of the run, where the attempt was begun; 0: whichever."""


class CompleteTask(_Command, frozen=True):
    key: str
    attempt: int
    output: bytes
    began: float | None = None
    logs: tuple[LogLine, ...] = ()
    undo: bool = False
    """Of the undo of that task, not of the task itself."""
    generation: int = 0
    """Of the run, where the attempt was begun; 0: whichever."""


class FailTask(_Command, frozen=True):
    key: str
    attempt: int
    failure: Failure
    retry: Retry | None = None
    final: bool = False
    died: bool = False
    once: bool = False
    """The activity itself is declared so."""
    progress: bytes | None = None
    logs: tuple[LogLine, ...] = ()
    undo: bool = False
    generation: int = 0
    """Of the run, where the attempt was begun; 0: whichever."""


class LoseTask(_Command, frozen=True):
    """The process that may have begun the attempt is dead."""

    key: str
    attempt: int
    once: bool = False
    """The activity itself is declared so."""
    progress: bytes | None = None
    undo: bool = False
    cut: bool = False
    """Nothing died: the process was asked to stop and did not wait for the attempt."""
    generation: int = 0
    """Of the run, where the attempt was begun; 0: whichever."""


class RecordProgress(_Command, frozen=True):
    key: str
    attempt: int
    progress: bytes
    generation: int = 0
    """Of the run, where the attempt was begun; 0: whichever."""


class Wake(_Command, frozen=True):
    """Do what is due by now: timers, expiries, the run's own timeout."""


class AdvanceRun(_Command, frozen=True):
    """The code of the workflow function is here: tell it what it has not been told."""


class AdmitRun(_Command, frozen=True):
    """There is a place for a run that waited for one."""


class ForeseeMiss(_Command, frozen=True):
    """The run is expected to end only then, after its deadline."""

    expected: float


class SendSignal(_Command, frozen=True):
    name: str
    payload: bytes = b"null"
    by: str | None = None
    id: str = ""
    update: bool = False


class OfferEvent(_Command, frozen=True):
    """A bus event that may belong to the run: tasks that wait for it take it, otherwise nothing happens."""

    id: str
    topic: str
    kind: str = ""
    """Its type."""
    source: str = ""
    run: str = ""
    """The run that it tells of, if it says so."""
    data: bytes = b"null"


class ClaimForm(_Command, frozen=True):
    key: str
    by: str


class ReleaseForm(_Command, frozen=True):
    key: str
    by: str


class DelegateForm(_Command, frozen=True):
    key: str
    by: str
    to: str


class SubmitForm(_Command, frozen=True):
    key: str
    output: bytes
    by: str | None = None


class RecordChild(_Command, frozen=True):
    """The child exists."""

    key: str
    run: str
    version: str


class CloseChild(_Command, frozen=True):
    key: str
    status: str
    output: bytes = b"null"
    failure: Failure | None = None
    undo: tuple[Undo, ...] = ()
    run: str = ""
    """The child: one that an older generation waited for is not taken for that of today."""


class RecordDelivery(_Command, frozen=True):
    """A signal to another run has arrived, or was refused."""

    id: str
    refused: str = ""


class NameSnapshot(_Command, frozen=True):
    name: str
    by: str | None = None


class PauseRun(_Command, frozen=True):
    by: str | None = None
    reason: str = ""


class ResumeRun(_Command, frozen=True):
    by: str | None = None
    reason: str = ""


class CancelRun(_Command, frozen=True):
    by: str | None = None
    reason: str = ""


class TerminateRun(_Command, frozen=True):
    by: str | None = None
    reason: str = ""


class DeferTask(_Command, frozen=True):
    """The activity has returned, and the attempt is completed from outside."""

    key: str
    attempt: int
    due: float | None = None
    retry: Retry | None = None
    began: float | None = None
    logs: tuple[LogLine, ...] = ()
    generation: int = 0


class HandleWait(_Command, frozen=True):
    """Fire, skip or fail what a task waits for (SPEC 4.9)."""

    key: str
    act: str
    by: str | None = None
    reason: str = ""


class ResolveUndo(_Command, frozen=True):
    """Accept, skip or retry an undo that failed (SPEC 4.5)."""

    key: str
    act: str
    by: str | None = None
    reason: str = ""


class MigrateRun(_Command, frozen=True):
    """Go on as a run of another version (SPEC 2.7)."""

    version: str
    mapping: dict[str, str] = {}
    by: str | None = None
    reason: str = ""


class ChangeAttributes(_Command, frozen=True):
    values: dict[str, Any]
    by: str | None = None
    reason: str = ""


class Identified(_Command, frozen=True):
    """A command with an id: a repeat within 24 h changes nothing, with another body it is refused (SPEC 4.4)."""

    id: str
    digest: str
    command: Command


Command = (
    StartRun | StartTask | CompleteTask | FailTask | LoseTask | RecordProgress | Wake | SendSignal | OfferEvent
    | ClaimForm | ReleaseForm | DelegateForm | SubmitForm | RecordChild | CloseChild | RecordDelivery
    | NameSnapshot | AdmitRun | AdvanceRun | ForeseeMiss
    | PauseRun | ResumeRun | CancelRun | TerminateRun
    | DeferTask | HandleWait | ResolveUndo | ChangeAttributes | MigrateRun | Identified
)  # fmt: skip
