"""Termination: every cycle has a bound, or a measure that each pass lowers (SPEC 3.4).

A loop ends for sure if it has a `max`, or if its condition compares two whole numbers whose distance each pass makes
smaller; the solver proves that for what the pass surely writes. It never ends, once begun, if no pass can change its
condition from true. What is neither is unknown, and named. Maps are as long as their lists, subworkflows as deep as their
limit, retries as many as their policy: none of those goes on for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from penstock.core.keys import static
from penstock.core.plan import BACK, Edge, Formula, Guard, Node, ScopePlan
from penstock.dsl.finding import Path
from penstock.errors import ExpressionError
from penstock.expr.compile import Expression
from penstock.expr.tree import Binary, Ident, Literal, Logic, Unary
from penstock.expr.tree import Node as Tree
from penstock.expr.typecheck import check
from penstock.verify.driving import Goal
from penstock.verify.knowledge import knowledge_of
from penstock.verify.playing import Player
from penstock.verify.rehearsal import Stage
from penstock.verify.scenario import Shows
from penstock.verify.scopes import place
from penstock.verify.solver import Ask, Impossible, Solution, Wanted
from penstock.verify.substitution import Read, replaced
from penstock.verify.types import Types
from penstock.verify.verification import Subject

RULE = "3.4"
PASSES_SHOWN = 5
"""Passes that a counterexample shows of a loop that never ends."""
MEASURES_MAX = 12
MODEST = 1_000_000_000
_ORDER = frozenset({"<", "<=", ">", ">=", "!="})
_WAITS = ("activity", "http", "timer", "signal", "form", "event", "subworkflow")
HINT = "give the loop a `max`, or let its condition count: `iteration < 10`, or a number that each pass lowers"


@dataclass(frozen=True, slots=True)
class Cycle:
    """A loop and what makes it go round."""

    scope: ScopePlan
    node: Node
    body: ScopePlan
    again: tuple[tuple[tuple[Guard, Wanted], ...], ...]
    """Ways to go round: for each what must hold."""
    certain: bool
    """If one of them holds it does go round, unless something fails."""

    @property
    def path(self) -> str:
        return f"{self.scope.path}/{self.node.id}" if self.scope.path else self.node.id

    @property
    def name(self) -> str:
        if self.node.loop is None:
            return f"`{self.path}`"
        round_trip = " -> ".join([*self.body.nodes, self.node.id])
        return (
            f"the cycle `{round_trip}`" if len(round_trip) < 80 else f"the cycle at `{self.path}`"
        )


def check_termination(subject: Subject) -> None:
    Termination(subject).check()


class Termination:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._knowledge = knowledge_of(subject)
        self._solver = subject.solver()
        self._player = Player(subject.plan, self._knowledge)

    def check(self) -> None:
        proved: list[str] = []
        sound = True
        for cycle in cycles(self._subject):
            limit = cycle.node.config.get("max")
            if limit is not None:
                proved.append(f"{cycle.name} has at most {limit} passes")
                continue
            measure = self._measure(cycle)
            if measure is not None:
                proved.append(f"{cycle.name} lowers `{measure}`")
                continue
            sound = False
            if not self._endless(cycle):
                message = f"nothing says that {cycle.name} ends: {self._why(cycle)}"
                where = place(cycle.scope, cycle.node.id)
                self._subject.doubt(RULE, "loop-unbounded", where, message, HINT, key=True)
        for scope, node in self._selves():
            if not self._always(scope, node):
                proved.append(f"`{node.path}` starts this definition again, as deep as the limit")
                continue
            sound = False
            message = (
                f"`{node.path}` starts `{self._subject.definition.id}` again, which is a cycle"
            )
            message += ": nothing says that this ends before the limit of how deep subworkflows go"
            where = (*place(scope, node.id), "config", "definition")
            hint = "let a loop do it again, or say by `conditions` or a gateway when it is over"
            self._subject.doubt(RULE, "loop-unbounded", where, message, hint)
        if sound:
            message = "; ".join(proved) if proved else "there are no cycles"
            self._subject.prove(RULE, f"every run ends by itself: {message}")

    def _selves(self) -> Iterator[tuple[ScopePlan, Node]]:
        """Tasks that start a run of this very definition; of others, and of a computed one, nothing is known here."""
        for scope in self._subject.plan.scopes.values():
            for node in scope.nodes.values():
                if node.type == "subworkflow" and (
                    node.config.get("definition") == self._subject.definition.id
                ):
                    yield scope, node

    def _always(self, scope: ScopePlan, node: Node) -> bool:
        """No run comes to an end round it."""
        if scope is not self._subject.plan.root or node.conditions:
            return False
        above = self._knowledge.dominating(scope)
        for end in scope.ends:
            line: str | None = end.id
            while line is not None and line != node.id:
                line = above.get(line)
            if line is None:
                return False
        return True

    # --- what a pass does ----------------------------------------------------------------------------------------

    def _updates(self, cycle: Cycle) -> dict[Read, Tree]:
        """What is read after a pass, as formulas over what was read before it; only what surely happens."""
        found: dict[Read, Tree] = {
            ("iteration",): Binary(0, "+", Ident(0, "iteration"), Literal(0, 1))
        }
        for node in self._surely(cycle):
            for name, formula in _sets(node):
                if self._subject.plan.merges.get(name) not in (None, "last"):
                    continue
                tree = replaced(formula.expression.tree, found)
                if tree is not None:
                    found["data", name] = tree
        return found

    def _surely(self, cycle: Cycle) -> Iterator[Node]:
        """Tasks that run in every pass that is followed by another, in order."""
        body = cycle.body
        above = self._knowledge.dominating(body)
        ends = _pass_ends(body)
        common: list[str] | None = None
        for id in ends:
            chain = [id]
            while (up := above.get(chain[-1])) is not None:
                chain.append(up)
            common = chain if common is None else [one for one in common if one in chain]
        for id in reversed(common or []):
            node = body.nodes[id]
            if not node.conditions and node.body is None and node.loop is None:
                yield node

    def _changing(self, cycle: Cycle, read: Read, updates: Mapping[Read, Tree]) -> str:
        """`no`: a pass leaves it as it is; `known`: it changes it as `updates` say; `yes`."""
        inside = _ids(cycle.body)
        match read[0]:
            case "input" | "run" | "item" | "index":
                return "no"
            case "iteration":
                return "known"
            case "tasks":
                return "yes" if len(read) < 2 or read[1] in inside else "no"
            case "data":
                if len(read) < 2:
                    return "yes"
                return self._data_changing(cycle, read, updates)
            case _:
                return "yes"

    def _data_changing(self, cycle: Cycle, read: Read, updates: Mapping[Read, Tree]) -> str:
        """Others may write it while the loop runs, unless they are over before it begins."""
        over = self._knowledge.at(cycle.scope, cycle.node).over
        writers = set(self._knowledge.writers.get(read[1], ()))
        before = {
            path for path in writers if "/" not in path and path in over and path != cycle.path
        }
        writers -= before
        if not writers:
            return "no"
        if _in_map(cycle.scope):
            return "yes"  # other items write it too
        sure = {node.path for node in self._surely(cycle) if read[1] in dict(_sets(node))}
        once = all(self._knowledge.writers[read[1]].count(path) <= 2 for path in sure)
        return (
            "known"
            if writers == sure and len(sure) == 1 and once and read[:2] in updates
            else "yes"
        )

    # --- a measure -----------------------------------------------------------------------------------------------

    def _measure(self, cycle: Cycle) -> str | None:
        """A whole number that is not negative while the loop goes on, and that each pass lowers."""
        updates = self._updates(cycle)
        types = self._types(cycle)
        for text, tree in self._candidates(cycle):
            after = replaced(tree, updates)
            if after is None or not self._followed(cycle, tree, updates):
                continue
            zero = Literal(0, 0)
            bounded = self._expression(Binary(0, ">=", tree, zero))
            lower = self._expression(Binary(0, "<", after, tree))
            whole = self._expression(Binary(0, "==", Binary(0, "%", tree, Literal(0, 1)), zero))
            if bounded is None or lower is None or whole is None:
                continue
            done = self._done(cycle, updates)
            if all(
                self._never(way, types, bounded, done)
                and self._never(way, types, whole, done)
                and self._never(way, types, lower, done)
                for way in cycle.again
            ):
                return text
        return None

    def _never(
        self,
        way: Sequence[tuple[Guard, Wanted]],
        types: Types,
        claim: Expression,
        done: Sequence[Ask],
    ) -> bool:
        """While the loop goes on the claim can be neither false nor an error."""
        asks: list[Ask] = [(guard.expression, wanted) for guard, wanted in way]
        return all(
            isinstance(self._solver.solve([*asks, *done, (claim, wanted)], types), Impossible)
            for wanted in (False, "error")
        )

    def _done(self, cycle: Cycle, updates: Mapping[Read, Tree]) -> list[Ask]:
        """What the pass computed had values, or it would have failed and ended the loop."""
        found: list[Ask] = []
        for read, tree in updates.items():
            if read[0] == "data":
                expression = self._expression(tree)
                if expression is not None:
                    found.append((expression, "value"))
        return found

    def _followed(self, cycle: Cycle, tree: Tree, updates: Mapping[Read, Tree]) -> bool:
        """It is known what a pass makes of all that the measure reads, and of nothing else of that pass."""
        before = self._expression(tree)
        if before is None:
            return False
        asked = {read for way in cycle.again for guard, _ in way for read in guard.expression.reads}
        for read in before.reads:
            if self._changing(cycle, read, updates) == "yes":
                return False
            formula = updates.get(read[:2]) if read[0] == "data" else None
            if formula is None:
                continue
            after = self._expression(formula)
            if after is None:
                return False
            for inner in after.reads:
                # What a task of the pass gives is new in each: it may be anything of its type.
                if self._changing(cycle, inner, updates) == "yes" and (
                    inner[0] != "tasks" or inner in asked
                ):
                    return False
        return True

    def _candidates(self, cycle: Cycle) -> list[tuple[str, Tree]]:
        """Distances of what the condition compares."""
        found: list[tuple[str, Tree]] = []
        for way in cycle.again:
            for guard, _ in way:
                for compared in _comparisons(guard.expression.tree):
                    left, right = compared.left, compared.right
                    for a, b in ((right, left), (left, right)):
                        tree: Tree = a if _is_zero(b) else Binary(0, "-", a, b)
                        found.append((_shown(a, b), tree))
        return found[:MEASURES_MAX]

    # --- for ever ------------------------------------------------------------------------------------------------

    def _endless(self, cycle: Cycle) -> bool:
        """Said, if it can be shown that a loop once begun goes on."""
        if not cycle.certain or len(cycle.again) != 1 or _may_stop(cycle.body):
            return False
        way = cycle.again[0]
        updates, types = self._updates(cycle), replace(self._types(cycle), modest=MODEST)
        reads = {read for guard, _ in way for read in guard.expression.reads}
        if any(self._changing(cycle, read, updates) == "yes" for read in reads):
            return False
        asks: list[Ask] = [(guard.expression, wanted) for guard, wanted in way]
        for guard, wanted in way:
            tree = replaced(guard.expression.tree, updates)
            later = None if tree is None else self._expression(tree)
            if later is None or not self._followed(cycle, guard.expression.tree, updates):
                return False
            outcomes: tuple[Wanted, ...] = (not wanted, "error")
            for outcome in outcomes:
                done = self._done(cycle, updates)
                answer = self._solver.solve([*asks, *done, (later, outcome)], types)
                if not isinstance(answer, Impossible):
                    return False
        known = self._knowledge.at(cycle.scope, cycle.node)
        began: list[Ask] = [*known.asks]
        began += [self._knowledge.ask(guard, wanted, known) for guard, wanted in way]
        answer = self._solver.solve(began, replace(types, tasks=known.types.tasks))
        if not isinstance(answer, Solution) or not _waits(cycle.body):
            return False
        scenario = self._player.play(answer, passes(cycle.path, PASSES_SHOWN))
        if scenario is None:
            return False
        texts = " and ".join(f"`{guard.text}`" for guard, _ in way)
        what = f"no pass changes what {texts} comes to" if texts else "it has no condition"
        message = f"{cycle.name} never ends: {what}"
        return self._subject.refute(
            RULE, "loop-endless", self._where(cycle), message, scenario, HINT, key=True
        )

    def _where(self, cycle: Cycle) -> Path:
        return place(cycle.scope, cycle.node.id)

    def _why(self, cycle: Cycle) -> str:
        """What stands in the way of a proof."""
        updates = self._updates(cycle)
        texts = ", ".join(
            dict.fromkeys(f"`{guard.text}`" for way in cycle.again for guard, _ in way)
        )
        open_ended: list[str] = []
        for way in cycle.again:
            for guard, _ in way:
                for read in sorted(guard.expression.reads):
                    if self._changing(cycle, read, updates) == "yes":
                        open_ended.append(f"`{'.'.join(read)}`")
        if open_ended:
            names = ", ".join(dict.fromkeys(open_ended))
            return f"it goes on as {texts} says, and {names} may come to anything"
        return f"no measure was found in {texts} that each pass lowers"

    # --- asking --------------------------------------------------------------------------------------------------

    def _types(self, cycle: Cycle) -> Types:
        """What is known inside a pass; before the first pass its number is 0."""
        inner = self._knowledge.at(cycle.body, cycle.body.entry).types
        return replace(inner, iteration=0 if cycle.node.loop is None else 1)

    def _expression(self, tree: Tree) -> Expression | None:
        environment = self._knowledge.environment
        try:
            return Expression("", tree, check("", tree, environment))
        except (ExpressionError, RecursionError):
            return None


def cycles(subject: Subject) -> Iterator[Cycle]:
    """Every loop of the definition, inner ones too."""
    for scope in subject.plan.scopes.values():
        for node in scope.nodes.values():
            if node.type == "loop" and node.body is not None:
                way: list[tuple[Guard, Wanted]] = []
                for word, wanted in (("while", True), ("until", False)):
                    if word in node.formulas:
                        way.append((cast("Guard", node.formulas[word]), wanted))
                yield Cycle(scope, node, node.body, (tuple(way),), certain=True)
            elif node.loop is not None:
                ways, certain = _rounds(node.loop)
                yield Cycle(scope, node, node.loop, ways, certain=certain)


def _rounds(body: ScopePlan) -> tuple[tuple[tuple[tuple[Guard, Wanted], ...], ...], bool]:
    ways: list[tuple[tuple[Guard, Wanted], ...]] = []
    certain = True
    for node in body.nodes.values():
        for out in node.outs:
            if out.role != BACK:
                continue
            ways.append(_way(node, out.edge))
            certain = certain and out.edge.on != "error" and node.loop is None
            certain = certain and all(not n.conditions for n in body.nodes.values())
            certain = certain and all(  # a pass can't leave past the task that leads back
                other is node or o.role == 0 for other in body.nodes.values() for o in other.outs
            )
    return tuple(ways), certain and len(ways) == 1


def _way(node: Node, edge: Edge) -> tuple[tuple[Guard, Wanted], ...]:
    """What holds if this link is taken."""
    found: list[tuple[Guard, Wanted]] = []
    default = node.config.get("default") if node.gateway else None
    for out in node.outs:
        other = out.edge
        if other.guard is None or other.on == "error" or other is edge:
            if other is edge and node.gateway == "exclusive" and default != edge.target:
                break
            continue
        if default == edge.target or node.gateway == "exclusive":
            found.append((other.guard, False))
    if edge.guard is not None and default != edge.target:
        found.append((edge.guard, True))
    return tuple(found)


def passes(path: str, count: int) -> Goal:
    """The loop has begun so many passes."""

    def goal(stage: Stage) -> Shows | None:
        for key, state in stage.tasks.items():
            if static(key) == path and state.number >= count:
                return Shows(task=key, passes=count)
        return None

    return goal


def _sets(node: Node) -> list[tuple[str, Formula]]:
    """Keys of the run's data that a task writes, in order."""
    found: list[tuple[str, Formula]] = []
    if node.type == "transform":
        found += [(name, cast("Formula", formula)) for name, formula in node.formulas.items()]
    for doing in node.on_complete:
        found += doing.set
    return found


