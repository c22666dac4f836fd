"""The subject `raw`: what SQLite itself can do with our tables, and nothing of ours above it.

Fixed: every ratio that was ever published is against this script, so it is not tuned together with
the engine. Our own DDL (all tables, all indexes), WAL, `synchronous=FULL`, the standard `sqlite3`
with the cache and the size of log that the engine gives itself; 200 runs a commit, random user ids; per run 5 events of 350 bytes in 4 dependent commits (1, 1, 1, 2),
its row inserted by the first and updated by the last. No hashing, no engine, no serialization.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import tempfile
import time
from pathlib import Path

MIGRATIONS = Path(__file__).resolve().parent.parent / "src/penstock/adapters/sqlite/migrations"
CACHE_KIB = 32 * 1024
WAL_PAGES_MAX = 4096
RUNS_PER_COMMIT = 200
COMMITS = (1, 1, 1, 2)
PAYLOAD = bytes(range(250)) + bytes(100)
HASH = bytes(32)
NOON = 1_800_000_000.0

INSERT_RUN = (
    "INSERT INTO runs (run, id, generation, definition, version, status, revision, created_at,"
    " updated_at, priority, paused, open, attributes, hash, position)"
    " VALUES (?, ?, 1, 'sequence', '1', 'RUNNING', 1, ?, ?, 1, 0, 1, ?, ?, ?)"
)
INSERT_EVENT = "INSERT INTO events (position, run, seq, payload, hash) VALUES (?, ?, ?, ?, ?)"
UPDATE_RUN = (
    "UPDATE runs SET status = 'COMPLETED', revision = ?, updated_at = ?, ended_at = ?, open = 0,"
    " hash = ?, position = ? WHERE run = ?"
)


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES_MAX}")
    return connection


def create(path: Path) -> sqlite3.Connection:
    """A new database with the product's own schema, its first to its newest migration."""
    connection = connect(path)
    for migration in sorted(MIGRATIONS.glob("[0-9]*.sql")):
        connection.executescript(migration.read_text())
    return connection


class Writer:
    """Writes finished runs; knows the next position and the next key, as an engine would."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        row = connection.execute(
            "SELECT coalesce((SELECT max(position) FROM events), 0),"
            " coalesce((SELECT max(run) FROM runs), 0)"
        ).fetchone()
        self._position, self._run = row[0] + 1, row[1] + 1

    def batch(self) -> None:
        """One batch: 200 runs from start to end in four dependent commits."""
        execute, executemany = self._connection.execute, self._connection.executemany
        runs = range(self._run, self._run + RUNS_PER_COMMIT)
        self._run += RUNS_PER_COMMIT
        seq = 0
        for commit, events in enumerate(COMMITS):
            first = self._position
            self._position += RUNS_PER_COMMIT * events
            execute("BEGIN IMMEDIATE")
            if commit == 0:
                executemany(
                    INSERT_RUN,
                    [
                        (run, os.urandom(16).hex(), NOON, NOON, b"{}", HASH, first + place)
                        for place, run in enumerate(runs)
                    ],
                )
            executemany(
                INSERT_EVENT,
                [
                    (first + place * events + event, run, seq + event + 1, PAYLOAD, HASH)
                    for place, run in enumerate(runs)
                    for event in range(events)
                ],
            )
            seq += events
            if commit == len(COMMITS) - 1:
                executemany(
                    UPDATE_RUN,
                    [
                        (seq, NOON, NOON, HASH, first + place * events + events - 1, run)
                        for place, run in enumerate(runs)
                    ],
                )
            execute("COMMIT")

    def window(self, batches: int) -> float:
        """Seconds per run over some batches."""
        begun = time.perf_counter()
        for _ in range(batches):
            self.batch()
        return (time.perf_counter() - begun) / (batches * RUNS_PER_COMMIT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the database is made")
    parser.add_argument("--quick", action="store_true", help="measure one second, not three")
    arguments = parser.parse_args()
    seconds = 1.0 if arguments.quick else 3.0
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        writer = Writer(create(Path(folder) / "raw.db"))
        writer.window(5)
        runs, begun = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - begun) < seconds:
            writer.batch()
            runs += RUNS_PER_COMMIT
    row = {"question": "sequence", "figure": runs / elapsed, "unit": "runs/s"}
    print(json.dumps({"rows": [row], "facts": {}, "variant": None}))


if __name__ == "__main__":
    main()
