"""The event loop in which a workflow function runs: time is that of the history, order is that of the calls.

It never waits and does no I/O. `asyncio.sleep`, `timeout` and whatever else asks it for a later moment get a durable timer;
sockets, threads and processes are refused with what to use instead. Nothing in it depends on addresses or hashes: tasks
and futures hash by their number, so that sets of them (`asyncio.wait`, `TaskGroup`) have the same order everywhere, and
where asyncio puts coroutines into a set (`as_completed`) they keep the order in which they were given.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import builtins
import sys
from collections.abc import Iterable, Sequence
from contextvars import Context, copy_context
from itertools import islice
from math import isfinite
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from zlib import crc32

from msgspec import Struct

from penstock.errors import Nondeterminism, Rejected

if TYPE_CHECKING:
    from penstock.sdk.main import Main

_running = asyncio._get_running_loop  # pyright: ignore[reportPrivateUsage]
run_in = asyncio._set_running_loop  # pyright: ignore[reportPrivateUsage]
enter_task, leave_task = asyncio.tasks._enter_task, asyncio.tasks._leave_task  # pyright: ignore
PARKED = object()
"""Given by a coroutine that waits for a step of the run."""
_get_hooks, _set_hooks = sys.get_asyncgen_hooks, sys.set_asyncgen_hooks
TASKS_KEPT = 32
CLOSES_MAX = 10
QUICK_MAX = 20_000
"""So much is done at one moment before its rounds are counted."""
ROUNDS_MAX = 100_000


class Numbered:
    """Hashes by the order in which it was made."""

    __slots__ = ()
    number: int

    def __hash__(self) -> int:
        return self.number


class Future(Numbered, asyncio.Future[Any]):
    __slots__ = ("number",)

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop=loop)
        self.number = loop.next_number()

    __hash__ = Numbered.__hash__


class Task(Numbered, asyncio.Task[Any]):
    __slots__ = ("number",)

    def __init__(self, coro: Any, loop: Loop, name: str | None, context: Context | None) -> None:
        self.number = loop.next_number()
        super().__init__(coro, loop=loop, name=name or f"task#{self.number}", context=context)

    __hash__ = Numbered.__hash__


class Soon(Struct, eq=False):
    """Something to be called, as asyncio's own Handle, with less around it."""

    _callback: Any
    _args: tuple[Any, ...]
    _context: Any
    _cancelled: bool = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled


class Timer(asyncio.TimerHandle):
    """Something for later: a durable timer of the run."""

    key = ""

    def cancel(self) -> None:
        if not self.cancelled():
            super().cancel()

    def __hash__(self) -> int:
        return hash(self.key)


class Timers(Protocol):
    """Who keeps what is for later."""

    def arm(self, timer: Timer) -> None: ...
    def disarm(self, timer: Timer) -> None: ...
    def exited(self, error: BaseException) -> None: ...


class Stage:
    """Where functions go on, one at a time: the loop around, which runs this, stands still meanwhile.

    To take it and to leave it costs as much as a step. Many that go on one after the other may share it: `with stage`,
    within which nothing but functions is asked for the loop that runs."""

    __slots__ = ("_around", "hooks", "shared")

    def __init__(self) -> None:
        self._around: Any = None
        self.hooks: Any = None
        """Those of the loop around, while a function is on it."""
        self.shared = False

    def __enter__(self) -> None:
        self.shared = True

    def __exit__(self, *_: object) -> None:
        self.shared = False
        if self.hooks is not None:
            self.leave()

    def take(self) -> None:
        hooks = self.hooks = _get_hooks()
        # The hook of the loop around knows that loop. To ask asyncio for it asks, up to Python 3.11, the system for the
        # process's number, and a system call costs more than a step.
        first: Any = hooks[0]
        if type(first) is MethodType and isinstance(first.__self__, asyncio.AbstractEventLoop):
            self._around = first.__self__
        else:
            self._around = _running()
        _set_hooks(_ignore, _ignore)

    def leave(self) -> None:
        hooks, around = self.hooks, self._around
        self.hooks = self._around = None
        run_in(around)
        _set_hooks(*hooks)


