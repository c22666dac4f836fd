"""Admission: how many runs are open, in all and of one definition; what is over a limit waits or is refused (SPEC 4.10).

A run that waits is stored as started and held; `RunAdmitted` lets it begin. Who waits follows from the runs themselves,
so that a crash loses none: the next owner counts those that were admitted, and goes on with the rest in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from penstock.core.plan import Plan
from penstock.errors import Busy, PenstockError
from penstock.model import commands as c
from penstock.model.run import Run
from penstock.ports.store import Query, Row

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

RUNS_MAX = 1_000_000
"""The default of `max_concurrent_workflows`; a process that is not the owner counts only for another one."""


_Name = tuple[str, int]
"""A run and its generation: when one ends the next may be open already."""


class Admission:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._places: dict[str, tuple[int, str]] = {}
        """Open runs that were admitted, of definitions that have a limit: their generation and definition."""
        self._inside: Counter[str] = Counter()
        """How many of them each definition has."""
        self._line: dict[str, list[tuple[int, float, int, _Name, int]]] = {}
        """Heaps: the higher priority first, then the older; with its version's limit."""
        self._waiting: dict[str, int] = {}
        """Runs in a line, and their generation."""
        self._count = 0
        self.starting = 0
        """Starts of this process that are not on disk yet."""
        self._starting: Counter[str] = Counter()

    def clear(self) -> None:
        self._places.clear()
        self._inside.clear()
        self._line.clear()
        self._waiting.clear()

    # --- refusing --------------------------------------------------------------------------------------------

    @contextmanager
    def start(self, definition: str) -> Generator[None]:
        """While a start of a definition with a limit is on its way to the disk."""
        self._starting[definition] += 1
        try:
            yield
        finally:
            self._starting[definition] -= 1

    def begin(self, definition: str, count: int) -> None:
        """So many starts are on their way to the disk, until `end`."""
        self.starting += count
        self._starting[definition] += count

    def end(self, definition: str, count: int) -> None:
        self.starting -= count
        self._starting[definition] -= count

    async def check(self, plan: Plan, run_id: str | None) -> None:
        """Busy, with the figures, if another run is over a limit; not for a run that exists already."""
        busy = await self._busy(plan)
        if busy is not None and (run_id is None or await self._engine.store.find(run_id) is None):
            raise busy

    async def _busy(self, plan: Plan) -> Busy | None:
        engine, definition = self._engine, plan.definition.id
        most = engine.settings.runs_max
        count = engine.open_runs + self.starting
        if engine.owner is None:
            count = 0 if most >= RUNS_MAX else await engine.store.count(Query(status="OPEN"))
        if count >= most:
            return Busy(
                f"{count} runs are open, and {most} is the limit",
                hint="try again when some have ended, or raise max_concurrent_workflows",
            )
        most = plan.runs_max
        if most is not None and plan.definition.limits.get("over") == "refuse":
            count = self._inside[definition] + self._starting[definition]
            if engine.owner is None:
                count = await engine.store.count(Query(status="OPEN", definition=definition))
            if count >= most:
                return Busy(
                    f"{count} runs of `{definition}` are open, and its limit is {most}",
                    hint="try again when one has ended, or register a version with `limits: {over: wait}`",
                )
        deep = (
            engine.attempts.dispatch.deep(plan.queues) if engine.attempts.dispatch.waiting else None
        )
        if deep is not None:
            count = deep.waiting + deep.parked
            return Busy(
                f"{count} attempts wait in queue `{deep.name}`, and its depth is {deep.options.depth}",
                hint="try again when some are done, or raise the queue's depth, limit or rate",
            )
        return None

    # --- waiting ---------------------------------------------------------------------------------------------

    def want(self, run: Run, plan: Plan) -> None:
        """The run is held: it goes on when there is a place."""
        name = (run.id, run.generation)
        if self._waiting.get(run.id) == run.generation or run.paused:
            return
        assert plan.runs_max is not None
        self._waiting[run.id] = run.generation
        place = self._places.get(run.id)
        if place is not None and place[0] < run.generation and place[1] == run.definition:
            self._take(*name, run.definition)  # the place of the generation before is its own
            self._engine.errands.run(self._admit(name))
            return
        self._count += 1
        line = self._line.setdefault(run.definition, [])
        heappush(line, (run.priority, run.created_at, self._count, name, plan.runs_max))
        self.more(run.definition)

    def joined(self, run: Run) -> None:
        """An open run of a definition with a limit that is not held."""
        if not run.held:
            self._forget_waiting(run.id, run.generation)
            self._take(run.id, run.generation, run.definition)

    def left(self, run: Run) -> None:
        """It has ended, or is held again."""
        self._forget_waiting(run.id, run.generation)
        self._give(run.id, run.generation)
        self.more(run.definition)

    def seen(self, run: Run, plan: Plan) -> None:
        """The run as it is stored, whoever wrote that: the generations before it have ended."""
        if plan.runs_max is not None and not run.closed:
            self.joined(run)
        if run.generation > 1:
            self._forget_waiting(run.id, run.generation - 1)
            self._give(run.id, run.generation - 1)

    def _take(self, run_id: str, generation: int, definition: str) -> None:
        """A run has one place: the newer generation takes over that of the older."""
        place = self._places.get(run_id)
        if place is not None and place[0] > generation:
            return
        self._inside[definition] += 1
        self._places[run_id] = (generation, definition)
        if place is not None:
            self._inside[place[1]] -= 1
            self.more(place[1])

    def _give(self, run_id: str, generation: int) -> None:
        """The place of this generation, or of an older one, is free."""
        place = self._places.get(run_id)
        if place is not None and place[0] <= generation:
            del self._places[run_id]
            self._inside[place[1]] -= 1
            self.more(place[1])

    def _forget_waiting(self, run_id: str, generation: int) -> None:
        if self._waiting and self._waiting.get(run_id, generation + 1) <= generation:
            del self._waiting[run_id]

    def holds(self, row: Row) -> bool:
        """The run, as this generation or an older one, has a place or waits for one."""
        place = self._places.get(row.id)
        if place is not None and place[0] <= row.generation:
            return True
        return self._waiting.get(row.id, row.generation + 1) <= row.generation

    def more(self, definition: str) -> None:
        engine, line = self._engine, self._line.get(definition)
        if not line or engine.owner is None or engine.recovering or engine.stopping:
            return
        while line and self._inside[definition] < line[0][4]:
            name = heappop(line)[3]
            if self._waiting.get(name[0]) == name[1]:
                self._take(*name, definition)
                engine.errands.run(self._admit(name))
        if not line:
            self._line.pop(definition, None)

    def recovered(self) -> None:
        """All open runs are counted."""
        for definition in list(self._line):
            self.more(definition)

    async def _admit(self, name: _Name) -> None:
        engine, run_id = self._engine, name[0]
        admitted = False
        try:
            await engine.command(run_id, c.AdmitRun(at=engine.clock.now()))
            entry = engine.cache.get(run_id)
            run = None if entry is None else entry.flow.run
            # Not in memory any more: if it has ended, that is counted already.
            admitted = run is None or run.generation != name[1] or not (run.held or run.closed)
        except PenstockError:
            pass  # it is gone, or the store is: whoever loads the run again finds that it is held
        finally:
            self._forget_waiting(*name)
            if not admitted:
                self._give(*name)

    def why(self, run: Run, plan: Plan) -> str:
        """What a held run waits for, with the figures."""
        inside, waiting = (
            self._inside[run.definition],
            len(self._line.get(run.definition, ())),
        )
        return (
            f"a place among the runs of `{run.definition}`: {inside} of {plan.runs_max} are open, "
            f"{max(0, waiting - 1)} others wait"
        )
