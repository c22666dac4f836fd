"""What the state of an open run wants of the world, derived at any time: after a crash nothing else is needed.

A law holds it against the effects that were noted while the events were applied. `reasons` says the same for people:
every open run waits for a named thing (SPEC 4.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from penstock.model.effects import (
    Abandon,
    Admit,
    Advance,
    CancelChild,
    Deliver,
    Effect,
    Execute,
    OpenNext,
    StartChild,
)
from penstock.model.run import REF_SHIFT, RETRYING, RUNNING, SCHEDULED, WAITING, Ref, Run


def owed(run: Run) -> list[Effect]:
    """Attempts, children and deliveries that are open, whether or not somebody is at them already."""
    found: list[Effect] = []
    if run.closed:
        # A terminated run does not wait for its children, and hears of them no more: telling one twice does no harm.
        found.extend(CancelChild(key, child) for key, child in run.leaving.items())
        return found
    if run.held and run.begin is None and run.stopping is None:
        found.append(Admit())
    for path, scope in run.scopes.items():
        for id, state in scope.tasks.items():
            key = f"{path}/{id}" if path else id
            if state.attempt and state.status in (SCHEDULED, RUNNING, RETRYING):
                stopping = run.stopping is not None or state.told
                if state.deferred and not stopping:
                    continue  # nobody here is to do anything for it
                due = state.due if state.status == RETRYING else None
                found.append(
                    Abandon(key, state.attempt) if stopping else Execute(key, state.attempt, due)
                )
            elif state.child is not None and state.status == WAITING:
                cancelling = run.stopping is not None and state.started
                found.append(CancelChild(key, state.child) if cancelling else StartChild(key))
    for key, undoing in run.undoing.items():
        found.append(Execute(key, undoing.attempt, undoing.due, undo=True))
    found.extend(Abandon(key, ending.attempt) for key, ending in run.ending.items())
    found.extend(CancelChild(key, child) for key, child in run.leaving.items())
    found.extend(Deliver(id) for id in run.outgoing)
    if run.heard and run.stopping is None:
        found.append(Advance())
    if next_owed(run):
        found.append(OpenNext())
    return found


def next_owed(run: Run) -> bool:
    """A workflow function goes on in another generation, and nothing of this one is waited for."""
    if run.closed or run.next_input is None or run.stopping is not None or run.outgoing:
        return False
    return not any(scope.open for scope in run.scopes.values())


def references(run: Run) -> set[int]:
    """Values that the next turn will very likely ask for: the items of open maps."""
    wanted: set[int] = set()
    for scope in run.scopes.values():
        for state in scope.tasks.values():
            if state.map is not None and not state.map.done:
                held = state.map
                wanted.add(held.items)
                wanted.update(held.extra[max(0, held.next - (held.total - len(held.extra))) :])
        if isinstance(scope.item, int):
            wanted.add(scope.item)
    wanted.discard(0)
    return wanted


def every_reference(run: Run) -> set[int]:
    """All values that the state refers to and does not hold."""
    found = references(run)
    gone = [scope for ending in run.ending.values() for scope in ending.scopes.values()]
    for scope in (*run.scopes.values(), *gone):
        for state in scope.tasks.values():
            for each in (state, *(state.last or {}).values()):
                if each.output is None:
                    leaves(each.ref, found)
    if run.input is None:
        found.add(1 << REF_SHIFT)
    found.update(each.ref for each in run.heard if each.output is None)
    found.discard(0)
    return found


def leaves(ref: Ref, found: set[int]) -> None:
    """The references that a tree of them is made of."""
    if isinstance(ref, int):
        found.add(ref)
    elif isinstance(ref, dict):
        for each in cast("dict[str, Ref]", ref).values():
            leaves(each, found)
    elif isinstance(ref, list):
        for each in cast("list[Ref]", ref):
            leaves(each, found)


@dataclass(frozen=True)
class Reason:
    """One thing that an open run waits for."""

    kind: str
    """`attempt`, `retry`, `timer`, `signal`, `event`, `form`, `child`, `undo`, `undo-failed`, `mutex`, `start`, `quota`, `pause`, `delivery`,
    `token`."""
    key: str
    message: str
    due: float | None = None


def reasons(run: Run) -> list[Reason]:
    """Why the run is where it is; empty only for a closed one."""
    found: list[Reason] = []
    if run.closed:
        return found
    if run.paused and not run.rewinding:
        found.append(Reason("pause", "", "the run is paused; resume it to go on"))
    if run.begin is not None:
        found.append(Reason("start", "", "the start is delayed", run.begin))
    elif run.held:
        found.append(
            Reason("quota", "", f"as many runs of `{run.definition}` are open as its limit says")
        )
    names = {key: name for name, keys in run.waiters.items() for key in keys}
    for path, scope in run.scopes.items():
        for id, state in scope.tasks.items():
            key = f"{path}/{id}" if path else id
            if state.deferred:
                message = f"attempt {state.attempt} of `{key}` is to be completed from outside"
                found.append(Reason("token", key, message, state.due))
            elif state.status in (SCHEDULED, RUNNING) and state.attempt:
                found.append(
                    Reason("attempt", key, f"attempt {state.attempt} of `{key}` is to end")
                )
            elif state.status == RETRYING:
                why = (
                    ""
                    if state.failure is None
                    else f" after {state.failure.code}: {state.failure.text}"
                )
                found.append(
                    Reason(
                        "retry", key, f"attempt {state.attempt} of `{key}` is due{why}", state.due
                    )
                )
            elif state.status == WAITING:
                if state.child is not None:
                    found.append(Reason("child", key, f"run {state.child} is to end"))
                elif state.form is not None:
                    who = state.form.claimed_by or state.form.assignee or "somebody"
                    found.append(
                        Reason("form", key, f"{who} is to fill in `{key}`", state.form.due)
                    )
                elif key in names:
                    found.append(
                        Reason("signal", key, f"signal `{names[key]}` is to come", state.due)
                    )
                elif key in run.listening:
                    message = f"an event on `{run.listening[key]}` is to come"
                    found.append(Reason("event", key, message, state.due))
                elif state.due is not None:
                    found.append(Reason("timer", key, f"timer `{key}` is to fire", state.due))
                else:
                    found.append(Reason("mutex", key, f"`{key}` waits for its mutex"))
            elif state.map is not None and key in names:
                found.append(
                    Reason(
                        "signal", key, f"signal `{names[key]}` is to add items or close the list"
                    )
                )
    if run.heard and run.stopping is None:
        message = f"the code of workflow `{run.definition}` is to go on"
        found.append(Reason("code", "", message))
    if run.next_input is not None and run.stopping is None:
        found.append(Reason("generation", "", "its next generation is to be opened"))
    for key, undoing in run.undoing.items():
        found.append(
            Reason("undo", key, f"attempt {undoing.attempt} to undo `{key}` is to end", undoing.due)
        )
    for failed in run.undo_failed:
        message = "" if failed.failure is None else f": {failed.failure.text}"
        found.append(
            Reason(
                "undo-failed",
                failed.entry.key,
                f"`{failed.entry.key}` could not be undone{message}; an operator must decide",
            )
        )
    found.extend(
        Reason("attempt", key, f"attempt {ending.attempt} of `{key}` was told to stop and is to end", run.grace)
        for key, ending in run.ending.items()
    )  # fmt: skip
    found.extend(
        Reason("child", key, f"run {child} was told to stop and is to end")
        for key, child in run.leaving.items()
    )
    found.extend(
        Reason("delivery", out.key, f"signal `{out.name}` is on its way to run {out.run}")
        for out in run.outgoing.values()
    )
    return found
