"""Rows of SQLite from and to the words of the port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.ports.store import DefinitionRow, Row, Snapshot, Stored

RUN = (
    "id, generation, definition, version, status, revision, created_at, updated_at, priority, paused,"
    " open, next_due, deadline, ended_at, created_by, parent, attributes, hash, run, position"
)
"""The columns of `runs` in the order of the fields of `Row`."""
KEYS_AT_ONCE = 500
RUNS_PER_SPAN = 1024
EVENT = "position, run, seq, payload, hash"
DEFINITION = "id, version, number, document, digest, created_at, created_by"


def row_of(columns: tuple[Any, ...]) -> Row:
    row = Row(*columns)
    row.paused = row.paused == 1
    row.open = row.open == 1
    return row


def stored_of(columns: tuple[Any, ...]) -> Stored:
    return Stored(*columns)


def snapshot_of(columns: tuple[Any, ...]) -> Snapshot:
    return Snapshot(*columns)


def definition_of(columns: tuple[Any, ...]) -> DefinitionRow:
    return DefinitionRow(*columns)


def chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Parts that fit into one statement's parameters."""
    for begin in range(0, len(values), KEYS_AT_ONCE):
        yield values[begin : begin + KEYS_AT_ONCE]


def marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))
