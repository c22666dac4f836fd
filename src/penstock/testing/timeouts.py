"""Timeouts in a play of somebody's workflows: which fire though nothing is broken, and which are over before their retries are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.core.keys import static
from penstock.model import events as e
from penstock.model import intents as i
from penstock.model.codec import decode_event
from penstock.model.definition import Retry
from penstock.model.run import Run
from penstock.policy.retry import delay
from penstock.testing.findings import Finding
from penstock.testing.inspection import calls_in, intents_in, intents_of
from penstock.testing.plays import Play, activity_of

AGAIN_MAX = 5
RETRIES_MAX = 50
"""Who wants more attempts means: for as long as the timeout lets it."""


class Timeouts:
    """Of calm plays: how often each timeout fired, and how often it need not have."""

    def __init__(self) -> None:
        self.met: Counter[tuple[str, str]] = Counter()
        self.fired: Counter[tuple[str, str]] = Counter()


def count_timeouts(play: Play, into: Timeouts) -> None:
    """What fired though nothing was broken, and what did not."""
    for shadow in play.judge.shadows.values():
        run = shadow.flow.run
        events = [decode_event(each) for each in shadow.payloads]
        if _asks_again(events):
            continue  # until what a stub gives happens to be right: that says nothing of the time it takes
        armed: dict[str, str] = {}
        for event in events:
            for each in _intents_of(event, run):
                if isinstance(each, i.Sleep):
                    armed[each.key] = play.places.get((run.definition, each.key), "")
        for event in events:
            match event:
                case e.TaskCompleted():
                    into.met[run.definition, activity_of(event.key)] += 1
                case e.TaskFailed() | e.TaskRetried() if event.failure.code.endswith(
                    "timeout"
                ) and not _waits(play, run, event.key):
                    into.fired[run.definition, activity_of(event.key)] += 1
                case e.TimeoutReached():
                    into.fired[run.definition, ""] += 1
                case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                    into.met[run.definition, ""] += 1
                case e.TimerFired() if armed.get(event.key):
                    dropped = any(isinstance(each, i.Drop) for each in _intents_of(event, run))
                    (into.fired if dropped else into.met)[
                        run.definition, "@" + armed[event.key]
                    ] += 1
                case _:
                    pass
            for each in _intents_of(event, run):
                if isinstance(each, i.Drop) and armed.get(each.key):
                    into.met[run.definition, "@" + armed[each.key]] += 1


def _asks_again(events: list[e.Event]) -> bool:
    """One thing is done again and again."""
    calls = Counter((each.activity, bytes(each.arguments)) for each in calls_in(events).values())
    calls += Counter(
        (static(each.key), b"")
        for each in events
        if isinstance(each, e.TaskCompleted) and "[" in each.key
    )
    return any(times > AGAIN_MAX for times in calls.values())


def _waits(play: Play, run: Run, key: str) -> bool:
    """It waits for people: a timeout is an answer."""
    node = play.app.nodes.get((run.definition, static(key)))
    return key.startswith(("signal:", "update:")) or (
        node is not None and node[0].type in ("signal", "event", "form")
    )


def _intents_of(event: e.Event, run: Run) -> list[i.Intent]:
    return intents_of(event) if run.version == "function" else []


def short_timeouts(play: Play) -> Iterator[Finding]:
    """Timeouts that are over before the retry policy under them is."""
    seen: set[str] = set()
    for shadow in play.judge.shadows.values():
        run = shadow.flow.run
        kind = play.app.kinds.get(run.definition)
        if kind is None or kind.workflow is None:
            continue
        around = kind.workflow.plan.definition.timeouts
        whole = None if around is None else around.run
        for each in intents_in([decode_event(payload) for payload in shadow.payloads]):
            if isinstance(each, i.Call) and f"{run.definition} {each.activity}" not in seen:
                seen.add(f"{run.definition} {each.activity}")
                task = None if each.timeouts is None else each.timeouts.task
                retry = each.retry or play.app.declared(each.activity).retry
                place = play.place(run.definition, each.key)
                yield from _short(run.definition, each.activity, retry, task, whole, place)
    for (definition, path), (node, place) in play.app.nodes.items():
        if node.type not in ("activity", "http"):
            continue
        plan = play.app.kinds[definition].plan
        assert plan is not None
        around = plan.definition.timeouts
        task = node.timeouts.task or (None if around is None else around.task)
        activity = str(node.config.get("activity", ""))
        retry = node.retry or play.app.declared(activity).retry
        whole = None if around is None else around.run
        yield from _short(definition, static(path).rpartition("/")[2], retry, task, whole, place)


def _short(
    workflow: str,
    step: str,
    retry: Retry | None,
    task: float | None,
    whole: float | None,
    place: str,
) -> Iterator[Finding]:
    if retry is None or not 1 < retry.attempts <= RETRIES_MAX:
        return
    waits = [
        delay(n, first=retry.first, factor=retry.factor, maximum=retry.maximum, jitter=0, seed="") * (1 - retry.jitter)
        for n in range(1, retry.attempts)
    ]  # fmt: skip
    for limit, of in ((task, "its timeout"), (whole, "the timeout of the run")):
        if limit is not None and sum(waits) >= limit:
            reached = 1 + next(n for n in range(len(waits)) if sum(waits[: n + 1]) >= limit)
            yield Finding(
                "timeout-unmet", "error", workflow, step,
                f"`{step}` may be tried {retry.attempts} times, with at least {sum(waits):g} s between them, and {of} is "
                f"{limit:g} s: attempt {reached + 1} is never made",
                "a longer timeout, fewer attempts or shorter delays", place, told=False,
            )  # fmt: skip
            return


def unmet(
    play: Play | None, counted: Timeouts, places: dict[tuple[str, str], str]
) -> Iterator[Finding]:
    """Timeouts that fire (nearly) each time though nothing is broken."""
    del play
    for (workflow, step), fired in counted.fired.items():
        times = fired + counted.met[workflow, step]
        if fired < 0.9 * times:
            continue
        place = places.get((workflow, step), "")
        if step.startswith("@"):
            what, place = "the timeout in its code", step[1:]
        else:
            what = f"the timeout of `{step}`" if step else "its own timeout"
        yield Finding(
            "timeout-unmet", "error", workflow, step.rpartition("/")[2] if step.startswith("@") else step,
            f"`{workflow}`: {what} fired in {fired} of {times} cases though nothing was broken",
            "what is done within it takes longer; give it more time, or do less", place,
        )  # fmt: skip
