"""How often Python looks for cycles while an engine is open.

Hundreds of runs are in memory for some tens of milliseconds each. Python's collector, set to look at its young objects
whenever 700 more were made than freed, walks over all of them again and again and finds nothing, as neither runs nor
attempts are cycles: an eighth of the time (decision 7). While an engine is open it looks less often, unless the application
has said how often itself.
"""

from __future__ import annotations

import gc
import sys

YOUNG_MAX = 50_000
DEFAULTS = (700, 2000)
"""What Python sets by itself, by its version."""


class Collector:
    """Counts the open engines of this process."""

    def __init__(self) -> None:
        self._open = 0
        self._before: tuple[int, int, int] | None = None

    def ease(self) -> None:
        self._open += 1
        before = gc.get_threshold()
        if self._before is None and before[0] in DEFAULTS and _generational():
            self._before = before
            gc.set_threshold(YOUNG_MAX, *before[1:])

    def restore(self) -> None:
        self._open -= 1
        if self._open == 0 and self._before is not None:
            if gc.get_threshold()[0] == YOUNG_MAX:
                gc.set_threshold(*self._before)
            self._before = None


def _generational() -> bool:
    """From 3.14 on Python collects bit by bit, and the number means something else."""
    return sys.version_info < (3, 14)


COLLECTOR = Collector()
