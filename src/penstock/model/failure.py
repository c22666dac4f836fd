"""An exception as data, with its cause: what a history keeps of what went wrong."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

MESSAGE_CHARACTERS_MAX = 4000
CAUSES_MAX = 8
FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
"""The file, line and function of a frame in a trace."""


class Failure(Struct, frozen=True, omit_defaults=True):
    """Why a task or a run failed."""

    code: str
    """One of ours (`timeout`, `poison`, `outcome-unknown`, `no-branch`, …) or `error` for an exception."""
    message: str = ""
    type: str = ""
    """The exception's class name, if it was one; retry policies may name it."""
    key: str = ""
    """The task it came from."""
    details: Any = None
    trace: str = ""
    """The last lines of the traceback."""
    cause: Failure | None = None

    @property
    def text(self) -> str:
        """What it says; an exception without a text (`assert x`) says its type."""
        return self.message or self.type or self.code

    @property
    def typed(self) -> str:
        """What it says, after its type."""
        return f"{self.type}: {self.message}" if self.type and self.message else self.text

    @property
    def place(self) -> str:
        """The line that raised it, where its trace says so."""
        frames = FRAME.findall(self.trace)
        return "{}:{} in {}".format(*frames[-1]) if frames else ""

    @property
    def hint(self) -> str | None:
        """What to do about it, where its details say so."""
        details: Any = self.details
        found = details.get("hint") if hasattr(details, "get") else None
        return found if isinstance(found, str) else None


def failure_of(error: BaseException, *, code: str | None = None, trace: str = "") -> Failure:
    """The exception and its causes, innermost last, each bounded."""
    chain: list[BaseException] = []
    cursor: BaseException | None = error
    while cursor is not None and len(chain) < CAUSES_MAX and cursor not in chain:
        chain.append(cursor)
        cursor = cursor.__cause__ or (None if cursor.__suppress_context__ else cursor.__context__)
    failure: Failure | None = None
    for each in reversed(chain):
        own = getattr(each, "code", None)
        failure = Failure(
            code=own if isinstance(own, str) and own else "error",
            message=str(each)[:MESSAGE_CHARACTERS_MAX],
            type=type(each).__name__,
            details=getattr(each, "details", None),
            cause=failure,
        )
    assert failure is not None
    return Failure(
        code=code or failure.code,
        message=failure.message,
        type=failure.type,
        details=failure.details,
        trace=trace[-MESSAGE_CHARACTERS_MAX:],
        cause=failure.cause,
    )
