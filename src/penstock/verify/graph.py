"""Links, gateways, paths and cycles of one scope."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.dsl.expand import UNKNOWN_TYPE
from penstock.dsl.finding import did_you_mean, meant
from penstock.dsl.loops import Edge, Loop, components, irreducible_cycles, natural_loops
from penstock.model.definition import Link, Task
from penstock.verify.scopes import Notes, Scope

_WAITS = ("signal", "timer", "form", "event")


CYCLES_MAX = 200
"""Of one loop, that are told."""


def check_graph(scope: Scope, notes: Notes, *, partial: bool) -> frozenset[str]:
    """The tasks that lie on cycles.

    `partial`: some links could not be read, so nothing is said that rests on a link's absence.
    """
    _starts(scope, notes)
    sound = _links(scope, notes)
    loops = _cycles(scope, notes)
    _gateways(scope, notes, loops, partial=partial or not sound)
    if sound and not partial:
        _paths(scope, notes)
        _joins(scope, notes, loops)
    return _looping(scope)


def _starts(scope: Scope, notes: Notes) -> None:
    starts = [name for name, task in scope.tasks.items() if task.type == "start"]
    for name in starts[1:]:
        message = f"`{name}` is a second start beside `{starts[0]}`"
        hint = "one start may lead to many tasks"
        notes.add("start-repeated", scope.at(name), message, hint, key=True)


def _links(scope: Scope, notes: Notes) -> bool:
    """Whether every link has both its ends."""
    sound = True
    seen: set[Link] = set()
    for index, link in enumerate(scope.links):
        path = scope.link_at(index)
        for side, name in (("from", link.from_), ("to", link.to)):
            if name not in scope.tasks:
                sound = False
                notes.add("dangling-link", (*path, side), f"no task `{name}`", _meant(name, scope))
        if _type(scope, link.from_) == "end":
            message = f"`{link.from_}` is an end, and a link leads on from it"
            notes.add("link-from-end", (*path, "from"), message, "nothing follows an end")
        if _type(scope, link.to) == "start":
            message = f"`{link.to}` is a start, and a link leads back to it"
            notes.add("link-to-start", (*path, "to"), message, "lead back to the task after it")
        if link in seen:
            message = f"the link from `{link.from_}` to `{link.to}` is written twice"
            notes.add("duplicate-link", path, message, "keep one of the two", level="warning")
        seen.add(link)
    return sound


def _meant(name: str, scope: Scope) -> str:
    if name in scope.around:
        return "links stay inside their scope: that task is around this body"
    return meant(name, scope.tasks, "add a task of that name")


def _gateways(scope: Scope, notes: Notes, loops: list[Loop], *, partial: bool) -> None:
    crossing = {index for loop in loops for index in (*loop.back, *loop.exits)}
    outgoing: dict[str, list[tuple[int, Link]]] = {}
    for index, link in enumerate(scope.links):
        if link.on != "error":
            outgoing.setdefault(link.from_, []).append((index, link))
    for name, task in scope.tasks.items():
        if task.type != "gateway":
            continue
        links = outgoing.get(name, [])
        if not links and not partial:
            message = f"gateway `{name}` leads nowhere"
            notes.add("gateway-no-links", scope.at(name), message, "link it to a task", key=True)
        _default(scope, name, task, links, notes, partial=partial)
        if task.config.get("kind") == "event":
            _event_targets(scope, name, links, notes, crossing)


def _default(
    scope: Scope,
    name: str,
    task: Task,
    links: list[tuple[int, Link]],
    notes: Notes,
    *,
    partial: bool,
) -> None:
    default, kind = task.config.get("default"), task.config.get("kind")
    if default is None:
        return
    path = (*scope.at(name), "config", "default")
    targets = [link.to for _, link in links]
    if kind not in ("exclusive", "inclusive"):
        message = f"gateway `{name}` is {kind} and has no use for a default"
        notes.add("gateway-default", path, message, "leave it out")
    elif default not in targets and not (partial and default in scope.tasks):
        message = f"`{default}` is no target of gateway `{name}`"
        hint = did_you_mean(str(default), targets) or f"link `{name}` to it, or name a target"
        notes.add("gateway-default", path, message, hint)


def _event_targets(
    scope: Scope, name: str, links: list[tuple[int, Link]], notes: Notes, crossing: set[int]
) -> None:
    """`crossing` are the links that leave a loop or lead back in it: decided only when a pass is over."""
    for index, link in links:
        path = (*scope.link_at(index), "to")
        kind = _type(scope, link.to)
        if kind not in ("", UNKNOWN_TYPE, *_WAITS):
            notes.add(
                "gateway-event-target",
                path,
                f"event gateway `{name}` leads to `{link.to}`, which is of type `{kind}`",
                "it can lead to signals, events, timers and forms only: the first that happens wins",
            )
        elif index in crossing:
            notes.add(
                "gateway-event-target",
                path,
                f"event gateway `{name}` leads to `{link.to}`, out of the loop or back in it",
                "what it waits for must be in the same pass: let that task lead on, or use `loop`",
            )


def _cycles(scope: Scope, notes: Notes) -> list[Loop]:
    start = scope.start
    if start is None:
        return []
    edges = _edges(scope)
    for cycle in irreducible_cycles(scope.tasks, edges, start):
        inside = set(cycle)
        entries = dict.fromkeys(b for a, b in edges if b in inside and a not in inside)
        ways = " and ".join(f"`{name}`" for name in entries)
        notes.add(
            "cycle-irreducible",
            scope.at(cycle[0]),
            f"the cycle `{_round(cycle)}` has more than one way in: {ways}",
            "let every way in pass through one task, or use a task of type `loop`",
            key=True,
        )
    loops = natural_loops(scope.tasks, edges, start)
    for loop in loops:
        bare = [index for index in loop.back if not _conditional(scope, index)]
        came_from = _shortest(loop, edges) if bare else {}
        for index in bare[:CYCLES_MAX]:
            link = scope.links[index]
            cycle = _cycle_through(loop, link.from_, came_from)
            notes.add(
                "cycle-unconditional",
                scope.link_at(index),
                f"the cycle `{_round(cycle)}` goes round without a condition",
                f"give the link from `{link.from_}` to `{link.to}` a `condition`",
            )
    return loops


def _looping(scope: Scope) -> frozenset[str]:
    edges = [edge for edge in _edges(scope) if edge[0] in scope.tasks and edge[1] in scope.tasks]
    groups = components(list(scope.tasks), edges)
    cyclic = {groups[a] for a, b in edges if groups[a] == groups[b]}
    return frozenset(name for name, group in groups.items() if group in cyclic)


def _conditional(scope: Scope, index: int) -> bool:
    """Whether that link may be dead: a condition says so, a failure does, or it is what remains."""
    link = scope.links[index]
    if link.condition is not None or link.on == "error":
        return True
    task = scope.tasks[link.from_]
    if task.type == "gateway" and task.config.get("default") == link.to:
        others = [
            other
            for at, other in enumerate(scope.links)
            if at != index and other.from_ == link.from_ and other.on != "error"
        ]
        return bool(others) and all(other.condition is not None for other in others)
    return False


def _paths(scope: Scope, notes: Notes) -> None:
    """Each task lies on a way from start to an end; of a group that does not, its first is named."""
    edges = _edges(scope)
    starts = [name for name, task in scope.tasks.items() if task.type == "start"]
    ends = [name for name, task in scope.tasks.items() if task.type == "end"]
    reached = _reach(starts, edges)
    lost = [name for name in scope.tasks if name not in reached]
    for group in _outermost(lost, [(b, a) for a, b in edges]):
        message = f"no path from start to {_names(group)}"
        notes.add("no-path", scope.at(group[0]), message, "link something to it", key=True)
    leaving = _reach(ends, [(b, a) for a, b in edges])
    stuck = [name for name in scope.tasks if name in reached and name not in leaving]
    leading = {link.from_ for link in scope.links}
    for group in _outermost(stuck, edges):
        if _type(scope, group[0]) == "gateway" and group[0] not in leading:
            continue  # said already
        message = f"no path from {_names(group)} to an end"
        notes.add("no-path", scope.at(group[0]), message, "link it to an end", key=True)


def _outermost(tasks: list[str], edges: Iterable[Edge]) -> list[list[str]]:
    """Of the tasks, those that lead to no others of them; those of a cycle together."""
    inside = set(tasks)
    inner = [(a, b) for a, b in edges if a in inside and b in inside]
    groups = components(tasks, inner)
    left = {groups[a] for a, b in inner if groups[a] != groups[b]}
    members: dict[int, list[str]] = {}
    for name in tasks:
        if groups[name] not in left:
            members.setdefault(groups[name], []).append(name)
    return list(members.values())


def _names(group: list[str]) -> str:
    shown = [f"`{name}`" for name in group[:5]]
    return ", ".join(shown) + (f" and {len(group) - 5} more" if len(group) > 5 else "")


def _joins(scope: Scope, notes: Notes, loops: list[Loop]) -> None:
    """A join can't wait for more links than lead to its task; back links take no part in it."""
    back = {index for loop in loops for index in loop.back}
    incoming: dict[str, int] = {}
    for index, link in enumerate(scope.links):
        if index not in back:
            incoming[link.to] = incoming.get(link.to, 0) + 1
    for name, task in scope.tasks.items():
        count = incoming.get(name, 0)
        if task.join is not None and task.join.kind == "n" and task.join.n > count:
            message = f"`{name}` waits for {task.join.n} links, and only {count} lead to it"
            hint = "let more links lead to it, or wait for fewer"
            notes.add("join-starved", (*scope.at(name), "join"), message, hint)


