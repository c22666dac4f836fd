"""Forecast: runs that will miss their deadline are told in time, and go first (SPEC 5.1).

How long runs of a definition take is measured, kept in memory, and forgotten with the process. A run whose rest would
take longer than the time it has left gets `DeadlineForeseen`, once: from then on it has high priority.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.engine.inbox import Item
from penstock.errors import PenstockError
from penstock.model import commands as c
from penstock.model.run import COMPLETED, Run
from penstock.policy.limits import remaining, smoothed

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

MEASURED_MIN = 3
"""Fewer ends than this say nothing yet."""
ENDS_ALL = 1000
"""After so many ends of runs in this process only one in eight is measured."""


class _Measured:
    __slots__ = ("count", "seconds", "tasks")

    def __init__(self) -> None:
        self.count = 0
        self.seconds: float | None = None
        self.tasks: float | None = None


class Forecast:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ends = 0
        self._measured: dict[str, _Measured] = {}
        self._armed: dict[str, float] = {}
        """When each run with a deadline is looked at again."""

    def ended(self, run: Run) -> None:
        """A run is closed: learn from it, if it is one of the first or an eighth of the others: this is for every run."""
        self._ends += 1
        if self._ends > ENDS_ALL and self._ends & 7 and run.deadline is None:
            return
        if self._armed:
            self._armed.pop(run.id, None)
        if run.status != COMPLETED or run.started_at is None or run.ended_at is None:
            return
        measured = self._measured.get(run.definition)
        if measured is None:
            measured = self._measured[run.definition] = _Measured()
        measured.count += 1
        measured.seconds = smoothed(measured.seconds, run.ended_at - run.started_at)
        measured.tasks = smoothed(measured.tasks, run.tasks_done)

    def left(self, run: Run) -> float | None:
        """Seconds that the run will still take; None if that cannot be said."""
        measured = self._measured.get(run.definition)
        if measured is None or measured.count < MEASURED_MIN:
            return None
        assert measured.seconds is not None
        assert measured.tasks is not None
        return remaining(measured.seconds, measured.tasks, run.tasks_done)

    def watch(self, run: Run) -> None:
        """The run has moved: see whether it will make it."""
        if run.escalated or run.late or run.closed or run.deadline is None or run.paused:
            return
        left = self.left(run)
        if left is None:
            return
        now = self._engine.clock.now()
        latest = run.deadline - left
        if latest <= now:
            self._armed.pop(run.id, None)
            self._engine.errands.run(self._tell(run, now + left))
        elif latest < self._armed.get(run.id, run.deadline):
            self._armed[run.id] = latest
            self._engine.timers.add(latest, self._look, run.id)

    def _look(self, run_id: str) -> None:
        if self._armed.pop(run_id, None) is None or self._engine.owner is None:
            return
        entry = self._engine.cache.get(run_id)
        if entry is None:
            self._engine.post(run_id, Item(None))  # loading it looks again
        else:
            self.watch(entry.flow.run)

    async def _tell(self, run: Run, expected: float) -> None:
        engine = self._engine
        try:
            await engine.command(run.id, c.ForeseeMiss(at=engine.clock.now(), expected=expected))
        except PenstockError:
            return  # it has ended
        log.warning(
            "deadline.foreseen",
            extra={"run": run.id, "definition": run.definition, "deadline": run.deadline, "expected": expected},
        )  # fmt: skip
        entry = engine.cache.get(run.id)
        if entry is not None:
            engine.attempts.promote(entry)
