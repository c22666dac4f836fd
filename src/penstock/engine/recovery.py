"""Ownership, recovery and takeover: who executes this database's runs, and how they go on after a crash (SPEC 4.8).

Every open run goes on from its last event: attempts that may have begun in a dead process are recorded as lost, in bulk,
and whatever the state owes is begun. Nothing here scans but recovery itself and a slow safety net for lost hints.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.core.owed import owed
from penstock.engine import points
from penstock.engine.engine import Engine
from penstock.engine.history import Entry
from penstock.engine.inbox import Item
from penstock.errors import Fenced, StoreError
from penstock.model import commands as c
from penstock.model.effects import Abandon, Execute
from penstock.ports.store import Owner, Position, Pulse, Row

log = logging.getLogger("penstock.engine")

RENEW_SECONDS = 2.0
SAY_SECONDS = 0.2
LEASE_SECONDS = 6.0
"""An owner that has not renewed for so long may be taken over from, if its process lives or not (SPEC 4.8)."""
SET_SECONDS = 0.5
"""A wall clock that went forth by so much more than was slept may have been set."""
STANDBY_SECONDS = 0.5
CHUNK = 500


class Ownership:
    """Keeps trying to own the database, recovers its runs once it does, and renews until it is closed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._address = ""
        self.recovered: asyncio.Event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._claiming: asyncio.Future[bool] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._keeping = False
        self._beat = asyncio.Event()
        """The lease was renewed, or could not be."""
        self._pulse: Pulse | None = None
        self._clean = False
        self._rounds = 0
        self._silent = 0
        """The token of an owner that was said to be silent."""
        self._left = False
        """Attempts of runs that cannot be read here may have begun in a dead process, and nobody has said so yet."""
        self.counts = {"runs": 0, "lost": 0}

    async def open(self, *, keep: bool = True) -> bool:
        """Try once at once, so that a lone engine owns its database when it is open; `keep` goes on trying."""
        engine = self._engine
        self._keeping = keep
        self._address = engine.following.listen()
        owned = await self._claim()
        if not owned:
            owner = await engine.store.owner()
            log.info(
                "engine.standby: %s (process %s) owns the database; this one takes over when it ends",
                owner and owner.node, owner and owner.pid,
            )  # fmt: skip
        if keep:
            self._task = asyncio.get_running_loop().create_task(
                self._keep(), name="penstock.ownership"
            )
        return owned

    async def close(self) -> None:
        """No more is taken over. The lease is renewed on: until `release`, others must not begin what ends here."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._claiming is not None:
            # A recovery that has begun is finished: to let go in the middle would look like a clean end.
            await asyncio.gather(self._claiming, return_exceptions=True)

    async def release(self) -> None:
        """The last, once nothing is under way here."""
        engine = self._engine
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if engine.owner is not None:
            owner = engine.owner
            engine.disown()
            try:
                if not engine.commits.untold and not engine.recovering and not self._left:
                    await engine.store.release(owner)
            except StoreError:
                log.warning("owner.release_failed")
            if points.reach is not None:
                points.reach("stop.released")
        if engine.hints is not None:
            engine.hints.close()

    async def _claim(self) -> bool:
        engine = self._engine
        before = await engine.store.owner()
        # Before the claim: a store that fails after it must not leave an owner that does not know of itself. What is
        # written in between is looked at once more.
        head = await engine.store.head()
        # Only if it cannot be had at once: a process that is dead owns nothing, however long it has been silent.
        saying = engine.clock.call_later(SAY_SECONDS, lambda: self._say_who_is_silent(before))
        asked = engine.clock.ticks()
        try:
            owner = await engine.store.claim(engine.node, self._address)
        finally:
            saying.cancel()
        if owner is None:
            return False
        clean = owner.clean  # the one before has let go properly
        if points.reach is not None:
            points.reach("recovery.claimed")
        # From here on whatever the store does not give now is done by `_keep`, and in the same way.
        engine.own(owner, head)
        if self._keeping:
            engine.lease_until = asked + LEASE_SECONDS
            self._renewing = asyncio.get_running_loop().create_task(
                self._renew(owner.token), name="penstock.lease"
            )
        engine.tending.owned()
        self._clean = clean
        await engine.load_paused()
        await engine.queueing.load()
        await self._recover(clean=clean)
        if self._owned(owner.token) is None:
            return False  # taken over from while it was taking over
        await engine.outbox.own(head)
        await engine.tending.take()
        engine.requests.wake()
        return True

    async def _recover(self, *, clean: bool) -> None:
        """Take over all open runs; not to the end if another has become the owner meanwhile: what it has begun is not lost."""
        engine = self._engine
        token = 0 if engine.owner is None else engine.owner.token
        after = 0
        self.counts = {"runs": 0, "lost": 0}
        while True:
            rows: list[Row] = await engine.store.open_runs(after=after, limit=CHUNK)
            if not rows:
                break
            after = rows[-1].key
            for run_id, loaded in (await engine.history.load(rows)).items():
                entry = loaded
                if isinstance(entry, Entry) and entry.flow.run.closed:
                    entry = await self._fresh(run_id)  # its row was open: it may have gone on
                while isinstance(entry, Entry) and self._outdated(entry):
                    entry = await self._fresh(run_id)
                if self._owned(token) is None:
                    return
                if entry is None:
                    continue  # it has ended meanwhile
                if isinstance(entry, Exception):
                    log.error("run.unreadable", extra={"run": run_id, "error": str(entry)})
                    self._left = self._left or not clean
                    continue
                self.counts["runs"] += 1
                self._take(run_id, entry, clean=clean)
            if points.reach is not None:
                points.reach("recovery.chunk")
            while engine.backlog > CHUNK and engine.broken is None:  # noqa: ASYNC110  (the committer works it off)
                await asyncio.sleep(0.001)
        if self._owned(token) is None:
            return
        if points.reach is not None:
            points.reach("recovery.done")
        engine.recovered()
        self.recovered.set()
        if self.counts["runs"]:
            log.info("engine.recovered", extra=dict(self.counts))

    def _outdated(self, entry: Entry) -> bool:
        """This very process has written to the run since it was read; it may have left the memory again."""
        moved = self._engine.effects.moved.get(entry.row.id)
        return moved is not None and moved > (entry.row.generation, entry.row.revision)

    async def _fresh(self, run_id: str) -> Entry | Exception | None:
        """As it is stored now; None if it is not open any more."""
        engine = self._engine
        row = (await engine.store.find_newest([run_id])).get(run_id)
        if row is None or not row.open:
            return None
        return (await engine.history.load([row]))[run_id]

    def _take(self, run_id: str, entry: Entry, *, clean: bool) -> None:
        engine = self._engine
        engine.adopt(entry)
        now = engine.clock.now()
        if not clean:
            for effect in owed(entry.flow.run):
                if not isinstance(effect, Execute | Abandon):
                    continue
                undo = isinstance(effect, Execute) and effect.undo
                generation = entry.flow.run.generation
                ticket = (run_id, effect.key, effect.attempt, undo, generation)
                if not engine.attempts.known(ticket):
                    self.counts["lost"] += 1
                    lost = c.LoseTask(
                        at=now, key=effect.key, attempt=effect.attempt,
                        once=engine.attempts.once(entry, effect.key), undo=undo, generation=generation,
                    )  # fmt: skip
                    engine.attempts.hold(ticket)
                    engine.post(run_id, Item(lost, ticket=ticket))
        if points.reach is not None:
            points.reach("recovery.lost")
        if entry.flow.run.dues and entry.flow.run.dues[0][0] <= now:
            engine.post(run_id, Item(c.Wake(at=now)))
        engine.post(run_id, Item(None))
        parent = entry.flow.run.parent
        if parent is not None:
            engine.post(parent, Item(None))  # if it was terminated, it may still owe the news

    async def _renew(self, token: int) -> None:
        """The lease, whatever else the owner is at: a recovery of many runs, a look around, a store with a long line."""
        engine = self._engine
        seen = engine.clock.now()
        while self._owned(token) is not None:
            try:
                await engine.clock.sleep(RENEW_SECONDS)
                before, seen = seen, engine.clock.now()
                if seen - before > RENEW_SECONDS + SET_SECONDS:
                    engine.timers.look()  # the clock was set forth, or the machine slept
                owner = self._owned(token)
                if owner is not None:
                    asked = engine.clock.ticks()
                    pulse = self._pulse = await engine.store.pulse(owner)
                    if self._owned(token) is not None:
                        engine.owner = pulse.owner
                        engine.renewed(asked + LEASE_SECONDS)
            except Fenced as error:
                engine.lost_ownership(error)
            except StoreError as error:
                log.warning("owner.renew_failed", extra={"error": str(error)})
            finally:
                self._beat.set()

    def _owned(self, token: int) -> Owner | None:
        owner = self._engine.owner
        sound = self._engine.broken is None
        return owner if sound and owner is not None and owner.token == token else None

    async def _keep(self) -> None:
        engine = self._engine
        while True:
            owner = engine.owner
            if engine.broken is not None:
                await (
                    engine.store.close()
                )  # not a clean end: whoever stands by takes over and recovers
                return
            try:
                if owner is None:
                    await engine.clock.sleep(STANDBY_SECONDS)
                    self._claiming = asyncio.ensure_future(self._claim())
                    await asyncio.shield(self._claiming)
                    continue
                await self._beat.wait()
                self._beat.clear()
                pulse, self._pulse = self._pulse, None
                if engine.recovering and engine.owner is not None:
                    await self._recover(clean=self._clean)  # the store failed in the middle of it
                if engine.owner is not None and pulse is not None:
                    engine.newest.clear()  # another process may have registered a newer version
                    engine.take_globals(pulse.data)
                    # In turn, as an idle engine asks its store for little; who changes them sends a hint, too.
                    self._rounds += 1
                    if self._rounds % 2:
                        await engine.load_paused()
                    else:
                        await engine.queueing.load()
                    await self._look_around(pulse.head)
                    if pulse.requests:
                        await engine.requests.carry_out()
                    engine.retention.tick()
                    engine.roots.tick()
                    engine.following.tidy()
                    await engine.queueing.write_down()
                    await engine.outbox.tick()
                    await engine.routing.look_around()
                    await engine.tending.look_around()
            except Fenced as error:
                engine.lost_ownership(error)
            except StoreError as error:
                log.warning("owner.look_failed", extra={"error": str(error)})

    def _say_who_is_silent(self, owner: Owner | None) -> None:
        """An owner that is stopped, not dead. In the middle of a commit it holds up everybody: said once."""
        silent = (
            0.0 if owner is None or not owner.pid else self._engine.clock.now() - owner.renewed_at
        )
        if owner is not None and silent > LEASE_SECONDS and owner.token != self._silent:
            self._silent = owner.token
            log.warning(
                "engine.owner_silent: %s (process %s) owns the database and has not renewed its lease for %.0f s; this one"
                " takes over as soon as the database lets it",
                owner.node, owner.pid, silent,
            )  # fmt: skip

    async def _look_around(self, head: Position) -> None:
        """The safety net: events that others wrote and whose hint was lost."""
        engine = self._engine
        if head > engine.position:
            before, engine.position = engine.position, head
            await engine.effects.look(before, head + 1)
            engine.following.wrote(others=True)
