"""The PostgreSQL database with many finished runs; see `growth.py`. Copied inside the server, so that it takes seconds."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from growth import template
from measure import say
from penstock.adapters.postgres.rows import RUNS_PER_SPAN
from server import Server

COLUMNS = (
    "SELECT string_agg(column_name, ',' ORDER BY ordinal_position) FROM information_schema.columns"
    " WHERE table_schema = 'penstock' AND table_name = "
)


INDEXES = (
    "SELECT i.indexname, i.indexdef FROM pg_indexes i WHERE i.schemaname = 'penstock' AND i.tablename IN ('runs', 'events')"
    " AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = i.indexname)"
)


def full_database(server: Server, folder: Path, runs: int) -> str:
    """The URL of the database with so many finished runs; made if it is not there yet."""
    url, ready = server.database("full"), folder / "full-postgres.txt"
    if not ready.exists():
        begun = time.perf_counter()
        asyncio.run(template(url))
        _fill(server, runs)
        ready.write_text(str(runs))
        size = int(server.execute("SELECT pg_database_size('full')", "full")) / 2**20
        say(
            f"growth: {runs:,} finished runs, {size:,.0f} MiB, made in {time.perf_counter() - begun:.0f} s"
        )
    return url


def _fill(server: Server, runs: int) -> None:
    row = server.execute(COLUMNS + "'runs'", "full").split(",")
    event = server.execute(COLUMNS + "'events'", "full").split(",")
    # Of run n the events come after those of run n - 1, as if each had run alone.
    run = {
        "run": "t.run + n",
        "id": "md5(n::text || 'run')",
        "position": "t.position + n * k.events",
    }
    log = {"run": "e.run + n", "position": "e.position + n * k.events", "nonce": "NULL"}
    source = f"(SELECT count(*) AS events FROM events) k, generate_series(1, {runs}) n"
    indexes = [line.split("|", 1) for line in server.execute(INDEXES, "full").splitlines()]
    for name, _ in indexes:
        server.execute(f"DROP INDEX penstock.{name}", "full")  # made again at once, not row by row
    server.execute(
        "SET search_path = penstock;"
        " CREATE TEMP TABLE one_run AS SELECT * FROM runs; CREATE TEMP TABLE its_events AS SELECT * FROM events;"
        f" INSERT INTO runs ({','.join(row)}) SELECT {','.join(run.get(c, f't.{c}') for c in row)}"
        f" FROM {source}, one_run t ORDER BY n;"
        f" INSERT INTO events ({','.join(event)}) SELECT {','.join(log.get(c, f'e.{c}') for c in event)}"
        f" FROM (SELECT count(*) AS events FROM its_events) k, generate_series(1, {runs}) n, its_events e"
        " ORDER BY n, e.seq;"
        f" INSERT INTO spans SELECT run / {RUNS_PER_SPAN}, min(created_at), max(created_at) FROM runs GROUP BY 1"
        " ON CONFLICT DO NOTHING",
        "full",
    )
    for _, text in indexes:
        server.execute(f"SET maintenance_work_mem = '256MB'; {text}", "full")
    server.execute("VACUUM ANALYZE", "full")
    server.execute("CHECKPOINT", "full")
