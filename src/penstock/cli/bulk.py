"""`penstock start --inputs FILE.jsonl`: a run for each line, with progress on stderr."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.humane import left, pace
from penstock.cli.inputs import parse_line
from penstock.cli.output import Problem, say

if TYPE_CHECKING:
    from penstock.ports.runs import Progress
    from penstock.sdk.client import Engine

SAY_SECONDS = 1.0
"""Between two lines of progress."""


def parse_lines(name: str, option: str) -> list[Any]:
    """A JSON value a line; empty lines are passed over. Problem with the line's number for what is none."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(
            "usage", f"{name} cannot be read: {error.strerror}", place=option, hint="a file with one JSON value a line"
        ) from None  # fmt: skip
    except UnicodeDecodeError:
        raise Problem("usage", f"{name} is not UTF-8", place=option) from None
    source = "stdin" if name == "-" else name
    return [
        parse_line(line, source, number)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]


async def start_lines(
    engine: Engine, definition: str, inputs: list[Any], id: str | None, options: dict[str, Any]
) -> list[str]:
    """The ids of the runs. With an id, each has its own after it: the same command again starts what is missing."""
    began = said = time.monotonic()

    def told(progress: Progress) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= SAY_SECONDS or progress.done == progress.total:
            said = now
            how = pace(progress.done, now - began)
            if rest := progress.total - progress.done:
                how += f", {left(progress.done, rest, now - began)} left"
            say(f"started {progress.done:,} of {progress.total:,} ({how})")

    ids = None if id is None else [f"{id}-{number}" for number in range(1, len(inputs) + 1)]
    runs = await engine.start_many(definition, inputs, ids=ids, progress=told, **options)
    return [run.id for run in runs]
