"""Activities for child processes, which find them by the name of this module."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from penstock.errors import Fail
from penstock.sdk.worker import current
from penstock.sdk.workflow import activity


@dataclasses.dataclass
class Point:
    x: int
    y: int


@activity(cpu=True)
def pid(_: Any = None) -> int:
    return os.getpid()


@activity(cpu=True)
def echo(what: Any) -> Any:
    return what


@activity(cpu=True)
def norm(point: Point) -> int:
    return point.x**2 + point.y**2


@activity(cpu=True)
def misbehave(how: str) -> Any:
    match how:
        case "exit":
            os._exit(3)
        case "clean exit":
            os._exit(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "hang up":
            os.closerange(3, 256)
            return "whom could I tell?"
        case "raise":
            raise ValueError("wrong")
        case "fail":
            raise Fail("no", code="closed", details=[1])
        case "sys.exit":
            sys.exit(7)
        case "object":
            return object()
        case "fork and exit":
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            os._exit(5)
        case _:
            return how


@activity(cpu=True)
def orphan(note: str) -> None:
    """Die and leave a process behind."""
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(note).write_text(str(left.pid))
    os._exit(1)


@activity(cpu=True, timeout=5)
def spin(note: str, grandchild: bool = False) -> None:
    """Say who is here, then compute for ever."""
    pids = [os.getpid()]
    if grandchild:
        pids.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
    Path(note).write_text(" ".join(map(str, pids)))
    while True:
        pass


@activity(cpu=True)
def leaves(note: str) -> None:
    os.setpgid(0, os.getpgid(os.getppid()))
    Path(note).write_text(str(os.getpid()))
    time.sleep(60)


@activity(cpu=True)
def tidy(note: str) -> str:
    """Compute for ever; write down how it ended."""
    Path(note).touch()
    try:
        while True:
            pass
    finally:
        Path(note).write_text(f"cancelled={current().cancelled}")


@activity(cpu=True)
def deaf(note: str) -> None:
    """Does not let itself be cancelled."""
    while True:
        try:
            Path(note).touch()  # not before: it could be cancelled here
            time.sleep(60)
        except BaseException:
            continue


@activity(cpu=True, heartbeat=10)
def beats(pages: int) -> Any:
    attempt = current()
    for page in range(attempt.progress or 0, pages):
        attempt.heartbeat(page + 1)
    return [attempt.run_id, attempt.key, attempt.attempt, attempt.idempotency_key, attempt.progress]


@activity(cpu=True, heartbeat=10)
def silent(note: str) -> None:
    Path(note).touch()
    time.sleep(60)


@activity(cpu=True)
def files() -> list[str]:
    """What this process has open, beyond what the interpreter itself needs."""
    found: list[str] = []
    for number in range(3, 64):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return found


@activity(cpu=True)
def environment() -> Any:
    return [sys.argv, os.getcwd(), sys.stdin.read(), os.getpgid(0) == os.getpid()]


@activity(cpu=True)
def signalled(number: int) -> str:
    os.kill(os.getpid(), number)
    return "unharmed"


@activity(cpu=True)
def leak(password: str) -> None:
    raise ValueError(f"wrong password {password}")


@activity(cpu=True)
def speaks(what: str, secret: str = "") -> str:
    from unit.sdk.test_logs import say

    return say(what, secret)


@activity(cpu=True)
def last_words(how: str) -> None:
    logging.getLogger("shop").info("about to %s", how)
    misbehave(how)


@activity(cpu=True, timeout=5)
def endless(note: str) -> None:
    logging.getLogger("shop").info("for ever")
    Path(note).touch()
    while True:
        pass


@activity(cpu=True)
def forks() -> None:
    child = os.fork()
    if child == 0:
        logging.getLogger("shop").info("child")
        os._exit(0)
    os.waitpid(child, 0)
    logging.getLogger("shop").info("parent")
