"""Rows of SQLite from and to the words of the port."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec

from penstock.ports.store import Append, DefinitionRow, Owner, Row, Snapshot, Stored

RUN = (
    "id, generation, definition, version, status, revision, created_at, updated_at, priority, paused,"
    " open, next_due, deadline, ended_at, created_by, parent, attributes, hash, run, position"
)
"""The columns of `runs` in the order of the fields of `Row`."""
KEYS_AT_ONCE = 500
RUNS_PER_SPAN = 1024
EVENT = "position, run, seq, payload, hash"
DEFINITION = "id, version, number, document, digest, created_at, created_by"
OWNER = "node, token, address, since, renewed_at, pid"


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


def owner_of(columns: tuple[Any, ...]) -> Owner:
    return Owner(*columns)


def attribute_text(value: object) -> str:
    """A value as it is compared: JSON's own equality, so 1 is 1.0, but true is not 1."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in cast("Iterable[object]", value)]
    return value


def attributes_of(text: bytes) -> dict[str, str]:
    """A row's attributes by name, as they are compared."""
    values = msgspec.json.decode(text, type=dict[str, Any])
    return {name: attribute_text(value) for name, value in values.items()}


def refusal(append: Append) -> str | None:
    """What is wrong with an append by itself, before anything stored is looked at."""
    row, count = append.row, len(append.payloads)
    if not count:
        return "it has no events"
    if row.revision != append.expected + count:
        return f"its row is at revision {row.revision}, but {append.expected} + {count} events"
    if row.key == 0 and append.expected:
        return f"a new generation begins at revision 0, not {append.expected}"
    return None


def chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Parts that fit into one statement's parameters."""
    for begin in range(0, len(values), KEYS_AT_ONCE):
        yield values[begin : begin + KEYS_AT_ONCE]


def marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))
