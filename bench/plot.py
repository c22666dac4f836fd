"""The figures as bars, one panel a question, on a logarithmic scale: `docs/bench.svg`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullFormatter

from plan import SUBJECTS

PICTURE = Path(__file__).resolve().parent.parent / "docs/bench.svg"
COLOURS = {
    "raw": "#8a8f98",
    "penstock": "#0b6e99",
    "dbos": "#d98c3f",
    "restate": "#8b6bb1",
    "raw-postgres": "#b9bdc4",
    "penstock-postgres": "#4fa3c7",
    "dbos-postgres": "#ecbe8f",
}
PANELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Three tasks in sequence", "runs/s, more is better", ("sequence",)),
    ("1,000 tasks in parallel", "tasks/s, more is better", ("fanout",)),
    ("One task at a time", "ms, less is better", ("latency p50", "latency p99")),
    (
        "Back after kill -9",
        "s, less is better; the task itself sleeps 2 s",
        ("recovery", "recovery of 10,000"),
    ),
    (
        "Cost as it grows",
        "µs, less is better",
        (
            "growth: run, empty",
            "growth: run, full",
            "growth: event at 1,000",
            "growth: event at 100,000",
        ),
    ),
    (
        "Starts, one by one and in one call",
        "runs/s, more is better",
        ("bulk: one by one", "bulk: in one call"),
    ),
    ("50 of 1,000,000 runs", "ms, less is better", ("list p50", "list p99")),
    ("Memory", "MiB, less is better", ("memory: waiting runs", "memory: tasks of one run")),
)


def draw(rows: Sequence[dict[str, Any]]) -> None:
    figures = {(row["question"], row["subject"]): row["figure"] for row in rows}
    shown = [panel for panel in PANELS if any(row["question"] in panel[2] for row in rows)]
    if not shown:
        return
    matplotlib.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none", "font.size": 9})
    lines = (len(shown) + 1) // 2
    picture, grid = pyplot.subplots(lines, 2, figsize=(11, 2.6 * lines), squeeze=False)
    panels = [axes for line in grid for axes in line]
    for axes, (title, unit, questions) in zip(panels, shown, strict=False):
        _panel(axes, title, unit, questions, figures)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    picture.tight_layout(h_pad=2.0, w_pad=3.0)
    PICTURE.parent.mkdir(exist_ok=True)
    picture.savefig(PICTURE, metadata={"Date": None, "Creator": None})
    pyplot.close(picture)


def _panel(
    axes: Any,
    title: str,
    unit: str,
    questions: tuple[str, ...],
    figures: dict[tuple[str, str], float],
) -> None:
    bars = [
        (question, subject, figures[question, subject])
        for question in questions
        for subject in SUBJECTS
        if (question, subject) in figures
    ]
    names = [
        subject if len(questions) == 1 else f"{subject}, {question.partition(': ')[2] or question}"
        for question, subject, _ in bars
    ]
    values = [value for *_, value in bars]
    places = range(len(bars))
    drawn = axes.barh(
        places, values, color=[COLOURS[subject] for _, subject, _ in bars], height=0.7
    )
    axes.bar_label(drawn, [f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in values], padding=3)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(values) / 3, max(values) * 4)
    axes.set_title(f"{title}", loc="left", fontweight="bold")
    axes.set_xlabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
