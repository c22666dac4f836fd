"""Model to bytes and back; the sole owner of the stored format.

Events and snapshots are JSON, compressed where it pays (`model/packing.py`), so that they can be read with any tool;
old shapes of events go through `model/upcast.py` first. A payload too large to stand in its event is kept beside it:
the event names the digest of its bytes (SPEC 4.10).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.errors import StoreCorrupt
from penstock.model.definition import DECODER as DEFINITION_DECODER
from penstock.model.definition import ENCODER as DEFINITION_ENCODER
from penstock.model.definition import Definition
from penstock.model.erasure import far
from penstock.model.events import DECODER, ENCODER, NULL, Event, RunCompleted
from penstock.model.packing import PACK_FROM_BYTES, digest_of, is_erased, pack, rest_of, unpack
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX
from penstock.model.run import INLINE_BYTES_MAX, REF_SHIFT, Run

_RUN = msgspec.json.Decoder(Run)
_IN_ORDER = msgspec.json.Encoder()
_OUTCOMES_MASK = (1 << REF_SHIFT) - 1
_FAR = b" " * INLINE_BYTES_MAX


LARGE_FIELDS = ("output", "payload", "input")
"""Fields that may be kept beside the event; what expressions gave (`outcomes`) stands in it."""


class Beside(Struct, frozen=True):
    """Where a payload is that does not stand in its event."""

    digest: bytes
    size: int


def encode_event(event: Event, blobs: dict[bytes, bytes] | None = None) -> bytes:
    """The event as it is stored; what is too large for it is added to `blobs`, if given, by digest."""
    return stored_event(event, ENCODER.encode(event), blobs)


def plain_event(event: Event) -> bytes:
    """The event as JSON, all of it; `stored_event` makes of it what is stored, which may take long if it is large."""
    return ENCODER.encode(event)


def stored_event(event: Event, plain: bytes, blobs: dict[bytes, bytes] | None) -> bytes:
    """As `encode_event`, given the event as JSON."""
    if len(plain) < PACK_FROM_BYTES:
        return plain
    if blobs is not None and len(plain) > INLINE_PAYLOAD_BYTES_MAX:
        plain = ENCODER.encode(_set_aside(event, blobs))
    return pack(plain)


def _set_aside(event: Event, blobs: dict[bytes, bytes]) -> Event:
    changes: dict[str, Any] = {}
    beside: dict[str, tuple[str, int]] = {}
    for name in LARGE_FIELDS:
        raw = getattr(event, name, None)
        if isinstance(raw, Raw) and (size := len(memoryview(raw))) > INLINE_PAYLOAD_BYTES_MAX:
            stored = pack(bytes(raw))
            digest = digest_of(stored)
            blobs[digest] = stored
            beside[name] = digest.hex(), size
            changes[name] = NULL
    return replace(event, beside=beside, **changes) if beside else event


def decode_event(payload: bytes) -> Event:
    """An event; in place of what is beside it, or was erased, stands a text that says so."""
    if not payload.startswith(b"{"):
        payload = rest_of(payload) if is_erased(payload) else unpack(payload)
    try:
        event = DECODER.decode(payload)
        if event.erased:
            return far(event)
        return event if not event.beside else _marked(event)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"an event cannot be read: {error}") from error
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"an event is not JSON: {error}") from error


def _marked(event: Event) -> Event:
    # Longer than what a state keeps inline, so that whoever folds it keeps a reference, as it did the first time.
    texts = {
        name: Raw(b'%b"<%b bytes beside the event>"' % (_FAR, f"{size:,}".encode()))
        for name, (_, size) in event.beside.items()
    }
    return replace(event, **texts)


def encode_run(run: Run) -> bytes:
    """A snapshot. Taken between turns: nothing is pending then."""
    assert not run.pending, run.id
    return pack(ENCODER.encode(run))


def decode_run(state: bytes) -> Run:
    return _RUN.decode(unpack(state))


def encode_definition(definition: Definition) -> bytes:
    """Names stay in the order of the document: what expressions gave stands in the events by place, so whoever reads the
    definition must evaluate in the same order as whoever registered it."""
    return _IN_ORDER.encode(definition)


def definition_content(definition: Definition) -> bytes:
    """What it says, in whatever order it says it."""
    return DEFINITION_ENCODER.encode(definition)


def decode_definition(document: bytes) -> Definition:
    return DEFINITION_DECODER.decode(document)


def value_at(payload: bytes, ref: int) -> bytes | Beside:
    """The JSON that a reference means, given the payload of its event; or where it is."""
    event = decode_event(payload)
    place = ref & _OUTCOMES_MASK
    if place:
        return bytes(event.outcomes[place - 1])
    for name in LARGE_FIELDS:
        value = getattr(event, name, None)
        if name in event.beside:
            digest, size = event.beside[name]
            return Beside(bytes.fromhex(digest), size)
        if value is not None and not (isinstance(event, RunCompleted) and event.ref is not None):
            return bytes(value)
    raise StoreCorrupt(f"event {ref >> REF_SHIFT} has no output")
