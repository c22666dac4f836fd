"""Job: one attempt of a task on its way to a worker, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.model.definition import Retry
from penstock.model.failure import Failure
from penstock.model.queue import DEFAULT


class Job(Struct):
    """All that a worker needs for one attempt."""

    run_id: str
    generation: int
    key: str
    attempt: int
    activity: str
    arguments: Any
    """A dict becomes keyword arguments, a list positional ones, anything else the one argument. They are the
    worker's own: whoever made the job reads them no more."""
    start_to_close: float | None = None
    heartbeat: float | None = None
    progress: Any = None
    """What the last attempt's heartbeat carried."""
    secrets: Sequence[tuple[str, str]] = ()
    """(parameter, NAME): resolved only where the activity runs."""
    once: bool = False
    undo: bool = False
    """It is a compensation of `key`."""
    started_at: float = 0.0
    lost: int = 0
    """Losses in a row of the attempts before; from the second on it is begun with care (SPEC 4.3)."""
    poison: int = 0
    """Those of them that count."""
    recorded: bool = False
    """Its `TaskStarted` is stored."""
    queue: str = DEFAULT
    priority: int = 1
    connection: Any = None
    """Of a transactional activity: what it writes with."""

    @property
    def idempotency_key(self) -> str:
        """The same over all attempts of one task."""
        return f"{self.run_id}/{self.generation}/{self.key}" + ("/undo" if self.undo else "")


class LogLine(Struct, frozen=True):
    """What an activity said while it ran; kept with its attempt (SPEC 4.10)."""

    at: float
    level: str
    """`INFO`, `WARNING`, …; `DROPPED` in the line that stands for those that were too many."""
    message: str


class Done(Struct, repr_omit_defaults=True):
    """The attempt succeeded; `output` is its result as JSON, serialized once."""

    output: bytes
    logs: tuple[LogLine, ...] = ()


class Broken(Struct, repr_omit_defaults=True):
    """The attempt failed."""

    failure: Failure
    retry: Retry | None = None
    """The activity's own policy, used where the task names none."""
    final: bool = False
    """The activity said that another attempt is of no use."""
    died: bool = False
    """Its own child process died; three in a row are `poison` (SPEC 4.3)."""
    logs: tuple[LogLine, ...] = ()


class Cut(Struct):
    """The attempt was given up because the engine stops; it is neither done nor failed, and stays owed."""


Outcome = Done | Broken | Cut
