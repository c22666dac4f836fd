"""Child processes for `cpu=True` activities: one per slot, so that a killed child harms nothing else.

Made on demand, kept for the next attempt, replaced when they die. The child's side, and the words between the two, are
in `sdk/child.py`. A child inherits no file of ours but its socket, and ends when we do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.spawn import get_executable
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from penstock.model.failure import Failure
from penstock.model.job import Broken, Done, Job, Outcome
from penstock.model.payload import decode_payload
from penstock.sdk.child import (
    BEAT,
    BEGUN,
    BROKEN,
    CALL,
    CANCEL,
    DONE,
    EXIT_SECONDS_MAX,
    HEADER,
    LOGGED,
    SETUP,
    Call,
    Setup,
)
from penstock.sdk.lines import Lines
from penstock.sdk.logs import Numbered
from penstock.sdk.workflow import Entry

log = logging.getLogger(__name__)

START_SECONDS_MAX = 60.0
"""For a child to start and import the activity's module; only then does the attempt's own time begin."""
LINGER_SECONDS = 0.25
"""Between a child's end and our last look at what it has sent, or the other way round."""
EXIT_POLL_SECONDS = 0.5
CLOSE_SECONDS_MAX = 2.0


class Work(Protocol):
    """What a slot must know of an attempt."""

    @property
    def job(self) -> Job: ...
    @property
    def entry(self) -> Entry: ...
    @property
    def secrets(self) -> dict[str, Any] | None: ...


W = TypeVar("W", bound=Work)


class Processes(Generic[W]):
    """`begun(work)` when its function is entered, `settle(work, outcome)` at its end; all in the loop."""

    def __init__(
        self,
        limit: int,
        *,
        begun: Callable[[W], None],
        beat: Callable[[W, Any], None],
        logged: Callable[[W, list[Numbered]], None],
        settle: Callable[[W, Outcome], None],
        wanted: Callable[[W], bool],
    ) -> None:
        self._limit = limit
        self.begun, self.beat, self.logged, self.settle = begun, beat, logged, settle
        self._wanted = wanted
        self._slots: set[Slot[W]] = set()
        self._idle: list[Slot[W]] = []
        self._closing = False
        self.waiting: Lines[W] = Lines()

    @property
    def count(self) -> int:
        return len(self._slots)

    def submit(self, work: W) -> None:
        """Run it in a child that is free or may be made, else in its turn."""
        self.waiting.put(work)
        self._next()

    def cancel(self, work: W) -> bool:
        """Raise CancelledError inside the activity; False if no child has it."""
        slot = self._slot_of(work)
        if slot is not None:
            slot.cancel()
        return slot is not None

    def kill(self, work: W) -> None:
        """End the child that executes it; how that ends is of no interest any more."""
        slot = self._slot_of(work)
        if slot is not None:
            slot.work = None
            slot.kill()

    async def close(self) -> None:
        self._closing = True
        self.waiting.clear()
        slots = list(self._slots)
        for slot in slots:
            slot.end()
        if slots:
            await asyncio.wait([slot.gone for slot in slots], timeout=CLOSE_SECONDS_MAX)

    def free(self, slot: Slot[W]) -> None:
        """The child has nothing to do."""
        self._idle.append(slot)
        self._next()

    def lost(self, slot: Slot[W]) -> None:
        """The child is no more."""
        self._slots.discard(slot)
        if slot in self._idle:
            self._idle.remove(slot)
        self._next()

    def _slot_of(self, work: W) -> Slot[W] | None:
        return next((slot for slot in self._slots if slot.work is work), None)

    def _next(self) -> None:
        """Give what waits to whoever is free."""
        while self.waiting and not self._closing:
            if not self._wanted(self.waiting.first()):
                self.waiting.pop()
                continue
            if self._idle:
                slot = self._idle.pop()
            elif len(self._slots) < self._limit:
                try:
                    slot = Slot(self)
                except OSError as error:
                    log.error("child.not-started children=%d reason=%s", len(self._slots), error)
                    if not self._slots:
                        self._refuse(self.waiting.pop(), error)
                    return
                self._slots.add(slot)
            else:
                return
            slot.execute(self.waiting.pop())

    def _refuse(self, work: W, error: OSError) -> None:
        """The system gives no process at all: not the activity's fault, and it may be tried again."""
        message = f"no child process could be started for activity `{work.entry.name}`: {error}"
        outcome = Broken(Failure("child-not-started", message), work.entry.served.retry)
        asyncio.get_running_loop().call_soon(self.settle, work, outcome)
        asyncio.get_running_loop().call_soon(self._next)


