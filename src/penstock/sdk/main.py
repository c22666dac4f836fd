"""The function itself in its loop: what asyncio has a Task for, driven by the program directly.

A step that the function's own coroutine awaits needs no future and no callback: the coroutine gives PARKED, and goes on
when the program has heard how the step ended. Whatever else it awaits, and whatever is asked of it, is as with a Task.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine
from contextvars import Context as Variables
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.sdk.loop import PARKED, Numbered, enter_task, leave_task

if TYPE_CHECKING:
    from penstock.sdk.loop import Loop


class Main(Numbered, asyncio.Future[Any]):
    """One coroutine, until it ends."""

    __slots__ = (
        "_cancels", "_coroutine", "_message", "_name", "_owner", "context", "error", "going", "number", "send", "stop", "value",
        "waits",
    )  # fmt: skip

    def __init__(self, loop: Loop, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        super().__init__(loop=loop)
        self._owner, self._coroutine, self._name = loop, coroutine, name
        self.send = coroutine.send
        self.number = loop.count = loop.count + 1
        self.context = Variables()
        self.waits: Any = None
        """PARKED, or the future that it waits for."""
        self.value: Any = None
        """How its step has ended: set by whoever makes it its loop's `first`."""
        self.error: BaseException | None = None
        self.going = False
        """It is at work, and no task of its loop is."""
        self.stop = False
        """It was cancelled while it waited for nothing: what it awaits next is given up."""
        self._message: Any = None
        self._cancels = 0

    __hash__ = Numbered.__hash__

    # --- going on --------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Until it waits, or ends; called within its context."""
        value, error = self.value, self.error
        self.value = self.error = self.waits = None
        if self.stop:
            self.stop = False
            if not isinstance(error, asyncio.CancelledError):
                error = self._cancelled()
        enter_task(self._owner, self)  # pyright: ignore
        self.going = True
        try:
            going = self._coroutine
            given = going.send(value) if error is None else going.throw(error)
        except StopIteration:
            self.end()
            return
        finally:
            self.going = False
            leave_task(self._owner, self)  # pyright: ignore
            error = None  # its trace has this frame
        self.gave(given)

    def gave(self, given: Any) -> None:
        """What it waits for now."""
        loop = self._owner
        if given is PARKED:
            self.waits = PARKED
        elif given is None:  # it lets the others go first
            loop.call_soon(self.go_on, context=self.context)
        elif given is self:
            self.error = RuntimeError(f"{self._name} awaits itself")
            loop.call_soon(self.go_on, context=self.context)
        elif getattr(given, "_asyncio_future_blocking", False) and given.get_loop() is loop:
            given._asyncio_future_blocking = False
            given.add_done_callback(self._hear, context=self.context)
            self.waits = given
        else:
            self.error = RuntimeError(f"{self._name} awaits {given!r}, which is none of its own")
            loop.call_soon(self.go_on, context=self.context)
        if self.stop and self.waits is not None and self._give_up():
            self.stop = False

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
        if self.waits is None or not self._give_up():
            self.stop = True
        return True

    def _give_up(self) -> bool:
        """What it waits for is not waited for any more; False if that has ended already."""
        if self.waits is not PARKED:
            return self.waits.cancel(msg=self._message)
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

    def end(self) -> None:
        super().set_result(None)

    def set_result(self, result: Any, /) -> NoReturn:
        raise RuntimeError("what a function returns is its result, and nothing else")

    def set_exception(self, exception: Any, /) -> NoReturn:
        raise RuntimeError("what a function raises is its exception, and nothing else")

    # Under these names libraries look at what a task of asyncio's waits for before they cancel it (anyio).

    @property
    def _must_cancel(self) -> bool:
        return self.stop

    @property
    def _fut_waiter(self) -> Any:
        return None if self.waits is PARKED else self.waits

    def get_stack(self, *, limit: int | None = None) -> list[FrameType]:
        frame = getattr(self._coroutine, "cr_frame", None)
        return [] if frame is None else [frame]

    def print_stack(self, *, limit: int | None = None, file: Any = None) -> None:
        for frame in self.get_stack():
            traceback.print_stack(frame, limit, file)

    def __repr__(self) -> str:
        return f"<Task {'finished' if self.done() else 'pending'} name={self._name!r} coro={self._coroutine!r}>"

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
