"""One whole turn of a run: decide, evolve, and note the effects, until it waits.

No I/O: what is not in memory comes back as `Need` (see `core/values.py`), and the caller, having loaded it, takes the
same turn again on the run as stored. A command that is refused harms none of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct

from penstock.core.decide import decide
from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.errors import PenstockError
from penstock.model.commands import Command, Wake
from penstock.model.effects import Effect
from penstock.model.events import Advanced, Event, UpdateAnswered

EVENTS_MAX = 10_000
"""Events of one turn; a Wake with more timers due is taken again."""


class Turn(Struct):
    """What came of a turn."""

    events: list[Event]
    effects: list[Effect]
    refused: dict[int, PenstockError]
    """By the place of the command."""


def _answer(flow: Flow, events: list[Event]) -> None:
    """Updates that were just taken: their answers are facts too, before whatever else follows."""
    answers, flow.answers = flow.answers, []
    for answer in answers:
        event = UpdateAnswered(
            at=flow.at, id=answer.id, output=Raw(answer.output), refused=answer.refused
        )
        evolve(flow, event, replaying=False)
        events.append(event)


def apply(flow: Flow, event: Event, events: list[Event]) -> None:
    """Fold a new event, and those that follow from it, and note them in order."""
    evolve(flow, event, replaying=False)
    events.append(event)
    if flow.answers:
        _answer(flow, events)
    pending = flow.run.pending
    while pending:
        owed = pending[0]
        evolve(flow, owed, replaying=False)
        events.append(owed)
        if flow.answers:
            _answer(flow, events)


def _can_go_on(flow: Flow) -> bool:
    """A function is to be told something, and is here to hear it."""
    run = flow.run
    here = flow.program is not None or (flow.host is not None and not run.advanced)
    return here and run.stopping is None and not run.closed


def turn(flow: Flow, commands: Sequence[Command]) -> Turn:
    """Take the commands in order; the flow's run is changed in place, so that it is one append or none."""
    events: list[Event] = []
    refused: dict[int, PenstockError] = {}
    flow.effects, flow.answers = [], []
    for place, command in enumerate(commands):
        if flow.run.heard and _can_go_on(flow):
            # Another has written what the function was not told yet: it may end the run, or whatever the command is about.
            apply(flow, Advanced(at=command.at), events)
        while True:
            try:
                decided = decide(flow, command)
            except PenstockError as error:
                refused[place] = error
                break
            for event in decided:
                apply(flow, event, events)
            if not decided or not isinstance(command, Wake) or len(events) > EVENTS_MAX:
                break
    flow.evict()
    return Turn(events, flow.effects, refused)
