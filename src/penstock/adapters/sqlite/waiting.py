"""Waiting without standing still: a busy database is tried again from the loop, slow reads have a thread."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from random import random
from typing import TypeVar

from penstock.adapters.sqlite.database import Locked, translated
from penstock.errors import StoreLocked

PAUSE_SECONDS_FIRST = 0.0005
PAUSE_SECONDS_MAX = 0.02

T = TypeVar("T")


class Patience:
    """How long, and how often, a busy database is tried again; the loop goes on meanwhile."""

    def __init__(self, path: str, *, seconds_max: float) -> None:
        self.busy = 0
        """How often it was."""
        self._path = path
        self._seconds_max = seconds_max

    async def until_done(
        self,
        work: Callable[[], T],
        *,
        thread: Executor | None = None,
        hurry: Callable[[], None] = lambda: None,
    ) -> T:
        """Do it, here or in a thread; raises StoreLocked once it was busy for too long.

        Work in a thread is never left behind: who is cancelled meanwhile calls `hurry` and waits for its end.
        """
        loop = asyncio.get_running_loop()
        begun, pause = None, PAUSE_SECONDS_FIRST
        while True:
            try:
                if thread is not None:
                    return await _whole(loop.run_in_executor(thread, work), hurry)
                return work()
            except Locked as error:
                self.busy += 1
                now = loop.time()
                begun = now if begun is None else begun
                left = begun + self._seconds_max - now
                if left <= 0:
                    raise StoreLocked(
                        f"{self._path} stayed locked for {self._seconds_max:g} s; nothing was written",
                        hint="which other program has a transaction open on it?",
                    ) from error
            # Not in step with others that wait for the same.
            await asyncio.sleep(min(pause * (0.5 + random()), left))
            pause = min(pause * 1.6, PAUSE_SECONDS_MAX)


async def _whole(future: asyncio.Future[T], hurry: Callable[[], None]) -> T:
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        hurry()
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # seen: who was cancelled is not told what became of it
        raise


class Aside:
    """A connection with a thread of its own, for reads that may take long: the loop never waits for one."""

    def __init__(self, db: sqlite3.Connection, path: str, patience: Patience) -> None:
        self._db = db
        self._path = path
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite-reads")
        self._turn = asyncio.Lock()  # one at a time, so that nobody interrupts another's

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def attempt() -> T:
            try:
                return work(self._db)
            except sqlite3.Error as error:
                raise translated(error, self._path) from error

        async with self._turn:
            return await self._patience.until_done(
                attempt, thread=self._thread, hurry=self._db.interrupt
            )

    def close(self) -> None:
        self._db.interrupt()
        self._thread.shutdown()
        self._db.close()
