"""A run while one looks on: its graph, its last events and what it waits for, live or as plain lines."""

from __future__ import annotations

import asyncio
import time
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from penstock.cli.follow import Followed, Line, links_of, tasks_of
from penstock.cli.graph import Drawing, Task, arrange
from penstock.cli.humane import due_words, duration, local
from penstock.cli.output import STYLES, paint, say, text_of, visible
from penstock.cli.session import store_flag
from penstock.model.run import OPEN_TASK, PENDING

if TYPE_CHECKING:
    from penstock.core.owed import Reason

FRAME_SECONDS = 0.1
TASKS_DRAWN_MAX = 40
FULL, SLIM = (5, 2), (2, 1)
"""Events and reasons that are shown: as many as the graph leaves room for."""
UNDER_WAY = frozenset({"attempt", "undo", "mutex"})
"""Reasons that end by themselves, with the work that is shown anyway."""


class View:
    """What is to be seen of one run."""

    def __init__(self, followed: Followed, url: str, *, note: str = "") -> None:
        self.followed, self.url, self.note = followed, url, note
        self._drawing: Drawing | None = None
        self._size: tuple[int, int] | None = None
        self._beside = FULL

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
        text.append(
            followed.status, followed.status.lower() if followed.status.lower() in STYLES else ""
        )
        if run.created_at:
            text.append(f"  {duration((run.ended_at or now) - run.created_at)}", "detail")
        over, count = followed.progress()
        text.append(f"  {over}/{count} tasks", "detail")
        return text

    def _graph(self, width: int, height: int, now: float) -> list[Text]:
        followed = self.followed
        if followed.timeline is not None:
            rows = followed.timeline.draw(width - 2, now, max(6, height - _rows(FULL)))
            return [text_of([[(" ", ""), *row] for row in rows])]
        if self._size != (width, height):
            self._size = (width, height)
            tasks = tasks_of(followed.definition)
            if len([t for t in tasks if t.kind != "point"]) <= TASKS_DRAWN_MAX:
                self._arrange(tasks, width, height)
        drawing = self._drawing
        if drawing is None:
            return self._list(width, height, now)
        looks = {id: followed.look(id, now) for id in followed.definition.tasks}
        rows = drawing.draw(looks, followed.links())
        return [text_of([[(" ", ""), *row] for row in rows])]

    def _arrange(self, tasks: list[Task], width: int, height: int) -> None:
        """The roomiest picture; rather fewer events than a smaller one."""
        links = links_of(self.followed.definition)
        self._drawing, self._beside = None, FULL
        for beside in (FULL, SLIM):
            found = arrange(tasks, links, width=width - 2, height=max(6, height - _rows(beside)))
            if found is not None and (
                self._drawing is None or (found.boxed and not self._drawing.boxed)
            ):
                self._drawing, self._beside = found, beside

    def _list(self, width: int, height: int, now: float) -> list[Text]:
        """Too large for a picture: a bar, what is open, and what ended last."""
        followed = self.followed
        over, count = followed.progress()
        span = max(10, min(60, width - 20))
        full = span * over // max(1, count)
        bar = Text(no_wrap=True)
        bar.append(" " + "━" * full, "completed").append("─" * (span - full), "pending").append(
            f"  {over}/{count}"
        )
        open_ids: list[str] = []
        ended: list[tuple[float, str]] = []
        for id, task in followed.definition.tasks.items():
            state = followed.state(id)
            if task.type in ("start", "end") or state is None or state.status == PENDING:
                continue
            if state.status in OPEN_TASK or state.status in (
                "FAILED",
                "COMPENSATING",
                "UNDO_FAILED",
            ):
                open_ids.append(id)
            else:
                ended.append((state.ended_at or 0, id))
        rows = max(4, height - _rows(FULL) - 2)
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
        for line in list(self.followed.lines)[-self._beside[0] :]:
            text = Text(no_wrap=True, overflow="ellipsis")
            text.append(f"{local(line.at, now)}  ", "detail").append(_worded(line), "")
            text.truncate(width - 1, overflow="ellipsis")
            out.append(text)
        return out

    def _waits(self, now: float) -> list[Text]:
        out: list[Text] = []
        for reason in [each for each in self.followed.why() if each.kind not in UNDER_WAY][
            : self._beside[1]
        ]:
            text, command = wording(reason, self.followed, self.url, now)
            out.append(Text(f"waits: {text}", "waiting", no_wrap=True, overflow="ellipsis"))
            if command:
                out.append(Text(f"       {command}", "command", no_wrap=True, overflow="fold"))
        return out


def _rows(beside: tuple[int, int]) -> int:
    """What a frame needs beside the graph: header, two gaps, hint, and a row for the cursor."""
    return 5 + beside[0] + 2 * beside[1]


def wording(reason: Reason, followed: Followed, url: str, now: float) -> tuple[str, str]:
    """What the run waits for, and the command that gives it that."""
    id, flag = quote(followed.run.id), store_flag(url)
    words = "" if reason.due is None else due_words(reason.message, reason.due, now)
    due = f" ({words})" if words else ""
    node = followed.node(reason.key)
    match reason.kind:
        case "signal":
            config = {} if node is None else node.config
            name = config.get("more", config.get("name", ""))
            return (
                f"signal {name} is to come{due}",
                f"penstock signal {id} {quote(name)} {_example(config.get('schema'))}{flag}",
            )
        case "form":
            return (
                f"{visible(reason.message)}{due}",
                f"penstock submit {id} {quote(reason.key)} '{{…}}'{flag}",
            )
        case "pause":
            return "it is paused", f"penstock resume {id}{flag}"
        case _:
            return visible(reason.message) + due, ""


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
        reasons = {
            (each.kind, each.key): each
            for each in self.followed.why()
            if each.kind not in UNDER_WAY
        }
        for known, each in reasons.items():
            if known not in self._waits:
                text, command = wording(each, self.followed, self.url, time.time())
                say(f"{paint('waits', 'waiting')}: {text}" + (f": {command}" if command else ""))
        self._waits = set(reasons)
