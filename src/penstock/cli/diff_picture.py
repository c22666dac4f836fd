"""Two versions as one SVG: what both have, what came, what went, what changed, each with a sign, a line style and a colour.

Both graphs are laid over one another (a renamed task is one task); below, every change is told in words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli.diff import changes
from penstock.cli.follow import tasks_of
from penstock.cli.graph import Link as Line
from penstock.cli.graph import Task
from penstock.cli.svg import Badge, Entry, Look, page

if TYPE_CHECKING:
    from penstock.dsl.diff import Difference
    from penstock.model.definition import Definition, Link

STYLE = """\
.added { stroke: #1a7f37; stroke-width: 2.6 }
.removed { stroke: #cf222e; stroke-width: 2; stroke-dasharray: 5 4 }
.changed { stroke: #bf8700; stroke-width: 2.6; stroke-dasharray: 12 3 }
.badge.added { fill: #1a7f37 } .badge.removed { fill: #cf222e } .badge.changed { fill: #9a6700 }
"""
DARK = "  .box.removed, .line.removed { stroke: #ff7b72 } .box.added, .line.added { stroke: #3fb950 }\n"
BADGES = {"added": Badge("+", "added"), "removed": Badge("−", "removed"), "changed": Badge("~", "changed")}  # fmt: skip
STATES = {"+": "added", "-": "removed", "~": "changed"}


def drawn(before: Definition, after: Definition, found: Difference, title: str) -> str:
    """The picture; what a body changed marks the task that has it."""
    names = {was: path for was, path in found.renamed.items() if "/" not in was}
    states = _tasks(before, after, found, names)
    links = _links(before, after, found, names)
    labels = {path: f"{was} → {path}" for was, path in names.items() if path in states}
    known = {task.id: task for each in (before, after) for task in tasks_of(each)}
    tasks = [_task(known.get(id, Task(id)), labels.get(id, id)) for id in states]
    return page(
        title,
        tasks,
        [Line(source, target) for source, target, _ in links],
        (
            {id: _look(state, labels.get(id, "")) for id, state in states.items()},
            {index: _look(state) for index, (_, _, state) in enumerate(links)},
        ),
        [Entry(None, (("head", title),)), *_told(found)],
        style=STYLE,
        dark=DARK,
    )


def _task(task: Task, label: str) -> Task:
    """With room for a longer label."""
    return replace(task, detail=len(label) - len(task.id)) if label != task.id else task


def _look(state: str, label: str = "") -> Look:
    return Look(state, (BADGES[state],), label) if state in BADGES else Look(label=label)


def _told(found: Difference) -> list[Entry]:
    if found.same:
        return [Entry(None, (("story", "they are the same"),))]
    return [
        Entry(
            BADGES[STATES[change.sign]],
            (("head", f"{change.what} {change.text}"), *(("story", f"  {each}") for each in change.details)),
        )
        for change in changes(found)
    ]  # fmt: skip


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
