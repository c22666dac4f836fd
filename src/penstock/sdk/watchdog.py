"""Notices when the event loop is blocked, and by which activity (SPEC 4.3).

A thread asks the loop for a sign of life now and then; where none comes it looks, from outside, at what the loop is
executing. An attempt pays nothing for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Sized
from types import CodeType, FrameType
from typing import Any

from penstock.sdk.attempt import Attempt

log = logging.getLogger(__name__)

BLOCKED_SECONDS = 1.0
PROBE_SECONDS = 0.25


class Watchdog:
    """Logs `loop.blocked` after 1 s, and again each time the block has doubled."""

    def __init__(
        self,
        attempt_of: Callable[[asyncio.Task[Any]], Attempt | None],
        name_of: Callable[[CodeType], str | None],
    ) -> None:
        self._attempt_of, self._name_of = attempt_of, name_of
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._thread: threading.Thread | None = None
        self._ident = 0
        self.blocked = 0
        """How often the loop was found blocked."""

    def open(self, loop: asyncio.AbstractEventLoop, busy: Sized) -> None:
        """Watch the loop of this thread whenever something is busy."""
        self._ident = threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=(loop, busy), name="penstock-watchdog", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._stop.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, busy: Sized) -> None:
        while not self._stop.wait(PROBE_SECONDS):
            if not busy:
                continue
            self._answered.clear()
            asked = time.monotonic()
            try:
                loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:
                return
            patience = BLOCKED_SECONDS
            while not self._answered.wait(patience) and not self._stop.is_set():
                with contextlib.suppress(Exception):
                    self._report(loop, time.monotonic() - asked)
                patience = time.monotonic() - asked

    def _report(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        frame = sys._current_frames().get(self._ident)  # pyright: ignore[reportPrivateUsage]
        task = asyncio.current_task(loop)
        attempt = None if task is None else self._attempt_of(task)
        name = self._by_stack(frame) if attempt is None else attempt.job.activity
        self.blocked += 1
        log.warning(
            "loop.blocked seconds=%.1f activity=%s run=%s key=%s at=%s",
            seconds,
            name or "?",
            attempt.job.run_id if attempt else "?",
            attempt.job.key if attempt else "?",
            "?"
            if frame is None
            else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}",
        )

    def _by_stack(self, frame: FrameType | None) -> str | None:
        """An activity among the calls that the loop is inside of."""
        while frame is not None:
            name = self._name_of(frame.f_code)
            if name is not None:
                return name
            frame = frame.f_back
        return None
