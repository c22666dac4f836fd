"""Lives of real processes, one after the other: started, killed, started again, until all runs have ended."""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from crash.judge import Verdict, judge
from crash.victim import ENDED, STOPPED, Orders
from support.postgres import Server

HERE = Path(__file__).resolve().parent
KILLED = -signal.SIGKILL
BIRTH_SECONDS_MAX = 60.0
"""On a busy machine the nursery imports the engine for many seconds."""
WAIT_SECONDS_MAX = 900
"""Longer than a life takes: one that is stuck says so itself (`victim.watch_over`), and where."""
WORDS_BYTES_MAX = 6000
LIVES_MAX = 12
"""After its kills a story gets so many lives to end; it should take one."""


class Stuck(Exception):
    """A life neither ended nor died in time."""


class Bell:
    """A pipe by name, on which processes say where they are."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._pipe = os.open(path, os.O_RDWR)  # so that who rings never waits
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pipe, selectors.EVENT_READ)

    def wait(self, seconds_max: float) -> bytes:
        if not self._selector.select(seconds_max):
            raise Stuck(f"nobody rang within {seconds_max:g} s")
        return os.read(self._pipe, 1000)

    def fileno(self) -> int:
        return self._pipe

    def close(self) -> None:
        self._selector.close()
        os.close(self._pipe)


class Nursery:
    """One process at a time, forked from one that has imported everything already."""

    def __init__(self, errors: Path, module: str = "crash.victim") -> None:
        self._errors = errors.open("ab")
        self._path, self._begun = errors, 0
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "nursery.py"), module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self.pid = 0

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(BIRTH_SECONDS_MAX)
        self._selector.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def bear(self, orders: msgspec.Struct) -> int:
        """Begin a life."""
        assert self._process.stdin is not None
        self._begun = self._path.stat().st_size
        self._process.stdin.write(msgspec.json.encode(orders) + b"\n")
        self._process.stdin.flush()
        self.pid = self._line(BIRTH_SECONDS_MAX)
        return self.pid

    def wait(self, seconds_max: float = WAIT_SECONDS_MAX) -> int:
        """The exit status, negative for a signal."""
        status = self._line(seconds_max)
        self.pid = 0
        return status

    def kill(self) -> None:
        """End the life, if there is one; it may just have ended by itself."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def live(
        self, orders: msgspec.Struct, *, kill_after: float | None = None, bell: Bell | None = None
    ) -> int:
        """A whole life; with `kill_after` seconds (from when it has rung the bell, if there is one) it is killed."""
        self.bear(orders)
        try:
            if kill_after is not None and (bell is None or self.rung(bell)):
                time.sleep(kill_after)  # not to wait for anything: the time is the fault
                if not self._selector.select(0):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.pid, signal.SIGKILL)
            return self.wait()
        except Stuck:
            self.kill()
            raise

    def rung(self, bell: Bell, seconds_max: float = WAIT_SECONDS_MAX) -> bool:
        """Wait until this life has rung; False if it has ended without."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as either:
            either.register(bell, selectors.EVENT_READ)
            either.register(self._process.stdout, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in either.select(seconds_max)}
        if bell in ready:
            bell.wait(0)
            return True
        if not ready:
            raise Stuck(f"process {self.pid} did not ring within {seconds_max:g} s")
        return False

    def words(self) -> str:
        """The last of what this life wrote to its standard error."""
        with self._path.open("rb") as file:
            file.seek(max(self._begun, self._path.stat().st_size - WORDS_BYTES_MAX))
            return file.read().decode(errors="replace").strip() or "it wrote nothing"

    def _line(self, seconds_max: float) -> int:
        if not self._selector.select(seconds_max):
            raise Stuck(f"process {self.pid} gave no sign for {seconds_max:g} s")
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Stuck("the nursery itself has ended; see its errors")
        return int(line)


@dataclass
class Story:
    """What was done to one database, and what became of it."""

    name: str
    kills: int = 0
    restarts: int = 0
    missed: list[str] = field(default_factory=list[str])
    """Points that were not reached."""
    hit: bool = False
    """The last of the kills that were wanted was where it should be."""
    verdict: Verdict = field(default_factory=Verdict)


def place_of(folder: Path, name: str, server: Server | None) -> str:
    """The database of a story: a file, or a fresh one on the server."""
    return str(folder / f"{_file(name)}.db") if server is None else server.create()


def tell(
    nursery: Nursery,
    folder: Path,
    name: str,
    lives: Sequence[dict[str, Any]],
    *,
    runs: int = 42,
    server: Server | None = None,
    book: str = "workload",
) -> Story:
    """Lives with their orders (`kill`, `stop`), then as many as it takes; then judge."""
    story = Story(name)
    database, log = place_of(folder, name, server), folder / f"{_file(name)}.log"
    plain = Orders(database, str(log), last=runs, book=book)
    try:
        for orders in lives:
            status = nursery.live(msgspec.structs.replace(plain, **orders))
            story.restarts += 1
            if status == KILLED:
                story.kills += 1
            elif status not in (ENDED, STOPPED):
                story.verdict.wrong.append(f"a life ended with {status}: {nursery.words()}")
            if orders.get("kill"):
                story.hit = status == KILLED
                story.missed += [] if story.hit else [orders["kill"]]
        _end(nursery, msgspec.structs.replace(plain, last_life=True), story)
    except Stuck as error:
        story.verdict.stuck.append(f"{error}: {nursery.words()}")
    story.verdict.add(judge(database, log, range(runs), book))
    if server is not None and not story.verdict.complaints:
        server.drop(
            database
        )  # a server that was killed looks at every file before it takes anybody
    return story


def _end(nursery: Nursery, orders: Orders, story: Story) -> None:
    for _ in range(LIVES_MAX):
        status = nursery.live(orders)
        if status == ENDED:
            return
        story.restarts += 1
        story.verdict.wrong.append(
            f"a life that nobody killed ended with {status}: {nursery.words()}"
        )
    story.verdict.stuck.append("not all runs ended")


def tell_random(
    nursery: Nursery,
    folder: Path,
    *,
    runs: int,
    kills: int,
    seed: int,
    longest: float = 0.12,
    server: Server | None = None,
    book: str = "workload",
    harm: Callable[[str], AbstractContextManager[object]] = nullcontext,
    said: Callable[[Story], None] = lambda story: None,
) -> Story:
    """Kills at random times while more and more runs are started: in recovery, or while all is under way. `harm` is done
    to the database meanwhile; `said` is told after each life."""
    dice = random.Random(seed)
    story = Story(f"random-{seed}")
    database, log = place_of(folder, story.name, server), folder / f"{story.name}.log"
    plain = Orders(database, str(log), book=book)
    bell = Bell(folder / f"{story.name}.bell")
    more = 0
    try:
        with harm(database):
            while story.kills < kills:
                last = min(runs, runs * (story.kills + 1) // kills + more)
                orders = msgspec.structs.replace(
                    plain, last=last, pace=0.02 * kills / runs, seconds=0.003
                )
                if dice.random() < 0.3:
                    status = nursery.live(orders, kill_after=dice.uniform(0.005, 2 * longest))
                else:
                    orders.bell = bell.path
                    status = nursery.live(orders, kill_after=dice.uniform(0, longest), bell=bell)
                story.restarts += 1
                if status == KILLED:
                    story.kills += 1
                elif status == ENDED:
                    # It was too fast for us; from now on more is to be done, and we are sooner.
                    longest *= 0.9
                    more += 10
                else:
                    story.verdict.wrong.append(f"a life ended with {status}: {nursery.words()}")
                    break
                said(story)
            _end(nursery, msgspec.structs.replace(plain, last=runs), story)
    except Stuck as error:
        story.verdict.stuck.append(f"{error}: {nursery.words()}")
    finally:
        bell.close()
    story.verdict.add(judge(database, log, range(runs), book))
    return story


def count_points(
    nursery: Nursery,
    folder: Path,
    *,
    runs: int,
    server: Server | None = None,
    book: str = "workload",
) -> tuple[Counter[str], Counter[str]]:
    """How often each point is reached: in a first life, and in one that comes after a kill."""
    found: list[Counter[str]] = []
    for name, lives in (("count-first", []), ("count-second", [{"kill": "append.after:12"}])):
        plain = Orders(
            place_of(folder, name, server), str(folder / f"{name}.log"), last=runs, book=book
        )
        for orders in lives:
            nursery.live(msgspec.structs.replace(plain, **orders))
        counts = folder / f"{name}.json"
        nursery.live(msgspec.structs.replace(plain, counts=str(counts)))
        found.append(Counter(msgspec.json.decode(counts.read_bytes(), type=dict[str, int])))
    return found[0], found[1]


def _file(name: str) -> str:
    return name.replace(":", "_").replace(" ", "_")
