"""Vocabulary: the task types and languages beyond our own that a definition is compiled with (SPEC 2.2).

Data and pure functions: which names a definition mentions, and what plugins add of them. Who finds plugins and executes
their tasks is behind `ports/plugins.py`; nothing here looks for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from msgspec import convert

from penstock.expr.language import RAISED, Language
from penstock.model.definition import Body, Condition, Definition, Link, Task

CEL = "cel"
BUILT_IN = frozenset(
    {
        *("start", "end", "activity", "http", "transform", "gateway", "timer", "signal", "event"),
        *("publish", "subworkflow", "map", "loop", "form", "cancel", "mutex"),
    }
)
CONFIG = "$config"
"""Where an attempt's arguments hold the config of its task; the others are its inputs."""
PREFIX = "plugin:"
"""Begins the name that an added type is executed under; no activity may have such a name."""
UNTOLD = "does what only its plugin knows"
_UNREADABLE = "?"

Level = Literal["error", "warning", "note"]
Name = tuple[Literal["type", "language"], str]


@dataclass(frozen=True, slots=True)
class Problem:
    """What a plugin says of a task's config."""

    message: str
    path: tuple[str | int, ...] = ()
    """Inside the config: `("columns", 0)`."""
    level: Level = "error"
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class AddedType:
    """A type of task that a plugin adds, as far as it is not executed."""

    name: str
    package: str
    """What brought it, for people: `acme-files 1.2`."""
    config: Any = field(default_factory=dict[str, Any])
    """JSON Schema, as are the next two; None: anything."""
    inputs: Any = None
    output: Any = None
    fields: tuple[str, ...] = ()
    """Of the config; they may be written beside `type`."""
    check: Callable[[dict[str, Any]], Iterable[Problem]] = lambda config: ()
    """These are the plugin's own and may raise; `leaves`, `reading` and `writing` do not."""
    effects: Callable[[dict[str, Any]], str] = lambda config: ""
    reads: Callable[[dict[str, Any]], Iterable[str]] = lambda config: ()
    writes: Callable[[dict[str, Any]], Iterable[str]] = lambda config: ()

    def refused(self, config: dict[str, Any]) -> str:
        """Why a config that is known only now is wrong; empty if it is not, or if the plugin cannot say."""
        try:
            said = [each for each in self.check(config) if each.level == "error"]
            return str(said[0].message) if said else ""
        except RAISED:  # its executor will see
            return ""

    def leaves(self, config: dict[str, Any]) -> str:
        """What such a task leaves behind, in words; empty: nothing."""
        try:
            return str(self.effects(config))
        except RAISED:  # the verifier says so
            return UNTOLD

    def reading(self, config: dict[str, Any]) -> tuple[str, ...]:
        return _paths(self.reads, config)

    def writing(self, config: dict[str, Any]) -> tuple[str, ...]:
        return _paths(self.writes, config)


def _paths(
    ask: Callable[[dict[str, Any]], Iterable[str]], config: dict[str, Any]
) -> tuple[str, ...]:
    try:
        return tuple(str(each) for each in ask(config))
    except RAISED:  # the verifier says so
        return ()


@dataclass(frozen=True, slots=True)
class Mentioned:
    """Names in a definition that are none of ours."""

    types: frozenset[str] = frozenset()
    languages: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.types or self.languages)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What plugins add of the names that were asked for, and why some cannot be had."""

    types: Mapping[str, AddedType] = field(default_factory=dict[str, AddedType])
    languages: Mapping[str, Language] = field(default_factory=dict[str, Language])
    faults: Mapping[Name, str] = field(default_factory=dict[Name, str])
    """A plugin has it and it cannot be used: the reason, with the plugin's own name."""
    known: tuple[Name, ...] = ()
    """All that plugins here have, for who mistyped one."""

    def lacks(self, mentioned: Mentioned) -> Mentioned:
        return Mentioned(
            mentioned.types - self.types.keys(), mentioned.languages - self.languages.keys()
        )


def fields_of(schema: Any) -> tuple[str, ...]:
    """The fields of an object that a JSON Schema describes, itself or by the one reference that it is."""
    if not isinstance(schema, dict):
        return ()
    rules = cast("dict[str, Any]", schema)
    reference = rules.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        rules = cast("dict[str, Any]", rules.get("$defs", {}).get(reference[8:], {}))
    properties = rules.get("properties")
    return tuple(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else ()


PLAIN = Vocabulary()
Find = Callable[[Mentioned], Vocabulary]
"""How a definition that is being read asks for what it mentions."""


def mentioned(definition: Definition) -> Mentioned:
    """Of a definition as it was registered."""
    types: set[str] = set()
    languages: set[str] = set()
    for condition in _conditions(definition.tasks, definition.links, types):
        languages.add(condition.language)
    return Mentioned(frozenset(types - BUILT_IN), frozenset(languages - {CEL}))


def _conditions(
    tasks: Mapping[str, Task], links: Iterable[Link], types: set[str]
) -> Iterator[Condition]:
    for link in links:
        if link.condition is not None:
            yield link.condition
    for task in tasks.values():
        types.add(task.type)
        yield from task.conditions
        if task.type in ("map", "loop", "mutex") and "body" in task.config:
            body = convert(task.config["body"], Body)
            yield from _conditions(body.tasks, body.links, types)


def mentioned_in(document: Mapping[str, Any]) -> Mentioned:
    """Of a document as it was written, right or wrong, shorthand and all."""
    types: set[str] = set()
    languages: set[str] = set()
    _look(document, types, languages)
    return Mentioned(frozenset(types - BUILT_IN - {_UNREADABLE}), frozenset(languages - {CEL}))


def _look(scope: Mapping[str, Any], types: set[str], languages: set[str]) -> None:
    tasks = scope.get("tasks")
    for task in cast("dict[str, Any]", tasks).values() if isinstance(tasks, dict) else ():
        if isinstance(task, dict):
            _look_at_task(cast("dict[str, Any]", task), types, languages)
    _spoken(scope.get("links"), languages)


def _look_at_task(task: Mapping[str, Any], types: set[str], languages: set[str]) -> None:
    kind = task.get("type")
    if isinstance(kind, str):
        types.add(kind)
    for field_ in ("conditions", "when", "after"):
        _spoken(task.get(field_), languages)
    config = task.get("config")
    for holder in (task, cast("dict[str, Any]", config) if isinstance(config, dict) else {}):
        body = holder.get("body")
        if isinstance(body, dict) and kind in ("map", "loop", "mutex"):
            inner = cast("dict[str, Any]", body)
            if "tasks" in inner and "type" not in inner:
                _look(inner, types, languages)
            else:
                _look_at_task(inner, types, languages)


def _spoken(value: Any, languages: set[str]) -> None:
    """Of conditions, or of links that have them."""
    if isinstance(value, list):
        for each in cast("list[Any]", value):
            _spoken(each, languages)
    elif isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        if isinstance(given.get("language"), str):
            languages.add(given["language"])
        for name in ("condition", "when"):
            _spoken(given.get(name), languages)
