"""Clock: the only way to the time, so that tests and simulation can own it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> float:
        """Wall-clock seconds since 1970; the clock may be set, forth or back, at any time."""
        ...

    def ticks(self) -> float:
        """Seconds since some moment, which nobody sets: for how long something takes."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        """Call back in the event loop once `now()` has reached `when`; later if the clock is set forth meanwhile, and
        too early if it is set back: whoever is called looks at `now()` again."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        """Call back after so long, however the clock is set meanwhile."""
        ...

    async def sleep(self, seconds: float) -> None: ...
