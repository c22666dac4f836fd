"""Schedule: when runs start by themselves, and what is remembered of it (SPEC 4.6).

Data only. Which moments a timing means: `policy/calendars.py`; what is done at one: `policy/overlap.py`; who does it:
`engine/schedules.py`. Stored as JSON in records of the kinds below, so that a field is never taken away and a new one has
a default. Times are seconds since 1970.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

SCHEDULE, DEBOUNCE, SINGLETON = "schedule", "debounce", "singleton"
"""Kinds of records."""

Overlap = Literal["skip", "buffer", "cancel-other", "allow"]
OVERLAPS: tuple[Overlap, ...] = ("skip", "buffer", "cancel-other", "allow")
CATCH_UP_SECONDS = 86_400.0
BUFFER_MAX = 1_000
BACKFILL_MAX = 10_000
"""Runs that one backfill may ask for."""
PAST_KEPT = 20
"""Versions of a schedule, acts upon it, runs it started: of each so many are remembered."""


class Calendar(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """Days by rule (all that is given must hold) and dates by name, each at some times of day."""

    times: tuple[str, ...] = ("00:00",)
    dates: tuple[str, ...] = ()
    weekdays: tuple[str, ...] = ()
    months: tuple[int, ...] = ()
    days: tuple[int, ...] = ()
    """Of the month; -1 is its last."""


class Timing(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """When: the moments of all its parts together, without those on excluded days."""

    cron: tuple[str, ...] = ()
    every: float | None = None
    """Seconds between two moments, counted from `anchor`; elapsed time, whatever the clocks do."""
    anchor: float = 0.0
    calendar: tuple[Calendar, ...] = ()
    zone: str = "UTC"
    exclude: tuple[str, ...] = ()
    """Days of the zone: `2026-12-25`, every year's `12-25`, or `2026-12-24/2027-01-01`."""
    after: float | None = None
    """No moment before."""
    until: float | None = None
    """No moment from then on."""
    jitter: float = 0.0
    """A start may be so many seconds late, drawn from the schedule's id and the nominal time."""


class Plan(Struct, frozen=True, omit_defaults=True):
    """What is started, when, and what happens if the one before is still open."""

    definition: str
    timing: Timing
    input: Raw = Raw(b"null")
    version: str | None = None
    """Of the definition; without one the newest at each start."""
    priority: str | None = None
    attributes: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    overlap: Overlap = "skip"
    buffer: int = 1
    """Starts that may wait for the end of an open run."""
    catch_up: float = CATCH_UP_SECONDS
    """A moment missed by more than that many seconds is not made up for."""


class Act(Struct, frozen=True, omit_defaults=True):
    """Who did what to a schedule, and why."""

    at: float
    act: str
    by: str | None = None
    reason: str = ""


class PastPlan(Struct, frozen=True):
    """A plan that was in force until then."""

    number: int
    until: float
    plan: Plan


class Waiting(Struct, frozen=True, omit_defaults=True):
    """A start that is decided: at once, or once no run is open."""

    nominal: float
    overlap: Overlap | None = None
    """As asked for this one start; without, the plan's."""
    backfill: int | None = None
    by: str | None = None


class Counts(Struct, frozen=True, omit_defaults=True):
    started: int = 0
    skipped: int = 0
    """Because a run was open or the buffer full."""
    missed: int = 0
    """Nobody executed runs at that time, and it was too long ago; counted up to a bound at a time."""
    failed: int = 0
    """Starts that were refused; the last reason is `Schedule.error`."""


class Backfill(Struct, frozen=True, omit_defaults=True):
    """The moments from `begin` up to `end` that are made up for on request, in order."""

    number: int
    begin: float
    end: float
    total: int
    cursor: float
    """Moments up to this one are decided."""
    overlap: Overlap = "allow"
    done: int = 0
    """Moments decided."""
    skipped: int = 0
    by: str | None = None
    reason: str = ""


class Schedule(Struct, frozen=True, omit_defaults=True):
    """A plan, and how far it has come."""

    id: str
    plan: Plan
    cursor: float
    """Moments up to this one are decided."""
    created_at: float
    number: int = 1
    """Counts the versions of the plan."""
    created_by: str | None = None
    declared: bool = False
    """By a definition's `triggers`: registration keeps it up to date."""
    paused: bool = False
    note: str = ""
    """Why it is paused."""
    starting: tuple[Waiting, ...] = ()
    """Decided, perhaps begun already: their ids make a repeat harmless."""
    buffered: tuple[Waiting, ...] = ()
    backfills: tuple[Backfill, ...] = ()
    """Those that are not done."""
    counts: Counts = Counts()
    recent: tuple[float, ...] = ()
    """Nominal times of the latest starts, the newest last."""
    error: str = ""
    past: tuple[PastPlan, ...] = ()
    acts: tuple[Act, ...] = ()


class Start(Struct, frozen=True, omit_defaults=True):
    """A start as it was asked for."""

    id: str
    definition: str
    input: Raw = Raw(b"null")
    version: str | None = None
    priority: str | None = None
    deadline: float | None = None
    delay: float | None = None
    metadata: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    created_by: str | None = None


class Debounced(Struct, frozen=True, omit_defaults=True):
    """Starts of one key that become one run, the last one's."""

    key: str
    window: Start | None = None
    """The newest start; replaced by each that comes in time."""
    first_at: float = 0.0
    due: float = 0.0
    count: int = 0
    firing: tuple[Start, ...] = ()
    """Windows that have ended; not to be changed any more."""


class Held(Struct, frozen=True):
    """A key, and the one run that may be open for it."""

    key: str
    run: str


ENCODER = msgspec.json.Encoder(order="deterministic")
SCHEDULE_DECODER = msgspec.json.Decoder(Schedule)
DEBOUNCE_DECODER = msgspec.json.Decoder(Debounced)
SINGLETON_DECODER = msgspec.json.Decoder(Held)
