"""Snapshots of runs: when their tails have grown long (`policy/snapshots.py`), and where an operator asks (SPEC 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine import points
from penstock.engine.history import Entry
from penstock.model.codec import encode_run
from penstock.policy import snapshots as policy
from penstock.ports.store import Snapshot

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

SECONDS = 600.0
"""A run that has been going for longer since its last snapshot is looked at even if its tail is short."""


class Snapshots:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.named: set[str] = set()
        """Runs whose next append is followed by a snapshot."""

    def after_next(self, run_id: str) -> None:
        """The next append of the run is followed by a snapshot."""
        self.named.add(run_id)

    def consider(self, entry: Entry) -> None:
        run = entry.flow.run
        hours = (run.updated_at - entry.snapshot_at) / 3600
        if policy.due(
            events=entry.tail, tail_bytes=entry.tail_bytes, last_bytes=entry.snapshot_bytes, path=run.tasks_done,
            hours=hours,
        ):  # fmt: skip
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """Keep the state as it is now, right after its append; only the writing may take its time."""
        run = entry.flow.run
        state = encode_run(run)
        entry.tail = entry.tail_bytes = 0
        entry.snapshot_bytes, entry.snapshot_at = len(state), run.updated_at
        self._engine.errands.run(
            self._save(entry.row.key, Snapshot(run.revision, state, entry.hash))
        )

    async def _save(self, key: int, snapshot: Snapshot) -> None:
        if points.reach is not None:
            points.reach("snapshot.before")
        await self._engine.store.save_snapshots([(key, snapshot)])
        if points.reach is not None:
            points.reach("snapshot.after")
