"""Turns that the store could not take: what was decided is kept until it is tried again (SPEC 4.2).

Nobody sees them meanwhile: the run as decided is not in memory for others. The same commands, to the run as it is on disk,
give the same events; so whoever tries them again need not read the run and tell its function all of its history first. Where
anything else has come for the run, or may have happened to it, the turn is forgotten, and the run is taken as it is stored.
That another has written to it meanwhile the store says, which is asked to append behind the revision and hash of before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.core.turn import Turn
from penstock.engine.history import Entry
from penstock.engine.inbox import Item
from penstock.ports.store import Append

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

Taken = tuple[str, Entry, list[Item], Turn, list[Any]]
"""A run whose turn was taken: what it was, what was asked, what came of it, what was read."""


class Held(Struct):
    """What one turn gave."""

    entry: Entry
    items: list[Item]
    """Those with a command."""
    outcome: Turn
    append: Append


class Holding:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: dict[str, Held] = {}
        """By run; none of them is in the engine's cache."""

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, taken: Sequence[Taken], appends: Sequence[Append]) -> None:
        """Nothing of it was written, or nobody knows: the runs as decided leave the memory."""
        cache, held = self._engine.cache, self._held
        place, left = 0, self._engine.settings.cache_runs - len(held)
        for run_id, entry, items, outcome, _ in taken:
            if not outcome.events:
                continue  # it is as it was
            append = appends[place]
            place += 1
            here = cache.pop(run_id, None)
            if (
                here is not entry  # read meanwhile
                or append.token is None  # others write
                or left <= 0
                or any(item.future is not None for item in items)  # they are told that it failed
            ):
                continue
            entry.armed = None
            commands = [item for item in items if item.command is not None]
            held[run_id] = Held(entry, commands, outcome, append)
            left -= 1

    def has(self, run_id: str, items: Sequence[Item]) -> bool:
        """The very same is tried again."""
        held = self._held.get(run_id)
        return held is not None and self._fits(run_id, held, items)

    def take(self, run_id: str, items: Sequence[Item]) -> Held | None:
        """The turn that these items gave before, with the run in memory as it was after it; it is held no more."""
        held = self._held.pop(run_id, None)
        if held is None or not self._fits(run_id, held, items):
            return None
        self._engine.cache[run_id] = held.entry
        return held

    def _fits(self, run_id: str, held: Held, items: Sequence[Item]) -> bool:
        engine, flow = self._engine, held.entry.flow
        return (
            run_id not in engine.cache
            and engine.owner is not None
            and engine.owner.token == held.append.token
            and flow.globals == engine.globals
            and engine.programs.goes_on(run_id, flow)
            and [item for item in items if item.command is not None] == held.items
            and all(item.read is None for item in items)
        )

    def clear(self) -> None:
        """Another process may have gone on with them."""
        self._held.clear()
