"""What every store decides in the same way, as pure functions: each adapter asks here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.errors import Rejected, RevisionConflict, StoreError
from penstock.model.packing import digest_of
from penstock.ports.store import Append, DefinitionRow, Record

OPEN = ("CREATED", "RUNNING", "WAITING", "COMPENSATING")
"""The statuses that only open runs have; all others are of closed ones."""


def refusal(append: Append) -> str | None:
    """What is wrong with an append by itself, before anything stored is looked at."""
    row, count = append.row, len(append.payloads)
    if not count:
        return "it has no events"
    if row.revision != append.expected + count:
        return f"its row is at revision {row.revision}, but {append.expected} + {count} events"
    if row.key == 0 and (append.expected or append.previous):
        return "a new generation begins at revision 0, with nothing before it"
    return None


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
    """A row's attributes by name, each as it is compared."""
    values = msgspec.json.decode(text, type=dict[str, Any])
    return {name: attribute_text(value) for name, value in values.items()}


def published(kept: Sequence[DefinitionRow], wanted: DefinitionRow) -> DefinitionRow:
    """The version to keep, or the one of the same content that is kept already.

    `kept` are all versions of the id, oldest first. Without a version only the newest counts as the same: to publish
    older content again is to go back to it, and makes it the newest.
    """
    newest = kept[-1] if kept else None
    taken = {row.version: row for row in kept}
    number = newest.number + 1 if newest else 1
    version = wanted.version
    if not version:
        if newest is not None and newest.digest == wanted.digest:
            return newest
        free = number
        while str(free) in taken:
            free += 1
        version = str(free)
    elif version in taken:
        if taken[version].digest == wanted.digest:
            return taken[version]
        raise Rejected(
            "version-exists",
            f"definition {wanted.id} has a version {version} with other content",
            hint="give it another version, or leave the version out to have it numbered",
            id=wanted.id,
            version=version,
        )
    return msgspec.structs.replace(wanted, version=version, number=number)


def written(there: Record | None, wanted: Record) -> Record | RevisionConflict:
    """The record as it is to be kept, or why it is refused; `there` is what is kept now."""
    revision = 0 if there is None else there.revision
    if revision != wanted.revision:
        return RevisionConflict(
            wanted.id, expected=wanted.revision, actual=revision, what=wanted.kind
        )
    return msgspec.structs.replace(wanted, revision=revision + 1)


def after_prefix(prefix: str) -> str | None:
    """The smallest text above all that begin so; None if there is none."""
    while prefix:
        point = ord(prefix[-1]) + 1
        if 0xD800 <= point <= 0xDFFF:
            point = 0xE000  # surrogates are no characters
        if point <= 0x10FFFF:
            return prefix[:-1] + chr(point)
        prefix = prefix[:-1]
    return None


def check_erasure(
    open: bool | None, before: Mapping[int, bytes], after: Mapping[int, bytes]
) -> None:
    """StoreError unless payloads of a run (`open` is None if there is none) may be replaced by these."""
    if open is not False:
        raise StoreError("only what a closed run keeps can be erased")
    for seq, payload in after.items():
        if seq not in before or digest_of(before[seq]) != digest_of(payload):
            raise StoreError(f"event {seq} would no longer fit into its chain")
