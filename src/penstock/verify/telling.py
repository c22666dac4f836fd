"""A counterexample in the words of people: a small history, and what it comes to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.verify.scenario import Scenario, Shows, Step, told

STEPS_MAX = 12
"""Steps that are told of a long history: as many of its beginning as of its end."""
INPUT_MAX = 200


def history(scenario: Scenario) -> list[str]:
    """Numbered lines, and last what is then seen."""
    given = msgspec.json.encode(scenario.input).decode()
    given = given if len(given) <= INPUT_MAX else given[: INPUT_MAX - 3] + "..."
    lines = [f"1. start with input {given}"]
    lines += [f"{number}. {told(step)}" for number, step in enumerate(scenario.steps, 2)]
    if len(lines) > STEPS_MAX:
        half = STEPS_MAX // 2
        left_out = len(lines) - 2 * half
        lines = [*lines[:half], f"   … {left_out} more …", *lines[-half:]]
    return [*lines, f"→ {comes_to(scenario)}"]


def comes_to(scenario: Scenario) -> str:
    """What is seen after the last step."""
    shows = scenario.shows
    parts: list[str] = []
    if shows.task and shows.passes:
        parts.append(f"`{shows.task}` has begun {shows.passes} passes and goes on")
    elif shows.task and (shows.task_status or shows.task_code):
        parts.append(_task(shows))
    if shows.status or shows.code:
        code = f" with `{shows.code}`" if shows.code else ""
        parts.append(f"the run is {shows.status or 'over'}{code}")
    if shows.event:
        parts.append(f"its history has {shows.event}")
    if shows.twin is not None:
        parts.append(_twin(scenario.steps, shows.twin, shows.differs))
    return ", ".join(parts) or "the run has come so far"


def _task(shows: Shows) -> str:
    if shows.task_status == "never":
        return f"`{shows.task}` did not run"
    code = f" with `{shows.task_code}`" if shows.task_code else ""
    return f"`{shows.task}` is {shows.task_status or 'over'}{code}"


def _twin(steps: Sequence[Step], twin: Sequence[Step], differs: str) -> str:
    """How the other order goes: by the numbers of the steps, where it has the same."""
    what = {"": "the outcome", "status": "the status", "result": "the result"}.get(
        differs, f"`{differs}`"
    )
    left = list(enumerate(steps, 2))
    order: list[int] = []
    for step in twin:
        found = next((each for each in left if each[1] == step), None)
        if found is None:
            return f"{what} is another if instead: {'; '.join(told(each) for each in twin)}"
        left.remove(found)
        order.append(found[0])
    return f"{what} is another in the order 1, {', '.join(map(str, order))}"
