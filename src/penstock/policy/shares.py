"""Fair shares by virtual time, and ageing (SPEC 5.1).

Whoever waits has a virtual time: how much it has had, divided by its weight. The lowest goes next, so that over any
window in which all of them wait each gets its share to within one turn, and nothing is drawn by lot. One that comes
back after having waited for nothing starts where the others are: what it did not use is gone, and went to the others.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

AGED_TURNS = 2
"""Every second turn goes to whoever has waited longest, once that is too long: the rest go by priority as before, so
that a backlog of old work neither starves nor takes all."""


class Shares:
    """Turns among names that wait; each by its weight (1 unless given)."""

    __slots__ = ("_count", "_had", "_heap", "_here", "_now", "weights")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._here: set[str] = set()
        self._had: dict[str, float] = {}
        self._now = 0.0
        self._count = 0
        self.weights: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._here)

    def __contains__(self, name: str) -> bool:
        return name in self._here

    def join(self, name: str) -> None:
        """It waits from now on; it neither keeps a credit for having been away nor escapes what it had before."""
        if name in self._here:
            return
        self._here.add(name)
        self._count += 1
        heappush(self._heap, (max(self._had.get(name, 0.0), self._now), self._count, name))

    def first(self) -> str:
        """Whose turn it is."""
        return self._heap[0][2]

    def took(self, *, more: bool) -> None:
        """The first has had its turn, and waits for `more` or leaves."""
        start, _, name = heappop(self._heap)
        self._now = max(self._now, start)
        had = finish(start, self.weights.get(name, 1.0))
        if more:
            self._count += 1
            heappush(self._heap, (had, self._count, name))
            return
        self._here.discard(name)
        self._had[name] = had
        if len(self._had) > 2 * len(self._here) + 64:
            # Those that are no further than the others are like those that never came.
            self._had = {each: at for each, at in self._had.items() if at > self._now}

    def leave(self) -> None:
        """The first waits no more, without having had a turn."""
        start, _, name = heappop(self._heap)
        self._here.discard(name)
        self._had[name] = start

    def forget(self, name: str) -> None:
        """It waits no more, wherever it stands."""
        if name in self._here:
            self._here.discard(name)
            for at, _, each in self._heap:
                if each == name:
                    self._had[name] = at
            self._heap = [entry for entry in self._heap if entry[2] != name]
            heapify(self._heap)


def finish(start: float, weight: float) -> float:
    """Where a turn leaves its taker: the heavier, the less far."""
    return start + 1.0 / weight


def aged(since: float, now: float, longest_wait: float) -> bool:
    """It has waited for as long as anything should."""
    return now - since >= longest_wait
