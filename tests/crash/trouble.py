"""What happens to a PostgreSQL server while engines work on it: killed and started again, its connections cut."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support.postgres import Server


class Trouble:
    """Counts what was done."""

    def __init__(self, server: Server, seed: int, *, seconds: tuple[float, float]) -> None:
        self._server, self._dice, self._seconds = server, random.Random(seed), seconds
        self.kills = self.cuts = 0

    @contextmanager
    def __call__(self, url: str) -> Iterator[None]:
        over = threading.Event()

        def work() -> None:
            while not over.wait(self._dice.uniform(*self._seconds)):
                if self._dice.random() < 0.4:
                    self._server.kill()
                    self._server.start()
                    self.kills += 1
                else:
                    self._server.cut(url)
                    self.cuts += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
