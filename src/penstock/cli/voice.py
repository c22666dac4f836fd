"""What the engine logs, as lines of talk; with PENSTOCK_DEBUG=1 all of it, tracebacks too."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager

from penstock.cli.output import warn


class Voice(logging.Handler):
    """Says each thing once."""

    def __init__(self, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("definition.unproved"):
            return  # the command that registers it tells each finding with its place
        text = self._worded(record)
        if text not in self._said:
            self._said.add(text)
            warn(text)

    @staticmethod
    def _worded(record: logging.LogRecord) -> str:
        if record.getMessage().startswith("activity.unserved"):
            activity, run = getattr(record, "activity", "?"), getattr(record, "run", "?")
            return f"run {run} waits for a process that serves activity `{activity}`; --app says where it is"
        error = getattr(record, "error", "") or (record.exc_info[1] if record.exc_info else "")
        run = getattr(record, "run", "")
        return (
            f"{record.getMessage()}{f' (run {run})' if run else ''}{f': {error}' if error else ''}"
        )


def keep_infos() -> None:
    """Where the application configures no logging, what its activities log at INFO is still kept with the attempt.

    Python prints no more than before: its last resort begins at WARNING."""
    root = logging.getLogger()
    if not root.handlers and root.level == logging.WARNING:
        root.setLevel(logging.INFO)


@contextmanager
def heard() -> Generator[None]:
    """Let the engine speak through us meanwhile, and only if it must."""
    log = logging.getLogger("penstock")
    if os.environ.get("PENSTOCK_DEBUG"):
        logging.basicConfig(level=logging.INFO)
        yield
        return
    voice, before = Voice(), log.propagate
    log.addHandler(voice)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(voice)
        log.propagate = before
