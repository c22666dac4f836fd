"""Values that fit almost nowhere, and what is wrong with the answer to one: whoever gives a wrong argument to a public
function gets an error of ours with a code and a hint, or it works; never a traceback of Python's, never a hang."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from penstock import Debounce, PenstockError, Singleton
from penstock.errors import RunFailed

SECONDS_MAX = 10.0
LOOP: list[Any] = []
LOOP.append(LOOP)


class Unshown:
    """Cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


WRONG: list[Any] = [
    None, True, 0, 5, -1, 1.5, 2**63, 10**400, -(10**400), 10**5000, float("nan"), float("inf"), -float("inf"),
    "", "no such", "x" * 100_000, "\ud800", "a\0b", "a\nb", b"x", b"\xff", [], ["a"], ["\ud800"], ["a\0b"], [1], [[]], LOOP, (),
    {}, {"a": 1}, {"\ud800": 1}, {"a\0b": "a\0b"}, {"a": "\ud800"}, {1: 2}, {"a": float("nan")}, {"a": 10**400}, {"a": LOOP},
    set(), object(), type, Unshown(), lambda *_: 1, datetime(2026, 1, 1), datetime.max.replace(tzinfo=UTC),  # noqa: DTZ001
    datetime.min.replace(tzinfo=UTC), date(2026, 1, 1), timedelta.max, timedelta.min, timedelta(seconds=-1),
    Singleton("k"), Singleton(5), Singleton("\ud800"), Debounce("k", 1), Debounce("k", -1), Debounce(5, "x"),  # type: ignore[arg-type]
    Debounce("k", float("nan")), Debounce("a\0b", 10**400),
]  # fmt: skip
WRONG_FOR_STORES: list[Any] = [
    2**63, 10**400, float("nan"), "x" * 100_000, "\ud800", "a\0b", b"x", ["a\0b"], {"a\0b": "a\0b"}, {"a": "\ud800"},
    datetime.max.replace(tzinfo=UTC), timedelta.max,
]  # fmt: skip
"""Those that one store might take and another not: all of them are given to the memory store."""


def named(value: Any) -> str:
    """As it may stand in a message of a test."""
    try:
        return f"{value!r:.40}"
    except Exception:
        return type(value).__name__


def places(function: Callable[..., Any]) -> tuple[list[str], set[str]]:
    """The names of all parameters but `self`, and those that must be given."""
    parameters = inspect.signature(function).parameters
    plain = [
        each
        for each in parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and each.name != "self"
    ]
    return [each.name for each in plain], {e.name for e in plain if e.default is e.empty}


async def complaint(call: Callable[[], Any]) -> str:
    """What is wrong with the outcome of a call, if anything."""
    try:
        outcome = call()
        if inspect.isawaitable(outcome):
            await asyncio.wait_for(outcome, SECONDS_MAX)
    except RunFailed:
        return ""
    except PenstockError as error:
        if not error.code or error.code in ("error", "store-failed", "internal"):
            return f"a refusal without a code of its own: {error.code} {error!s:.100}"
        return "" if error.hint else f"no hint: {error.code}"
    except TimeoutError:
        return "hangs"
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.100}"
    return ""
