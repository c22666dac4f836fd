"""Catches, while tests run, what would make workflow code nondeterministic: the clock, chance, sockets, files, threads,
processes, changed globals (SPEC 2.8).

It looks at every call that workflow code makes, through Python's profiler, which is far too slow for production; what it
finds is raised at the line, and counted even if the code catches it.
"""

from __future__ import annotations

import _thread
import asyncio
import builtins
import datetime
import gc
import inspect
import math
import os
import platform
import random
import re
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dis import opname
from types import CodeType, FrameType, FunctionType
from typing import Any

from penstock.errors import Nondeterminism, PenstockError, Rejected
from penstock.sdk.context import Context
from penstock.sdk.keeping import Keeping
from penstock.sdk.loop import Loop as Turns
from penstock.sdk.setloops import Loop, disordered, loops_in
from penstock.sdk.workflow import CODES, MARKED, entry_of, name_of

_CLOCK = "`ctx.now()` is the time of what woke the function"
_CHANCE = "`ctx.random` falls the same way each time, `ctx.uuid()` too"
_WORLD = "do it in an activity"

_CALLS: dict[int, tuple[str, str]] = {}
"""Built-in functions by identity: what they are, and what to use instead."""
for _module, _names, _what, _instead in (
    (time, ("clock_gettime", "clock_gettime_ns", "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime", "gmtime", "ctime", "process_time", "thread_time"), "the clock", _CLOCK),
    (time, ("sleep",), "a blocking sleep", "`await asyncio.sleep(…)` is a durable timer"),
    (os, ("urandom", "getrandom"), "chance", _CHANCE),
    (os, ("system", "fork", "listdir", "scandir", "stat", "lstat", "getcwd", "remove", "unlink", "rename", "replace", "mkdir", "rmdir", "open"), "the operating system", _WORLD),
    (os, ("getpid", "getppid", "uname", "putenv", "unsetenv"), "the process", _WORLD),
    (_thread, ("start_new_thread",), "a thread", "a plain `def` activity runs in a thread"),
    (sqlite3, ("connect",), "a database", _WORLD),
    (socket, ("gethostname", "getaddrinfo", "gethostbyname"), "the network", _WORLD),
    (builtins, ("open", "input"), "a file", _WORLD),
):  # fmt: skip
    for _name in _names:
        if hasattr(_module, _name):
            _CALLS[id(getattr(_module, _name))] = (f"{_module.__name__}.{_name}: {_what}", _instead)

_CODES: dict[CodeType, tuple[str, str]] = {}
"""Python functions of the standard library by their code."""
for _function, _what, _instead in (
    (uuid.uuid1, "uuid.uuid1: chance", _CHANCE),
    (uuid.uuid4, "uuid.uuid4: chance", _CHANCE),
    (secrets.token_bytes, "secrets: chance", _CHANCE),
    (threading.Thread.start, "a thread", "a plain `def` activity runs in a thread"),
    (subprocess.Popen.__init__, "a process", _WORLD),
    (socket.socket.__init__, "a socket", _WORLD),
    (socket.create_connection, "a socket", _WORLD),
    (socket.getaddrinfo, "socket.getaddrinfo: the network", _WORLD),
    (platform.uname, "platform: the machine", _WORLD),
    (os.getenv, "os.getenv: the environment", "give it as an argument"),
    (type(os.environ).__getitem__, "os.environ: the environment", "give it as an argument"),
    (type(os.environ).__setitem__, "os.environ: the environment", _WORLD),
    (type(os.environ).__delitem__, "os.environ: the environment", _WORLD),
    (asyncio.run, "an event loop of its own", "await it, or do it in an activity"),
    # The loop of the function refuses these itself, without a line: it would stand in the history.
    (
        Turns.run_in_executor,
        "a thread (asyncio.to_thread, run_in_executor)",
        "a plain `def` activity runs in a thread",
    ),
    (Turns.no_socket, "a socket", _WORLD),
    (Turns.no_process, "a process", _WORLD),
):
    if isinstance(_function, FunctionType):
        _CODES[_function.__code__] = (_what, _instead)

BLOCKED_SECONDS = 5.0
"""So long may workflow code run, under the guard, before it awaits something."""
_SHARED: Any = random._inst  # pyright: ignore
"""What the functions of the module `random` draw from."""
_RANDOM = {each.__code__ for each in vars(random.Random).values() if isinstance(each, FunctionType)}
_SEEDING = random.Random.__init__.__code__
_STEP = Context.call.__code__
_QUIET = ("logging", "warnings", "traceback", "linecache", "importlib", "zoneinfo")
"""What these do is not the workflow's own doing."""
_NOW = frozenset({"now", "utcnow", "today"})


_AUDITED = {
    "open": "a file", "os.listdir": "the operating system", "os.scandir": "the operating system",
    "socket.__new__": "a socket", "subprocess.Popen": "a process", "sqlite3.connect": "a database",
}  # fmt: skip
"""What Python itself tells of, however it was asked for: `io.FileIO(…)` is no call that the profiler sees."""


