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
        self._inside: dict[str, set[_Name]] = {}
        """Open runs that were admitted, by definition, of those that have a limit."""
        self._line: dict[str, list[tuple[int, float, int, _Name, int]]] = {}
        """Heaps: the higher priority first, then the older; with its version's limit."""
        self._waiting: set[_Name] = set()
        self._count = 0
        self.starting = 0
        """Starts of this process that are not on disk yet."""
        self._starting: Counter[str] = Counter()

    def clear(self) -> None:
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
            count = len(self._inside.get(definition, ())) + self._starting[definition]
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
        if name in self._waiting or run.paused:
            return
        assert plan.runs_max is not None
        self._waiting.add(name)
        self._count += 1
        line = self._line.setdefault(run.definition, [])
        heappush(line, (run.priority, run.created_at, self._count, name, plan.runs_max))
        self.more(run.definition)

    def joined(self, run: Run) -> None:
        """An open run of a definition with a limit that is not held."""
        if not run.held:
            self._inside.setdefault(run.definition, set()).add((run.id, run.generation))

    def left(self, run: Run) -> None:
        """It has ended, or is held again."""
        name = (run.id, run.generation)
        self._waiting.discard(name)
        inside = self._inside.get(run.definition)
        if inside is not None:
            inside.discard(name)
        self.more(run.definition)

    def holds(self, row: Row) -> bool:
        name = (row.id, row.generation)
        return name in self._inside.get(row.definition, ()) or name in self._waiting

    def more(self, definition: str) -> None:
        engine, line = self._engine, self._line.get(definition)
        if not line or engine.owner is None or engine.recovering or engine.stopping:
            return
        inside = self._inside.setdefault(definition, set())
        while line and len(inside) < line[0][4]:
            name = heappop(line)[3]
            if name in self._waiting:
                inside.add(name)
                engine.errands.run(self._admit(name, definition))
        if not line:
            del self._line[definition]

    def recovered(self) -> None:
        """All open runs are counted."""
        for definition in list(self._line):
            self.more(definition)

    async def _admit(self, name: _Name, definition: str) -> None:
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
            self._waiting.discard(name)
            if not admitted:
                self._inside.get(definition, set[_Name]()).discard(name)
                self.more(definition)

    def why(self, run: Run, plan: Plan) -> str:
        """What a held run waits for, with the figures."""
        inside, waiting = (
            len(self._inside.get(run.definition, ())),
            len(self._line.get(run.definition, ())),
        )
        return (
            f"a place among the runs of `{run.definition}`: {inside} of {plan.runs_max} are open, "
            f"{max(0, waiting - 1)} others wait"
        )
