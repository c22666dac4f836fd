"""The SQLite database with a million finished runs, and windows that alternate between it and an empty one.

Its runs are copies of one that the engine executed, with ids and keys of their own, written as fast as
SQLite takes them: the format is the product's, only the hash chains are not theirs. Both subjects of the
question `growth` use the same file, one after the other.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import penstock
from measure import Answer, Options, say
from penstock.adapters.sqlite.rows import RUNS_PER_SPAN
from penstock_app import ACTIVITIES, SEQUENCE, url
from workload import check, order

RUNS = 1_000_000
RUNS_QUICK = {"sqlite": 50_000, "postgres": 20_000}
RUNS_PER_FILL = 10_000
WINDOWS = 10


def runs_of(given: Options) -> int:
    """How many runs the full database has."""
    return RUNS_QUICK[given.store] if given.quick else RUNS


def full_database(folder: Path, runs: int) -> Path:
    """The file with so many finished runs; made if it is not there yet."""
    path, ready = folder / "full.db", folder / "full.txt"
    if not ready.exists():
        begun = time.perf_counter()
        asyncio.run(template(url(path)))
        _fill(path, runs)
        ready.write_text(str(runs))
        say(
            f"growth: {runs:,} finished runs, {path.stat().st_size / 2**20:,.0f} MiB, "
            f"made in {time.perf_counter() - begun:.0f} s"
        )
    return path


async def template(url: str) -> None:
    """One run, executed, to make copies of."""
    async with penstock.open(url, activities=ACTIVITIES) as engine:
        await engine.register(SEQUENCE)
        run = await engine.start("sequence", order(0), id="template")
        check(0, await run.result())


def _fill(path: Path, runs: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    # Nothing else has this file open, and if the machine stops now it is made again.
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA cache_size=-400000")
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute("SELECT * FROM runs WHERE id = 'template'").fetchone())
    events = connection.execute("SELECT * FROM events WHERE run = ?", (row["run"],)).fetchall()
    insert_run = _insert("runs", list(row))
    insert_event = _insert("events", ["position", "run", "seq", "payload", "hash"])
    place, key = max(event["position"] for event in events) + 1, row["run"] + 1
    contents = [(event["seq"], event["payload"], event["hash"]) for event in events]
    for first in range(key, key + runs, RUNS_PER_FILL):
        keys = range(first, min(first + RUNS_PER_FILL, key + runs))

        def copies(keys: range = keys, place: int = place) -> Iterator[tuple[Any, ...]]:
            for number, run in enumerate(keys, start=1):
                last = place + number * len(contents) - 1
                yield tuple(
                    {**row, "run": run, "id": os.urandom(16).hex(), "position": last}.values()
                )

        def logged(keys: range = keys, place: int = place) -> Iterator[tuple[Any, ...]]:
            position = place
            for run in keys:
                for content in contents:
                    yield (position, run, *content)
                    position += 1

        connection.execute("BEGIN")
        connection.executemany(insert_run, copies())
        connection.executemany(insert_event, logged())
        connection.execute("COMMIT")
        place += len(keys) * len(contents)
    created = row["created_at"]
    spans = range(key // RUNS_PER_SPAN, (key + runs) // RUNS_PER_SPAN + 1)
    connection.executemany(
        "INSERT OR IGNORE INTO spans VALUES (?, ?, ?)", [(span, created, created) for span in spans]
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def _insert(table: str, columns: list[str]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


async def alternate(
    small: Callable[[], Awaitable[float]], large: Callable[[], Awaitable[float]]
) -> tuple[list[float], list[float]]:
    """Seconds per unit in ten windows each, one of the small and one of the large in turn."""
    await small(), await large()
    found: tuple[list[float], list[float]] = ([], [])
    for window in range(WINDOWS):
        # Who goes first changes too: what slows the machine for a while must not favour one of them.
        for which in (0, 1) if window % 2 == 0 else (1, 0):
            found[which].append(await (small, large)[which]())
    return found


def report(answer: Answer, question: str, windows: list[float], *, reduced: bool) -> None:
    """A row in µs: the median of the windows, with their spread."""
    micros = sorted(window * 1e6 for window in windows)
    median = statistics.median(micros)
    answer.row(question, median, "µs", reduced=reduced, low=micros[0], high=micros[-1])
