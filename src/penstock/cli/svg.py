"""A graph as SVG: boxes, lines and badges, and words below them.

The layout is that of the terminal (`cli/layout.py`), a column as wide as a letter. What a look or a badge means is for those
who draw with it: findings (`cli/picture.py`), two versions (`cli/diff_picture.py`). Each says what it says by a sign, a line
style and a colour, so that none of them says it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from penstock.cli.graph import Drawing, Link, Task, arrange
from penstock.cli.layout import Piece, Spot

COLUMN, ROW = 9, 24
"""Pixels of a character."""
MARGIN = 24
LINE = 20
LABEL_MAX = 60
TEXT_WIDTH_MIN = 640
WIDE, HIGH = 100_000, 1_000_000
STYLE = """\
svg { background: #fff; font: 14px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2328 }
.box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.2 }
.line { fill: none; stroke: #8c959f; stroke-width: 1.4 }
.back { fill: #6e7781; font-size: 12px }
.badge { stroke: none !important }
.number { fill: #fff; font-size: 11px; font-weight: bold; text-anchor: middle }
.head { font-weight: bold } .story { fill: #57606a }
"""
DARK = """\
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; fill: #e6edf3 }
  .box { fill: #161b22; stroke: #6e7681 } .line { stroke: #6e7681 } .story, .back { fill: #9198a1 }
%s}"""


@dataclass(frozen=True)
class Badge:
    """A sign in a disc."""

    sign: str
    style: str


@dataclass(frozen=True)
class Look:
    """How a task or a link is drawn."""

    style: str = ""
    badges: tuple[Badge, ...] = ()
    label: str = ""
    """Instead of its id."""


@dataclass(frozen=True)
class Entry:
    """Something that is told below the graph."""

    badge: Badge | None
    lines: tuple[tuple[str, str], ...]
    """Style and text; what is indented stays so."""


PLAIN = Look()


def page(
    title: str,
    tasks: Sequence[Task],
    links: Sequence[Link],
    looks: tuple[Mapping[str, Look], Mapping[int, Look]],
    entries: Sequence[Entry],
    *,
    style: str,
    dark: str = "",
) -> str:
    """The picture; `looks` are of tasks by id and of links by index, the others are plain."""
    drawing = arrange(tasks, links, width=WIDE, height=HIGH, label_max=LABEL_MAX)
    assert drawing is not None, "there is room for anything"
    body = _graph(drawing, *looks)
    legend, end = _legend(entries, _py(drawing.height) + MARGIN, drawing.width * COLUMN)
    width = max(drawing.width * COLUMN, TEXT_WIDTH_MIN) + 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {end}" width="{width}" height="{end}" role="img">',
            f"<title>{escape(plain(title))}</title>",
            f"<style>{STYLE}{style}{DARK % dark}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="context-stroke"/></marker></defs>',
            *body,
            *legend,
            "</svg>\n",
        ]
    )


def _graph(drawing: Drawing, tasks: Mapping[str, Look], links: Mapping[int, Look]) -> list[str]:
    # What is marked lies over what is not.
    lines = [(gap, piece) for gap, pieces in enumerate(drawing.plan.pieces) for piece in pieces]
    lines.sort(key=lambda line: bool(links.get(line[1].arc, PLAIN).style))
    body = [_line(drawing, gap, piece, links.get(piece.arc, PLAIN)) for gap, piece in lines]
    for row in drawing.plan.layers:
        for spot in row:
            if spot.vertex is not None:
                body += _task(drawing, spot, tasks.get(spot.vertex.id, PLAIN))
    for _, piece in lines:
        look = links.get(piece.arc, PLAIN)
        if look.badges and piece.lower.vertex is not None:
            x, y = _px(piece.stop) - 16, _py(drawing.edge(piece.lower, lower=False)) - 13
            body += _badges(x, y, look.badges)
    return body


def _line(drawing: Drawing, gap: int, piece: Piece, look: Look) -> str:
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
    return f'<polyline class="line {look.style}" points="{points}"{head}/>'


def _task(drawing: Drawing, spot: Spot, look: Look) -> list[str]:
    assert spot.vertex is not None
    task = drawing.tasks[spot.vertex.id]
    note = drawing.notes.get(task.id, "")
    columns = spot.width - (len(note) + 1 if note else 0)
    x, y = MARGIN + spot.x * COLUMN, _py(drawing.top(spot))
    width, height = columns * COLUMN, spot.vertex.height * ROW
    style, label = f"box {look.style}", escape(plain(_cut(look.label or task.id)))
    middle = _px(spot.at)
    if task.kind == "point":
        ring = f'<circle class="{style}" cx="{middle}" cy="{y + ROW // 2}" r="8"/>'
        text = f'<text x="{middle + 14}" y="{y + 15}">{label}</text>'
        return [ring, text, *_badges(middle - 14, y + ROW // 2, look.badges)]
    name = f"◇ {label}" if task.kind == "gateway" else label
    radius = 2 if task.kind == "gateway" else 8
    out = [
        f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>',
        f'<text x="{x + width // 2}" y="{y + height // 2 + 5}" text-anchor="middle">{name}</text>',
    ]
    if note:
        out.append(
            f'<text class="back" x="{x + width + 6}" y="{y + height // 2 + 4}">{escape(plain(note))}</text>'
        )
    return [*out, *_badges(x + 2, y + 2, look.badges)]


def _badges(x: int, y: int, badges: Sequence[Badge]) -> list[str]:
    out: list[str] = []
    for place, badge in enumerate(badges):
        at = x + 20 * place
        out.append(f'<circle class="badge {badge.style}" cx="{at}" cy="{y}" r="9"/>')
        out.append(f'<text class="number" x="{at}" y="{y + 4}">{escape(badge.sign)}</text>')
    return out


def _legend(entries: Sequence[Entry], top: int, width: int) -> tuple[list[str], int]:
    """What is told, wrapped; and where it ends."""
    columns = max(width, TEXT_WIDTH_MIN) // COLUMN - 4
    out: list[str] = []
    y = top + LINE
    for entry in entries:
        if entry.badge is not None:
            out += _badges(MARGIN + 8, y - 5, [entry.badge])
        x = MARGIN + (24 if entry.badge is not None else 0)
        for style, text in entry.lines:
            indent = text[: len(text) - len(text.lstrip(" "))]
            for part in wrap(plain(text), columns, subsequent_indent=indent) or [""]:
                out.append(
                    f'<text class="{style}" x="{x}" y="{y}" xml:space="preserve">{escape(part)}</text>'
                )
                y += LINE
        y += LINE // 2
    return out, y + MARGIN // 2


def plain(text: str) -> str:
    """What XML can hold."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _cut(label: str) -> str:
    return label if len(label) <= LABEL_MAX else f"{label[: LABEL_MAX - 1]}…"


def _px(column: int) -> int:
    return MARGIN + column * COLUMN + COLUMN // 2


def _py(row: int) -> int:
    return MARGIN + row * ROW
