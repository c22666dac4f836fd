"""What a reset would do, to be confirmed by whoever asks for it (SPEC 4.4)."""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct
from msgspec.json import encode


class Consequence(Struct, frozen=True):
    """Something that happened after the point of a reset, and that the reset does not take back."""

    kind: str
    """`task`, `child`, `signal`, `publish`: what was done; `undone`: what was done before, is kept, and was undone
    after."""
    key: str
    seq: int
    undoable: bool = False
    """It has a way back, taken if `undo` is asked for."""
    name: str = ""


class Preview(Struct, frozen=True):
    """What a reset would do; its token confirms it."""

    id: str
    generation: int
    to: int
    consequences: list[Consequence] = []
    signals: list[str] = []
    """Names of signals that came later, and are given to the run again unless they are excluded."""
    children: list[str] = []
    """Runs that were started later, are open, and are told to stop."""

    @property
    def token(self) -> str:
        """Of what is listed here: it changes when there is more."""
        return sha256(encode(self)).hexdigest()[:16]
