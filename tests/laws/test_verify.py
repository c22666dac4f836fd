"""The verifier agrees with the engine (SPEC 3): what is proved holds under any execution, what is refuted reproduces.

`make verify-law` looks at thousands of definitions, `PENSTOCK_EXAMPLES=n` at n of each kind.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.core import links
from penstock.core.flow import Flow
from penstock.core.keys import static
from penstock.core.plan import Node, Plan
from penstock.dsl.load import Loaded, load_document
from penstock.model import events as e
from penstock.model.run import Scope, TaskState
from penstock.verify.behaviour import Behaviour, cases_of, check_behaviour
from penstock.verify.driving import Driver, has_run
from penstock.verify.fragments import Exploration
from penstock.verify.rehearsal import rehearse
from penstock.verify.scenario import Scenario
from penstock.verify.structure import examine_document
from penstock.verify.verification import Subject, Verification, verify
from support.chance import Chance, Odds
from support.definitions import CHILD, WANTED, documents, features
from support.endless import endless
from support.graphs import graphs
from support.typed import Fitting, typed
from support.world import Case, World

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "60"))
LAW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="PENSTOCK_EXAMPLES" not in os.environ,
    phases=[Phase.explicit, Phase.generate] + [Phase.shrink] * ("PENSTOCK_SHRINK" in os.environ),
    database=None,
    print_blob=True,
)
CHILD_PLAN = Plan(load_document(CHILD).definition)
ODDS = Odds(
    fail=0.25, crash=0.0, pause=0.0, cancel=0.0, terminate=0.0, nonsense=0.0, hand=0.0, defer=0.0, reset=0.0
)  # fmt: skip
STEADY = Odds(
    fail=0.0, crash=0.0, pause=0.0, cancel=0.0, terminate=0.0, nonsense=0.0, hand=0.0, defer=0.0, reset=0.0
)  # fmt: skip
FAULTS = frozenset({"join-starved", "no-branch", "deadlock", "no-end"})
BROKEN = frozenset({"expression-failed", "input-missing"})
RULES = ("3.2", "3.3", "3.4", "3.5", "3.6", "3.7")
VERDICTS = ("proved", "refuted", "unknown")
RUNS = 6
"""Executions of each definition."""


class Tally:
    """What the definitions had in them, what was said of them, and what came of their runs."""

    def __init__(self) -> None:
        self.features: Counter[str] = Counter()
        self.said: Counter[tuple[str, str]] = Counter()
        self.runs: Counter[str] = Counter()

    def note(self, found: Verification) -> None:
        for rule in RULES:
            self.said[rule, found.verdict(rule) or "not looked at"] += 1

    def of(self, rule: str, verdict: str) -> int:
        return self.said[rule, verdict]

    def show(self, what: str) -> None:
        print(f"\n{what}: " + ", ".join(f"{n} {name}" for name, n in sorted(self.runs.items())))
        for rule in RULES:
            counts = (f"{verdict} {self.of(rule, verdict)}" for verdict in VERDICTS)
            print(f"  {rule} " + ", ".join(counts))
        print("  " + ", ".join(f"{name} {self.features[name]}" for name in WANTED))


class Watch:
    """Every failure that a task or a run ever had, as code and message; and which tasks were seen at work."""

    def __init__(self) -> None:
        self.failures: set[tuple[str, str]] = set()
        self.worked: set[str] = set()

    def __call__(self, case: Case, outcome: Any) -> None:
        if case.run.definition != "flow":
            return
        found = [case.run.failure]
        for path, scope in case.run.scopes.items():
            if scope.failure is not None:
                found.append(scope.failure)  # what fails after that is given up
            else:
                # Of a task that failed by itself its error link took care; what comes from inside it did not.
                found += [
                    state.failure
                    for id, state in scope.tasks.items()
                    if state.failure is not None
                    and (
                        state.failure.code in BROKEN or state.failure.key != case.flow.key(path, id)
                    )
                ]
        for event in () if outcome is None else outcome.events:
            found += [getattr(event, "failure", None), *event.faults.values()]
            if isinstance(event, e.TaskCompleted | e.TaskFailed | e.TaskRetried):
                self.worked.add(static(event.key))
        self.failures |= {(f.code, f.message) for f in found if f is not None}

    @property
    def codes(self) -> set[str]:
        return {code for code, _ in self.failures}

    @property
    def faults(self) -> set[str]:
        """Codes of what no definition should come to."""
        return {c for c, m in self.failures if c in FAULTS and "of its items" not in m}


def loaded(document: dict[str, Any]) -> Loaded | None:
    examined = examine_document(document)
    return None if examined.errors else examined.loaded


def verified(
    document: dict[str, Any], tally: Tally, *, whole: bool = True
) -> tuple[Plan, Verification] | None:
    """All rules, or behaviour alone, which takes a tenth; each refutation is played once more."""
    made = loaded(document)
    if made is None:
        tally.runs["invalid"] += 1
        return None
    tally.features.update(features(document))
    plan = Plan(made.definition)
    if whole:
        found = verify(made)
    else:
        subject = Subject(made, plan)
        check_behaviour(subject)
        found = Verification(subject.notes.findings, subject.proofs)
    tally.note(found)
    for finding in found.errors:
        assert isinstance(finding.counterexample, Scenario), finding
        shown = rehearse(plan, finding.counterexample)
        assert shown.shown, (finding, shown.why)
    return plan, found


def agrees(
    document: dict[str, Any],
    tally: Tally,
    inputs: Sequence[Any],
    chance: Callable[..., Chance] = Chance,
    *,
    whole: bool = True,
) -> None:
    said = verified(document, tally, whole=whole)
    if said is None:
        return
    plan, found = said
    codes = {finding.code for finding in found.findings if finding.level != "note"}
    never = {
        match[1]
        for finding in found.errors
        if finding.code == "never-runs"
        and (match := re.match(r"`([^`]*)` can never", finding.message))
    }
    for seed, input in enumerate(inputs):
        world, watch = World(plan, CHILD_PLAN), Watch()
        world.checks.append(watch)
        case = world.start("flow", input)
        chance(world, seed * 7919 + 1, odds=ODDS).play()
        tally.runs["cut" if world.cut else case.status.lower()] += 1
        # 3.2
        missed = watch.faults - codes
        assert not missed or "too-many-states" in codes, (missed, watch.failures)
        assert not never & watch.worked, never & watch.worked
        if case.status == "COMPLETED":
            assert not any(finding.code == "no-path" for finding in found.errors)
        if found.verdict("3.2") == "proved":
            undoing = any(each.run.undo_failed for each in world.cases.values())
            assert world.cut or case.run.closed or undoing, case.waiting
            if case.status == "COMPLETED":
                behind = [key for key, state in case.tasks() if state.status == "PENDING"]
                assert behind == [], behind
        # 3.3 and 3.6, if what tasks return fits
        if found.verdict("3.3") == "proved":
            assert "no-branch" not in watch.codes, watch.failures
            if found.verdict("3.6") == "proved":
                assert not watch.codes & BROKEN, watch.failures


def test_what_is_said_of_wild_definitions_holds_on_the_core() -> None:
    tally = Tally()

    @LAW
    @given(documents())
    def law(document: dict[str, Any]) -> None:
        agrees(document, tally, [{"n": n, "items": [1, 2]} for n in range(RUNS)], whole=False)

    law()
    tally.show("wild definitions")
    assert tally.of("3.2", "unknown") < EXAMPLES / 6


def fields(document: dict[str, Any], seed: int) -> list[dict[str, int]]:
    names = document["inputSchema"]["required"]
    return [
        {name: (seed >> (place + n)) % 7 for place, name in enumerate(names)} for n in range(RUNS)
    ]


def test_what_is_said_of_sensible_definitions_holds_on_the_core() -> None:
    tally = Tally()

    @LAW
    @given(st.booleans().flatmap(lambda shared: graphs(shared=shared)), st.integers(0, 10**6))
    def law(document: dict[str, Any], seed: int) -> None:
        agrees(document, tally, fields(document, seed))

    law()
    tally.show("sensible definitions")
    assert tally.of("3.2", "proved") > EXAMPLES / 6
    assert tally.of("3.2", "refuted") > EXAMPLES / 20
    assert tally.of("3.2", "unknown") < EXAMPLES / 4


def test_what_is_said_of_typed_definitions_holds_on_the_core() -> None:
    tally = Tally()

    @LAW
    @given(typed(), st.integers(0, 10**6))
    def law(document: dict[str, Any], seed: int) -> None:
        agrees(document, tally, fields(document, seed), Fitting)

    law()
    tally.show("typed definitions")
    for rule in ("3.3", "3.6"):
        assert tally.of(rule, "proved") > EXAMPLES / 20
        assert tally.of(rule, "refuted") > EXAMPLES / 20


def test_what_is_proved_to_end_does() -> None:
    tally = Tally()

    @LAW
    @given(endless(), st.integers(0, 6))
    def law(document: dict[str, Any], start: int) -> None:
        said = verified(document, tally)
        if said is None:
            return
        plan, found = said
        world = World(plan, CHILD_PLAN)
        case = world.start("flow", {"n": start})
        Fitting(world, start, odds=STEADY).play()
        tally.runs["cut" if world.cut else case.status.lower()] += 1
        assert found.verdict("3.4") != "proved" or not world.cut

    law()
    tally.show("definitions with cycles")
    assert min(tally.of("3.4", each) for each in VERDICTS) > EXAMPLES / 30


def explored(made: Loaded, *, whole: bool) -> tuple[set[tuple[str, str, str]], set[str], bool]:
    """Faults, and tasks that can run, as the exploration sees them; whether it saw all."""
    subject = Subject(made, Plan(made.definition))
    exploration = Exploration(
        subject.plan, cases_of(subject), states=30_000, each=30_000, whole=whole
    )
    behaviour = Behaviour(subject, exploration, Driver(exploration))
    bad = {
        (fragment.scope.path, code, id)
        for fragment in exploration.fragments
        if behaviour.reached(fragment)
        for code, id in fragment.explored.bad
    }
    runs = {
        node.path
        for scope in subject.plan.scopes.values()
        for node in scope.nodes.values()
        if behaviour.runs(scope, node.id)
    }
    over = any(fragment.explored.over for fragment in exploration.fragments)
    return bad, runs, over


def test_in_fragments_the_same_is_found_as_in_the_whole() -> None:
    """Where no two conditions read the same; otherwise at least as much, as what is known is lost between fragments."""
    parts: Counter[str] = Counter()

    @LAW
    @given(st.booleans(), st.data())
    def law(shared: bool, data: st.DataObject) -> None:
        made = loaded(data.draw(graphs(shared=shared)))
        if made is None:
            return
        bad, runs, over = explored(made, whole=False)
        bad_whole, runs_whole, over_whole = explored(made, whole=True)
        if over or over_whole:
            parts["over budget"] += 1
            return
        parts["shared" if shared else "apart"] += 1
        assert bad_whole <= bad
        assert runs_whole <= runs
        if not shared:
            assert bad == bad_whole
            assert runs == runs_whole

    law()
    print(f"\n{dict(parts)}")


def begun(plan: Plan, inputs: Sequence[Any], chance: Callable[..., Chance] = Chance) -> set[str]:
    """Tasks that begin in some run, be it only to be given up in the same turn."""
    found: set[str] = set()

    class Noting(Flow):
        __slots__ = ()

        def fire(self, path: str, scope: Scope, node: Node, state: TaskState) -> None:  # type: ignore[override]
            links.fire(self, path, scope, node, state)
            if self.plan is plan and has_run(state):
                found.add(static(self.key(path, node.id)))

    for seed, input in enumerate(inputs):
        world = World(plan, CHILD_PLAN, kind=Noting)
        world.start("flow", input)
        chance(world, seed * 7919 + 1, odds=ODDS).play()
    return found


def test_what_is_held_impossible_never_begins() -> None:
    """Also in a run that fails in that very step, of which no event tells."""

    @LAW
    @given(st.booleans().flatmap(lambda shared: graphs(shared=shared)), st.integers(0, 10**6))
    def sensible(document: dict[str, Any], seed: int) -> None:
        holds(document, fields(document, seed))

    @LAW
    @given(documents())
    def wild(document: dict[str, Any]) -> None:
        holds(document, [{"n": n, "items": [1, 2][: n % 3]} for n in range(RUNS)])

    def holds(document: dict[str, Any], inputs: Sequence[Any]) -> None:
        made = loaded(document)
        if made is not None:
            seen = begun(Plan(made.definition), inputs)
            for whole in (False, True):
                assert seen <= explored(made, whole=whole)[1], whole

    sensible()
    wild()


def test_wild_definitions_in_fragments_lose_nothing() -> None:
    @LAW
    @given(documents())
    def law(document: dict[str, Any]) -> None:
        made = loaded(document)
        if made is None:
            return
        bad, runs, over = explored(made, whole=False)
        bad_whole, runs_whole, over_whole = explored(made, whole=True)
        assert over or over_whole or (bad_whole <= bad and runs_whole <= runs)

    law()
