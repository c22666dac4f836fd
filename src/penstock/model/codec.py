"""Model to bytes and back; the sole owner of the stored format.

Events and snapshots are JSON, so that they can be read with any tool; old shapes of events go through
`model/upcast.py` first.
"""

from __future__ import annotations

import msgspec

from penstock.errors import StoreCorrupt
from penstock.model.definition import DECODER as DEFINITION_DECODER
from penstock.model.definition import ENCODER as DEFINITION_ENCODER
from penstock.model.definition import Definition
from penstock.model.events import DECODER, ENCODER, Event, RunCompleted
from penstock.model.run import REF_SHIFT, Run

_RUN = msgspec.json.Decoder(Run)
_OUTCOMES_MASK = (1 << REF_SHIFT) - 1


def encode_event(event: Event) -> bytes:
    return ENCODER.encode(event)


def decode_event(payload: bytes) -> Event:
    try:
        return DECODER.decode(payload)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"an event cannot be read: {error}") from error
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"an event is not JSON: {error}") from error


def encode_run(run: Run) -> bytes:
    """A snapshot. Taken between turns: nothing is pending then."""
    assert not run.pending, run.id
    return ENCODER.encode(run)


def decode_run(state: bytes) -> Run:
    return _RUN.decode(state)


def encode_definition(definition: Definition) -> bytes:
    return DEFINITION_ENCODER.encode(definition)


def decode_definition(document: bytes) -> Definition:
    return DEFINITION_DECODER.decode(document)


def value_at(payload: bytes, ref: int) -> bytes:
    """The JSON that a reference means, given the payload of its event."""
    event = decode_event(payload)
    place = ref & _OUTCOMES_MASK
    if place:
        return bytes(event.outcomes[place - 1])
    for name in ("output", "payload", "input"):
        value = getattr(event, name, None)
        if value is not None and not (isinstance(event, RunCompleted) and event.ref is not None):
            return bytes(value)
    raise StoreCorrupt(f"event {ref >> REF_SHIFT} has no output")
