"""What a play of somebody's workflows shows: each mistake as a finding, with its step and its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from penstock.core.keys import static
from penstock.core.owed import reasons
from penstock.model import events as e
from penstock.model import intents as i
from penstock.model.codec import decode_event
from penstock.model.failure import Failure
from penstock.model.run import Run
from penstock.testing.findings import Finding
from penstock.testing.plays import Play, activity_of, own_code
from penstock.testing.visitors import UNSERVED
from penstock.verify.compensation import effects

BAD = frozenset({"FAILED", "CANCELLED", "TIMED_OUT"})
MISTAKES = frozenset(
    {
        *(
            "TypeError",
            "AttributeError",
            "NameError",
            "UnboundLocalError",
            "KeyError",
            "IndexError",
        ),
        *(
            "ZeroDivisionError",
            "RecursionError",
            "NotImplementedError",
            "Unreadable",
            "InvalidStateError",
        ),
    }
)
"""Exceptions that nobody raises on purpose."""
WRONG = frozenset(
    {
        *(
            "expression-failed",
            "no-branch",
            "no-end",
            "join-starved",
            "deadlock",
            "never-awaited",
            "nondeterminism",
        ),
        *(
            "unknown-activity",
            "arguments-invalid",
            "workflow-invalid",
            "activity-invalid",
            "value-unreadable",
            "output-invalid",
            "nondeterministic",
        ),
    }
)
"""Codes of failures that no activity has."""
_DOES_NOT_END = re.compile(r"^run (\S+) does not end: (.*)$", re.DOTALL)
_AT = re.compile(r", at (\S+:\d+) in ")
_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def inspected(play: Play) -> list[Finding]:
    """All that one play shows, beside what order and timeouts say."""
    found = list(play.found)
    found += _problems(play)
    for (id, generation), shadow in play.judge.shadows.items():
        run = shadow.flow.run
        if play.judge.newest[id] != generation:
            continue
        events = [decode_event(each) for each in shadow.payloads]
        found += _errors(play, run, events)
        if run.status in BAD:
            found += _left(play, run, events)
    kept: dict[str, Finding] = {}
    for each in found:
        before = kept.get(each.ident)
        if before is None or (before.level == "note" and each.level == "error"):
            kept[each.ident] = each
    return list(kept.values())


# --- what the judge says ---------------------------------------------------------------------------------------


def _problems(play: Play) -> Iterator[Finding]:
    for problem in play.judge.problems[:3]:
        stuck = _DOES_NOT_END.match(problem)
        if stuck is not None:
            yield from _stuck(play, stuck[1], stuck[2])
        elif problem.startswith("run.unfit"):
            yield _unfit(play, problem)
        elif problem.startswith("not over after"):
            play.counts["given up: too long"] += 1
        else:
            yield Finding(
                "engine-broken", "error", "", "", problem.splitlines()[0][:300],
                "this is a bug in Penstock: please report it with the seed and the workflow",
            )  # fmt: skip


def _stuck(play: Play, id: str, why: str) -> Iterator[Finding]:
    run = play.judge.run(id)
    missing = UNSERVED.search(why)
    if missing is not None:
        key = next((each.key for each in reasons(run)), "")
        yield Finding(
            "workflow-error", "error", run.definition, missing[1],
            f"`{run.definition}` calls `{missing[1]}`, and there is no such activity",
            "is it written otherwise, or elsewhere? `@does(NAME)` in a World says what it does", play.place(run.definition, key), id,
        )  # fmt: skip
        return
    if "an event on" in why:
        play.counts["given up: an event that nobody publishes"] += 1
        return
    kind = play.app.kinds.get(run.definition)
    yield Finding(
        "run-stuck", "note" if id in play.guessed else "error", run.definition, "", f"a run of `{run.definition}` does not end: {why}",
        "give the wait a timeout, or let somebody end it", "" if kind is None else kind.place, id,
    )  # fmt: skip


def _unfit(play: Play, problem: str) -> Finding:
    """Code that does something else when its history is told again."""
    words = problem.split()
    id = words[1] if len(words) > 1 else ""
    name = play.judge.run(id).definition if id in play.judge.newest else ""
    kind = play.app.kinds.get(name)
    text = problem.splitlines()[0].partition(f"of run {id}: ")[2] or problem.splitlines()[0]
    place = _AT.search(text)
    return Finding(
        "workflow-error", "error", name, "nondeterminism",
        f"`{name}` does something else when it is told its history again: {text.strip()[:300]}",
        "clock, chance and ids come from the Context: `ctx.now()`, `ctx.random`, `ctx.uuid()`",
        place[1] if place else "" if kind is None else kind.place, id,
    )  # fmt: skip


# --- errors in the workflow ------------------------------------------------------------------------------------


def _errors(play: Play, run: Run, events: list[e.Event]) -> Iterator[Finding]:
    steps: set[tuple[str, str]] = set()
    for event in events:
        failure = getattr(event, "failure", None)
        if isinstance(event, e.TaskFailed) and failure is not None:
            steps.add((failure.type, failure.message))
        if isinstance(event, e.RunFailed) and failure is not None:
            if (failure.type, failure.message) not in steps:
                yield from _failed(play, run, failure)
        elif (
            isinstance(event, e.ChildClosed) and failure is not None and failure.code == "not-found"
        ):
            yield Finding(
                "workflow-error", "error", run.definition, activity_of(event.key),
                f"`{run.definition}` starts a workflow that is not there: {failure.message}",
                "name the file that has it, too", play.place(run.definition, event.key), run.id,
            )  # fmt: skip
        elif isinstance(event, e.TaskFailed | e.TaskRetried) and failure is not None:
            yield from _step_failed(play, run, event.key, failure)


def _failed(play: Play, run: Run, failure: Failure) -> Iterator[Finding]:
    code = failure.code if failure.code in WRONG else ""
    own = failure.type in MISTAKES and bool(failure.trace)
    if not own and not code:
        return
    kind = play.app.kinds.get(run.definition)
    guess = play.guessed.get(run.id, "")
    if not guess and kind is not None and run.parent is None and play.app.loose(kind):
        guess = "its input"
    lines = [each for each in _LINE.findall(failure.trace) if own_code(each[0])]
    place = f"{lines[-1][0]}:{lines[-1][1]}" if lines else ""
    said = _AT.search(failure.message) if code in ("nondeterminism", "activity-invalid") else None
    place = said[1] if said else place  # the guard knows it better: that of the caller
    what = f"{failure.type}: {failure.message}" if own else f"{failure.code}: {failure.message}"
    hint = "a value of the annotated type leads here: handle it, or narrow the type (Literal, Enum, a World's answers)"
    if guess:
        hint = f"{guess} was a guess, as it has no type: annotate it, give it a schema, or let a World say what it is"
    elif not own:
        hint = str(
            msgspec.to_builtins(failure.details or {}).get("hint") or f"penstock explain {code}"
        )
    yield Finding(
        "workflow-error", "note" if guess else "error", run.definition, failure.type if own else failure.code,
        f"`{run.definition}` fails by itself: {what}"[:400], hint,
        place or ("" if kind is None else kind.place), run.id,
    )  # fmt: skip


def _step_failed(play: Play, run: Run, key: str, failure: Failure) -> Iterator[Finding]:
    """An activity's own code under `simulate=True`, a model's method, or arguments that do not fit."""
    name = activity_of(key)
    if failure.code in ("arguments-invalid", "unknown-activity"):
        yield Finding(
            "workflow-error", "error", run.definition, name, f"`{name}`: {failure.message}"[:400],
            "call it with what it takes", play.place(run.definition, key), run.id,
        )  # fmt: skip
    elif failure.type in MISTAKES:
        lines = [each for each in _LINE.findall(failure.trace) if own_code(each[0])]
        what = f"raises {failure.type}: {failure.message}"
        hint = "its own code runs here, as it is marked `simulate=True` or stands in a World"
        if failure.type == "NotImplementedError" and not failure.message:
            what = "asks its event loop for what a simulation does not have: a network, a thread or a process"
            hint = "leave `simulate=True` out, or let a World say what it does"
        yield Finding(
            "workflow-error", "error", run.definition, name, f"the code of `{name}` {what}"[:400], hint,
            f"{lines[-1][0]}:{lines[-1][1]}" if lines else play.place(run.definition, key), run.id,
        )  # fmt: skip


# --- what is left behind ---------------------------------------------------------------------------------------


def _left(play: Play, run: Run, events: list[e.Event]) -> Iterator[Finding]:
    """Effects of a run that ended badly and that nothing took back."""
    if run.parent is None:
        yield from _left_in_world(play, run)
    modelled = {each.key for each in play.standing.there if each.run == run.id}
    if play.app.model is not None:
        modelled |= {
            m.what.key
            for m in play.story
            if m.run == run.id and hasattr(m.what, "by") and hasattr(m.what, "lasts")
        }
    wanted = calls_in(events)
    done = Counter(
        wanted[event.key].activity
        for event in events
        if isinstance(event, e.TaskCompleted) and event.key in wanted
    )
    pushed = any(isinstance(each, i.Push) for each in intents_in(events))
    tidying = _tidying(events)
    for event in events:
        if not isinstance(event, e.TaskCompleted) or event.key in modelled or event.key in tidying:
            continue
        step = wanted.get(event.key)
        node = play.app.nodes.get((run.definition, static(event.key)))
        if step is not None:
            activity, undo = step.activity, step.undo
        elif node is not None and node[0].type in ("activity", "http") and effects(node[0]):
            activity = str(node[0].config.get("activity", "http"))
            undo = "" if node[0].compensate is None else node[0].compensate.activity
        else:
            continue
        if undo or activity in play.app.model_does:
            continue
        level = _level(play, run, activity)
        back = play.app.ways_back.get(activity, set[str]())
        if level is None or pushed or any(done[each] for each in back):
            continue
        yield _undo_missing(play, run, event.key, activity, level, back)


def _undo_missing(
    play: Play, run: Run, key: str, activity: str, level: str, back: set[str]
) -> Finding:
    name = min(back) if back else ""
    function = run.version == "function"
    give = f"undo={name or '…'}" if function else f"compensate: {name or '…'}"
    hint = f"give the step `{give}`"
    if level == "note":
        hint += "; `@activity(effects=False)` says that it changes nothing"
    return Finding(
        "undo-missing", "error" if level == "error" else "note", run.definition, activity,
        f"`{run.definition}` ends {run.status} and leaves what `{activity}` did", hint, play.place(run.definition, key), run.id,
    )  # fmt: skip


def _level(play: Play, run: Run, activity: str) -> str | None:
    """How sure it is that the activity leaves something behind."""
    effects_of = play.app.declared(activity).effects
    if effects_of is False:
        return None
    if effects_of or activity in play.app.ways_back:
        return "error"
    undoes = any(activity in each for each in play.app.ways_back.values())
    return "note" if run.definition in play.app.undoing and not undoes else None


def _left_in_world(play: Play, run: Run) -> Iterator[Finding]:
    """By the application's own model of the world."""
    undo_failed = any(
        m.run == run.id and isinstance(m.what, e.UndoFailed | e.UndoResolved) for m in play.story
    )
    for effect in play.standing.there:
        if effect.run.partition("/")[0] != run.id or effect.lasts or effect.undo or undo_failed:
            continue
        owner = play.judge.run(effect.run)
        if owner.parent is None and effect.run != run.id:
            continue  # it went its own way
        events = [
            decode_event(each) for each in play.judge.shadows[effect.run, owner.generation].payloads
        ]
        completed = any(
            isinstance(each, e.TaskCompleted) and each.key == effect.key for each in events
        )
        name = activity_of(effect.key)
        hint = "undo it: `undo=`, `compensate`, or `ctx.undo(…)` before the call"
        if not completed:
            hint = (
                "it was done, and the engine never heard so: register the way back before (`ctx.undo(…)` before the call, "
                "`compensate: {when: attempted}`)"
            )
        yield Finding(
            "undo-missing", "error", owner.definition, name,
            f"`{owner.definition}` ends {run.status} and `{effect.what}` of `{name}` stays in the world"
            + ("" if completed else ", by an attempt whose result was never heard"),
            hint, play.place(owner.definition, effect.key), effect.run,
        )  # fmt: skip


def intents_in(events: list[e.Event]) -> Iterator[i.Intent]:
    if not events or not isinstance(events[0], e.RunStarted) or events[0].version != "function":
        return
    for event in events:
        yield from intents_of(event)


def _tidying(events: list[e.Event]) -> set[str]:
    """Steps that a function wanted when it was failing already: they tidy up."""
    turn = max(
        (n for n, each in enumerate(events) if isinstance(each, e.TaskFailed | e.CancelRequested | e.TimeoutReached)),
        default=len(events),
    )  # fmt: skip
    return {
        each.key for each in intents_in([events[0], *events[turn:]]) if isinstance(each, i.Call)
    } - {each.key for each in intents_in(events[:turn]) if isinstance(each, i.Call)}


def calls_in(events: list[e.Event]) -> dict[str, i.Call]:
    return {each.key: each for each in intents_in(events) if isinstance(each, i.Call)}


def intents_of(event: e.Event) -> list[i.Intent]:
    """What a function wanted when the event had come."""
    found: list[i.Intent] = []
    for raw in event.outcomes:
        if bytes(raw).startswith(b"["):  # and not the value of an expression
            with suppress(msgspec.ValidationError):
                found += i.DECODER.decode(raw)
    return found
