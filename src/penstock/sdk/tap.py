"""Where records of `logging` are seen on their way: those of an attempt are kept with it.

At the record factory and not by a handler on the root logger. A handler there would switch off `logging.basicConfig` and
the last resort of whoever has configured nothing, would be thrown out by `dictConfig`, and would not see loggers that do
not propagate. What the levels of the application's loggers do not let through makes no record, and is not seen.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any

from penstock.sdk.attempt import CURRENT, Attempt

_OURS = "penstock"
_BUILT_IN = "http"
"""What its client logs of each request is in the task's output, or in its failure."""

_lock = threading.Lock()
_open = 0
_tap: Tap | None = None


class Tap:
    """A record factory around the one before it."""

    __slots__ = ("active", "previous")

    def __init__(self, previous: Callable[..., logging.LogRecord]) -> None:
        self.previous = previous
        self.active = True

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self.previous(*args, **kwargs)
        if self.active:
            attempt = CURRENT.get()
            if attempt is not None:
                # Whoever logs must not suffer from it, and logging why would begin anew.
                with contextlib.suppress(Exception):
                    _keep(attempt, record)
        return record


def open_tap() -> None:
    """Each worker that opens it closes it again."""
    global _open, _tap
    with _lock:
        _open += 1
        if _tap is None:
            _tap = Tap(logging.getLogRecordFactory())
            logging.setLogRecordFactory(_tap)


def close_tap() -> None:
    global _open, _tap
    with _lock:
        _open -= 1
        if _open or _tap is None:
            return
        tap, _tap = _tap, None
        tap.active = False  # someone may have put another factory around it
        if logging.getLogRecordFactory() is tap:
            logging.setLogRecordFactory(tap.previous)


def _keep(attempt: Attempt, record: logging.LogRecord) -> None:
    name, level = record.name, record.levelno
    # A record that is being unpickled has none of these yet.
    if type(level) is not int or level < logging.INFO or type(name) is not str:
        return
    if name == _OURS or name.startswith(f"{_OURS}.") or attempt.job.activity == _BUILT_IN:
        return
    try:
        text = record.getMessage()
    except Exception:  # its arguments do not fit; the application's own handlers say so
        text = str(record.msg)
    if record.exc_info and record.exc_info[1] is not None:
        text += "\n" + "".join(traceback.format_exception_only(record.exc_info[1])).rstrip()
    attempt.note(record.levelname, text)
