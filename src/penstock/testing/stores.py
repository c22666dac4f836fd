"""The disks of a simulation: what nodes share, and what is left of it when they die."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from penstock.adapters.memory import MemoryStore
from penstock.ports.store import Owner

LEASE_SECONDS = 6.0
_numbers = count()


class Disk(Protocol):
    """What all nodes of a simulation share."""

    def store(self, clock: Callable[[], float]) -> Any:
        """A store on it, for one node."""
        ...

    def crashed(self, store: Any) -> None:
        """Its node is dead."""
        ...

    def token(self) -> int:
        """Of the newest owner."""
        ...

    def close(self) -> None: ...


class LeasedMemory(MemoryStore):
    """As the other stores: whoever has not renewed its lease may be taken over from (SPEC 4.8)."""

    async def claim(self, node: str, address: str) -> Owner | None:
        kept = self._kept
        if (
            kept.held_by is not None
            and kept.owner is not None
            and abs(self._clock() - kept.owner.renewed_at) > LEASE_SECONDS
        ):
            kept.held_by = None
        return await super().claim(node, address)

    def dead(self) -> None:
        if self._kept.held_by is self:
            self._kept.held_by = None

    def token(self) -> int:
        return 0 if self._kept.owner is None else self._kept.owner.token


class MemoryDisk:
    def __init__(self) -> None:
        self._name = f"simulated-{next(_numbers)}"
        self._first = LeasedMemory(self._name)

    def store(self, clock: Callable[[], float]) -> LeasedMemory:
        return LeasedMemory(self._name, clock=clock)

    def crashed(self, store: LeasedMemory) -> None:
        store.dead()

    def token(self) -> int:
        return self._first.token()

    def close(self) -> None:
        MemoryStore.forget(self._name)


def disk_of(kind: str, folder: str | None) -> Disk:
    assert kind == "memory", kind
    return MemoryDisk()
