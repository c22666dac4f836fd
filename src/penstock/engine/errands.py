"""What follows from what is stored and takes a while: children, signals to other runs, hints, snapshots.

If an errand is cut off the state still owes it (`core/owed.py`), so that a crash, or a store that fails for a moment,
costs time and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.flow import Flow
from penstock.core.functions import FUNCTION
from penstock.core.generations import task_key
from penstock.core.values import decode, encode
from penstock.engine import points
from penstock.engine.generations import Generations
from penstock.engine.history import Entry
from penstock.engine.inbox import Item
from penstock.errors import (
    Busy,
    NotFound,
    PenstockError,
    PluginError,
    Rejected,
    RevisionConflict,
    StoreError,
)
from penstock.model import commands as c
from penstock.model.failure import failure_of
from penstock.model.run import COMPLETED, Undo

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

PASSING = (StoreError, Busy, RevisionConflict)
"""Errors that say nothing of the run: the same may be done a little later."""
AGAIN_SECONDS = 0.5


class Errands:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[asyncio.Task[Any], None] = {}
        self._starting: set[str] = set()
        """Children that are being started."""

    def __bool__(self) -> bool:
        """Something is under way."""
        return bool(self._open)

    async def close(self) -> None:
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def run(self, work: Any, run_id: str | None = None) -> None:
        """Work that follows from what is stored; if it is cut off, the state (of that run) still owes it."""
        task = asyncio.get_running_loop().create_task(work)
        self._open[task] = None
        task.add_done_callback(partial(self._done, run_id))

    def _done(self, run_id: str | None, task: asyncio.Task[Any]) -> None:
        self._open.pop(task, None)
        if task.cancelled() or self._engine.stopping:
            return
        error = task.exception()
        if error is not None:
            log.error("errand.failed", exc_info=error)
            if run_id is not None and isinstance(error, PASSING):
                self._engine.timers.after(AGAIN_SECONDS, self._engine.post, run_id, Item(None))

    async def start_child(self, run_id: str, key: str) -> None:
        """The child has the id that its parent's key gives it, so that starting it twice is starting it once."""
        wanted = await self._engine.read(run_id, lambda flow: _child_of(flow, key))
        if wanted is None:
            return
        child, config, run_facts = wanted
        self._starting.add(child)
        try:
            await self._start_child(run_id, key, child, config, run_facts)
        finally:
            self._starting.discard(child)

    async def _start_child(
        self, run_id: str, key: str, child: str, config: dict[str, Any], run_facts: dict[str, Any]
    ) -> None:
        if points.reach is not None:
            points.reach("child.before")
        row = await self._engine.store.find(child)
        if row is None:
            try:
                definition, number = config["definition"], await self._version(config)
                if number == FUNCTION:
                    plan = await self._engine.known.plan(definition)
                else:
                    plan = await self._engine.plan(definition, number)
                command = c.StartRun(
                    at=self._engine.clock.now(), id=child, definition=definition, version=number,
                    input=encode(config["input"]), parent=run_id, parent_key=key, **run_facts,
                )  # fmt: skip
                await self._engine.command(child, command, plan)
                if points.reach is not None:
                    points.reach("child.after")
            except Rejected as error:
                if error.code != "id-taken":
                    await self._child_refused(run_id, key, error)
                    return
                number = ""
            except PASSING:
                raise  # still owed
            except PluginError as error:  # owed to whoever comes with the plugin
                log.error("child.waits", extra={"run": run_id, "task": key, "error": str(error)})
                return
            except PenstockError as error:
                await self._child_refused(run_id, key, error)
                return
        else:
            if row.parent != f"{run_id}\n{key}":
                message = f"the id {child} of the child is taken by a run of its own"
                await self._child_refused(run_id, key, Rejected("id-taken", message))
                return
            number = row.version
            if not row.open:
                await self._tell_of(child)
                return
        record = c.RecordChild(at=self._engine.clock.now(), key=key, run=child, version=number)
        try:
            await self._engine.command(run_id, record)
        except (Rejected, NotFound):
            # The parent was stopped after this looked at it, and so knows of no child that it should stop.
            if not config.get("detached"):
                self._starting.discard(child)
                await self.cancel_child(run_id, key, child)

    async def _version(self, config: dict[str, Any]) -> str:
        """Of the workflow function, if one of that name is here, or of the definition."""
        name, version = config["definition"], config["version"]
        if version in (None, FUNCTION) and self._engine.functions.plan(name) is not None:
            return FUNCTION
        definition = await self._engine.store.definition(name, version)
        known = self._engine.known
        if definition is None and version in (None, FUNCTION) and await known.exists(name):
            return FUNCTION  # it waits for a process that has its code
        if definition is None:
            raise NotFound(
                f"no definition `{name}`" + (f" version {version}" if version else ""),
                hint="register it, or give the workflow function to `open`",
            )
        return definition.version

    async def open_next(self, run_id: str) -> None:
        """A workflow function goes on in another generation."""
        await Generations(self._engine).go_on(run_id)

    async def _child_refused(self, run_id: str, key: str, error: PenstockError) -> None:
        await self._try(
            run_id,
            c.CloseChild(
                at=self._engine.clock.now(), key=key, status="FAILED", failure=failure_of(error)
            ),
        )

    async def cancel_child(self, run_id: str, key: str, child: str) -> None:
        row = await self._engine.store.find(child)
        if child in self._starting:
            return  # whoever starts it finds that the parent does not want it, and cancels it
        if row is None or row.parent != f"{run_id}\n{task_key(key)}":
            # It never began, and does not any more: the parent need not wait for it.
            await self._try(
                run_id,
                c.CloseChild(at=self._engine.clock.now(), key=key, status="CANCELLED", run=child),
            )
            return
        if row.open:
            await self._try(
                child, c.CancelRun(at=self._engine.clock.now(), reason="the parent run stops")
            )
        else:
            await self._tell_of(child)

    async def _tell_of(self, child: str) -> None:
        row = await self._engine.store.find(child)
        if row is None:
            return
        entry = (await self._engine.history.load([row])).get(child)
        if isinstance(entry, Entry):
            await self.tell_parent(entry)

    async def tell_parent(self, entry: Entry) -> None:
        """A closed child hands its result, and what can be undone, to its parent (SPEC 4.5)."""
        if points.reach is not None:
            points.reach("child.telling")
        run = entry.flow.run
        assert run.parent is not None
        assert run.parent_key is not None
        output = run.result
        if output is None and run.result_ref:
            output = encode(await self._engine.history.value(entry.row.key, run.result_ref))
        undo: tuple[Undo, ...] = tuple(run.undo) if run.status == COMPLETED else ()
        command = c.CloseChild(
            at=self._engine.clock.now(), key=run.parent_key, status=run.status, output=output or b"null", failure=run.failure,
            undo=undo, run=run.id,
        )  # fmt: skip
        await self._try(run.parent, command)

    async def deliver(self, run_id: str, id: str, target: str, name: str, payload: bytes) -> None:
        refused = ""
        if points.reach is not None:
            points.reach("deliver.before")
        try:
            await self._engine.command(
                target,
                c.SendSignal(
                    at=self._engine.clock.now(),
                    name=name,
                    payload=payload,
                    by=f"run:{run_id}",
                    id=id,
                ),
            )
        except PASSING:
            raise  # still owed
        except PluginError as error:  # owed until whoever takes it can be read
            log.error("signal.waits", extra={"run": run_id, "error": str(error)})
            return
        except PenstockError as error:
            refused = f"{error.code}: {error}"
        if points.reach is not None:
            points.reach("deliver.after")
        await self._try(
            run_id, c.RecordDelivery(at=self._engine.clock.now(), id=id, refused=refused)
        )

    async def _try(self, run_id: str, command: c.Command) -> None:
        """Give a command that may have become pointless."""
        try:
            await self._engine.command(run_id, command)
        except (Rejected, NotFound):
            return


def _child_of(flow: Flow, key: str) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    """The id of the child that a task waits for, what it is to be started with, and what it inherits."""
    try:
        state = flow.locate(key)[3]
    except KeyError:
        return None
    if state.child is None or state.arguments is None or state.status != "WAITING":
        return None
    run = flow.run
    facts = {
        "depth": run.depth + 1, "parent_generation": run.generation, "created_by": run.created_by,
        "priority": run.priority, "deadline": run.deadline,
    }  # fmt: skip
    config = {**decode(state.arguments), "detached": flow.locate(key)[2].config.get("detached")}
    return state.child, config, facts
