"""Failures on their way into a workflow function, as exceptions, and out of it, with their causes as they were."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any, cast

from penstock.errors import Fail, StepFailed
from penstock.model.failure import MESSAGE_CHARACTERS_MAX, Failure, failure_of


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
    """How the function failed: what it let through is the step's own failure, what it raised has those as its cause."""
    error = _one_of(error)
    if isinstance(error, StepFailed):
        return cast("Failure", error.failure)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is None or isinstance(cause, asyncio.CancelledError | Gone):
        return (
            failure_of(_alone(error), trace=_trace(error))
            if not isinstance(error, Fail)
            else failure_of(error)
        )
    outer = failure_of(_alone(error), trace=_trace(error))
    return Failure(
        code=outer.code, message=outer.message, type=outer.type, details=outer.details, trace=outer.trace,
        cause=failure_in(cause),
    )  # fmt: skip


def _one_of(error: BaseException) -> BaseException:
    """The one exception of a group that has no other."""
    inside: Any = getattr(error, "exceptions", ())
    while isinstance(error, BaseExceptionGroup) and len(inside) == 1:
        error = inside[0]
        inside = getattr(error, "exceptions", ())
    return cast("BaseException", error)


def _alone(error: BaseException) -> BaseException:
    """The same without its causes, which are told one by one."""
    made: Any = error.__class__.__new__(error.__class__)
    made.__dict__.update(error.__dict__)
    made.args = error.args
    return made


def _trace(error: BaseException) -> str:
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if "/penstock/sdk/" not in each.filename.replace("\\", "/")
    ]
    return "".join(traceback.format_list(frames[-12:]))[-MESSAGE_CHARACTERS_MAX:]
