"""What waits to be done to runs: commands and reads, by run, in the order in which the runs got something to do."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.core.flow import Flow
from penstock.core.plan import Plan
from penstock.engine.dispatch import Ticket
from penstock.engine.sizes import Heavy
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


class Inbox:
    """Of all runs; the committer (`engine/commits.py`) takes from it what is ready."""

    def __init__(self) -> None:
        self.mail: dict[str, list[Item]] = {}
        self.ready: deque[str] = deque()
        self.heavy = Heavy()
        self._idle: asyncio.Future[None] | None = None

    def __bool__(self) -> bool:
        return bool(self.ready or self.mail)

    def post(self, run_id: str, item: Item) -> None:
        """Put a command into a run's inbox."""
        mail = self.mail.get(run_id)
        if mail is not None:
            mail.append(item)
            return
        self.mail[run_id] = [item]
        self.ready.append(run_id)
        self.rouse()

    def rouse(self) -> None:
        """The committer has something to do."""
        idle = self._idle
        if idle is not None and not idle.done():
            idle.set_result(None)

    async def roused(self) -> None:
        """Until there is something to do."""
        self._idle = asyncio.get_running_loop().create_future()
        await self._idle
        self._idle = None

    def put_back(self, batch: Sequence[tuple[str, list[Item]]]) -> None:
        """Not come to: in front of what has come since, in the same order."""
        for run_id, items in reversed(batch):
            self.mail[run_id] = items + self.mail.get(run_id, [])
            self.ready.appendleft(run_id)

    def abandon(self, error: BaseException) -> None:
        """Nothing of it will be done."""
        for items in self.mail.values():
            abandon(items, error)
        self.mail.clear()
        self.heavy.sizes.clear()


def abandon(items: Sequence[Item], error: BaseException) -> None:
    """Whoever waits for one of them is told."""
    for item in items:
        if item.future is not None and not item.future.done():
            item.future.set_exception(error)
