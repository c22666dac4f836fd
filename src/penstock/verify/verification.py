"""Verification: all that is proved, refuted or unknown of a definition before it runs (SPEC 3).

Structure first; what the other rules would say of a definition whose structure is wrong is not worth reading. Each
rule is one file with one function that notes findings and proofs in a Subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from penstock.core.plan import Plan
from penstock.core.vocabulary import AddedType
from penstock.dsl.finding import Finding, Path, in_order
from penstock.dsl.load import Loaded
from penstock.model.definition import Definition
from penstock.verify.rehearsal import rehearse
from penstock.verify.samples import resolve
from penstock.verify.scenario import Scenario
from penstock.verify.scopes import Notes
from penstock.verify.solver import Purse, Solver
from penstock.verify.structure import check
from penstock.verify.wording import reworded, worded

if TYPE_CHECKING:
    from penstock.verify.driving import Driver
    from penstock.verify.knowledge import Knowledge

Verdict = Literal["proved", "refuted", "unknown"]


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of one rule, in a line; `rule` is its section of the spec."""

    rule: str
    verdict: Verdict
    message: str


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a verification may cost. Counted, not timed: the same definition has the same verdict anywhere."""

    states: int = 200_000
    """States that all explorations of one verification may visit together."""
    fragment: int = 20_000
    """States of one fragment."""
    tasks: int = 2_500
    """Tasks of a definition whose behaviour is explored."""
    solver: int = 2_000_000
    """What the solver may spend on one question, in its own units."""
    questions: int = 20_000
    """Questions that each rule may ask the solver."""
    purse: int = 30_000_000
    """What all questions of one verification may cost together, in the solver's units."""
    purse_each: int = 300_000
    """So much more for each task."""
    purse_max: int = 120_000_000
    """Of any number of tasks."""
    work: int = 60_000_000
    """Steps of all runs that are played, times tasks."""


QUICK = Budget(
    states=20_000, fragment=2_000, tasks=500, solver=500_000, questions=150,
    purse=1_500_000, purse_each=10_000, work=6_000_000,
)  # fmt: skip
"""Of a registration: what it leaves unknown, `penstock verify` has more time for."""


LINKS_EACH = 10
"""Links that may be looked at, for each task."""
CONDITIONS_PART = 20
"""Of the tasks: conditions of one, each of which is asked where those before it do not hold."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What is known of an activity from its annotations; types as JSON Schema."""

    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By name; True where anything fits."""
    required: frozenset[str] = frozenset()
    open_ended: bool = False
    """It takes any name."""
    result: Any = None
    """None: not known."""


def signature_of_added(added: AddedType) -> Signature | None:
    """What its inputs are, as those of an activity."""
    if added.inputs is None:
        return None
    found = resolve(added.inputs, added.inputs)
    if not isinstance(found, Mapping):
        return None
    rules = cast("Mapping[str, Any]", found)
    defs = cast("Mapping[str, Any]", added.inputs).get("$defs")
    parameters: dict[str, Any] = {}
    for name, schema in cast("Mapping[str, Any]", rules.get("properties") or {}).items():
        parameters[name] = (
            {**schema, "$defs": defs} if defs and isinstance(schema, dict) else schema
        )
    required = frozenset(cast("Iterable[str]", rules.get("required") or ()))
    open_ended = rules.get("additionalProperties", True) is not False
    return Signature(parameters, required, open_ended, added.output)


@dataclass(slots=True)
class Subject:
    """What a rule looks at, and where it notes what it finds."""

    loaded: Loaded
    plan: Plan
    activities: Mapping[str, Signature] | None = None
    """None: nothing is known of activities, and any may exist."""
    budget: Budget = field(default_factory=Budget)
    notes: Notes = field(init=False)
    proofs: list[Proof] = field(default_factory=list[Proof])
    driver: Driver | None = None
    """Makes runs go where they are wanted; there once behaviour has been looked at."""
    knowledge: Knowledge | None = None
    """What holds at each task; ask `knowledge_of`."""
    purse: Purse = field(init=False)

    def __post_init__(self) -> None:
        self.notes = Notes(self.loaded)
        tasks = sum(len(scope.nodes) for scope in self.plan.scopes.values())
        budget = self.budget
        self.purse = Purse(min(budget.purse + budget.purse_each * tasks, budget.purse_max))

    def solver(self) -> Solver:
        """One for a rule; all of them pay from one purse."""
        budget = self.budget
        return Solver(units=budget.solver, questions=budget.questions, purse=self.purse)

    @property
    def definition(self) -> Definition:
        return self.loaded.definition

    def too_large(self) -> str:
        """Why it is not looked at task by task; empty if it is."""
        nodes = [node for scope in self.plan.scopes.values() for node in scope.nodes.values()]
        links = sum(len(node.outs) for node in nodes)
        sets = sum(
            len(doing.set) for node in nodes for doing in (*node.on_complete, *node.on_error)
        )
        given = sum(len(node.inputs) for node in nodes) + len(self.plan.outputs or ())
        asked = max((sum(out.edge.guard is not None for out in node.outs) for node in nodes), default=0)  # fmt: skip
        most = self.budget.tasks
        counts = (
            (len(nodes), "tasks", most),
            (links, "links", most * LINKS_EACH),
            (sets, "writes", most),
            (given, "inputs and outputs", most * LINKS_EACH),
            (asked, "conditions at one task", most // CONDITIONS_PART),
        )
        for count, what, limit in counts:
            if count > limit:
                return f"it has {count} {what}, more than {limit}"
        return ""

    def prove(self, rule: str, message: str) -> None:
        """It holds."""
        self.proofs.append(Proof(rule, "proved", message))

    def refute(
        self,
        rule: str,
        code: str,
        path: Path,
        message: str,
        scenario: Scenario,
        hint: str | None = None,
        *,
        key: bool = False,
        related: Iterable[tuple[Path, str]] = (),
    ) -> bool:
        """It does not hold, as the scenario shows: an error if the rehearsal agrees, else unknown."""
        rehearsal = rehearse(self.plan, scenario)
        if not rehearsal.shown:
            reason = f"the counterexample found does not reproduce ({rehearsal.why})"
            self.doubt(
                rule, code, path, f"perhaps {message}: {reason}", hint, key=key, related=related
            )
            return False
        self.notes.add(code, path, message, hint, key=key, counterexample=scenario, related=related)
        self.proofs.append(Proof(rule, "refuted", message))
        return True

    def doubt(
        self,
        rule: str,
        code: str,
        path: Path,
        message: str,
        hint: str | None = None,
        *,
        key: bool = False,
        related: Iterable[tuple[Path, str]] = (),
    ) -> None:
        """It is not known whether it holds; the message says what stands in the way."""
        self.notes.add(code, path, message, hint, key=key, level="warning", related=related)
        self.proofs.append(Proof(rule, "unknown", message))

    def remark(
        self,
        code: str,
        path: Path,
        message: str,
        hint: str | None = None,
        *,
        key: bool = False,
        related: Iterable[tuple[Path, str]] = (),
    ) -> None:
        """Worth knowing; no rule is broken."""
        self.notes.add(code, path, message, hint, key=key, level="note", related=related)


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found, in the order of the text, and what was proved, in the order of the rules."""

    findings: list[Finding]
    proofs: list[Proof]

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]

    def verdict(self, rule: str) -> Verdict | None:
        """Of one rule, by its section: the worst that was said; None if it was not looked at."""
        said = {proof.verdict for proof in self.proofs if proof.rule == rule}
        for verdict in ("refuted", "unknown", "proved"):
            if verdict in said:
                return verdict
        return None


