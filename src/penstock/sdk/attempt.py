"""What an activity sees of its own attempt: `current()`.

The same shape in the loop, in a thread and in a child process; how a heartbeat travels differs, and is the business
of whoever executes the attempt.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Any

from penstock.errors import Rejected
from penstock.model.job import Job
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX, decode_payload, encode_payload
from penstock.model.token import Token, token_text
from penstock.sdk.logs import Logs, line_of

_ATOMS = frozenset({str, int, bool, type(None)})


class Attempt:
    """One try of a task, seen from inside the activity."""

    __slots__ = ("cancelled", "job", "logs", "progress", "secrets")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.progress = job.progress
        """What the last heartbeat carried: of this attempt, or at its start of the one before."""
        self.cancelled = False
        """Set once the attempt is not wanted any more; a plain function should look at it and return."""
        self.secrets: dict[str, Any] | None = None
        self.logs: Logs | None = None
        """Made with the first line."""

    @property
    def run_id(self) -> str:
        return self.job.run_id

    @property
    def key(self) -> str:
        return self.job.key

    @property
    def attempt(self) -> int:
        return self.job.attempt

    @property
    def idempotency_key(self) -> str:
        """The same over all attempts of this task: hand it to whatever must not do a thing twice."""
        return self.job.idempotency_key

    @property
    def token(self) -> str:
        """Whoever has it can complete this attempt from outside, once the activity has raised `CompleteLater`."""
        job = self.job
        return token_text(Token(job.run_id, job.generation, job.key, job.attempt))

    def heartbeat(self, progress: Any = None) -> None:
        """Say that the attempt is alive; the next attempt gets `progress` if this one does not end well."""
        if type(progress) not in _ATOMS:
            # A copy, checked: the activity may go on changing its own.
            progress = decode_payload(encode_payload(progress, limit=INLINE_PAYLOAD_BYTES_MAX))
        self.progress = progress
        self.beat()

    def log(self, text: str) -> None:
        """Keep a line with the attempt, whatever the levels of `logging` are."""
        self.note("INFO", text if type(text) is str else str(text))

    def note(self, level: str, text: str) -> None:
        logs = self.logs
        if logs is None:
            logs = self.logs = Logs()
        logs.add(line_of(self.now(), level, text, self.secrets))

    def now(self) -> float:
        return time.time()

    def beat(self) -> None:
        """Carry `progress` to the engine."""
        raise NotImplementedError


CURRENT: ContextVar[Attempt | None] = ContextVar("penstock_attempt", default=None)


def current() -> Attempt:
    """The attempt that this code runs in; refused outside of an activity."""
    attempt = CURRENT.get()
    if attempt is None:
        raise Rejected(
            "no-attempt", "no activity is being executed here", hint="call it inside an activity"
        )
    return attempt
