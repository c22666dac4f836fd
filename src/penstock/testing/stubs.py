"""Stubs: activities that only pretend, with the name, signature and policies of the real ones.

What a stub gives must fit what the activity is annotated to return, so that a test does not pass with what never happens.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import Any, cast

from penstock.errors import Rejected, shown
from penstock.sdk.attempt import current
from penstock.sdk.marks import is_workflow
from penstock.sdk.values import Unreadable, encode_value, result_decoder
from penstock.sdk.workflow import ATTRIBUTE, name_of


class Stub:
    """What a stub was told to do, and what it was called with."""

    def __init__(self, activity: Callable[..., Any], takes: float) -> None:
        self.activity, self.takes = activity, takes
        self.calls: list[dict[str, Any]] = []
        """The arguments of each call, by name."""
        self._outcomes: list[Any] = []
        self._does: Callable[..., Any] | None = None

    def gives(self, *outcomes: Any) -> None:
        """Values to return and exceptions to raise, one for each attempt; the last stays."""
        for each in outcomes:
            if not isinstance(each, BaseException):
                _check(self.activity, each)
        self._outcomes = list(outcomes)

    def does(self, function: Callable[..., Any]) -> None:
        """What is done instead, with the same arguments."""
        if not callable(function):
            raise _unfit(
                f"`does` of the stub of `{name_of(self.activity)}` is a function, not {shown(function)}",
                "does=lambda card: …",
            )
        self._does = function

    async def __call__(self, *args: Any, **named: Any) -> Any:
        bound = inspect.signature(self.activity).bind(*args, **named)
        bound.apply_defaults()
        self.calls.append(dict(bound.arguments))
        if self.takes:
            await _sleep(self.takes)
        if self._does is not None:
            made = self._does(*args, **named)
            made = await made if inspect.isawaitable(made) else made
            _check(self.activity, made)
            return made
        if not self._outcomes:
            return None
        outcome = self._outcomes[0] if len(self._outcomes) == 1 else self._outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def stub(
    activity: Callable[..., Any],
    *outcomes: Any,
    does: Callable[..., Any] | None = None,
    takes: float = 0.0,
) -> Any:
    """An activity in the place of another: it returns or raises the outcomes in order, or does something else; `takes` is
    how long, by the clock that skips. `stub(…).calls` has what it was called with."""
    if not callable(activity) or inspect.isbuiltin(activity) or is_workflow(activity):
        raise _unfit(
            f"a stub stands for an activity, and {shown(activity)} is none", "stub(charge, …)"
        )
    if type(takes) not in (int, float) or not (isfinite(takes) and takes >= 0):
        raise _unfit(
            f"`takes` of the stub of `{name_of(activity)}` is seconds from 0, not {shown(takes)}",
            "takes=30",
        )
    made = Stub(activity, takes)
    made.gives(*outcomes)
    if does is not None:
        made.does(does)
    elif not outcomes:
        _check(activity, None)

    @functools.wraps(activity)
    async def pretended(*args: Any, **named: Any) -> Any:
        return await made(*args, **named)

    declared = getattr(activity, ATTRIBUTE, None)
    if declared is not None:
        # In the loop, whatever the real one runs in.
        setattr(pretended, ATTRIBUTE, replace(declared, cpu=False))
    pretending = cast("Any", pretended)
    pretending.calls, pretending.gives, pretending.does = made.calls, made.gives, made.does
    return pretending


def _check(activity: Callable[..., Any], value: Any) -> None:
    try:
        result_decoder(activity)(encode_value(value))
    except Unreadable as error:
        raise Rejected(
            "stub-unfit",
            f"the stub of `{name_of(activity)}` gives {shown(value)}, which the activity never does: {error.message}",
            hint="give what its annotation says",
        ) from None


def _unfit(message: str, hint: str) -> Rejected:
    return Rejected("stub-unfit", message, hint=hint)


async def _sleep(seconds: float) -> None:
    """By the clock of the engine that executes the attempt."""
    worker: Any = getattr(current(), "worker", None)
    await worker.clock.sleep(seconds)
