"""Notices when the event loop is blocked, and by which activity or workflow function (SPEC 4.3).

A thread asks the loop for a sign of life now and then; where none comes it looks, from outside, at what the loop is
executing. An attempt pays nothing for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Collection, Sized
from types import FrameType
from typing import Any

from penstock.sdk.attempt import CURRENT, Attempt
from penstock.sdk.workflow import Entry

log = logging.getLogger(__name__)

_AROUND = (os.path.dirname(__file__), os.path.dirname(asyncio.__file__))
"""Code between the engine and the function's own lines."""
_REPLAY = os.path.join(os.path.dirname(__file__), "replay.py")
"""Not imported for this: a process may have no workflow functions."""
BLOCKED_SECONDS = 1.0
PROBE_SECONDS = 0.25


class Watchdog:
    """Logs `loop.blocked` after 1 s, and again each time the block has doubled."""

    def __init__(self, entries: Collection[Entry]) -> None:
        self._entries = entries
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._thread: threading.Thread | None = None
        self._ident = 0

    def open(self, loop: asyncio.AbstractEventLoop, busy: Sized) -> None:
        """Watch the loop of this thread whenever something is busy."""
        self._ident = threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=(loop, busy), name="penstock-watchdog", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._answered.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, busy: Sized) -> None:
        while not self._stop.wait(PROBE_SECONDS):
            if not busy and self._function() is None:
                continue
            self._answered.clear()
            asked = time.monotonic()
            try:
                loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:  # the loop is closed
                return
            patience = BLOCKED_SECONDS
            while not self._answered.wait(patience) and not self._stop.is_set():
                patience = time.monotonic() - asked
                try:
                    self._report(loop, patience)
                except (
                    Exception
                ):  # looking at a running stack from outside may fail; watching goes on
                    log.warning("loop.blocked seconds=%.1f", patience, exc_info=True)

    def _report(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        found = self._function()
        if found is not None:
            name, run_id, place = found
            log.warning(
                "loop.blocked seconds=%.1f workflow=%s run=%s at=%s", seconds, name, run_id, place
            )
            return
        frame = self._frame()
        task = asyncio.current_task(loop)
        attempt = None if task is None else _attempt_of(task)
        name = self._by_stack(frame) if attempt is None else attempt.job.activity
        log.warning(
            "loop.blocked seconds=%.1f activity=%s run=%s key=%s at=%s",
            seconds,
            name or "?",
            attempt.run_id if attempt else "?",
            attempt.key if attempt else "?",
            f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
            if frame
            else "?",
        )

    def _frame(self) -> FrameType | None:
        """Where the loop is now."""
        return sys._current_frames().get(self._ident)  # pyright: ignore[reportPrivateUsage]  (no other way)

    def _function(self) -> tuple[str, str, str] | None:
        """The workflow function that goes on, its run, and the line at which it is."""
        frame, place = self._frame(), ""
        while frame is not None:
            code = frame.f_code
            if code.co_name == "_go_on" and code.co_filename == _REPLAY:
                program: Any = frame.f_locals["self"]
                return program.workflow.name, program.run_id, place or "?"
            if not code.co_filename.startswith(_AROUND):
                place = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
            frame = frame.f_back
        return None

    def _by_stack(self, frame: FrameType | None) -> str | None:
        """An activity among the calls that the loop is inside of."""
        names = {getattr(each.function, "__code__", None): each.name for each in self._entries}
        while frame is not None:
            if frame.f_code in names:
                return names[frame.f_code]
            frame = frame.f_back
        return None


def _attempt_of(task: asyncio.Task[Any]) -> Attempt | None:
    """The attempt that the task, or the one that made it, executes."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    found = None if frame is None else frame.f_locals.get("execution")
    if isinstance(found, Attempt):
        return found
    context = getattr(task, "get_context", None)  # from Python 3.12 on
    return context().get(CURRENT) if context is not None else None
