"""What the world must do once an event is stored; derived from state, never stored."""

from __future__ import annotations

from msgspec import Struct


class Execute(Struct, frozen=True):
    """Begin an attempt of a task (or, `undo`, of a compensation) when it is due."""

    key: str
    attempt: int
    due: float | None = None
    undo: bool = False


class Abandon(Struct, frozen=True):
    """Tell an attempt that it is not wanted any more."""

    key: str
    attempt: int


class StartChild(Struct, frozen=True):
    key: str


class CancelChild(Struct, frozen=True):
    key: str
    run: str


class Deliver(Struct, frozen=True):
    """Bring a signal to another run."""

    id: str


class Admit(Struct, frozen=True):
    """Let the run begin once its definition has a place for it."""


class Advance(Struct, frozen=True):
    """Tell a workflow function what it has not been told yet, where its code is."""


class OpenNext(Struct, frozen=True):
    """A workflow function goes on in another generation: close this one and open that."""


class Answer(Struct, frozen=True):
    """An update has been taken: its answer, as JSON, or the reason why there is none."""

    id: str
    output: bytes
    refused: str = ""


Effect = (
    Execute | Abandon | StartChild | CancelChild | Deliver | Admit | Answer | Advance | OpenNext
)
