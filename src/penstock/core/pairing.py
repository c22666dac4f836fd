"""Who is who in two versions: scopes, tasks and links of the old plan and what they are in the new one (SPEC 2.7, 3.8).

A task is the same if it has the same id in the same body, unless a mapping says otherwise: `{"pay": "settle"}`, by path in
the document (`items/pay`). A natural loop is no place of its own there; in the plan it is a scope, and a task that is in
one in one version and in none in the other is not the same place to stand.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from penstock.core.plan import Edge, Node, Out, Plan, ScopePlan
from penstock.model.definition import Body, Definition, Task

BODIES = ("map", "loop", "mutex")
PAIRINGS_MAX = 16
Ident = tuple[str, str, str]
"""Of a link: where from, where to, on what, by the names of the new version."""


class Pairing:
    """See the module's docstring."""

    def __init__(self, old: Plan, new: Plan, mapping: Mapping[str, str]) -> None:
        self.old, self.new, self.mapping = old, new, dict(mapping)
        self.scopes: dict[str, ScopePair] = {}
        """By path of the old scope; those that have no like are missing."""
        self._pair(old.root, new.root, "", "")

    def _pair(self, old: ScopePlan, new: ScopePlan, was: str, path: str) -> None:
        todo = [(old, new, was, path)]
        while todo:
            old, new, was, path = todo.pop()
            pair = self.scopes[old.path] = ScopePair(
                old, new, self._names(old, new, was, path), was
            )
            for before, after in pair.ids.items():
                one, other = old.nodes[before], new.nodes[after]
                if one.loop is not None and other.loop is not None:
                    todo.append((one.loop, other.loop, was, path))
                elif one.body is not None and other.body is not None:
                    todo.append((one.body, other.body, _joined(was, before), _joined(path, after)))

    def _names(self, old: ScopePlan, new: ScopePlan, was: str, path: str) -> dict[str, str]:
        """What the tasks of the body of a scope are called today, as far as the mapping says or nothing says otherwise."""
        said: dict[str, str] = {}
        for before, after in self.mapping.items():
            if before.rpartition("/")[0] == was and after.rpartition("/")[0] == path:
                said[before.rpartition("/")[2]] = after.rpartition("/")[2]
        if new.entry.type == old.entry.type == "start":
            said.setdefault(old.entry.id, new.entry.id)
        taken = set(said.values())
        for id in (*old.nodes, *old.inner):
            if id not in said and id not in taken:
                said[id] = id
        for outer in _around(old):  # links may leave a loop
            for id in outer.nodes:
                if id not in said and id not in taken:
                    said[id] = id
        return said

    def node(self, key: str) -> tuple[Node | None, Node | None, str]:
        """The task that a key of the old version means, what it is today, and the key of today.

        What follows the task in the key (a task of its child) stays as it is.
        """
        scope: ScopePlan | None = self.old.root
        found: Node | None = None
        after: Node | None = None
        segments = key.split("/")
        names: list[str] = []
        for place, segment in enumerate(segments):
            id, mark, number = segment.partition("[")
            if scope is None or id not in scope.nodes:
                return found, after, "/".join([*names, *segments[place:]])
            pair = self.scopes.get(scope.path)
            found = scope.nodes[id]
            today = None if pair is None else pair.ids.get(id)
            after = None if pair is None or today is None else pair.new.nodes[today]
            names.append(f"{today or id}{mark}{number}")
            scope = found.body or found.loop
        return found, after, "/".join(names)


def paired(old: Plan, new: Plan, mapping: Mapping[str, str]) -> Pairing:
    """Computed once for the two and the mapping: many runs may move."""
    name = (old.version, tuple(sorted(mapping.items())))
    found = new.pairings.get(name)
    if found is None or found.old is not old:
        if len(new.pairings) >= PAIRINGS_MAX:
            new.pairings.clear()
        found = new.pairings[name] = Pairing(old, new, mapping)
    return found


class ScopePair:
    """One scope in both versions."""

    def __init__(self, old: ScopePlan, new: ScopePlan, names: dict[str, str], was: str) -> None:
        self.old, self.new, self.was = old, new, was
        self.names = names
        """Of every task that links of this scope name, also inside its natural loops."""
        self.ids = {id: names[id] for id in old.nodes if names.get(id) in new.nodes}
        """Tasks of the scope itself that both have."""
        self.back = {after: before for before, after in self.ids.items()}
        self.links = {
            before.index: after.index
            for name, before in self.decided(old).items()
            if (after := self.today(new).get(name)) is not None
        }
        """Links of the old version by their index, and their index today."""

    def ident(self, edge: Edge) -> Ident:
        """Of a link of the old version, by the names of today; a task that is gone has a name that nobody can have."""
        return (
            self.names.get(edge.source, f" {edge.source}"),
            self.names.get(edge.target, f" {edge.target}"),
            edge.on,
        )

    def decided(self, scope: ScopePlan) -> dict[Ident, Edge]:
        return {
            self.ident(out.edge): out.edge for node in scope.nodes.values() for out in node.outs
        }

    @staticmethod
    def today(scope: ScopePlan) -> dict[Ident, Edge]:
        return {name(out): out.edge for node in scope.nodes.values() for out in node.outs}

    def added(self) -> list[str]:
        return [id for id in self.new.nodes if id not in self.back]


def name(out: Out) -> Ident:
    edge = out.edge
    return edge.source, edge.target, edge.on


def changed(old: Node, new: Node) -> bool:
    """Whether it would do something else; a body counts by its own tasks."""
    return (old.loop is None) != (new.loop is None) or _work(old.task) != _work(new.task)


def differences(old: Node, new: Node) -> list[str]:
    """The fields that differ."""
    one, other = _work(old.task), _work(new.task)
    found = [
        field for field in Task.__struct_fields__ if getattr(one, field) != getattr(other, field)
    ]
    if found == ["config"]:
        names = one.config.keys() | other.config.keys()
        return [f"config.{n}" for n in sorted(names) if one.config.get(n) != other.config.get(n)]
    return found


def _work(task: Task) -> Task:
    config = {name: value for name, value in task.config.items() if name != "body"}
    return replace(task, config=config, name="", reads=(), writes=(), join=None, conditions=())


def _around(scope: ScopePlan) -> list[ScopePlan]:
    """The scopes around a natural loop that are in the same body."""
    found: list[ScopePlan] = []
    while scope.kind == "natural" and scope.parent is not None:
        scope = scope.parent
        found.append(scope)
    return found


def bodies(definition: Definition) -> dict[str, Body]:
    """Every body by the path of the task that has it; the definition itself has none."""
    found: dict[str, Body] = {}
    waiting = [("", Body(definition.tasks, definition.links))]
    while waiting:
        path, body = waiting.pop()
        found[path] = body
        for id, task in body.tasks.items():
            if task.type in BODIES:
                waiting.append((_joined(path, id), msgspec.convert(task.config["body"], Body)))
    return found


def paths(definition: Definition) -> set[str]:
    """Every task by its path in the document."""
    return {_joined(path, id) for path, body in bodies(definition).items() for id in body.tasks}


def _joined(path: str, id: str) -> str:
    return f"{path}/{id}" if path else id
