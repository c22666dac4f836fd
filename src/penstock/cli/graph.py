"""A definition and its progress as a picture of characters.

Taken links are heavy, open ones light, dead ones dashed, so that it can be read without colour. Gives rows of styled
text; `output.py` knows what styles look like. Nothing here knows a run: `follow.py` says what each task is doing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.cli.layout import Arc, Layout, Piece, Spot, Vertex, layout

Span = tuple[str, str]
"""Text and its style."""
Rows = list[list[Span]]

LINES = " ╴╸╷┐┑╻┒┓╶─╾┌┬┭┎┰┱╺╼━┍┮┯┏┲┳╵┘┙│┤┥╽┧┪└┴┵├┼┽┟╁╅┕┶┷┝┾┿┢╆╈╹┚┛╿┦┩┃┨┫┖┸┹┞╀╃┠╂╉┗┺┻┡╄╇┣╊╋"
"""Lines by weight (none, light, heavy) of their arms: up * 27 + right * 9 + down * 3 + left."""
UP, RIGHT, DOWN, LEFT = 0, 1, 2, 3

DEAD, OPEN, TAKEN = "dead", "open", "taken"
RANK = {DEAD: 0, OPEN: 1, TAKEN: 2}
HEADS = {DEAD: "×", OPEN: "▽", TAKEN: "▼"}
DETAIL = 6
"""Columns kept for a duration."""
LABEL_MIN = 6


@dataclass(frozen=True)
class Look:
    """A task as it is now: what stands in its box."""

    symbol: str
    style: str
    detail: str = ""


@dataclass(frozen=True)
class Task:
    """A task as it is for ever: what the layout depends on."""

    id: str
    kind: str = "task"
    """`task`, `gateway`, or `point` for a start or end."""
    detail: int = DETAIL
    """Columns that its detail needs."""


@dataclass(frozen=True)
class Link:
    source: str
    target: str


@dataclass(frozen=True)
class Drawing:
    """A graph laid out for a terminal, to be drawn again and again."""

    tasks: Mapping[str, Task]
    plan: Layout
    boxed: bool
    tight: bool
    labels: Mapping[str, str]
    notes: Mapping[str, str]
    tops: Sequence[int]
    heights: Sequence[int]
    height: int

    @property
    def width(self) -> int:
        return self.plan.width

    def draw(self, looks: Mapping[str, Look], links: Mapping[int, str]) -> Rows:
        """`links` gives `taken` or `dead` by the link's index; the others are open."""
        canvas = _Canvas(self.width, self.height)
        for gap, pieces in enumerate(self.plan.pieces):
            for piece in pieces:
                self._line(canvas, gap, piece, links.get(piece.arc, OPEN))
        for row in self.plan.layers:
            for spot in row:
                if spot.vertex is not None:
                    self._task(canvas, spot, looks.get(spot.vertex.id, Look("·", "pending")))
        if self.boxed:
            self._heads(canvas, links)
        return canvas.rows()

    def _line(self, canvas: _Canvas, gap: int, piece: Piece, state: str) -> None:
        top = self.edge(piece.upper, lower=True)
        bottom = self.edge(piece.lower, lower=False)
        if piece.lower.vertex is None:  # on through the layer
            canvas.vertical(piece.stop, bottom, self.edge(piece.lower, lower=True), state)
        if piece.track is None or piece.start == piece.stop:
            canvas.vertical(piece.start, top, bottom, state)
            return
        turn = self.tops[gap] + self.heights[gap] + piece.track
        canvas.vertical(piece.start, top, turn, state)
        canvas.horizontal(turn, piece.start, piece.stop, state)
        canvas.vertical(piece.stop, turn, bottom, state)

    def edge(self, spot: Spot, *, lower: bool) -> int:
        """The row in which a line leaves or reaches a spot."""
        top, height = self.tops[spot.layer], self.heights[spot.layer]
        if spot.vertex is None:
            return top + height - 1 if lower else top
        first = self.top(spot)
        return first + spot.vertex.height - 1 if lower else first

    def top(self, spot: Spot) -> int:
        """The first row of a task."""
        assert spot.vertex is not None
        return self.tops[spot.layer] + (self.heights[spot.layer] - spot.vertex.height) // 2

    def _task(self, canvas: _Canvas, spot: Spot, look: Look) -> None:
        assert spot.vertex is not None
        task = self.tasks[spot.vertex.id]
        x, y = spot.x, self.top(spot)
        label, note = self.labels[task.id], self.notes.get(task.id, "")
        if task.kind == "point":
            canvas.text(x, y, look.symbol + (f" {label}" if label else ""), look.style)
            return
        name = f"◇ {label}" if task.kind == "gateway" else label
        if not self.boxed:
            canvas.text(x, y, look.symbol, look.style)
            end = canvas.text(x + _cells(look.symbol) + 1, y, name, look.style)
            if look.detail:
                end = canvas.text(end + 1, y, look.detail[: task.detail], "detail")
            if note:
                canvas.text(end + 1, y, note, "detail")
            return
        width = spot.width - (len(note) + 1 if note else 0)
        canvas.box(x, y, width, look.style)
        canvas.text(x + 2, y + 1, look.symbol, look.style)
        canvas.text(x + 3 + _cells(look.symbol), y + 1, name, look.style)
        if look.detail:
            detail = look.detail[: task.detail]
            canvas.text(x + width - 2 - len(detail), y + 1, detail, "detail")
        if note:
            canvas.text(x + width + 1, y + 1, note, "detail")

    def _heads(self, canvas: _Canvas, links: Mapping[int, str]) -> None:
        """Arrow heads on the upper border of what the links lead to; the best of several counts."""
        best: dict[tuple[int, int], str] = {}
        for pieces in self.plan.pieces:
            for piece in pieces:
                vertex = piece.lower.vertex
                if vertex is None or self.tasks[vertex.id].kind == "point":
                    continue
                place = (piece.stop, self.top(piece.lower))
                state = links.get(piece.arc, OPEN)
                if RANK[state] >= RANK[best.get(place, DEAD)]:
                    best[place] = state
        for (x, y), state in best.items():
            canvas.text(x, y, HEADS[state], state)


