"""Transactional activities: what one writes and its result are one transaction, the append its last statement (SPEC 4.3).

The committer takes such a result between two commits, decides it alone, and lets the transaction append it. Killed before
the commit, neither is there, and the attempt is lost; after it, both are. Refused, it is rolled back and the attempt lost
as well, never charged. Where a transaction holds the store's one write lock (SQLite) the whole attempt is one step of the
event loop, within its time limit: application code in the loop that waits for that lock would else wait for ever.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from penstock.engine import points
from penstock.engine.inbox import Item
from penstock.errors import Fenced, PenstockError, Rejected, StoreError
from penstock.model import commands as c
from penstock.model.events import Event, TaskCompleted, UndoCompleted
from penstock.model.failure import failure_of
from penstock.model.job import Broken, Cut, Done, Job, Outcome
from penstock.ports.store import Appended
from penstock.ports.transactions import Transaction

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

LIMIT_SECONDS = 5.0
"""For an activity that holds the write lock, if it names no timeout; below the owner's lease."""
AGAIN_SECONDS = 0.5


class Result:
    """What an attempt gave, and the open transaction that it belongs to."""

    def __init__(self, item: Item, lost: c.LoseTask, transaction: Transaction) -> None:
        self.item, self.lost, self.transaction = item, lost, transaction


