"""The turn of one run: the run from memory or from the store, and the values that it asks for (STYLE 2).

Nothing is written here: `engine/commits.py` appends what a turn gave, together with that of many other runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.flow import Flow
from penstock.core.owed import every_reference
from penstock.core.plan import Plan
from penstock.core.program import NeedProgram
from penstock.core.turn import Turn, turn
from penstock.core.values import Need
from penstock.engine.history import Entry
from penstock.engine.inbox import Item, Reader
from penstock.errors import NotFound, PenstockError, StoreError
from penstock.model import commands as c
from penstock.model.run import Run
from penstock.ports.store import Row

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

AGAIN_MAX = 20
"""Times that runs which ended while they were read are read again: beyond, a row says what its events do not."""
NEEDS_MAX = 3
"""A turn that asks for values so often gets all that its state refers to."""


Made = tuple[Entry, Turn, list[Any], list[Item]]
"""The run as it is after its turn, what came of it, what was read, and which items it was."""


class Raised:
    """What a reader raised instead of answering."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _reading(read: Reader, flow: Flow) -> Any:
    """A reader that breaks breaks only its own answer."""
    try:
        return read(flow)
    except Exception as error:
        return Raised(error)


class Turns:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cache = engine.cache
        self._unreadable: dict[str, Exception] = {}
        """What was wrong with runs that could not be loaded, until whoever asked is told."""
        self.loading: set[str] = set()
        """Those that are being read, but for those that were told to be looked at again meanwhile."""
        self.count = 0

    async def take(self, run_id: str, items: list[Item]) -> Made | None:
        """Take the turn of one run, with as many of its items as go together; None if nothing came of it."""
        needs = 0
        while True:
            entry = self._cache.get(run_id)
            if entry is None:
                first = items[0]
                if not isinstance(first.command, c.StartRun) or first.plan is None or first.tries:
                    # It was told to go while others of the batch were loaded, or there is none.
                    try:
                        await self.load([run_id])
                    except StoreError as error:
                        self._engine.commits.store_failed([(run_id, items)], error)
                        return None
                    if run_id in self._cache:
                        continue
                    items = self._from_start(run_id, items)
                    if not items:
                        return None
                    first = items[0]
                assert isinstance(first.command, c.StartRun)
                assert first.plan is not None
                entry = self._fresh(run_id, first.command, first.plan)
                items = self._alike(run_id, items)
            flow = entry.flow
            flow.globals = self._engine.globals
            program = flow.program
            if flow.plan.function and (program is None or program.advanced != flow.run.advanced):
                if not flow.run.revision and run_id not in self._engine.programs.unfit:
                    self._engine.programs.host(entry)
                elif not await self._attached(run_id, entry, items):
                    return None
            try:
                outcome = turn(entry.flow, [i.command for i in items if i.command is not None])
                readings = [_reading(i.read, entry.flow) for i in items if i.read is not None]
            except Need as need:
                self._engine.programs.let_go(run_id, entry.flow)
                needs += 1
                refs = (
                    need.refs if needs < NEEDS_MAX else need.refs | every_reference(entry.flow.run)
                )
                if refs <= set(entry.flow.values):
                    error = StoreError(f"run {run_id} needs what it has")
                    self._engine.commits.turn_failed(run_id, items, error)
                    return None
                if not await self._bring(run_id, items, entry, refs):
                    return None
            except Exception as error:
                self._engine.programs.let_go(run_id, entry.flow)
                self._engine.commits.turn_failed(run_id, items, error)
                return None
            else:
                return self._taken(run_id, entry), outcome, readings, items

    def take_together(self, batch: Sequence[tuple[str, list[Item]]]) -> dict[str, Made]:
        """The turns of workflow functions that can be taken right away: in memory, or about to begin, with one command each.
        They are taken one after the other, with nothing between them; the others are `take`'s."""
        made: dict[str, Made] = {}
        if not self._engine.functions:
            return made
        programs = self._engine.programs
        with self._engine.functions.together():
            for run_id, items in batch:
                entry, item = self._cache.get(run_id), items[0]
                plan, command = item.plan if entry is None else entry.flow.plan, item.command
                if plan is None or not plan.function:
                    continue
                if len(items) > 1 or run_id in programs.unfit:
                    continue
                if entry is not None:
                    if type(command) is not c.CompleteTask:
                        continue  # with others code of users' types may be asked, outside of a function
                else:
                    if not isinstance(command, c.StartRun) or item.tries:
                        continue
                    entry = self._fresh(run_id, command, plan)
                flow = entry.flow
                flow.globals = self._engine.globals
                program = flow.program
                if program is None or program.advanced != flow.run.advanced:
                    if flow.run.revision:
                        continue  # it is to be told its history
                    programs.host(entry)
                try:
                    outcome = turn(flow, [command])
                except (Need, NeedProgram, Exception):
                    programs.let_go(run_id, flow)
                    self._cache.pop(
                        run_id, None
                    )  # by itself, on the run as stored: that finds out why
                    continue
                made[run_id] = self._taken(run_id, entry), outcome, [], items
        return made

    def _taken(self, run_id: str, entry: Entry) -> Entry:
        self.count += 1
        program = entry.flow.program
        if program is not None and program is not entry.program:
            entry.program = program
            self._engine.programs.keep(run_id, entry.flow)
        return entry

    async def _attached(self, run_id: str, entry: Entry, items: list[Item]) -> bool:
        """A workflow function is at hand, or will not be: the turn can be taken."""
        try:
            return await self._engine.programs.attach(run_id, entry, items)
        except StoreError as error:
            self._engine.commits.store_failed([(run_id, items)], error)
            return False

    def _from_start(self, run_id: str, items: list[Item]) -> list[Item]:
        """There is no such run. What was asked of it is refused, up to a start of it: that is decided as if it came
        alone, also if it was refused before because another process had taken over."""
        missing = NotFound(f"no run {run_id}", hint="`penstock list` shows the runs")
        error = self._unreadable.pop(run_id, missing)
        for place, item in enumerate(items):
            if error is missing and isinstance(item.command, c.StartRun) and item.plan is not None:
                self._engine.commits.fail(items[:place], error)
                return items[place:]
        self._engine.commits.fail(items, error)
        return []

    def _alike(self, run_id: str, items: list[Item]) -> list[Item]:
        """Of the commands to a run that does not exist yet, those up to a start of another plan."""
        plan = items[0].plan
        for place, item in enumerate(items):
            if item.plan is not None and item.plan is not plan:
                for later in items[place:]:
                    self._engine.post(run_id, later)
                return items[:place]
        return items

    async def _bring(self, run_id: str, items: list[Item], entry: Entry, refs: set[int]) -> bool:
        """Values left the memory: take the run as stored again, with them."""
        held = dict(entry.flow.values)
        armed = entry.armed
        self._cache.pop(run_id, None)
        try:
            if entry.row.key:
                await self.load([run_id])
                again = self._cache[run_id]
            else:
                first = items[0]
                assert isinstance(first.command, c.StartRun)
                assert first.plan is not None
                again = self._fresh(run_id, first.command, first.plan)
            again.armed = armed
            for ref, value in held.items():
                again.flow.values.setdefault(ref, value)
            await self._engine.history.bring(again.flow, again.row.key, refs - set(held))
        except StoreError as error:
            self._cache.pop(run_id, None)  # one that was to begin is not there
            self._engine.commits.store_failed([(run_id, items)], error)
            return False
        except (PenstockError, KeyError) as error:
            self._engine.commits.fail(items, error)
            return False
        return True

    def _fresh(self, run_id: str, command: c.StartRun, plan: Plan) -> Entry:
        row = Row(
            id=run_id, generation=command.generation, definition=command.definition, version=command.version,
            status="CREATED", revision=0, created_at=command.at, updated_at=command.at,
        )  # fmt: skip
        entry = self._cache[run_id] = Entry(Flow(Run(id=run_id), plan), row)
        return entry

    async def load(self, run_ids: Sequence[str]) -> None:
        """Into memory; what cannot be read is refused. What another has written to meanwhile is read again: whoever looks
        at the run because of that must not find it as it was before."""
        engine, left, again = self._engine, run_ids, 0
        while left:
            self.loading = set(left)
            rows = await engine.store.find_newest(left)
            entries = await engine.history.load(rows.values()) if rows else {}
            if again < AGAIN_MAX:
                self.loading.difference_update(_ended_meanwhile(entries))
            again += 1
            left = [run_id for run_id in entries if run_id not in self.loading]
            self._keep(entries)

    def _keep(self, entries: Mapping[str, Entry | Exception]) -> None:
        engine = self._engine
        for run_id, entry in entries.items():
            if run_id not in self.loading:
                continue
            if isinstance(entry, Exception):
                log.error("run.unreadable", extra={"run": run_id, "error": str(entry)})
                engine.commits.fail(engine.inbox.mail.pop(run_id, []), entry)
                self._unreadable[run_id] = entry
                continue
            self._cache[run_id] = entry


def _ended_meanwhile(entries: Mapping[str, Entry | Exception]) -> list[str]:
    """Runs that ended between their row and their events: perhaps to go on in another generation."""
    return [
        run_id
        for run_id, entry in entries.items()
        if isinstance(entry, Entry) and entry.row.open and entry.flow.run.closed
    ]
