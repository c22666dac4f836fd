"""Read models of the application's own that follow the log, near or far: `engine/projections.py` is near (SPEC 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.model.events import Event


class FollowedEvent(Struct, frozen=True):
    """One event of the log, as a projection is given it."""

    position: int
    run_id: str
    generation: int
    definition: str
    seq: int
    event: Event

    @property
    def type(self) -> str:
        return self.event.type

    @property
    def at(self) -> float:
        return self.event.at


class EventBatch(Struct, frozen=True):
    """Events in commit order, to be worked off in one go; given again after a failure or a crash."""

    projection: str
    target: int
    """Which copy of the read model they are for: a rebuild fills the next one, beside the one in use."""
    after: int
    """The position before this batch; 0: the target begins anew, and whatever is in it counts no more."""
    position: int
    """The position once this batch is done; keep it in the same transaction as what the events change, and it is exactly once."""
    events: list[FollowedEvent]


class CourseView(Struct, omit_defaults=True):
    """How far one target is."""

    target: int
    position: int
    lag: int = 0
    """Events of the log that it has not seen."""
    since: int = 1
    """It was given every event from this position on; those before are in part deleted (retention)."""
    missing: int = 0
    """How many positions before `since` held nothing any more."""
    failures: int = 0
    """How often in a row its handler has failed."""
    error: str = ""


class ProjectionView(Struct, omit_defaults=True):
    """A projection as it is shown."""

    name: str
    live: CourseView
    """The target in use."""
    rebuild: CourseView | None = None
    """The next one, while it is being filled."""
    holder: str = ""
    """The node that follows; empty if none does."""
    here: bool = False
    """It is this one."""


class Projections(Protocol):
    async def add(
        self, name: str, handler: Callable[[EventBatch], Any], *, types: Sequence[str] | None, batch: int,
        position: Callable[[int], Any] | None, swap: Callable[[int], Any] | None,
    ) -> None: ...  # fmt: skip

    async def remove(self, name: str, *, forget: bool) -> None: ...

    async def rebuild(self, name: str, *, again: bool) -> int: ...

    async def caught_up(self, name: str) -> None: ...

    async def views(self) -> list[ProjectionView]: ...
