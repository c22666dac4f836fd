"""Run as applications see it: a handle to await, ask and command one run with (SPEC 15)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from msgspec.json import encode

from penstock.ports.arguments import checked
from penstock.ports.control import Move, Preview
from penstock.ports.runs import (
    Change,
    HistoryItem,
    Moment,
    Runs,
    RunView,
    WhyView,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


@checked
class Run(Generic[T]):
    """A handle to one run; cheap, and valid in any process."""

    __slots__ = ("_read", "_runs", "id")

    def __init__(self, runs: Runs, id: str, read: Callable[[bytes], T] | None = None) -> None:
        self._runs, self.id, self._read = runs, id, read

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    async def result(self) -> T:
        """Wait for the end: the run's output, or RunFailed with its status and failure. That of a workflow function which
        was started by this handle has the type that the function says."""
        value = await self._runs.result(self.id)
        read = self._read
        if read is None or type(value) is getattr(read, "exact", None):
            return value
        return read(encode(value))

    async def signal(
        self, name: str, payload: Any = None, *, by: str | None = None, message_id: str = ""
    ) -> None:
        """Send a message into the run; on disk on return. With a `message_id` a repeat is harmless."""
        await self._runs.signal(self.id, name, payload, by=by, message_id=message_id)

    async def update(
        self, name: str, payload: Any = None, *, by: str | None = None, command_id: str = ""
    ) -> Any:
        """Send a message that is answered, and wait for the answer. With a `command_id` it can be asked for again."""
        return await self._runs.control.update(self.id, name, payload, by=by, command_id=command_id)

    async def query(self, name: str, *args: Any) -> Any:
        """Ask one of the definition's `queries`, or what the workflow function answers, of the run as it is."""
        return await self._runs.query(self.id, name, *args)

    async def pause(self, *, by: str | None = None, reason: str = "", command_id: str = "") -> None:
        await self._runs.pause(self.id, by=by, reason=reason, command_id=command_id)

    async def resume(
        self, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        await self._runs.resume(self.id, by=by, reason=reason, command_id=command_id)

    async def cancel(
        self, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        """Ask the run to stop: waits end, activities are told, what was done is undone."""
        await self._runs.cancel(self.id, by=by, reason=reason, command_id=command_id)

    async def terminate(
        self, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        """End the run at once; nothing is undone."""
        await self._runs.terminate(self.id, by=by, reason=reason, command_id=command_id)

    async def retry(
        self,
        task: str | None = None,
        *,
        by: str | None = None,
        reason: str = "",
        command_id: str = "",
    ) -> int:
        """Try again what the run failed at, or from `task` on; the generation that does. What was done is kept."""
        return await self._runs.control.retry(
            self.id, task, by=by, reason=reason, command_id=command_id
        )

    async def migrate(
        self,
        version: str | None = None,
        *,
        mapping: Mapping[str, str] | None = None,
        by: str | None = None,
        reason: str = "",
        command_id: str = "",
    ) -> None:
        """Go on as a run of another version of its definition, or of the newest, from where the run stands. `mapping` says
        which task became which, by path: `{"pay": "settle"}`. Refused, with all that stands in the way, if it is not safe."""
        await self._runs.control.migrate(
            self.id, version, mapping=mapping or {}, by=by, reason=reason, command_id=command_id
        )

    async def preview_migration(
        self, version: str | None = None, *, mapping: Mapping[str, str] | None = None
    ) -> Move:
        """What `migrate` would do, and what stands in its way; nothing is changed."""
        return await self._runs.control.preview_migration(self.id, version, mapping=mapping or {})

    async def preview(self, to: int) -> Preview:
        """What a reset to event `to` would leave behind; its `token` confirms the reset."""
        return await self._runs.control.preview(self.id, to)

    async def reset(
        self,
        to: int,
        *,
        token: str,
        by: str | None = None,
        reason: str = "",
        exclude: Sequence[str] = (),
        undo: bool = False,
        command_id: str = "",
    ) -> int:
        """Go on from event `to` in another generation, its number; later signals are given again, but for those named
        in `exclude`; with `undo` what was done later is undone first."""
        return await self._runs.control.reset(
            self.id, to, token=token, by=by, reason=reason, exclude=exclude, undo=undo, command_id=command_id
        )  # fmt: skip

    async def fire(
        self, key: str, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        """Do not let the timer, or the next attempt, of task `key` wait for its time."""
        await self._runs.control.wait(
            self.id, key, "fire", by=by, reason=reason, command_id=command_id
        )

    async def skip(
        self, key: str, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        """Do not wait for task `key` any more: it counts as skipped."""
        await self._runs.control.wait(
            self.id, key, "skip", by=by, reason=reason, command_id=command_id
        )

    async def fail(
        self, key: str, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        """Do not wait for task `key` any more: it has failed."""
        await self._runs.control.wait(
            self.id, key, "fail", by=by, reason=reason, command_id=command_id
        )

    async def resolve_undo(
        self, key: str, act: str, *, by: str | None = None, reason: str = "", command_id: str = ""
    ) -> None:
        """Decide what becomes of an undo that failed: `accept` (undone by hand), `skip` (left as it is), `retry`."""
        await self._runs.control.undo(
            self.id, key, act, by=by, reason=reason, command_id=command_id
        )

    async def set_attributes(
        self,
        values: Mapping[str, Any],
        *,
        by: str | None = None,
        reason: str = "",
        command_id: str = "",
    ) -> None:
        """Change attributes by which the run is found; None removes one."""
        await self._runs.control.attributes(
            self.id, values, by=by, reason=reason, command_id=command_id
        )

    async def submit(self, key: str, data: Any, *, by: str | None = None) -> None:
        """Fill in the form that task `key` waits for."""
        await self._runs.form(self.id, key, "submit", by=by, data=data, to=None)

    async def claim(self, key: str, *, by: str) -> None:
        await self._runs.form(self.id, key, "claim", by=by, data=None, to=None)

    async def release(self, key: str, *, by: str) -> None:
        await self._runs.form(self.id, key, "release", by=by, data=None, to=None)

    async def delegate(self, key: str, *, by: str, to: str) -> None:
        await self._runs.form(self.id, key, "delegate", by=by, data=None, to=to)

    async def show(self, at: Moment | None = None, *, generation: int | None = None) -> RunView:
        """The run and its tasks as they are; or as they were after event n, at a time, at a named snapshot."""
        return await self._runs.show(self.id, at, generation)

    async def snapshot(self, name: str, *, by: str | None = None) -> None:
        """Give this moment a name, to look at it again with `show(name)`."""
        await self._runs.snapshot(self.id, name, by=by)

    async def status(self) -> str:
        row = await self._runs.find(self.id)
        return "PAUSED" if row.paused else row.status

    async def why(self) -> list[WhyView]:
        """What the run waits for; empty once it is closed."""
        return await self._runs.why(self.id)

    async def history(self, *, generation: int | None = None) -> list[HistoryItem]:
        """The events of the newest generation, or of another."""
        return await self._runs.history(self.id, generation)

    def watch(self) -> AsyncIterator[Change]:
        """All that has happened and happens, in order, until the run is closed."""
        return self._runs.watch(self.id)
