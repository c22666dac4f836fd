"""What a simulation plays, as data: what is started when, what people do, what breaks; and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.core.plan import Plan
from penstock.dsl.load import Loaded, load_document
from penstock.engine.verdicts import digest_of
from penstock.model.codec import encode_definition
from penstock.ports.store import DefinitionRow
from penstock.sdk.functions import Functions
from penstock.sdk.workflow import Entry
from penstock.testing.faults import NOON, Fault


class Start(Struct, frozen=True):
    """A run that somebody starts."""

    at: float
    id: str
    definition: str
    input: Any = None
    options: Mapping[str, Any] = {}


class Deed(Struct, frozen=True):
    """What somebody does to a run: `cancel`, `terminate`, `pause`, `resume`, `snapshot`, `signal`, `retry`, `reset`,
    `attributes`, `fire`, `skip`."""

    at: float
    act: str
    run: str
    name: str = ""
    payload: Any = None


class Timetable(Struct, frozen=True):
    """A schedule that somebody makes."""

    at: float
    id: str
    definition: str
    every: float
    """Seconds between two runs."""
    until: float
    """Seconds after `NOON`: no run from then on."""
    overlap: str = "allow"
    input: Any = None


class Scenario(Struct, frozen=True):
    """All that a simulation depends on, beside the code."""

    seed: int
    store: str = "memory"
    nodes: int = 1
    starts: Sequence[Start] = ()
    deeds: Sequence[Deed] = ()
    schedules: Sequence[Timetable] = ()
    faults: Sequence[Fault] = ()
    cache_runs: int = 1000
    tasks_max: int = 1000


class Workload(Struct):
    """What runs: documents of definitions, workflow functions, activities."""

    definitions: Sequence[tuple[DefinitionRow, Plan]] = ()
    workflows: Sequence[Any] = ()
    activities: Sequence[Any] = ()
    entries: Sequence[Entry] = ()
    """Activities as they are, in the place of others of the same name."""
    functions: Callable[[Sequence[Any]], Functions] = Functions
    """What makes programs of the workflow functions."""
    secrets: Callable[[str], str | None] | None = None
    audit: Callable[[Any], Sequence[str]] | None = None
    """Given the Simulation at its end, what is wrong with the world."""


class Result(Struct):
    """What came of a simulation."""

    digest: str
    problems: list[str]
    counts: Counter[str]
    histories: dict[str, list[bytes]]
    """The events of each run, as stored; by id and generation."""


def definition_row(document: Mapping[str, Any]) -> tuple[DefinitionRow, Plan]:
    """A definition as the store keeps it, without verifying it."""
    return row_of(load_document(dict(document)))


def row_of(loaded: Loaded) -> tuple[DefinitionRow, Plan]:
    """As `definition_row`, of one that was read."""
    definition = loaded.definition
    row = DefinitionRow(
        id=definition.id, version=definition.version or "1", number=1, document=encode_definition(definition),
        digest=digest_of(definition), created_at=NOON,
    )  # fmt: skip
    return row, Plan(definition, loaded.vocabulary)
