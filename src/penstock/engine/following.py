"""What other processes write, known here as soon as it is on disk (SPEC 4.8). Nothing polls but a slow net.

Only the owner hears of every commit. Whoever waits in another process for a run, or follows the whole log, asks the owner to be
told, with the address at which it listens; the owner answers at once (so that nothing falls between asking and looking), then
whenever something has happened. Asked again now and then, so that a new owner is asked too and a lost word costs a moment.

Words are hints of the form kind, newline, rest, as records have them: no run's id has a newline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import StoreError
from penstock.ports.hints import REQUESTS
from penstock.ports.store import Owner

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

ASK_SECONDS = 2.0
"""How often a process that does not own the database asks again; what it waits for it looks at itself then."""
KEEP_SECONDS = 10.0
"""How long the owner remembers who asked."""
TELL_SECONDS = 0.02
"""Followers of the log are told at most this often."""
ASK_RUN, ASK_LOG, RUN, LOG = "?run", "?log", "!run", "!log"

Wake = Callable[[bool], None]
"""True: others wrote, as far as we know."""


class Following:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._address: str | None = None
        self._owner: Owner | None = None
        self._runs: dict[str, int] = {}
        """Runs that somebody here waits for, and how many do."""
        self._wakes: list[Wake] = []
        """Whom to call when anything was written."""
        self._asking: asyncio.Task[None] | None = None
        self._answered = False
        self._known = 0
        self.asked: dict[str, dict[str, float]] = {}
        """As the owner: who asked for which run, and until when that counts."""
        self._followers: dict[str, float] = {}
        self._telling = False

    def __bool__(self) -> bool:
        """Somebody, here or elsewhere, wants to know of every commit."""
        return bool(self._wakes or self._followers)

    def listen(self) -> str:
        """Where this process can be told something; it listens from now on."""
        if self._address is None:
            hints = self._engine.hints
            self._address = "" if hints is None else hints.listen(self.heard)
        return self._address

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
            self._asking = None

    # --- who waits here --------------------------------------------------------------------------------------

    def follow(self, wake: Wake) -> Callable[[], None]:
        """Have `wake` called after every commit, whoever made it; gives what ends that."""
        self._wakes.append(wake)
        self._ask_soon()

        def end() -> None:
            if wake in self._wakes:
                self._wakes.remove(wake)

        return end

    @contextmanager
    def run(self, run_id: str) -> Generator[None]:
        """Somebody here waits for what becomes of a run: its watchers are poked, also when another process writes."""
        self._runs[run_id] = self._runs.get(run_id, 0) + 1
        if self._engine.owner is None:
            if self._owner is not None and self._asking is not None:
                self._tell(self._owner.address, ASK_RUN, f"{self.listen()}\n{run_id}")
            self._ask_soon()
        try:
            yield
        finally:
            self._runs[run_id] -= 1
            if not self._runs[run_id]:
                del self._runs[run_id]

    def _ask_soon(self) -> None:
        if self._asking is None and self._engine.hints is not None:
            self._asking = asyncio.get_running_loop().create_task(
                self._ask(), name="penstock.following"
            )

    async def _ask(self) -> None:
        """While somebody here waits, and another process owns the database."""
        engine = self._engine
        self.listen()
        try:
            while self._runs or self._wakes:
                if engine.owner is None:
                    await self._ask_owner()
                await engine.clock.sleep(ASK_SECONDS)
                if engine.owner is None and not self._answered:
                    self._wake(others=True)  # nobody answers: look
        finally:
            self._asking = self._owner = None

    async def _ask_owner(self) -> None:
        try:
            self._owner = await self._engine.store.owner()
        except StoreError:
            return
        owner, address = self._owner, self.listen()
        if owner is None or not owner.address or not address:
            return
        self._answered = False
        if self._wakes:
            self._tell(owner.address, ASK_LOG, address)
        for run_id in list(self._runs):
            self._tell(owner.address, ASK_RUN, f"{address}\n{run_id}")

    def _tell(self, address: str, kind: str, rest: str) -> None:
        if self._engine.hints is not None and address:
            self._engine.hints.tell(address, f"{kind}\n{rest}")

    # --- what is heard ---------------------------------------------------------------------------------------

    def heard(self, text: str) -> None:
        """A hint: of a run that another process wrote to, of a record, or one of our own words."""
        engine = self._engine
        kind, newline, rest = text.partition("\n")
        if text == REQUESTS:
            if engine.owner is not None:
                engine.requests.wake()
        elif not newline:
            if engine.owner is not None:
                engine.refresh(text)
            else:
                engine.observers.poke(text)
            self.wrote(others=True)
        elif kind == ASK_RUN and engine.owner is not None:
            address, _, run_id = rest.partition("\n")
            self.asked.setdefault(run_id, {})[address] = engine.clock.now() + KEEP_SECONDS
            self._tell(address, RUN, run_id)
        elif kind == ASK_LOG and engine.owner is not None:
            self._followers[rest] = engine.clock.now() + KEEP_SECONDS
            self._tell(rest, LOG, str(engine.position))
        elif kind == RUN and engine.owner is None:
            self._answered = True
            engine.observers.poke(rest)
        elif kind == LOG and engine.owner is None:
            self._answered = True
            if rest.isdecimal() and int(rest) != self._known:
                self._known = int(rest)
                self._wake(others=True)
        else:
            engine.tending.heard(text)

    # --- what was written ------------------------------------------------------------------------------------

    def wrote(self, *, others: bool = False) -> None:
        """Something was committed: those here look at once, those elsewhere are told soon."""
        if others:
            self._engine.outbox.wake()
        self._wake(others=others)
        if self._followers and not self._telling and self._engine.owner is not None:
            self._telling = True
            self._engine.timers.after(TELL_SECONDS, self._tell_followers)

    def _wake(self, *, others: bool) -> None:
        for wake in list(self._wakes):
            wake(others)

    def _tell_followers(self) -> None:
        self._telling = False
        now = self._engine.clock.now()
        for address, until in list(self._followers.items()):
            if until < now:
                del self._followers[address]
            else:
                self._tell(address, LOG, str(self._engine.position))

    def moved(self, run_id: str, *, closed: bool) -> None:
        """As the owner: tell those who asked for this run."""
        asked = self.asked.get(run_id)
        if asked is None:
            return
        now = self._engine.clock.now()
        for address, until in asked.items():
            if until >= now:
                self._tell(address, RUN, run_id)
        if closed:
            del self.asked[run_id]

    def tidy(self) -> None:
        """Forget who asked and has not asked again."""
        now = self._engine.clock.now()
        for run_id, asked in list(self.asked.items()):
            if max(asked.values()) < now:
                del self.asked[run_id]