PAIRWISE = {"check_races": "3.5", "check_dataflow": "3.6", "check_compensation": "3.7"}
"""Rules that compare tasks with one another, and so are not for very many of them."""


def rules() -> tuple[Callable[[Subject], None], ...]:
    """One for each section of SPEC 3 after structure, in order; imported here, as they know this module."""
    from penstock.verify.behaviour import check_behaviour
    from penstock.verify.branches import check_branches
    from penstock.verify.compensation import check_compensation
    from penstock.verify.dataflow import check_dataflow
    from penstock.verify.races import check_races
    from penstock.verify.termination import check_termination

    return (
        check_behaviour,
        check_branches,
        check_termination,
        check_races,
        check_dataflow,
        check_compensation,
    )


def verify(
    loaded: Loaded,
    *,
    activities: Mapping[str, Signature] | None = None,
    budget: Budget | None = None,
    partial: bool = False,
    structure: Sequence[Finding] | None = None,
) -> Verification:
    """Everything that can be said; `partial` if some links could not be read (see `structure.check`).

    `structure` is what that has said, if it was asked before.
    """
    if structure is None:
        structure = check(loaded, activities=activities, partial=partial)
    errors = [finding for finding in (*loaded.findings, *structure) if finding.level == "error"]
    if errors or partial:
        refuted = Proof("3.1", "refuted", f"{len(errors)} mistakes; the other rules wait for them")
        return Verification(in_order([*loaded.findings, *structure]), [refuted])
    plan = Plan(loaded.definition, loaded.vocabulary)
    subject = Subject(loaded, plan, activities, budget or Budget())
    subject.prove("3.1", "the structure is right")
    large = subject.too_large()
    for rule in rules():
        section = PAIRWISE.get(rule.__name__)
        if section is not None and large:
            subject.proofs.append(Proof(section, "unknown", f"not looked at: {large}"))
        else:
            rule(subject)
    said = worded(loaded.definition)
    found = [reworded(finding, said) for finding in subject.notes.findings]
    proofs = [Proof(proof.rule, proof.verdict, said(proof.message)) for proof in subject.proofs]
    findings = in_order([*loaded.findings, *structure, *found])
    return Verification(findings, sorted(proofs, key=lambda proof: proof.rule))
