"""How much goes into one commit, and who packs what is large (SPEC 4.2, 4.10).

A commit is bounded in bytes as it is in runs: what is more goes into the next one, and what alone is more goes alone. To
compress and to hash a large payload takes longer than all else in a turn: a thread does it, so that the loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from penstock.model.codec import stored_event
from penstock.model.events import Event

COMMIT_BYTES_MAX = 8 * 1024 * 1024
"""About 30 ms of SQLite (measured): what others wait for."""
APART_BYTES = 1024 * 1024
"""So much is packed on the loop at most before it gets its turn."""


class Packing:
    """Packs the events of one batch."""

    __slots__ = ("_here",)

    def __init__(self) -> None:
        self._here = 0

    async def pack(
        self, events: Sequence[Event], plain: list[bytes], size: int
    ) -> tuple[list[bytes], dict[bytes, bytes]]:
        """As they are stored, and what stands beside them."""
        self._here += size
        if self._here < APART_BYTES:
            return _packed(events, plain)
        self._here = 0
        return await asyncio.to_thread(_packed, events, plain)


def _packed(events: Sequence[Event], plain: list[bytes]) -> tuple[list[bytes], dict[bytes, bytes]]:
    blobs: dict[bytes, bytes] = {}
    return [stored_event(e, p, blobs) for e, p in zip(events, plain, strict=True)], blobs


def bytes_of(payloads: Iterable[bytes], blobs: Mapping[bytes, bytes]) -> int:
    return sum(map(len, payloads)) + sum(map(len, blobs.values()))


class Heavy:
    """Runs whose next command is large. A commit takes as many of them as fit, the others go to the end of the line: so
    those in between, and those that come, wait for one such commit and not for all."""

    __slots__ = ("laden", "sizes")

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.laden = 0
        """With how much of it the commit that is being gathered is."""

    def weigh(self, run_id: str, raw: bytes) -> None:
        """A command with this payload is about to be posted."""
        if len(raw) > APART_BYTES:
            self.sizes[run_id] = self.sizes.get(run_id, 0) + len(raw)

    def takes(self, run_id: str) -> bool:
        """Whether the commit that is being gathered takes it too."""
        size = self.sizes.get(run_id, 0)
        if size and self.laden and self.laden + size > COMMIT_BYTES_MAX:
            return False
        self.sizes.pop(run_id, None)
        self.laden += size
        return True
