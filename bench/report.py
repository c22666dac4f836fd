"""The figures as a table on the terminal, as JSON, as a line of history and as the page in the docs."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import server
from plan import STORES, SUBJECTS
from verdict import Verdict

HERE = Path(__file__).resolve().parent
LATEST = HERE / "latest.json"
HISTORY = HERE / "history.jsonl"
PAGE = HERE.parent / "docs/bench.md"
BEGIN, END = "<!-- bench: generated from here -->", "<!-- bench: to here -->"
WIDTH_MIN = 130
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
ORDER = (
    *("sequence", "latency p50", "latency p99", "fanout", "recovery", "recovery of 10,000"),
    *(
        "growth: run, empty",
        "growth: run, full",
        "growth: event at 1,000",
        "growth: event at 100,000",
    ),
    *(
        "memory: waiting runs",
        "signals",
        "memory: tasks of one run",
        "bulk: one by one",
        "bulk: in one call",
    ),
    *("list p50", "list p99", "idle"),
    *(
        "functions: sequence",
        "functions: sequence, processor",
        "functions: latency",
        "functions: latency, processor",
        "functions: fanout",
        "functions: fanout, processor",
        "functions: late step",
        "functions: growth",
    ),
    "functions: replay",
)
"""The figures as they stand on the page."""
NEW_PAGE = f"""# Benchmarks

Measured by `make bench`, which asks every subject side by side in one go, in rounds; a figure is the median of its
rounds, a ratio the median of the ratios in each round. What is asked and of whom is in `bench/plan.py`, what the
figures must be in `bench/verdict.py`. All subjects get the same dicts of about 200 bytes, and every result is checked.

- **raw**: our tables and indexes, written by a fixed script without any engine: what SQLite itself can do with 200
  runs a commit.
- **penstock**: as it comes, on SQLite with `synchronous=FULL`: hash chain, run rows, snapshots, recovery.
- **dbos**: as it comes, on SQLite; the best of plain and asynchronous steps and of several concurrencies.
- **raw-postgres**, **penstock-postgres**, **dbos-postgres**: the same three on a PostgreSQL server as it comes (`fsync` and
  `synchronous_commit` on), each on one of its own that is started for it.
- **restate**: its server as it comes, its log synced, called over HTTP on loopback; the best of its SDKs for TypeScript
  and Python, of 24 partitions (its default) and 2, and of several concurrencies.

Penstock and DBOS are libraries and share their process with who calls them; Restate is a server with three
processes at work. That is part of the comparison, not corrected for.

