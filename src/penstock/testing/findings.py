"""What a simulation of somebody's workflows finds, as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

Level = Literal["error", "note"]

CODES = {
    "undo-missing": "a run that failed has left an effect behind",
    "timeout-unmet": "a timeout that cannot be met",
    "order-dependent": "the result depends on the order in which things end",
    "effect-repeated": "an attempt that is made again does the same to the world twice",
    "world-broken": "an invariant of the world does not hold",
    "workflow-error": "the workflow's own code or expressions fail",
    "run-stuck": "a run does not end",
    "engine-broken": "the engine breaks one of its own rules",
}
"""What can be found; each has its page in `docs/errors`."""


class Finding(Struct, frozen=True):
    """One thing that was seen in one play."""

    code: str
    level: Level
    workflow: str
    step: str
    """The activity, task or invariant that it is about; empty: the workflow."""
    message: str
    hint: str
    place: str = ""
    """FILE:LINE."""
    run: str = ""
    """In which it was seen."""
    told: bool = True
    """A timeline says more than the message."""

    @property
    def ident(self) -> str:
        """The same for the same mistake, whichever seed shows it."""
        whose = "" if self.code == "effect-repeated" else self.workflow
        return f"{self.code} {whose} {self.step}"


class Line(Struct, frozen=True):
    """One line of a timeline."""

    at: float
    """Simulated seconds since the beginning."""
    text: str
    kind: str = ""
    """`fault`, `effect`, `bad`, `good`; empty: anything else."""


class Story(Struct, frozen=True):
    """How a finding comes about, in as few things as were found to be enough."""

    lines: Sequence[Line]
    also: Sequence[Line] = ()
    """The other order, if that is what it is about."""
    said: str = ""
    """What was left out to make it small."""


class Problem(Struct, frozen=True):
    """A mistake, over all seeds."""

    finding: Finding
    seed: int
    """The first that shows it."""
    seeds: int
    """How many do."""
    replay: str = ""
    """The command that shows it."""
    story: Story | None = None

    def as_json(self) -> dict[str, Any]:
        finding, story = self.finding, self.story
        file, _, line = finding.place.rpartition(":")
        return {
            "code": finding.code, "level": finding.level, "workflow": finding.workflow, "step": finding.step,
            "message": finding.message, "hint": finding.hint, "file": file or finding.place,
            "line": int(line) if line.isdecimal() else 0, "seed": self.seed, "seeds": self.seeds, "replay": self.replay,
            "timeline": [] if story is None else [_line(each) for each in story.lines],
            "other_order": [] if story is None else [_line(each) for each in story.also],
        }  # fmt: skip


def _line(line: Line) -> dict[str, Any]:
    return {"at": round(line.at, 3), "text": line.text, "kind": line.kind}
