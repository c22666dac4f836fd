"""The committer: all that is ready, of many runs, makes one commit; only then may the world see it (SPEC 4.2).

One loop takes from the inbox, takes the turn of each run, appends what they gave, and lets `engine/effects.py` settle
it. What becomes of commands that could not be stored is said here too: another writer was first, the store failed, a
run's turn broke.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.values import encode
from penstock.engine import points
from penstock.engine.errands import AGAIN_SECONDS
from penstock.engine.history import Entry
from penstock.engine.holding import Taken
from penstock.engine.inbox import Item, abandon
from penstock.engine.sizes import COMMIT_BYTES_MAX, Packing, bytes_of
from penstock.errors import Fenced, PenstockError, RevisionConflict, StoreError
from penstock.model import commands as c
from penstock.model.codec import encode_event, plain_event
from penstock.model.events import Event
from penstock.model.packing import PACK_FROM_BYTES
from penstock.ports.store import Append, Appended

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

BATCH_RUNS_MAX = 1000
TRIES_MAX = 100
"""Times that a command is decided anew because another writer was first."""


class Commits:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inbox = engine.inbox
        self._cache = engine.cache
        self.batch: list[tuple[str, list[Item]]] = []
        """What is being committed."""
        self.again: list[tuple[str, Item]] = []
        """What the store could not take, until it is tried again."""
        self._token: int | None = None
        """Of the owner that took what is being committed; None if it was not the owner then (SPEC 4.8)."""

    async def run(self) -> None:
        """The loop: all that is ready makes one commit."""
        engine, inbox = self._engine, self._inbox
        try:
            while True:
                if engine.inside:
                    await engine.inside.commit()
                    if not inbox.ready:
                        continue
                if not inbox.ready:
                    await inbox.roused()
                    continue
                await self._commit()
                self.batch = []
        except Exception as error:
            engine.broken = error
            log.exception("engine.broken")
            self.abandon(error)

    def taking(self) -> None:
        """What is taken now is decided as the owner that this process is at this moment, whatever happens meanwhile: one
        that is taken over from before it writes must be refused."""
        owner = self._engine.owner
        self._token = None if owner is None else owner.token

    def owning(self) -> bool:
        """This process is the owner, at this moment, and may decide as one: what it does from here on is refused if it is
        taken over from before it writes, also if it became the owner only after it had taken the batch."""
        owner = self._engine.owner
        if owner is not None and self._token is None:
            self._token = owner.token
        return owner is not None

    async def _commit(self) -> None:
        engine = self._engine
        self.taking()
        ready, mail = self._inbox.ready, self._inbox.mail
        batch: list[tuple[str, list[Item]]] = []
        absent: list[str] = []
        heavy, put_off, holding = self._inbox.heavy, list[str](), engine.holding
        while ready and len(batch) < BATCH_RUNS_MAX:
            run_id = ready.popleft()
            if heavy.sizes and not heavy.takes(run_id):
                put_off.append(run_id)
                continue
            items = mail.pop(run_id, None)
            if items is not None and engine.owner is None:
                self._cache.pop(run_id, None)  # others write: what is in memory here may be old
                items = self._asked_for(items)
            if not items:
                continue
            batch.append((run_id, items))
            if run_id not in self._cache and not (holding and holding.has(run_id, items)):
                first = items[0]
                if first.tries or not isinstance(first.command, c.StartRun):
                    absent.append(run_id)
        if put_off:
            ready.extend(put_off)
        heavy.laden = 0
        if points.reach is not None:
            points.reach("commit.taken")
        self.batch = batch
        try:
            if engine.owner is None:
                await engine.load_globals()
            if absent:
                await engine.turns.load(absent)
        except StoreError as error:
            self.store_failed(batch, error)
            return
        await self._decide(batch)
        if len(self._cache) > engine.settings.cache_runs:
            self._evict()

    def _asked_for(self, items: list[Item]) -> list[Item]:
        """What somebody waits for. The rest this process did as the owner, which it is no longer: it counts no more."""
        past = [item for item in items if _of_owner(item)]
        if not past:
            return items
        self.fail(past, PenstockError("another process owns the database"))
        return [item for item in items if not _of_owner(item)]

    async def _decide(self, batch: list[tuple[str, list[Item]]]) -> None:
        """Take the turn of each run and write what they gave: in one commit, or in several if it is much."""
        appends: list[Append] = []
        taken: list[Taken] = []
        size, packing, take_turn = 0, Packing(), self._engine.turns.take
        holding = self._engine.holding
        together = {} if holding else self._engine.turns.take_together(batch)
        for place, (run_id, items) in enumerate(batch):
            held = holding.take(run_id, items) if holding else None
            if held is not None:
                entry, outcome, readings = held.entry, held.outcome, []
            else:
                made = together.pop(run_id, None) or await take_turn(run_id, items)
                if made is None:
                    continue
                entry, outcome, readings, items = made
            if outcome.events:
                payloads: list[bytes] = []
                blobs: dict[bytes, bytes] = {}
                try:
                    if held is not None:
                        gain = bytes_of(held.append.payloads, held.append.blobs)
                    else:
                        payloads = [plain_event(event) for event in outcome.events]
                        gain = sum(map(len, payloads))
                        if gain >= PACK_FROM_BYTES:
                            payloads, blobs = await packing.pack(outcome.events, payloads, gain)
                            gain = bytes_of(payloads, blobs)
                except Exception as error:
                    self.turn_failed(run_id, items, error)
                    continue
                if size + gain > COMMIT_BYTES_MAX and appends:
                    if not await self._write(taken, appends):
                        for each in (run_id, *together):
                            self._cache.pop(each, None)  # its turn was taken, for nothing
                        self._inbox.put_back([(run_id, items), *batch[place + 1 :]])
                        return
                    appends, taken, size = [], [], 0
                try:
                    appends.append(
                        self._append_with(entry, payloads, blobs) if held is None else held.append
                    )
                except Exception as error:
                    self.turn_failed(run_id, items, error)
                    continue
                size += gain
            elif entry.row.key == 0:
                self._cache.pop(run_id, None)  # a start that was refused leaves nothing behind
            taken.append((run_id, entry, items, outcome, readings))
        await self._write(taken, appends)

    async def _write(self, taken: Sequence[Taken], appends: list[Append]) -> bool:
        """One commit, and then all that follows from it; False if the store could not take it."""
        engine = self._engine
        results: list[Appended | Exception] = []
        if appends:
            if points.reach is not None:
                points.each("decided", taken)
                points.reach("append.before")
            try:
                results = await engine.store.append(appends)
            except StoreError as error:
                engine.holding.hold(taken, appends)
                self.store_failed([(run_id, items) for run_id, _, items, _, _ in taken], error)
                return False
            if points.reach is not None:
                points.reach("append.after")
                points.each("stored", taken)
        if (
            results
            and engine.owner is None
            and engine.hints is not None
            and not engine.hints.in_append
        ):
            await engine.tell_owner(
                [run_id for run_id, _, _, outcome, _ in taken if outcome.events]
            )
        place, settle = 0, engine.effects.settle
        for run_id, entry, items, outcome, readings in taken:
            if outcome.events:
                result = results[place]
                append = appends[place]
                place += 1
                if isinstance(result, Exception):
                    self._refused(run_id, items, result)
                    continue
                self.stored(entry, append, result)
                if self._cache.get(run_id) is not entry:
                    self._cache.pop(run_id, None)  # read meanwhile, from before this append
            settle(run_id, entry, items, outcome, readings)
        if appends and engine.following:
            engine.following.wrote()
        return True

    def append_of(self, entry: Entry, events: list[Event]) -> Append:
        """What the store is to append: the events, and the row as it is after them."""
        blobs: dict[bytes, bytes] = {}
        return self._append_with(entry, [encode_event(event, blobs) for event in events], blobs)

    def _append_with(
        self, entry: Entry, payloads: list[bytes], blobs: dict[bytes, bytes]
    ) -> Append:
        run, row = entry.flow.run, entry.row
        expected = row.revision
        row.status, row.revision, row.version = run.status, run.revision, run.version
        row.updated_at, row.ended_at = run.updated_at, run.ended_at
        row.paused, row.open = run.paused, run.ended_at is None
        row.next_due = run.dues[0][0] if run.dues else None
        if run.attributes is not entry.attributes and (run.attributes or expected):
            entry.attributes = run.attributes
            row.attributes = encode(run.attributes)
        if expected == 0:
            row.created_at, row.created_by, row.priority = (
                run.created_at,
                run.created_by,
                run.priority,
            )
            row.deadline = run.deadline
            if run.parent is not None:
                row.parent = f"{run.parent}\n{run.parent_key}"
        return Append(
            row=row, expected=expected, payloads=payloads, previous=entry.hash, blobs=blobs,
            token=self._token,
        )  # fmt: skip

    def stored(self, entry: Entry, append: Append, result: Appended) -> None:
        """The append is on disk."""
        engine = self._engine
        if append.expected == 0:
            engine.open_runs += 1
            if entry.flow.plan.runs_max is not None:
                engine.admission.joined(entry.flow.run)
            if engine.effects.taken is not None:
                engine.effects.taken.add(
                    entry.row.id
                )  # begun here, so that nothing of it was begun elsewhere
        if engine.effects.taken is not None:
            engine.effects.moved[entry.row.id] = entry.row.generation, entry.row.revision
        if not entry.row.open:
            engine.open_runs -= 1
        entry.row.key, entry.row.position, entry.hash = result.key, result.position, result.hash
        first = result.position - len(append.payloads) + 1
        if engine.owner is not None and first > engine.position + 1:
            engine.errands.run(
                engine.effects.look(engine.position, first)
            )  # others have written meanwhile
        if result.position > engine.position:
            engine.position = result.position
        entry.tail += len(append.payloads)
        for payload in append.payloads:
            entry.tail_bytes += len(payload)

    def turn_failed(self, run_id: str, items: list[Item], error: Exception) -> None:
        """A poison run is isolated: nothing of this turn is kept, the others go on. What nobody waits for (results of
        attempts) is tried once more, by itself."""
        self._cache.pop(run_id, None)
        log.error("run.turn_failed", extra={"run": run_id}, exc_info=error)
        for item in items:
            if item.future is not None:
                self.fail([item], error)
            elif item.command is not None and not item.tries:
                item.tries += 1
                self._inbox.post(run_id, item)
            else:
                self.fail([item], error)

    def _refused(self, run_id: str, items: list[Item], error: Exception) -> None:
        """Another writer was first: load anew, decide anew. A newer owner: nothing more is ours to do."""
        self._cache.pop(run_id, None)
        if isinstance(error, Fenced):
            self._engine.lost_ownership(error)
        elif not isinstance(error, RevisionConflict):
            self.fail(items, error)
            return
        for item in items:
            if isinstance(error, Fenced) and _of_owner(item):
                # What this process did as the owner counts no more; what it was asked for does.
                self.fail([item], error)
                continue
            item.tries += 1
            if item.tries > TRIES_MAX:
                self.fail([item], error)
            else:
                self._inbox.post(run_id, item)
        if self._engine.owner is not None:
            self._inbox.post(run_id, Item(None))

    def store_failed(self, taken: Sequence[tuple[str, list[Item]]], error: StoreError) -> None:
        """Nothing was written. Callers are told; what nobody waits for is kept and tried again. What is in memory is as it
        is on disk: what was decided and not written left it (`engine/holding.py`)."""
        told = all(item.future is not None for _, items in taken for item in items)
        log.log(
            logging.INFO if told else logging.ERROR, "store.failed", extra={"error": str(error)}
        )
        again = self.again
        if not again:  # else what failed before it brings this along, too
            self._engine.timers.after(AGAIN_SECONDS, self.post_again)
        for run_id, items in taken:
            for item in items:
                if item.future is not None:
                    if not item.future.done():
                        item.future.set_exception(error)
                elif item.command is not None:
                    again.append((run_id, item))
            again.append((run_id, Item(None)))  # one, however often the store has failed

    def post_again(self) -> None:
        """What the store could not take is tried once more."""
        again, self.again = self.again, []
        for run_id, item in again:
            self._inbox.post(run_id, item)

    @property
    def untold(self) -> bool:
        """Something happened here that could not be stored: whoever comes next must not take our end for a clean one."""
        return (
            self._engine.broken is not None
            or bool(self.batch)
            or any(item.command is not None for _, item in self.again)
        )

    def fail(self, items: list[Item], error: Exception) -> None:
        """They were not done, and are not tried again."""
        for item in items:
            if item.ticket is not None:
                self._engine.attempts.told(item.ticket)
            if item.future is not None and not item.future.done():
                item.future.set_exception(error)

    def abandon(self, error: BaseException) -> None:
        """Nothing more will be committed."""
        self._inbox.abandon(error)
        for _, items in self.batch:
            abandon(items, error)
        self._engine.observers.abandon(error)

    def _evict(self) -> None:
        """Runs that only wait leave the memory, the oldest first."""
        engine = self._engine
        excess = len(self._cache) - engine.settings.cache_runs
        passive = [
            run_id
            for run_id in self._cache
            if not engine.attempts.busy(run_id)
            and run_id not in self._inbox.mail
            and not engine.observers.watched(run_id)
        ]
        for run_id in passive[: max(excess, engine.settings.cache_runs // 10)]:
            del self._cache[run_id]
            engine.programs.forget(run_id)


def _of_owner(item: Item) -> bool:
    """Only an owner says this: nobody asked for it, or it is that an attempt begins."""
    command = item.command
    return command is not None and (item.future is None or isinstance(command, c.StartTask))
