"""Which commands a run has accepted lately, by their ids: a repeat within 24 h changes nothing (SPEC 4.4).

All of it is derived from the events and their times, so that every replay remembers and forgets the same.
"""

from __future__ import annotations

from hashlib import sha256

from penstock.errors import Rejected
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX
from penstock.model.run import Run

REMEMBERED_SECONDS = 86_400.0
REMEMBERED_MAX = 10_000
"""Ids that a run remembers at most: beyond, the oldest is forgotten early."""


def digest_of(body: bytes) -> str:
    return sha256(body).hexdigest()[:16]


def signal_digest(name: str, payload: bytes, size: int) -> str:
    """Of a payload that is kept beside its event only the size counts: a replay does not have the rest."""
    told = payload if size <= INLINE_PAYLOAD_BYTES_MAX else b"%d bytes" % size
    return digest_of(name.encode() + b"\0" + told)


def event_name(id: str) -> str:
    """A bus event's id among those of commands, which others chose."""
    return f"event:{id}"


def event_digest(topic: str) -> str:
    """Of a bus event: its id is all that tells it from others."""
    return digest_of(b"event\0" + topic.encode())


def remember(run: Run, id: str, at: float, digest: str) -> None:
    """Note an accepted id, and forget what is too old; the oldest come first."""
    known = run.commands
    known.pop(id, None)
    known[id] = (at, digest)
    while known:
        first = next(iter(known))
        if known[first][0] > at - REMEMBERED_SECONDS and len(known) <= REMEMBERED_MAX:
            return
        del known[first]


def repeated(run: Run, id: str, at: float, digest: str) -> bool:
    """The same was accepted before; Rejected if the id was another command's."""
    known = run.commands.get(id)
    if known is None or known[0] <= at - REMEMBERED_SECONDS:
        return False
    if known[1] != digest:
        raise Rejected(
            "key-reused",
            f"run {run.id} has accepted another command with the id {id!r:.80}",
            hint="give each command an id of its own; repeat one only with the same content",
            run_id=run.id,
        )
    return True
