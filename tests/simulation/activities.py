"""The world of simulations: what an activity does follows from its run, its task and its attempt alone."""

from __future__ import annotations

import asyncio
from typing import Any
from zlib import crc32

from penstock import Fail, activity
from penstock.sdk.attempt import current


def draw(*what: object) -> float:
    """From 0 to 1, the same for the same things."""
    return crc32(repr(what).encode()) / 0xFFFFFFFF


async def _work(kind: str) -> int:
    here = current()
    chance = draw(here.run_id, here.key, here.attempt, kind)
    if chance < 0.03:
        await asyncio.sleep(8.0)  # past its time
    elif chance < 0.08:
        for beat in range(3):
            here.heartbeat(beat)
            await asyncio.sleep(0.6)
    elif chance < 0.5:
        await asyncio.sleep(chance)
    if chance > 0.985:
        raise Fail("of no use", code="useless")
    if chance > 0.92:
        raise RuntimeError("not now")
    return int(chance * 1000) % 10


@activity(timeout=5)
async def x(n: Any = None, items: Any = None) -> int:
    return await _work("x")


@activity(timeout=5)
async def undo(*given: Any, **named: Any) -> None:
    await _work("undo")


ACTIVITIES = [x, undo]
