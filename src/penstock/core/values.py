"""What expressions see of a run: lazy views, so that reading one task costs the same among 100,000.

A value that is not in memory is asked for by raising `Need`; the shell loads it and takes the turn again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.errors import PenstockError
from penstock.model.failure import Failure
from penstock.model.run import PENDING, SKIPPED, TaskState

if TYPE_CHECKING:
    from penstock.core.flow import Flow
    from penstock.model.run import Scope

decode = msgspec.json.decode
encode = msgspec.json.Encoder().encode


class Need(BaseException):
    """A turn needs values that left the memory: load these references and take it again.

    Not an Exception: it must pass through expressions, which absorb errors, untouched.
    """

    def __init__(self, refs: set[int]) -> None:
        super().__init__(refs)
        self.refs = refs


class Fault(Exception):
    """An expression, input or config of a task failed; the failure is recorded."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class PathMissing(PenstockError):
    """An input names a place where there is nothing, and has no default."""

    code = "input-missing"

    def __init__(self, name: str, source: str, path: str) -> None:
        super().__init__(f"`{name}`: `{source}` has nothing at {path}")


class View(Mapping[str, Any]):
    """A mapping that is read by name only."""

    __slots__ = ()

    def names(self) -> list[str]:
        return []

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())


class Variables(View):
    """The roots of SPEC 2.1, as seen from one scope."""

    __slots__ = ("_extra", "_flow", "_path")

    def __init__(self, flow: Flow, path: str, extra: Mapping[str, Any] | None = None) -> None:
        self._flow, self._path, self._extra = flow, path, extra

    def __getitem__(self, name: str) -> Any:
        flow = self._flow
        if self._extra is not None and name in self._extra:
            return self._extra[name]
        match name:
            case "input":
                return flow.input()
            case "tasks":
                return Tasks(flow, self._path)
            case "data":
                return Data(flow)
            case "global":
                return flow.globals
            case "run":
                run = flow.run
                start = datetime.fromtimestamp(run.started_at or run.created_at, UTC)
                return {
                    "id": run.id, "definition": run.definition, "version": run.version, "start": start,
                }  # fmt: skip
            case "now":
                return datetime.fromtimestamp(flow.at, UTC)
            case "item" | "index" | "iteration":
                return self._scoped(name)
            case _:
                raise KeyError(name)

    def _scoped(self, name: str) -> Any:
        path: str | None = self._path
        wanted = "map" if name in ("item", "index") else "loop"
        while path is not None:
            scope = self._flow.run.scopes[path]
            kind = self._flow.plan.scopes[scope.plan].kind
            if kind == wanted or (wanted == "loop" and kind == "natural"):
                return self._flow.item(scope) if name == "item" else scope.number
            path = scope.parent
        raise KeyError(name)

    def names(self) -> list[str]:
        return ["input", "tasks", "data", "global", "run", "now"]


class Tasks(View):
    """`tasks.ID`: the body's own tasks, then those around it (SPEC 2.3, keys)."""

    __slots__ = ("_flow", "_path")

    def __init__(self, flow: Flow, path: str) -> None:
        self._flow, self._path = flow, path

    def __getitem__(self, id: str) -> Any:
        found = find(self._flow, self._path, id)
        if found is None:
            raise KeyError(id)
        return Seen(self._flow, found[1])

    def names(self) -> list[str]:
        scope = self._flow.run.scopes[self._path]
        return list(self._flow.plan.scopes[scope.plan].nodes)


class Seen(View):
    """One task: `.output`, `.status`, `.attempts`, `.error`."""

    __slots__ = ("_flow", "_state")

    def __init__(self, flow: Flow, state: TaskState) -> None:
        self._flow, self._state = flow, state

    def __getitem__(self, name: str) -> Any:
        state = self._state
        match name:
            case "output":
                return self._flow.output(state)
            case "status":
                return state.status
            case "attempts":
                return state.attempt
            case "error":
                return None if state.failure is None else error_value(state.failure)
            case _:
                raise KeyError(name)

    def names(self) -> list[str]:
        return ["output", "status", "attempts", "error"]


class Data(View):
    __slots__ = ("_flow",)

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def __getitem__(self, name: str) -> Any:
        return decode(bytes(self._flow.run.data[name].value))

    def names(self) -> list[str]:
        return list(self._flow.run.data)


def find(flow: Flow, path: str, id: str) -> tuple[Scope | None, TaskState] | None:
    """A task by id, from a scope outward; its scope only if it is the task's own, present one."""
    cursor: str | None = path
    while cursor is not None:
        scope = flow.run.scopes[cursor]
        plan = flow.plan.scopes[scope.plan]
        header = plan.inner.get(id)
        if header is not None or id in plan.nodes:
            state = scope.tasks.get(header or id)
            if (
                header is not None and state is not None
            ):  # of a natural loop: as its last pass left it
                left = None if state.last is None else state.last.get(id)
                state = left or TaskState(status=SKIPPED if state.status == SKIPPED else PENDING)
            if plan.kind in ("natural", "loop") and (state is None or state.status == PENDING):
                owner = flow.run.scopes[cast("str", scope.parent)].tasks[scope.owner]
                if owner.last is not None and id in owner.last:
                    return None, owner.last[id]
            return scope if header is None else None, state or TaskState()
        cursor = scope.parent
    return None


def error_value(failure: Failure) -> dict[str, Any]:
    """A failure as expressions see it."""
    return {
        "code": failure.code,
        "message": failure.message,
        "type": failure.type,
        "details": failure.details,
        "cause": None if failure.cause is None else error_value(failure.cause),
    }
