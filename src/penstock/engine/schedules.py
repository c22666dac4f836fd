"""Starts runs by calendar (SPEC 4.6): the owner's part. What people do to schedules: `engine/schedule_acts.py`.

A schedule is a record. Tending one is: read it, decide (`policy/overlap.py`), store the decision by compare-and-set, only
then start what it says, under ids that make a repeat harmless, and store that it is done. Nothing polls: a timer is armed for
the earliest moment, other processes send a hint, the end of a run is heard; a slow look around is the net beneath.

| killed | then |
|---|---|
| before the decision is stored (`schedule.before`) | the next owner decides anew |
| decided, not started (`schedule.decided`) | the next owner finds it in the record, which is due, and starts it |
| started, not recorded (`schedule.started`) | it starts it again: the id is taken, so that nothing happens |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.core.values import decode
from penstock.engine import points
from penstock.engine.records import read, written
from penstock.errors import Busy, NotFound, Rejected, RevisionConflict
from penstock.model import commands as c
from penstock.model.schedule import (
    ENCODER,
    SCHEDULE,
    SCHEDULE_DECODER,
    Schedule,
    Waiting,
)
from penstock.policy.overlap import carried, decide, run_id
from penstock.policy.zones import iso
from penstock.ports.store import Query, Record

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

Start = Callable[..., Awaitable[str]]
"""`LocalRuns.start`."""

TRIES_MAX = 100
OPEN_PAGE = 1_000
TOMBSTONE_SECONDS = 86_400.0


class Schedules:
    """Tends schedules."""

    def __init__(self, engine: Engine, start: Start) -> None:
        self._engine, self._start = engine, start
        engine.tending.serve(SCHEDULE, self.tend, waits=_waits)

    async def load(self, id: str) -> tuple[Record, Schedule] | None:
        record = await self._engine.store.record(SCHEDULE, id)
        if record is None or record.expires is not None:
            return None
        return record, read(SCHEDULE_DECODER, record)

    async def put(self, record: Record, schedule: Schedule, due: float | None) -> Record | None:
        """Store it as it is to be; None if somebody else was first."""
        wanted = Record(
            kind=SCHEDULE, id=schedule.id, value=written(SCHEDULE_DECODER, schedule), revision=record.revision, due=due,
        )  # fmt: skip
        kept = (await self._engine.store.put([wanted]))[0]
        return None if isinstance(kept, RevisionConflict) else kept

    async def open_runs(self, id: str) -> list[str]:
        """The schedule's runs that are open; children of theirs have ids below them and are not meant."""
        query = Query(status="OPEN", id_prefix=f"{id}/", limit=OPEN_PAGE)
        found: list[str] = []
        while True:
            rows = await self._engine.store.list(query)
            found.extend(row.id for row in rows if row.parent is None)
            if len(rows) < OPEN_PAGE:
                return found
            query = replace(query, after=rows[-1].key)

    async def tend(self, id: str) -> None:
        """Decide what is due, and do it, until nothing more is."""
        for _ in range(TRIES_MAX):
            found = await self.load(id)
            if found is None:
                self._engine.tending.arm(SCHEDULE, id, None)
                return
            if await self._pursue(*found):
                return
        raise Busy(f"schedule {id} is written to without end")

    async def _pursue(self, record: Record, schedule: Schedule) -> bool:
        """True once nothing more is due; False if somebody else wrote, or we no longer own the database."""
        engine = self._engine
        while engine.owner is not None:
            before = schedule
            if schedule.starting:
                if points.reach is not None:
                    points.reach("schedule.decided")
                schedule = await self.carry_out(schedule)
                if points.reach is not None:
                    points.reach("schedule.started")
            runs = await self.open_runs(schedule.id) if _looks(schedule) else []
            decision = decide(schedule, engine.clock.now(), runs)
            if decision.schedule != before or decision.due != record.due:
                if points.reach is not None:
                    points.reach("schedule.before")
                kept = await self.put(record, decision.schedule, decision.due)
                if kept is None:
                    return False
                record = kept
                if points.reach is not None:
                    points.reach("schedule.after")
            schedule = decision.schedule
            if decision.cancel:
                await self._cancel(schedule.id, runs)
            if schedule.starting or (
                decision.due is not None and decision.due <= engine.clock.now()
            ):
                await asyncio.sleep(0)
                continue
            if decision.waits and not await self._hear_of_ends(schedule.id, runs):
                continue
            self._engine.tending.arm(SCHEDULE, schedule.id, decision.due)
            return True
        return True

    async def carry_out(self, schedule: Schedule) -> Schedule:
        """Start all that is decided; what is not on disk then raises and is tried again later."""
        started: list[Waiting] = []
        failures: list[tuple[Waiting, str]] = []
        outcomes = await asyncio.gather(
            *(self._begin(schedule, waiting) for waiting in schedule.starting),
            return_exceptions=True,
        )
        for waiting, outcome in zip(schedule.starting, outcomes, strict=True):
            if outcome is None:
                started.append(waiting)
            elif isinstance(outcome, Rejected | NotFound):
                log.error(
                    "schedule.refused", extra={"schedule": schedule.id, "error": str(outcome)}
                )
                failures.append((waiting, f"{outcome.code}: {outcome}"))
            else:
                raise outcome
        return carried(schedule, started, failures)

    async def _begin(self, schedule: Schedule, waiting: Waiting) -> None:
        plan, id = schedule.plan, run_id(schedule.id, waiting.nominal)
        facts: dict[str, Any] = {"schedule": schedule.id, "nominal": iso(waiting.nominal)}
        if waiting.backfill is not None:
            facts["backfill"] = waiting.backfill
        try:
            await self._start(
                plan.definition, decode(plan.input), id=id, version=plan.version, priority=plan.priority,
                metadata={**plan.metadata, **facts}, attributes=plan.attributes,
                created_by=waiting.by or f"schedule:{schedule.id}",
            )  # fmt: skip
        except Rejected as error:
            if (
                error.code != "id-taken"
            ):  # it has been started, perhaps with an input that was changed since
                raise

    async def _cancel(self, id: str, runs: list[str]) -> None:
        for run in runs:
            command = c.CancelRun(
                at=self._engine.clock.now(), by=f"schedule:{id}", reason="the next one is due"
            )
            try:
                await self._engine.command(run, command)
            except (Rejected, NotFound):
                continue  # it stops already, or has ended

    async def _hear_of_ends(self, id: str, runs: list[str]) -> bool:
        """Tend again when one of them ends; False if one has ended meanwhile."""
        for run in runs:
            self._engine.observers.when_closed(run, f"{SCHEDULE}\n{id}", self._engine.tending.heard)
        return set(await self.open_runs(id)) == set(runs)


def _waits(record: Record) -> bool:
    """It may have something to do though no moment of it is due."""
    schedule = read(SCHEDULE_DECODER, record)
    return bool(schedule.starting or schedule.buffered or schedule.backfills)


def _looks(schedule: Schedule) -> bool:
    """Whether open runs make a difference."""
    return (
        schedule.plan.overlap != "allow"
        or bool(schedule.buffered)
        or any(job.overlap != "allow" for job in schedule.backfills)
    )


def buried(record: Record, schedule: Schedule, now: float) -> Record:
    """A deleted schedule, until retention takes it away: whoever still tends it finds that it was changed."""
    empty = replace(schedule, starting=(), buffered=(), backfills=())
    return Record(
        kind=record.kind, id=record.id, value=ENCODER.encode(empty), revision=record.revision,
        expires=now + TOMBSTONE_SECONDS,
    )  # fmt: skip
