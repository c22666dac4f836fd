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
WORDS_MAX = 1000
TELL = "SELECT pg_notify($1, word) FROM unnest($2::text[]) word"


class NotifyHints:
    """A connection of its own that listens, and is made anew when it was lost; what is missed meanwhile the owner finds by
    its look around."""

    in_append = True
    """Nobody needs to `tell` of an append: the store does, within its transaction. Of anything else they do."""

    def __init__(self, url: str) -> None:
        self._place = Place(url)
        self._channel = f"{self._place.schema}.hints"
        self._task: asyncio.Task[None] | None = None
        self._db: Connection | None = None
        self._words: list[str] = []
        self._sending: asyncio.Task[None] | None = None

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
                self._db = db
                self._send_soon()
                await ended.wait()
            except (Away, StoreError) as error:
                log.warning("hints.listener_lost", extra={"error": str(error)})
            finally:
                self._db = None
                if db is not None:
                    with suppress(Exception):
                        db.terminate()
            await asyncio.sleep(pause)
            pause = min(pause * 2, AGAIN_SECONDS_MAX)

    def tell(self, address: str, run_id: str) -> None:
        """All that is said while a statement is under way goes with the next; the oldest is lost if nobody can be reached."""
        if len(self._words) >= WORDS_MAX:
            self._words.pop(0)
        self._words.append(run_id)
        self._send_soon()

    def _send_soon(self) -> None:
        if self._words and self._db is not None and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send(self._db))

    async def _send(self, db: Connection) -> None:
        try:
            while self._words:
                words, self._words = self._words, []
                with translating(self._place):
                    await db.execute(TELL, self._channel, words)
        except (Away, StoreError) as error:
            log.warning("hints.untold", extra={"error": str(error)})
        finally:
            self._sending = None

    def close(self) -> None:
        for task in (self._task, self._sending):
            if task is not None:
                task.cancel()
        self._task = None
