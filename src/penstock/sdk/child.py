"""A child process that executes `cpu=True` activities, one at a time.

It is told what to call over one socket and answers over the same; `sdk/processes.py` is the other end. It ends when
that end is gone. Signals from a terminal or a service manager are the parent's to answer, which drains; only the
parent's own word, over the socket, cancels.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import os
import signal
import socket
import struct
import sys
import threading
import time
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from penstock.errors import Fail, Rejected
from penstock.model.job import Broken, Done, Job, Outcome
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX, encode_payload
from penstock.sdk.arguments import Parameters
from penstock.sdk.attempt import CURRENT, Attempt
from penstock.sdk.logs import LINES_MAX
from penstock.sdk.outcome import broken, perform
from penstock.sdk.tap import open_tap

HEADER = struct.Struct("!IB")
"""Length of the body, then what it is."""
SETUP, CALL, CANCEL, BEGUN, BEAT, DONE, BROKEN, LOGGED = range(8)

EXIT_SECONDS_MAX = 1.0
"""For an idle child to leave in good order once its parent has closed the socket."""
LOG_SECONDS = 0.05
"""Between two deliveries of log lines, once there are many."""
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h

_importing_main = False


class Setup(Struct):
    """What a child must know before its first call."""

    parent: int
    argv: list[str]
    directory: str | None
    log_level: int
    """Of the parent's root logger: what is logged here is let through as it is there."""
    main_name: str | None = None
    main_path: str | None = None


class Call(Struct):
    """One attempt, for a child."""

    number: int
    module: str
    qualname: str
    file: str | None
    job: Job
    secrets: dict[str, str] | None = None


class _ChildAttempt(Attempt):
    __slots__ = ("_child", "_noted", "_pid", "_told_at")

    def __init__(self, job: Job, secrets: dict[str, str] | None, child: Child) -> None:
        super().__init__(job)
        self.secrets = secrets
        self._child = child
        self._pid = os.getpid()
        self._noted = 0
        self._told_at = 0.0

    def beat(self) -> None:
        self._child.send(BEAT, encode_payload(self.progress, limit=INLINE_PAYLOAD_BYTES_MAX))

    def note(self, level: str, text: str) -> None:
        """Tell the parent at once, so that a killed child has said it; of a flood it is told now and then."""
        if os.getpid() != self._pid:
            return  # forked by the activity: the socket is not its own
        super().note(level, text)
        self._noted += 1
        now = time.monotonic()
        if self._noted <= LINES_MAX or now - self._told_at >= LOG_SECONDS:
            self._told_at = now
            self._child.send_logs(self, wait=False)


