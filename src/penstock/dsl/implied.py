"""`start` and `end` where they were left out, and the links to and from them.

Start leads to each task that nothing else leads to, or, where a cycle has no way in, to its first task
in the document. Each task that success leads nowhere leads to end; in a cycle that nothing leaves, those
that lead only back do. Where an author wrote a start or an end, its links are the author's too.
"""

from __future__ import annotations

from typing import Any

from penstock.dsl.loops import Edge, components, retreating

Document = dict[str, Any]


def add_ends(tasks: Document, links: list[Document]) -> tuple[Document, list[Document]]:
    """Tasks and links with start and end; unchanged where both were written."""
    if not tasks:
        return tasks, links
    starts = [name for name, task in tasks.items() if task.get("type") == "start"]
    ends = [name for name, task in tasks.items() if task.get("type") == "end"]
    start = starts[0] if starts else _free("start", tasks)
    end = ends[0] if ends else _free("end", tasks)
    full: Document = dict(tasks)
    added: list[Document] = []
    if not starts:
        full = {start: {"type": "start"}, **full}
        firsts = _firsts(list(full), _edges(full, links, errors=True), start)
        added += [{"from": start, "to": name} for name in firsts if name not in ends]
    if not ends:
        full[end] = {"type": "end"}
        flows = _edges(full, [*links, *added], errors=False)
        lasts = _lasts(list(full), flows, start, end)
        added += [{"from": name, "to": end} for name in lasts]
    return full, [*links, *added]


def _edges(tasks: Document, links: list[Document], *, errors: bool) -> list[Edge]:
    return [
        (link["from"], link["to"])
        for link in links
        if link.get("from") in tasks
        and link.get("to") in tasks
        and (errors or link.get("on") != "error")
    ]


def _firsts(tasks: list[str], edges: list[Edge], start: str) -> list[str]:
    """The first task, in the document, of each component that nothing leads to."""
    groups = components(tasks, edges)
    led = {groups[to] for origin, to in edges if groups[origin] != groups[to]}
    firsts: dict[int, str] = {}
    for name in tasks:
        if name != start and groups[name] not in led:
            firsts.setdefault(groups[name], name)
    return list(firsts.values())


def _lasts(tasks: list[str], edges: list[Edge], start: str, end: str) -> list[str]:
    """What leads nowhere but back, in components that nothing leaves."""
    groups = components(tasks, edges)
    left = {groups[origin] for origin, to in edges if groups[origin] != groups[to]}
    back = retreating(tasks, edges, start)
    goes_on = {origin for index, (origin, _) in enumerate(edges) if index not in back}
    return [
        name
        for name in tasks
        if name not in (start, end) and groups[name] not in left and name not in goes_on
    ]


def _free(name: str, tasks: Document) -> str:
    while name in tasks:
        name += "_"
    return name
