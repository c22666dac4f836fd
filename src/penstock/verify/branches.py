"""Branches: a choice is complete, and disjoint or knowingly ordered; no condition fails (SPEC 3.3).

For each gateway, and each task with conditions on its links, the solver is asked over the types that `inputSchema`,
`outputSchema` and annotations give, together with what must have held on every way there: can all branches be false, can
one fail, can two hold, can one never hold? What it finds is played on the core before it is reported.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from penstock.core.plan import Edge, Node, ScopePlan
from penstock.dsl.finding import Finding, Path
from penstock.verify.driving import Goal, begun, failing
from penstock.verify.knowledge import Known, knowledge_of
from penstock.verify.large import HINT, ask_failing, reckons, shown, within
from penstock.verify.models import silent
from penstock.verify.playing import Player
from penstock.verify.rehearsal import Stage
from penstock.verify.scenario import Scenario, Shows
from penstock.verify.scopes import place
from penstock.verify.solver import Answer, Ask, Impossible, Solution, Unknown
from penstock.verify.tables import written
from penstock.verify.verification import CONDITIONS_PART, Proof, Subject

RULE = "3.3"
ROAMS = 120
"""Runs that are played to come to certain data."""
PAIRS_MAX = 60
"""Pairs of branches of one gateway that are compared."""

HINTS = {
    "no-branch": "give the gateway a `default`, or a branch for this case",
    "branch-fails": "ask `has(…)` first, or let the schema require what is read",
    "branch-untyped": "say in a schema what is there",
    "branch-overlap": "make the conditions exclude one another, or say `ordered: true` in the gateway's config",
    "branch-dead": "correct its condition, or leave the branch out",
}


def check_branches(subject: Subject) -> None:
    Branches(subject).check()


class Branches:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._knowledge = knowledge_of(subject)
        self._solver = subject.solver()
        self._player = Player(subject.plan, self._knowledge)
        self._sound = True
        self._choices = 0
        self._large_count = 0
        """Of conditions that fail where numbers leave 64 bits."""
        self._untyped: dict[str, list[tuple[Path, str]]] = {}

    def check(self) -> None:
        for scope in self._subject.plan.scopes.values():
            for node in scope.nodes.values():
                outs = [out.edge for out in node.outs if out.edge.on != "error"]
                if node.gateway in ("exclusive", "inclusive", "parallel"):
                    self._choices += 1
                    self._gateway(scope, node, outs)
                elif node.gateway is None and node.loop is None and any(e.guard for e in outs):
                    self._choices += 1
                    self._links(scope, node, outs)
                if node.loop is None and not silent(node):
                    self._after_failure(scope, node)
        self._say_untyped()
        if self._sound:
            message = "every choice has a branch for every case, and no condition can fail"
            self._subject.prove(
                RULE,
                f"{message} ({self._choices} choice{'' if self._choices == 1 else 's'}){within(self._large_count)}",
            )

    # --- one choice --------------------------------------------------------------------------------------------

    def _gateway(self, scope: ScopePlan, node: Node, outs: list[Edge]) -> None:
        known = self._knowledge.at(scope, node)
        default = node.config.get("default")
        exclusive = node.gateway == "exclusive"
        if node.gateway != "parallel":
            branches = [edge for edge in outs if edge.target != default]
        else:
            branches = outs
        most = self._subject.budget.tasks // CONDITIONS_PART
        if sum(edge.guard is not None for edge in branches) > most:
            self._sound = False
            message = f"the branches of `{node.id}` are not looked at: they have more than {most} conditions"
            hint = "choose in two steps, or by a table: a map from the value to what is wanted"
            self._subject.doubt(RULE, "too-many-states", place(scope, node.id), message, hint, key=True)  # fmt: skip
            return
        earlier: list[Ask] = []
        for edge in written(self._subject.plan, branches):
            if edge.guard is None:
                if exclusive:
                    break
                continue
            self._one(scope, node, edge, known, earlier if exclusive else [])
            if exclusive:
                earlier.append(self._knowledge.ask(edge.guard, False, known))
        if exclusive and not node.config.get("ordered"):
            self._overlaps(scope, node, branches, known)
        if all(edge.guard is not None for edge in branches) and branches:
            self._complete(scope, node, branches, known, default)

    def _links(self, scope: ScopePlan, node: Node, outs: list[Edge]) -> None:
        known = self._knowledge.at(scope, node)
        for edge in outs:
            if edge.guard is not None:
                self._one(scope, node, edge, known, [])

    def _after_failure(self, scope: ScopePlan, node: Node) -> None:
        """Conditions that are asked when the task has failed: one that fails keeps it from being handled."""
        for out in node.outs:
            edge = out.edge
            if edge.on != "success" and edge.guard is not None:
                known = self._knowledge.failed(scope, node)
                self._fails(scope, node, edge, known, [], _link(scope, node, edge), failed=True)

    def _one(
        self, scope: ScopePlan, node: Node, edge: Edge, known: Known, earlier: list[Ask]
    ) -> None:
        """Can this condition fail, and can it hold?"""
        assert edge.guard is not None
        where = _link(scope, node, edge)
        self._fails(scope, node, edge, known, earlier, where)
        if isinstance(self._solve([*known.asks, *earlier, self._knowledge.ask(edge.guard, True, known)], known), Impossible):  # fmt: skip
            self._sound = False
            message = f"the branch from `{node.id}` to `{edge.target}` is never taken: `{edge.guard.text}` can't hold there"
            if self._said("never-runs", place(scope, edge.target), level="error"):
                self._subject.proofs.append(_refuted(message))
                return
            self._subject.doubt(RULE, "branch-dead", where, message, HINTS["branch-dead"])

    def _fails(
        self,
        scope: ScopePlan,
        node: Node,
        edge: Edge,
        known: Known,
        earlier: list[Ask],
        where: Path,
        *,
        failed: bool = False,
    ) -> None:
        assert edge.guard is not None
        asks = [*known.asks, *earlier, self._knowledge.ask(edge.guard, "error", known)]
        answer = ask_failing(partial(self._solver.solve, asks), known.types)
        message = f"the condition `{edge.guard.text}` of the link from `{node.id}` to `{edge.target}` can fail"
        match answer:
            case Impossible():
                goal = self._failing(scope, node, edge, failed=failed)
                self._large(asks, known, where, edge, node, goal)
            case Unknown():
                self._unknown("branch-fails", where, message, answer)
            case Solution():
                vague = [
                    r for r in edge.guard.expression.reads if not self._knowledge.typed(r, known)
                ]
                if vague:
                    self._sound = False
                    for read in vague:
                        self._untyped.setdefault(_source(read), []).append((where, ".".join(read)))
                    return
                goal = self._failing(scope, node, edge, failed=failed)
                self._refute("branch-fails", where, message, answer, goal, node, [edge])

    def _large(
        self, asks: list[Ask], known: Known, where: Path, edge: Edge, node: Node, goal: Goal
    ) -> None:
        """Fails only where numbers leave their 64 bits."""
        assert edge.guard is not None
        if not reckons(edge.guard.expression):
            return
        answer = self._solve(asks, known)
        if isinstance(answer, Solution):
            self._large_count += 1
            scenario = self._show(answer, goal, node, [edge])
            message = f"`{edge.guard.text}` fails for numbers that leave 64 bits{shown(scenario)}"
            self._subject.notes.add(
                "branch-fails", where, message, HINT, level="note", counterexample=scenario
            )

    def _failing(self, scope: ScopePlan, node: Node, edge: Edge, *, failed: bool = False) -> Goal:
        target = f"{scope.path}/{node.id}" if scope.path else node.id
        if node.gateway is not None and not failed:
            return failing("expression-failed", target)

        def goal(stage: Stage) -> Shows | None:
            failure = stage.run.failure
            if not stage.run.closed or failure is None or failure.code != "expression-failed":
                return None
            shows = Shows(status=stage.run.status, code=failure.code)
            return shows if edge.name in failure.message else None

        return goal

    def _complete(
        self,
        scope: ScopePlan,
        node: Node,
        branches: list[Edge],
        known: Known,
        default: str | None,
    ) -> None:
        """Is there a case that no branch takes? A rule of a table may always be disarmed, and not fire."""
        asks = [*known.asks]
        asks += [
            self._knowledge.ask(e.guard, False, known)
            for e in written(self._subject.plan, branches)
            if e.guard is not None
        ]
        answer = self._solve(asks, known)
        where = place(scope, node.id)
        if default is not None:
            if isinstance(answer, Impossible) and not self._is_back(node, default):
                message = (
                    f"the default of `{node.id}` is never needed: its branches cover every case"
                )
                self._subject.remark("branch-dead", (*where, "config", "default"), message)
            return
        message = f"no branch of `{node.id}` holds in some case, and it has no default"
        target = f"{scope.path}/{node.id}" if scope.path else node.id
        match answer:
            case Impossible():
                self._settle(self._withdraw("no-branch", where))
            case Unknown():
                if not self._said("no-branch", where):
                    self._unknown("no-branch", where, message, answer, key=True)
                self._sound = False
            case Solution():
                self._sound = False
                if self._said("no-branch", where, level="error"):
                    self._subject.proofs.append(_refuted(message))
                    return
                gone = self._withdraw("no-branch", where)
                goal = failing("no-branch", target)
                self._refute("no-branch", where, message, answer, goal, node, branches, key=True)
                shown = self._said("no-branch", where, level="error")
                for proof in gone:
                    verdict = "refuted" if shown else "unknown"
                    self._subject.proofs.append(replace(proof, verdict=verdict))

    def _is_back(self, node: Node, default: str) -> bool:
        return any(out.edge.target == default and out.role != 0 for out in node.outs)

    def _overlaps(self, scope: ScopePlan, node: Node, branches: list[Edge], known: Known) -> None:
        """Two branches hold, and neither order can be meant for sure: one is not the narrower case of the other."""
        guarded = [edge for edge in branches if edge.guard is not None]
        pairs = [(a, b) for i, a in enumerate(guarded) for b in guarded[i + 1 :]]
        for first, second in pairs[:PAIRS_MAX]:
            assert first.guard is not None
            assert second.guard is not None
            ask = self._knowledge.ask
            both = [*known.asks, ask(first.guard, True, known), ask(second.guard, True, known)]
            answer = self._solve(both, known)
            if not isinstance(answer, Solution):
                continue
            narrower = [*known.asks, ask(first.guard, True, known), ask(second.guard, False, known)]
            if not isinstance(self._solve(narrower, known), Solution):
                continue  # a cascade, from narrow to wide
            path = f"{scope.path}/{first.target}" if scope.path else first.target
            scenario = self._show(answer, begun(path), node, [first, second])
            if scenario is None:
                continue
            self._sound = False
            message = (
                f"the branches of `{node.id}` to `{first.target}` and to `{second.target}` both hold in some case; "
                "the first is taken"
            )
            where = _link(scope, node, second)
            hint = HINTS["branch-overlap"]
            self._subject.notes.add(
                "branch-overlap", where, message, hint, level="warning", counterexample=scenario
            )
            self._subject.proofs.append(replace(_refuted(message), verdict="unknown"))
            return

    # --- answers and what is said of them ----------------------------------------------------------------------

    def _solve(self, asks: list[Ask], known: Known) -> Answer:
        return self._solver.solve(asks, known.types)

    def _refute(
        self,
        code: str,
        where: Path,
        message: str,
        answer: Solution,
        goal: Goal,
        node: Node,
        branches: list[Edge],
        *,
        key: bool = False,
    ) -> None:
        self._sound = False
        scenario = self._show(answer, goal, node, branches) or self._roamed(answer, goal)
        if scenario is not None:
            self._subject.refute(RULE, code, where, message, scenario, HINTS[code], key=key)
            return
        reason = "no run was found that comes there with such values"
        self._subject.doubt(RULE, code, where, f"perhaps {message}: {reason}", HINTS[code], key=key)

    def _show(
        self, answer: Solution, goal: Goal, node: Node, branches: list[Edge]
    ) -> Scenario | None:
        reads = {read for e in branches if e.guard is not None for read in e.guard.expression.reads}
        return self._player.show(self._subject.driver, node, sorted(reads), answer, goal)

    def _roamed(self, answer: Solution, goal: Goal) -> Scenario | None:
        """Values of data come of what has happened before: try what may."""
        driver = self._subject.driver
        if driver is None or not answer.values.has_data:
            return None
        return driver.roam(ROAMS, goal)

    def _unknown(
        self, code: str, where: Path, message: str, answer: Unknown, *, key: bool = False
    ) -> None:
        self._sound = False
        hint = answer.hint or HINTS[code]
        text = f"perhaps {message}: it stands in the way of a proof that {_gist(answer.reason)}"
        self._subject.doubt(RULE, code, where, text, hint, key=key)

    def _say_untyped(self) -> None:
        """One word for each source of which nothing is known."""
        for source, reads in self._untyped.items():
            names = ", ".join(f"`{name}`" for name in dict.fromkeys(name for _, name in reads))
            message = f"nothing says what {names} is, and a condition that reads it fails if it is not as expected"
            hint = HINTS["branch-untyped"]
            if source == "input":
                hint = "give the definition an `inputSchema`"
            elif source.startswith("tasks."):
                hint = (
                    f"give `{source[6:]}` an `outputSchema`, or annotate what its activity returns"
                )
            self._subject.doubt(RULE, "branch-untyped", reads[0][0], message, hint)

    def _said(self, code: str, where: Path, *, level: str | None = None) -> bool:
        return any(f for f in self._findings(code, where) if level is None or f.level == level)

    def _findings(self, code: str, where: Path) -> list[Finding]:
        found = self._subject.notes.findings
        return [f for f in found if f.code == code and f.place.path == where]

    def _withdraw(self, code: str, where: Path) -> list[Proof]:
        """A doubt of another rule that is settled here, and what was said of that rule."""
        proofs, gone = self._subject.proofs, list[Proof]()
        for finding in self._findings(code, where):
            if finding.level == "warning":
                self._subject.notes.findings.remove(finding)
                gone += [proof for proof in proofs if proof.message == finding.message]
                proofs[:] = [proof for proof in proofs if proof.message != finding.message]
        return gone

    def _settle(self, gone: list[Proof]) -> None:
        """A rule of which nothing else was in doubt is proved."""
        left = {proof.rule for proof in self._subject.proofs}
        for rule in {proof.rule for proof in gone} - left:
            message = "every run comes to an end of its own, and each task can run; branches say that a case can't be"
            self._subject.prove(rule, message)


def _refuted(message: str) -> Proof:
    return Proof(RULE, "refuted", message)


def _link(scope: ScopePlan, node: Node, edge: Edge) -> Path:
    return (*place(scope, node.id)[:-2], "links", edge.index, "condition", "expression")


def _source(read: tuple[str, ...]) -> str:
    return ".".join(read[:2]) if read[0] == "tasks" else read[0]


def _gist(reason: str) -> str:
    if reason.startswith("the solver"):
        return reason
    return f"the solver can't see through {reason}"
