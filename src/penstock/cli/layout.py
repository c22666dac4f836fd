"""Where the tasks of a graph stand: layers from top to bottom, few crossings, straight lines where they can be.

Pure geometry, in characters. A layout is computed once for a definition and a size of terminal and then drawn many
times (`graph.py`) while statuses change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

GAP = 2
"""Columns between neighbours."""
SWEEPS = 6


@dataclass(frozen=True)
class Vertex:
    """Something to be placed: `width` columns, lines end at column `port` of it."""

    id: str
    width: int
    port: int
    height: int = 1
    fixed: bool = False
    """Lines end at the port alone; otherwise anywhere on its border."""


@dataclass(frozen=True)
class Arc:
    """From one vertex to another; `index` is its place among the links of the definition."""

    source: str
    target: str
    index: int


@dataclass
class Spot:
    """A vertex, or a long arc on its way, in its layer."""

    layer: int
    width: int
    port: int
    vertex: Vertex | None = None
    x: int = 0
    above: list[Spot] = field(default_factory=list["Spot"])
    below: list[Spot] = field(default_factory=list["Spot"])

    @property
    def at(self) -> int:
        """The column in which lines end."""
        return self.x + self.port

    def covers(self, column: int) -> bool:
        if self.vertex is None or self.vertex.fixed:
            return False
        return self.x < column < self.x + self.width - 1


@dataclass(frozen=True)
class Piece:
    """The part of an arc between two neighbouring layers; `track` is the row of its horizontal part, if any."""

    upper: Spot
    lower: Spot
    arc: int
    start: int
    stop: int
    track: int | None


@dataclass
class Layout:
    layers: list[list[Spot]]
    pieces: list[list[Piece]]
    """For each gap below a layer."""
    tracks: list[int]
    """How many rows each gap needs at least."""
    back: list[Arc]
    """Arcs that lead back, and so are not drawn as lines."""
    width: int


def layout(vertices: Sequence[Vertex], arcs: Sequence[Arc], width: int) -> Layout | None:
    """The layout, or None if a layer is wider than `width`."""
    known = {v.id: v for v in vertices}
    forward, back = _split(
        list(known), [a for a in arcs if a.source in known and a.target in known]
    )
    depth = _depths(list(known), forward)
    layers, chains = _spots(known, forward, depth)
    if any(_narrow(row) > width for row in layers):
        return None
    _order(layers)
    _place(layers, width)
    left = min((spot.x for row in layers for spot in row), default=0)
    for row in layers:
        for spot in row:
            spot.x -= left
    pieces = [_gap(layers[i], chains[i]) for i in range(len(layers) - 1)]
    tracks = [1 + max((p.track for p in gap if p.track is not None), default=-1) for gap in pieces]
    right = max((spot.x + spot.width for row in layers for spot in row), default=0)
    return Layout(layers, pieces, tracks, back, right)


def _split(ids: list[str], arcs: list[Arc]) -> tuple[list[Arc], list[Arc]]:
    """Arcs that go on, and those that lead back to where a walk from the first vertex came from."""
    following: dict[str, list[Arc]] = {id: [] for id in ids}
    for arc in arcs:
        following[arc.source].append(arc)
    entered: set[str] = {arc.target for arc in arcs}
    back: set[int] = set()
    done: set[str] = set()
    for root in sorted(ids, key=lambda id: id in entered):
        if root in done:
            continue
        on_path = {root}
        walk: list[tuple[str, Iterator[Arc]]] = [(root, iter(following[root]))]
        while walk:
            id, rest = walk[-1]
            arc = next(rest, None)
            if arc is None:
                walk.pop()
                on_path.discard(id)
                done.add(id)
            elif arc.target in on_path:
                back.add(arc.index)
            elif arc.target not in done:
                on_path.add(arc.target)
                walk.append((arc.target, iter(following[arc.target])))
    return [a for a in arcs if a.index not in back], [a for a in arcs if a.index in back]


def _depths(ids: list[str], arcs: list[Arc]) -> dict[str, int]:
    """The longest way to each vertex."""
    waiting = dict.fromkeys(ids, 0)
    following: dict[str, list[str]] = {id: [] for id in ids}
    for arc in arcs:
        waiting[arc.target] += 1
        following[arc.source].append(arc.target)
    depth = dict.fromkeys(ids, 0)
    todo = [id for id in ids if not waiting[id]]
    while todo:
        id = todo.pop()
        for target in following[id]:
            depth[target] = max(depth[target], depth[id] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                todo.append(target)
    return depth


def _spots(
    known: dict[str, Vertex], arcs: list[Arc], depth: dict[str, int]
) -> tuple[list[list[Spot]], list[list[tuple[Spot, Spot, int]]]]:
    """Each vertex in its layer, and a spot for every layer that a long arc passes."""
    count = 1 + max(depth.values(), default=0)
    layers: list[list[Spot]] = [[] for _ in range(count)]
    chains: list[list[tuple[Spot, Spot, int]]] = [[] for _ in range(count)]
    spots: dict[str, Spot] = {}
    for id, vertex in known.items():
        spot = spots[id] = Spot(depth[id], vertex.width, vertex.port, vertex)
        layers[depth[id]].append(spot)
    passing: dict[tuple[str, int], Spot] = {}
    for arc in arcs:
        upper, target = spots[arc.source], spots[arc.target]
        for layer in range(upper.layer + 1, target.layer):
            # Long arcs to one target share their way: fewer lines say the same.
            spot = passing.get((arc.target, layer))
            if spot is None or spot.layer <= upper.layer:
                spot = passing[(arc.target, layer)] = Spot(layer, 1, 0)
                layers[layer].append(spot)
            _join(chains, upper, spot, arc.index)
            upper = spot
        _join(chains, upper, target, arc.index)
    return layers, chains


def _join(chains: list[list[tuple[Spot, Spot, int]]], upper: Spot, lower: Spot, arc: int) -> None:
    chains[upper.layer].append((upper, lower, arc))
    if lower not in upper.below:
        upper.below.append(lower)
        lower.above.append(upper)


def _narrow(row: list[Spot]) -> int:
    return sum(spot.width for spot in row) + GAP * max(0, len(row) - 1)


def _order(layers: list[list[Spot]]) -> None:
    """Barycentres, down and up, keeping the order with the fewest crossings."""
    best, fewest = [list(row) for row in layers], _crossings(layers)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        for row, others in _steps(layers, downwards):
            place = {id(spot): i for i, spot in enumerate(others)}
            weights: dict[int, float] = {}
            for i, spot in enumerate(row):
                near = [place[id(n)] for n in (spot.above if downwards else spot.below)]
                weights[id(spot)] = sum(near) / len(near) if near else float(i)
            row.sort(key=lambda spot: weights[id(spot)])
        count = _crossings(layers)
        if count < fewest:
            best, fewest = [list(row) for row in layers], count
    for row, kept in zip(layers, best, strict=True):
        row[:] = kept


def _steps(layers: list[list[Spot]], downwards: bool) -> Iterator[tuple[list[Spot], list[Spot]]]:
    """Each layer with the one that it is ordered or placed by."""
    places = range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1)
    for i in places:
        yield layers[i], layers[i - 1 if downwards else i + 1]


def _crossings(layers: list[list[Spot]]) -> int:
    count = 0
    for upper, lower in pairwise(layers):
        place = {id(spot): i for i, spot in enumerate(lower)}
        ends = [sorted(place[id(t)] for t in spot.below) for spot in upper]
        for i, first in enumerate(ends):
            for second in ends[i + 1 :]:
                count += sum(1 for a in first for b in second if b < a)
    return count


def _place(layers: list[list[Spot]], width: int) -> None:
    for row in layers:
        x = 0
        for spot in row:
            spot.x, x = x, x + spot.width + GAP
    for downwards in (True, False, True, False, True):
        for row, _ in _steps(layers, downwards):
            _align(row, downwards, width)
        _align(layers[0], False, width)


def _align(row: list[Spot], downwards: bool, width: int) -> None:
    """Each spot as near as can be to the mean of its neighbours, in order and without overlap.

    Least squares under order: neighbours that would overlap form a block, which stands at the mean of its wishes.
    """
    offset = 0
    blocks: list[tuple[float, float, list[tuple[Spot, int]]]] = []
    for spot in row:
        near = spot.above if downwards else spot.below
        wish = (sum(n.at for n in near) / len(near) if near else spot.at) - spot.port - offset
        weight = 4.0 if spot.vertex is None else 1.0
        blocks.append((wish, weight, [(spot, offset)]))
        offset += spot.width + GAP
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            wish, weight, members = blocks.pop()
            before, heft, group = blocks.pop()
            mean = (before * heft + wish * weight) / (heft + weight)
            blocks.append((mean, heft + weight, group + members))
    slack = width - (offset - GAP)
    for wish, _, members in blocks:
        shift = max(0, min(slack, ceil(wish - 0.5)))
        for spot, own in members:
            spot.x = shift + own


def _gap(row: list[Spot], links: list[tuple[Spot, Spot, int]]) -> list[Piece]:
    """Where the lines of one gap run. Sources with the same targets share a horizontal line."""
    ports: dict[tuple[int, bool], int] = {}
    for upper, lower, _ in links:
        near = abs(upper.at - lower.at) <= 2 or (len(upper.below) == 1 and len(lower.above) == 1)
        if near and lower.covers(upper.at) and len(lower.above) == 1:
            ports[(id(lower), True)] = upper.at
        elif near and upper.covers(lower.at) and len(upper.below) == 1:
            ports[(id(upper), False)] = lower.at
    groups: dict[tuple[int, ...], list[tuple[Spot, Spot, int, int, int]]] = {}
    for upper, lower, arc in links:
        start = ports.get((id(upper), False), upper.at)
        stop = ports.get((id(lower), True), lower.at)
        name = tuple(sorted(id(each) for each in upper.below))
        groups.setdefault(name, []).append((upper, lower, arc, start, stop))
    tracks = _tracks([list({(s, t) for _, _, _, s, t in group}) for group in groups.values()])
    return [
        Piece(upper, lower, arc, start, stop, track)
        for group, track in zip(groups.values(), tracks, strict=True)
        for upper, lower, arc, start, stop in group
    ]


def _tracks(groups: list[list[tuple[int, int]]]) -> list[int | None]:
    """A row for each group's horizontal line; None where all its lines are straight."""
    spans = [
        (min(min(p) for p in group), max(max(p) for p in group))
        if any(s != t for s, t in group)
        else None
        for group in groups
    ]
    # A line that comes down a column must turn off above a line that goes on down the same column.
    after: list[set[int]] = [set() for _ in groups]
    for i, first in enumerate(groups):
        starts = {s for s, _ in first}
        for j, second in enumerate(groups):
            if (
                i != j
                and starts & {t for _, t in second}
                and i not in after[j]
                and j not in after[i]
            ):
                after[j].add(i)
    rows: list[list[tuple[int, int]]] = []
    found: list[int | None] = [None] * len(groups)
    left = [i for i, span in enumerate(spans) if span is not None]
    while left:
        i = next((i for i in left if not after[i] & set(left)), left[0])
        left.remove(i)
        span = spans[i]
        assert span is not None
        lowest = 1 + max((found[j] or 0 for j in after[i] if found[j] is not None), default=-1)
        row = next(
            (
                r
                for r in range(lowest, len(rows))
                if all(b < span[0] or span[1] < a for a, b in rows[r])
            ),
            max(lowest, len(rows)),
        )
        while len(rows) <= row:
            rows.append([])
        rows[row].append(span)
        found[i] = row
    return found
