"""The verifier agrees with the engine (SPEC 3.2): what is proved holds under any execution, what is refuted reproduces.

`make verify-law` looks at thousands of definitions, `PENSTOCK_EXAMPLES=n` at n of each kind.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.core.plan import Plan
from penstock.dsl.load import Loaded, load_document
from penstock.verify.behaviour import Behaviour, cases_of, check_behaviour
from penstock.verify.driving import Driver
from penstock.verify.fragments import Exploration
from penstock.verify.rehearsal import rehearse
from penstock.verify.structure import examine_document
from penstock.verify.verification import Subject
from support.chance import Chance, Odds
from support.definitions import CHILD, WANTED, documents, features
from support.graphs import graphs
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
FAULTS = frozenset({"join-starved", "no-branch", "deadlock", "no-end"})
RUNS = 6
"""Executions of each definition."""


class Tally:
    """What the definitions had in them, and what was said of them."""

    def __init__(self) -> None:
        self.features: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()

    def show(self, what: str) -> None:
        print(f"\n{what}: {dict(sorted(self.verdicts.items()))}")
        print("  " + ", ".join(f"{name} {self.features[name]}" for name in WANTED))


def loaded(document: dict[str, Any]) -> Loaded | None:
    examined = examine_document(document)
    return None if examined.errors else examined.loaded


def verdict(subject: Subject) -> str:
    said = {proof.verdict for proof in subject.proofs}
    return next(each for each in ("refuted", "unknown", "proved") if each in said)


def faults(case: Case) -> set[str]:
    """Codes of the failures that no definition should come to, in a run and in its tasks."""
    found = [event.failure for event in case.events if getattr(event, "failure", None) is not None]
    found += [] if case.run.failure is None else [case.run.failure]
    return {f.code for f in found if f.code in FAULTS and "of its items" not in f.message}


def agrees(document: dict[str, Any], tally: Tally, inputs: list[Any]) -> None:
    made = loaded(document)
    if made is None:
        tally.verdicts["invalid"] += 1
        return
    tally.features.update(features(document))
    plan = Plan(made.definition)
    subject = Subject(made, plan)
    check_behaviour(subject)
    said = verdict(subject)
    tally.verdicts[said] += 1
    codes = {finding.code for finding in subject.notes.findings}
    for finding in subject.notes.findings:
        if finding.level == "error":
            shown = rehearse(plan, finding.counterexample)
            assert shown.shown, (finding, shown.why)
    for seed, input in enumerate(inputs):
        world = World(plan, CHILD_PLAN)
        case = world.start("flow", input)
        Chance(world, seed * 7919 + 1, odds=ODDS).play()
        missed = faults(case) - codes
        assert not missed or "too-many-states" in codes, (missed, case.run.failure, said)
        if said == "proved" and case.status == "COMPLETED":
            open_at_end = [key for key, state in case.tasks() if state.status == "PENDING"]
            assert open_at_end == [], open_at_end


def test_what_is_said_of_wild_definitions_holds_on_the_core() -> None:
    tally = Tally()

    @LAW
    @given(documents())
    def law(document: dict[str, Any]) -> None:
        agrees(document, tally, [{"n": n, "items": [1, 2]} for n in range(RUNS)])

    law()
    tally.show("wild definitions")


def test_what_is_said_of_sensible_definitions_holds_on_the_core() -> None:
    tally = Tally()

    @LAW
    @given(st.booleans().flatmap(lambda shared: graphs(shared=shared)), st.integers(0, 10**6))
    def law(document: dict[str, Any], seed: int) -> None:
        names = document["inputSchema"]["required"]
        inputs = [
            {name: (seed >> (place + n)) % 7 for place, name in enumerate(names)}
            for n in range(RUNS)
        ]
        agrees(document, tally, inputs)

    law()
    tally.show("sensible definitions")
    assert tally.verdicts["proved"] > EXAMPLES / 6
    assert tally.verdicts["refuted"] > EXAMPLES / 20


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
