"""Scenario: a counterexample as data, that can be run.

What is given to a run and what then happens to it from outside, in order, and what that shows. Data only, and as
JSON the same: `verify/rehearsal.py` plays it on the core, `penstock verify --run` on an engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

SHOWN_MAX = 60
"""Characters of a value in a sentence."""


class _Step(Struct, frozen=True, omit_defaults=True, tag_field="do"):
    """One thing that happens from outside."""


class Complete(_Step, frozen=True, tag="complete"):
    """The attempt of a task (activity, http) returns."""

    key: str
    output: Any = None


class Fail(_Step, frozen=True, tag="fail"):
    """The task's attempts are used up."""

    key: str
    code: str = "error"
    message: str = ""


class Fire(_Step, frozen=True, tag="fire"):
    """Time passes until what the task waits for is due: a timer, the timeout of a signal, a form's escalation."""

    key: str


class Signal(_Step, frozen=True, tag="signal"):
    name: str
    payload: Any = None


class Submit(_Step, frozen=True, tag="submit"):
    """A person fills in a form."""

    key: str
    output: Any = None


class EndChild(_Step, frozen=True, tag="child"):
    """The run that a `subworkflow` task waits for ends: well, or with an error code. A detached one that ends well has
    only begun: its task waits for no more."""

    key: str
    output: Any = None
    code: str = ""


class BusEvent(_Step, frozen=True, tag="event"):
    """The bus carries an event, for which a task of type `event` may wait."""

    topic: str
    data: Any = None
    kind: str = ""
    """Its type."""


Step = Complete | Fail | Fire | Signal | Submit | EndChild | BusEvent


class Shows(Struct, frozen=True, omit_defaults=True):
    """What is then seen; all that is given holds together."""

    status: str = ""
    """Of the run; empty: whichever."""
    code: str = ""
    """Of the run's failure."""
    task: str = ""
    """A task, by its key."""
    task_status: str = ""
    """How that task was last seen; `never`: no link to it was decided true, so that it was not begun."""
    task_code: str = ""
    """Of that task's failure."""
    event: str = ""
    """A type of event that is in the history."""
    passes: int = 0
    """That task, a loop, has begun at least so many passes."""
    twin: tuple[Step, ...] | None = None
    """The same steps in another order: the outcome differs."""
    differs: str = ""
    """With a twin: where it differs: `status`, `result`, `data.NAME`, `inputs.KEY` (what that task is called with), or
    `tasks` (how each was last seen, by key); empty: anywhere."""


class Scenario(Struct, frozen=True, omit_defaults=True):
    """Start a run with this input, let this happen in this order: that is seen."""

    input: Any
    steps: tuple[Step, ...] = ()
    shows: Shows = Shows()


def alone(steps: Iterable[Step], others: Iterable[Step]) -> list[Step]:
    """Those of `steps` that `others` have not, or not as often; the same is what is the same as JSON."""
    left = Counter(_canonical(step) for step in others)
    found: list[Step] = []
    for step in steps:
        name = _canonical(step)
        if left[name]:
            left[name] -= 1
        else:
            found.append(step)
    return found


def _canonical(step: Step) -> bytes:
    return msgspec.json.encode(step, order="deterministic")


def told(step: Step) -> str:
    """A step in words."""
    match step:
        case Complete():
            return f"`{step.key}` completes with {_short(step.output)}"
        case Fail():
            return f"`{step.key}` fails with `{step.code}`"
        case Fire():
            return f"what `{step.key}` waits for is due"
        case Signal():
            return f"signal `{step.name}` comes with {_short(step.payload)}"
        case Submit():
            return f"the form `{step.key}` is filled in with {_short(step.output)}"
        case BusEvent():
            return f"the bus carries {_short(step.data)} on `{step.topic}`"
        case EndChild():
            if step.code:
                return f"the run of `{step.key}` fails with `{step.code}`"
            return f"the run of `{step.key}` completes with {_short(step.output)}"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."
