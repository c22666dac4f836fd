"""Laws over generated definitions and histories: what holds of every run, whatever happens to it.

`PENSTOCK_EXAMPLES=2000 pytest tests/laws` looks longer.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.invariants import broken
from penstock.core.keys import static
from penstock.core.owed import owed, reasons
from penstock.core.plan import Plan
from penstock.core.turn import Turn
from penstock.dsl.load import load_document
from penstock.errors import PenstockError
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model import events as e
from penstock.model.codec import decode_event, decode_run, encode_event, encode_run
from penstock.model.run import Run
from penstock.verify.structure import examine_document
from support.chance import CALM, Chance, Odds
from support.definitions import CHILD, WANTED, documents, features
from support.world import Case, World

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "120"))
LAW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
    derandomize="PENSTOCK_EXAMPLES" not in os.environ,
    phases=[Phase.explicit, Phase.generate] + [Phase.shrink] * ("PENSTOCK_SHRINK" in os.environ),
    database=None,
    print_blob=True,
)
CHILD_PLAN = Plan(load_document(CHILD).definition)


def plan(document: dict[str, Any]) -> Plan:
    return Plan(examine_document(document).accepted().definition)


def sound(case: Case, outcome: Turn) -> None:
    """After every turn."""
    assert broken(case.flow) == []
    run = case.run
    if not run.closed:
        assert reasons(run), case.statuses()
    elif run.status != "TERMINATED":
        for child in case.world.cases.values():
            if child.run.parent == run.id and not detached(case, child):
                assert child.run.closed, f"{run.id} has closed before {child.id}"
    failure = run.failure
    if failure is not None and failure.code == "deadlock":
        assert "mutex" in failure.message, failure  # every link of a sound definition is decided
    noted = {_mark(effect) for effect in case.done}
    for effect in owed(run):
        assert _mark(effect) in noted, (effect, case.types())


def detached(case: Case, child: Case) -> bool:
    path = static(child.run.parent_key or "")
    for plan in (
        case.plan,
        *case.plan.kin.values(),
    ):  # one that was migrated had other tasks before
        scope, _, id = path.rpartition("/")
        if scope in plan.scopes and id in plan.scopes[scope].nodes:
            return bool(plan.node(path).config.get("detached"))
    raise AssertionError(path)


def _mark(effect: f.Effect) -> tuple[Any, ...]:
    match effect:
        case f.Execute():
            return ("execute", effect.key, effect.attempt, effect.undo)
        case f.Abandon():
            return ("abandon", effect.key, effect.attempt)
        case f.StartChild():
            return ("child", effect.key)
        case f.CancelChild():
            return ("cancel", effect.key)
        case f.Deliver():
            return ("deliver", effect.id)
        case f.Admit():
            return ("admit",)
        case f.Answer():
            return ("answer", effect.id)


def generations(world: World) -> list[Case]:
    """Every run, with the generations before."""
    found: list[Case] = []
    for case in world.cases.values():
        each: Case | None = case
        while each is not None:
            found.append(each)
            each = each.earlier
    return found


def played(
    document: dict[str, Any],
    luck: int,
    odds: Odds | None = None,
    outcomes: int | None = None,
    **more: Any,
) -> World:
    if luck % 7 == 0:
        document = {**document, "limits": {"runs": 1}}
    world = World(plan(document), CHILD_PLAN)
    world.checks.append(sound)
    number = luck if outcomes is None else outcomes
    if odds is not CALM and number % 5 == 0:
        more["delay"] = 7.0
    if odds is not CALM and number % 3 == 0:
        more["deadline"] = world.now + 3.0
    world.start("flow", {"n": number % 7, "items": list(range(number % 4))}, **more)
    Chance(world, luck, outcomes=outcomes, odds=odds).play()
    return world


def folded(case: Case, events: list[e.Event], start: Run | None = None) -> Run:
    """The fold; what follows from an event must be the event that follows."""
    flow = Flow(start or Run(id=case.id), case.plan)
    for event in events:
        if flow.run.pending and not isinstance(event, e.UpdateAnswered):
            expected = flow.run.pending[0]
            assert type(expected) is type(event)
            assert bare(expected) == bare(event)
        evolve(flow, event)
    return flow.run


def bare(event: e.Event) -> e.Event:
    return msgspec.structs.replace(event, outcomes=[], faults={})


@LAW
@given(documents(), st.integers(0, 1 << 32), st.floats(0, 1))
def test_state_is_the_fold_of_events_and_a_snapshot_changes_nothing(
    document: dict[str, Any], luck: int, place: float
) -> None:
    world = played(document, luck)

    for case in generations(world):
        live = encode_run(case.run)
        assert encode_run(case.replayed().run) == live
        stored = [decode_event(payload) for payload in case.stored]
        assert [encode_event(event) for event in stored] == case.stored
        assert encode_run(folded(case, stored)) == live
        cut = int(place * len(stored))
        while cut < len(stored) and folded(case, stored[:cut]).pending:
            cut += 1  # snapshots are taken between turns
        half = encode_run(folded(case, stored[:cut]))
        assert encode_run(decode_run(half)) == half
        assert encode_run(folded(case, stored[cut:], decode_run(half))) == live


@LAW
@given(documents(), st.integers(0, 1 << 32))
def test_every_run_ends_or_waits_for_people_and_its_end_is_final(
    document: dict[str, Any], luck: int
) -> None:
    world = played(document, luck)

    for case in generations(world):
        run = case.run
        if case.earlier is not None:
            fact = next(event for event in case.events if isinstance(event, e.RunReset))
            assert case.stored[: fact.to] == case.earlier.stored[: fact.to]
            assert case.earlier.run.closed
        if not run.closed:
            kinds = {reason.kind for reason in reasons(run)}
            assert kinds & {"undo-failed", "child", "signal"}, (kinds, case.types())
            assert kinds <= {"undo-failed", "child", "signal", "timer"}, kinds
            if "undo-failed" not in kinds:
                stuck = [
                    other
                    for other in world.cases.values()
                    if not other.run.closed and other is not case
                ]
                assert "signal" in kinds or stuck, (kinds, case.types())
            continue
        finals = [event for event in case.events if isinstance(event, FINAL)]
        assert finals == case.events[-1:]
        before = case.digest()
        for command in commands_on(case):
            with contextlib.suppress(PenstockError):
                assert case.command(command) == []
            assert case.digest() == before


FINAL = (
    e.RunCompleted,
    e.RunFailed,
    e.RunCancelled,
    e.RunTimedOut,
    e.RunTerminated,
    e.RunContinued,
)


def commands_on(case: Case) -> list[c.Command]:
    now = case.world.now + 1e6
    key = next((event.key for event in case.of(e.TaskCompleted)), "t1")
    return [
        c.Wake(at=now), c.CancelRun(at=now), c.TerminateRun(at=now), c.PauseRun(at=now), c.ResumeRun(at=now),
        c.SendSignal(at=now, name="go"), c.CompleteTask(at=now, key=key, attempt=1, output=b"1"),
        c.LoseTask(at=now, key=key, attempt=1), c.SubmitForm(at=now, key=key, output=b"{}"),
        c.CloseChild(at=now, key=key, status="COMPLETED"), c.RecordDelivery(at=now, id="x"),
        c.StartTask(at=now, key=key, attempt=1), c.RecordChild(at=now, key=key, run="r", version="1"),
        c.StartRun(at=now, id=case.id, definition="flow", version="1", input=b"null"),
        c.HandleWait(at=now, key=key, act="skip"), c.ResolveUndo(at=now, key=key, act="accept"),
        c.ChangeAttributes(at=now, values={"a": 1}), c.DeferTask(at=now, key=key, attempt=1),
        c.Identified(at=now, id="late", digest="d", command=c.PauseRun(at=now)),
    ]  # fmt: skip


@LAW
@given(documents(), st.integers(0, 1 << 32))
def test_no_task_has_two_results_and_every_attempt_is_begun_once(
    document: dict[str, Any], luck: int
) -> None:
    world = played(document, luck)

    for case in world.cases.values():
        results = Counter(
            event.key
            for event in case.events
            if isinstance(
                event,
                e.TaskCompleted | e.TaskFailed | e.TimerFired | e.FormSubmitted | e.ChildClosed,
            )
        )
        for event in case.of(e.ChildClosed):
            # A child that was given up (its task timed out) may still tell how it ended.
            results[event.key] -= 1 if any(x.key == event.key for x in case.of(e.TaskFailed)) else 0
        assert all(count <= 1 for count in results.values()), results
        undone = Counter(
            event.key for event in case.events if isinstance(event, e.UndoCompleted | e.UndoFailed)
        )
        assert all(count <= 1 for count in undone.values()), undone
        resumed = bool(case.of(e.RunResumed))
        begun = Counter((x.key, x.attempt, x.undo) for x in case.done if isinstance(x, f.Execute))
        assert resumed or all(count == 1 for count in begun.values()), begun


def test_a_world_that_chance_did_not_bring_to_its_end_says_so() -> None:
    document = {"id": "flow", "tasks": {"a": {"do": "x"}, "b": {"do": "x", "after": ["a"]}}}
    for steps, cut in ((1, True), (400, False)):
        world = World(plan(document))
        world.start("flow", {})
        Chance(world, 1, odds=CALM).play(steps)
        assert world.cut is cut
        assert world.cases["run"].run.closed


@LAW
@given(
    documents(calm=True), st.integers(0, 1 << 32), st.integers(0, 1 << 32), st.integers(0, 1 << 32)
)
def test_where_nothing_races_every_order_of_completion_gives_the_same_outcome(
    document: dict[str, Any], outcomes: int, first: int, second: int
) -> None:
    worlds = [played(document, luck, CALM, outcomes) for luck in (first, second)]
    # How many steps it takes depends on the order: being terminated on the way is none of completion.
    assume(not any(world.cut for world in worlds))
    one, other = (world.cases["run"] for world in worlds)

    assert one.status == other.status, (one.failure, other.failure)
    if one.status == "COMPLETED":
        assert one.result == other.result
        assert one.data == other.data
        assert sorted(one.completed()) == sorted(other.completed())


@LAW
@given(documents(), st.integers(0, 1 << 32), st.integers(1, 12))
def test_after_a_crash_what_the_state_owes_is_enough_to_go_on(
    document: dict[str, Any], luck: int, when: int
) -> None:
    """Everything that was noted is forgotten again and again; only the state says what to do."""
    world = World(plan(document), CHILD_PLAN)
    world.checks.append(sound)
    world.start("flow", {"n": luck % 7, "items": [1]})
    chance = Chance(world, luck)
    while chance.steps < 400:
        chance.steps += 1
        if chance.steps % when == 0:
            for case in list(world.cases.values()):
                case.flow = case.replayed()
                case.todo.clear()
                for effect in owed(case.run):
                    case._note(effect)
                    if isinstance(effect, f.Abandon) and case.run.stopping is not None:
                        case.lose(effect.key)
        if not chance.step():
            break

    for case in world.cases.values():
        if not case.run.closed and chance.steps < 400:
            assert {r.kind for r in reasons(case.run)} & {"undo-failed", "child", "signal"}


def test_the_generators_reach_everything_often_enough(capsys: Any) -> None:
    counts: Counter[str] = Counter()
    total = 0

    @seed(7)
    @settings(
        max_examples=250,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(documents())
    def generate(document: dict[str, Any]) -> None:
        nonlocal total
        total += 1
        counts.update(features(document))
        plan(document)

    generate()

    with capsys.disabled():
        print(f"\n{total} generated definitions hold:")
        for name in WANTED:
            print(f"  {name:22} {counts[name]:4}  {100 * counts[name] / total:5.1f} %")
    assert total >= 200
    assert {name: counts[name] for name in WANTED if counts[name] < 0.05 * total} == {}
