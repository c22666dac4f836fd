"""What follows once it is on disk: callers are answered, listeners hear, and the world acts (SPEC 4.2).

Effects are derived from events, or, where somebody else may have written, from the state; they are never stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.owed import owed
from penstock.core.turn import Turn
from penstock.engine import points
from penstock.engine.errands import AGAIN_SECONDS
from penstock.engine.history import Entry
from penstock.engine.inbox import Item
from penstock.engine.snapshots import SECONDS
from penstock.engine.turns import Raised
from penstock.errors import StoreError
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.policy.snapshots import EVENTS_MIN
from penstock.ports.store import Query, Row

if TYPE_CHECKING:
    from penstock.engine.engine import Engine


class Effects:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cache = engine.cache
        self._snapshots = engine.snapshots
        self.taken: set[str] | None = None
        """While runs are taken over from a dead process: those that are."""
        self.moved: dict[str, tuple[int, int]] = {}
        """Meanwhile: generation and revision of the runs that this process has written to."""
        self._later: dict[str, None] = {}
        """Those that effects are owed to, once they are."""

    def take_over(self) -> None:
        """Runs are taken over from the owner before, from now on."""
        self.taken, self._later, self.moved = set(), {}, {}

    def taken_over(self) -> list[str]:
        """All of them are; gives those that something was put off of."""
        later, self.taken, self._later, self.moved = list(self._later), None, {}, {}
        return later

    def settle(
        self, run_id: str, entry: Entry, items: list[Item], outcome: Turn, readings: list[Any]
    ) -> None:
        """It is on disk: answer, push, and let the world act."""
        engine = self._engine
        refused, place, read, looked = outcome.refused, 0, 0, False
        for item in items:
            future = item.future
            if item.command is not None:
                if future is not None and not future.done():
                    if refused and place in refused:
                        future.set_exception(refused[place])
                    else:
                        future.set_result(None)
                place += 1
                if item.ticket is not None:
                    engine.attempts.told(item.ticket)
            elif item.read is not None:
                value = readings[read]
                read += 1
                if future is not None and not future.done():
                    if isinstance(value, Raised):
                        future.set_exception(value.error)
                    else:
                        future.set_result(value)
            else:
                looked = True
        run = entry.flow.run
        if outcome.events:
            if points.reach is not None:
                points.reach("settle.answered")
            if engine.observers:
                engine.observers.announce(run, outcome.events)
            if engine.listeners.all:
                engine.listeners.offer(run, outcome.events, entry.row.position)
            if engine.following.asked:
                engine.following.moved(run_id, closed=run.closed)
            if engine.owner is not None:
                self._perform(run_id, entry, outcome.effects)
                self._arm(run_id, entry)
                if entry.flow.plan.on_bus:
                    self._on_bus(entry)
            else:
                for effect in outcome.effects:
                    if isinstance(effect, f.Answer):
                        engine.observers.answer(run_id, effect)
            if points.reach is not None:
                points.reach("settle.performed")
            if run.closed:
                self._closed(run_id, entry)
            elif entry.tail >= EVENTS_MIN or run.updated_at - entry.snapshot_at > SECONDS:
                self._snapshots.consider(entry)
            if run_id in self._snapshots.named:
                self._snapshots.named.discard(run_id)
                self._snapshots.take(entry)
        if looked:
            self._reconcile(run_id)  # only now: what this turn decided is on disk

    def _on_bus(self, entry: Entry) -> None:
        """A run that publishes, or waits for what others do."""
        engine = self._engine
        if entry.flow.plan.awaits:
            engine.routing.seen(entry.flow.run)
        if entry.flow.plan.publishes:
            engine.outbox.wake()

    def _reconcile(self, run_id: str) -> None:
        """Somebody else may have written: whatever the state wants now and nobody is at, is begun."""
        engine = self._engine
        entry = self._cache.get(run_id)
        if entry is None or engine.owner is None:
            return
        if self.taken is not None and run_id not in self.taken:
            self._later[run_id] = None  # what a dead process had begun is not recorded as lost yet
            return
        if points.reach is not None:
            points.reach("recovery.owed")
        run = entry.flow.run
        wanted = owed(run)
        engine.attempts.keep(run, wanted)
        self._perform(run_id, entry, wanted)
        self._arm(run_id, entry)
        if entry.flow.plan.on_bus:
            self._on_bus(entry)
        if run.generation > 1 or entry.flow.plan.runs_max is not None:
            engine.admission.seen(run, entry.flow.plan)
        if run.closed:
            self._closed(run_id, entry)

    def _perform(self, run_id: str, entry: Entry, effects: list[f.Effect]) -> None:
        engine = self._engine
        run = entry.flow.run
        if self.taken is not None and run_id not in self.taken:
            self._later[run_id] = None  # recovery comes to it, and begins all that it is owed
            return
        for effect in effects:
            match effect:
                case f.Execute():
                    engine.attempts.want(entry, effect)
                case f.Abandon():
                    engine.attempts.abandon(run, effect)
                case f.StartChild():
                    engine.errands.run(engine.errands.start_child(run_id, effect.key), run_id)
                case f.CancelChild():
                    engine.errands.run(
                        engine.errands.cancel_child(run_id, effect.key, effect.run), run_id
                    )
                case f.Deliver():
                    out = run.outgoing.get(effect.id)
                    if out is not None:
                        work = engine.errands.deliver(
                            run_id, effect.id, out.run, out.name, bytes(out.payload)
                        )
                        engine.errands.run(work, run_id)
                case f.Admit():
                    engine.admission.want(run, entry.flow.plan)
                case f.Answer():
                    engine.observers.answer(run_id, effect)
                case f.Advance():
                    if engine.programs.can(run):
                        engine.post(run_id, Item(c.AdvanceRun(at=engine.clock.now())))
                case f.OpenNext():
                    engine.errands.run(engine.errands.open_next(run_id), run_id)

    def _arm(self, run_id: str, entry: Entry) -> None:
        run = entry.flow.run
        if run.deadline is not None:
            self._engine.forecast.watch(run)
        dues = run.dues
        due = dues[0][0] if dues and not run.paused else None
        if due is not None and due != entry.armed:
            self._engine.timers.add(due, self._wake, run_id)
        entry.armed = due

    def _wake(self, run_id: str) -> None:
        engine = self._engine
        if points.reach is not None:
            points.reach("timer.before")
        entry = self._cache.get(run_id)
        if entry is not None:
            entry.armed = None
        if engine.owner is not None:
            engine.post(run_id, Item(c.Wake(at=engine.clock.now())))

    def _closed(self, run_id: str, entry: Entry) -> None:
        engine = self._engine
        engine.observers.closed(run_id, entry)
        run = entry.flow.run
        engine.forecast.ended(run)
        engine.programs.forget(run_id)
        if entry.flow.plan.runs_max is not None:
            engine.admission.left(run)
        if run.parent is not None and engine.owner is not None:
            engine.errands.run(engine.errands.tell_parent(entry), run.parent)
        engine.forget(run_id)

    async def look(self, after: int, before: int) -> None:
        """Runs that others wrote to between two positions: whatever is owed there is begun."""
        engine = self._engine
        try:
            while after + 1 < before:
                stored = await engine.store.follow(after=after, limit=min(1000, before - after - 1))
                stored = [each for each in stored if each.position < before]
                if not stored:
                    return
                rows = await engine.store.find_many(list({each.key for each in stored}))
                for row in rows.values():
                    self._refresh_if_behind(row)
                after = stored[-1].position
            engine.open_runs = await engine.store.count(Query(status="OPEN"))
        except StoreError:
            # Nobody else remembers that these were not looked at: the engine's position is past them.
            engine.timers.after(AGAIN_SECONDS, self._look_again, after, before)
            raise

    def _look_again(self, after: int, before: int) -> None:
        if self._engine.owner is not None:
            self._engine.errands.run(self.look(after, before))

    def _refresh_if_behind(self, row: Row) -> None:
        """The row as stored: if the run in memory is older, look again."""
        engine = self._engine
        entry = self._cache.get(row.id)
        if entry is not None:
            mine, stored = entry.row, row
            if (mine.generation, mine.revision) >= (stored.generation, stored.revision):
                return
        if (
            entry is not None
            or row.open
            or row.parent is not None
            or row.status == "TERMINATED"  # its children may not know
            or engine.observers.awaited(row.id)
            or engine.admission.holds(row)
        ):
            engine.refresh(row.id)
