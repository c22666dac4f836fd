"""The report of a simulation of somebody's workflows: for people, for programs, and for tests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.testing.findings import Line, Problem

Paint = Callable[[str, str], str]
"""A text in a style of the command line's (`cli/output.py`)."""

HAPPENED: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "nodes", "retrying",
        (
            ("crashes", "crash|crashes"), ("power losses", "power loss|power losses"), ("restarts", "restart"),
            ("orderly restarts", "orderly restart"), ("stalls", "stall"), ("clock jumps forth", "clock set forth|clocks set forth"),
            ("clock jumps back", "clock set back|clocks set back"), ("nodes cut off", "cut off from the store|cut off from the store"),
        ),
    ),
    (
        "store", "retrying",
        (
            ("store failures", "failure"), ("disk full", "write to a full disk|writes to a full disk"),
            ("commits done whose answer was lost", "commit with a lost answer|commits with a lost answer"),
            ("commits lost with the power", "commit lost with the power|commits lost with the power"),
            ("hints lost", "hint lost|hints lost"),
        ),
    ),
    (
        "callers", "retrying",
        (
            ("answers lost", "answer lost|answers lost"), ("callers cut off", "cut off|cut off"),
            ("callers refused", "sent away|sent away"), ("late results", "late result"),
        ),
    ),
    (
        "attempts", "retrying",
        (
            ("attempts failed for now", "failed|failed"), ("attempts refused", "refused|refused"),
            ("attempts done whose answer was lost", "done and the answer lost|done and the answer lost"),
            ("attempts too late", "too late|too late"), ("attempts lost with a node", "lost with a node|lost with a node"),
            ("retries", "retry|retries"),
        ),
    ),
    (
        "runs", "title",
        (
            ("runs completed", "completed|completed"), ("runs failed", "failed|failed"),
            ("runs cancelled", "cancelled|cancelled"), ("run timeouts", "timed out|timed out"),
        ),
    ),
    (
        "steps", "title",
        (
            ("steps completed", "completed|completed"), ("steps undone", "undone|undone"), ("signals", "signal"),
            ("effects", "effect on the world|effects on the world"),
        ),
    ),
)  # fmt: skip
"""What is told of what happened: where, in which style, and each count in words, one and many."""
SKIPPED_LEAST = 3600
MARKS = {
    "fault": ("✗", "waiting"), "effect": ("●", "compensated"), "bad": ("✗", "failed"), "good": ("✓", "completed"),
    "": ("·", ""),
}  # fmt: skip
"""How a line of a timeline is marked, and in which style."""


def plain(text: str, style: str) -> str:
    del style
    return text


@dataclass
class Report:
    """What many seeds have shown."""

    problems: list[Problem]
    counts: Counter[str]
    seeds: int
    runs: int
    seconds: float
    interrupted: bool = False
    timeline: Sequence[Line] = ()
    """Of a seed that was played alone."""
    digests: dict[int, str] = field(default_factory=dict[int, str])
    """Of all events of each seed, in the order in which they were stored."""

    @property
    def errors(self) -> list[Problem]:
        return [each for each in self.problems if each.finding.level == "error"]

    @property
    def codes(self) -> list[str]:
        """Codes of the errors that were found."""
        return sorted({each.finding.code for each in self.errors})

    def check(self) -> None:
        """For tests: AssertionError with the whole report if there is an error in it."""
        if self.errors:
            raise AssertionError(f"{self.summary()}\n\n" + "\n".join(self.lines()))

    # --- for people ------------------------------------------------------------------------------------------

    def lines(self, paint: Paint = plain) -> Iterator[str]:
        for problem in self.problems:
            yield from shown(problem, self.seeds, paint)
            yield ""

    def summary(self) -> str:
        notes = len(self.problems) - len(self.errors)
        found = _many(len(self.errors), "mistake") if self.errors else "no mistake"
        noted = f", {_many(notes, 'note')}" if notes else ""
        how = f" in {self.seconds:.1f} s" if self.seconds >= 0.1 else ""
        return f"{found} found{noted}: {_many(self.seeds, 'seed')}, {_many(self.runs, 'run')}{how}"

    def happened(self, paint: Paint = plain) -> Iterator[str]:
        """What happened, by where: one can see that it was rough."""
        rows: list[tuple[str, str]] = []
        for where, style, counts in HAPPENED:
            told = [
                f"{paint(f'{self.counts[name]:,}', style)} {_worded(self.counts[name], words)}"
                for name, words in counts
                if self.counts[name]
            ]
            if told:
                rows.append((where, ", ".join(told)))
        seconds = self.counts["simulated seconds"]
        if seconds >= SKIPPED_LEAST:
            rows.append(("time", f"{paint(_clock(seconds), 'title')} were simulated"))
        if rows:
            width = max(len(where) for where, _ in rows)
            yield paint("what happened", "title")
            for where, told in rows:
                yield f"  {paint(where.ljust(width), 'hint')}  {told}"

    # --- for programs ----------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        one = {"digest": next(iter(self.digests.values()))} if len(self.digests) == 1 else {}
        return {
            "seeds": self.seeds, "runs": self.runs, "seconds": round(self.seconds, 3), "interrupted": self.interrupted,
            **one, "findings": [each.as_json() for each in self.problems], "happened": dict(sorted(self.counts.items())),
        }  # fmt: skip


def shown(problem: Problem, seeds: int, paint: Paint = plain) -> Iterator[str]:
    """One finding as a good compiler shows it, with its story."""
    finding = problem.finding
    style = "error" if finding.level == "error" else "hint"
    yield f"{paint(f'{finding.level}[{finding.code}]', style)}: {paint(finding.message, 'title')}"
    where = near(finding.place)
    if where:
        yield f"  {paint('-->', 'arrow')} {where}"
    story = problem.story
    if story is not None and story.lines:
        yield f"   {paint('|', 'arrow')}"
        yield from told(story.lines, paint)
        if story.also:
            yield f"   {paint('|', 'arrow')}"
            said = f"; {story.said}" if story.said else ""
            yield f"   {paint('|', 'arrow')} {paint(f'and in another order{said}:', 'title')}"
            yield from told(story.also, paint)
        yield f"   {paint('|', 'arrow')}"
    times = "" if seeds == 1 else f"  (seen {_times(problem.seeds)})"
    yield f"   {paint('=', 'arrow')} replay: {paint(problem.replay, 'command')}{paint(times, 'detail')}"
    yield f"   {paint('=', 'arrow')} {paint('hint', 'hint')}: {finding.hint}"


def told(lines: Sequence[Line], paint: Paint = plain) -> Iterator[str]:
    """A timeline."""
    width = max(len(_clock(each.at)) for each in lines)
    for number, each in enumerate(lines, 1):
        mark, style = MARKS[each.kind]
        whole = each.kind in ("fault", "effect") or (each.kind == "bad" and number == len(lines))
        sign, text = (paint(part, style) if style else part for part in (mark, each.text))
        clock = paint(_clock(each.at).rjust(width), "detail")
        yield f"   {paint('|', 'arrow')} {clock}  {sign} {text if whole else each.text}"


def _clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def near(place: str) -> str:
    """As the reader would write it from here."""
    file, colon, line = place.rpartition(":")
    if not colon:
        file, line = place, ""
    here = os.getcwd() + os.sep
    return f"{file.removeprefix(here)}{colon}{line}"


def _worded(number: int, words: str) -> str:
    one, _, many = words.partition("|")
    return one if number == 1 else many or f"{one}s"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
