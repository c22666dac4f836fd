"""A definition as SVG, with what was found marked where it is.

The layout is that of the terminal (`cli/layout.py`), a column as wide as a letter. Marks have a number, a shape and a
colour, so that none of them says it alone; under the graph each is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

from penstock.cli.follow import links_of, tasks_of
from penstock.cli.graph import Drawing, arrange
from penstock.cli.layout import Piece, Spot
from penstock.verify.report import path_text, summary
from penstock.verify.scenario import Scenario
from penstock.verify.telling import history

if TYPE_CHECKING:
    from penstock.dsl.finding import Finding, Path
    from penstock.model.definition import Definition

COLUMN, ROW = 9, 24
"""Pixels of a character."""
MARGIN = 24
LINE = 20
TEXT_WIDTH_MIN = 640
WIDE, HIGH = 100_000, 1_000_000
STYLE = """\
svg { background: #fff; font: 14px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2328 }
.box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.2 }
.line { fill: none; stroke: #8c959f; stroke-width: 1.4 }
.back { fill: #6e7781; font-size: 12px }
.error { stroke: #cf222e; stroke-width: 2.6 }
.warning { stroke: #bf8700; stroke-width: 2.4; stroke-dasharray: 6 3 }
.note { stroke: #1a7f37; stroke-width: 2; stroke-dasharray: 2 3 }
.badge { stroke: none }
.badge.error { fill: #cf222e } .badge.warning { fill: #9a6700 } .badge.note { fill: #1a7f37 }
.number { fill: #fff; font-size: 11px; font-weight: bold; text-anchor: middle }
.head { font-weight: bold } .story { fill: #57606a }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; fill: #e6edf3 }
  .box { fill: #161b22; stroke: #6e7681 } .line { stroke: #6e7681 } .story, .back { fill: #9198a1 }
}"""
RANK = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Mark:
    number: int
    level: str


def svg(definition: Definition, findings: Sequence[Finding]) -> str:
    """The graph with each finding marked, and under it what was found."""
    drawing = arrange(tasks_of(definition), links_of(definition), width=WIDE, height=HIGH)
    assert drawing is not None, "there is room for anything"
    tasks, links = _marks(definition, findings)
    body: list[str] = []
    for gap, pieces in enumerate(drawing.plan.pieces):
        for piece in pieces:
            body.append(_line(drawing, gap, piece, links.get(piece.arc, [])))
    for row in drawing.plan.layers:
        for spot in row:
            if spot.vertex is not None:
                body += _task(drawing, spot, tasks.get(spot.vertex.id, []))
    for pieces in drawing.plan.pieces:
        for piece in pieces:
            if piece.arc in links and piece.lower.vertex is not None:
                x, y = _px(piece.stop) - 16, _py(drawing.edge(piece.lower, lower=False)) - 13
                body += _badges(x, y, links[piece.arc])
    top = _py(drawing.height) + MARGIN
    legend, end = _legend(findings, top, drawing.width * COLUMN)
    width = max(drawing.width * COLUMN, TEXT_WIDTH_MIN) + 2 * MARGIN
    title = escape(f"{definition.id}: {summary(findings)}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {end}" width="{width}" height="{end}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="context-stroke"/></marker></defs>',
            *body,
            *legend,
            "</svg>\n",
        ]
    )


def _marks(
    definition: Definition, findings: Iterable[Finding]
) -> tuple[dict[str, list[Mark]], dict[int, list[Mark]]]:
    """Which tasks and links of the definition each finding is about; what is in a body marks its task."""
    tasks: dict[str, list[Mark]] = {}
    links: dict[int, list[Mark]] = {}
    for number, finding in enumerate(findings, 1):
        paths = [finding.place.path, *(other.place.path for other in finding.related)]
        for path in paths:
            mark = Mark(number, finding.level)
            match path:
                case ("tasks", str(id), *_) if id in definition.tasks:
                    held = tasks.setdefault(id, [])
                case ("links", int(index), *_) if index < len(definition.links):
                    held = links.setdefault(index, [])
                case _:
                    continue
            if mark not in held:
                held.append(mark)
    return tasks, links


def _line(drawing: Drawing, gap: int, piece: Piece, marks: list[Mark]) -> str:
    top = drawing.edge(piece.upper, lower=True)
    bottom = drawing.edge(piece.lower, lower=False)
    start, stop = _px(piece.start), _px(piece.stop)
    y0 = _py(top + 1) if piece.upper.vertex is not None else _py(top) + ROW // 2
    through = piece.lower.vertex is None
    y1 = _py(drawing.edge(piece.lower, lower=True)) + ROW // 2 if through else _py(bottom)
    if piece.track is None or start == stop:
        points = f"{start},{y0} {stop},{y1}"
    else:
        turn = _py(drawing.tops[gap] + drawing.heights[gap] + piece.track) + ROW // 2
        points = f"{start},{y0} {start},{turn} {stop},{turn} {stop},{y1}"
    head = "" if through else ' marker-end="url(#head)"'
    return f'<polyline class="line {_worst(marks)}" points="{points}"{head}/>'


def _task(drawing: Drawing, spot: Spot, marks: list[Mark]) -> list[str]:
    assert spot.vertex is not None
    task = drawing.tasks[spot.vertex.id]
    note = drawing.notes.get(task.id, "")
    columns = spot.width - (len(note) + 1 if note else 0)
    x, y = MARGIN + spot.x * COLUMN, _py(drawing.top(spot))
    width, height = columns * COLUMN, spot.vertex.height * ROW
    style, label = f"box {_worst(marks)}", escape(_plain(task.id))
    middle = _px(spot.at)
    if task.kind == "point":
        ring = f'<circle class="{style}" cx="{middle}" cy="{y + ROW // 2}" r="8"/>'
        text = f'<text x="{middle + 14}" y="{y + 15}">{label}</text>'
        return [ring, text, *_badges(middle - 14, y + ROW // 2, marks)]
    name = f"◇ {label}" if task.kind == "gateway" else label
    radius = 2 if task.kind == "gateway" else 8
    out = [
        f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>',
        f'<text x="{x + width // 2}" y="{y + height // 2 + 5}" text-anchor="middle">{name}</text>',
    ]
    if note:
        out.append(
            f'<text class="back" x="{x + width + 6}" y="{y + height // 2 + 4}">{escape(_plain(note))}</text>'
        )
    return [*out, *_badges(x + 2, y + 2, marks)]


def _badges(x: int, y: int, marks: list[Mark]) -> list[str]:
    out: list[str] = []
    for place, mark in enumerate(marks):
        at = x + 20 * place
        out.append(f'<circle class="badge {mark.level}" cx="{at}" cy="{y}" r="9"/>')
        out.append(f'<text class="number" x="{at}" y="{y + 4}">{mark.number}</text>')
    return out


def _legend(findings: Sequence[Finding], top: int, width: int) -> tuple[list[str], int]:
    """What was found, in words; and where it ends."""
    columns = max(width, TEXT_WIDTH_MIN) // COLUMN - 4
    out: list[str] = []
    y = top + LINE
    if not findings:
        out.append(f'<text class="head" x="{MARGIN}" y="{y}">no findings</text>')
        y += LINE
    for number, finding in enumerate(findings, 1):
        out += _badges(MARGIN + 8, y - 5, [Mark(number, finding.level)])
        said = f"{finding.level}[{finding.code}]: {finding.message}"
        lines = [("head", line) for line in wrap(_plain(said), columns)]
        lines += [("story", line) for line in wrap(_plain(_where(finding)), columns)]
        if isinstance(finding.counterexample, Scenario):
            told = (_plain(line) for line in history(finding.counterexample))
            lines += [("story", f"  {part}") for line in told for part in wrap(line, columns - 2)]
        if finding.hint:
            lines += [("story", line) for line in wrap(f"hint: {_plain(finding.hint)}", columns)]
        for style, line in lines:
            out.append(
                f'<text class="{style}" x="{MARGIN + 24}" y="{y}" xml:space="preserve">{escape(line)}</text>'
            )
            y += LINE
        y += LINE // 2
    return out, y + MARGIN // 2


def _where(finding: Finding) -> str:
    place = finding.place
    path: Path = place.path
    return (
        f"{place.source}:{place.line}:{place.column}"
        if place.line
        else f"{place.source}: {path_text(path)}"
    )


def _worst(marks: list[Mark]) -> str:
    return min((mark.level for mark in marks), key=RANK.__getitem__, default="")


def _plain(text: str) -> str:
    """What XML can hold."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _px(column: int) -> int:
    return MARGIN + column * COLUMN + COLUMN // 2


def _py(row: int) -> int:
    return MARGIN + row * ROW
