"""Schedules: when runs start by themselves, near or far (SPEC 4.6). `engine/schedule_acts.py` is near."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct

from penstock.model.schedule import Act, Backfill, Calendar, Counts, Timing

Seconds = float | str | timedelta
"""A duration: seconds, a text such as `15m`, or a timedelta."""
Time = datetime | str | float
"""A time: a datetime, its text, or seconds since 1970."""


class ScheduleView(Struct, omit_defaults=True):
    """A schedule as it is shown."""

    id: str
    definition: str
    timing: Timing
    version: str | None = None
    input: Any = None
    priority: str | None = None
    overlap: str = "skip"
    buffer: int = 1
    catch_up: float = 0.0
    paused: bool = False
    note: str = ""
    declared: bool = False
    number: int = 1
    """Counts the versions of the schedule; those before are in `past`."""
    created_at: float = 0.0
    created_by: str | None = None
    next: list[datetime] = []
    """The next nominal times, in the schedule's zone."""
    open: list[str] = []
    """Its runs that are open."""
    recent: list[str] = []
    """Its latest runs, the newest last."""
    buffered: list[str] = []
    """Runs that start when the open one has ended."""
    backfills: list[Backfill] = []
    counts: Counts = Counts()
    error: str = ""
    past: list[dict[str, Any]] = []
    acts: list[Act] = []


class Triggered(Struct):
    """What became of a trigger: the run, begun, or waiting for the end of an open one."""

    run: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Singleton:
    """At most one run of a key is open; a start while one is attaches to it, or is refused."""

    key: str
    attach: bool = True


@dataclass(frozen=True, slots=True)
class Debounce:
    """Starts of one key within `seconds` of each other become one run with the last input, `at_most` seconds after the
    first (ten windows if left out)."""

    key: str
    seconds: Seconds
    at_most: Seconds | None = None


class Schedules(Protocol):
    async def create(
        self,
        id: str,
        definition: str,
        input: Any = None,
        *,
        cron: str | Sequence[str] | None = None,
        every: Seconds | None = None,
        offset: Seconds | None = None,
        anchor: Time | None = None,
        calendar: Calendar
        | Mapping[str, Any]
        | Sequence[Calendar | Mapping[str, Any]]
        | None = None,
        zone: str | None = None,
        exclude: str | Sequence[str | date] | None = None,
        after: Time | None = None,
        until: Time | None = None,
        jitter: Seconds | None = None,
        overlap: str = "skip",
        buffer: int = 1,
        catch_up: Seconds | None = None,
        version: str | None = None,
        priority: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        paused: bool = False,
        by: str | None = None,
        reason: str = "",
    ) -> ScheduleView:
        """A new schedule; the same again is a no-op. Refused where it means nothing or never fires."""
        ...  # fmt: skip

    async def update(
        self, id: str, *, by: str | None = None, reason: str = "", **changes: Any
    ) -> ScheduleView:
        """Change what is given (the words of `create`), keep the rest; the version before stays in its past."""
        ...  # fmt: skip

    async def get(self, id: str, *, next: int = 5) -> ScheduleView: ...

    async def list(
        self, *, next: int = 1, after: str = "", limit: int = 1000
    ) -> list[ScheduleView]: ...

    async def pause(self, id: str, *, by: str | None = None, reason: str = "") -> None: ...

    async def resume(self, id: str, *, by: str | None = None, reason: str = "") -> None:
        """From now on; what fell into the pause is not made up for (`backfill` does)."""
        ...

    async def trigger(
        self, id: str, *, overlap: str | None = None, by: str | None = None, reason: str = ""
    ) -> Triggered: ...

    async def backfill(
        self,
        id: str,
        begin: Time,
        end: Time,
        *,
        overlap: str = "allow",
        by: str | None = None,
        reason: str = "",
    ) -> Backfill:
        """Start the runs of past moments, `begin` and `end` included, that have none; in bounded batches."""
        ...  # fmt: skip

    async def delete(self, id: str, *, by: str | None = None, reason: str = "") -> None: ...