class Inside:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: deque[Job] = deque()
        """Attempts that wait for the write lock."""
        self._open = 0
        """Those with a transaction of their own that have not reported."""
        self._results: deque[tuple[str, Result]] = deque()

    def __bool__(self) -> bool:
        """The committer has something to do here."""
        return bool(self._results or self._jobs)

    @property
    def busy(self) -> bool:
        """Something is under way that the committer may hear of."""
        return bool(self._results or self._jobs or self._open)

    def check(self) -> None:
        """Every transactional activity is one that this store can serve."""
        transactions = self._engine.store.transactions
        for name in self._engine.activities.names():
            served = self._engine.activities.get(name)
            if served is None or not served.transactional:
                continue
            if transactions is None:
                raise Rejected(
                    "activity-invalid",
                    f"activity `{name}` is transactional, and this store has no transactions to give it",
                    hint="open sqlite:///file.db or postgresql://…",
                )
            if transactions.activities == "def" and served.kind == "loop":
                raise Rejected(
                    "activity-invalid",
                    f"activity `{name}` is transactional and `async def`: SQLite's one write lock is not held over an await",
                    hint="write it as a plain `def`",
                )
            if transactions.activities == "async" and served.kind != "loop":
                raise Rejected(
                    "activity-invalid",
                    f"activity `{name}` is transactional and a plain `def`: on PostgreSQL it gets an asyncpg connection",
                    hint="write it as `async def`",
                )

    # --- beginning -------------------------------------------------------------------------------------------

    def begin(self, job: Job) -> None:
        engine = self._engine
        transactions = engine.store.transactions
        assert transactions is not None
        if transactions.activities == "async":
            self._open += 1
            engine.errands.run(self._beside(job))
            return
        if job.start_to_close is None:
            job.start_to_close = LIMIT_SECONDS
        self._jobs.append(job)
        engine.inbox.rouse()

    async def _beside(self, job: Job) -> None:
        """A transaction of its own beside all others; the committer sees it when the activity has returned."""
        engine = self._engine
        transaction = await self._begun(job)
        if transaction is None:
            self._open -= 1
            engine.attempts.report(job, Cut())
            return
        job.connection = transaction.connection
        if points.reach is not None:
            points.reach("inside.begun")
        engine.activities.begin(job, partial(self._returned, transaction))

    async def _begun(self, job: Job) -> Transaction | None:
        engine = self._engine
        transactions = engine.store.transactions
        assert transactions is not None
        while not engine.stopping and engine.owner is not None:
            try:
                return await transactions.begin(seconds_max=job.start_to_close or 0)
            except StoreError as error:
                log.warning("transaction.waits", extra={"run": job.run_id, "error": str(error)})
                await engine.clock.sleep(AGAIN_SECONDS)
        return None

    def _returned(self, transaction: Transaction, job: Job, outcome: Outcome) -> None:
        self._engine.errands.run(self._over(transaction, job, outcome))

    async def _over(self, transaction: Transaction, job: Job, outcome: Outcome) -> None:
        try:
            await self._finished(transaction, job, outcome)
        finally:
            self._open -= 1

    async def _finished(self, transaction: Transaction, job: Job, outcome: Outcome) -> None:
        outcome = await self._settled(transaction, job, outcome)
        if isinstance(outcome, Done) and self._engine.owner is not None:
            self._engine.attempts.report(job, outcome, transaction)
        else:
            await transaction.roll_back()
            self._engine.attempts.report(job, outcome)

    async def _settled(self, transaction: Transaction, job: Job, outcome: Outcome) -> Outcome:
        """What the activity gave, unless its writes cannot stand."""
        if points.reach is not None:
            points.reach("inside.returned")
        if isinstance(outcome, Done):
            try:
                await transaction.ready()
            except Exception as error:
                final = isinstance(error, Rejected)
                served = self._engine.activities.get(job.activity)
                retry = None if served is None else served.retry
                return Broken(failure_of(error), retry, final=final, logs=outcome.logs)
        return outcome

    # --- what the committer does -----------------------------------------------------------------------------

    def put(self, run_id: str, item: Item, lost: c.LoseTask, transaction: Transaction) -> None:
        self._results.append((run_id, Result(item, lost, transaction)))
        self._engine.inbox.rouse()

    async def commit(self) -> None:
        """One of those that wait; the committer's other work follows."""
        if self._results:
            await self._commit(*self._results.popleft())
        elif self._jobs:
            await self._perform(self._jobs.popleft())

    async def _perform(self, job: Job) -> None:
        """The whole attempt inside of one commit of its own."""
        engine = self._engine
        transactions = engine.store.transactions
        assert transactions is not None
        if engine.stopping or engine.owner is None:
            engine.attempts.report(job, Cut())
            return
        try:
            transaction = await transactions.begin(seconds_max=job.start_to_close or LIMIT_SECONDS)
        except StoreError as error:
            log.warning("transaction.waits", extra={"run": job.run_id, "error": str(error)})
            engine.timers.after(AGAIN_SECONDS, self.begin, job)
            return
        job.connection = transaction.connection
        if points.reach is not None:
            points.reach("inside.begun")
        try:
            # Nothing from here to the commit gives the loop to anybody else.
            await self._finished(transaction, job, engine.activities.perform(job))
            while (
                self._results
            ):  # its own: nobody else makes any here, and nobody commits before it
                await self._commit(*self._results.popleft())
        except BaseException:
            await transaction.roll_back()
            raise

    async def _commit(self, run_id: str, result: Result) -> None:
        engine, item, transaction = self._engine, result.item, result.transaction
        complete = item.command
        assert isinstance(complete, c.CompleteTask)
        whole = False
        engine.commits.taking()
        try:
            if engine.owner is None:  # done as the owner, which this process is no longer
                whole = True
                engine.commits.fail([item], PenstockError("another process owns the database"))
                return
            made = await engine.turns.take(run_id, [item])
            if made is None:
                return
            entry, outcome, readings, _ = made
            if not _completes(complete, outcome.events):
                await (
                    transaction.roll_back()
                )  # it is refused, or a failure: nothing of its writes stays
                whole = True
                if not outcome.events:
                    engine.effects.settle(run_id, entry, [item], outcome, readings)
                    return
                append = engine.commits.append_of(entry, outcome.events)
                (stored,) = await engine.store.append([append])
            else:
                append = engine.commits.append_of(entry, outcome.events)
                if points.reach is not None:
                    points.reach("inside.decided")
                stored = await transaction.append(append)
                if points.reach is not None:
                    points.reach("inside.committed")
            if isinstance(stored, Appended):
                whole = True
                engine.commits.stored(entry, append, stored)
                if engine.cache.get(run_id) is not entry:
                    engine.cache.pop(run_id, None)  # read meanwhile, from before this append
                engine.effects.settle(run_id, entry, [item], outcome, readings)
                if engine.following:
                    engine.following.wrote()
            else:
                self._refused(run_id, result, stored)
                whole = True
        except StoreError as error:
            self._refused(run_id, result, error)
            whole = True
        finally:
            if not whole:
                item.command = result.lost  # whoever took the item to try it again tells of a loss
            await transaction.roll_back()

    def _refused(self, run_id: str, result: Result, error: Exception) -> None:
        """Another writer was first, or the store failed: nothing of it stays, and the attempt is lost. The run is loaded
        anew: if the answer alone was lost, it is seen there that the task is complete."""
        engine, item = self._engine, result.item
        engine.cache.pop(run_id, None)
        if isinstance(error, Fenced):
            engine.lost_ownership(error)
            if item.ticket is not None:
                engine.attempts.told(item.ticket)
            return
        log.warning("transaction.refused", extra={"run": run_id, "error": str(error)})
        item.command = result.lost
        engine.post(run_id, item)
        engine.post(run_id, Item(None))


def _completes(command: c.CompleteTask, events: list[Event]) -> bool:
    """Whether it was decided that the attempt has done its task: only then do its writes count."""
    kind = UndoCompleted if command.undo else TaskCompleted
    return any(isinstance(event, kind) and event.key == command.key for event in events)
