"""What a workflow function wants next, as its program gives it and as events keep it (SPEC 2.8).

A definition's wants follow from its links and are never stored. A function's follow from code, which may be elsewhere or
have changed: what it wanted stands in the event that woke it, so that the state is the fold of the events, code or no code.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from penstock.model.definition import Retry, Timeouts
from penstock.model.failure import Failure

NULL = Raw(b"null")


class _Intent(Struct, frozen=True, omit_defaults=True, tag_field="want"):
    pass


class Call(_Intent, frozen=True, tag="call"):
    """A step: an attempt of an activity, tried as its policy says."""

    key: str
    activity: str
    arguments: Raw = NULL
    """A list is given by position, an object by name."""
    retry: Retry | None = None
    timeouts: Timeouts | None = None
    queue: str | None = None
    priority: str | None = None
    undo: str = ""
    """The activity that undoes it, called with its output."""
    undo_retry: Retry | None = None


class Sleep(_Intent, frozen=True, tag="sleep"):
    key: str
    due: float


class Await(_Intent, frozen=True, tag="await"):
    """A signal or an update is to come."""

    key: str
    name: str
    due: float | None = None
    update: bool = False
    """It is answered by the function."""


class Child(_Intent, frozen=True, tag="child"):
    key: str
    definition: str
    """Of a definition, or the name of a workflow function."""
    input: Raw = NULL
    version: str | None = None
    id: str = ""
    """Of the run; empty: made of this run's id and the key."""
    detached: bool = False
    """It is not waited for, and goes on when this run ends."""
    kept: bool = False
    """It is waited for, and goes on all the same when this run stops."""


class Drop(_Intent, frozen=True, tag="drop"):
    """Nobody waits for that step any more."""

    key: str
    gently: bool = False
    """The run is asked to stop, or the step has an undo: an attempt that is under way is told, and if it is done all the
    same, it can be undone."""


class Note(_Intent, frozen=True, tag="note"):
    """A value that the code made, and is not made again: a side effect, a marker."""

    key: str
    value: Raw = NULL


class Send(_Intent, frozen=True, tag="send"):
    """A signal to another run."""

    key: str
    run: str
    name: str
    payload: Raw = NULL


class Publish(_Intent, frozen=True, tag="publish"):
    key: str
    topic: str
    payload: Raw = NULL


class Tag(_Intent, frozen=True, tag="tag"):
    """Attributes by which the run is found; null removes one."""

    values: dict[str, Any]


class Reply(_Intent, frozen=True, tag="reply"):
    """The answer to an update."""

    id: str
    output: Raw = NULL
    refused: str = ""


class Push(_Intent, frozen=True, tag="push"):
    """Something to be undone, beside what steps bring with them."""

    key: str
    activity: str
    arguments: Raw = NULL
    retry: Retry | None = None


class Finish(_Intent, frozen=True, tag="finish"):
    output: Raw = NULL
    gently: bool = False
    """As of `Break`, of a child: what of them is done is handed to its parent, to be undone there."""


class Break(_Intent, frozen=True, tag="break"):
    """The function raised."""

    failure: Failure
    gently: bool = False
    """Steps with an undo were under way: they are told and end first, as those that are done all the same are undone."""


class Stop(_Intent, frozen=True, tag="stop"):
    """The function has ended as it was asked to: cancelled."""


class Continue(_Intent, frozen=True, tag="continue"):
    """Go on in another generation, with another input."""

    input: Raw = NULL
    gently: bool = False
    """As of `Break`: what of them is done goes along, to be undone."""


Intent = (
    Call | Sleep | Await | Child | Drop | Note | Send | Publish | Tag | Reply | Push | Finish | Break | Stop | Continue
)  # fmt: skip
Waiting = Call | Sleep | Await | Child
"""Those that make a task of the run, and end with something that the function hears."""

ENCODER = msgspec.json.Encoder()


def unkept(error: Exception) -> list[Intent]:
    """In the place of what a function wants and no event can hold: it fails, and does not hang."""
    message = f"what the function wants cannot be kept: {error}"
    return [Break(Failure(code="payload-invalid", message=message, type=type(error).__name__))]


DECODER: msgspec.json.Decoder[list[Intent]] = msgspec.json.Decoder(list[Intent])  # type: ignore[arg-type]


class Heard(Struct, omit_defaults=True):
    """What a function is to be told."""

    kind: str
    """`start`, `done`, `failed`, `skipped`, `cancel`."""
    key: str = ""
    """Of the step."""
    output: bytes | None = None
    """JSON, if small; else `ref` says where it is."""
    ref: int = 0
    failure: Failure | None = None
    id: str = ""
    """Of an update that is to be answered."""
