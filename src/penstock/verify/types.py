"""What is known of the values that expressions read at some place of a definition, and such values themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.expr.typecheck import Environment

ANY_STATUS = (
    "COMPLETED", "SKIPPED", "FAILED", "PENDING", "SCHEDULED", "RUNNING", "WAITING", "RETRYING", "CANCELLED",
)  # fmt: skip
_NOON = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TaskType:
    """What is known of `tasks.ID`: its output if it completed, and in which statuses it may be."""

    schema: Any = None
    """None: anything."""
    statuses: tuple[str, ...] = ANY_STATUS
    nulls: bool = True
    """Its output is null unless it completed."""


@dataclass(frozen=True, slots=True)
class Types:
    """Schemas of what expressions read; None is any JSON value."""

    environment: Environment
    """What the expressions were compiled with: it says which whole numbers are read as doubles."""
    input: Any = None
    tasks: Mapping[str, TaskType] = field(default_factory=dict[str, TaskType])
    data: Any = None
    item: Any = None
    iteration: int = 1
    """The lowest number of a pass here."""
    modest: int | None = None
    """Whole numbers are no larger than this: what only very large ones show is left out."""
    unbounded: bool = False
    """Arithmetic that leaves 64 bits is no error: what fails by that alone is left out."""

    @property
    def data_schema(self) -> Any:
        return {"type": "object"} if self.data is None else self.data


@dataclass(slots=True)
class Values:
    """Concrete values of what expressions read."""

    input: Any = None
    has_input: bool = False
    """Something read it; otherwise any input will do."""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    has_data: bool = False
    globals: dict[str, Any] = field(default_factory=dict[str, Any])
    item: Any = None
    index: int = 0
    iteration: int = 1
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    now: datetime = _NOON
    start: datetime = _NOON

    def variables(self) -> dict[str, Any]:
        """As an expression sees them."""
        run = {"id": "run", "definition": "definition", "version": "1", "start": self.start}
        return {
            "input": self.input, "tasks": self.tasks, "data": self.data, "global": self.globals, "run": run,
            "now": self.now, "item": self.item, "index": self.index, "iteration": self.iteration,
        }  # fmt: skip
