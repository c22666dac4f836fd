"""What people do to schedules (SPEC 4.6, 4.9): from any process, each a change of the record by compare-and-set, with who and
why. The owner is told and tends it (`engine/schedules.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from penstock.core.values import decode
from penstock.engine.checks import check_count
from penstock.engine.records import read, readable, tell
from penstock.engine.schedules import TRIES_MAX, Schedules, buried
from penstock.errors import Busy, NotFound, Rejected, StoreCorrupt, shown
from penstock.model.definition import Definition
from penstock.model.schedule import (
    BACKFILL_MAX,
    ENCODER,
    OVERLAPS,
    PAST_KEPT,
    SCHEDULE,
    SCHEDULE_DECODER,
    Act,
    Backfill,
    Overlap,
    PastPlan,
    Plan,
    Schedule,
    Timing,
    Waiting,
)
from penstock.policy import timings
from penstock.policy.calendars import count_up_to, moments
from penstock.policy.cron import Misfit
from penstock.policy.overlap import run_id, settled
from penstock.policy.plans import plan_of, schedule_id, unknown_overlap, words_of
from penstock.policy.zones import iso
from penstock.ports.schedules import ScheduleView, Time, Triggered
from penstock.ports.store import Record

if TYPE_CHECKING:
    from penstock.core.plan import Plan as Compiled
    from penstock.engine.engine import Engine

ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}\Z")
BACKFILLS_MAX = 10
NEXT_MAX = 1_000
LIST_MAX = 10_000


class ScheduleActs:
    """What `ports/schedules.py` promises, on an engine of our own."""

    def __init__(
        self,
        engine: Engine,
        keeper: Schedules,
        find: Callable[..., Any],
        check: Callable[..., None],
    ) -> None:
        """`find` gives a definition's version and plan; `check` refuses texts that cannot be kept."""
        self._engine, self._keeper, self._find, self._check = engine, keeper, find, check

    # --- looking ---------------------------------------------------------------------------------------------

    async def get(self, id: str, *, next: int = 5) -> ScheduleView:
        check_count("next", next, 0, NEXT_MAX)
        _, schedule = await self._load(id)
        return self._view(schedule, next, await self._keeper.open_runs(id))

    async def list(
        self, *, next: int = 1, after: str = "", limit: int = 1000
    ) -> list[ScheduleView]:
        self._check(after=after)
        check_count("next", next, 0, NEXT_MAX)
        check_count("limit", limit, 1, LIST_MAX)
        found: list[ScheduleView] = []
        while len(found) < limit:
            page = await self._engine.store.records(SCHEDULE, after=after, limit=limit)
            for record, schedule in readable(SCHEDULE_DECODER, page):
                if record.expires is None and len(found) < limit:
                    found.append(self._view(schedule, next, []))
            if len(page) < limit:
                break
            after = page[-1].id
        return found

    def _view(self, schedule: Schedule, many: int, open_runs: list[str]) -> ScheduleView:
        plan, zone = schedule.plan, ZoneInfo(schedule.plan.timing.zone)
        after = max(schedule.cursor, self._engine.clock.now())
        times = islice(moments(plan.timing, after), 0 if schedule.paused else many)
        return ScheduleView(
            id=schedule.id, definition=plan.definition, timing=plan.timing, version=plan.version,
            input=decode(plan.input), priority=plan.priority, overlap=plan.overlap, buffer=plan.buffer,
            catch_up=plan.catch_up, paused=schedule.paused, note=schedule.note, declared=schedule.declared,
            number=schedule.number, created_at=schedule.created_at, created_by=schedule.created_by,
            next=[datetime.fromtimestamp(at, zone) for at in times], open=open_runs,
            recent=[run_id(schedule.id, nominal) for nominal in schedule.recent],
            buffered=[run_id(schedule.id, waiting.nominal) for waiting in schedule.buffered],
            backfills=[*schedule.backfills], counts=schedule.counts, error=schedule.error,
            past=[decode(ENCODER.encode(each)) for each in schedule.past], acts=[*schedule.acts],
        )  # fmt: skip

    # --- making and changing ---------------------------------------------------------------------------------

    async def create(
        self, id: str, definition: str, input: Any = None, *, paused: bool = False, by: str | None = None,
        reason: str = "", **words: Any,
    ) -> ScheduleView:  # fmt: skip
        self._check(by=by, reason=reason, definition=definition)
        if type(paused) is not bool:
            raise Rejected(
                "wrong-type", f"`paused` is {shown(paused)}", hint="give True or False"
            )  # fmt: skip
        if not isinstance(id, str) or not ID.match(id):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Rejected(
                "id-invalid", f"{shown(id, 80)} is no id of a schedule",
                hint="1 to 200 letters, digits and _ . : -, as it begins the ids of its runs",
            )  # fmt: skip
        plan = await self._plan({**words, "definition": definition, "input": input})
        return await self.declare(id, plan, paused=paused, by=by, reason=reason)

    async def declare(
        self, id: str, plan: Plan, *, paused: bool = False, by: str | None = None, reason: str = "",
        declared: bool = False,
    ) -> ScheduleView:  # fmt: skip
        """Make it, or, if a definition declares it, keep it up to date."""
        now = self._engine.clock.now()
        act = Act(now, "create", by, reason)
        for _ in range(TRIES_MAX):
            record = await self._engine.store.record(SCHEDULE, id)
            if record is not None and record.expires is None:
                there = read(SCHEDULE_DECODER, record)
                if there.plan == plan and (there.declared or not declared):
                    return self._view(there, 5, [])
                if not declared:
                    raise Rejected(
                        "schedule-exists", f"there is a schedule `{id}` already, and it is another",
                        hint=f"engine.schedules.update({id!r}, …) changes it",
                    )  # fmt: skip
                runs = await self._keeper.open_runs(id)
                schedule = _replanned(there, plan, Act(now, "update", by, reason), runs)
                schedule = replace(schedule, declared=True)
            else:
                schedule = Schedule(
                    id=id, plan=plan, cursor=now, created_at=now, created_by=by, declared=declared, paused=paused,
                    note=reason if paused else "", acts=(act,),
                )  # fmt: skip
            empty = Record(kind=SCHEDULE, id=id, value=b"")
            if await self._put(record or empty, schedule):
                return self._view(schedule, 5, [])
        raise _contended(id)

    async def follow(self, definition: Definition, *, by: str | None = None) -> None:
        """Keep the schedules that a definition's `triggers` declare as its newest version says."""
        declared: set[str] = set()
        for place, trigger in enumerate(definition.triggers):
            id = schedule_id(definition.id, place, trigger)
            declared.add(id)
            plan = plan_of(words_of(trigger, definition.id))
            paused = bool(trigger.get("paused"))
            reason = "paused by the definition" if paused else ""
            await self.declare(id, plan, declared=True, paused=paused, by=by, reason=reason)
        after = f"{definition.id}."
        while page := await self._engine.store.records(SCHEDULE, after=after, limit=100):
            after = page[-1].id
            for record, there in readable(SCHEDULE_DECODER, page):
                if not record.id.startswith(f"{definition.id}."):
                    return
                if record.expires is None and there.declared and record.id not in declared:
                    await self.delete(record.id, by=by, reason="the definition no longer has it")

    async def update(
        self, id: str, *, by: str | None = None, reason: str = "", **changes: Any
    ) -> ScheduleView:
        self._check(by=by, reason=reason)
        _, before = await self._load(id)
        plan = await self._plan({**_words(before.plan, changes), **changes})
        runs = await self._keeper.open_runs(id)
        at = self._engine.clock.now()
        schedule = await self._change(
            id, lambda there: _replanned(there, plan, Act(at, "update", by, reason), runs)
        )
        return self._view(schedule, 5, [])

    async def pause(self, id: str, *, by: str | None = None, reason: str = "") -> None:
        self._check(by=by, reason=reason)
        act = Act(self._engine.clock.now(), "pause", by, reason)
        await self._change(
            id,
            lambda there: (
                there if there.paused else _acted(replace(there, paused=True, note=reason), act)
            ),
        )

    async def resume(self, id: str, *, by: str | None = None, reason: str = "") -> None:
        self._check(by=by, reason=reason)
        now = self._engine.clock.now()
        act = Act(now, "resume", by, reason)

        def resumed(there: Schedule) -> Schedule:
            if not there.paused:
                return there
            return _acted(replace(there, paused=False, note="", cursor=max(now, there.cursor)), act)

        await self._change(id, resumed)

    async def delete(self, id: str, *, by: str | None = None, reason: str = "") -> None:
        """Its runs stay; those that are open go on."""
        self._check(by=by, reason=reason)
        now = self._engine.clock.now()
        for _ in range(TRIES_MAX):
            try:
                record, schedule = await self._load(id)
            except StoreCorrupt as error:
                tell(Record(SCHEDULE, id, b""), error)
                await self._engine.store.drop(SCHEDULE, [id])
                return
            schedule = _acted(schedule, Act(now, "delete", by, reason))
            kept = (await self._engine.store.put([buried(record, schedule, now)]))[0]
            if isinstance(kept, Record):
                await self._engine.tending.tell(SCHEDULE, id)
                return
        raise _contended(id)

    # --- starting --------------------------------------------------------------------------------------------

    async def trigger(
        self, id: str, *, overlap: str | None = None, by: str | None = None, reason: str = ""
    ) -> Triggered:
        """Start a run now, also if the schedule is paused; by the schedule's overlap policy unless another is given."""
        self._check(by=by, reason=reason)
        chosen = None if overlap is None else checked_overlap(overlap)
        now = round(self._engine.clock.now(), 3)
        act = Act(now, "trigger", by, reason)
        for _ in range(TRIES_MAX):
            record, there = await self._load(id)
            taken = {each.nominal for each in (*there.starting, *there.buffered)} | {*there.recent}
            nominal = now
            while nominal in taken or await self._engine.store.find(run_id(id, nominal)):
                nominal = round(nominal + 0.001, 3)  # two triggers at one time are two runs
            policy = chosen or there.plan.overlap
            waiting = Waiting(nominal, overlap=policy, by=by)
            runs = [] if policy == "allow" else await self._keeper.open_runs(id)
            busy = bool(policy != "allow" and (runs or there.starting or there.buffered))
            schedule = _acted(_triggered(there, waiting, policy, busy, runs), act)
            if await self._put(record, schedule):
                if not busy:
                    await self._started(id, waiting)
                return Triggered(run_id(id, nominal), waits=busy)
        raise _contended(id)

    async def _started(self, id: str, waiting: Waiting) -> None:
        """Whoever triggered gets a run that exists; if this process dies first, the owner starts it."""
        for _ in range(TRIES_MAX):
            found = await self._keeper.load(id)
            if found is None or waiting not in found[1].starting:
                if await self._engine.store.find(run_id(id, waiting.nominal)) is None:
                    said = found[1].error if found is not None else "the schedule was deleted"
                    raise Rejected("trigger-refused", f"the run could not be started: {said}")
                return
            record, there = found
            done = await self._keeper.carry_out(replace(there, starting=(waiting,)))
            rest = tuple(each for each in there.starting if each != waiting)
            if await self._put(record, replace(done, starting=rest)):
                if done.counts.failed > there.counts.failed:
                    raise Rejected("trigger-refused", f"the run could not be started: {done.error}")
                return
        raise _contended(id)

    async def backfill(
        self, id: str, begin: Time, end: Time, *, overlap: str = "allow", by: str | None = None,
        reason: str = "",
    ) -> Backfill:  # fmt: skip
        self._check(by=by, reason=reason)
        chosen = checked_overlap(overlap)
        if chosen == "cancel-other":
            raise Rejected(
                "backfill-invalid", "a backfill whose runs cancel each other leaves only the last",
                hint="overlap: allow (all at once), buffer (one after the other) or skip",
            )  # fmt: skip
        _, there = await self._load(id)
        first, last = self._span(there.plan.timing, begin, end)
        total, where = await asyncio.to_thread(
            count_up_to, there.plan.timing, first, last, BACKFILL_MAX
        )
        if total > BACKFILL_MAX:
            assert where is not None
            raise Rejected(
                "backfill-too-large",
                f"more than {BACKFILL_MAX:,} moments lie between {iso(first)} and {iso(last)}, which is the most for one"
                " backfill",
                hint=f"go to {iso(where)} first, and on from there when that is done",
            )  # fmt: skip
        if not total:
            raise Rejected(
                "backfill-invalid", f"no moment of `{id}` lies between {iso(first)} and {iso(last)}",
                hint="look at its times, and that end comes after begin",
            )  # fmt: skip
        at = self._engine.clock.now()
        job: list[Backfill] = []

        def added(there: Schedule) -> Schedule:
            if len(there.backfills) >= BACKFILLS_MAX:
                raise Rejected(
                    "busy", f"{BACKFILLS_MAX} backfills of `{id}` wait already", hint="let them finish"
                )  # fmt: skip
            number = 1 + sum(1 for each in there.acts if each.act.startswith("backfill"))
            number = max([number, *(each.number + 1 for each in there.backfills)])
            job[:] = [
                Backfill(
                    number=number, begin=first, end=last, total=total, cursor=first - 0.001, overlap=chosen, by=by,
                    reason=reason,
                )
            ]  # fmt: skip
            act = Act(
                at, f"backfill {number}", by, f"{iso(first)} to {iso(last)}; {reason}".rstrip("; ")
            )
            return _acted(replace(there, backfills=(*there.backfills, *job)), act)

        await self._change(id, added)
        return job[0]

    def _span(self, timing: Timing, begin: Time, end: Time) -> tuple[float, float]:
        given = {"every": 60, "zone": timing.zone, "after": begin, "until": end}
        try:
            first, last = timings.moment(given, "after"), timings.moment(given, "until")
        except Misfit as error:
            said = error.message.replace("`after`", "`begin`").replace("`until`", "`end`")
            raise Rejected("backfill-invalid", said, hint=error.hint) from None
        now = self._engine.clock.now()
        if first is None or last is None or last < first:
            raise Rejected(
                "backfill-invalid", "a backfill goes from a time to a later one",
                hint="turn them round, or write both as 2026-03-01T00:00:00Z",
            )  # fmt: skip
        if first > now:
            raise Rejected(
                "backfill-invalid", "a backfill makes up for the past", hint="the schedule itself starts what is to come"
            )  # fmt: skip
        return first, min(last, now)

    # --- the record ------------------------------------------------------------------------------------------

    async def _load(self, id: str) -> tuple[Record, Schedule]:
        good = isinstance(id, str) and ID.match(id)  # pyright: ignore[reportUnnecessaryIsInstance]
        found = await self._keeper.load(id) if good else None
        if found is None:
            known = [each.id for each in await self.list(limit=10)]
            name = f"`{id}`" if good else shown(id, 80)
            raise NotFound(f"no schedule {name}", hint=f"there are: {', '.join(known) or 'none'}")
        return found

    async def _put(self, record: Record, schedule: Schedule) -> bool:
        idle = schedule.paused and not schedule.starting and not schedule.buffered
        due = None if idle else self._engine.clock.now()
        if await self._keeper.put(record, schedule, due) is None:
            return False
        await self._engine.tending.tell(SCHEDULE, schedule.id)
        return True

    async def _change(self, id: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        for _ in range(TRIES_MAX):
            record, before = await self._load(id)
            schedule = change(before)
            if schedule == before or await self._put(record, schedule):
                return schedule
        raise _contended(id)

    async def _plan(self, words: Mapping[str, Any]) -> Plan:
        """What was asked for, checked: the definition is there and takes the input."""
        try:
            plan = plan_of(words, self._engine.clock.now())
        except Misfit as error:
            raise refusal(error) from None
        if not isinstance(plan.definition, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Rejected(
                "id-invalid", f"{shown(plan.definition, 80)} is not the id of a definition",
                hint="give the id of one that is registered, as a text",
            )  # fmt: skip
        self._check(definition=plan.definition, version=plan.version)
        compiled: Compiled = (await self._find(plan.definition, plan.version))[1]
        if compiled.input_schema is not None:
            problems = compiled.input_schema.problems(decode(plan.input))
            if problems:
                raise Rejected("input-invalid", f"input of `{plan.definition}`: {problems}")
        return plan


def refusal(error: Misfit) -> Rejected:
    where = ".".join(map(str, error.field))
    place = f"`{where}`: " if where and not error.message.startswith(f"`{where}`") else ""
    return Rejected(error.code, f"{place}{error.message}", hint=error.hint)


def checked_overlap(overlap: str) -> Overlap:
    for known in OVERLAPS:
        if overlap == known:
            return known
    raise refusal(unknown_overlap(overlap))


def _words(plan: Plan, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A plan in the words it could have been made with, without those that the changes replace."""
    timing = plan.timing
    words: dict[str, Any] = {
        "cron": list(timing.cron) or None, "every": timing.every, "calendar": list(timing.calendar) or None,
        "anchor": datetime.fromtimestamp(timing.anchor, UTC) if timing.every is not None else None,
        "zone": timing.zone, "exclude": list(timing.exclude) or None, "after": timing.after, "until": timing.until,
        "jitter": timing.jitter, "definition": plan.definition, "input": decode(plan.input), "version": plan.version,
        "priority": plan.priority, "attributes": plan.attributes, "metadata": plan.metadata, "overlap": plan.overlap,
        "buffer": plan.buffer, "catch_up": plan.catch_up,
    }  # fmt: skip
    whens = ("cron", "every", "calendar")
    if any(changes.get(name) is not None for name in whens):
        for name in (*whens, "anchor"):
            words.pop(name)
    return words


def _replanned(there: Schedule, plan: Plan, act: Act, runs: list[str]) -> Schedule:
    """A new plan holds from now on; it makes up for nothing that the one before would not have done, and loses nothing
    that is owed."""
    if there.plan == plan:
        return there
    if there.plan.timing != plan.timing:
        there = settled(there, act.at, runs)
        there = replace(there, cursor=max(act.at, there.cursor))
    past = (*there.past, PastPlan(there.number, act.at, there.plan))[-PAST_KEPT:]
    changed = replace(there, plan=plan, number=there.number + 1, past=past, error="")
    return _acted(changed, act)


def _acted(schedule: Schedule, act: Act) -> Schedule:
    return replace(schedule, acts=(*schedule.acts, act)[-PAST_KEPT:])


def _triggered(
    there: Schedule, waiting: Waiting, policy: Overlap, busy: bool, runs: list[str]
) -> Schedule:
    if not busy:
        return replace(there, starting=(*there.starting, waiting))
    match policy:
        case "buffer":
            if len(there.buffered) >= there.plan.buffer:
                raise Rejected(
                    "schedule-overlap", f"{len(there.buffered)} starts of `{there.id}` wait already, and its buffer holds no more",
                    hint="overlap='allow' starts it all the same",
                )  # fmt: skip
            return replace(there, buffered=(*there.buffered, waiting))
        case "cancel-other":
            return replace(there, buffered=(waiting,))
        case "skip" | "allow":
            which = (
                f"run {runs[0]} of `{there.id}` is open"
                if runs
                else f"a run of `{there.id}` is about to start"
            )
            raise Rejected(
                "schedule-overlap", f"{which}, and its overlap policy is skip",
                hint="overlap='allow' starts it all the same, 'buffer' when that one has ended",
            )  # fmt: skip


def _contended(id: str) -> Busy:
    return Busy(f"schedule `{id}` is written to without end", hint="try again in a moment")
