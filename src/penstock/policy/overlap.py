"""What a schedule decides at a moment: which starts, which wait, which are left out (SPEC 4.6).

Pure: a schedule, the time and the runs of it that are open give the schedule as it is to be stored. What is to be started
stands in it (`starting`), so that the decision is on disk before anything begins, and a repeat starts nothing twice: a
start's id is the schedule and its nominal time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from penstock.model.schedule import PAST_KEPT, Act, Counts, Overlap, Schedule, Waiting
from penstock.policy.calendars import delayed, moments
from penstock.policy.zones import iso

STARTS_MAX = 100
"""Starts that one decision may hold."""
MOMENTS_MAX = 1_000
"""Moments that one decision looks at; of those missed no more are counted before the rest is passed over."""


@dataclass(frozen=True, slots=True)
class Decision:
    schedule: Schedule
    due: float | None
    """When to decide again though nothing else happens."""
    cancel: bool = False
    """The open runs are to be cancelled."""
    waits: bool = False
    """For the end of an open run."""


def run_id(schedule: str, nominal: float) -> str:
    return f"{schedule}/{iso(nominal)}"


def decide(schedule: Schedule, now: float, open_runs: Collection[str]) -> Decision:
    """All that is due now. `open_runs` are those of the schedule, as stored."""
    tally = _Tally(schedule, bool(open_runs))
    if schedule.paused:
        return _by_hand(tally, now)
    tally.release()
    due = tally.moments(now)
    again = tally.backfill(now)
    if tally.starting or again:
        due = now
    # Also of one that was buffered before: the process that decided may have died before it could cancel.
    cancel = bool(open_runs) and any(
        (waiting.overlap or schedule.plan.overlap) == "cancel-other" for waiting in tally.buffered
    )
    waits = bool(tally.buffered) or any(b.overlap == "buffer" for b in tally.backfills)
    return Decision(tally.result(), due, cancel=cancel, waits=waits)


def _by_hand(tally: _Tally, now: float) -> Decision:
    """While a schedule is paused only what was triggered by hand begins, at once or when its turn comes."""
    tally.release(by_hand=True)
    waiting = [each for each in tally.buffered if each.overlap is not None]
    cancel = tally.open and any(each.overlap == "cancel-other" for each in waiting)
    due = now if tally.starting else None
    return Decision(tally.result(), due, cancel=cancel, waits=bool(waiting))


def settled(schedule: Schedule, now: float, open_runs: Collection[str]) -> Schedule:
    """Before another timing holds: all that this one owes is offered, also what its jitter would hold back a little."""
    if schedule.paused:
        return schedule
    tally = _Tally(schedule, bool(open_runs))
    tally.owed(now)
    return tally.result()


class _Tally:
    """A decision in the making."""

    def __init__(self, schedule: Schedule, busy: bool) -> None:
        self.schedule, self.open, self.busy = schedule, busy, busy
        self.starting = list(schedule.starting)
        self.buffered = list(schedule.buffered)
        self.backfills = list(schedule.backfills)
        self.cursor = schedule.cursor
        self.skipped = self.missed = 0
        self.acts = list(schedule.acts)
        self.fresh: list[Waiting] = []
        """Starts that nobody has begun yet, as this very decision makes them."""

    def result(self) -> Schedule:
        before = self.schedule
        counts = before.counts
        return replace(
            before, cursor=self.cursor, starting=tuple(self.starting), buffered=tuple(self.buffered),
            backfills=tuple(self.backfills), acts=tuple(self.acts[-PAST_KEPT:]),
            counts=Counts(
                started=counts.started, skipped=counts.skipped + self.skipped, missed=counts.missed + self.missed,
                failed=counts.failed,
            ),
        )  # fmt: skip

    def release(self, *, by_hand: bool = False) -> None:
        """The first that waits, if nothing is open any more; `by_hand`: of those that were triggered, which have a
        policy of their own."""
        if self.busy or self.starting:
            return
        for place, waiting in enumerate(self.buffered):
            if waiting.overlap is not None or not by_hand:
                del self.buffered[place]
                self.start(waiting)
                return

    def start(self, waiting: Waiting) -> None:
        self.starting.append(waiting)
        self.fresh.append(waiting)
        self.busy = True

    def offer(self, waiting: Waiting) -> bool:
        """One start under its overlap policy; False if it is left out."""
        overlap: Overlap = waiting.overlap or self.schedule.plan.overlap
        if overlap == "allow":
            self.starting.append(waiting)
            return True
        if not (self.busy or self.starting or self.buffered):
            self.start(waiting)
            return True
        match overlap:
            case "skip":
                self.skipped += 1
                return False
            case "buffer":
                if len(self.buffered) >= self.schedule.plan.buffer:
                    self.skipped += 1
                    return False
                self.buffered.append(waiting)
            case "cancel-other":
                self.skipped += len(self.buffered)
                self.buffered.clear()
                if self.fresh and len(self.starting) == len(self.fresh):
                    # All that it would cancel has not even begun.
                    self.skipped += len(self.fresh)
                    self.starting.clear()
                    self.fresh.clear()
                    self.start(waiting)
                else:
                    self.buffered.append(waiting)
        return True

    def moments(self, now: float) -> float | None:
        """Offer each that is due; when the next one is."""
        plan = self.schedule.plan
        for seen, nominal in enumerate(moments(plan.timing, self.cursor)):
            due = delayed(plan.timing, self.schedule.id, nominal)
            if due > now:
                return due
            if seen >= MOMENTS_MAX or len(self.starting) >= STARTS_MAX:
                if now - due > plan.catch_up:
                    # So much was missed that it is not worth counting.
                    self.cursor = max(self.cursor, now - plan.catch_up - plan.timing.jitter)
                return now
            self.cursor = nominal
            if now - due > plan.catch_up:
                self.missed += 1
            else:
                self.offer(Waiting(nominal))
        return None

    def owed(self, now: float) -> None:
        """Offer each whose nominal time has come."""
        plan = self.schedule.plan
        for nominal in islice(moments(plan.timing, self.cursor), MOMENTS_MAX):
            if nominal > now:
                return
            self.cursor = nominal
            if now - delayed(plan.timing, self.schedule.id, nominal) > plan.catch_up:
                self.missed += 1
            else:
                self.offer(Waiting(nominal))

    def backfill(self, now: float) -> bool:
        """Go on with the first backfill; True if there is more to do at once."""
        if not self.backfills:
            return False
        job = self.backfills[0]
        done, skipped, cursor = job.done, job.skipped, job.cursor
        ended = True
        for seen, nominal in enumerate(moments(self.schedule.plan.timing, cursor)):
            if nominal > job.end:
                break
            if (
                seen >= MOMENTS_MAX
                or len(self.starting) >= STARTS_MAX
                or (job.overlap == "buffer" and (self.busy or self.starting or self.buffered))
            ):
                ended = False
                break
            cursor, done = nominal, done + 1
            overlap: Overlap = "skip" if job.overlap == "buffer" else job.overlap
            waiting = Waiting(nominal, overlap=overlap, backfill=job.number, by=job.by)
            if not self.offer(waiting):
                skipped += 1
        if ended:
            self.backfills.pop(0)
            reason = f"{done} of {job.total} decided, {skipped} skipped"
            self.acts.append(Act(at=now, act=f"backfill {job.number} done", reason=reason))
            return bool(self.backfills)
        self.backfills[0] = replace(job, done=done, skipped=skipped, cursor=cursor)
        return job.overlap != "buffer"


def carried(
    schedule: Schedule, started: Collection[Waiting], failures: Collection[tuple[Waiting, str]]
) -> Schedule:
    """The starts that are on disk, and those that were refused, are no longer to be done."""
    counts = schedule.counts
    nominals = tuple(waiting.nominal for waiting in started)
    over = {*started, *(waiting for waiting, _ in failures)}
    return replace(
        schedule,
        starting=tuple(waiting for waiting in schedule.starting if waiting not in over),
        recent=(*schedule.recent, *nominals)[-PAST_KEPT:],
        error=next((f"{run_id(schedule.id, w.nominal)}: {text}" for w, text in reversed(list(failures))), schedule.error),
        counts=Counts(
            started=counts.started + len(started), skipped=counts.skipped, missed=counts.missed,
            failed=counts.failed + len(failures),
        ),
    )  # fmt: skip