{BEGIN}
{END}
"""

Row = dict[str, Any]


def show(rows: Sequence[Row], facts: dict[str, Any], verdicts: Sequence[Verdict]) -> None:
    """Everything on the terminal."""
    console = Console()
    console.width = max(console.width, WIDTH_MIN)
    for store, subjects in STORES.items():
        table = Table(title=f"figures (medians), {NAMES[store]}", title_justify="left")
        table.add_column("question")
        for subject in subjects:
            table.add_column(subject, justify="right")
        table.add_column("unit")
        table.add_column("penstock is", justify="right")
        for question, unit, cells in _cells(rows, subjects):
            by_subject = [_figure(cells.get(s)) for s in subjects]
            table.add_row(question, *by_subject, unit, _ratios(cells, subjects))
        if table.rows:
            console.print(table)
    if facts:
        kept = Table(title="penstock, besides", title_justify="left", show_header=False)
        for name, value in facts.items():
            kept.add_row(name, _number(value))
        console.print(kept)
    judged = Table(title="what it must reach", title_justify="left")
    for heading in ("what", "needed", "measured", "verdict"):
        judged.add_column(heading)
    colours = {True: "green", False: "red", None: "yellow"}
    for one in verdicts:
        judged.add_row(one.what, one.needed, one.got, f"[{colours[one.met]}]{one.word}[/]")
    console.print(judged)


def keep(rows: Sequence[Row], facts: dict[str, Any]) -> tuple[list[Row], dict[str, Any]]:
    """Write `latest.json` and append to `history.jsonl`; gives all that is kept: what was not asked now stays as it was."""
    stamp = {"commit": commit(), "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    before = json.loads(LATEST.read_text()) if LATEST.exists() else {"rows": [], "facts": {}}
    by_key = {(row["question"], row["subject"]): row for row in before["rows"]}
    by_key |= {(row["question"], row["subject"]): {**row, **stamp} for row in rows}
    kept = sorted(by_key.values(), key=_place)
    facts_kept = {**before["facts"], **facts}
    LATEST.write_text(json.dumps({"rows": kept, "facts": facts_kept}, indent=1) + "\n")
    line = {**stamp, "machine": machine(), "rows": list(rows), "facts": facts}
    with HISTORY.open("a") as history:
        history.write(json.dumps(line) + "\n")
    return kept, facts_kept


def _place(row: Row) -> tuple[int, int]:
    """Where a row stands on the page: as the questions and the subjects do in the plan, figures of one question as before."""
    return (ORDER.index(row["question"]), SUBJECTS.index(row["subject"]))


def write_page(rows: Sequence[Row], facts: dict[str, Any], verdicts: Sequence[Verdict]) -> None:
    """Replace what is between the markers of `docs/bench.md`; the words around it stay."""
    text = (PAGE.read_text() if PAGE.exists() else "").strip() or NEW_PAGE
    if BEGIN not in text or END not in text:
        text += f"\n{BEGIN}\n{END}\n"
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(f"{head}{BEGIN}\n\n{_markdown(rows, facts, verdicts)}\n{END}{tail.rstrip()}\n")


def _markdown(rows: Sequence[Row], facts: dict[str, Any], verdicts: Sequence[Verdict]) -> str:
    found = machine()
    lines = [
        f"{found['cores']} cores, {found['system']}, "
        f"Python {found['python']}, SQLite {found['sqlite']}, PostgreSQL {found['postgresql']}.",
        "",
        "![Figures by question and subject](bench.svg)",
    ]
    for store, subjects in STORES.items():
        lines += [
            "",
            f"On {NAMES[store]}:",
            "",
            f"| question | {' | '.join(subjects)} | unit | commit |",
        ]
        lines.append(f"|---|{'---:|' * len(subjects)}---|---|")
        for question, unit, cells in _cells(rows, subjects):
            figures = [_figure(cells.get(s)) for s in subjects]
            at = ", ".join(sorted({row["commit"] for row in cells.values()}))
            lines.append(f"| {question} | {' | '.join(figures)} | {unit} | {at} |")
    lines += ["", "| what it must reach | needed | measured | |", "|---|---|---|---|"]
    lines += [f"| {one.what} | {one.needed} | {one.got} | {one.word} |" for one in verdicts]
    if facts:
        lines += ["", "| penstock, besides | |", "|---|---:|"]
        lines += [f"| {name} | {_number(value)} |" for name, value in facts.items()]
    return "\n".join(lines) + "\n"


def _figure(row: Row | None) -> str:
    return "" if row is None else _number(row["figure"]) + _spread(row)


def _cells(rows: Sequence[Row], subjects: Sequence[str]) -> list[tuple[str, str, dict[str, Row]]]:
    """The rows of some subjects gathered by question, in the order in which they were asked."""
    gathered: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["subject"] not in subjects:
            continue
        gathered.setdefault(row["question"], {})[row["subject"]] = row
    return [(name, next(iter(cells.values()))["unit"], cells) for name, cells in gathered.items()]


def _ratios(cells: dict[str, Row], subjects: Sequence[str]) -> str:
    mine = next((s for s in subjects if s.startswith("penstock")), None)
    if mine not in cells:
        return ""
    ours = cells[mine]["figure"]
    others = [s for s in subjects if s in cells and s != mine]
    return ", ".join(f"{ours / cells[s]['figure']:.3g} × {s}" for s in others)


def _spread(row: Row) -> str:
    smaller = " smaller" if row.get("reduced") else ""
    if "low" not in row:
        return smaller
    return f" ({_number(row['low'])}–{_number(row['high'])}){smaller}"


def _number(value: float | str) -> str:
    if isinstance(value, str):  # several figures in a row
        return value
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def commit() -> str:
    """The commit that is measured; with a plus if the tree differs from it."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "bench/*.py")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=HERE.parent, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def _postgresql() -> str:
    """The version of the server that the bench starts."""
    try:
        command = [str(server.programs() / "postgres"), "--version"]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
    except (ImportError, OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.split()[2]


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "postgresql": _postgresql(),
    }
