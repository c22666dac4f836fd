"""`simulate`: somebody's workflows under many seeds, and the report of what was found (SPEC 13)."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from typing import Any

from msgspec.structs import replace

from penstock.testing.apps import DRAWN, App
from penstock.testing.findings import Finding, Problem, Story
from penstock.testing.reporting import Report
from penstock.testing.studies import Seen, Study, unmet_timeouts
from penstock.testing.worlds import World

SHARED = "/dev/shm"
COLLECT_EVERY = 20
CHUNK = 4
STORIES_MAX = 12
"""Findings that are told as a timeline."""

Make = Callable[[str], Study]
"""Makes a study, with a folder for databases; it is called in each process."""
Progress = Callable[[int, int], None]
"""Told how many seeds were played, and how many mistakes were found."""


def simulate(
    *things: Any,
    seeds: int = 200,
    first: int = 0,
    seconds: float | None = None,
    faults: str = "rough",
    workflows: Sequence[str] = (),
    input: Any = DRAWN,
    world: type[World] | None = None,
    ignore: Sequence[str] = (),
) -> Report:
    """Play workflows, definitions and activities (or modules with them) under seeds of faults: `simulate(app).check()`.

    `faults` is `none`, `mild` or `rough`; `ignore` has codes (`order-dependent`, or `order-dependent:workflow`) that are not
    reported."""
    app = App(things, only=workflows, input=input, world=world)
    with folder() as place:
        campaign = Campaign(lambda _: Study(app, level=faults, folder=place), place, ignore=ignore)
        return campaign.run(range(first, first + seeds), seconds=seconds)


class Campaign:
    """Seeds, one after the other or in several processes."""

    def __init__(
        self, make: Make, place: str, *, jobs: int = 1, ignore: Sequence[str] = (), replay: str = ""
    ) -> None:
        """`replay` is the command that plays a seed, without its number."""
        self._make, self._place, self._jobs, self._ignore, self._replay = (
            make,
            place,
            jobs,
            ignore,
            replay,
        )
        self.study = make(place)
        self._found: dict[str, Found] = {}
        self._counts: Counter[str] = Counter()
        self._met: Counter[tuple[str, str]] = Counter()
        self._fired: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], int] = {}
        self._digests: dict[int, str] = {}
        self._played = self._runs = 0

    def run(
        self,
        seeds: Iterable[int],
        *,
        seconds: float | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Until they are played, the time is over, or somebody interrupts."""
        began = time.monotonic()
        with _told_to_stop() as stopped:
            try:
                for seen in self._all(seeds):
                    self._take(seen)
                    if progress is not None:
                        progress(self._played, len(self._found))
                    if stopped or (seconds is not None and time.monotonic() > began + seconds):
                        break
            except KeyboardInterrupt:
                stopped.append(True)
        took = time.monotonic() - began
        for finding in unmet_timeouts(self.study, self._met, self._fired):
            known = next(
                key
                for key in self._fired
                if finding.step == key[1].rpartition("/")[2] and finding.workflow == key[0]
            )
            self._keep(finding, self._first[known], self._fired[known])
        problems = self._problems(stories=not stopped)
        alone = next(iter(self._digests)) if len(self._digests) == 1 else None
        timeline = () if alone is None or problems else self.study.timeline(alone)
        return Report(
            problems, self._counts, self._played, self._runs, took, bool(stopped), timeline, self._digests
        )  # fmt: skip

    # --- playing ---------------------------------------------------------------------------------------------

    def _all(self, seeds: Iterable[int]) -> Iterator[Seen]:
        if self._jobs == 1:
            yield from map(self.study.seen, seeds)
            return
        pool = get_context("spawn").Pool(self._jobs, _begin, (self._make, self._place))
        try:
            yield from pool.imap_unordered(_seen, seeds, chunksize=CHUNK)
        finally:
            pool.terminate()
            pool.join()

    def _take(self, seen: Seen) -> None:
        self._played += 1
        self._runs += seen.runs
        self._counts += seen.counts
        self._digests[seen.seed] = seen.digest
        for finding in seen.findings:
            self._keep(finding, seen.seed, 1)
        for key, number in seen.met.items():
            self._met[key] += number
        for key, number in seen.fired.items():
            self._fired[key] += number
            self._first[key] = min(seen.seed, self._first.get(key, seen.seed))

    def _keep(self, finding: Finding, seed: int, times: int) -> None:
        if finding.code in self._ignore or f"{finding.code}:{finding.workflow}" in self._ignore:
            return
        before = self._found.get(finding.ident)
        if before is None:
            self._found[finding.ident] = finding, seed, times
            return
        kept, first, number = before
        better = (finding.level == "error") > (kept.level == "error")
        if better or (finding.level == kept.level and seed < first):
            kept, first = finding, seed
        self._found[finding.ident] = kept, first, number + times

    # --- telling ---------------------------------------------------------------------------------------------

    def _problems(self, *, stories: bool) -> list[Problem]:
        found = sorted(
            _together(self._found.values()),
            key=lambda each: (
                each[0].level != "error",
                each[0].workflow,
                each[0].place,
                each[0].code,
            ),
        )
        made: list[Problem] = []
        for finding, seed, times in found:
            story: Story | None = None
            if stories and len(made) < STORIES_MAX:
                try:
                    story = self.study.story(seed, finding)
                except KeyboardInterrupt:
                    stories = False
            replay = f"{self._replay} --seed {seed}" if self._replay else f"seed {seed}"
            made.append(Problem(finding, seed, times, replay, story))
        return made


Found = tuple[Finding, int, int]
"""A finding, its first seed, and how many show it."""


def _together(found: Iterable[Found]) -> Iterator[Found]:
    """Steps of a workflow of which nobody knows whether they leave something are told in one note."""
    notes: dict[str, list[Found]] = {}
    for each in found:
        if each[0].code == "undo-missing" and each[0].level == "note":
            notes.setdefault(each[0].workflow, []).append(each)
        else:
            yield each
    for workflow, several in notes.items():
        several.sort(key=lambda each: each[0].place)
        names = ", ".join(f"`{each[0].step}`" for each in several)
        yield (
            replace(
                several[0][0],
                message=f"`{workflow}` may fail and leave what {names} did",
                hint="undo it, or say that it changes nothing: `@activity(effects=False)`, `reads` of a task",
                told=False,
            ),
            min(each[1] for each in several),
            max(each[2] for each in several),
        )


_study: Study | None = None
_number = count()


def _begin(make: Make, place: str) -> None:
    """In a process of its own."""
    global _study
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, and ends us
    gc.disable()
    _study = make(place)


def _seen(seed: int) -> Seen:
    assert _study is not None
    if next(_number) % COLLECT_EVERY == 0:
        gc.collect()
    return _study.seen(seed)


@contextmanager
def _told_to_stop() -> Generator[list[bool]]:
    """Not empty once somebody interrupts: what is being played is played to its end, unless it is asked for twice."""
    stopped: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: Any) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(True)

    signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def folder() -> Generator[str]:
    """A place for databases: in memory, if the machine has such a one."""
    place = SHARED if os.access(SHARED, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="penstock-", dir=place) as made:
        yield made