def _pass_ends(body: ScopePlan) -> list[str]:
    """Tasks at one of which every pass that is followed by another ends."""
    if body.kind == "natural":
        return [n.id for n in body.nodes.values() if any(out.role == BACK for out in n.outs)]
    return [node.id for node in body.ends]


def _ids(scope: ScopePlan) -> set[str]:
    found: set[str] = set()
    waiting = [scope]
    while waiting:
        for node in waiting.pop().nodes.values():
            found.add(node.id)
            waiting += [inner for inner in (node.body, node.loop) if inner is not None]
    return found


def _in_map(scope: ScopePlan | None) -> bool:
    while scope is not None:
        if scope.kind == "map":
            return True
        scope = scope.parent
    return False


def _nodes(scope: ScopePlan) -> Iterator[Node]:
    waiting = [scope]
    while waiting:
        for node in waiting.pop().nodes.values():
            yield node
            waiting += [inner for inner in (node.body, node.loop) if inner is not None]


def _may_stop(body: ScopePlan) -> bool:
    """Something in it can end the run, or cancel tasks."""
    return any(
        n.type == "cancel" or (n.type == "end" and n.config.get("terminate")) for n in _nodes(body)
    )


def _waits(body: ScopePlan) -> bool:
    """A pass waits for something outside; otherwise one event would never be done."""
    return any(node.works or node.type in _WAITS for node in _nodes(body))


def _comparisons(tree: Tree) -> Iterator[Binary]:
    stack: list[Tree] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Logic):
            stack.extend(node.operands)
        elif isinstance(node, Unary):
            stack.append(node.operand)
        elif isinstance(node, Binary) and node.operator in _ORDER:
            yield node


def _is_zero(tree: Tree) -> bool:
    return isinstance(tree, Literal) and tree.value == 0 and not isinstance(tree.value, bool | str)


def _shown(a: Tree, b: Tree) -> str:
    first = _word(a)
    return first if _is_zero(b) else f"{first} - {_word(b)}"


def _word(tree: Any) -> str:
    match tree:
        case Ident():
            return tree.name
        case Literal():
            return str(tree.value)
        case _ if hasattr(tree, "field"):
            return f"{_word(tree.operand)}.{tree.field}"
        case _ if hasattr(tree, "function"):
            return f"{tree.function}(…)"
        case _:
            return "…"
