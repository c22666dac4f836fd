"""A play told as a small timeline: what a reader must know of the run that a finding is about, and of what broke."""

from __future__ import annotations

from typing import Any

from penstock.model import events as e
from penstock.model.codec import decode_event
from penstock.testing.findings import Finding, Line
from penstock.testing.plays import Moment, Play
from penstock.testing.worlds import Effect

NONE = Finding("", "note", "", "", "", "")
"""No finding in particular."""
LINES_MAX = 24
ALL_MAX = 60
TEXT_MAX = 90


def told(play: Play, about: Finding | None) -> list[Line]:
    """The lines about the finding's run; without one, about all runs."""
    finding = about or NONE
    root = finding.run.partition("/")[0] or _first(play, finding.workflow)
    lines: list[Line] = []
    several = len({m.run.partition("/")[0] for m in play.story if m.run}) > 1
    for moment in play.story:
        if lines and lines[-1].text == finding.message:
            break
        if root and moment.run and moment.run.partition("/")[0] != root:
            continue
        line = _line(play, moment, named=not root and several)
        if line is not None and (not lines or lines[-1].text != line.text):
            lines.append(line)
    if finding.step != "nondeterminism":
        lines = _trimmed(lines)
    if lines and finding.code == "undo-missing":
        lines.append(
            Line(lines[-1].at, f"what `{finding.step}` did stays: nothing has undone it", "bad")
        )
    begin = lines[0].at if lines else 0.0
    lines = [Line(each.at - begin, each.text, each.kind) for each in lines]
    most = LINES_MAX if about is not None else ALL_MAX
    if len(lines) > most:
        half = most // 2
        left = len(lines) - 2 * half
        middle = Line(lines[half].at, f"… {left} more …")
        lines = [*lines[:half], middle, *lines[-half:]]
    return lines


def _first(play: Play, workflow: str) -> str:
    """The first run of a workflow, if the finding is about none in particular."""
    return next((each.id for each in play.scenario.starts if each.definition == workflow), "")


def _trimmed(lines: list[Line]) -> list[Line]:
    """Without what broke after the last thing that happened to the run."""
    while lines and lines[-1].kind == "fault":
        lines = lines[:-1]
    return lines


def _line(play: Play, moment: Moment, *, named: bool) -> Line | None:
    what = moment.what
    if isinstance(what, Effect):
        by = "an undo" if what.undo else f"attempt {what.attempt} of {what.key}"
        return Line(moment.at, f"the world: {what} by {by}", "effect")
    if isinstance(what, str):
        if what.startswith("!"):
            return Line(moment.at, what[1:], "bad")
        return Line(moment.at, what, "effect" if what.startswith("the world") else "fault")
    said = _event(what)
    if said is None:
        return None
    text, kind = said
    if isinstance(what, e.RunStarted):
        text = f"{moment.run} starts: {what.definition} {_short(what.input)}"
    elif "/" in moment.run or named:
        text = f"{moment.run}: {text}"
    return Line(moment.at, text, kind)


def _event(event: e.Event) -> tuple[str, str] | None:
    match event:
        case e.RunStarted():
            return "starts", ""
        case e.TaskCompleted():
            return f"{event.key} gives {_short(event.output)}", "good"
        case e.TaskRetried():
            return (
                f"attempt {event.attempt} of {event.key} fails: {_why(event)}",
                "bad",
            )
        case e.TaskFailed():
            if event.cancelled:
                return f"{event.key} is told to stop", ""
            return f"{event.key} fails: {_why(event)}", "bad"
        case e.TaskLost():
            return f"attempt {event.attempt} of {event.key} is lost with its node", "fault"
        case e.TimerFired():
            return f"{event.key}: its time is over", ""
        case e.SignalReceived():
            return f"somebody sends `{event.name}`: {_short(event.payload)}", ""
        case e.FormSubmitted():
            return f"somebody fills in {event.key}: {_short(event.output)}", ""
        case e.EventReceived():
            return f"an event on `{event.topic}` comes: {_short(event.payload)}", ""
        case e.ChildStarted():
            return f"{event.key} begins run {event.run}", ""
        case e.ChildClosed():
            return f"{event.key} ends {event.status}", ""
        case e.CancelRequested():
            return "somebody cancels the run", "fault"
        case e.TimeoutReached():
            return "the run's own timeout is over", "bad"
        case e.RunPaused():
            return "somebody pauses the run", "fault"
        case e.RunResumed():
            return "somebody resumes the run", ""
        case e.UndoCompleted():
            return f"{event.key} is undone", ""
        case e.UndoFailed():
            return f"{event.key} cannot be undone: {_cut(event.failure.message)}", "bad"
        case e.RunCompleted():
            return f"COMPLETED with {_short(event.output)}", "good"
        case e.RunFailed():
            return f"FAILED: {_why(event)}", "bad"
        case e.RunCancelled():
            return "CANCELLED", "bad"
        case e.RunTimedOut():
            return "TIMED_OUT", "bad"
        case e.RunContinued():
            return "goes on in another generation", ""
        case e.DataConflicted():
            return f"{event.second} writes `{event.name}` beside {event.first}", ""
        case _:
            return None


def _why(event: e.TaskFailed | e.TaskRetried | e.RunFailed) -> str:
    return _cut(event.failure.message or event.failure.type or event.failure.code)


def outcome(play: Play) -> dict[str, tuple[str, Any]]:
    """How each run that was started ended: its status, and its result or the code of its failure."""
    found: dict[str, tuple[str, Any]] = {}
    for start in play.scenario.starts:
        generation = play.judge.newest.get(start.id)
        if generation is None:
            continue
        shadow = play.judge.shadows[start.id, generation]
        last = decode_event(shadow.payloads[-1])
        run = shadow.flow.run
        if isinstance(last, e.RunCompleted):
            data = (
                {name: bytes(each.value) for name, each in run.data.items()} if run.data else None
            )
            found[start.id] = run.status, (bytes(last.output), data)
        else:
            failure = getattr(last, "failure", None)
            found[start.id] = run.status, None if failure is None else failure.code
    return found


def _short(raw: Any) -> str:
    return _cut(bytes(raw).decode())


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
