"""The hash chain of a history (SPEC 6.3): `h = SHA-256(previous, header, digest of payload)`.

Over stored bytes, so that a payload can be erased later (its digest is kept) and the chain still checks.
"""

from __future__ import annotations

from hashlib import sha256

from penstock.model.packing import ERASED, digest_of


def link(previous: bytes, prefix: bytes, seq: int, payload: bytes) -> bytes:
    """The hash of one event, given the hash of the event before it (b"" before the first)."""
    digest = digest_of(payload) if payload.startswith(ERASED) else sha256(payload).digest()
    return sha256(b"%b%b%d\n%b" % (previous, prefix, seq, digest)).digest()


def prefix(run_id: str, generation: int) -> bytes:
    """The part of the header that all events of one generation share."""
    return b"%b\n%d\n" % (run_id.encode(), generation)
