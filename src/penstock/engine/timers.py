"""Fires what is due: one heap, one call of the clock for its earliest entry; nothing polls."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from penstock.ports.clock import Clock, Handle


class Timers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._handle: Handle | None = None
        self._armed = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back at that time; an entry is never taken back, so the callback checks what still holds."""
        self._count += 1
        heappush(self._heap, (when, self._count, callback, arguments))
        if self._handle is None or when < self._armed:
            self._arm()

    def close(self) -> None:
        self._closed = True
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap and not self._closed:
            self._armed = self._heap[0][0]
            self._handle = self._clock.call_at(self._armed, self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            _, _, callback, arguments = heappop(self._heap)
            callback(*arguments)
        self._arm()
