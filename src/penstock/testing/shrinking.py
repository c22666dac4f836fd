"""A scenario that fails, made smaller: fewer faults, fewer runs, fewer nodes, and it still fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from penstock.testing.faults import Fault
from penstock.testing.scenario import Deed, Result, Scenario, Start, Timetable

T = TypeVar("T")

TRIES_MAX = 250


def kind_of(problem: str) -> str:
    """What a problem is, whichever run it is about."""
    text = re.sub(r"^run \S+( generation \d+ at \d+)?:?", "run", problem)
    return re.sub(r"`[^`]*`|\d+|0x[0-9a-f]+", "…", text)[:60]


class Shrinking:
    def __init__(self, play: Callable[[Scenario], Result], *, tries_max: int = TRIES_MAX) -> None:
        self._play = play
        self._left = tries_max
        self._kind = ""

    def shrink(self, scenario: Scenario, problem: str) -> Scenario:
        """The smallest that was found; the order in which things are left out is that of what they tell a reader."""
        self._kind = kind_of(problem)
        size = -1
        while size != (size := _size(scenario)) and self._left > 0:
            scenario = self._fewer(scenario, scenario.faults, _with_faults)
            scenario = self._fewer(scenario, scenario.starts, _with_starts)
            scenario = self._fewer(scenario, scenario.deeds, _with_deeds)
            scenario = self._fewer(scenario, scenario.schedules, _with_schedules)
            for nodes in range(1, scenario.nodes):
                smaller = replace(scenario, nodes=nodes)
                if self._fails(smaller):
                    scenario = smaller
                    break
        return scenario

    def _fewer(
        self,
        scenario: Scenario,
        parts: Sequence[T],
        make: Callable[[Scenario, Sequence[T]], Scenario],
    ) -> Scenario:
        """Leave out as many of the parts as may be: halves, then quarters, then one by one."""
        size = max(1, len(parts) // 2)
        while parts and self._left > 0:
            place = 0
            while place < len(parts):
                kept = [*parts[:place], *parts[place + size :]]
                smaller = make(scenario, kept)
                if self._fails(smaller):
                    scenario, parts = smaller, kept
                else:
                    place += size
            if size == 1:
                break
            size = max(1, size // 2)
        return scenario

    def _fails(self, scenario: Scenario) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        result = self._play(scenario)
        return any(kind_of(problem) == self._kind for problem in result.problems)


def _with_faults(scenario: Scenario, faults: Sequence[Fault]) -> Scenario:
    return replace(scenario, faults=faults)


def _with_deeds(scenario: Scenario, deeds: Sequence[Deed]) -> Scenario:
    return replace(scenario, deeds=deeds)


def _with_schedules(scenario: Scenario, schedules: Sequence[Timetable]) -> Scenario:
    return replace(scenario, schedules=schedules)


def _with_starts(scenario: Scenario, starts: Sequence[Start]) -> Scenario:
    ids = {start.id for start in starts}
    deeds = [deed for deed in scenario.deeds if deed.run in ids]
    return replace(scenario, starts=starts, deeds=deeds)


def _size(scenario: Scenario) -> int:
    parts = (scenario.faults, scenario.starts, scenario.deeds, scenario.schedules)
    return sum(map(len, parts)) + scenario.nodes
