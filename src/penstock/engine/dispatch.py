"""Chooses which attempts go next: strict priority, then the earliest deadline, then the order of arrival.

Begins no more than `limit` at a time. What an attempt is and what becomes of it is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Ticket = tuple[str, str, int, bool]
"""(run id, key, attempt, undo)"""
_NEVER = float("inf")


class Dispatch:
    def __init__(self, begin: Callable[[Ticket], bool], *, limit: int) -> None:
        self._begin = begin
        """Begin the attempt; False if it is not wanted (any more)."""
        self.limit = limit
        self.running = 0
        self._heap: list[tuple[int, float, int, Ticket]] = []
        self._count = 0
        self.open = True

    def __len__(self) -> int:
        """Attempts that wait for a place."""
        return len(self._heap)

    def offer(self, ticket: Ticket, priority: int, deadline: float | None) -> None:
        if self.open and not self._heap and self.running < self.limit:
            if self._begin(ticket):
                self.running += 1
            return
        self._count += 1
        heappush(self._heap, (priority, deadline or _NEVER, self._count, ticket))

    def done(self) -> None:
        """An attempt that was begun has ended: its place is free."""
        self.running -= 1
        self.more()

    def more(self) -> None:
        while self.open and self._heap and self.running < self.limit:
            ticket = heappop(self._heap)[3]
            if self._begin(ticket):
                self.running += 1
