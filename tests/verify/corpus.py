"""The corpus: definitions that break a rule of SPEC 3, and near misses that do not.

`bad/RULE/NAME.yaml` begins with a line for each thing that is found there, `# CODE LINE:COLUMN LEVEL`: every error, or the warning
or note that it is there for. `clean/RULE/NAME.yaml` is the same with the smallest change that makes it right. A line `# activities: …`
names the only ones that exist. In `change` two versions stand in one file, with `---` between them; the header says why a run of the
first cannot move to the second (`# WHY KEY`), its input, what has happened to it, and the mapping.
"""

from __future__ import annotations

import pathlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.adapters.memory import MemoryStore
from penstock.adapters.memory_bus import MemoryBus
from penstock.engine.engine import Engine as Core
from penstock.engine.recovery import Ownership
from penstock.engine.runs import LocalRuns
from penstock.engine.settings import Settings
from penstock.model.job import Done
from penstock.testing.acting import Stubs
from penstock.testing.harness import Harness, SkipClock
from penstock.verify.scenario import Step
from penstock.verify.structure import Examined, examine_file
from penstock.verify.verification import Verification, verify

HERE = pathlib.Path(__file__).parent
RULES = {
    "structure": "3.1",
    "behaviour": "3.2",
    "branches": "3.3",
    "termination": "3.4",
    "races": "3.5",
    "dataflow": "3.6",
    "compensation": "3.7",
}
CHANGE = "change"
SILENT = {"branch-dead", "branch-untyped", "loop-unbounded", "too-many-states", "input-unfit", "input-untyped"}  # fmt: skip
"""Codes that no run can show: what is unknown, and types that do not fit."""


@dataclass(frozen=True)
class Wanted:
    code: str
    line: int
    column: int
    level: str


def files(kind: str, *rules: str) -> list[str]:
    """`RULE/NAME.yaml` of each."""
    return sorted(
        str(path.relative_to(HERE / kind))
        for rule in rules or RULES
        for path in (HERE / kind / rule).glob("*.yaml")
    )


def path_of(kind: str, name: str) -> pathlib.Path:
    return HERE / kind / name


def header(path: pathlib.Path) -> list[str]:
    lines = path.read_text("utf-8").splitlines()
    count = next(n for n, line in enumerate(lines) if not line.startswith("#"))
    return [line.removeprefix("# ") for line in lines[:count]]


def wanted(path: pathlib.Path) -> list[Wanted]:
    found: list[Wanted] = []
    for line in header(path):
        if not line.startswith("activities: "):
            code, place, level = line.split()
            row, column = place.split(":")
            found.append(Wanted(code, int(row), int(column), level))
    return found


def examined(path: pathlib.Path) -> tuple[Examined, Verification | None]:
    """What structure says of it, and, if that has nothing against it, all else."""
    known = [line for line in header(path) if line.startswith("activities: ")]
    activities = known[0].split()[1:] if known else None
    found = examine_file(path, activities=activities)
    if found.loaded is None or found.errors:
        return found, None
    return found, verify(found.loaded)


@dataclass(frozen=True)
class Moving:
    """Two versions, and a run of the first that stands somewhere."""

    why: str
    key: str
    input: Any
    steps: tuple[Step, ...]
    mapping: dict[str, str]
    before: str
    after: str


def moving(path: pathlib.Path) -> Moving:
    before, _, after = path.read_text("utf-8").partition("\n---\n")
    first, *rest = header(path)
    why, _, key = first.partition(" ")
    told = dict(line.split(": ", 1) for line in rest)
    return Moving(
        why=why,
        key=key,
        input=msgspec.json.decode(told.get("input", "null")),
        steps=msgspec.json.decode(told.get("steps", "[]"), type=tuple[Step, ...]),
        mapping=dict(pair.split("=", 1) for pair in told.get("map", "").split()),
        before=before + "\n",
        after=after,
    )


class Deaf(Stubs):
    """Activities of any name that go on when they are told to stop, so that a run can be met while it leaves."""

    def cancel(self, run_id: str, key: str, attempt: int) -> None:
        pass

    def end_all(self) -> None:
        for job, report in list(self._open.values()):
            report(job, Done(b"1"))
        self._open.clear()


@asynccontextmanager
async def engine() -> AsyncGenerator[tuple[Harness, Deaf]]:
    """One that has every activity; they end when they are told to."""
    clock, stubs = SkipClock(), Deaf()
    store, settings = MemoryStore(clock=clock.now), Settings(drain_seconds=0)
    core = Core(store, stubs, clock, bus=MemoryBus(clock), settings=settings)
    ownership = Ownership(core)
    runs = LocalRuns(core, ownership)
    await core.open()
    await ownership.open(keep=False)
    try:
        yield Harness(core, runs, clock), stubs
    finally:
        await runs.close()
