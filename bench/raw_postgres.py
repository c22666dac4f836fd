"""The subject `raw-postgres`: what PostgreSQL itself can do with our tables, and nothing of ours above it.

Fixed, as `raw.py` is: every ratio that is published is against this script, so it is not tuned together with the engine.
Our own DDL (all tables, all indexes), a server as it comes (`fsync` on, `synchronous_commit` on), asyncpg, one connection;
200 runs a commit, random user ids; per run 5 events of 350 bytes in 4 dependent commits (1, 1, 1, 2), its row inserted by the
first and updated by the last. One statement a commit, which takes its rows by `unnest`. No hashing, no engine, no serialization.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import asyncpg

from measure import Answer, options
from server import serving

MIGRATIONS = Path(__file__).resolve().parent.parent / "src/penstock/adapters/postgres/migrations"
RUNS_PER_COMMIT = 200
COMMITS = (1, 1, 1, 2)
PAYLOAD = bytes(range(250)) + bytes(100)
HASH = bytes(32)
NOON = 1_800_000_000.0
SECONDS = 3.0

INSERT_EVENTS = (
    "INSERT INTO events (position, run, seq, payload, hash)"
    " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::bytea[], $5::bytea[])"
)
INSERT_RUNS = (
    "INSERT INTO runs (run, id, generation, definition, version, status, revision, created_at,"
    " updated_at, priority, paused, attributes, hash, position)"
    " SELECT run, id, 1, 'sequence', '1', 'RUNNING', 1, $8, $8, 1, false, $9, $10, position"
    " FROM unnest($6::bigint[], $7::text[], $1::bigint[]) r (run, id, position)"
)
UPDATE_RUNS = (
    "UPDATE runs r SET status = 'COMPLETED', closed_as = 'COMPLETED', revision = $8, updated_at = $9,"
    " ended_at = $9, hash = $10, position = c.position"
    " FROM unnest($6::bigint[], $7::bigint[]) c (run, position) WHERE r.run = c.run"
)
FIRST = f"WITH started AS ({INSERT_RUNS}) {INSERT_EVENTS}"
LAST = f"WITH ended AS ({UPDATE_RUNS}) {INSERT_EVENTS}"


async def connect(url: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(url, server_settings={"search_path": "penstock"})
    if not await connection.fetchval("SELECT to_regclass('penstock.runs')"):
        async with connection.transaction():
            await connection.execute("CREATE SCHEMA penstock")
            for migration in sorted(MIGRATIONS.glob("[0-9]*.sql")):
                await connection.execute(migration.read_text())
    return connection


class Writer:
    """Writes finished runs; knows the next position and the next key, as an engine would."""

    def __init__(self, connection: asyncpg.Connection, position: int, run: int) -> None:
        self._connection, self._position, self._run = connection, position, run

    @staticmethod
    async def open(url: str) -> Writer:
        connection = await connect(url)
        position, run = await connection.fetchrow(
            "SELECT coalesce((SELECT max(position) FROM events), 0),"
            " coalesce((SELECT max(run) FROM runs), 0)"
        )
        return Writer(connection, position + 1, run + 1)

    async def batch(self) -> None:
        """One batch: 200 runs from start to end in four dependent commits."""
        execute = self._connection.execute
        runs = list(range(self._run, self._run + RUNS_PER_COMMIT))
        self._run += RUNS_PER_COMMIT
        seq = 0
        for commit, events in enumerate(COMMITS):
            first, count = self._position, RUNS_PER_COMMIT * events
            self._position += count
            rows = [
                list(range(first, first + count)),
                [run for run in runs for _ in range(events)],
                [seq + event + 1 for _ in runs for event in range(events)],
                [PAYLOAD] * count,
                [HASH] * count,
            ]
            seq += events
            if commit == 0:
                ids = [os.urandom(16).hex() for _ in runs]
                await execute(FIRST, *rows, runs, ids, NOON, b"{}", HASH)
            elif commit == len(COMMITS) - 1:
                lasts = list(range(first + events - 1, first + count, events))
                await execute(LAST, *rows, runs, lasts, seq, NOON, HASH)
            else:
                await execute(INSERT_EVENTS, *rows)

    async def window(self, batches: int) -> float:
        """Seconds per run over some batches."""
        begun = time.perf_counter()
        for _ in range(batches):
            await self.batch()
        return (time.perf_counter() - begun) / (batches * RUNS_PER_COMMIT)

    async def close(self) -> None:
        await self._connection.close()


async def measure(url: str, seconds: float) -> float:
    writer = await Writer.open(url)
    await writer.window(5)
    runs, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        await writer.batch()
        runs += RUNS_PER_COMMIT
    await writer.close()
    return runs / elapsed


def main() -> None:
    given = options(__doc__)
    with serving(given.folder) as server:
        figure = asyncio.run(measure(server.database("raw"), given.seconds(SECONDS)))
    answer = Answer()
    answer.row("sequence", figure, "runs/s")
    answer.emit()


if __name__ == "__main__":
    main()
