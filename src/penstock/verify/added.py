"""Tasks whose type a plugin added: their config against the plugin's schema, and the plugin's own checks (SPEC 2.2, 3.1).

A check that raises says nothing of the definition: it becomes a warning, and the verification goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeVar, cast

from penstock.core.vocabulary import AddedType, Problem
from penstock.dsl.finding import Path, did_you_mean, listed
from penstock.errors import shown
from penstock.expr.language import RAISED, shown_error
from penstock.expr.schema import compile_schema
from penstock.verify.scopes import Notes, Scope

T = TypeVar("T")
PROBLEMS_MAX = 50
"""What one check may say of one task."""
LEVELS = ("error", "warning", "note")


def check_added(scope: Scope, notes: Notes) -> None:
    types = notes.loaded.vocabulary.types
    for name, task in scope.tasks.items():
        added = types.get(task.type)
        if added is not None:
            _Config(added, task.config, (*scope.at(name), "config"), notes).check()


class _Config:
    """The checks of one task."""

    def __init__(self, added: AddedType, config: dict[str, Any], path: Path, notes: Notes) -> None:
        self._added, self._config, self._path, self._notes = added, config, path, notes

    @property
    def _shown(self) -> str:
        return f"`penstock plugins {self._added.name}` shows what it takes"

    def check(self) -> None:
        sound = self._fits()
        if sound:
            self._checked()
        for what, ask in (
            ("effects", self._added.effects),
            ("reads", self._added.reads),
            ("writes", self._added.writes),
        ):
            self._asked(what, ask)

    def _fits(self) -> bool:
        """Against its schema; a text with `${` stands for a value that is not known yet."""
        added = self._added
        sound = True
        for error in compile_schema(added.config).errors(self._config):
            inside: Path = tuple(error.instance_path)
            kind: str = error.kind.name
            named = kind in ("required", "additionalProperties", "unevaluatedProperties")
            if _later(error.instance) and not named:
                continue
            sound = False
            if kind == "required":
                message = f"`{_name(self._path, inside)}` needs `{error.kind.property}`"
                hint = f"add `{error.kind.property}`; {self._shown}"
                self._say(
                    "field-missing", inside, f"{message} (type `{added.name}`)", hint, key=True
                )
            elif named:
                self._unknown(error, inside)
            else:
                message = f"`{_name(self._path, inside)}` does not fit the type `{added.name}`: "
                self._say("field-invalid", inside, message + _short(error.message), self._shown)
        return sound

    def _unknown(self, error: Any, inside: Path) -> None:
        for name in error.kind.unexpected:
            known = self._added.fields if not inside else ()
            hint = did_you_mean(name, known)
            if hint is None and known:
                hint = f"it takes {listed(known)}"
            message = f"no field `{name}` in the config of a task of type {self._added.name}"
            self._say("unknown-field", (*inside, name), message, hint or self._shown, key=True)

    def _checked(self) -> None:
        said = self._asked("check", lambda config: list(self._added.check(config)))
        for problem in (said or [])[:PROBLEMS_MAX]:
            wrong = _malformed(problem)
            if wrong:
                self._failed("check", wrong)
                continue
            where = (*self._path, *problem.path)
            message, hint, level = problem.message, problem.hint or self._shown, problem.level
            self._notes.add("plugin-check", where, message, hint, level=level)

    def _asked(self, what: str, ask: Callable[[dict[str, Any]], T]) -> T | None:
        try:
            return ask(deepcopy(self._config))
        except RAISED as error:
            if what == "check" and _later(self._config):
                return None  # it did not expect a text there; it is asked again when the task fires
            self._failed(what, f"{type(error).__name__}: {shown_error(error)}")
            return None

    def _failed(self, what: str, why: str) -> None:
        added = self._added
        message = f"`{what}` of the type `{added.name}` ({added.package}) failed: {why}"
        hint = f"what it would have said is not known; tell the author of {added.package}"
        self._notes.add(
            "plugin-check-failed", self._path[:-1], message, hint, key=True, level="warning"
        )

    def _say(
        self, code: str, inside: Path, message: str, hint: str | None = None, *, key: bool = False
    ) -> None:
        self._notes.add(code, (*self._path, *inside), message, hint, key=key)


def _later(value: Any) -> bool:
    """Something in it is known only when the task fires."""
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, dict):
        return any(_later(each) for each in cast("dict[str, Any]", value).values())
    return isinstance(value, list) and any(_later(each) for each in cast("list[Any]", value))


def _name(path: Path, inside: Path) -> str:
    """As people call it: the field, or the task."""
    if not inside:
        return str(path[-2])
    return ".".join(str(part) for part in inside)


def _malformed(problem: Any) -> str:
    if not isinstance(problem, Problem):
        return f"it gave {shown(problem)}, and no Problem"
    given: Any = problem
    if not isinstance(given.message, str) or not given.message or given.level not in LEVELS:
        return f"it gave {shown(problem)}"
    if not isinstance(given.path, tuple):
        return f"the path of {shown(problem)} is no tuple"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:299]}…"
