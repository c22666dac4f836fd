"""What an activity did, as an Outcome: the same words for the loop, a thread and a child process."""

from __future__ import annotations

import traceback
from types import CodeType, TracebackType
from typing import Any

import msgspec

from penstock.errors import Fail, PayloadInvalid, PayloadTooLarge, PenstockError
from penstock.model.definition import Retry
from penstock.model.failure import MESSAGE_CHARACTERS_MAX, Failure, failure_of
from penstock.model.job import Broken, Done, Outcome
from penstock.sdk.arguments import BadArguments, Parameters
from penstock.sdk.conceal import concealed
from penstock.sdk.results import Result
from penstock.sdk.values import encode_value

FRAMES_MAX = 12
TRACES_MAX = 100
DETAILS_BYTES_MAX = 64 * 1024
_OURS = (
    __name__,
    "penstock.sdk.arguments",
    "penstock.sdk.worker",
    "penstock.sdk.threads",
    "penstock.sdk.child",
    "penstock.sdk.plugins",
)
_traces: dict[tuple[tuple[int, int], ...], tuple[str, list[tuple[CodeType, int]]]] = {}
"""By where in the code it was: what failed there before looks the same, and Python reads and parses the source for every
frame (0.3 ms, measured). The code is held, so that no other takes its place in memory."""


def perform(
    name: str,
    parameters: Parameters,
    arguments: Any,
    secrets: dict[str, Any] | None,
    retry: Retry | None,
) -> Outcome:
    """Call a plain function; whatever it does comes back as an Outcome."""
    try:
        result = parameters.call(arguments, secrets)
    except BaseException as error:
        return broken(name, error, retry, secrets)
    return returned(name, result, retry, parameters.result)


def returned(name: str, result: Any, retry: Retry | None, expected: Result) -> Outcome:
    """Its result, or why that cannot be kept: then another attempt is of no use."""
    try:
        if type(result) is int and expected.exact is float:
            result = float(result)  # which CEL would take for an int (SPEC 2.1)
        encoded = encode_value(result)
        if expected.checks and type(result) is not expected.exact:
            problem = expected.problem(encoded)
            if problem is not None:
                message = f"the result of activity `{name}` {problem}"
                return Broken(Failure(code="output-invalid", message=message), retry, final=True)
        return Done(encoded)
    except (PayloadInvalid, PayloadTooLarge) as error:
        if hasattr(result, "__await__"):
            getattr(result, "close", bool)()
            message = f"activity `{name}` is a plain function that returned an awaitable; declare it `async def`"
        else:
            message = f"the result of activity `{name}` cannot be kept: {error}"
        return Broken(
            Failure(code=error.code, message=message, type=type(error).__name__), retry, final=True
        )
    except BaseException as error:  # whatever the result's own code raises while it is read
        failure = _failure_of(error)
        message = f"the result of activity `{name}` cannot be kept: {failure.message}"
        failure = msgspec.structs.replace(failure, code=PayloadInvalid.code, message=message)
        return Broken(failure, retry, final=True)


def broken(
    name: str, error: BaseException, retry: Retry | None, secrets: dict[str, Any] | None = None
) -> Broken:
    """The exception as data; `Fail` and arguments that do not fit are final."""
    error = _alone(error)
    if isinstance(error, BadArguments):
        message = f"activity `{name}`: {error.message}"
        details = error.details
        return Broken(
            Failure(BadArguments.code, message, "BadArguments", details=details), retry, final=True
        )
    failure = _failure_of(error)
    if isinstance(error, SystemExit):
        message = f"activity `{name}` called sys.exit({error.code!r})"
        failure = msgspec.structs.replace(failure, code="error", message=message)
    if secrets:
        failure = _redacted(failure, secrets)
    return Broken(failure, retry, final=isinstance(error, Fail))


def _alone(error: BaseException) -> BaseException:
    """The one exception of a group that has no other, so that a TaskGroup does not hide a `Fail`."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        error = error.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return error  # pyright: ignore[reportUnknownVariableType]


def _failure_of(error: BaseException) -> Failure:
    try:
        failure = failure_of(error, trace=_trace(error))
    except BaseException:  # its __str__ or one of its attributes raised
        return Failure("error", "an exception whose text could not be read", type(error).__name__)
    return kept(failure)


def _trace(error: BaseException) -> str:
    """The last frames of the activity itself, without ours around it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_globals.get("__name__") in _OURS:
        frame = frame.tb_next
    if frame is None:
        return ""
    places: list[tuple[CodeType, int]] = []
    each: TracebackType | None = frame
    while each is not None:
        places.append((each.tb_frame.f_code, each.tb_lasti))
        each = each.tb_next
    key = tuple((id(code), at) for code, at in places[-FRAMES_MAX:])
    known = _traces.get(key)
    if known is None:
        text = "".join(traceback.format_tb(frame, limit=-FRAMES_MAX))[-MESSAGE_CHARACTERS_MAX:]
        if len(_traces) >= TRACES_MAX:
            _traces.clear()
        known = _traces[key] = text, places[-FRAMES_MAX:]
    return known[0]


def kept(failure: Failure) -> Failure:
    """The failure with nothing in it that could not be stored."""
    details = failure.details
    if details is not None:
        try:
            details = msgspec.json.decode(encode_value(details, limit=DETAILS_BYTES_MAX))
        except PenstockError:
            details = repr(details)[:MESSAGE_CHARACTERS_MAX]
    return msgspec.structs.replace(
        failure,
        code=readable(failure.code),
        message=readable(failure.message),
        trace=readable(failure.trace),
        details=details,
        cause=None if failure.cause is None else kept(failure.cause),
    )


def readable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _redacted(failure: Failure, secrets: dict[str, Any]) -> Failure:
    def hide(text: str) -> str:
        return concealed(text, secrets)

    details = failure.details
    if details is not None:
        details = _hidden(details, hide)
    return msgspec.structs.replace(
        failure,
        message=hide(failure.message),
        trace=hide(failure.trace),
        details=details,
        cause=None if failure.cause is None else _redacted(failure.cause, secrets),
    )


def _hidden(value: Any, hide: Any) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(key): _hidden(each, hide) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_hidden(each, hide) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value
