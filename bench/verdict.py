"""What the figures must be (issue 2, "Speed it must reach"), and whether they are.

A requirement is judged on figures of one go only. What was not measured is not met, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Figures = Mapping[tuple[str, str], float]
"""By question and subject."""


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
    return [
        _at_least(figures, "sequence, against raw", 0.18, ("sequence", "raw"), "×", " (aim 0.35)"),
        _at_least(figures, "sequence, against DBOS", 40, ("sequence", "dbos")),
        _at_least(figures, "sequence, against Restate", 4, ("sequence", "restate")),
        _one(
            figures,
            "latency p50, against DBOS",
            "at most 0.2 ×",
            [("latency p50", "penstock"), ("latency p50", "dbos")],
            lambda ours, theirs: (f"{ours / theirs:.2f} ×", ours <= theirs / 5),
        ),
        _at_least(figures, "fanout, against DBOS", 20, ("fanout", "dbos")),
        _at_least(figures, "fanout, against Restate", 5, ("fanout", "restate")),
        _at_most(figures, "recovery of 500 runs", "recovery", 3.0, "s"),
        _at_most(figures, "recovery of 10,000 runs", "recovery of 10,000", 10.0, "s"),
        _one(
            figures,
            "a run after 1,000,000 runs",
            "at most 1.25 × empty + what raw gained",
            [
                ("growth: run, empty", "penstock"),
                ("growth: run, full", "penstock"),
                ("growth: run, empty", "raw"),
                ("growth: run, full", "raw"),
            ],
            _grown,
        ),
        _one(
            figures,
            "an event at 100,000 events",
            "at most 1.25 × that at 1,000",
            [("growth: event at 1,000", "penstock"), ("growth: event at 100,000", "penstock")],
            lambda short, long: (f"{long / short:.2f} ×", long <= 1.25 * short),
        ),
        _at_most(figures, "100,000 waiting runs", "memory: waiting runs", 300, "MiB"),
        _one(
            figures,
            "signalling all of them",
            "at least 0.5 × sequence",
            [("signals", "penstock"), ("sequence", "penstock")],
            lambda signals, sequence: (f"{signals / sequence:.2f} ×", signals >= sequence / 2),
        ),
        _at_most(figures, "100,000 tasks in one run", "memory: tasks of one run", 500, "MiB"),
    ]


def _grown(empty: float, full: float, raw_empty: float, raw_full: float) -> tuple[str, bool]:
    allowed = 1.25 * empty + max(0.0, raw_full - raw_empty)
    return f"{full:.0f} µs of {allowed:.0f} allowed ({full / empty:.2f} ×)", full <= allowed


def _at_least(
    figures: Figures,
    what: str,
    times: float,
    other: tuple[str, str],
    sign: str = "×",
    more: str = "",
) -> Verdict:
    return _one(
        figures,
        what,
        f"at least {times:g} {sign}{more}",
        [(other[0], "penstock"), other],
        lambda ours, theirs: (f"{ours / theirs:.3g} {sign}", ours >= times * theirs),
    )


def _at_most(figures: Figures, what: str, question: str, limit: float, unit: str) -> Verdict:
    return _one(
        figures,
        what,
        f"at most {limit:g} {unit}",
        [(question, "penstock")],
        lambda figure: (f"{figure:.3g} {unit}", figure <= limit),
    )


def _one(
    figures: Figures,
    what: str,
    needed: str,
    wanted: list[tuple[str, str]],
    rule: Callable[..., tuple[str, bool]],
) -> Verdict:
    if any(key not in figures for key in wanted):
        return Verdict(what, needed, "–", None)
    got, met = rule(*[figures[key] for key in wanted])
    return Verdict(what, needed, got, met)
