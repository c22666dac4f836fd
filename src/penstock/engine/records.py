"""Records into words and back (SPEC 4.2): one that cannot be read costs that one, never the database it lies in.

What is written is read again first, so that a value of a wrong type is refused to whoever gave it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec
from msgspec.json import Decoder

from penstock.errors import Rejected, StoreCorrupt
from penstock.model.schedule import ENCODER
from penstock.ports.store import Record

T = TypeVar("T")

log = logging.getLogger("penstock.engine")


def read(decoder: Decoder[T], record: Record) -> T:
    """StoreCorrupt if it cannot be."""
    try:
        return decoder.decode(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(
            f"the record `{record.id}` ({record.kind}) cannot be read: {error}"
        ) from error


def readable(decoder: Decoder[T], records: Iterable[Record]) -> Iterator[tuple[Record, T]]:
    """Those that can be read; of the others the log tells."""
    for record in records:
        try:
            value = read(decoder, record)
        except StoreCorrupt as error:
            tell(record, error)
            continue
        yield record, value


def tell(record: Record, error: Exception) -> None:
    log.error(
        "record.corrupt", extra={"kind": record.kind, "record": record.id, "error": str(error)}
    )


def written(decoder: Decoder[T], value: T) -> bytes:
    """As it is kept; Rejected if it could not be read back."""
    try:
        raw = ENCODER.encode(value)
        decoder.decode(raw)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise Rejected("wrong-type", f"this cannot be kept: {error}") from None
    return raw
