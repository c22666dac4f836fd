"""What waits to be done to a run: a command, or a read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.core.flow import Flow
from penstock.core.plan import Plan
from penstock.engine.dispatch import Ticket
from penstock.model import commands as c

Reader = Callable[[Flow], Any]


class Answer(Protocol):
    """Where the outcome goes: a future, or one for many."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


class Item:
    """A command or a read on its way to its run; without either, the run's owed effects are looked at anew."""

    __slots__ = ("command", "future", "plan", "read", "ticket", "tries")

    def __init__(
        self,
        command: c.Command | None,
        future: Answer | None = None,
        plan: Plan | None = None,
        read: Reader | None = None,
        ticket: Ticket | None = None,
    ) -> None:
        self.command, self.future, self.plan, self.read = command, future, plan, read
        self.ticket = ticket
        """The attempt that this tells of: nobody begins it while the news is on its way to the store."""
        self.tries = 0
