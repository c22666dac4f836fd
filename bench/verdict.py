"""What the figures must be (issues 2 and 3, "Speed it must reach"), and whether they are.

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
SHORT, LONG = "growth: event at 1,000", "growth: event at 100,000"
ONE, CALL = "bulk: one by one", "bulk: in one call"


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
        what: str, needed: str, key: Key, other: Key, fits: Callable[[float], bool]
    ) -> Verdict:
        if not (figures.get(key) and figures.get(other)):
            return Verdict(what, needed, "–", None)
        found = times(figures[key], figures[other])
        return Verdict(what, needed, f"{found:.3g} ×", fits(found))

    def at_least(what: str, least: float, ours: Key, other: Key, more: str = "") -> Verdict:
        return ratio(what, f"at least {least:g} ×{more}", ours, other, lambda found: found >= least)

    def at_most(what: str, most: float, ours: Key, other: Key, more: str = "") -> Verdict:
        return ratio(what, f"at most {most:.3g} ×{more}", ours, other, lambda found: found <= most)

    def limit(what: str, key: Key, most: float, unit: str) -> Verdict:
        rounds = figures.get(key)
        if not rounds:
            return Verdict(what, f"at most {most:g} {unit}", "–", None)
        found = median(rounds)
        return Verdict(what, f"at most {most:g} {unit}", f"{found:.3g} {unit}", found <= most)

    def least(what: str, key: Key, needed: float, unit: str) -> Verdict:
        rounds = figures.get(key)
        if not rounds:
            return Verdict(what, f"at least {needed:g} {unit}", "–", None)
        found = median(rounds)
        return Verdict(what, f"at least {needed:g} {unit}", f"{found:.3g} {unit}", found >= needed)

    def functions(on: str, whose: Callable[[str], Key]) -> list[Verdict]:
        """Workflow functions beside definitions, in one process on the same store (issue 5)."""
        return [
            *(
                least(
                    f"{on}{name} of functions", whose(f"functions: {name}"), 0.8, "of definitions"
                )
                for each in ("sequence", "latency", "fanout")
                for name in (each, f"{each}, processor")
            ),
            limit(f"{on}a step at 100,000", whose("functions: late step"), 1.25, "× an early one"),
            limit(f"{on}memory of a late step", whose("functions: growth"), 0.1, "KiB/step"),
            least(f"{on}replay", whose("functions: replay"), 20_000, "steps/s"),
        ]

    def sqlite(question: str) -> Key:
        return question, "penstock"

    def postgres(question: str) -> Key:
        return question, "penstock-postgres"

    heart = [
        at_least(
            "sequence, against raw", 0.18, sqlite("sequence"), ("sequence", "raw"), " (aim 0.35)"
        ),
        at_least("sequence, against DBOS", 40, sqlite("sequence"), ("sequence", "dbos")),
        at_least("sequence, against Restate", 4, sqlite("sequence"), ("sequence", "restate")),
        at_most("latency p50, against DBOS", 0.2, sqlite("latency p50"), ("latency p50", "dbos")),
        at_least("fanout, against DBOS", 20, sqlite("fanout"), ("fanout", "dbos")),
        at_least("fanout, against Restate", 5, sqlite("fanout"), ("fanout", "restate")),
        limit("recovery of 500 runs", sqlite("recovery"), 3.0, "s"),
        limit("recovery of 10,000 runs", sqlite("recovery of 10,000"), 10.0, "s"),
        _grown(figures, "a run after 1,000,000 runs", ""),
        at_most("an event at 100,000 events", 1.25, sqlite(LONG), sqlite(SHORT), " that at 1,000"),
        limit("100,000 waiting runs", sqlite("memory: waiting runs"), 300, "MiB"),
        at_least("signalling all of them", 0.5, sqlite("signals"), sqlite("sequence"), " sequence"),
        limit("100,000 tasks in one run", sqlite("memory: tasks of one run"), 500, "MiB"),
        at_least("100,000 starts in one call", 3, sqlite(CALL), sqlite(ONE), " one by one"),
        limit("50 of 1,000,000 runs, p99", sqlite("list p99"), 20, "ms"),
    ]
    on, raw, dbos = "PostgreSQL: ", "raw-postgres", "dbos-postgres"
    return [
        *heart,
        at_least(
            on + "sequence, against raw",
            0.15,
            postgres("sequence"),
            ("sequence", raw),
            " (aim 0.3)",
        ),
        at_least(on + "sequence, against DBOS", 30, postgres("sequence"), ("sequence", dbos)),
        at_most(
            on + "latency p50, against DBOS", 1 / 3, postgres("latency p50"), ("latency p50", dbos)
        ),
        at_least(on + "fanout, against DBOS", 20, postgres("fanout"), ("fanout", dbos)),
        _grown(figures, on + "a run after 1,000,000 runs", "-postgres"),
        at_most(
            on + "an event at 100,000 events",
            1.25,
            postgres(LONG),
            postgres(SHORT),
            " that at 1,000",
        ),
        at_least(
            on + "100,000 starts in one call", 3, postgres(CALL), postgres(ONE), " one by one"
        ),
        limit(on + "50 of 1,000,000 runs, p99", postgres("list p99"), 20, "ms"),
        limit(on + "an idle engine", postgres("idle"), 2, "statements/s"),
        *functions("", sqlite),
        *functions(on, postgres),
    ]


def times(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How many times theirs ours is: by round where both were asked in each."""
    if len(ours) == len(theirs):
        return median(one / other for one, other in zip(ours, theirs, strict=True))
    return median(ours) / median(theirs)


def _grown(figures: Figures, what: str, store: str) -> Verdict:
    needed = "at most 1.25 × empty + what raw gained"
    keys = [
        (f"growth: run, {state}", subject + store)
        for subject in ("penstock", "raw")
        for state in ("empty", "full")
    ]
    if not all(figures.get(key) for key in keys):
        return Verdict(what, needed, "–", None)
    empty, full, raw_empty, raw_full = (median(figures[key]) for key in keys)
    allowed = 1.25 * empty + max(0.0, raw_full - raw_empty)
    got = f"{full:.0f} µs of {allowed:.0f} allowed ({full / empty:.2f} ×)"
    return Verdict(what, needed, got, full <= allowed)
