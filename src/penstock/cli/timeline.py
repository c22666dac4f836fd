"""The steps of a workflow function as bars over time: which came when, how long each took, what is open.

A function has no graph to draw before it runs; what it did is a row of steps, some beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.cli.humane import duration
from penstock.cli.output import visible
from penstock.model import events as e
from penstock.model.run import Run

NAME_MAX = 32
BAR_MIN = 12
STEPS_MAX = 200
"""Steps that are drawn; of more the last."""
OPEN = frozenset({"PENDING", "SCHEDULED", "RUNNING", "WAITING", "RETRYING"})
SYMBOLS = {
    "COMPLETED": "✓", "FAILED": "✗", "CANCELLED": "⊘", "SKIPPED": "⤼", "RETRYING": "↻", "WAITING": "⏳",
    "COMPENSATED": "↶", "UNDO_FAILED": "✗",
}  # fmt: skip
Rows = list[list[tuple[str, str]]]


@dataclass
class Step:
    """One step as it was last seen."""

    key: str
    status: str
    began: float
    ended: float | None = None


class Timeline:
    """All steps of a run, in the order in which they began."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._open: set[str] = set()
        self._began = 0.0
        self._ended: float | None = None

    def take(self, run: Run, event: e.Event) -> None:
        """What changed by an event that is folded into the run."""
        scope = run.scopes.get("")
        tasks = {} if scope is None else scope.tasks
        self._began = run.created_at
        self._ended = run.ended_at if run.closed else None
        for key in [key for key in self._open if key not in tasks]:
            self._open.discard(key)
            step = self._steps[key]
            step.status, step.ended = _ending(key, run, event), event.at
        if run.closed:
            for key in self._open:
                self._steps[key].status, self._steps[key].ended = "CANCELLED", event.at
            self._open.clear()
        else:
            self._look(tasks.items(), event.at)
        if isinstance(event, e.UndoCompleted | e.UndoFailed) and event.key in self._steps:
            undone = isinstance(event, e.UndoCompleted)
            self._steps[event.key].status = "COMPENSATED" if undone else "UNDO_FAILED"

    def _look(self, tasks: Iterable[tuple[str, object]], at: float) -> None:
        for key, state in tasks:
            status: str = getattr(state, "status", "SCHEDULED")
            step = self._steps.get(key)
            if step is None:
                step = self._steps[key] = Step(key, status, at)
                self._open.add(key)
            step.status = status

    def progress(self) -> tuple[int, int]:
        """Steps that are over, of those that began."""
        return len(self._steps) - len(self._open), len(self._steps)

    def steps(self) -> list[Step]:
        return list(self._steps.values())

    def draw(self, width: int, now: float, most: int = STEPS_MAX) -> Rows:
        """A row for each of the last steps: its name, its bar, how long it took."""
        steps = [*self._steps.values()]
        shown = steps[-most:]
        rows: Rows = []
        if len(shown) < len(steps):
            rows.append([(f"  … {len(steps) - len(shown):,} steps before", "detail")])
        if not shown:
            return rows
        first = self._began if len(shown) == len(steps) else shown[0].began
        last = self._ended if self._ended is not None else max(now, first)
        names = [_name(step.key) for step in shown]
        longest = max(map(len, names))
        room = max(BAR_MIN, width - longest - 17)
        for step, name in zip(shown, names, strict=True):
            style = step.status.lower()
            ended = step.ended if step.ended is not None else last
            begin, bar = _span(step.began - first, ended - first, last - first, room)
            symbol = SYMBOLS.get(step.status, "▶")
            gap = " " if symbol == "⏳" else "  "  # it is two columns wide
            drawn = "━" * bar if step.status not in OPEN else "━" * (bar - 1) + "╸"
            rows.append([
                (f"{symbol}{gap}", style), (name.ljust(longest + 2), ""), (" " * begin, ""), (drawn, style),
                (" " * (room - begin - bar + 1), ""), (duration(max(0.0, ended - step.began)), "detail"),
            ])  # fmt: skip
        return rows


def _ending(key: str, run: Run, event: e.Event) -> str:
    if isinstance(event, e.TaskFailed):
        if event.key == key:
            return "CANCELLED" if event.cancelled else "FAILED"
        return "CANCELLED" if run.closed else "COMPLETED"
    if isinstance(event, e.ChildClosed) and event.key == key:
        return "COMPLETED" if event.status == "COMPLETED" else "FAILED"
    if run.closed or run.stopping is not None:
        return "CANCELLED"
    return "COMPLETED"


def _name(key: str) -> str:
    key = visible(key)
    return key if len(key) <= NAME_MAX else key[: NAME_MAX - 1] + "…"


def _span(began: float, ended: float, whole: float, room: int) -> tuple[int, int]:
    """Where a bar begins and how long it is, in columns; there is always some of it to see."""
    if whole <= 0:
        return 0, 1
    begin = min(room - 1, int(began / whole * room))
    return begin, max(1, min(room - begin, round((ended - began) / whole * room)))