class Slot(asyncio.Protocol, Generic[W]):
    """One child and the attempt that it executes."""

    def __init__(self, owner: Processes[W]) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._loaded: set[str] = set()
        self._number = 0
        self._begun = False
        self._ending = False
        self._reason = ""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._connected = False
        self._outbox = [_frame(SETUP, msgspec.json.encode(_setup()))]
        self.work: W | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _spawn(theirs)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self._pidfd = self._watch()
        self._connecting = self._loop.create_task(self._connect(ours), name="penstock-child")

    def execute(self, work: W) -> None:
        self.work, self._begun = work, False
        self._number += 1
        function, name = work.entry.function, work.entry.name
        module = function.__module__
        file = getattr(sys.modules.get(module), "__file__", None)
        call = Call(self._number, module, function.__qualname__, file, work.job, work.secrets)
        try:
            body = msgspec.json.encode(call)
        except Exception as error:
            message = f"activity `{name}`: its arguments cannot be sent to a child process: {error}"
            outcome = Broken(
                Failure("arguments-invalid", message), work.entry.served.retry, final=True
            )
            self._loop.call_soon(self._end, outcome)
            return
        if name in self._loaded:
            self._enter()
        else:
            self._timer = self._loop.call_later(START_SECONDS_MAX, self._too_slow)
        self._send(CALL, body)

    def cancel(self) -> None:
        """Interrupt the activity; a child that was interrupted anywhere is not used again."""
        self._ending = True
        self._send(CANCEL, msgspec.json.encode(self._number))

    def kill(self, reason: str = "") -> None:
        """At once, with its group, which is its own: what the activity has started ends with it."""
        self._ending = True
        self._reason = reason
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()  # it may have left its group

    def end(self) -> None:
        """No more work: an idle child goes by itself once its socket is closed, a busy one is killed."""
        self._ending = True
        if self.work is not None:
            self.work = None
            self.kill()
        elif self._transport is not None:
            self._transport.close()
        else:
            self.kill()

    # What the child says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connected = True
        for frame in self._outbox:
            self._transport.write(frame)
        self._outbox.clear()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start, beat = 0, None
        while len(buffer) - start >= HEADER.size:
            size, kind = HEADER.unpack_from(buffer, start)
            end = start + HEADER.size + size
            if len(buffer) < end:
                break
            body = bytes(buffer[start + HEADER.size : end])
            start = end
            if kind == BEAT:
                beat = body  # of many that came together the last says it all
                continue
            self._beaten(beat)
            beat = None
            self._heard(kind, body)
        del buffer[:start]
        self._beaten(beat)

    def _beaten(self, beat: bytes | None) -> None:
        if beat is not None and self.work is not None:
            self._owner.beat(self.work, decode_payload(beat))

    def _heard(self, kind: int, body: bytes) -> None:
        work = self.work
        if work is None:
            return
        if kind == BEGUN:
            self._loaded.add(work.entry.name)
            self._enter()
        elif kind == LOGGED:
            self._owner.logged(work, msgspec.json.decode(body, type=list[Numbered]))
        elif kind == DONE:
            self._end(Done(body))
        elif kind == BROKEN:
            outcome = msgspec.json.decode(body, type=Broken)
            outcome.retry = work.entry.served.retry
            self._end(outcome)

    def _enter(self) -> None:
        """The activity's own time begins."""
        self._stop_timer()
        if self.work is not None and not self._begun:
            self._begun = True
            self._owner.begun(self.work)

    def _end(self, outcome: Outcome) -> None:
        self._stop_timer()
        work, self.work = self.work, None
        if work is None:
            return
        self._owner.settle(work, outcome)
        if self._ending:
            self.end()
        else:
            self._owner.free(self)

    # Its life.

    async def _connect(self, ours: socket.socket) -> None:
        await self._loop.create_unix_connection(lambda: self, sock=ours)

    def _watch(self) -> int | None:
        """Be told of its end, which its socket alone does not say while a grandchild holds it open."""
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(self._process.pid)
                self._loop.add_reader(pidfd, self._exited)
                return pidfd
        self._loop.call_later(EXIT_POLL_SECONDS, self._poll)
        return None

    def _poll(self) -> None:
        if not self.gone.done():
            self._exited()
            self._loop.call_later(EXIT_POLL_SECONDS, self._poll)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # It is dying, or has closed its socket; either way there is no way back.
        patience = EXIT_SECONDS_MAX if self._ending and self.work is None else LINGER_SECONDS
        self._loop.call_later(patience, self._overdue)
        self._exited()

    def _overdue(self) -> None:
        if not self.gone.done():
            self.kill(self._reason)

    def _exited(self) -> None:
        if self.gone.done():
            return
        if self.work is not None and self._process.returncode is None and _ended(self._process.pid):
            # Before it is waited for, while its number is certainly still its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.poll() is None:
            return
        self._forget_pidfd()
        if self._transport is None and self._connected:
            self._dead()
        else:
            # What it has sent before its end is still to be read.
            self._loop.call_later(LINGER_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _dead(self) -> None:
        self._ending = True
        self._stop_timer()
        self.gone.set_result(None)
        work, self.work = self.work, None
        if work is not None:
            served = work.entry.served
            happened, details = _epitaph(self._process.returncode)
            message = f"the child process of activity `{served.name}` {self._reason or happened}"
            failure = Failure("child-died", message, details=details)
            self._owner.settle(work, Broken(failure, served.retry, died=True))
        self._owner.lost(self)

    def _forget_pidfd(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _too_slow(self) -> None:
        self.kill(f"was not ready within {START_SECONDS_MAX:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, kind: int, body: bytes) -> None:
        frame = _frame(kind, body)
        if self._transport is not None:
            self._transport.write(frame)
        elif not self._connected:
            self._outbox.append(frame)


def _frame(kind: int, body: bytes) -> bytes:
    return HEADER.pack(len(body), kind) + body


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    descriptor = theirs.fileno()
    code = f"import sys; sys.path[:] = {sys.path!r}; from penstock.sdk.child import main; main({descriptor})"
    optimize = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    return subprocess.Popen(
        [os.fsdecode(get_executable()), *optimize, "-c", code],
        stdin=subprocess.DEVNULL,
        pass_fds=[descriptor],
        process_group=0,
    )


def _setup() -> Setup:
    """Where the parent's script is, for activities that live in it (as multiprocessing's spawn finds it)."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    path = getattr(main, "__file__", None) if name is None else None
    try:
        directory = os.getcwd()
    except OSError:
        directory = None
    return Setup(
        parent=os.getpid(),
        argv=list(sys.argv),
        log_level=logging.getLogger().level,
        directory=directory,
        main_name=name,
        main_path=None if path is None else os.path.abspath(path),
    )


def _ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _epitaph(status: int) -> tuple[str, dict[str, Any]]:
    if status >= 0:
        return f"ended with exit status {status}", {"exit_status": status}
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    return f"was killed by {name}", {"signal": name}
