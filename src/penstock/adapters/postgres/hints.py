"""LISTEN: the owner hears of what others append. They NOTIFY inside the append's own transaction (SPEC 4.8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.adapters.postgres.database import Away, Connection, Place, connect, translating
from penstock.errors import StoreError

log = logging.getLogger("penstock.store")

AGAIN_SECONDS_FIRST = 0.1
AGAIN_SECONDS_MAX = 2.0


class NotifyHints:
    """A connection of its own that listens, and is made anew when it was lost; what is missed meanwhile the owner finds by
    its look around."""

    in_append = True
    """Nobody needs to `tell`: the store does, within each append."""

    def __init__(self, url: str) -> None:
        self._place = Place(url)
        self._channel = f"{self._place.schema}.hints"
        self._task: asyncio.Task[None] | None = None

    def listen(self, heard: Callable[[str], None]) -> str:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._listen(heard), name="penstock.hints")
        return self._channel

    async def _listen(self, heard: Callable[[str], None]) -> None:
        pause = AGAIN_SECONDS_FIRST
        while True:
            db: Connection | None = None
            try:
                db = await connect(self._place)
                ended = asyncio.Event()

                def over(_db: Any, ended: asyncio.Event = ended) -> None:
                    ended.set()

                def receive(_db: Any, _pid: int, _channel: str, run_id: str) -> None:
                    heard(run_id)

                db.add_termination_listener(over)
                with translating(self._place):
                    await db.add_listener(self._channel, receive)
                pause = AGAIN_SECONDS_FIRST
                await ended.wait()
            except (Away, StoreError) as error:
                log.warning("hints.listener_lost", extra={"error": str(error)})
            finally:
                if db is not None:
                    with suppress(Exception):
                        db.terminate()
            await asyncio.sleep(pause)
            pause = min(pause * 2, AGAIN_SECONDS_MAX)

    def tell(self, address: str, run_id: str) -> None:
        """The store has told."""

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
