"""Queues as they are configured: what `engine.set_queue` keeps and `engine.queues` shows (SPEC 4.10, 5.1)."""

from __future__ import annotations

import msgspec
from msgspec import Struct

DEFAULT = "default"
"""The queue of whatever names none."""
LONGEST_WAIT_SECONDS = 60.0
DEPTH = 1_000_000


class QueueOptions(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One queue's own limits; what is left out is not limited."""

    limit: int | None = None
    """Attempts at one time."""
    rate: float | None = None
    """Attempts begun per second."""
    burst: int = 1
    """So many may begin at once after a quiet time."""
    depth: int = DEPTH
    """Attempts that may wait before starts that would add to them are refused."""
    reserve: int | None = None
    """Places of the node kept for this queue, used or not; one, if there are several queues and nothing is said."""
    reserve_high: int = 0
    """Places of its limit that only attempts of high priority get."""
    longest_wait: float = LONGEST_WAIT_SECONDS
    """Seconds after which whoever waits gets every second place, the oldest first."""
    weight: float = 1.0
    """Its share of the node's places while others wait too."""


class QueueRecord(Struct, frozen=True, omit_defaults=True):
    """The options as kept in the store, with who changed them last and why."""

    options: QueueOptions
    at: float
    by: str | None = None
    reason: str = ""


class QueueView(Struct, omit_defaults=False):
    """A queue as it is shown."""

    name: str
    running: int
    waiting: int
    oldest_wait: float
    """Seconds that the one which waits longest has waited."""
    limit: int | None
    rate: float | None
    burst: int
    depth: int
    reserve: int
    reserve_high: int
    longest_wait: float
    weight: float
    by: str | None = None
    reason: str = ""


DECODER = msgspec.json.Decoder(QueueRecord)
ENCODER = msgspec.json.Encoder()
