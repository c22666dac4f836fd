"""Opens another generation of a run: retry, reset, and a start in place of the one before (SPEC 4.4).

The last event of an open generation and all of the next one are one commit. It is appended like the command of a
process that is not the owner: checked by revision, without a token; the owner is told and begins what the new state
owes. Killed before the commit, nothing has happened; killed after it, recovery finds the new generation open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.structs import replace

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.generations import old_key
from penstock.core.identity import repeated
from penstock.core.owed import next_owed
from penstock.core.plan import Plan
from penstock.core.reopening import (
    Walk,
    check_point,
    children_after,
    children_at,
    known_after,
    known_to,
    preview,
    reopen,
    retry_point,
    undoable,
)
from penstock.core.turn import turn
from penstock.core.values import Need
from penstock.core.waits import heard
from penstock.engine import points
from penstock.engine.history import Entry
from penstock.engine.origins import origin_of
from penstock.errors import NotFound, Rejected, RevisionConflict
from penstock.model import commands as c
from penstock.model import events as e
from penstock.model.codec import decode_event
from penstock.model.effects import Answer
from penstock.model.packing import is_erased
from penstock.model.preview import Preview
from penstock.model.run import COMPLETED, REF_SHIFT, Run
from penstock.ports.store import Row, Stored

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

TRIES_MAX = 20
"""Times that a generation is opened anew because the run went on meanwhile."""
EVENTS_AT_ONCE = 500
"""Events folded before others get their turn."""

CONTINUED_AS_NEW = "continue_as_new"
"""The reason of a generation that a workflow function went on in."""


class History:
    """One generation with all its events, as stored and as walked."""

    def __init__(self, row: Row, stored: list[Stored], walk: Walk) -> None:
        self.row, self.stored, self.walk = row, stored, walk
        self.past = walk.past


class Generations:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # --- what can be asked -----------------------------------------------------------------------------------

    async def preview(self, id: str, to: int) -> Preview:
        """What a reset to that event would do; its token confirms it."""
        history = await self._read(id)
        check_point(history.past, to)
        return (await self._preview(history, to))[0]

    async def reset(
        self,
        id: str,
        to: int,
        *,
        token: str,
        by: str | None = None,
        reason: str = "",
        exclude: Sequence[str] = (),
        undo: bool = False,
        command: tuple[str, str] | None = None,
    ) -> int:
        """Go on from event `to` in another generation; its number."""
        for _ in range(TRIES_MAX):
            history = await self._read(id)
            done = await self._done(history.walk.flow.run, command)
            if done is not None:
                return done
            _check_still(history.walk.flow.run)
            check_point(history.past, to)
            seen, later = await self._preview(history, to)
            if token != seen.token:
                raise Rejected(
                    "preview-stale" if token else "preview-missing",
                    f"resetting run {id} to event {to} leaves {len(seen.consequences)} effects behind that have to be"
                    f" confirmed with the token of a preview",
                    hint=f"look at `preview(…, to={to})` and give its token",
                )
            fact = e.RunReset(
                at=self._engine.clock.now(), generation=history.row.generation + 1, of=history.row.generation, to=to,
                by=by, reason=reason, later=later, undo=undoable(history.past, to) if undo else [],
            )  # fmt: skip
            opened = await self._open(history, fact, exclude=exclude, command=command)
            if opened:
                return fact.generation
        raise _moving(id)

    async def retry(
        self,
        id: str,
        task: str | None = None,
        *,
        by: str | None = None,
        reason: str = "",
        command: tuple[str, str] | None = None,
    ) -> int:
        """Try again what a run failed at, or from the named task on; the number of the generation that does."""
        for _ in range(TRIES_MAX):
            history = await self._read(id)
            done = await self._done(history.walk.flow.run, command)
            if done is not None:
                return done
            to, begins = retry_point(history.past, task)
            check_point(history.past, to)
            there = await self._state(history, to)
            later = await self._still_open(children_after(history.past, to, there.run))
            now, limits = self._engine.clock.now(), there.plan.definition.timeouts
            limit = None if limits is None or there.run.due is None else limits.run
            fact = e.RunReset(
                at=self._engine.clock.now(), generation=history.row.generation + 1, of=history.row.generation, to=to,
                cause="retry", task=begins or None, by=by, reason=reason, later=later,
                since=history.past.events[to].at, due=None if limit is None else now + limit,
            )  # fmt: skip
            if await self._open(history, fact, exclude=(), command=command):
                return fact.generation
        raise _moving(id)

    async def start(
        self,
        row: Row,
        command: c.StartRun,
        plan: Plan,
        *,
        replace_open: bool,
        signal: c.SendSignal | None = None,
    ) -> int:
        """A start under an id that is taken: in place of what is there, as its next generation."""
        admission = self._engine.admission
        for _ in range(TRIES_MAX):
            old = await self._loaded(row)
            if signal is not None and heard(old, signal):
                return row.generation  # a repeat: it has been there already
            if row.open and not replace_open:
                raise Rejected(
                    "run-open",
                    f"run {row.id} exists and is still open",
                    hint="wait for its end, choose another id, or start with if_exists='replace'",
                    run_id=row.id,
                )
            _check_parentless(old)
            if not row.open or row.definition != command.definition:
                await admission.check(plan, None)  # an open one has a place already
            now = self._engine.clock.now()
            begun = replace(
                command, generation=row.generation + 1, at=now, known=known_to(old, now),
                later=await self._still_open({**children_at(old), **old.leaving}),
            )  # fmt: skip
            new = Entry(
                Flow(Run(id=row.id), plan),
                _row(row, begun.definition, begun.version, begun.generation),
            )
            new.flow.globals = self._engine.globals
            outcome = turn(new.flow, [begun] if signal is None else [begun, signal])
            for refused in outcome.refused.values():
                raise refused
            last = e.RunTerminated(
                at=begun.at, by=begun.created_by, reason=f"replaced by generation {begun.generation}",
                generation=begun.generation,
            )  # fmt: skip
            admission.begin(begun.definition, 1)
            try:
                if await self._commit(row, new, [], outcome.events, last):
                    return begun.generation
            finally:
                admission.end(begun.definition, 1)
            again = await self._engine.store.find(row.id)
            assert again is not None
            row = again
        raise _moving(row.id)

    async def go_on(self, id: str) -> None:
        """A workflow function wants its next generation: what is to be undone, unread signals, attributes go along."""
        engine = self._engine
        if points.reach is not None:
            points.reach("next.before")
        for _ in range(TRIES_MAX):
            row = await engine.store.find(id)
            if row is None:
                return
            old = await self._loaded(row)
            if not next_owed(old) or old.next_input is None:
                return
            now, generation = engine.clock.now(), row.generation + 1
            # What is counted for the run goes on: its timeout, and by what a repeat of its start is known.
            begun = c.StartRun(
                at=now, id=id, definition=row.definition, version=row.version, input=old.next_input,
                generation=generation, priority=old.priority, deadline=old.deadline, created_by=old.created_by,
                parent=old.parent, parent_key=old.parent_key, parent_generation=old.parent_generation, depth=old.depth,
                metadata=old.metadata, attributes=old.attributes, known=known_to(old, now), later=dict(old.leaving),
                undo=tuple(replace(each, key=_of_generation(row.generation, each.key)) for each in old.undo),
                due=old.due, origin=await origin_of(engine, row),
            )  # fmt: skip
            letters = [
                c.SendSignal(
                    at=now, name=name, id=letter.id, update=letter.update,
                    payload=letter.payload or await engine.history.raw(row.key, letter.ref),
                )
                for name, waiting in old.signals.items()
                for letter in waiting
            ]  # fmt: skip
            plan = await engine.plan(row.definition, row.version)
            new = Entry(
                Flow(Run(id=id), plan), _row(row, begun.definition, begun.version, generation)
            )
            new.flow.globals = engine.globals
            if engine.owner is not None and engine.functions.plan(row.definition) is not None:
                new.flow.host = engine.functions
            begun = replace(
                begun,
                known={
                    k: v for k, v in begun.known.items() if k not in {each.id for each in letters}
                },
            )
            outcome = turn(new.flow, [begun, *letters])
            last = e.RunContinued(at=now, generation=generation, reason=CONTINUED_AS_NEW)
            kept = False
            try:
                kept = await self._commit(row, new, [], outcome.events, last)
            finally:
                engine.programs.opened(id, new.flow, kept=kept)
            if kept:
                for effect in outcome.effects:
                    if isinstance(effect, Answer):  # a letter that went along
                        engine.observers.answer(id, effect)
                return
        raise _moving(id)

    async def _loaded(self, row: Row) -> Run:
        entry = (await self._engine.history.load([row]))[row.id]
        if isinstance(entry, Exception):
            raise entry
        return entry.flow.run

    async def _done(self, run: Run, command: tuple[str, str] | None) -> int | None:
        """The generation that the same command opened before, if it did: what it was answered then."""
        if command is None or not repeated(run, command[0], self._engine.clock.now(), command[1]):
            return None
        at, found = run.commands[command[0]][0], run.generation
        for generation in range(run.generation, 1, -1):
            first = await self._first(run.id, generation)
            if first is None or first.at < at:
                break  # it has been cleared away, or is older than the command
            if isinstance(first, e.RunReset) and first.known.get(command[0], (None,))[0] == at:
                found = generation  # those after it know of the command too
        return found

    async def _first(self, id: str, generation: int) -> e.RunReset | e.RunStarted | None:
        """The first event of a generation that is not a copy."""
        row = await self._engine.store.find(id, generation)
        for each in [] if row is None else await self._engine.store.events(row.key):
            event = None if is_erased(each.payload) else decode_event(each.payload)
            if isinstance(event, e.RunReset | e.RunStarted) and event.generation == generation:
                return event
        return None

    # --- one opening -----------------------------------------------------------------------------------------

    async def _read(self, id: str) -> History:
        engine = self._engine
        row = await engine.store.find(id)
        if row is None:
            raise NotFound(f"no run {id}", hint="`penstock list` shows the runs")
        plan = await engine.plan(row.definition, row.version)
        stored = await engine.store.events(row.key)
        walk = Walk(id, plan)
        if any(is_erased(each.payload) for each in stored):
            raise Rejected(
                "run-erased", f"payloads of run {id} were erased; it cannot go on from there"
            )
        for count, each in enumerate(stored, 1):
            event = decode_event(each.payload)
            await engine.folded(row.definition, partial(walk.step, event))
            if isinstance(event, e.SignalReceived) and event.beside:
                # It may have to be given again, whole.
                raw = await engine.history.raw(row.key, each.seq << REF_SHIFT)
                walk.past.events[-1] = replace(event, payload=Raw(raw), beside={})
            if count % EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        # The events were read after the row: the run may have ended in between.
        row.revision, row.open = len(stored), not walk.flow.run.closed
        return History(row, stored, walk)

    async def _preview(self, history: History, to: int) -> tuple[Preview, dict[str, str]]:
        there = await self._state(history, to)
        later = await self._still_open(children_after(history.past, to, there.run))
        return preview(history.past, to, sorted(later.values())), later

    async def _still_open(self, children: dict[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, child in children.items():
            row = await self._engine.store.find(child)
            if row is None or row.open:  # one that is not there yet may be on its way
                found[key] = child
        return found

    async def _state(self, history: History, to: int) -> Flow:
        flow = Flow(Run(id=history.row.id), history.walk.flow.plan)
        for count, event in enumerate(history.past.events[:to], 1):
            evolve(flow, event)
            if count % EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        flow.effects = []
        return flow

    async def _open(
        self,
        history: History,
        fact: e.RunReset,
        *,
        exclude: Sequence[str],
        command: tuple[str, str] | None,
    ) -> bool:
        """One try; False if the run went on meanwhile."""
        engine, past = self._engine, history.past
        held: dict[int, object] = {}
        renewed: list[str] | None = None
        known = known_after(past, fact)
        if command is not None:
            known[command[0]] = (fact.at, command[1])
        while True:
            flow = await self._state(history, fact.to)
            flow.globals = engine.globals
            flow.values.update(held)
            if renewed is None:
                renewed = await self._useless(children_at(flow.run))
            first = replace(fact, renewed=renewed, known=known, outcomes=[], faults={})
            try:
                events = reopen(flow, past, first, exclude)
                break
            except Need as need:
                # The copies have the numbers that they had, so what they refer to is found in the old generation.
                await engine.history.bring(flow, history.row.key, need.refs)
                held = dict(flow.values)
        old = history.row
        new = Entry(flow, _row(old, old.definition, old.version, fact.generation))
        last = e.RunContinued(
            at=fact.at, generation=fact.generation, by=fact.by, reason=fact.reason
        )
        copies = [each.payload for each in history.stored[: fact.to]]
        beside = {
            bytes.fromhex(digest)
            for each, event in zip(history.stored[: fact.to], past.events, strict=False)
            for digest, _ in (
                decode_event(each.payload) if isinstance(event, e.SignalReceived) else event
            ).beside.values()
        }
        blobs = await engine.store.blobs(old.key, sorted(beside)) if beside else {}
        return await self._commit(old, new, copies, events, last, blobs)

    async def _useless(self, children: dict[str, str]) -> list[str]:
        """Tasks whose child will not give them a result: it has ended otherwise, or is being stopped."""
        found: list[str] = []
        for key, child in children.items():
            row = await self._engine.store.find(child)
            if row is None or (not row.open and row.status == COMPLETED):
                continue
            if not row.open or await self._engine.read(
                child, lambda flow: flow.run.stopping is not None
            ):
                found.append(key)
        return found

    async def _commit(
        self,
        old: Row,
        new: Entry,
        copies: list[bytes],
        events: list[e.Event],
        last: e.Event,
        blobs: Mapping[bytes, bytes] | None = None,
    ) -> bool:
        """The end of the old generation, if it is open, and the beginning of the new one, together."""
        engine = self._engine
        was_open, revision = old.open, old.revision
        append = engine.commits.append_of(new, events)
        append.token = None
        append.payloads = [*copies, *append.payloads]
        append.blobs = {**(blobs or {}), **append.blobs}
        if was_open:
            loaded = (await engine.history.load([old]))[old.id]
            if isinstance(loaded, Exception):
                raise loaded
            if loaded.row.revision != revision:
                return False  # the store has moved on
            evolve(loaded.flow, last, replaying=False)
            append.also = engine.commits.append_of(loaded, [last])
            append.also.token = None
        if points.reach is not None:
            points.reach("generation.before")
        outcome = (await engine.store.append([append]))[0]
        if isinstance(outcome, RevisionConflict):
            return False
        if isinstance(outcome, Exception):
            raise outcome
        if points.reach is not None:
            points.reach("generation.after")
        if engine.owner is not None:
            engine.open_runs += 0 if was_open else 1
            engine.refresh(old.id)
        else:
            await engine.tell_owner([old.id])
        return True


def _row(old: Row, definition: str, version: str, generation: int) -> Row:
    return Row(
        id=old.id, generation=generation, definition=definition, version=version, status="CREATED", revision=0,
        created_at=old.created_at, updated_at=old.updated_at,
    )  # fmt: skip


def _of_generation(generation: int, key: str) -> str:
    """Named by the generation that did it, however many follow."""
    return key if key.startswith("~") else old_key(generation, key)


def _check_parentless(run: Run) -> None:
    """A run that another one waits for is not replaced by one that is nobody's child."""
    if run.parent is not None and not run.closed:
        raise Rejected(
            "run-has-parent",
            f"run {run.id} is the child of run {run.parent}, which waits for it",
            hint="cancel or terminate it, or reset it, which keeps its parent; or choose another id",
            run_id=run.id,
        )


def _check_still(run: Run) -> None:
    """A run that is being stopped is let alone until nothing of that is under way."""
    if run.rewinding:
        raise Rejected(
            "run-rewinding",
            f"run {run.id} still undoes what the generation before had done",
            hint="`why` says what is being undone",
        )
    if run.closed or run.stopping is None:
        return
    if run.active or run.undoing or run.leaving or run.ending or run.outgoing:
        raise Rejected(
            "run-stopping",
            f"run {run.id} is being stopped and something of that is under way",
            hint="wait until it has ended, or terminate it first; `why` says what it waits for",
            run_id=run.id,
        )


def _moving(id: str) -> Rejected:
    return Rejected(
        "run-contended",
        f"run {id} went on each time that its next generation was to be opened",
        hint="pause it first",
    )
