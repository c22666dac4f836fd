"""Program: what can advance a run by code (SPEC 2.8); a definition's is `core/flow.py` itself.

The seam between the core and the code of workflow functions, which `sdk/replay.py` runs. A program is told what has
happened, in the order of the events, and gives what it wants next; the same again gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.model.intents import Heard, Intent
from penstock.model.run import Run


class Told(Struct):
    """What a program is told at one event."""

    at: float
    seq: int
    """Of the event."""
    heard: Sequence[Heard]
    outputs: Sequence[bytes | None]
    """JSON, of each of those."""


class Program(Protocol):
    advanced: int
    """The event up to which it has been told."""

    def advance(self, told: Told) -> list[Intent]:
        """Go on until it waits; what it wants is in the order in which it was wanted."""
        ...

    def replay(self, told: Told, wanted: list[Intent]) -> None:
        """As `advance`, of what has happened before: it must want the same, or NondeterminismError says what differs."""
        ...

    def query(self, name: str, arguments: Any) -> Any: ...

    def close(self) -> None:
        """It is not needed any more: its coroutines end without being heard."""
        ...


class Host(Protocol):
    """Where the code of workflow functions is."""

    def begin(self, run: Run) -> Program | None:
        """A program that has been told nothing; None if the code is not here."""
        ...


class NeedProgram(BaseException):
    """The function of the run left the memory: replay its history, and take the turn again.

    Not an Exception, as `Need` is none.
    """
