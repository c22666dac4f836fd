"""Raw, on PostgreSQL: what a run costs in an empty database and in the full one."""

from __future__ import annotations

import asyncio

from growth import alternate, report, runs_of
from growth_postgres import full_database
from measure import Answer, options
from raw_postgres import Writer
from server import serving

BATCHES_PER_WINDOW = 20
BATCHES_PER_WINDOW_QUICK = 5


async def measure(empty: str, full: str, batches: int) -> tuple[list[float], list[float]]:
    small, large = await Writer.open(empty), await Writer.open(full)
    found = await alternate(lambda: small.window(batches), lambda: large.window(batches))
    await small.close()
    await large.close()
    return found


def main() -> None:
    given = options(__doc__)
    batches = BATCHES_PER_WINDOW_QUICK if given.quick else BATCHES_PER_WINDOW
    with serving(given.folder) as server:
        full = full_database(server, given.folder, runs_of(given))
        found = asyncio.run(measure(server.database("raw"), full, batches))
    answer = Answer()
    report(answer, "growth: run, empty", found[0], reduced=given.quick)
    report(answer, "growth: run, full", found[1], reduced=given.quick)
    answer.emit()


if __name__ == "__main__":
    main()
