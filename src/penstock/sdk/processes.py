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
from collections import deque
from collections.abc import Callable
from multiprocessing.spawn import get_executable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from penstock.model.failure import Failure
from penstock.model.job import Broken, Done, Job, Outcome
from penstock.model.payload import decode_payload
from penstock.sdk.child import BEAT, BEGUN, BROKEN, CALL, CANCEL, DONE, HEADER, Call, Setup
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
        settle: Callable[[W, Outcome], None],
        wanted: Callable[[W], bool],
    ) -> None:
        self._limit = limit
        self.begun, self.beat, self.settle, self._wanted = begun, beat, settle, wanted
        self._slots: set[Slot[W]] = set()
        self._idle: list[Slot[W]] = []
        self.waiting: deque[W] = deque()

    @property
    def count(self) -> int:
        return len(self._slots)

    def submit(self, work: W) -> None:
        self.waiting.append(work)
        self.next()

    def cancel(self, work: W) -> None:
        """Raise CancelledError inside the activity."""
        for slot in self._slots:
            if slot.work is work:
                slot.cancel()

    def kill(self, work: W) -> None:
        """End the child that executes it; its outcome is of no interest any more."""
        for slot in self._slots:
            if slot.work is work:
                slot.work = None
                slot.kill()

    async def close(self) -> None:
        self.waiting.clear()
        slots = list(self._slots)
        for slot in slots:
            slot.end()
        if slots:
            await asyncio.wait([slot.gone for slot in slots], timeout=CLOSE_SECONDS_MAX)

    def next(self) -> None:
        """Give what waits to whoever is free."""
        while self.waiting:
            if not self._wanted(self.waiting[0]):
                self.waiting.popleft()
                continue
            if self._idle:
                slot = self._idle.pop()
            elif len(self._slots) < self._limit:
                slot = Slot(self)
                self._slots.add(slot)
            else:
                return
            slot.execute(self.waiting.popleft())

    def free(self, slot: Slot[W]) -> None:
        self._idle.append(slot)
        self.next()

    def lost(self, slot: Slot[W]) -> None:
        self._slots.discard(slot)
        if slot in self._idle:
            self._idle.remove(slot)
        self.next()


class Slot(asyncio.Protocol, Generic[W]):
    """One child and the attempt that it executes."""

    def __init__(self, owner: Processes[W]) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._outbox: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd: int | None = None
        self._loaded: set[str] = set()
        self._number = 0
        self._begun = False
        self._ending = False
        self._killed_because = ""
        self._timer: asyncio.TimerHandle | None = None
        self._starting = self._loop.create_task(self._start(), name="penstock-child")
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.work: W | None = None

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
            failure = Failure(
                "bad-arguments", f"activity `{name}`: arguments that are no JSON: {error}"
            )
            self._loop.call_soon(self._end, Broken(failure, work.entry.served.retry, final=True))
            return
        if name in self._loaded:
            self._enter()
        else:
            self._timer = self._loop.call_later(START_SECONDS_MAX, self._too_slow)
        self._send(CALL, body)

    def cancel(self) -> None:
        self._send(CANCEL, msgspec.json.encode(self._number))

    def kill(self, because: str = "") -> None:
        self._killed_because = because
        process = self._process
        if process is None or process.poll() is not None:
            self._ending = True
            return
        # Its group, which is its own: what the activity has started ends with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def end(self) -> None:
        """No more work: an idle child goes by itself once its socket is closed, a busy one is killed."""
        self._ending = True
        if self.work is not None:
            self.work = None
            self.kill()
        elif self._transport is not None:
            self._transport.close()

    # What the child says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        for frame in self._outbox:
            transport.write(frame)
        self._outbox.clear()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            size, kind = HEADER.unpack_from(buffer)
            end = HEADER.size + size
            if len(buffer) < end:
                return
            body = bytes(buffer[HEADER.size : end])
            del buffer[:end]
            self._heard(kind, body)

    def _heard(self, kind: int, body: bytes) -> None:
        work = self.work
        if work is None:
            return
        if kind == BEGUN:
            self._loaded.add(work.entry.name)
            self._enter()
        elif kind == BEAT:
            self._owner.beat(work, decode_payload(body))
        elif kind == DONE:
            self._end(Done(body))
        elif kind == BROKEN:
            outcome = msgspec.json.decode(body, type=Broken)
            outcome.retry = work.entry.served.retry
            self._end(outcome)

    def _enter(self) -> None:
        self._stop_timer()
        if self.work is not None and not self._begun:
            self._begun = True
            self._owner.begun(self.work)

    def _end(self, outcome: Outcome) -> None:
        self._stop_timer()
        work, self.work = self.work, None
        if work is not None:
            self._owner.settle(work, outcome)
            if not self._ending:
                self._owner.free(self)

    # Its life.

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _spawn(theirs)
            ours.setblocking(False)
            if hasattr(os, "pidfd_open"):
                with contextlib.suppress(OSError):
                    self._pidfd = os.pidfd_open(self._process.pid)
                    self._loop.add_reader(self._pidfd, self._exited)
            if self._pidfd is None:
                self._timer_exit()
            self._outbox.insert(0, _frame(0, msgspec.json.encode(_setup())))
            await self._loop.create_unix_connection(lambda: self, sock=ours)
        except OSError as error:
            ours.close()
            log.error("child.not-started reason=%s", error)
            self._dead(f"no child process could be started: {error}", {})
            return
        if self._ending:
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # It has closed its socket or is dying; either way there is no way back.
        self._loop.call_later(LINGER_SECONDS, self._exited_or_killed)
        self._exited()

    def _timer_exit(self) -> None:
        """Without pidfds a look now and then: a socket that a grandchild holds open says nothing."""
        if not self.gone.done():
            self._exited()
            self._loop.call_later(EXIT_POLL_SECONDS, self._timer_exit)

    def _exited_or_killed(self) -> None:
        if not self.gone.done():
            self.kill(self._killed_because)
            self._exited()

    def _exited(self) -> None:
        process = self._process
        if self.gone.done() or process is None or process.poll() is None:
            return
        self._forget_pidfd()
        if self._transport is not None:
            # What it has sent before its end is still to be read.
            self._loop.call_later(LINGER_SECONDS, self._close_transport)
            return
        message, details = _epitaph(process.returncode)
        self._dead(self._killed_because or message, details)

    def _close_transport(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _dead(self, message: str, details: dict[str, Any]) -> None:
        self._ending = True
        self._stop_timer()
        self._forget_pidfd()
        if not self.gone.done():
            self.gone.set_result(None)
        work, self.work = self.work, None
        if work is not None:
            served = work.entry.served
            message = f"the child process of activity `{served.name}` {message}"
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
        if self._transport is None:
            self._outbox.append(frame)
        else:
            self._transport.write(frame)


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
        directory=directory,
        main_name=name,
        main_path=None if path is None else os.path.abspath(path),
    )


def _epitaph(status: int) -> tuple[str, dict[str, Any]]:
    if status >= 0:
        return f"ended with exit status {status}", {"exit_status": status}
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    return f"was killed by {name}", {"signal": name}
