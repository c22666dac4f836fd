"""What stands in the way of moving a run to another version, and what the move would do (SPEC 2.7, 3.8)."""

from __future__ import annotations

from msgspec import Struct

OBSTACLES = {
    "open-removed": "a task that is open is not in the new version",
    "open-changed": "a task that is open would do something else",
    "open-renamed": "a task that is open and known by its name outside (an attempt, a child, what is inside it) has another name",
    "undo-removed": "what a task did could have to be undone, and the new version does not have the task",
    "undo-changed": "what a task did could have to be undone, and the task has changed",
    "link-new": "a task has ended, and a link from it is new: what it leads to would never be begun",
    "link-gone": "a join has counted a link that is not in the new version",
    "link-changed": "a join has counted a link whose condition is another in the new version",
    "join-ripe": "a join waits that would have fired, died or starved in the new version",
    "order": "a task has begun, and what comes before it in the new version has not ended",
    "half-passed": "a new task comes before what has begun, and before what has not",
    "passed-read": "a new task comes before what has begun, so it will not run, and something ahead reads it",
    "loop": "a task has begun that is in a natural loop in one version and not in the other",
    "gateway": "tasks wait together, and the event gateway that armed them is another in the new version",
    "results": "items of a map have ended, and the new body gives another kind of result",
    "failing": "a scope is failing",
    "leaving": "the child or the attempt of a task was told to stop and has not, and the task is removed, renamed or changed",
    "signal": "a signal was received and not taken, and the new version does not keep it",
    "data": "a key of the data was written, and merges otherwise in the new version",
    "input": "the input does not fit the new inputSchema",
    "output": "the output of a task does not fit its new outputSchema",
    "orchestration": "the new version is orchestrated otherwise",
    "limits": "the limit on open runs comes or goes",
}
"""Every reason for which a run cannot move, in words for all runs."""


class Obstacle(Struct, frozen=True):
    """One reason why a run cannot move as it stands."""

    why: str
    """One of OBSTACLES."""
    key: str
    """The task, link, signal or datum that it is about."""
    message: str


class Move(Struct, frozen=True, omit_defaults=True):
    """What moving a run would do, before it is done."""

    run: str
    before: str
    """The version that it has."""
    after: str
    mapping: dict[str, str] = {}
    obstacles: tuple[Obstacle, ...] = ()
    dropped: tuple[str, ...] = ()
    """Keys of tasks that have ended and are not in the new version."""
    renamed: dict[str, str] = {}
    """Keys of tasks in the state, and what they are called then."""
    passed: tuple[str, ...] = ()
    """Keys of new tasks that come before what has begun: they will not run, and count as skipped."""
    suggestion: dict[str, str] = {}
    """Tasks that look renamed, if something stands in the way that a mapping could remove."""

    @property
    def safe(self) -> bool:
        return not self.obstacles