class Child:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._inbox: SimpleQueue[Call | None] = SimpleQueue()
        self._functions: dict[tuple[str, str], Parameters] = {}
        self._running: int | None = None
        self._unwanted: int | None = None
        self._attempt: _ChildAttempt | None = None
        _, body = self._receive()
        self._setup = msgspec.json.decode(body, type=Setup)

    def run(self) -> None:
        setup = self._setup
        sys.argv = setup.argv
        if setup.directory is not None:
            with contextlib.suppress(OSError):
                os.chdir(setup.directory)
        _end_with(setup.parent)
        signal.signal(signal.SIGINT, _ignore)
        signal.signal(signal.SIGTERM, self._interrupt)
        logging.getLogger().setLevel(setup.log_level)
        open_tap()
        threading.Thread(target=self._listen, name="penstock-parent", daemon=True).start()
        while (call := self._inbox.get()) is not None:
            self._execute(call)

    def send(self, kind: int, body: bytes = b"") -> None:
        # Blocked meanwhile: a cancel in the middle of a frame would leave half of it behind.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            with self._sending:
                self._connection.sendall(HEADER.pack(len(body), kind) + body)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def send_logs(self, attempt: Attempt, *, wait: bool) -> None:
        """What it has logged since the last time; without `wait` later, if the socket is in use."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            # Not waited for: a destructor may log while this very thread is sending.
            if self._sending.acquire(blocking=wait):
                try:
                    lines = [] if attempt.logs is None else attempt.logs.drain()
                    if lines:
                        body = msgspec.json.encode(lines)
                        self._connection.sendall(HEADER.pack(len(body), LOGGED) + body)
                finally:
                    self._sending.release()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _execute(self, call: Call) -> None:
        # The parent's cancel may strike between any two lines until `_running` is None again.
        try:
            try:
                self._running = call.number
                if self._unwanted == call.number:  # told before this thread had taken it
                    self._unwanted = None
                    raise asyncio.CancelledError
                outcome = self._perform(call)
            finally:
                self._running = None
        except BaseException as error:
            outcome = broken(call.job.activity, error, None, call.secrets)
        attempt, self._attempt = self._attempt, None
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        if attempt is not None:
            self.send_logs(attempt, wait=True)
        if isinstance(outcome, Done):
            self.send(DONE, outcome.output)
        else:
            assert isinstance(outcome, Broken)
            self.send(BROKEN, msgspec.json.encode(outcome))

    def _perform(self, call: Call) -> Outcome:
        parameters = self._functions.get((call.module, call.qualname))
        if parameters is None:
            parameters = self._functions[call.module, call.qualname] = self._load(call)
            self.send(BEGUN)
        self._attempt = attempt = _ChildAttempt(call.job, call.secrets, self)
        CURRENT.set(attempt)
        return perform(call.job.activity, parameters, call.job.arguments, call.secrets, None)

    def _load(self, call: Call) -> Parameters:
        try:
            found: Any = self._module(call)
            for name in call.qualname.split("."):
                found = getattr(found, name)
        except Rejected as error:
            raise Fail(f"{error.message}; {error.hint}", code=error.code) from error
        except (Exception, SystemExit) as error:
            message = f"a child process could not import {call.module}.{call.qualname}: {error!r}"
            raise ImportError(message) from error
        return Parameters(found)

    def _module(self, call: Call) -> Any:
        if call.module == "__main__":
            _load_main(self._setup)
        try:
            return importlib.import_module(call.module)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if call.file is None or not f"{call.module}.".startswith(f"{missing}."):
                raise
        # Loaded by its path in the parent, so its name alone does not find it.
        spec = importlib.util.spec_from_file_location(call.module, call.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{call.file} is no module")
        module = sys.modules[call.module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def _listen(self) -> NoReturn:
        try:
            while True:
                kind, body = self._receive()
                if kind == CALL:
                    self._inbox.put(msgspec.json.decode(body, type=Call))
                elif kind == CANCEL:
                    self._unwanted = msgspec.json.decode(body, type=int)
                    main = threading.main_thread().ident
                    assert main is not None
                    signal.pthread_kill(main, signal.SIGTERM)
        finally:
            # The parent is gone, or wants this child gone: nobody waits for what is being done here.
            if self._running is None:
                self._inbox.put(None)
                time.sleep(EXIT_SECONDS_MAX)
            with contextlib.suppress(OSError):
                if os.getpgid(0) == os.getpid():
                    os.killpg(0, signal.SIGKILL)
            os._exit(1)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._running is not None and self._running == self._unwanted:
            self._unwanted = None
            if self._attempt is not None:
                self._attempt.cancelled = True
            raise asyncio.CancelledError

    def _receive(self) -> tuple[int, bytes]:
        size, kind = HEADER.unpack(self._read(HEADER.size))
        return kind, self._read(size)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._connection.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)


def main(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    Child(connection).run()


def refuse_in_child() -> None:
    """A script without a guard would open a second engine when a child imports it."""
    if _importing_main:
        raise Rejected(
            "unguarded-main",
            "a child process imported the script for its `cpu=True` activities, and that started the engine again",
            hint='put what starts it under `if __name__ == "__main__":`',
        )


def _load_main(setup: Setup) -> None:
    """Import the parent's script as multiprocessing does: under another name, so that its guard holds."""
    global _importing_main
    from multiprocessing import spawn

    _importing_main = True
    try:
        if setup.main_name is not None:
            spawn.prepare({"init_main_from_name": setup.main_name})
        elif setup.main_path is not None:
            spawn.prepare({"init_main_from_path": setup.main_path})
    finally:
        _importing_main = False


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Not SIG_IGN, which programs started by an activity would inherit."""


def _end_with(parent: int) -> None:
    """Ask Linux to end this process together with its parent, even while C code holds the interpreter."""
    if sys.platform == "linux":
        with contextlib.suppress(Exception):
            import ctypes

            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
