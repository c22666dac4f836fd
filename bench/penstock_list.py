"""Penstock: how long a list of 50 out of 1,000,000 runs takes, by status and attribute.

The rows are copies of one that the engine wrote, with ids, statuses and attributes of their own and without events; an engine
that does not execute asks, as a dashboard would. Each ask has a random status, and a random value of an attribute
that few runs share (a customer: 50 runs) or many (a region: 200,000).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from measure import Answer, Options, options, percentile, say
from penstock.adapters.postgres.rows import RUNS_PER_SPAN
from penstock_app import ACTIVITIES, SINGLE
from store import Stores, stores
from workload import order

RUNS = 1_000_000
RUNS_QUICK = 50_000
ASKS = 200
WARM = 20
PAGE = 50
PER_CUSTOMER = 50
REGIONS = ("ap", "eu", "me", "na", "sa")
STATUSES = ("COMPLETED",) * 90 + ("FAILED",) * 4 + ("CANCELLED",) * 3 + ("WAITING",) * 3
"""A hundred, by how often; which run has which is drawn."""
SEED = 7
ROWS_PER_FILL = 10_000


def attributes(number: int, runs: int) -> dict[str, str]:
    """Spread over all: the runs of a customer are not neighbours."""
    return {
        "customer": f"c{number % (runs // PER_CUSTOMER)}",
        "region": REGIONS[number * 7 % 11 % 5],
    }


async def template(url: str) -> None:
    async with penstock.open(url, activities=ACTIVITIES) as engine:
        await engine.register(SINGLE)
        run = await engine.start("single", order(0), id="template", attributes={"customer": "none"})
        await run.result()


def fill_sqlite(path: Path, runs: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA cache_size=-400000")
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute("SELECT * FROM runs WHERE id = 'template'").fetchone())
    insert = f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
    chance, first = random.Random(SEED), row["run"] + 1

    def rows(numbers: range) -> Iterator[tuple[Any, ...]]:
        for number in numbers:
            status = chance.choice(STATUSES)
            held = json.dumps(attributes(number, runs), separators=(",", ":")).encode()
            changed = {
                "run": first + number,
                "id": os.urandom(16).hex(),
                "status": status,
                "attributes": held,
            }
            changed["open"] = int(status == "WAITING")
            changed["ended_at"] = None if status == "WAITING" else row["ended_at"]
            yield tuple({**row, **changed}.values())

    def named(numbers: range) -> Iterator[tuple[str, str, int]]:
        for number in numbers:
            for name, value in attributes(number, runs).items():
                yield name, json.dumps(value), first + number

    for begin in range(0, runs, ROWS_PER_FILL):
        numbers = range(begin, min(begin + ROWS_PER_FILL, runs))
        connection.execute("BEGIN")
        connection.executemany(insert, rows(numbers))
        connection.executemany(
            "INSERT INTO attributes (name, value, run) VALUES (?, ?, ?)", named(numbers)
        )
        connection.execute("COMMIT")
    spans = range(first // RUNS_PER_SPAN, (first + runs) // RUNS_PER_SPAN + 1)
    connection.executemany(
        "INSERT OR IGNORE INTO spans VALUES (?, ?, ?)",
        [(span, row["created_at"], row["created_at"]) for span in spans],
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def fill_postgres(held: Stores, runs: int) -> None:
    server = held.server
    assert server is not None
    columns = server.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'penstock'"
        " AND table_name = 'runs' ORDER BY ordinal_position",
        "list",
    ).split()
    regions = "(ARRAY['" + "','".join(REGIONS) + "'])[g.n * 7 % 11 % 5 + 1]"
    customer = f"'c' || g.n % {runs // PER_CUSTOMER}"
    statuses = "(ARRAY['" + "','".join(STATUSES) + "'])[floor(random() * 100)::int + 1]"
    held_as = f"""convert_to('{{"customer":"' || {customer} || '","region":"' || {regions} || '"}}', 'UTF8')"""
    changed = {
        "run": "t.run + 1 + g.n", "id": "md5(g.n::text || 'run')", "status": "g.status", "attributes": held_as,
        "closed_as": "nullif(g.status, 'WAITING')",
        "ended_at": "CASE WHEN g.status <> 'WAITING' THEN t.ended_at END",
    }  # fmt: skip
    chosen = ", ".join(changed.get(column, f"t.{column}") for column in columns)
    server.execute(
        "SET search_path = penstock; SELECT setseed(0.5);"
        f" INSERT INTO runs ({', '.join(columns)}) SELECT {chosen} FROM (SELECT * FROM runs WHERE id = 'template') t,"
        f" (SELECT n, {statuses} AS status FROM generate_series(0, {runs - 1}) s (n)) g;"
        " INSERT INTO attributes (name, value, run, closed_as)"
        " SELECT a.name, to_json(a.value)::text, r.run, r.closed_as FROM runs r,"
        " json_each_text(convert_from(r.attributes, 'UTF8')::json) a (name, value) WHERE r.id <> 'template'"
        " ORDER BY 1, 2, 3;"
        f" INSERT INTO spans SELECT run / {RUNS_PER_SPAN}, min(created_at), max(created_at) FROM runs GROUP BY 1"
        " ON CONFLICT DO NOTHING; ANALYZE",
        "list",
    )


async def ask(url: str, runs: int) -> tuple[list[float], int]:
    """Seconds of each, and how many rows were given."""
    chance, taken, rows = random.Random(SEED), list[float](), 0
    async with penstock.open(url, execute=False) as engine:
        for number in range(WARM + ASKS):
            status = chance.choice(("COMPLETED", "FAILED", "CANCELLED", "WAITING", "OPEN"))
            drawn = attributes(chance.randrange(runs), runs)
            name = chance.choice(("customer", "region"))
            begun = time.perf_counter()
            found = await engine.list(status=status, attributes={name: drawn[name]}, limit=PAGE)
            if number >= WARM:
                taken.append(time.perf_counter() - begun)
                rows += len(found)
            wrong = [row.id for row in found if status not in (row.status, "OPEN")]
            if wrong or (name == "region" and len(found) != PAGE):
                raise SystemExit(
                    f"{status}, {name} {drawn[name]}: {len(found)} rows, wrong: {wrong}"
                )
    return taken, rows


def measure(given: Options, held: Stores) -> Answer:
    runs, begun = RUNS_QUICK if given.quick else RUNS, time.perf_counter()
    url = held.url("list")
    asyncio.run(template(url))
    if held.server is None:
        fill_sqlite(held.path("list"), runs)
    else:
        fill_postgres(held, runs)
    say(f"list: {runs:,} rows made in {time.perf_counter() - begun:.0f} s")
    taken, rows = asyncio.run(ask(url, runs))
    answer = Answer(facts={"rows of a list": rows / ASKS})
    answer.row("list p50", percentile(taken, 0.5) * 1e3, "ms", reduced=given.quick)
    answer.row("list p99", percentile(taken, 0.99) * 1e3, "ms", reduced=given.quick)
    return answer


def main() -> None:
    given = options(__doc__)
    with stores(given) as held:
        measure(given, held).emit()


if __name__ == "__main__":
    main()
