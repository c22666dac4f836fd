"""Types that say something wrong of themselves, or do something wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.plugin import Attempt, Problem, TaskType

NUMBER = 7


class Good(TaskType):
    """Nothing is wrong with it but its name."""

    async def execute(self, attempt: Attempt) -> None: ...


class Lazy(TaskType):
    """Does nothing."""


class Needy(TaskType):
    """Wants to be given something."""

    def __init__(self, what: str) -> None:
        self.what = what

    async def execute(self, attempt: Attempt) -> None: ...


class Schemaless(TaskType):
    """Its schema is none."""

    config = {"type": "objekt"}

    async def execute(self, attempt: Attempt) -> None: ...


class Unhurried(TaskType):
    """Its time limit is none."""

    timeout = -1

    async def execute(self, attempt: Attempt) -> None: ...


class Raising(TaskType):
    """Everything that is asked of it raises; its executor too."""

    def check(self, config: dict[str, Any]) -> Iterable[Problem]:
        if config.get("loose"):
            return ["just a text", Problem("", level="error"), Problem("x", level="fatal")]  # type: ignore
        raise LookupError("nothing is where it was")

    def effects(self, config: dict[str, Any]) -> str:
        raise LookupError("effects")

    def reads(self, config: dict[str, Any]) -> Iterable[str]:
        raise LookupError("reads")

    def writes(self, config: dict[str, Any]) -> Iterable[str]:
        raise LookupError("writes")

    async def execute(self, attempt: Attempt) -> None:
        raise LookupError("execute")

    async def close(self) -> None:
        raise LookupError("close")
