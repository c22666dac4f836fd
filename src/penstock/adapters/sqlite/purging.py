"""Deleting runs: their rows in one go, their events and blobs a few at a time (SPEC 6.3).

SQLite gives freed pages to what is written next, so that with retention the file stays as large as it was; nothing
is moved about to make it smaller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from penstock.adapters.sqlite.appending import DROP_ATTRIBUTE, NONE
from penstock.adapters.sqlite.rows import RUNS_PER_SPAN, chunks, marks
from penstock.adapters.store_rules import attributes_of
from penstock.errors import Fenced
from penstock.ports.store import Purged, RunKey

DOOMED = "SELECT run, attributes FROM runs WHERE run IN (@) AND open=0 AND run<(SELECT max(run) FROM runs)"
EVENTS = (
    "DELETE FROM events WHERE position IN (SELECT position FROM leftovers CROSS JOIN events"
    " INDEXED BY events_of_run ON events.run=leftovers.run"
    " WHERE position<(SELECT max(position) FROM events) LIMIT ?)"
)
BLOBS = (
    "DELETE FROM blobs WHERE rowid IN (SELECT blobs.rowid FROM leftovers CROSS JOIN blobs"
    " ON blobs.run=leftovers.run LIMIT ?)"
)
DONE = (
    "DELETE FROM leftovers WHERE NOT EXISTS (SELECT 1 FROM events WHERE events.run=leftovers.run)"
    " AND NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.run=leftovers.run)"
)
SPANS = f"DELETE FROM spans WHERE span<(SELECT min(run)/{RUNS_PER_SPAN} FROM runs)"
BLOBS_AT_ONCE = 4
"""Each may have 64 MiB."""


def purge(
    db: sqlite3.Connection, keys: Sequence[RunKey], *, token: int | None, limit: int
) -> Purged:
    """Inside a transaction."""
    (newest,) = db.execute("SELECT coalesce((SELECT token FROM owner), 0)").fetchone()
    if token is not None and token < newest:
        raise Fenced(token=token, newest=newest)
    runs = 0
    for part in chunks(keys):
        found = db.execute(DOOMED.replace("@", marks(part)), part).fetchall()
        doomed = [run for run, _ in found]
        db.executemany(
            DROP_ATTRIBUTE,
            [
                (name, value, run)
                for run, text in found
                if text != NONE
                for name, value in attributes_of(text).items()
            ],
        )
        db.executemany("INSERT INTO leftovers (run) VALUES (?)", [(run,) for run in doomed])
        for table in ("snapshots", "runs"):
            db.execute(f"DELETE FROM {table} WHERE run IN ({marks(doomed)})", doomed)
        runs += len(doomed)
    if runs:
        db.execute(SPANS)
    events = db.execute(EVENTS, (limit,)).rowcount
    db.execute(BLOBS, (BLOBS_AT_ONCE,))
    db.execute(DONE)
    (left,) = db.execute("SELECT EXISTS (SELECT 1 FROM leftovers)").fetchone()
    return Purged(runs, events, bool(left))
