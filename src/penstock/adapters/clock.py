"""The real clock, on the running event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.ports.clock import Handle


class SystemClock:
    def now(self) -> float:
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        """The wall clock may be set back or forth meanwhile; whoever is called looks at `now()` again."""
        loop = asyncio.get_running_loop()
        return loop.call_later(max(0.0, when - time.time()), callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