def arrange(
    tasks: Sequence[Task], links: Sequence[Link], *, width: int, height: int, label_max: int = 24
) -> Drawing | None:
    """The roomiest drawing that fits, or None: then a list says more."""
    inner = [task for task in tasks if task.kind != "point"]
    for boxed, tight, shown in (
        (True, False, tasks), (True, True, tasks), (True, True, inner), (False, True, tasks), (False, True, inner),
    ):  # fmt: skip
        sizes = [(shown, label_max), (shown, 16), (shown, 12), (shown, 9)]
        if not boxed:
            bare = [replace(task, detail=0) for task in shown]
            sizes += [(bare, 12), (bare, LABEL_MIN)]
        for chosen, most in sizes:
            drawing = _arranged(chosen, links, width, boxed=boxed, tight=tight, label_max=most)
            if drawing is not None:
                if drawing.height <= height:
                    return drawing
                break
    return None


def _arranged(
    tasks: Sequence[Task],
    links: Sequence[Link],
    width: int,
    *,
    boxed: bool,
    tight: bool,
    label_max: int,
) -> Drawing | None:
    arcs = [Arc(link.source, link.target, i) for i, link in enumerate(links)]
    notes = _notes(tasks, arcs)
    labels: dict[str, str] = {}
    vertices: list[Vertex] = []
    for task in tasks:
        label = (
            "" if task.kind == "point" and task.id in ("start", "end") else _cut(task.id, label_max)
        )
        labels[task.id] = label
        note = notes.get(task.id, "")
        extra = (len(note) + 1 if note else 0) + (2 if task.kind == "gateway" else 0)
        if task.kind == "point":
            vertices.append(Vertex(task.id, 1 + (len(label) + 1 if label else 0), 0, fixed=True))
            continue
        inner = 3 + len(label) + (task.detail + 1 if task.detail else 0)
        if boxed:
            full = inner + 4
            whole = full + extra
            port = (whole - (len(note) + 1 if note else 0)) // 2
            vertices.append(Vertex(task.id, whole, port, height=3, fixed=bool(note)))
        else:
            vertices.append(Vertex(task.id, inner + extra, 0, fixed=True))
    plan = layout(vertices, arcs, width)
    if plan is None:
        return None
    tops: list[int] = []
    heights: list[int] = []
    y = 0
    for i, row in enumerate(plan.layers):
        tops.append(y)
        heights.append(max((s.vertex.height for s in row if s.vertex is not None), default=1))
        y += heights[-1]
        if i < len(plan.tracks):
            points = not boxed or heights[-1] == 1
            y += plan.tracks[i] if tight and not points else max(1, plan.tracks[i])
    return Drawing({t.id: t for t in tasks}, plan, boxed, tight, labels, notes, tops, heights, y)


