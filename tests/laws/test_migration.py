"""Laws of migration (SPEC 2.7): a run that was moved is sound wherever it stood, replays alike, and ends as a run of the
new version would have from there; one that is refused is as it was.

`PENSTOCK_EXAMPLES=2000 pytest tests/laws/test_migration.py` looks longer.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.core.evolve import evolve
from penstock.core.flow import Flow
from penstock.core.keys import static
from penstock.core.plan import Plan
from penstock.errors import DefinitionInvalid, Rejected
from penstock.model.codec import decode_event, decode_run, encode_run
from penstock.model.migration import OBSTACLES
from penstock.model.run import OPEN_TASK, PENDING, WAITING, Run
from penstock.verify.change import change
from penstock.verify.structure import examine_document
from support.chance import CALM, Chance
from support.definitions import documents
from support.edits import CALM_KINDS, Edit, edits
from support.world import Case, World, encode

from .test_runs import CHILD_PLAN, EXAMPLES, LAW, sound

SEEN: Counter[str] = Counter()
"""What became of the examples; told at the end."""


def plans(document: dict[str, Any], edit: Edit) -> tuple[Plan, Plan]:
    kin: dict[str, Plan] = {}
    made: list[Plan] = []
    for number, each in enumerate((document, edit.document), 1):
        try:
            plan = Plan(examine_document(each).accepted().definition)
        except DefinitionInvalid:
            assume(False)
        plan.join(kin, str(number))
        made.append(plan)
    assume(made[0].definition != made[1].definition)
    return made[0], made[1]


@st.composite
def changes(draw: Any, calm: bool = False) -> tuple[dict[str, Any], Edit]:
    document = draw(documents(calm=calm))
    return document, draw(edits(document))


def moved(case: Case, edit: Edit) -> bool:
    """Whether it was; if not, nothing has changed."""
    before, stored = case.digest(), len(case.stored)
    try:
        events = case.migrate("2", edit.mapping)
    except Rejected as refused:
        assert case.digest() == before
        assert len(case.stored) == stored
        code, obstacles = refused.code, refused.facts.get("obstacles", ())
    else:
        assert [event.type for event in events] == ["run_migrated"]
        assert case.run.version == "2"
        return True
    assert code in ("migration-unsafe", "run-stopping", "run-rewinding", "run-closed"), code
    for obstacle in obstacles:
        assert obstacle.why in OBSTACLES
        SEEN[f"refused {obstacle.why}"] += 1
    return False


@LAW
@given(changes(), st.integers(0, 1 << 32), st.integers(0, 25), st.floats(0, 1))
def test_a_moved_run_is_sound_and_replays_alike(
    change: tuple[dict[str, Any], Edit], luck: int, steps: int, place: float
) -> None:
    document, edit = change
    old, _ = plans(document, edit)
    world = World(old, CHILD_PLAN)
    world.checks.append(sound)
    case = world.start("flow", {"n": luck % 7, "items": list(range(luck % 4))})
    chance = Chance(world, luck)
    for _ in range(steps):
        chance.steps += 1
        if not chance.step():
            break
    case = world.cases["run"]
    assume(not case.run.closed)
    SEEN["wild moved" if moved(case, edit) else "wild stayed"] += 1
    chance.play()

    for each in world.cases.values():
        live = encode_run(each.run)
        assert encode_run(each.replayed().run) == live
        events = [decode_event(payload) for payload in each.stored]
        cut = int(place * len(events))
        flow = Flow(Run(id=each.id), each.plan)
        for event in events[:cut]:
            evolve(flow, event)
        if not flow.run.pending:
            again = Flow(decode_run(encode_run(flow.run)), flow.plan)
            for event in events[cut:]:
                evolve(again, event)
            assert encode_run(again.run) == live


class Twin(Chance):
    """Gives a task what it is given under its old name, and notes what activities were called with."""

    def __init__(self, world: World, seed: int, outcomes: int, edit: Edit) -> None:
        super().__init__(world, seed, outcomes=outcomes, odds=CALM)
        self.edit = edit
        self.calls: dict[str, Any] = {}

    def called(self, name: str) -> str:
        return re.sub(r"\w+", lambda word: self.edit.old.get(word[0], word[0]), name)

    def output(self, case: Case, key: str) -> object:
        draw = self.draw(self.called(case.id), self.called(key), "output")
        return "x" * 3000 if draw < 0.05 else int(draw * 1000) % 10

    def attempt(self, case: Case, key: str) -> None:
        undo = "undo " if key in case.run.undoing else ""
        arguments = None if undo else case.arguments(key)
        self.calls[f"{undo}{self.called(case.id)}: {self.called(key)}"] = arguments
        case.complete(key, self.output(case, key))


def where(case: Case, twin: Twin, left: set[str]) -> dict[str, str]:
    """What has ended, and how, by the names of old; but for what is gone and what was passed."""
    return {
        twin.called(key): state.status
        for key, state in case.tasks()
        if state.status not in OPEN_TASK | {PENDING} and key not in left
    }


def standing(case: Case, twin: Twin) -> set[str]:
    """What is open, by the names of old."""
    return {twin.called(key) for key, state in case.tasks() if state.status in OPEN_TASK}


def nowhere(case: Case) -> bool:
    """A body is behind it that came to no end; a task appended there gives it one, and it would not have failed."""
    return any(state.failure and state.failure.code == "no-end" for _, state in case.tasks())


def finished(case: Case, twin: Twin) -> tuple[str, ...]:
    """How the keys of passes and items begin that were over, whatever the new version would have done in them."""
    found: list[str] = []
    for key, state in case.tasks():
        name = twin.called(key)
        if state.status not in OPEN_TASK | {PENDING}:
            found.append(f"{name}[")
        begun = state.number if state.map is None else state.map.next
        for number in range(begun + 1):
            if f"{key}[{number}]" not in case.run.scopes and number < begun + (state.map is None):
                found.append(f"{name}[{number}]/")
    return tuple(found)


def task_of(call: str) -> str:
    """The task of the run itself that a call belongs to, by itself or by a child."""
    run, _, key = call.removeprefix("undo ").partition(": ")
    return run.removeprefix("run/") if run != "run" else key


@LAW
@given(changes(calm=True), st.integers(0, 1 << 32), st.integers(0, 1 << 32), st.integers(0, 20))
def test_a_moved_run_ends_as_one_of_the_new_version_would_have(
    change: tuple[dict[str, Any], Edit], luck: int, outcomes: int, steps: int
) -> None:
    document, edit = change
    old, new = plans(document, edit)
    given_input = {"n": outcomes % 7, "items": list(range(outcomes % 4))}

    world = World(old, CHILD_PLAN)
    world.checks.append(sound)
    case = world.start("flow", given_input)
    twin = Twin(world, luck, outcomes, edit)
    for _ in range(steps):
        if not twin.step():
            break
    assume(not case.run.closed)
    begun = dict(twin.calls)
    if not moved(case, edit):
        SEEN["calm stayed"] += 1
        return
    no_end = nowhere(case)
    passed = set(case.events[-1].passed)  # type: ignore[union-attr]
    past, over, stood = where(case, twin, passed), finished(case, twin), standing(case, twin)
    twin.play()

    other = World(new, CHILD_PLAN)
    there = other.start("flow", given_input)
    like = Twin(other, luck, outcomes, edit)
    seen: dict[str, str] = {}
    opened: set[str] = set()
    while True:
        seen = {**where(there, like, passed), **seen}
        opened |= standing(there, like)
        if not like.step() or like.steps > 400:
            break
        like.steps += 1
    if world.cut or other.cut or like.steps > 400:
        SEEN["calm cut"] += 1
        return
    other_way = any(status == "SKIPPED" and key in opened for key, status in past.items())
    # What leads to a task that has begun counts no more: the link that it took, or the condition of a pass that it is in, may
    # be gone. With this input a run of the new version then skips where it stands, or never comes there.
    reached = opened if there.status == "COMPLETED" else stood
    other_way = other_way or any(seen.get(key) == "SKIPPED" or key not in reached for key in stood)
    if there.failure is not None and there.failure.key:
        failed = like.called(there.failure.key)  # at something that the moved run had behind it
        other_way = other_way or failed in past or failed.startswith(over or (" ",))
    if other_way or any(seen.get(key, status) != status for key, status in past.items()):
        # It came another way: where the moved run stands, no run of the new version would have stood with this input.
        ended_now = no_end and "append" in edit.kinds
        assert ended_now or set(edit.kinds) - set(CALM_KINDS), (edit.kinds, past, seen)
        SEEN["calm other past"] += 1
        return
    SEEN["calm compared"] += 1
    for kind in edit.kinds:
        SEEN[f"calm compared {kind}"] += 1
    assert case.status == there.status, (case.failure, there.failure)
    skipped = {twin.called(key) for key in passed}
    gone = over or (" ",)

    def counts(call: str) -> bool:
        key = task_of(call)
        if call.removeprefix("undo ") in begun and "undo" in edit.kinds:
            return False  # it was done when there was no way back, or another one
        return call not in begun and key not in skipped and not key.startswith(gone)

    later = {call: value for call, value in twin.calls.items() if counts(call)}
    wanted = {call: value for call, value in like.calls.items() if counts(call)}
    assert later == wanted
    before = {
        call
        for call in like.calls
        if not counts(call) and not call.startswith("undo ") and task_of(call) not in skipped
    }
    if case.status == "COMPLETED" and before == set(
        begun
    ):  # else what was passed gave something else
        SEEN["calm compared result"] += 1
        assert msgspec.json.decode(encode(case.result)) == msgspec.json.decode(encode(there.result))


def stands(case: Case) -> tuple[str, ...]:
    found: set[str] = set()
    for path, scope in case.run.scopes.items():
        for id, state in scope.tasks.items():
            node = case.plan.scopes[scope.plan].nodes[id]
            frame = (node.body or node.loop) is not None and state.status != WAITING
            if state.status in OPEN_TASK and not frame:
                found.add(static(f"{path}/{id}" if path else id))
    return tuple(sorted(found))


@settings(LAW, max_examples=max(1, EXAMPLES // 4))
@given(changes(calm=True), st.integers(0, 1 << 32), st.integers(0, 15))
def test_the_table_and_the_command_agree(
    made_change: tuple[dict[str, Any], Edit], luck: int, steps: int
) -> None:
    document, edit = made_change
    old, new = plans(document, edit)
    found = change(old.definition, new.definition, edit.mapping, budget=150)
    world = World(old, CHILD_PLAN)
    case = world.start("flow", {"n": luck % 7, "items": list(range(luck % 3))})
    chance = Chance(world, luck, odds=CALM)
    for _ in range(steps):
        if case.run.closed or not chance.step():
            break
    assume(not case.run.closed and case.run.stopping is None)
    rows = {row.open: row.verdict for row in found.rows}
    verdict = rows.get(stands(case))
    can = moved(case, edit)
    SEEN[f"table {verdict} {'whole' if found.complete else 'in part'}"] += 1
    if found.complete:
        assert verdict == "some can" or verdict == ("can" if can else "cannot")


def test_the_laws_have_seen_enough() -> None:
    """After the others: each was held against enough runs that moved."""
    print(*(f"{name}: {count}" for name, count in sorted(SEEN.items())), sep="\n")
    for law, name in (
        ("wild", "wild moved"),
        ("calm", "calm compared"),
        ("table", "table can whole"),
    ):
        held = sum(count for each, count in SEEN.items() if each.startswith(law))
        assert SEEN[name] * 10 >= held, (name, SEEN)
