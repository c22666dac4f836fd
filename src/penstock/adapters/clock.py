"""The real clock, on the running event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.ports.clock import Handle


class SystemClock:
    def now(self) -> float:
        return time.time()

    def ticks(self) -> float:
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        return asyncio.get_running_loop().call_later(max(0.0, when - time.time()), callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