class Loop(asyncio.AbstractEventLoop):
    """See the module's docstring."""

    # As they are of nearly all, and until they are not: hundreds are in memory at once.
    first: Main | None = None
    """Goes on before all else, as its step has ended."""
    now = 0.0
    thread = 0
    """In which it runs, while it does."""
    endless: Sequence[Any] = ()
    """The task that was about to go on when it had gone on for too long."""
    unheard: Sequence[dict[str, Any]] = ()
    """What nobody was there to hear: an exception in a callback."""
    _gathered = 0
    _tasks: Sequence[Task] = ()
    _tasks_max = TASKS_KEPT

    def __init__(self, name: str, timers: Timers, stage: Stage) -> None:
        self.ready: list[Soon | Timer] = []
        """In order; a list that is walked while it grows, as a deque costs 600 bytes a run."""
        self._timers: Timers | None = timers
        self.stage = stage
        # asyncio keeps the tasks of all loops in one set: those of two runs must not fall on one place there.
        self.count = crc32(name.encode()) << 24

    def next_number(self) -> int:
        self.count += 1
        return self.count

    def next_gathered(self) -> int:
        """Numbers of their own: those of tasks are as they were in histories from before."""
        self._gathered += 1
        return self._gathered

    def run(self) -> None:
        """Until nothing is left to do at this moment."""
        ready = self.ready
        try:
            first = self.first
            if first is not None:
                self.first = None
                first.context.run(first.go_on)
            if ready and self._carry_out(islice(ready, QUICK_MAX)) and len(ready) > QUICK_MAX:
                self._go_round(ready)
        finally:
            ready.clear()

    def _carry_out(self, handles: Iterable[Any]) -> bool:
        """False if the function has ended the process, as it believes."""
        for handle in handles:
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio ends the process; this is the end of the one run.
                assert self._timers is not None
                self._timers.exited(error)
                return False
            except BaseException as error:
                self.default_exception_handler({"exception": error})
        return True

    def _go_round(self, ready: list[Any]) -> None:
        """It is much: so many tasks, or a circle that waits for nothing and would keep the engine from all else."""
        del ready[:QUICK_MAX]
        for _ in range(ROUNDS_MAX):
            if not ready:
                return
            batch = ready.copy()
            ready.clear()
            if not self._carry_out(batch):
                return
        self.endless = [getattr(each._callback, "__self__", None) for each in ready[:1]]

    def abandon(self, main: Main | None) -> None:
        """What is left of the function ends here and now: not when the collector likes, and not in another loop, where
        what it wants while it ends would be begun."""
        self.first = None
        left: list[Task] = []
        if self._tasks:
            left = [each for each in self._tasks if not each.done()]
            self._tasks = ()
        if left or not (main is None or main.done()):  # mostly the function has ended
            around = _running()
            run_in(self)
            try:
                for task in reversed(left):
                    task._log_destroy_pending = False  # pyright: ignore
                    _close(task.get_coro())
                if main is not None:
                    _close(main.get_coro())
            finally:
                run_in(around)

    # --- what asyncio asks of a loop -------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = Soon(callback, args, copy_context() if context is None else context)
        self.ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = Timer(when, callback, args, self, context)
        if when <= self.now:
            self.ready.append(timer)
        elif not isfinite(when):
            if when != when:
                raise Rejected("time-invalid", "a function cannot wait for NaN seconds")
            # For ever: `timeout(math.inf)` is none. What nothing else ends is a deadlock, and is told as one.
        else:
            assert self._timers is not None
            self._timers.arm(timer)
        return timer

    def fire(self, timer: Timer) -> None:
        """Its time has come."""
        self.ready.append(timer)

    def _timer_handle_cancelled(self, handle: Timer) -> None:
        if handle.key and self._timers is not None:
            self._timers.disarm(handle)

    def create_future(self) -> asyncio.Future[Any]:
        return Future(self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = Task(coro, self, name, context)
        tasks = self._tasks
        if isinstance(tasks, list):
            tasks.append(task)
        else:
            tasks = self._tasks = [task]
        if len(tasks) > self._tasks_max:
            self._tasks = [each for each in tasks if not each.done()]
            self._tasks_max = TASKS_KEPT + 2 * len(self._tasks)
        return task

    get_debug: Any = staticmethod(bool)  # False, without a call of Python's: every future asks

    def set_debug(self, enabled: bool) -> None:
        pass

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def close(self) -> None:
        """It is over; what holds it together is let go."""
        self.ready.clear()
        self._timers = None

    def get_exception_handler(self) -> None:
        return None

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        if isinstance(self.unheard, list):
            self.unheard.append(context)
        else:
            self.unheard = [context]

    call_exception_handler = default_exception_handler

    # --- what would make the function depend on the world ----------------------------------------------------

    def call_soon_threadsafe(self, *args: Any, **named: Any) -> NoReturn:
        raise _outside("a thread", "do it in an activity")

    def run_in_executor(self, *args: Any, **named: Any) -> NoReturn:
        raise _outside(
            "a thread (asyncio.to_thread, run_in_executor)",
            "a plain `def` activity runs in a thread",
        )

    def no_socket(self, *args: Any, **named: Any) -> NoReturn:
        raise _outside("a socket", "do it in an activity")

    def no_process(self, *args: Any, **named: Any) -> NoReturn:
        raise _outside("a process", "do it in an activity")

    def _no_loop(self, *args: Any, **named: Any) -> NoReturn:
        raise _outside("an event loop of its own", "await it, or do it in an activity")

    run_forever = run_until_complete = stop = _no_loop


for _name in (
    "getaddrinfo", "getnameinfo", "create_connection", "create_server", "create_unix_connection", "create_unix_server",
    "create_datagram_endpoint", "connect_accepted_socket", "connect_read_pipe", "connect_write_pipe", "add_reader",
    "add_writer", "remove_reader", "remove_writer", "sendfile", "start_tls", "sock_accept", "sock_connect", "sock_recv",
    "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendfile", "sock_sendto",
):  # fmt: skip
    setattr(Loop, _name, Loop.no_socket)
for _name in ("subprocess_exec", "subprocess_shell", "add_signal_handler", "remove_signal_handler"):
    setattr(Loop, _name, Loop.no_process)


def _set(items: Any = ()) -> Any:
    """`set` as `asyncio.tasks` knows it: of coroutines, which hash by their address, in our loop one that keeps their order."""
    if type(_running()) is Loop:
        given = list(items)
        if any(map(asyncio.iscoroutine, given)):
            return dict.fromkeys(given)
        return builtins.set(given)
    return builtins.set(items)


def _gathered_hash(gathered: Any) -> int:
    """What `asyncio.gather` gives, by the order in which it was first asked for."""
    loop = gathered._loop
    if type(loop) is not Loop:
        return object.__hash__(gathered)
    number: int | None = getattr(gathered, "number", None)
    if number is None:
        number = gathered.number = loop.next_gathered()
    return number


# Not the names in `asyncio`, which whoever imported them before has as they were.
setattr(asyncio.tasks, "set", _set)  # noqa: B010
setattr(asyncio.tasks._GatheringFuture, "__hash__", _gathered_hash)  # noqa: B010  # pyright: ignore


def _close(coroutine: Any) -> None:
    for _ in range(CLOSES_MAX):
        try:
            coroutine.close()
        except BaseException:  # it waits for something while it ends: once more
            continue
        return


def _outside(what: str, instead: str) -> Nondeterminism:
    return Nondeterminism(f"workflow code uses {what}", hint=instead)


def _ignore(*_: Any) -> None:
    """Async generators of a function end with it."""
