"""Threads for plain functions: few, made on demand, and never in the way of an exit.

The loop decides who runs: it hands over only to a thread that is free and keeps the others waiting in their lines, so
that an attempt's time begins when its function does. A thread cannot be stopped: one that is past its timeout keeps
its place until it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from penstock.model.job import Outcome
from penstock.sdk.lines import Lines, Queued

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Queued)


class Threads(Generic[T]):
    """`perform(work)` is called in a thread, then `settle(work, outcome)` in the loop."""

    def __init__(
        self,
        limit: int,
        *,
        begun: Callable[[T], None],
        perform: Callable[[T], Outcome],
        settle: Callable[[T, Outcome], None],
        wanted: Callable[[T], bool],
    ) -> None:
        self._limit = limit
        self._begun, self._perform, self._settle, self._wanted = begun, perform, settle, wanted
        self._inbox: SimpleQueue[T | None] = SimpleQueue()
        self._returned: deque[tuple[T, Outcome]] = deque()
        self._waking = False
        self._idle = 0
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.waiting: Lines[T] = Lines()

    @property
    def count(self) -> int:
        return self._count

    @property
    def busy(self) -> int:
        return self._count - self._idle

    def submit(self, work: T) -> None:
        """Run it now if a thread is free or may be made, else in its turn."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._idle == 0 and self._count < self._limit:
            self._spawn()
        if self._idle and not self.waiting:
            self._hand_over(work)
        else:
            self.waiting.put(work)

    def close(self) -> None:
        """Free threads end; one that is inside an activity ends when that returns, or with the process."""
        self.waiting.clear()
        for _ in range(self._count):
            self._inbox.put(None)

    def _spawn(self) -> None:
        name = f"penstock-activity-{self._count + 1}"
        try:
            threading.Thread(target=self._main, name=name, daemon=True).start()
        except RuntimeError as error:
            # The system gives no more: those that exist take it in turn.
            log.warning("threads.refused count=%d reason=%s", self._count, error)
            return
        self._count += 1
        self._idle += 1

    def _hand_over(self, work: T) -> None:
        self._idle -= 1
        self._begun(work)
        self._inbox.put(work)

    def _main(self) -> None:
        while (work := self._inbox.get()) is not None:
            outcome = Context().run(self._perform, work)
            self._returned.append((work, outcome))
            del work, outcome
            # Appended before asked: whoever clears the flag sees what was appended before.
            if not self._waking:
                self._waking = True
                loop = self._loop
                assert loop is not None
                with contextlib.suppress(
                    RuntimeError
                ):  # the loop is closed: nobody is left to tell
                    loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._waking = False
        while self._returned:
            work, outcome = self._returned.popleft()
            self._idle += 1
            self._settle(work, outcome)
        while self._idle and self.waiting:
            work = self.waiting.pop()
            if self._wanted(work):
                self._hand_over(work)


class Beside:
    """One thread for calls that are waited for where they are made."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Outcome] | None] = SimpleQueue()
        self._answers: SimpleQueue[Outcome] = SimpleQueue()
        threading.Thread(target=self._main, name="penstock-transaction", daemon=True).start()

    def call(self, work: Callable[[], Outcome], seconds_max: float) -> Outcome | None:
        """None if it took longer: it still runs, and this thread is of no more use."""
        self._calls.put(work)
        try:
            return self._answers.get(timeout=seconds_max)
        except Empty:
            self._calls.put(None)
            return None

    def close(self) -> None:
        self._calls.put(None)

    def _main(self) -> None:
        while (work := self._calls.get()) is not None:
            self._answers.put(Context().run(work))
