"""Debounced starts: those of one key within a window become one run with the last input (SPEC 4.6).

A record holds the newest start and when its window ends; the owner tends it then. The decision that a window has ended is
stored before its run begins, so that a start that comes just then opens the next window and none is lost; the run's id is
given with the first start, so that a crash doubles none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.core.values import decode
from penstock.engine import points
from penstock.engine.origins import input_digest, origin_of
from penstock.engine.records import read, written
from penstock.engine.schedules import TRIES_MAX
from penstock.engine.schedules import Start as StartRun
from penstock.errors import Busy, NotFound, Rejected, RevisionConflict, shown
from penstock.model.schedule import DEBOUNCE, DEBOUNCE_DECODER, Debounced, Start
from penstock.policy.cron import Misfit
from penstock.policy.timings import seconds
from penstock.policy.zones import iso
from penstock.ports.schedules import Debounce
from penstock.ports.store import Record

if TYPE_CHECKING:
    import logging

    from penstock.engine.engine import Engine

WINDOWS_MAX = 10
"""How many windows a run waits at most, unless that is said."""
KEY_CHARACTERS_MAX = 400
IDLE_SECONDS = 3_600.0
"""A record that has nothing to do is kept so long."""


class Debouncing:
    def __init__(self, engine: Engine, start: StartRun, log: logging.Logger) -> None:
        self._engine, self._start, self._log = engine, start, log
        engine.tending.serve(
            DEBOUNCE, self.tend, waits=lambda record: bool(_decoded(record).firing)
        )

    async def offer(self, wanted: Debounce, start: Start) -> str:
        """On disk on return; the id that the run will have."""
        window, most = _checked(wanted)
        engine = self._engine
        if start.id:
            await self._refuse_taken(start)
        for _ in range(TRIES_MAX):
            now = engine.clock.now()
            record = await engine.store.record(DEBOUNCE, wanted.key)
            there = Debounced(wanted.key) if record is None else _decoded(record)
            if there.window is None:
                first, id, count = now, start.id or f"{wanted.key}/{iso(now)}", 1
                while not start.id and await self._taken(id, there):
                    id += "+"  # a second window in the same millisecond
            else:
                first, id, count = there.first_at, there.window.id, there.count + 1
            due = min(now + window, first + most)
            there = replace(
                there, window=replace(start, id=id), first_at=first, due=due, count=count
            )
            if await self._put(record, there) is not None:
                await engine.tending.tell(DEBOUNCE, wanted.key)
                return id
        raise Busy(f"key `{wanted.key}` is written to without end", hint="try again in a moment")

    async def _refuse_taken(self, start: Start) -> None:
        """Its run could never begin if there is another of that id."""
        engine = self._engine
        row = await engine.store.find(start.id)
        if row is None:
            return
        there = await origin_of(engine, row)
        if row.definition != start.definition or there.digest != input_digest(start.input):
            raise Rejected(
                "id-taken", f"run {start.id} exists already, with another definition or input",
                hint="choose another id, or none", run_id=start.id,
            )  # fmt: skip

    async def _taken(self, id: str, there: Debounced) -> bool:
        return any(each.id == id for each in there.firing) or bool(
            await self._engine.store.find(id)
        )

    async def tend(self, key: str) -> None:
        engine = self._engine
        for _ in range(TRIES_MAX):
            record = await engine.store.record(DEBOUNCE, key)
            if record is None or engine.owner is None:
                return
            there = _decoded(record)
            if there.firing:
                await self._fire(there)
                if await self._put(record, replace(there, firing=())) is None:
                    continue
                there = replace(there, firing=())
                record = await engine.store.record(DEBOUNCE, key)
                if record is None:
                    return
            if there.window is None:
                engine.tending.arm(DEBOUNCE, key, None)
                return
            if there.due > engine.clock.now():
                engine.tending.arm(DEBOUNCE, key, there.due)
                return
            # From here on a start opens the next window.
            await self._put(
                record, Debounced(key, firing=(*there.firing, there.window)), due=there.due
            )
        raise Busy(f"key `{key}` is written to without end")

    async def _fire(self, there: Debounced) -> None:
        if points.reach is not None:
            points.reach("debounce.decided")
        for start in there.firing:
            try:
                await self._start(
                    start.definition, decode(start.input), id=start.id, version=start.version, priority=start.priority,
                    deadline=start.deadline, delay=start.delay, metadata=start.metadata, attributes=start.attributes,
                    created_by=start.created_by,
                )  # fmt: skip
            except (Rejected, NotFound) as error:
                # `id-taken` too: a repeat after a crash has the same input and attaches
                self._log.error(
                    "debounce.refused", extra={"run": start.id, "error": f"{error.code}: {error}"}
                )
        if points.reach is not None:
            points.reach("debounce.started")

    async def _put(
        self, record: Record | None, there: Debounced, due: float | None = None
    ) -> Record | None:
        idle = there.window is None and not there.firing
        wanted = Record(
            kind=DEBOUNCE, id=there.key, value=written(DEBOUNCE_DECODER, there),
            revision=0 if record is None else record.revision,
            due=None if idle else due if due is not None else there.due,
            expires=self._engine.clock.now() + IDLE_SECONDS if idle else None,
        )  # fmt: skip
        kept = (await self._engine.store.put([wanted]))[0]
        return None if isinstance(kept, RevisionConflict) else kept


def _decoded(record: Record) -> Debounced:
    return read(DEBOUNCE_DECODER, record)


def _checked(wanted: Debounce) -> tuple[float, float]:
    check_key(wanted.key)
    try:
        window = seconds({"seconds": wanted.seconds}, "seconds")
        most = window * WINDOWS_MAX
        if wanted.at_most is not None:
            most = seconds({"at_most": wanted.at_most}, "at_most")
    except Misfit as error:
        raise Rejected("debounce-invalid", error.message, hint=error.hint) from None
    if window <= 0 or most < window:
        raise Rejected(
            "debounce-invalid", f"a window of {window:g} s with at most {most:g} s of waiting makes no sense",
            hint="seconds must be more than 0, and at_most no less than that",
        )  # fmt: skip
    return window, most


def check_key(key: Any) -> None:
    if (
        not isinstance(key, str)
        or not key
        or len(key) > KEY_CHARACTERS_MAX
        or not key.isprintable()
    ):
        raise Rejected(
            "id-invalid",
            f"a key has 1 to {KEY_CHARACTERS_MAX} printable characters, not {shown(key, 80)}",
            hint="give a text such as customer-7",
        )
