"""Rates, and what a miss of a deadline is foreseen from (SPEC 4.10, 5.1). Times come in; nothing here has a clock."""

from __future__ import annotations

FORECAST_WEIGHT = 0.2
"""What the newest measurement counts in a mean."""


class Rate:
    """`per_second` on average and at most `burst` at once: in any `t` seconds no more than `burst + per_second * t`.

    One number is kept: when the next would be due if all came evenly.
    """

    __slots__ = ("_even", "burst", "per_second")

    def __init__(self, per_second: float, burst: int = 1) -> None:
        self.per_second, self.burst = per_second, burst
        self._even = float("-inf")

    def due(self) -> float:
        """From when the next may begin."""
        return self._even - (self.burst - 1) / self.per_second

    def took(self, now: float) -> None:
        """One has begun."""
        self._even = max(self._even, now) + 1.0 / self.per_second

    def like(self, before: Rate | None) -> Rate:
        """Go on from where another rate stood, so that a change gives nobody a second burst."""
        if before is not None:
            self._even = before._even
        return self


def smoothed(mean: float | None, newest: float) -> float:
    """An exponentially weighted mean: what was long ago counts less and less."""
    return newest if mean is None else mean + FORECAST_WEIGHT * (newest - mean)


def remaining(seconds: float, tasks: float, done: int) -> float:
    """How long a run will still take, of which `done` tasks are done, if those before took `seconds` for `tasks`."""
    if tasks <= 0.0:
        return seconds
    return seconds * max(0.0, 1.0 - done / tasks)
