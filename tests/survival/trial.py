"""A plugin of pytest that runs, for each mutant in a process of its own, the tests that touch its function, the quickest first.

All that is imported and collected is so once: a mutant costs a fork, and the tests until the first that fails.
"""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from survival import switch

SPARE_SECONDS, SPARE_TIMES = 3, 5
"""What a test may take in seconds of processor, over what it takes without a mutant."""
WALL_TIMES = 15
SPARE_BYTES = 2 << 30


class Verdict(NamedTuple):
    mutant: str
    verdict: str
    """killed, survived, timeout, suspicious (the process died), or no tests"""
    by: str
    """The test that failed."""
    tests: int
    seconds: float


class Trial:
    def __init__(self, mutants: list[str], tell: Callable[[Verdict], None]) -> None:
        self.mutants, self.tell = mutants, tell
        self.items: list[pytest.Item] = []
        self.seconds: list[float] = []
        self.touching: dict[str, list[int]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests can't be collected")
        self.items = session.items
        gc.collect()
        gc.freeze()
        self._survey()
        for mutant in self.mutants:
            self.tell(self._judge(mutant))
        return True

    def _survey(self) -> None:
        """Every test once, without a mutant: what it takes, and which functions of core/ it touches."""
        read, write = os.pipe()
        child = os.fork()
        if not child:
            with _last_act(), os.fdopen(write, "w") as out:
                json.dump(self._surveyed(), out)
        os.close(write)
        with os.fdopen(read) as told:
            text = told.read()
        os.waitpid(child, 0)
        if not text:
            raise pytest.UsageError("the survey without a mutant died")
        for number, (seconds, passed, names) in enumerate(json.loads(text)):
            if not passed:
                raise pytest.UsageError(f"{self.items[number].nodeid} fails without a mutant")
            self.seconds.append(seconds)
            for name in names:
                self.touching.setdefault(name, []).append(number)
        print(f"{len(self.items)} tests, {sum(self.seconds):.1f} s", file=sys.stderr)

    def _surveyed(self) -> list[tuple[float, bool, list[str]]]:
        told: list[tuple[float, bool, list[str]]] = []
        codes, seen = switch.CODES, set[str]()

        def touched(frame: Any, what: str, _: object) -> None:
            if what == "call" and frame.f_code in codes:
                seen.add(codes[frame.f_code])

        for item, following in zip(self.items, [*self.items[1:], None], strict=True):
            seen.clear()
            sys.setprofile(touched)
            began = time.process_time()
            passed = _passes(item, following)
            sys.setprofile(None)
            told.append((time.process_time() - began, passed, sorted(seen)))
        return told

    def _place(self, number: int) -> tuple[bool, float]:
        """The core's own tests first, and the quickest of them."""
        return "/core/" not in self.items[number].nodeid, self.seconds[number]

    def _judge(self, mutant: str) -> Verdict:
        numbers = sorted(self.touching.get(switch.function_of(mutant), ()), key=self._place)
        if not numbers:
            return Verdict(mutant, "no tests", "", 0, 0.0)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            with _last_act(), os.fdopen(write, "w") as out:
                _limit_memory()
                switch.become(mutant)
                for number, following in zip(numbers, [*numbers[1:], None], strict=True):
                    _limit_time(self.seconds[number])
                    after = None if following is None else self.items[following]
                    if not _passes(self.items[number], after):
                        out.write(self.items[number].nodeid)
                        out.flush()
                        os._exit(1)
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            by = told.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        verdict = {0: "survived", 1: "killed", 2: "killed"}.get(code, "suspicious")
        if code in (-signal.SIGPROF, -signal.SIGALRM):
            verdict = "timeout"
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Verdict(mutant, verdict, by, len(numbers), round(spent, 2))


class _last_act:
    """What a forked process does and then ends, whatever happens, with 2 where an exception leaves it."""

    def __enter__(self) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        os._exit(2 if kind else 0)


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + SPARE_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_time(usual: float) -> None:
    seconds = SPARE_SECONDS + SPARE_TIMES * usual
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(math.ceil(seconds * WALL_TIMES))


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))
