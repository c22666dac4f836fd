"""Activities that leave a trace: noted, paid though they were told to stop, refused, taken back; on a clock that skips.

    @pytest.fixture(autouse=True)
    def nothing_done() -> None:
        deeds.forget()

Each file that uses them begins its tests so.
"""

from __future__ import annotations

import asyncio
from typing import Any

import penstock
from penstock import Fail, Retry, activity
from penstock.testing.harness import SkipClock

done: list[Any] = []
begun: list[int] = []
"""Attempts to pay."""
clock = SkipClock()
"""Another one in each test: ask for it as `deeds.clock`."""


def forget() -> None:
    global clock
    clock = SkipClock()
    done.clear()
    begun.clear()


@activity
async def note(what: str) -> str:
    done.append(what)
    return what


@activity
async def take_back(what: str) -> None:
    done.append(f"undo {what}")


@activity(retry=Retry(attempts=5, first=1, jitter=0))
async def pay(seconds: float, how: str = "pays") -> str:
    """Told to stop, it pays all the same, stops, or fails."""
    begun.append(penstock.current().job.attempt)
    try:
        await clock.sleep(1000)
    except asyncio.CancelledError:
        await clock.sleep(seconds)
        if how == "stops":
            raise
        if how == "fails":
            raise ValueError("half way") from None
    done.append("paid")
    return "payment"


@activity
async def refuse(seconds: float) -> None:
    await clock.sleep(seconds)
    raise Fail("no room", code="full")
