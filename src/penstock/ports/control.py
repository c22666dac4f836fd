"""Control: what can be asked of runs beyond start, signal and the four plain acts (SPEC 4.4, 4.5, 4.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.model.migration import Move, Obstacle
from penstock.model.preview import Consequence, Preview
from penstock.ports.batches import Batches

__all__ = [
    "Consequence",
    "Control",
    "DefinitionAct",
    "Move",
    "Obstacle",
    "PausedDefinition",
    "Preview",
]


class PausedDefinition(Struct, frozen=True):
    """A definition none of whose runs begins anything."""

    definition: str
    at: float
    by: str | None = None
    reason: str = ""


class DefinitionAct(Struct, frozen=True):
    """What an operator did to a definition."""

    act: str
    """`pause`, `resume`, or `force`: registered though it is refuted."""
    at: float
    by: str | None = None
    reason: str = ""


class Control(Protocol):
    """Every act may have a `command_id`: its repeat within 24 h gets the answer of the first, and changes nothing."""

    @property
    def batches(self) -> Batches:
        """One act on many runs."""
        ...

    async def retry(
        self, id: str, task: str | None, *, by: str | None, reason: str, command_id: str
    ) -> int:
        """Try again what a run failed at, or from a task on, in another generation; its number."""
        ...

    async def preview(self, id: str, to: int) -> Preview:
        """What a reset to event `to` would leave behind; its token confirms it."""
        ...

    async def reset(
        self, id: str, to: int, *, token: str, by: str | None, reason: str, exclude: Sequence[str], undo: bool,
        command_id: str,
    ) -> int: ...  # fmt: skip

    async def migrate(
        self,
        id: str,
        version: str | None,
        *,
        mapping: Mapping[str, str],
        by: str | None,
        reason: str,
        command_id: str,
    ) -> None:
        """Go on as a run of another version, or of the newest; refused, with all that stands in the way, if it is not safe."""
        ...

    async def preview_migration(
        self, id: str, version: str | None, *, mapping: Mapping[str, str]
    ) -> Move:
        """What moving it would do, and what stands in the way."""
        ...

    async def wait(
        self, id: str, key: str, act: str, *, by: str | None, reason: str, command_id: str
    ) -> None:
        """Fire, skip or fail what a task waits for."""
        ...

    async def undo(
        self, id: str, key: str, act: str, *, by: str | None, reason: str, command_id: str
    ) -> None:
        """Accept, skip or retry an undo that failed."""
        ...

    async def attributes(
        self, id: str, values: Mapping[str, Any], *, by: str | None, reason: str, command_id: str
    ) -> None: ...

    async def complete(self, token: str, value: Any) -> None:
        """Complete an attempt from outside."""
        ...

    async def fail(
        self, token: str, message: str, *, code: str, details: Any, final: bool
    ) -> None: ...

    async def update(
        self, id: str, name: str, payload: Any, *, by: str | None, command_id: str
    ) -> Any: ...

    async def signal_with_start(
        self,
        definition: str,
        input: Any,
        name: str,
        payload: Any,
        *,
        id: str,
        by: str | None,
        message_id: str,
        if_exists: str,
        start: Mapping[str, Any],
    ) -> str:
        """Send a signal to a run, and start it if there is none that is open; one commit."""
        ...

    async def message(
        self,
        name: str,
        payload: Any,
        *,
        attributes: Mapping[str, Any],
        definition: str | None,
        by: str | None,
        message_id: str,
    ) -> str:
        """Send a signal to the one open run with these attributes; its id."""
        ...

    async def pause_definition(self, definition: str, *, by: str | None, reason: str) -> None: ...

    async def resume_definition(self, definition: str, *, by: str | None, reason: str) -> None: ...

    async def paused_definitions(self) -> list[PausedDefinition]: ...

    async def definition_acts(self, definition: str) -> list[DefinitionAct]:
        """Who paused and resumed it, the oldest first."""
        ...
