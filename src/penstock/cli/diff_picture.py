"""Two versions as one SVG: what both have, what came, what went, each with a sign, a line style and a colour.

Both graphs are laid over one another (a renamed task is one task), in the layout of the terminal (`cli/layout.py`).
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from penstock.cli.follow import tasks_of
from penstock.cli.layout import Arc, Layout, Piece, Spot, Vertex, layout

if TYPE_CHECKING:
    from penstock.dsl.diff import Difference
    from penstock.model.definition import Definition, Link

COLUMN, ROW, MARGIN, BOX = 9, 20, 24, 3
WIDE = 100_000
SIGNS = {"added": "+ ", "removed": "− ", "changed": "~ ", "kept": ""}
STYLE = """\
svg { background: #fff; font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }
.box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.2 }
.line { fill: none; stroke: #8c959f; stroke-width: 1.4 }
.added { stroke: #1a7f37; stroke-width: 2.6 }
.removed { stroke: #cf222e; stroke-width: 2; stroke-dasharray: 5 4 }
.changed { stroke: #bf8700; stroke-width: 2.6 }
.back { fill: #6e7781; font-size: 12px; stroke: none }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; fill: #e6edf3 }
  .box { fill: #161b22 }
}"""


def drawn(before: Definition, after: Definition, found: Difference) -> str:
    """The picture; what a body changed marks the task that has it."""
    names = {was: path for was, path in found.renamed.items() if "/" not in was}
    tasks = _tasks(before, after, found, names)
    links = _links(before, after, found, names)
    kinds = {task.id: task.kind for each in (before, after) for task in tasks_of(each)}
    labels = {id: _label(id, state, found) for id, state in tasks.items()}
    vertices = [
        Vertex(id, 1, 0, fixed=True)
        if kinds.get(id) == "point"
        else Vertex(id, len(labels[id]) + 4, (len(labels[id]) + 4) // 2, height=BOX)
        for id in tasks
    ]
    arcs = [Arc(source, target, i) for i, (source, target, _) in enumerate(links)]
    plan = layout(vertices, arcs, WIDE)
    assert plan is not None, "there is room for anything"
    tops, heights, bottom = _rows(plan)
    body = [
        _line(tops, heights, gap, piece, links[piece.arc][2])
        for gap, pieces in enumerate(plan.pieces)
        for piece in pieces
    ]
    for row in plan.layers:
        for spot in row:
            if spot.vertex is not None:
                id = spot.vertex.id
                body += _task(spot, tops, heights, labels[id], tasks[id], kinds.get(id, "task"))
    for place, arc in enumerate(plan.back):
        told = f"{SIGNS[links[arc.index][2]]}{arc.source} ↺ {arc.target}"
        body.append(_text(MARGIN, _y(bottom + 1 + place), told, "back"))
    height = _y(bottom + 2 + len(plan.back)) + MARGIN
    width = plan.width * COLUMN + 2 * MARGIN
    title = escape(f"{after.id}: version {found.before or '?'} to {found.after or '?'}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            f"<title>{title}</title>", f"<style>{STYLE}</style>", *body, "</svg>\n",
        ]
    )  # fmt: skip


def _tasks(
    before: Definition, after: Definition, found: Difference, names: dict[str, str]
) -> dict[str, str]:
    """Every task of both, by its name of today, and what became of it."""
    states = {names.get(id, id): "removed" for id in before.tasks if id in found.removed}
    merged = {names.get(id, id): "kept" for id in before.tasks} | states
    for id in after.tasks:
        merged[id] = "added" if id in found.added else "kept"
    touched = [change.path for change in found.changed]
    touched += [*found.added, *found.removed]
    touched += [f"{each.scope}/" for each in (*found.links_added, *found.links_removed)]
    touched += [f"{each.link.scope}/" for each in found.links_changed]
    for path in touched:
        id, _, inside = path.partition("/")
        if merged.get(id) == "kept" and (inside or path.endswith("/") or path in after.tasks):
            merged[id] = "changed"
    return merged


def _links(
    before: Definition, after: Definition, found: Difference, names: dict[str, str]
) -> list[tuple[str, str, str]]:
    added = {(link.from_, link.to, link.on) for link in found.links_added if not link.scope}
    removed = {(link.from_, link.to, link.on) for link in found.links_removed if not link.scope}
    changed = {
        (c.link.from_, c.link.to, c.link.on) for c in found.links_changed if not c.link.scope
    }

    def state(link: Link) -> str:
        name = (link.from_, link.to, link.on)
        return "added" if name in added else "changed" if name in changed else "kept"

    lost = [link for link in before.links if (link.from_, link.to, link.on) in removed]
    return [
        *((link.from_, link.to, state(link)) for link in after.links),
        *((names.get(link.from_, link.from_), names.get(link.to, link.to), "removed") for link in lost),
    ]  # fmt: skip


def _label(id: str, state: str, found: Difference) -> str:
    was = next((old for old, new in found.renamed.items() if new == id), None)
    return f"{SIGNS[state]}{id}" if was is None else f"{SIGNS[state]}{was} → {id}"


def _rows(plan: Layout) -> tuple[list[int], list[int], int]:
    """Top row and height of each layer, and the row under the last."""
    tops: list[int] = []
    heights: list[int] = []
    y = 0
    for place, row in enumerate(plan.layers):
        tops.append(y)
        heights.append(max((s.vertex.height for s in row if s.vertex is not None), default=1))
        y += heights[-1] + (max(1, plan.tracks[place]) if place < len(plan.tracks) else 0)
    return tops, heights, y


def _edge(spot: Spot, tops: list[int], heights: list[int], *, lower: bool) -> int:
    """Pixels from the top at which a line leaves or reaches a spot."""
    if spot.vertex is None:
        return _y(tops[spot.layer] + heights[spot.layer] if lower else tops[spot.layer])
    first = tops[spot.layer] + (heights[spot.layer] - spot.vertex.height) // 2
    return _y(first + spot.vertex.height if lower else first)


def _line(tops: list[int], heights: list[int], gap: int, piece: Piece, state: str) -> str:
    x0, x1 = _x(piece.start), _x(piece.stop)
    top = _edge(piece.upper, tops, heights, lower=True)
    through = piece.lower.vertex is None
    bottom = _edge(piece.lower, tops, heights, lower=through)
    points = f"{x0},{top} {x1},{bottom}"
    if piece.track is not None and x0 != x1:
        turn = _y(tops[gap] + heights[gap] + piece.track) + ROW // 2
        points = f"{x0},{top} {x0},{turn} {x1},{turn} {x1},{bottom}"
    return f'<polyline class="line {state}" points="{points}"/>'


def _task(
    spot: Spot, tops: list[int], heights: list[int], label: str, state: str, kind: str
) -> list[str]:
    assert spot.vertex is not None
    y = _edge(spot, tops, heights, lower=False)
    if kind == "point":
        return [
            f'<circle class="box {state}" cx="{_x(spot.at)}" cy="{y + ROW // 2}" r="8"/>',
            _text(_x(spot.at) + 14, y + 15, label),
        ]
    width, height = spot.width * COLUMN, spot.vertex.height * ROW
    x, radius = MARGIN + spot.x * COLUMN, 2 if kind == "gateway" else 8
    return [
        f'<rect class="box {state}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>',
        _text(x + width // 2, y + height // 2 + 5, label, middle=True),
    ]


def _text(x: int, y: int, text: str, style: str = "", *, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text class="{style}" x="{x}" y="{y}"{anchor}>{escape(text)}</text>'


def _x(column: int) -> int:
    return MARGIN + column * COLUMN + COLUMN // 2


def _y(row: int) -> int:
    return MARGIN + row * ROW