class Guard:
    """Watches the code of one workflow function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._keeping = Keeping(function)
        self._file = function.__code__.co_filename
        self._loops = loops_in(self._file)
        self.found: list[PenstockError] = []
        self.unawaited: list[str] = []
        self._resting = False

    @contextmanager
    def watching(self) -> Generator[None]:
        """While the function goes on."""
        self._keeping.look()
        profiled, traced = sys.getprofile(), sys.gettrace()
        self._last: tuple[str, int] | None = None
        self._until = time.monotonic() + BLOCKED_SECONDS
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            sys.setprofile(self._called)
            if traced is None:
                sys.settrace(self._entered)
            try:
                with _audited(self):
                    yield
            finally:
                sys.setprofile(profiled)
                if traced is None:
                    sys.settrace(None)
                self._compare()
        for each in warned:
            self._warned(each)

    def excusing(self, make: Callable[[], Any]) -> Any:
        """What is made once, and recorded, may touch the world."""
        self._resting = True
        try:
            return make()
        finally:
            self._resting = False
            self._keeping.look()

    def _warned(self, warning: warnings.WarningMessage) -> None:
        """A coroutine of the workflow's own that it has not awaited; other warnings are as they were."""
        text = str(warning.message)
        if issubclass(warning.category, RuntimeWarning) and text.endswith("was never awaited"):
            self.unawaited.append(f"{text}, at {warning.filename}:{warning.lineno}")
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )

    # --- calls -----------------------------------------------------------------------------------------------

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._resting:
            return
        self._check_time(frame)
        if event == "c_call":
            found = _CALLS.get(id(argument)) or _method(argument) or _untimed(argument, frame)
        elif event == "call":
            if frame.f_code is _STEP:
                self._check_undo(frame.f_locals["named"].get("undo"), frame.f_back or frame)
            if frame.f_code in CODES and _is_activity(frame.f_code):
                self._find_call(frame)
            found = _CODES.get(frame.f_code)
            if found is None and frame.f_code in _RANDOM and frame.f_locals.get("self") is _SHARED:
                found = f"random.{frame.f_code.co_name}: chance", _CHANCE
            elif found is None and frame.f_code is _SEEDING and frame.f_locals.get("x") is None:
                found = "random.Random() without a seed: chance", _CHANCE
            frame = frame.f_back or frame
        else:
            return
        if found is None or _excused(frame):
            return
        what, instead = found
        self._find(f"workflow code uses {what}", instead, frame)

    def _find_call(self, frame: FrameType) -> None:
        """An activity is executed by the engine, and by nobody else; its caller may be the loop, as of a task."""
        caller, name = frame.f_back or frame, frame.f_code.co_name
        inside = _module_of(caller).startswith("penstock.") or _standard(caller)
        self._find(
            f"workflow code calls the activity `{name}` itself: it is done again each time its history is told",
            f"`await ctx.call({name}, …)` is a step", frame if inside else caller,
        )  # fmt: skip

    def _check_undo(self, undo: Any, frame: FrameType) -> None:
        """It gets the result and nothing else; otherwise that is found when the run fails, and stays for an operator."""
        if undo is None or isinstance(undo, str) or not callable(undo):
            return
        try:
            signature = inspect.signature(undo)
            connection = entry_of(undo).served.transactional
        except (TypeError, ValueError, PenstockError):
            return
        kept = [each for name, each in signature.parameters.items() if name != connection]
        try:
            signature.replace(parameters=kept).bind(None)
        except TypeError as wrong:
            name = name_of(undo)
            inside = _module_of(frame).startswith("penstock.")  # of `ctx.map`
            at = "" if inside else f", at {_place(frame)}"
            error: Any = Rejected(
                "activity-invalid",
                f"`undo={name}` is called with the result, and `{name}` takes {signature}: {wrong}{at}",
                hint="an activity that undoes takes one argument: `ctx.undo(activity, …)` gives it any",
            )
            error.details = {"hint": error.hint}
            self.found.append(error)
            raise error from None

    def _check_time(self, frame: FrameType) -> None:
        """It must give way: in production nothing else happens while it does not."""
        if time.monotonic() > self._until and not _excused(frame):
            self._until = math.inf
            self._find(
                f"workflow code has blocked for {BLOCKED_SECONDS:g} s without awaiting anything",
                "do what takes long in an activity", frame,
            )  # fmt: skip

    def _find(self, message: str, hint: str, frame: FrameType) -> None:
        place = _place(frame)
        error = Nondeterminism(f"{message}, at {place}", hint=hint, place=place)
        self.found.append(error)
        raise error

    # --- globals ---------------------------------------------------------------------------------------------

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self._file:
            return None
        frame.f_trace_opcodes = True  # a loop on one line, which calls nothing, has no other events
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode" and not self._resting:
            self._check_time(frame)
        elif event in ("line", "return") and not self._resting:
            self._check_time(frame)
            self._compare()
            if event == "line" and frame.f_lineno in self._loops:
                self._check_loop(self._loops[frame.f_lineno], frame)
            self._last = (
                f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}",
                0,
            )
        return self._line

    def _check_loop(self, loop: Loop, frame: FrameType) -> None:
        if disordered(loop, frame.f_locals, frame.f_globals):
            self._find(
                f"workflow code wants steps in the order of the set `{loop.code:.80}`, which is another in each process",
                f"`sorted({loop.code:.80})` has one order", frame,
            )  # fmt: skip

    def heard(self, event: str, arguments: Any) -> None:
        """Python tells of something that touches the world; time zones are the same everywhere."""
        frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
        zones = event == "open" and "zoneinfo" in str(arguments[0])
        if not self._resting and not zones and not _excused(frame):
            self._find(f"workflow code uses {_AUDITED[event]} ({event})", _WORLD, frame)

    def _compare(self) -> None:
        path = self._keeping.changed()
        if path is None:
            return
        where = "" if self._last is None else self._last[0]
        name = re.split(r"[.\[(]", path)[0]
        what = (
            f"the default `{path}`" if path.endswith("=…)")
            else f"the global `{name}`" + ("" if path == name else f", in `{path}`")
        )  # fmt: skip
        error = Nondeterminism(
            f"workflow code changes {what}" + (f", at {where}" if where else ""),
            hint="keep it in the function's own variables, or give it to an activity", place=where,
        )  # fmt: skip
        self._keeping.look()
        self.found.append(error)


