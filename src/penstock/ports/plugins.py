"""Plugins: task types and languages that others add (SPEC 2.2, 10); `adapters/entry_points.py` finds those installed.

A plugin is a Python package with entry points: `penstock.types` names classes that extend TaskType, `penstock.languages`
those that extend Language, each by the name that definitions use. `penstock.plugin` has the names for authors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from penstock.core.vocabulary import PLAIN, UNTOLD, Mentioned, Problem, Vocabulary
from penstock.model.definition import Retry

TYPES, LANGUAGES = "penstock.types", "penstock.languages"
"""The groups of entry points."""


class Attempt(Protocol):
    """One try of a task, as its executor sees it."""

    @property
    def type(self) -> str:
        """Under which name it is executed: one class may serve several."""
        ...

    @property
    def config(self) -> Any:
        """As the definition has it, expressions in it evaluated when the task fired: the same for every attempt. An
        object of `TaskType.config` if that is a class, else a dict."""
        ...

    @property
    def inputs(self) -> Any:
        """Parameters by name, secrets among them; an object of `TaskType.inputs` if that is a class."""
        ...

    @property
    def run_id(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def number(self) -> int:
        """Counted from 1."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The same over all attempts of this task: hand it to whatever must not do a thing twice."""
        ...

    @property
    def progress(self) -> Any:
        """What the last heartbeat carried: of this attempt, or at its start of the one before."""
        ...

    @property
    def cancelled(self) -> bool:
        """It is not wanted any more. An `async def` is cancelled besides; a plain one should look and return."""
        ...

    @property
    def token(self) -> str:
        """Whoever has it can complete this attempt from outside, once `CompleteLater` was raised."""
        ...

    def heartbeat(self, progress: Any = None) -> None:
        """Say that it is alive; the next attempt gets `progress` if this one does not end well."""
        ...

    def log(self, text: str) -> None:
        """Keep a line with the attempt."""
        ...


class TaskType:
    """A type of task: extend it, and name the class in an entry point of the group `penstock.types`.

    Made without arguments: once to describe the type, and once by each engine that executes it, with the first attempt;
    what an executor needs it opens then. Describing is pure: the same config gives the same answers, without I/O.
    """

    config: ClassVar[Any] = {"type": "object"}
    """What `config` of such a task holds: a JSON Schema, or a class that msgspec knows (a Struct, a dataclass). Texts
    may hold `${CEL}`; what they come to is checked when the task fires."""
    inputs: ClassVar[Any] = None
    """What `inputs` may be, in the same words; None: anything."""
    output: ClassVar[Any] = None
    """What it gives, in the same words; None: anything. A result that does not fit fails the task."""
    retry: ClassVar[Retry | None] = None
    timeout: ClassVar[float | None] = None
    """Seconds that one attempt may take; a definition may say otherwise, here as for `retry` and `heartbeat`."""
    heartbeat: ClassVar[float | None] = None
    """Seconds that an attempt may be silent for."""
    once: ClassVar[bool] = False
    """Never begun a second time after a crash (SPEC 4.3)."""

    def check(self, config: dict[str, Any]) -> Iterable[Problem]:
        """What the schema cannot say of a config that fits it. Texts may still hold `${CEL}`."""
        return ()

    def effects(self, config: dict[str, Any]) -> str:
        """What such a task leaves behind if it is not undone, to go on after its id ("writes a file"); empty if
        nothing (SPEC 3.7)."""
        return UNTOLD

    def reads(self, config: dict[str, Any]) -> Iterable[str]:
        """What it reads that the engine does not see, as `reads` of a task says it (SPEC 3.5)."""
        return ()

    def writes(self, config: dict[str, Any]) -> Iterable[str]:
        """What it writes that the engine does not see."""
        return ()

    def execute(self, attempt: Attempt) -> Any:
        """Do the work and give its output: `async def` in the event loop, a plain `def` in a thread. Whatever it raises
        fails the attempt and is retried as an activity is; `Fail` is final, `CompleteLater` leaves it open."""
        raise NotImplementedError

    async def close(self) -> None:
        """The engine closes, and no attempt runs any more: let go of what was opened."""


@dataclass(frozen=True, slots=True)
class Extension:
    """One thing that a plugin adds, for people."""

    kind: Literal["type", "language"]
    name: str
    package: str
    """The distribution that brings it; empty if it was given to the engine in code."""
    version: str
    target: str
    """`module:attribute`."""
    summary: str = ""
    """The first line of its docstring."""
    fault: str = ""
    """Why it cannot be used; empty if it can."""


class Plugins(Protocol):
    def added(self, mentioned: Mentioned) -> Vocabulary:
        """What plugins add of these names. Imports those plugins and no others; a broken one is a fault in what is
        given back, and never raises."""
        ...

    def executor(self, name: str) -> type[TaskType] | None:
        """The class that executes a type which `added` has given."""
        ...

    def list(self) -> list[Extension]:
        """All there are, each tried."""
        ...

    def packages(self, mentioned: Mentioned) -> dict[str, str]:
        """What brings these names: `type slug` to `acme-files 1.2`."""
        ...


class NoPlugins:
    """For who wants none."""

    def added(self, mentioned: Mentioned) -> Vocabulary:
        return PLAIN

    def executor(self, name: str) -> type[TaskType] | None:
        return None

    def list(self) -> list[Extension]:
        return []

    def packages(self, mentioned: Mentioned) -> dict[str, str]:
        return {}