def _notes(tasks: Sequence[Task], arcs: list[Arc]) -> dict[str, str]:
    """Links that lead back are told, not drawn: `↺ review`."""
    plan = layout([Vertex(t.id, 1, 0) for t in tasks], arcs, 1 << 20)
    notes: dict[str, str] = {}
    for arc in [] if plan is None else plan.back:
        notes[arc.source] = f"↺ {arc.target}"
    return notes


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _cells(text: str) -> int:
    """Columns of a terminal; of what we draw, only the hourglass is wide."""
    return len(text) + text.count("⏳")


class _Canvas:
    """Cells with lines that meet, and text over them."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._arms: dict[tuple[int, int], list[int]] = {}
        self._state: dict[tuple[int, int], str] = {}
        self._text: dict[tuple[int, int], Span] = {}

    def vertical(self, x: int, top: int, bottom: int, state: str) -> None:
        for y in range(top, bottom):
            self._arm(x, y, DOWN, state)
            self._arm(x, y + 1, UP, state)

    def horizontal(self, y: int, start: int, stop: int, state: str) -> None:
        for x in range(min(start, stop), max(start, stop)):
            self._arm(x, y, RIGHT, state)
            self._arm(x + 1, y, LEFT, state)

    def _arm(self, x: int, y: int, arm: int, state: str) -> None:
        arms = self._arms.setdefault((x, y), [0, 0, 0, 0])
        arms[arm] = max(arms[arm], 2 if state == TAKEN else 1)
        if RANK[state] >= RANK[self._state.get((x, y), DEAD)]:
            self._state[(x, y)] = state

    def box(self, x: int, y: int, width: int, style: str) -> None:
        """A border; lines that reach it from below show as a branch of it."""
        for column in range(x + 1, x + width - 1):
            self.text(column, y, "─", style)
            down = self._arms.get((column, y + 2), [0, 0, 0, 0])[DOWN]
            self.text(column, y + 2, "─┬┰"[down], style)
        self.text(x, y, "╭", style)
        self.text(x + width - 1, y, "╮", style)
        self.text(x, y + 1, "│", style)
        self.text(x + 1, y + 1, " " * (width - 2), style)
        self.text(x + width - 1, y + 1, "│", style)
        self.text(x, y + 2, "╰", style)
        self.text(x + width - 1, y + 2, "╯", style)

    def text(self, x: int, y: int, text: str, style: str) -> int:
        """Write; gives the column after it."""
        for character in text:
            self._text[(x, y)] = (character, style)
            x += 1
            if character == "⏳":
                self._text[(x, y)] = ("", style)
                x += 1
        return x

    def rows(self) -> Rows:
        rows: Rows = []
        for y in range(self._height):
            spans: list[Span] = []
            for x in range(self._width):
                character, style = self._text.get((x, y)) or self._joint(x, y)
                if spans and spans[-1][1] == style:
                    spans[-1] = (spans[-1][0] + character, style)
                else:
                    spans.append((character, style))
            while spans and not spans[-1][0].strip():
                spans.pop()
            if spans:
                spans[-1] = (spans[-1][0].rstrip(), spans[-1][1])
            rows.append(spans)
        return rows

    def _joint(self, x: int, y: int) -> Span:
        arms = self._arms.get((x, y))
        if arms is None:
            return " ", ""
        state = self._state[(x, y)]
        if state == DEAD:
            if arms == [1, 0, 1, 0]:
                return "┆", state
            if arms == [0, 1, 0, 1]:
                return "┄", state
        up, right, down, left = arms
        return LINES[up * 27 + right * 9 + down * 3 + left], state
