"""Rows of PostgreSQL from and to the words of the port."""

from __future__ import annotations

from typing import Any

from penstock.ports.store import DefinitionRow, Owner, Record, Row, Snapshot, Stored

RUN = (
    "r.id, r.generation, r.definition, r.version, r.status, r.revision, r.created_at, r.updated_at,"
    " r.priority, r.paused, r.closed_as IS NULL, r.next_due, r.deadline, r.ended_at, r.created_by,"
    " r.parent, r.attributes, r.hash, r.run, r.position"
)
"""What to select from `runs r`, in the order of the fields of `Row`."""
EVENT = "position, run, seq, payload, hash"
DEFINITION = "id, version, number, document, digest, created_at, created_by"
OWNER = "node, token, address, since, renewed_at, pid"
RECORD = "kind, id, value, revision, due, expires"
RUNS_PER_SPAN = 1024


def row_of(columns: Any) -> Row:
    return Row(*columns)


def stored_of(columns: Any) -> Stored:
    return Stored(*columns)


def snapshot_of(columns: Any) -> Snapshot:
    return Snapshot(*columns)


def definition_of(columns: Any) -> DefinitionRow:
    return DefinitionRow(*columns)


def owner_of(columns: Any) -> Owner:
    return Owner(*columns)


def record_of(columns: Any) -> Record:
    return Record(*columns)
