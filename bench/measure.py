"""What every measuring script shares: its options, its clock, its one line of JSON.

Standard library only, as the peers import this from environments of their own. A script tries each of
its variants (a concurrency, a way to write the same thing) and answers with the best; `run.py` passes
the name of that variant to the later rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Options:
    folder: Path
    """Exists, is empty, and is removed by who started the script."""
    variants: list[str]
    quick: bool
    store: str = "sqlite"

    def seconds(self, usual: float) -> float:
        """How long to measure one variant: longer once the best is known."""
        return usual / 2 if self.quick or len(self.variants) > 1 else usual


@dataclass
class Answer:
    """What one script found; `rows` in the shape of `bench/latest.json`, without the subject."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    variant: str | None = None

    def row(
        self, question: str, figure: float, unit: str, *, reduced: bool = False, **more: Any
    ) -> None:
        """One figure; `reduced` if less was measured than the question asks, as the quick bench does."""
        if reduced:
            more["reduced"] = True
        self.rows.append({"question": question, "figure": figure, "unit": unit, **more})

    def emit(self) -> None:
        line = {"rows": self.rows, "facts": self.facts, "variant": self.variant}
        print(json.dumps(line), flush=True)


def options(
    document: str | None, variants: Sequence[str] = ("only",), *, quick: Sequence[str] = ()
) -> Options:
    """The command line of a measuring script; `quick` names the variants that the quick bench tries."""
    parser = argparse.ArgumentParser(description=(document or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--variant", help="measure this one only: " + ", ".join(variants))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    if given.variant is not None and given.variant not in variants:
        parser.error(f"unknown variant {given.variant}")
    chosen = list(quick) if quick and given.quick else list(variants)
    if given.variant:
        chosen = [given.variant]
    return Options(given.folder, chosen, given.quick, given.store)


def _stop(number: int, _frame: object) -> None:
    """Leave through the `finally` blocks that end child processes; a second one must not cut them short."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit("stopped")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


async def rate(work: Callable[[int], Awaitable[None]], *, clients: int, seconds: float) -> float:
    """Finished calls a second while `clients` call `work(number)` one after the other."""
    number = 0
    begun = time.perf_counter()

    async def client() -> None:
        nonlocal number
        while time.perf_counter() - begun < seconds:
            mine, number = number, number + 1
            await work(mine)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return number / (time.perf_counter() - begun)


async def latencies(
    work: Callable[[int], Awaitable[None]], *, seconds: float, warm: int = 20
) -> list[float]:
    """How long each call took, one at a time."""
    taken: list[float] = []
    for number in range(warm):
        await work(number)
    begun = time.perf_counter()
    number = warm
    while time.perf_counter() - begun < seconds or len(taken) < 100:
        started = time.perf_counter()
        await work(number)
        taken.append(time.perf_counter() - started)
        number += 1
    return taken
