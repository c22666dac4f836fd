"""Plugins that are installed, found by their entry points (`ports/plugins.py`).

Names are read from the metadata of what is installed; a plugin is imported when a definition first mentions what it adds,
and not before. One that cannot be imported, or says something wrong of itself, is a fault under its own name: the others
are not touched by it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import msgspec

from penstock.core.vocabulary import (
    BUILT_IN,
    CEL,
    AddedType,
    Mentioned,
    Name,
    Vocabulary,
    fields_of,
)
from penstock.errors import ExpressionError, shown
from penstock.expr.language import RAISED, Language, shown_error
from penstock.expr.schema import compile_schema
from penstock.model.definition import Retry
from penstock.ports.plugins import LANGUAGES, TYPES, Extension, TaskType

log = logging.getLogger("penstock.plugins")

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_GROUPS: dict[Literal["type", "language"], str] = {"type": TYPES, "language": LANGUAGES}
_OURS = {"type": BUILT_IN, "language": frozenset({CEL})}


class Invalid(Exception):
    """What a plugin says of itself is wrong."""


@dataclass(slots=True)
class Found:
    """One entry point, and what came of it once it was asked for."""

    extension: Extension
    load: Callable[[], Any]
    tried: bool = False
    made: Any = None
    """The class of a type, or a language."""
    added: AddedType | None = None

    @property
    def origin(self) -> str:
        each = self.extension
        return f"{each.package} {each.version}".strip() or each.target


class InstalledPlugins:
    """Those installed, and those given in code by name."""

    def __init__(self, given: Mapping[str, Any] | None = None, *, installed: bool = True) -> None:
        self._given = dict(given or {})
        self._installed = installed
        self._found: dict[Name, Found] | None = None

    def added(self, mentioned: Mentioned) -> Vocabulary:
        types: dict[str, AddedType] = {}
        languages: dict[str, Language] = {}
        faults: dict[Name, str] = {}
        index = self._index()
        for name in _names(mentioned):
            found = index.get(name)
            if found is None:
                continue
            self._try(found)
            if found.extension.fault:
                faults[name] = found.extension.fault
            elif found.added is not None:
                types[name[1]] = found.added
            else:
                languages[name[1]] = found.made
        return Vocabulary(types, languages, faults, tuple(index))

    def executor(self, name: str) -> type[TaskType] | None:
        found = self._index().get(("type", name))
        return None if found is None or not found.tried or found.extension.fault else found.made

    def list(self) -> list[Extension]:
        for found in self._index().values():
            self._try(found)
        return [found.extension for found in self._index().values()]

    def packages(self, mentioned: Mentioned) -> dict[str, str]:
        index = self._index()
        return {" ".join(each): index[each].origin for each in _names(mentioned) if each in index}

    def _index(self) -> dict[Name, Found]:
        if self._found is None:
            self._found = {}
            if self._installed:
                for found in _entry_points():
                    self._put(found)
            for name, each in self._given.items():
                self._put(_given(name, each))
        return self._found

    def _put(self, found: Found) -> None:
        assert self._found is not None
        each = found.extension
        key: Name = (each.kind, each.name)
        fault = ""
        if not NAME.match(each.name):
            fault = f"{found.origin} gives {shown(each.name)}, which can be no name"
        elif each.name in _OURS[each.kind]:
            fault = f"{found.origin} gives the name `{each.name}`, which is our own"
        other = self._found.get(key)
        if other is not None:
            fault = (
                f"both {other.origin} ({other.extension.target}) and {found.origin} ({each.target})"
                f" have a {each.kind} `{each.name}`; uninstall one of them"
            )
            found = other
        if fault:
            found.extension = replace(found.extension, fault=fault)
            found.tried = True
        self._found[key] = found

    def _try(self, found: Found) -> None:
        """Import it and hear what it says of itself, once."""
        if found.tried:
            return
        found.tried = True
        try:
            made = found.load()
            summary = _summary(made)
            if found.extension.kind == "type":
                found.added = described(found.extension.name, found.origin, made)
                found.made = made
            else:
                found.made = spoken(made)
        except Invalid as error:
            fault = f"{found.origin}: `{found.extension.target}` {error}"
        except (KeyboardInterrupt, GeneratorExit):
            found.tried = False
            raise
        except BaseException as error:  # whatever its import raises, SystemExit too
            why = f"{type(error).__name__}: {shown_error(error)}"
            fault = f"{found.origin}: importing `{found.extension.target}` failed with {why}"
        else:
            found.extension = replace(found.extension, summary=summary)
            return
        log.info("plugin.invalid: %s", fault)  # whoever asked for it is told
        found.extension = replace(found.extension, fault=fault)


def described(name: str, package: str, made: Any) -> AddedType:
    """What a class says of its type; Invalid if that is wrong."""
    if not (isinstance(made, type) and issubclass(made, TaskType)):
        raise Invalid(f"is {shown(made)}, and no class that extends penstock.plugin.TaskType")
    if made.execute is TaskType.execute:
        raise Invalid("has no `execute`")
    for word in ("timeout", "heartbeat"):
        value: Any = getattr(made, word)
        if value is not None and (type(value) not in (int, float) or not value > 0):
            raise Invalid(f"has `{word} = {shown(value)}`, which is no number of seconds")
    if made.retry is not None and not isinstance(cast("Any", made.retry), Retry):
        raise Invalid(f"has `retry = {shown(made.retry)}`, which is no penstock.Retry")
    config = _schema("config", made.config)
    fields = fields_of(config)
    inputs = None if made.inputs is None else _schema("inputs", made.inputs)
    output = None if made.output is None else _schema("output", made.output)
    try:
        one = made()
    except RAISED as error:
        raise Invalid(
            f"cannot be made without arguments: {type(error).__name__}: {shown_error(error)}"
        ) from error
    return AddedType(
        name, package, config, inputs, output, fields, one.check, one.effects, one.reads, one.writes
    )  # fmt: skip


def spoken(made: Any) -> Language:
    """The language of a class; Invalid if it is none."""
    if not (isinstance(made, type) and issubclass(made, Language)):
        raise Invalid(f"is {shown(made)}, and no class that extends penstock.plugin.Language")
    if made.compile is Language.compile:
        raise Invalid("has no `compile`")
    try:
        return made()
    except RAISED as error:
        raise Invalid(
            f"cannot be made without arguments: {type(error).__name__}: {shown_error(error)}"
        ) from error


def _schema(word: str, given: Any) -> Any:
    """A JSON Schema, or that of a class."""
    if not isinstance(given, dict | bool):
        try:
            given = msgspec.json.schema(given)
        except Exception as error:
            why = f"{type(error).__name__}: {shown_error(error)}"
            raise Invalid(
                f"has `{word} = {shown(given)}`, neither a JSON Schema nor a class that has one: {why}"
            ) from error
    try:
        compile_schema(given)
    except ExpressionError as error:
        first = error.message.splitlines()[0]
        raise Invalid(f"has a wrong `{word}`: {first}") from error
    return cast("Any", given)


def _summary(made: Any) -> str:
    text = getattr(made, "__doc__", None)
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return lines[0].strip() if lines else ""


def _names(mentioned: Mentioned) -> list[Name]:
    types: list[Name] = [("type", name) for name in sorted(mentioned.types)]
    languages: list[Name] = [("language", name) for name in sorted(mentioned.languages)]
    return types + languages


def _entry_points() -> list[Found]:
    from importlib import metadata  # late: it is only needed where a definition mentions something

    found: list[Found] = []
    for kind, group in _GROUPS.items():
        for point in metadata.entry_points(group=group):
            package = point.dist.name if point.dist is not None else ""
            version = point.dist.version if point.dist is not None else ""
            extension = Extension(kind, point.name, package, version, point.value)
            found.append(Found(extension, point.load))
    return sorted(found, key=lambda each: (each.extension.kind == "language", each.extension.name))


def _given(name: str, made: Any) -> Found:
    spoken = isinstance(made, type) and issubclass(cast("type[Any]", made), Language)
    kind = "language" if spoken else "type"
    target = f"{getattr(made, '__module__', '?')}:{getattr(made, '__qualname__', shown(made))}"
    return Found(Extension(kind, name, "", "", target), lambda: made)
