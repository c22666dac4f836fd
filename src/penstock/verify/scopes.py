"""The scopes of a definition as the checks see them, and where they note what they find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.core.plan import ScopePlan
from penstock.dsl.finding import Finding, Level, Path, Related
from penstock.dsl.load import Loaded
from penstock.dsl.schema import BODY_TYPES
from penstock.model.definition import Body, Link, Task

SCOPE_NAMES = {"map": frozenset({"item", "index"}), "loop": frozenset({"iteration"})}


@dataclass(frozen=True, slots=True)
class Scope:
    """Tasks and links, the tasks around that they see, and the names that only scopes have."""

    path: Path
    tasks: dict[str, Task]
    links: tuple[Link, ...]
    around: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    visible: frozenset[str] = field(init=False)
    """Made once: it is asked for by each of many tasks."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "visible", self.around | self.tasks.keys())

    @property
    def start(self) -> str | None:
        return next((name for name, task in self.tasks.items() if task.type == "start"), None)

    def at(self, task: str) -> Path:
        return (*self.path, "tasks", task)

    def link_at(self, index: int) -> Path:
        return (*self.path, "links", index)


def scopes_of(loaded: Loaded) -> Iterator[Scope]:
    """The definition itself, then every body in it, outer before inner."""
    definition = loaded.definition
    waiting = [Scope((), definition.tasks, definition.links)]
    while waiting:
        scope = waiting.pop()
        yield scope
        for name, task in scope.tasks.items():
            if task.type in BODY_TYPES:
                body = body_of(task)
                if body is not None:
                    path = (*scope.at(name), "config", "body")
                    names = scope.names | SCOPE_NAMES.get(task.type, frozenset())
                    waiting.append(Scope(path, body.tasks, body.links, scope.visible, names))


def body_of(task: Task) -> Body | None:
    """None if there is none that can be read; that was said before."""
    try:
        return msgspec.convert(task.config.get("body"), Body)
    except msgspec.ValidationError:
        return None


def place(scope: ScopePlan, id: str) -> Path:
    """Where a task stands in the document; a natural loop is no place of its own."""
    path: Path = ("tasks", id)
    cursor = scope
    while cursor.parent is not None:
        if cursor.kind != "natural":
            path = ("tasks", cursor.owner, "config", "body", *path)
        cursor = cursor.parent
    return path


@dataclass(slots=True)
class Notes:
    """Findings as they come, each with its place."""

    loaded: Loaded
    findings: list[Finding] = field(default_factory=list[Finding])

    def add(
        self,
        code: str,
        path: Path,
        message: str,
        hint: str | None = None,
        *,
        key: bool = False,
        level: Level = "error",
        counterexample: Any = None,
        related: Iterable[tuple[Path, str]] = (),
    ) -> None:
        """`related` are other places, each with what is to be said there."""
        place = self.loaded.place(path, key=key)
        others = tuple(Related(said, self.loaded.place(where, key=True)) for where, said in related)
        self.findings.append(Finding(code, level, message, place, hint, counterexample, others))

    def add_inside(
        self, code: str, path: Path, text: str, position: int, message: str, hint: str | None = None
    ) -> None:
        """At a character of a text, where that text stands in one piece in the source."""
        place = self.loaded.place_inside(path, text, position)
        self.findings.append(Finding(code, "error", message, place, hint))


def map_around(scope: ScopePlan | None) -> ScopePlan | None:
    """The body of a map in which the scope lies, or that it is: whose `item` is seen there."""
    while scope is not None and scope.kind != "map":
        scope = scope.parent
    return scope
