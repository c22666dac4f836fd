"""What the figures must be (issue 2, "Speed it must reach"), and whether they are.

A requirement is judged on figures of one go only. A ratio is taken in each round, between neighbours in time, and
the median of these counts. What was not measured is not met, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Key = tuple[str, str]
"""A question and a subject."""
Figures = Mapping[Key, Sequence[float]]
"""By question and subject: the figure of each round."""


@dataclass(frozen=True)
class Verdict:
    what: str
    needed: str
    got: str
    met: bool | None
    """None: not measured."""

    @property
    def word(self) -> str:
        return {True: "met", False: "not met", None: "not measured"}[self.met]


def judge(figures: Figures) -> list[Verdict]:
    """Every requirement, in the order of the issue."""

    def ratio(
        what: str, needed: str, ours: str, other: Key, fits: Callable[[float], bool]
    ) -> Verdict:
        key = (ours, "penstock")
        if not (figures.get(key) and figures.get(other)):
            return Verdict(what, needed, "–", None)
        found = times(figures[key], figures[other])
        return Verdict(what, needed, f"{found:.3g} ×", fits(found))

    def at_least(what: str, least: float, ours: str, other: Key, more: str = "") -> Verdict:
        return ratio(what, f"at least {least:g} ×{more}", ours, other, lambda found: found >= least)

    def at_most(what: str, most: float, ours: str, other: Key, more: str = "") -> Verdict:
        return ratio(what, f"at most {most:g} ×{more}", ours, other, lambda found: found <= most)

    def limit(what: str, question: str, most: float, unit: str) -> Verdict:
        rounds = figures.get((question, "penstock"))
        if not rounds:
            return Verdict(what, f"at most {most:g} {unit}", "–", None)
        found = median(rounds)
        return Verdict(what, f"at most {most:g} {unit}", f"{found:.3g} {unit}", found <= most)

    return [
        at_least("sequence, against raw", 0.18, "sequence", ("sequence", "raw"), " (aim 0.35)"),
        at_least("sequence, against DBOS", 40, "sequence", ("sequence", "dbos")),
        at_least("sequence, against Restate", 4, "sequence", ("sequence", "restate")),
        at_most("latency p50, against DBOS", 0.2, "latency p50", ("latency p50", "dbos")),
        at_least("fanout, against DBOS", 20, "fanout", ("fanout", "dbos")),
        at_least("fanout, against Restate", 5, "fanout", ("fanout", "restate")),
        limit("recovery of 500 runs", "recovery", 3.0, "s"),
        limit("recovery of 10,000 runs", "recovery of 10,000", 10.0, "s"),
        _grown(figures),
        at_most(
            "an event at 100,000 events",
            1.25,
            "growth: event at 100,000",
            ("growth: event at 1,000", "penstock"),
            " that at 1,000",
        ),
        limit("100,000 waiting runs", "memory: waiting runs", 300, "MiB"),
        at_least("signalling all of them", 0.5, "signals", ("sequence", "penstock"), " sequence"),
        limit("100,000 tasks in one run", "memory: tasks of one run", 500, "MiB"),
    ]


def times(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How many times theirs ours is: by round where both were asked in each."""
    if len(ours) == len(theirs):
        return median(one / other for one, other in zip(ours, theirs, strict=True))
    return median(ours) / median(theirs)


def _grown(figures: Figures) -> Verdict:
    what, needed = "a run after 1,000,000 runs", "at most 1.25 × empty + what raw gained"
    keys = [
        (f"growth: run, {state}", subject)
        for subject in ("penstock", "raw")
        for state in ("empty", "full")
    ]
    if not all(figures.get(key) for key in keys):
        return Verdict(what, needed, "–", None)
    empty, full, raw_empty, raw_full = (median(figures[key]) for key in keys)
    allowed = 1.25 * empty + max(0.0, raw_full - raw_empty)
    got = f"{full:.0f} µs of {allowed:.0f} allowed ({full / empty:.2f} ×)"
    return Verdict(what, needed, got, full <= allowed)
