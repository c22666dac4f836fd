"""Envelope: an event on its way over the bus, after CloudEvents (SPEC 7.5).

What it carries is kept as JSON and decoded for whoever asks, so that no subscriber can change it for another.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

RUN = "workflow_id"
"""The name of a run's id on every wire (SPEC 1)."""
NULL = Raw(b"null")


class Envelope(Struct, frozen=True, omit_defaults=True):
    """One bus event. `id` tells it from all others, however often it comes."""

    id: str
    topic: str
    type: str = ""
    time: float = 0.0
    source: str = ""
    raw: Raw = msgspec.field(name="data", default=NULL)
    metadata: dict[str, Any] = {}

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def run(self) -> str:
        """The run that it is about, for the sake of order; empty if of none."""
        return str(self.metadata.get(RUN, ""))

    def wire(self) -> dict[str, Any]:
        """As it is told to the world."""
        time = datetime.fromtimestamp(self.time, UTC).isoformat().replace("+00:00", "Z")
        return {
            "id": self.id, "type": self.type, "time": time, "source": self.source, "data": self.data,
            "metadata": self.metadata,
        }  # fmt: skip


ENCODER = msgspec.json.Encoder()
BATCH = msgspec.json.Decoder(list[Envelope])
