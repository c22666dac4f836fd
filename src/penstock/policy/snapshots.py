"""When a run's state is worth a snapshot (SPEC 4.7)."""

from __future__ import annotations

EVENTS_MIN = 100


def due(*, events: int, tail_bytes: int, last_bytes: int, path: int, hours: float) -> bool:
    """The tail has enough events and as many bytes as the last snapshot, or it has been waiting for long.

    Snapshots then cost no more than the events themselves, however long the run becomes."""
    if events >= EVENTS_MIN and tail_bytes >= last_bytes:
        return True
    return path / 10 * hours * events / 100 > 1
