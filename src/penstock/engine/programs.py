"""Workflow functions in memory: kept between their turns, and told their history again when they are not there.

A function is told again lazily: when something happens to its run, not when the run is loaded. A long history is told
beside the commits, so that nobody waits for it; what comes for the run meanwhile waits, in order. A function that does not
fit its history, or is not here, stops no run: facts are recorded, and it is told of them when its code is there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.owed import every_reference
from penstock.core.program import Program, Told
from penstock.engine import points
from penstock.engine.history import Entry, History, Source
from penstock.engine.inbox import Item
from penstock.errors import PenstockError, Rejected, StoreError
from penstock.model.codec import LARGE_FIELDS, decode_event
from penstock.model.events import Event
from penstock.model.intents import Intent
from penstock.model.run import INLINE_BYTES_MAX, REF_SHIFT, Run
from penstock.ports.programs import Functions
from penstock.ports.store import Row

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

INLINE_EVENTS_MAX = 500
"""A longer history is told beside the commits."""
EVENTS_AT_ONCE = 500


class Programs:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: dict[str, tuple[int, Program]] = {}
        """By run: its generation, and the function as far as it was told."""
        self.unfit: dict[str, PenstockError] = {}
        """Runs whose history does not fit the code that is here, and why."""
        self._waiting: dict[str, list[Item]] = {}
        """What came for runs whose function is being told its history."""
        self.replayed = 0

    def __bool__(self) -> bool:
        """Something waits here that is not in the inbox."""
        return bool(self._waiting)

    def clear(self) -> None:
        """Another process may have gone on with them."""
        for _, program in self._kept.values():
            program.close()
        self._kept.clear()
        self.unfit.clear()

    def forget(self, run_id: str) -> None:
        kept = self._kept.pop(run_id, None)
        if kept is not None:
            kept[1].close()
        self.unfit.pop(run_id, None)

    async def attach(self, run_id: str, entry: Entry, items: list[Item]) -> bool:
        """Give the flow its function, if it is to go on here; False if the items wait until that is there."""
        engine, flow = self._engine, entry.flow
        run = flow.run
        waiting = self._waiting.get(run_id)
        if waiting is not None:
            waiting.extend(items)
            return False
        if flow.program is not None and flow.program.advanced == run.advanced:
            return True
        flow.program = flow.host = None
        if run_id in self.unfit or run.closed or not engine.commits.owning():
            return True
        name = run.definition or entry.row.definition
        if engine.functions.plan(name) is None:
            return True
        flow.host = engine.functions
        if not run.advanced or all(item.command is None and not _wants(item) for item in items):
            return True  # a fresh one begins by itself
        kept = self._kept.get(run_id)
        if kept is not None and kept[0] == run.generation and kept[1].advanced == run.advanced:
            flow.program = kept[1]
            return True
        if run.revision > INLINE_EVENTS_MAX:
            self._waiting[run_id] = list(items)
            engine.errands.run(self._tell_beside(run_id, entry))
            return False
        flow.program = await self._replay(run_id, entry)
        if flow.program is None:
            flow.host = None
        return True

    def host(self, entry: Entry) -> None:
        """A run that begins: so does its function, if it is here, by itself."""
        engine, flow = self._engine, entry.flow
        here = engine.functions.plan(entry.row.definition) is not None and engine.commits.owning()
        flow.program, flow.host = None, engine.functions if here else None

    def can(self, run: Run) -> bool:
        """The function of the run can be told here."""
        return run.id not in self.unfit and self._engine.functions.plan(run.definition) is not None

    def why(self, run: Run) -> str:
        """What the run's function waits for."""
        error = self.unfit.get(run.id)
        if error is not None:
            return f"the code does not fit the history: {error.message}"
        if self._engine.owner is None:
            # What the process that executes the runs has, and whether that fits, is known only there.
            return (
                f"waits for a process whose code of `{run.definition}` is there and fits its history; "
                "`penstock replay` says whether it does"
            )
        if self._engine.functions.plan(run.definition) is None:
            return f"no process that is at work has the workflow function `{run.definition}`"
        return f"the code of workflow `{run.definition}` is to go on"

    async def query(self, row: Row, name: str, arguments: tuple[Any, ...]) -> Any:
        """What the function answers, as the run is on disk. Where it does not go on, it is told its history for this once."""
        engine = self._engine
        if not row.open:
            raise Rejected("run-closed", f"run {row.id} has ended {row.status}")
        if engine.functions.plan(row.definition) is None:
            raise Rejected(
                "workflow-unknown", f"the workflow function `{row.definition}` is not here",
                hint="ask where its code is, or give it to `open(workflows=[…])`",
            )  # fmt: skip
        if engine.owner is not None:
            return await engine.read(row.id, Question(self, name, arguments))
        entry = (await engine.history.load([row]))[row.id]
        if isinstance(entry, Exception):
            raise entry
        program = await replay(engine, entry)
        try:
            return program.query(name, arguments)
        finally:
            program.close()

    def keep(self, run_id: str, flow: Flow) -> None:
        """After a turn: the function stays, though the run may have to be loaded again."""
        program = flow.program
        before = self._kept.get(run_id)
        if program is not None and (before is None or before[1] is not program):
            self._keep(run_id, flow.run.generation, program)

    def opened(self, run_id: str, flow: Flow, *, kept: bool) -> None:
        """A generation was to be opened: its function goes on, or, if another was faster, never began."""
        if kept:
            self.keep(run_id, flow)
        elif flow.program is not None:
            flow.program.close()

    def goes_on(self, run_id: str, flow: Flow) -> bool:
        """The function of the flow, if it has one here, was not told anything for others meanwhile."""
        program, kept = flow.program, self._kept.get(run_id)
        return program is None or (kept is not None and kept[1] is program)

    def let_go(self, run_id: str, flow: Flow) -> None:
        """The turn came to nothing: a function that was begun or told for it alone ends with it."""
        program, kept = flow.program, self._kept.get(run_id)
        if program is not None and (kept is None or kept[1] is not program):
            flow.program = None
            program.close()

    def _keep(self, run_id: str, generation: int, program: Program) -> None:
        before = self._kept.get(run_id)
        if before is not None and before[1] is not program:
            # It had gone on in a turn that was not kept, or is of the generation before.
            before[1].close()
        self._kept[run_id] = generation, program

    async def _tell_beside(self, run_id: str, entry: Entry) -> None:
        if points.reach is not None:
            points.reach("program.beside")
        try:
            program = await self._replay(run_id, entry)
            if program is not None:
                self._keep(run_id, entry.flow.run.generation, program)
        except StoreError as error:
            self._engine.commits.store_failed([(run_id, self._waiting.pop(run_id))], error)
        finally:
            for item in self._waiting.pop(run_id, ()):
                self._engine.post(run_id, item)

    async def _replay(self, run_id: str, entry: Entry) -> Program | None:
        """Tell a function all that has happened up to where the run stands."""
        engine = self._engine
        if points.reach is not None:
            points.reach("program.before")
        try:
            program = await replay(engine, entry)
        except StoreError:
            raise
        except PenstockError as error:
            self.unfit[run_id] = error
            log.error("run.unfit", extra={"run": run_id, "error": str(error)})
            return None
        self.replayed += 1
        if points.reach is not None:
            points.reach("program.told")
        return program


