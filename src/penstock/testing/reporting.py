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

HAPPENED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nodes", ("crashes", "power losses", "restarts", "orderly restarts", "stalls", "clock jumps")),
    ("store", ("store failures", "disk full", "commits done whose answer was lost", "commits lost with the power", "hints lost")),
    ("callers", ("answers lost", "callers cut off", "callers refused", "late results")),
    (
        "activities",
        (
            "attempts failed for now", "attempts refused", "attempts done whose answer was lost", "attempts too late",
            "attempts lost with a node", "retries",
        ),
    ),
    ("runs", ("runs completed", "runs failed", "runs cancelled", "run timeouts", "signals", "steps completed", "steps undone")),
    ("the world", ("effects",)),
)  # fmt: skip
"""What is told of what happened, in the order in which it is told."""
STYLES = {
    "fault": "retrying",
    "effect": "compensated",
    "bad": "failed",
    "good": "completed",
    "": "title",
}


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

    def happened(self) -> list[tuple[str, str]]:
        """What happened, by where."""
        rows: list[tuple[str, str]] = []
        for where, names in HAPPENED:
            told = [f"{self.counts[name]:,} {_worded(name)}" for name in names if self.counts[name]]
            if told:
                rows.append((where, ", ".join(told)))
        return rows

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
        yield from _told(story.lines, paint)
        if story.also:
            yield f"   {paint('|', 'arrow')}"
            said = f"; {story.said}" if story.said else ""
            yield f"   {paint('|', 'arrow')} {paint(f'and in another order{said}:', 'title')}"
            yield from _told(story.also, paint)
        yield f"   {paint('|', 'arrow')}"
    times = "" if seeds == 1 else f"  (seen {_times(problem.seeds)})"
    yield f"   {paint('=', 'arrow')} replay: {paint(problem.replay, 'command')}{paint(times, 'detail')}"
    yield f"   {paint('=', 'arrow')} {paint('hint', 'hint')}: {finding.hint}"


def _told(lines: Sequence[Line], paint: Paint) -> Iterator[str]:
    width = max(len(_clock(each.at)) for each in lines)
    for each in lines:
        mark = {"fault": "✗", "effect": "●", "bad": "✗", "good": "✓"}.get(each.kind, "·")
        text = (
            paint(each.text, STYLES[each.kind])
            if each.kind in ("fault", "bad", "effect")
            else each.text
        )
        sign = paint(mark, STYLES[each.kind]) if each.kind else mark
        yield f"   {paint('|', 'arrow')} {paint(_clock(each.at).rjust(width), 'detail')}  {sign} {text}"


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


def _worded(name: str) -> str:
    return name.removeprefix("attempts ") if name.startswith("attempts ") else name


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
