"""Failures on their way into a workflow function, as exceptions, and out of it, with their causes as they were."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from penstock.errors import Fail, StepFailed
from penstock.model.failure import CAUSES_MAX, MESSAGE_CHARACTERS_MAX, Failure
from penstock.sdk.outcome import kept

T = TypeVar("T", bound=BaseException)
MEMBERS_MAX = 20
UNREADABLE = "an exception whose text could not be read"


class Gone(BaseException):
    """The function is being dropped from memory: nothing that it still does is heard."""


def step_failed(key: str, failure: Failure) -> BaseException:
    """What the function gets: an exception with its causes as they were."""
    error = StepFailed(key, failure)
    cursor: BaseException = error
    cause = failure.cause
    while cause is not None:
        inner = StepFailed(cause.key or key, cause)
        cursor.__cause__, cursor = inner, inner
        cause = cause.cause
    return error


def failure_in(error: BaseException) -> Failure:
    """How the function failed: what it let through is the step's own failure, what it raised has those as its cause.

    It is told whatever the exception's own code does meanwhile: a run never loses why it failed."""
    try:
        return _described(error)
    except BaseException:  # an attribute raised, or a text of it is none
        message = text_of(error)[:MESSAGE_CHARACTERS_MAX]
        return Failure(code="error", message=message, type=type(error).__name__)


def goes_on(error: BaseException, kind: type[T]) -> T | None:
    """The exception of that kind, also out of groups that have no others."""
    try:
        return _only(error, kind)
    except Exception:  # groups in groups without end
        return None


def _only(error: BaseException, kind: type[T]) -> T | None:
    if isinstance(error, kind):
        return error
    found = [_only(each, kind) for each in _members(error)]
    return found[0] if found and all(each is not None for each in found) else None


def text_of(error: BaseException) -> str:
    """What it says, or that this cannot be read."""
    try:
        return str(error).encode("utf-8", "replace").decode("utf-8")
    except BaseException:
        return UNREADABLE


def _described(error: BaseException) -> Failure:
    chain, failure = _chain(error)
    for each in reversed(chain):
        failure = _one(each, failure)
    assert failure is not None
    return failure


def _chain(error: BaseException) -> tuple[list[BaseException], Failure | None]:
    """The exception and its causes, and the failure of a step at their end. Of many, the last is where it began."""
    chain: list[BaseException] = []
    seen: set[int] = set()
    cursor: BaseException | None = _one_of(error)
    end: Failure | None = None
    while cursor is not None and id(cursor) not in seen:
        if isinstance(cursor, StepFailed):
            end = cast("Failure", cursor.failure)
            break
        if chain and isinstance(cursor, asyncio.CancelledError | Gone):
            break
        seen.add(id(cursor))
        chain.append(cursor)
        cause = cursor.__cause__ or (None if cursor.__suppress_context__ else cursor.__context__)
        cursor = None if cause is None else _one_of(cause)
    if len(chain) > CAUSES_MAX:
        chain = [*chain[: CAUSES_MAX - 1], chain[-1]]
    return chain, end


def _one(error: BaseException, cause: Failure | None) -> Failure:
    """The exception by itself, with that as its cause."""
    own: Any = getattr(error, "code", None)
    details: Any = getattr(error, "details", None)
    message = text_of(error)
    if _members(error):
        message = f"{message}: {_listed(error)}"
    failure = Failure(
        code=own if isinstance(own, str) and own else "error",
        message=message[:MESSAGE_CHARACTERS_MAX],
        type=type(error).__name__,
        details=details,
        trace="" if isinstance(error, Fail) and cause is None else _trace(error),
    )
    return replace(kept(failure), cause=cause)


def _listed(group: BaseException, depth: int = 0) -> str:
    """The members of a group, and those of groups in it."""
    members = _members(group)
    told: list[str] = []
    for each in members[:MEMBERS_MAX]:
        text = f"{type(each).__name__}: {text_of(each)}"
        if _members(each) and depth < CAUSES_MAX:
            text = f"{text} ({_listed(each, depth + 1)})"
        told.append(text)
    if len(members) > MEMBERS_MAX:
        told.append(f"and {len(members) - MEMBERS_MAX} more")
    return "; ".join(told)


def _members(error: BaseException) -> tuple[BaseException, ...]:
    """Those of a group."""
    return cast("Any", error).exceptions if isinstance(error, BaseExceptionGroup) else ()


def _one_of(error: BaseException) -> BaseException:
    """The one exception of a group that has no other."""
    while len(members := _members(error)) == 1:
        error = members[0]
    return error


def _trace(error: BaseException) -> str:
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if "/penstock/sdk/" not in each.filename.replace("\\", "/")
    ]
    return "".join(traceback.format_list(frames[-12:]))[-MESSAGE_CHARACTERS_MAX:]
