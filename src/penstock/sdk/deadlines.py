"""Time limits for many things at once.

Those with one and the same limit run out in the order in which they were added, so that one timer for each limit is
enough: to add and to remove costs a place in a dict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.ports.clock import Clock, Handle

T = TypeVar("T")


class _Lane(Generic[T]):
    __slots__ = ("due", "handle")

    def __init__(self) -> None:
        self.due: dict[T, float] = {}
        self.handle: Handle | None = None


class Deadlines(Generic[T]):
    """`expired(item, limit)` for whatever has not been removed in time; by then it is."""

    def __init__(self, clock: Clock, expired: Callable[[T, float], None]) -> None:
        self._clock, self._expired = clock, expired
        self._lanes: dict[float, _Lane[T]] = {}

    def add(self, item: T, limit: float) -> None:
        due = self._clock.ticks() + limit
        lane = self._lanes.get(limit)
        if lane is None:
            lane = self._lanes[limit] = _Lane()
        lane.due[item] = due
        if lane.handle is None:
            self._arm(lane, limit, due)

    def remove(self, item: T, limit: float) -> None:
        lane = self._lanes.get(limit)
        if lane is not None and lane.due.pop(item, None) is not None and not lane.due:
            if lane.handle is not None:
                lane.handle.cancel()
            del self._lanes[limit]

    def _arm(self, lane: _Lane[T], limit: float, due: float) -> None:
        left = due - self._clock.ticks()
        lane.handle = self._clock.call_later(left, lambda: self._expire(lane, limit))

    def _expire(self, lane: _Lane[T], limit: float) -> None:
        lane.handle = None
        now = self._clock.ticks()
        over: list[T] = []
        for item, due in lane.due.items():
            if due > now:
                self._arm(lane, limit, due)
                break
            over.append(item)
        for item in over:
            if item in lane.due:  # else removed by what happened to one before it
                self.remove(item, limit)
                self._expired(item, limit)
