"""Runs: start, command and read runs, near or far. `engine/runs.py` is near; a server's client will be far."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from penstock.model.definition import Definition
from penstock.model.events import Event
from penstock.model.failure import Failure
from penstock.model.job import LogLine
from penstock.model.queue import QueueView
from penstock.ports.bus import EngineBus
from penstock.ports.control import Control
from penstock.ports.data import DataLife
from penstock.ports.projections import Projections
from penstock.ports.schedules import Debounce, Schedules, Singleton
from penstock.ports.store import Owner, Query, Row

Moment = int | str | datetime
"""Of a run: after event n, at a named snapshot, at a time."""


class TaskView(Struct, omit_defaults=True):
    """A task as it is shown (SPEC 4.1)."""

    key: str
    status: str
    type: str = ""
    name: str = ""
    output: Any = None
    error: Failure | None = None
    attempts: int = 0
    priority: str | None = None
    scheduled_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    due: float | None = None
    worker: str | None = None
    logs: tuple[LogLine, ...] = ()
    """Of its latest attempt that has ended; the history has those of all."""


class RunView(Struct, omit_defaults=True):
    """A run as it is shown (SPEC 4.1)."""

    id: str
    generation: int
    definition: str
    version: str
    status: str
    revision: int
    created_at: float
    last_updated: float
    paused: bool = False
    cancel_requested: bool = False
    data: dict[str, Any] = {}
    current_tasks: list[str] = []
    execution_path: list[str] = []
    error_stack: list[Failure] = []
    created_by: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    metadata: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    parent: str | None = None
    input: Any = None
    output: Any = None
    tasks: list[TaskView] = []

    @property
    def shown_status(self) -> str:
        """PAUSED is a flag beside the status, and shown in its place."""
        return "PAUSED" if self.paused else self.status


class WhyView(Struct):
    """One thing that an open run waits for (SPEC 4.8)."""

    kind: str
    key: str
    message: str
    due: float | None = None


class RequestView(Struct):
    """A run that was asked for inside an application's transaction and is none yet (SPEC 4.3)."""

    id: str
    definition: str
    version: str
    at: float
    code: str = ""
    """Why it never will be one; empty while it waits for the owner."""
    reason: str = ""


class HistoryItem(Struct):
    seq: int
    position: int
    event: Event
    hash: str

    @property
    def type(self) -> str:
        return self.event.type

    @property
    def at(self) -> float:
        return self.event.at


class Change(Struct):
    """Something that happened to a run, after it is on disk."""

    run_id: str
    seq: int
    type: str
    status: str
    """The run's when the event was read: of an event that is past, not the status that it led to."""
    event: Event


class Listening(Protocol):
    """A listener, and how it fares."""

    heard: int
    """Events it was called with."""
    failed: int
    """How often it raised."""
    dropped: int
    """Events it missed because too many were waiting."""

    @property
    def waiting(self) -> int:
        """Events it has not heard yet."""
        ...

    def close(self) -> None:
        """It hears nothing more; from any thread."""
        ...

    def __enter__(self) -> Listening: ...

    def __exit__(self, *error: object) -> None: ...


class Registered(Struct):
    """A definition that is kept, with what was found about it."""

    id: str
    version: str
    new: bool
    findings: list[Any] = []


class Progress(Struct, frozen=True):
    """How far a call that does many things is."""

    done: int
    total: int


class Runs(Protocol):
    @property
    def data(self) -> DataLife: ...

    @property
    def control(self) -> Control:
        """Generations, operators' hands, messages, definitions."""
        ...

    @property
    def projections(self) -> Projections: ...

    @property
    def bus(self) -> EngineBus: ...

    async def register(
        self, source: Any, *, name: str = "<definition>", by: str | None = None, force: str | None = None,
        strict: bool = False,
    ) -> Registered: ...  # fmt: skip

    async def start(
        self, definition: str, input: Any, *, id: str | None, version: str | None, priority: str | None,
        deadline: float | None, delay: float | None, metadata: Mapping[str, Any], attributes: Mapping[str, Any],
        created_by: str | None, idempotency_key: str = "", if_exists: str = "attach", connection: Any = None,
    ) -> str: ...  # fmt: skip

    async def start_many(
        self, definition: str, inputs: Sequence[Any], *, ids: Sequence[str] | None, version: str | None,
        priority: str | None, deadline: float | None, delay: float | None, metadata: Mapping[str, Any],
        attributes: Mapping[str, Any], created_by: str | None, progress: Callable[[Progress], None] | None,
    ) -> Sequence[str]: ...  # fmt: skip

    async def requests(self) -> list[RequestView]: ...

    async def start_keyed(
        self, definition: str, input: Any, *, id: str | None, by_key: Singleton | Debounce,
        options: Mapping[str, Any],
    ) -> str: ...  # fmt: skip

    @property
    def schedules(self) -> Schedules: ...

    async def definition(self, id: str, version: str | None) -> Definition: ...

    async def find(self, id: str, generation: int | None = None) -> Row:
        """The row of a run; without a generation the newest."""
        ...

    async def show(
        self, id: str, at: Moment | None = None, generation: int | None = None
    ) -> RunView: ...

    async def snapshot(self, id: str, name: str, *, by: str | None) -> None: ...

    async def why(self, id: str) -> list[WhyView]: ...

    async def history(self, id: str, generation: int | None = None) -> list[HistoryItem]: ...

    async def result(self, id: str) -> Any: ...

    def watch(self, id: str) -> AsyncIterator[Change]: ...

    async def list(self, query: Query) -> list[Row]: ...

    async def signal(
        self, id: str, name: str, payload: Any, *, by: str | None, message_id: str
    ) -> None: ...

    async def query(self, id: str, name: str, *args: Any) -> Any: ...

    async def pause(
        self, id: str, *, by: str | None, reason: str, command_id: str = ""
    ) -> None: ...

    async def resume(
        self, id: str, *, by: str | None, reason: str, command_id: str = ""
    ) -> None: ...

    async def cancel(
        self, id: str, *, by: str | None, reason: str, command_id: str = ""
    ) -> None: ...

    async def terminate(
        self, id: str, *, by: str | None, reason: str, command_id: str = ""
    ) -> None: ...

    async def set_global(self, values: Mapping[str, Any]) -> None: ...

    async def global_data(self) -> dict[str, Any]: ...

    async def form(
        self, id: str, key: str, act: str, *, by: str | None, data: Any, to: str | None, command_id: str = ""
    ) -> None: ...  # fmt: skip

    def on(
        self, types: Sequence[str] | None, listener: Callable[[Change], Any], *, definition: str | None, run: str | None,
        limit: int,
    ) -> Listening: ...  # fmt: skip

    async def queues(self) -> list[QueueView]: ...

    async def set_queue(
        self, name: str, options: Mapping[str, Any], *, by: str | None, reason: str
    ) -> None: ...

    async def owner(self) -> Owner | None: ...

    async def audit(self, id: str | None) -> list[str]: ...

    def stats(self) -> dict[str, int]: ...

    async def close(self) -> None: ...
