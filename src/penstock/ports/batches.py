"""Batches: one act on many runs, found by a filter, in steps that a crash does not double (SPEC 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from penstock.ports.store import Query, RunKey

ACTS = {
    "pause": (), "resume": (), "cancel": (), "terminate": (), "retry": ("task",), "signal": ("name", "payload"),
    "fire": ("key",), "skip": ("key",), "fail": ("key",), "undo": ("key", "act"), "attributes": ("values",),
    "migrate": ("version", "mapping"),
}  # fmt: skip
"""What can be done to many runs, and what it takes beside who and why."""

RUNNING, STOPPED, DONE = "running", "stopped", "done"


class Refusal(Struct, frozen=True):
    """One run that refused the act."""

    run: str
    code: str
    message: str


class Batch(Struct, omit_defaults=True):
    """A batch as it stands; kept as a record, so that whoever owns the database goes on with it."""

    id: str
    act: str
    query: Query
    arguments: dict[str, Any] = {}
    by: str | None = None
    reason: str = ""
    state: str = RUNNING
    total: int = 0
    """Runs that the filter found when it began."""
    done: int = 0
    refused: dict[str, int] = {}
    """How many refused, by code."""
    examples: list[Refusal] = []
    """The first of them."""
    started_at: float = 0.0
    ended_at: float | None = None
    resumed_at: float | None = None
    """When it was last let go on, having been stopped."""
    resumed_from: int = 0
    """Runs that had had their turn by then."""
    after: RunKey | None = None
    """All runs from this key on have had their turn."""
    page: list[str] = []
    """Runs whose turn it is: after a crash they get it again, under the same command ids."""

    @property
    def seen(self) -> int:
        """Runs that have had their turn."""
        return self.done + sum(self.refused.values())

    def pace(self, now: float) -> tuple[int, float]:
        """So many runs had their turn in so many seconds, since it was begun or last let go on."""
        since = self.started_at if self.resumed_at is None else self.resumed_at
        end = now if self.ended_at is None else self.ended_at
        return self.seen - self.resumed_from, max(0.0, end - since)


class Batches(Protocol):
    async def start(
        self,
        act: str,
        query: Query,
        *,
        arguments: Mapping[str, Any],
        by: str | None,
        reason: str,
        id: str | None,
    ) -> Batch:
        """On disk on return; the act is done to one run after another by whoever owns the database."""
        ...

    async def get(self, id: str) -> Batch: ...

    async def list(self) -> list[Batch]:
        """The newest first."""
        ...

    async def stop(self, id: str) -> Batch:
        """Go no further; what is done is done."""
        ...

    async def resume(self, id: str) -> Batch:
        """Go on with one that was stopped."""
        ...

    async def wait(self, id: str) -> Batch:
        """Until it is done or stopped."""
        ...
