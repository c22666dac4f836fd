"""Clock: the only way to the time, so that tests and simulation can own it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> float:
        """Wall-clock seconds since 1970."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        """Call back in the event loop once `now()` has reached `when`."""
        ...

    async def sleep(self, seconds: float) -> None: ...
