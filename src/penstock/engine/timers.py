"""Fires what is due: one heap, one call of the clock for its earliest entry; nothing polls.

What is due by the calendar goes by the wall clock, which may be set; a pause of the engine's own does not.
"""

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
        self._pauses: dict[int, Handle] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap) + len(self._pauses)

    def add(self, when: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back at that time; an entry is never taken back, so the callback checks what still holds."""
        self._count += 1
        heappush(self._heap, (when, self._count, callback, arguments))
        if self._handle is None or when < self._armed:
            self._arm()

    def after(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back after so long, however the wall clock is set meanwhile."""
        if self._closed:
            return
        self._count += 1
        number = self._count

        def over() -> None:
            del self._pauses[number]
            callback(*arguments)

        self._pauses[number] = self._clock.call_later(seconds, over)

    def look(self) -> None:
        """The wall clock was set: what is due by it is called back now, and not after the time that it had left before."""
        if self._handle is not None:
            self._handle.cancel()
            self._fire()

    def close(self) -> None:
        self._closed = True
        self._heap.clear()
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
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
