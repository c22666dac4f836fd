"""The start of a run, whichever generation it is at: what a repeat of that start is held against (SPEC 4.4).

A workflow function that goes on as new has another input in each generation, and older generations are cleared away:
each keeps what is to be known of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import encode

from penstock.core.identity import digest_of
from penstock.core.values import decode
from penstock.model.codec import decode_event
from penstock.model.events import Origin, RunStarted
from penstock.model.run import REF_SHIFT

if TYPE_CHECKING:
    from msgspec import Raw

    from penstock.engine.engine import Engine
    from penstock.ports.store import Row


async def origin_of(engine: Engine, row: Row) -> Origin:
    first = decode_event((await engine.store.events(row.key, limit=1))[0].payload)
    assert isinstance(first, RunStarted), first.type
    if first.origin is not None:
        return first.origin
    input = await engine.history.raw(row.key, 1 << REF_SHIFT)
    return Origin(first.at, input_digest(input), first.start_key)


def input_digest(input: bytes | Raw) -> str:
    """Only what is the same has the same: in Python 1 is True."""
    return digest_of(encode(decode(bytes(input)), order="sorted"))
