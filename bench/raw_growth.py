"""Raw: what a run costs in an empty database and in the full one, by the script that is never changed."""

from __future__ import annotations

import asyncio

import raw
from growth import alternate, full_database, report, runs_of
from measure import Answer, options

BATCHES_PER_WINDOW = 40
BATCHES_PER_WINDOW_QUICK = 10


def main() -> None:
    given = options(__doc__)
    full = full_database(given.folder, runs_of(given))
    batches = BATCHES_PER_WINDOW_QUICK if given.quick else BATCHES_PER_WINDOW
    empty = raw.Writer(raw.create(given.folder / "raw.db"))
    large = raw.Writer(raw.connect(full))

    async def window(writer: raw.Writer) -> float:
        return writer.window(batches)

    found = asyncio.run(alternate(lambda: window(empty), lambda: window(large)))
    answer = Answer()
    report(answer, "growth: run, empty", found[0], reduced=given.quick)
    report(answer, "growth: run, full", found[1], reduced=given.quick)
    answer.emit()


if __name__ == "__main__":
    main()