class Question:
    """A reader that needs the function itself."""

    wants_program = True

    def __init__(self, programs: Programs, name: str, arguments: tuple[Any, ...]) -> None:
        self._programs, self._name, self._arguments = programs, name, arguments

    def __call__(self, flow: Flow) -> Any:
        if flow.program is None:
            raise Rejected("workflow-unknown", self._programs.why(flow.run))
        return flow.program.query(self._name, self._arguments)


def _wants(item: Item) -> bool:
    """A query reads what the function has in its variables."""
    return bool(getattr(item.read, "wants_program", False))


async def replay(engine: Engine, entry: Entry) -> Program:
    """The function of a run, told its history as stored; Nondeterminism if it wants something else."""
    row = replace(entry.row, revision=entry.flow.run.revision)
    return await tell(engine.functions, row, engine.store)


async def tell(functions: Functions, row: Row, source: Source) -> Program:
    """The function of a run, told its history, wherever that is read from."""
    run = Run(id=row.id, definition=row.definition, generation=row.generation)
    plan = functions.plan(row.definition)
    if plan is None:
        raise Rejected(
            "workflow-unknown", f"the workflow function `{row.definition}` is not here",
            hint="give it to `open(workflows=[…])`, or name the file that has it",
        )  # fmt: skip
    flow = Flow(run, plan)
    flow.program = late = Late(functions, run)
    try:
        await _fold(flow, row, source)
    except BaseException:
        late.close()
        raise
    return late.begun()


class Late:
    """Begins a function when it is first told something: what it knows of its run is what it was then, also if it is told
    all of it again."""

    advanced = 0

    def __init__(self, functions: Functions, run: Run) -> None:
        self._functions, self._run = functions, run
        self._program: Program | None = None

    def begun(self) -> Program:
        if self._program is None:
            self._program = self._functions.begin(self._run)
            assert self._program is not None
        return self._program

    def advance(self, told: Told) -> list[Intent]:
        return self.begun().advance(told)

    def replay(self, told: Told, wanted: list[Intent]) -> None:
        self.begun().replay(told, wanted)

    def query(self, name: str, arguments: Any) -> Any:
        return self.begun().query(name, arguments)

    def close(self) -> None:
        if self._program is not None:
            self._program.close()


async def _fold(flow: Flow, row: Row, source: Source) -> None:
    stored = await source.events(row.key)
    history = History(source, _no_plan)
    for count, each in enumerate(stored[: row.revision], 1):
        event = decode_event(each.payload)
        if _is_large(event):
            # The function is told it whole: held, as it was when it came.
            await history.bring(flow, row.key, {each.seq << REF_SHIFT})
        evolve(flow, event)
        if count % EVENTS_AT_ONCE == 0:
            wanted = every_reference(flow.run)
            flow.values = {ref: value for ref, value in flow.values.items() if ref in wanted}
            flow.effects.clear()
            await asyncio.sleep(0)


def _is_large(event: Event) -> bool:
    """It brings something that the state only refers to; how many bytes it has in the store says nothing of that."""
    for name in LARGE_FIELDS:
        raw = getattr(event, name, None)
        if type(raw) is Raw and len(memoryview(raw)) > INLINE_BYTES_MAX:
            return True
    return False


def _no_plan(definition: str, version: str) -> Any:
    raise NotImplementedError  # values are read, no run is loaded