def _edges(scope: Scope) -> list[Edge]:
    """Every link, so that an index is the link's own."""
    return [(link.from_, link.to) for link in scope.links]


def _reach(sources: Iterable[str], edges: Iterable[Edge]) -> set[str]:
    after: dict[str, list[str]] = {}
    for origin, to in edges:
        after.setdefault(origin, []).append(to)
    found = set(sources)
    waiting = list(found)
    while waiting:
        for to in after.get(waiting.pop(), ()):
            if to not in found:
                found.add(to)
                waiting.append(to)
    return found


def _shortest(loop: Loop, edges: list[Edge]) -> dict[str, str]:
    """By task of the loop: the one before it on a shortest way from the header."""
    came_from: dict[str, str] = {loop.header: loop.header}
    waiting = [loop.header]
    after: dict[str, list[str]] = {}
    for origin, to in edges:
        if origin in loop.body and to in loop.body:
            after.setdefault(origin, []).append(to)
    for at in waiting:
        for to in after.get(at, ()):
            if to not in came_from:
                came_from[to] = at
                waiting.append(to)
    return came_from


def _cycle_through(loop: Loop, last: str, came_from: dict[str, str]) -> list[str]:
    """The shortest way inside the loop from its header to `last`."""
    way = [last]
    while way[-1] != loop.header:
        way.append(came_from[way[-1]])
    return way[::-1]


def _round(cycle: list[str]) -> str:
    return " -> ".join([*cycle, cycle[0]])


def _type(scope: Scope, name: str) -> str:
    task = scope.tasks.get(name)
    return "" if task is None else task.type