_watching: list[Guard] = []
"""The guard of the function that goes on now, in `_thread_of`."""
_thread_of = 0
_hooked = False


@contextmanager
def _audited(guard: Guard) -> Generator[None]:
    """A hook of Python's cannot be taken away: it is set once, and asks who watches."""
    global _hooked, _thread_of
    if not _hooked:
        _hooked = True
        sys.addaudithook(_hook)
    _thread_of = threading.get_ident()
    _watching.append(guard)
    try:
        yield
    finally:
        _watching.remove(guard)


def _hook(event: str, arguments: Any) -> None:
    if _watching and event in _AUDITED and threading.get_ident() == _thread_of:
        _watching[-1].heard(event, arguments)


def _method(argument: Any) -> tuple[str, str] | None:
    """Methods of built-in types that touch the world."""
    owner = getattr(argument, "__self__", None)
    name = getattr(argument, "__name__", "")
    if isinstance(owner, type):
        if name in _NOW and issubclass(owner, datetime.date):
            return f"{owner.__name__}.{name}: the clock", _CLOCK
        return None
    if owner is _SHARED:
        return f"random.{name}: chance", _CHANCE
    if isinstance(owner, random.SystemRandom):
        return f"random.SystemRandom.{name}: chance", _CHANCE
    if isinstance(owner, socket.socket):
        return f"a socket ({name})", _WORLD
    return None


def _untimed(argument: Any, frame: FrameType) -> tuple[str, str] | None:
    """They take the clock where no time is given; how many arguments there are is in the instruction that calls."""
    name = (
        "strftime" if argument is time.strftime else "asctime" if argument is time.asctime else ""
    )
    if not name:
        return None
    code, at = frame.f_code.co_code, frame.f_lasti
    given = code[at + 1] if opname[code[at]] in ("CALL", "PRECALL") else None
    return (f"time.{name}: the clock", _CLOCK) if given == (name == "strftime") else None


def _is_activity(code: CodeType) -> bool:
    """Nobody but activities has that code: that of a wrapper may be shared."""
    whose = [each for each in gc.get_referrers(code) if isinstance(each, FunctionType)]
    return all(each in MARKED for each in whose)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _excused(frame: FrameType) -> bool:
    """Asked by something that may: logging, the engine itself around the function, or the collector, which comes along
    anywhere."""
    collecting = {getattr(each, "__code__", None) for each in gc.callbacks}
    cursor: FrameType | None = frame
    while cursor is not None:
        if cursor.f_code in collecting or cursor.f_code.co_name == "__del__":
            return True
        module = _module_of(cursor)
        if module.split(".")[0] in _QUIET or module.startswith("penstock."):
            return True
        if cursor.f_code.co_name == "<module>":
            return True  # a module that is imported just now
        if not _standard(cursor):
            return False  # the workflow's own code, or a library that it uses
        cursor = cursor.f_back
    return True


def _standard(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith((_STANDARD, "<frozen ")) and "site-packages" not in file


_STANDARD = os.path.dirname(os.__file__)


def _place(frame: FrameType) -> str:
    """The line of the workflow, not that of the library which it called."""
    cursor: FrameType | None = frame
    while cursor is not None and _standard(cursor):
        cursor = cursor.f_back
    cursor = cursor or frame
    return f"{cursor.f_code.co_filename}:{cursor.f_lineno} in {cursor.f_code.co_name}"
