"""The function itself in its loop: what asyncio has a Task for, driven by the program directly.

A step that the function's own coroutine awaits needs no future and no callback: the coroutine gives PARKED, and goes on
when the program has heard how the step ended. Whatever else it awaits, and whatever is asked of it, is as with a Task.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
from collections.abc import Coroutine
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any

from penstock.sdk.loop import Numbered

if TYPE_CHECKING:
    from penstock.sdk.loop import Loop

PARKED = object()
"""Given by a coroutine that waits for a step of the run."""
_enter, _leave = asyncio.tasks._enter_task, asyncio.tasks._leave_task  # pyright: ignore


class Main(Numbered, asyncio.Future[Any]):
    """One coroutine, until it ends."""

    __slots__ = (
        "_cancels", "_coroutine", "_message", "_name", "_owner", "_stop", "_waits", "context", "driven", "error", "number",
        "value",
    )  # fmt: skip

    def __init__(self, loop: Loop, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        super().__init__(loop=loop)
        self._owner, self._coroutine, self._name = loop, coroutine, name
        self.number = loop.next_number()
        self.context = Variables()
        self.driven = False
        """What runs at this moment is its own code."""
        self._waits: Any = None
        """PARKED, or the future that it waits for."""
        self.value: Any = None
        """How its step has ended: set by whoever makes it its loop's `first`."""
        self.error: BaseException | None = None
        self._stop = False
        """It was cancelled while it waited for nothing: what it awaits next is given up."""
        self._message: Any = None
        self._cancels = 0

    __hash__ = Numbered.__hash__

    # --- going on --------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Until it waits, or ends; called within its context."""
        loop, value, error = self._owner, self.value, self.error
        self.value = self.error = self._waits = None
        if self._stop:
            self._stop = False
            if not isinstance(error, asyncio.CancelledError):
                error = self._cancelled()
        _enter(loop, self)  # pyright: ignore
        self.driven = True
        try:
            going = self._coroutine
            given = going.send(value) if error is None else going.throw(error)
        except StopIteration as end:
            self.set_result(end.value)
            return
        finally:
            self.driven = False
            _leave(loop, self)  # pyright: ignore
            error = None  # its trace has this frame
        if given is PARKED:
            self._waits = PARKED
        elif given is None:  # it lets the others go first
            loop.call_soon(self.go_on, context=self.context)
        elif getattr(given, "_asyncio_future_blocking", False) and given.get_loop() is loop:
            given._asyncio_future_blocking = False
            given.add_done_callback(self._hear, context=self.context)
            self._waits = given
        else:
            self.error = RuntimeError(f"{self._name} awaits {given!r}, which is none of its own")
            loop.call_soon(self.go_on, context=self.context)
        if self._stop and self._waits is not None and self._give_up():
            self._stop = False

    def _hear(self, future: asyncio.Future[Any]) -> None:
        """What it waits for is done."""
        try:
            future.result()
        except BaseException as error:
            self.error = error
        self.go_on()

    # --- what is asked of a task -----------------------------------------------------------------------------

    def cancel(self, msg: Any = None) -> bool:
        if self.done():
            return False
        self._cancels += 1
        self._message = msg
        if self._waits is None or not self._give_up():
            self._stop = True
        return True

    def _give_up(self) -> bool:
        """What it waits for is not waited for any more; False if that has ended already."""
        if self._waits is not PARKED:
            return self._waits.cancel(msg=self._message)
        if self.error is not None:
            return False
        self.error = self._cancelled()
        self._owner.call_soon(self.go_on, context=self.context)
        return True

    def _cancelled(self) -> asyncio.CancelledError:
        return (
            asyncio.CancelledError()
            if self._message is None
            else asyncio.CancelledError(self._message)
        )

    def cancelling(self) -> int:
        return self._cancels

    def uncancel(self) -> int:
        if self._cancels > 0:
            self._cancels -= 1
        return self._cancels

    def get_coro(self) -> Coroutine[Any, Any, Any]:
        return self._coroutine

    def get_context(self) -> Variables:
        return self.context

    def get_name(self) -> str:
        return self._name

    def set_name(self, value: object) -> None:
        self._name = str(value)
