"""Hints: a word to the owner that a run has changed; a lost one costs a moment, never a wake-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

REQUESTS = "\n"
"""In place of a run's id, which has no such character: requests were made (SPEC 4.3)."""


class Hints(Protocol):
    in_append: bool
    """The store tells of each append within its own transaction: `tell` is for other words only."""

    def listen(self, heard: Callable[[str], None]) -> str:
        """Call back with the id of each run hinted at; returns the address to be told at."""
        ...

    def tell(self, address: str, run_id: str) -> None:
        """Say it to whoever listens there: the id of a run, or a word with a newline in it (`engine/following.py`)."""
        ...

    def close(self) -> None: ...
