"""A run while one looks on: its graph, its last events and what it waits for, live or as plain lines."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from penstock.cli.follow import Followed, Line, links_of, tasks_of
from penstock.cli.graph import Drawing, arrange
from penstock.cli.humane import duration, local, until
from penstock.cli.output import STYLES, paint, say, text_of, visible
from penstock.cli.session import store_flag
from penstock.model.run import OPEN_TASK, PENDING

if TYPE_CHECKING:
    from penstock.core.owed import Reason

FRAME_SECONDS = 0.1
TASKS_DRAWN_MAX = 40
EVENTS_SHOWN = 5
REASONS_SHOWN = 3
FRAME_ROWS = 3 + EVENTS_SHOWN + REASONS_SHOWN + 2
"""Rows beside the graph."""
UNDER_WAY = frozenset({"attempt", "undo", "mutex"})
"""Reasons that end by themselves, with the work that is shown anyway."""


class View:
    """What is to be seen of one run."""

    def __init__(self, followed: Followed, url: str, *, note: str = "") -> None:
        self.followed, self.url, self.note = followed, url, note
        self._drawing: Drawing | None = None
        self._size: tuple[int, int] | None = None

    def frame(self, width: int, height: int, now: float) -> Group:
        parts: list[Text] = [self._header(width, now), Text("")]
        parts.extend(self._graph(width, height, now))
        parts.append(Text(""))
        parts.extend(self._events(width, now))
        parts.extend(self._waits(now))
        if self.note and not self.followed.closed:
            parts.append(Text(self.note, "detail", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _header(self, width: int, now: float) -> Text:
        followed = self.followed
        run = followed.run
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{run.id}", "title")
        text.append(f"  {followed.definition.name or run.definition}", "")
        text.append(f"  version {run.version}  ", "detail")
        text.append(followed.status, followed.status.lower() if followed.status.lower() in STYLES else "")
        if run.created_at:
            text.append(f"  {duration((run.ended_at or now) - run.created_at)}", "detail")
        over, count = followed.progress()
        text.append(f"  {over}/{count} tasks", "detail")
        return text

    def _graph(self, width: int, height: int, now: float) -> list[Text]:
        followed = self.followed
        if self._size != (width, height):
            self._size = (width, height)
            tasks = tasks_of(followed.definition)
            drawn = len([t for t in tasks if t.kind != "point"]) <= TASKS_DRAWN_MAX
            rows = max(6, height - FRAME_ROWS)
            links = links_of(followed.definition)
            self._drawing = arrange(tasks, links, width=width - 2, height=rows) if drawn else None
        drawing = self._drawing
        if drawing is None:
            return self._list(width, height, now)
        looks = {id: followed.look(id, now) for id in followed.definition.tasks}
        rows = drawing.draw(looks, followed.links())
        return [text_of([[(" ", ""), *row] for row in rows])]

    def _list(self, width: int, height: int, now: float) -> list[Text]:
        """Too large for a picture: a bar, what is open, and what ended last."""
        followed = self.followed
        over, count = followed.progress()
        span = max(10, min(60, width - 20))
        full = span * over // max(1, count)
        bar = Text(no_wrap=True)
        bar.append(" " + "━" * full, "completed").append("─" * (span - full), "pending").append(f"  {over}/{count}")
        open_ids: list[str] = []
        ended: list[tuple[float, str]] = []
        for id, task in followed.definition.tasks.items():
            state = followed.state(id)
            if task.type in ("start", "end") or state is None or state.status == PENDING:
                continue
            if state.status in OPEN_TASK or state.status in ("FAILED", "COMPENSATING", "UNDO_FAILED"):
                open_ids.append(id)
            else:
                ended.append((state.ended_at or 0, id))
        rows = max(4, height - FRAME_ROWS - 2)
        last = [id for _, id in sorted(ended)[-max(2, rows - len(open_ids)) :]]
        shown = [*last, *open_ids][-rows:]
        out = [bar, Text("")]
        for id in shown:
            look = followed.look(id, now)
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f" {look.symbol} {id}", look.style).append(f"  {look.detail}", "detail")
            out.append(line)
        return out

    def _events(self, width: int, now: float) -> list[Text]:
        out: list[Text] = []
        for line in list(self.followed.lines)[-EVENTS_SHOWN:]:
            text = Text(no_wrap=True, overflow="ellipsis")
            text.append(f"{local(line.at, now)}  ", "detail").append(_worded(line), "")
            text.truncate(width - 1, overflow="ellipsis")
            out.append(text)
        return out

    def _waits(self, now: float) -> list[Text]:
        return [
            Text(f"waits: {each}", "waiting", no_wrap=True, overflow="ellipsis")
            for each in waits(self.followed, self.url, now)[:REASONS_SHOWN]
        ]


def waits(followed: Followed, url: str, now: float) -> list[str]:
    """What the run waits for beside the work that is under way, and how to give it that."""
    return [_reason(each, followed, url, now) for each in followed.why() if each.kind not in UNDER_WAY]


def _reason(reason: Reason, followed: Followed, url: str, now: float) -> str:
    id, flag = followed.run.id, store_flag(url)
    due = "" if reason.due is None else f" ({until(reason.due, now)})"
    node = followed.node(reason.key)
    match reason.kind:
        case "signal":
            name = "" if node is None else node.config.get("name", node.config.get("more", ""))
            example = _example(None if node is None else node.config.get("schema"))
            return f"signal {name} is to come{due}: penstock signal {id} {name} {example}{flag}"
        case "form":
            return f"{reason.message}{due}: penstock submit {id} {reason.key} '{{…}}'{flag}"
        case "pause":
            return f"it is paused: penstock resume {id}{flag}"
        case _:
            return visible(reason.message) + due


def _example(schema: object) -> str:
    """A payload that might fit."""
    match schema:
        case {"type": "boolean"}:
            return "true"
        case {"type": "string"}:
            return "'\"text\"'"
        case {"type": "integer" | "number"}:
            return "1"
        case {"type": "object"}:
            return "'{…}'"
        case _:
            return "[JSON]"


def _worded(line: Line) -> str:
    return visible(f"{line.key}: {line.text}" if line.key else line.text)


async def show_live(view: View, console: Console, stop: asyncio.Event) -> None:
    """Draw until the run is closed or `stop` is set."""
    size = console.size
    followed = view.followed
    with Live(
        view.frame(size.width, size.height, time.time()), console=console, auto_refresh=False, transient=False,
        vertical_overflow="crop", redirect_stdout=True, redirect_stderr=True,
    ) as live:  # fmt: skip
        while not followed.closed and not stop.is_set():
            size = console.size
            live.update(view.frame(size.width, size.height, time.time()), refresh=True)
            try:
                await asyncio.wait_for(stop.wait(), FRAME_SECONDS)
            except TimeoutError:
                continue
        live.update(view.frame(size.width, size.height, time.time()), refresh=True)


class Plain:
    """Lines, one an event, for pipes and logs."""

    def __init__(self, followed: Followed, url: str) -> None:
        self.followed, self.url = followed, url
        self._waits: set[tuple[str, str]] = set()

    def line(self, line: Line) -> None:
        began = self.followed.run.created_at
        say(f"{local(line.at, line.at)} {'+' + duration(line.at - began):>8}  {_worded(line)}")

    def idle(self) -> None:
        """What it waits for, said once."""
        reasons = {(each.kind, each.key): each for each in self.followed.why() if each.kind not in UNDER_WAY}
        for known, each in reasons.items():
            if known not in self._waits:
                say(f"{paint('waits', 'waiting')}: {_reason(each, self.followed, self.url, time.time())}")
        self._waits = set(reasons)
