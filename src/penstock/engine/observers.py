"""Who waits for what happens to a run in this process: results, answers, watchers.

Everything here is told only after it is on disk; nothing here can harm a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.engine.history import Entry
from penstock.errors import Fenced, Rejected
from penstock.model import effects as f
from penstock.model.events import Event
from penstock.model.run import Run


class Noticed:
    """An event that is on disk, as watchers get it."""

    __slots__ = ("event", "run_id", "seq", "status")

    def __init__(self, run_id: str, seq: int, event: Event, status: str) -> None:
        self.run_id, self.seq, self.event, self.status = run_id, seq, event, status

    @property
    def type(self) -> str:
        return self.event.type


Queue = asyncio.Queue["Noticed | None"]
"""None: look for yourself; others have written, or it is over."""


class Observers:
    def __init__(self) -> None:
        self._results: dict[str, list[asyncio.Future[Entry]]] = {}
        self._answers: dict[tuple[str, str], list[asyncio.Future[bytes]]] = {}
        """By run and update: an id is of one run, and the same update may be asked for twice at a time."""
        self._watchers: dict[str, list[Queue]] = {}
        self._pokes: dict[str, list[asyncio.Future[None]]] = {}
        self._ends: dict[str, dict[str, Callable[[str], Any]]] = {}

    def __bool__(self) -> bool:
        """Somebody wants each event."""
        return bool(self._watchers)

    def closing(self, run_id: str) -> asyncio.Future[Entry]:
        """The run as it was closed, if this process learns of it."""
        future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._results.setdefault(run_id, []).append(future)
        return future

    def when_closed(self, run_id: str, word: str, told: Callable[[str], Any]) -> None:
        """Call `told(word)` once when the run is closed, if this process learns of it; the same word only once."""
        self._ends.setdefault(run_id, {})[word] = told

    def answering(self, run_id: str, update_id: str) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers.setdefault((run_id, update_id), []).append(future)
        return future

    def watch(self, run_id: str) -> Queue:
        queue: Queue = asyncio.Queue()
        self._watchers.setdefault(run_id, []).append(queue)
        return queue

    def unwatch(self, run_id: str, queue: Queue) -> None:
        queues = self._watchers.get(run_id)
        if queues is not None and queue in queues:
            queues.remove(queue)
            if not queues:
                del self._watchers[run_id]

    def watched(self, run_id: str) -> bool:
        return run_id in self._watchers

    def awaited(self, run_id: str) -> bool:
        """Somebody here waits for what becomes of the run."""
        return run_id in self._results or run_id in self._watchers or run_id in self._ends

    def poked(self, run_id: str) -> asyncio.Future[None]:
        """Done once others may have written to the run."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pokes.setdefault(run_id, []).append(future)
        return future

    def unpoked(self, run_id: str, future: asyncio.Future[None]) -> None:
        future.cancel()
        futures = self._pokes.get(run_id)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._pokes[run_id]

    def announce(self, run: Run, events: list[Event]) -> None:
        """Events of one run, just stored."""
        seq = run.revision - len(events)
        queues = self._watchers.get(run.id, ())
        for event in events:
            seq += 1
            noticed = Noticed(run.id, seq, event, run.status)
            for queue in queues:
                queue.put_nowait(noticed)

    def unanswered(self, run_id: str, update_id: str, future: asyncio.Future[bytes]) -> None:
        """Whoever waited for the answer has gone."""
        future.cancel()
        futures = self._answers.get((run_id, update_id))
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._answers[run_id, update_id]

    def unheard(self, run_id: str, future: asyncio.Future[Entry]) -> None:
        """Whoever waited for the end has gone."""
        future.cancel()
        futures = self._results.get(run_id)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._results[run_id]

    def answer(self, run_id: str, effect: f.Answer) -> None:
        for future in self._answers.pop((run_id, effect.id), ()):
            if future.done():
                continue
            if effect.refused:
                future.set_exception(Rejected("update-failed", effect.refused))
            else:
                future.set_result(effect.output)

    def poke(self, run_id: str) -> None:
        """Others have written: whoever watches looks for itself."""
        for queue in self._watchers.get(run_id, ()):
            queue.put_nowait(None)
        for future in self._pokes.pop(run_id, ()):
            if not future.done():
                future.set_result(None)

    def closed(self, run_id: str, entry: Entry) -> None:
        for future in self._results.pop(run_id, ()):
            if not future.done():
                future.set_result(entry)
        for queue in self._watchers.pop(run_id, ()):
            queue.put_nowait(None)
        if self._ends:
            for word, told in self._ends.pop(run_id, {}).items():
                told(word)

    def disturb(self, error: Fenced) -> None:
        """Another process writes from now on: whoever waits for an end looks for itself."""
        waiting, self._results = self._results, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        for run_id in self._watchers:
            self.poke(run_id)

    def abandon(self, error: BaseException) -> None:
        """The engine ends: nobody learns anything more here."""
        for futures in [*self._results.values(), *self._answers.values()]:
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        for queues in self._watchers.values():
            for queue in queues:
                queue.put_nowait(None)
