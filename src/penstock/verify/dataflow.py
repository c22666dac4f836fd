"""Data flow: every input exists on every path to its task, types fit, and no expression fails (SPEC 3.6).

What a task gave exists where it lies on every way and completed. Where it does not, a way round it is looked for (a branch
not taken, a condition that does not hold, a failure that is handled) and played. Expressions of which all that they read
has a type are put to the solver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from penstock.core.plan import Node, ScopePlan
from penstock.dsl.finding import Path
from penstock.errors import ExpressionError
from penstock.expr.compile import Expression, compile_expression
from penstock.expr.tree import Binary, Literal
from penstock.expr.typecheck import check
from penstock.model.run import PENDING
from penstock.verify.cases import Read
from penstock.verify.certain import dominators
from penstock.verify.driving import Goal, failing
from penstock.verify.escapes import Escape, dead, ended_before, fails, not_done
from penstock.verify.knowledge import Known, Moment, knowledge_of
from penstock.verify.large import HINT, MODEST, ask_failing, infinite, reckons, shown, within
from penstock.verify.merging import merges
from penstock.verify.parameters import check_parameters, takes_null
from penstock.verify.playing import Player
from penstock.verify.rehearsal import Stage
from penstock.verify.samples import resolve as dereference
from penstock.verify.scenario import Scenario, Shows
from penstock.verify.sets import Orders, resolve
from penstock.verify.solver import MISSING, SPENT, Answer, Ask, Impossible, Solution, Unknown
from penstock.verify.timing import HINT as TIMING
from penstock.verify.timing import Timing
from penstock.verify.topics import check_topics
from penstock.verify.types import TaskType, Types
from penstock.verify.uses import Use, set_before, simple_paths, uses
from penstock.verify.verification import Proof, Subject

RULE = "3.6"
QUESTIONS_MAX = 150
"""Put to the solver in one verification."""
UNASKED = "there are more questions than the solver is asked"
ESCAPES_MAX = 8
"""Ways round one task that are tried."""

HINTS = {
    "missing": "let it lie on every way to this task, give a `default`, or ask `has(…)` or the task's `status` first",
    "fails": "let a schema rule it out, or ask first",
    "untyped": "say in an `inputSchema` or `outputSchema` what is there",
}


def check_dataflow(subject: Subject) -> None:
    DataFlow(subject).check()


class DataFlow:
    def __init__(self, subject: Subject) -> None:
        self._subject, self._plan = subject, subject.plan
        self._knowledge = knowledge_of(subject)
        self._player = Player(subject.plan, self._knowledge)
        self._solver = subject.solver()
        self._orders = Orders(subject.plan)
        self._timing = Timing(self._knowledge, self._solve, self._shown)
        self._writers = _writers(subject)
        self._untyped: dict[str, tuple[Path, list[str]]] = {}
        self._refuted: set[Read] = set()
        """What is read by what was shown to fail."""
        self._doubts: list[tuple[Use, str, str, str]] = []
        self._anywhere: dict[tuple[str, bool], bool] = {}
        """Of expressions over the input alone: that they never fail."""
        self._surely: set[str] = set()
        """Tasks of which it was shown that there is no way round them to what is looked at."""
        self._above: dict[str, dict[str, str | None]] = {}
        """By scope: dominators."""
        self._questions = 0
        self._large_count = 0
        """Of expressions that fail where numbers leave 64 bits."""
        self._sound = True

    def check(self) -> None:
        count = 0
        for use in (*uses(self._plan), *merges(self._subject, self._knowledge)):
            count += 1
            self._use(use)
        self._sound = check_parameters(self._subject, self._knowledge) and self._sound
        told = check_topics(self._subject, self._knowledge, self._player, self._solver)
        self._sound = told and self._sound
        self._say_doubts()
        self._say_untyped()
        if self._sound:
            message = "all that tasks read is there on every path, and fits"
            self._subject.prove(RULE, f"{message} ({count} reads){within(self._large_count)}")

    def _use(self, use: Use) -> None:
        driver = self._subject.driver
        if driver is not None and not use.final:
            explored = driver.holder(use.node.path).explored
            if use.node.id not in explored.fired and not explored.over:
                return  # no run comes there
        if use.final:
            known = self._knowledge.final()
        else:
            moment: Moment = "failed" if use.failed else "ended" if use.ended else "begun"
            known = self._knowledge.amid(use.scope, use.node, use.expression, moment)
        if not use.defaulted and self._lacking(use, known):
            return
        if use.whole or use.defaulted:
            return
        known = self._sure_of(known)
        if use.counts and self._timed(use, known):
            return
        reads = simple_paths(use.expression.tree)
        boolean = not use.decides or use.expression.type.name == "bool"
        if reads is not None and boolean and all(self._certain(read, known) for read in reads):
            return
        vague = [r for r in use.expression.reads if not self._knowledge.typed(r, known)]
        if vague:
            for read in vague:
                source = ".".join(read[:2]) if read[0] == "tasks" else read[0]
                names = self._untyped.setdefault(source, (use.where, []))[1]
                names.append(".".join(read))
            return
        self._can_fail(use, known)

    def _timed(self, use: Use, known: Known) -> bool:
        """Whether something was said of what is to be a duration or a time."""
        reads = use.expression.reads
        if not all(self._knowledge.typed(r, known) or self._certain(r, known) for r in reads):
            return False  # that nothing is known of it is said
        found = self._timing.look(use, known)
        if found is None:
            return False
        message, scenario = found
        if scenario is None:
            self._doubt(use, "expression-fails", message, TIMING)
        else:
            self._refutes(use, "expression-fails", message, scenario, TIMING)
        return True

    # --- what may not be there -----------------------------------------------------------------------------------

    def _lacking(self, use: Use, known: Known) -> bool:
        """Whether something was said of what it reads."""
        self._surely.clear()
        bare = _bare(use)
        for read in sorted(use.expression.reads):
            match read:
                case ("tasks", _, "output", *rest):
                    deep = bool(rest) or use.whole or read not in bare
                    if deep and self._task(use, read, known):
                        return True
                case ("data", _, *_):
                    if self._datum(use, read, known):
                        return True
                case _:
                    pass
        return False

    def _task(self, use: Use, read: Read, known: Known) -> bool:
        found = resolve(self._plan, use.scope, read[1])
        if found is None or found[1] is use.node:
            return False
        scope, node = found
        kind = known.types.tasks.get(read[1], TaskType())
        if read[1] in known.over and kind.statuses == ("COMPLETED",):
            return False
        escapes = self._escapes(use, scope, node)
        if not escapes:
            return False
        over = compile_expression(f'tasks["{read[1]}"].status == "COMPLETED"')
        return self._missing(use, known, ".".join(read), escapes, (over, False), node)

    def _datum(self, use: Use, read: Read, known: Known) -> bool:
        """A key of the run's data that only some tasks make."""
        name = read[1]
        writers = self._writers.get(name, [])
        if name in self._subject.definition.data or not writers:
            return False  # there from the start; or never, which the solver knows
        escapes: list[Escape] = []
        for scope, node in writers:
            kind = known.types.tasks.get(node.id, TaskType())
            if node is use.node and not set_before(use, name):
                escapes.append(Escape(f"the first time, before `{node.id}` has set it"))
            elif node is use.node or (node.id in known.over and kind.statuses == ("COMPLETED",)):
                return False
            else:
                escapes += self._escapes(use, scope, node)
        if not escapes:
            return False
        there = compile_expression(f'has(data["{name}"])' if "-" in name else f"has(data.{name})")
        return self._missing(use, known, ".".join(read), escapes, (there, False), writers[0][1])

    def _missing(
        self,
        use: Use,
        known: Known,
        name: str,
        escapes: list[Escape],
        absent: Ask,
        node: Node,
    ) -> bool:
        """Try every way round; whether something was said."""
        doubt: str | None = None
        hint = HINTS["missing"]
        anyway = False
        for escape in escapes[:ESCAPES_MAX]:
            asks = [*known.asks, *(self._knowledge.ask(g, True, known) for g in use.conditions)]
            asks += [self._knowledge.ask(guard, wanted, known) for guard, wanted in escape.asks]
            asks += self._knowledge.implied(use.scope, use.expression)
            asks.append(absent)
            if escape.failed:
                failed = compile_expression(f'tasks["{escape.failed}"].status == "FAILED"')
                asks.append((failed, True))
            if not use.whole:
                asks.append(self._error(use, known))
            answer = self._solve(asks, known, absent=node.id)
            message = f"`{name}` is not there for {use.what} {escape.words}"
            match answer:
                case Impossible():
                    continue
                case Unknown():
                    doubt = doubt or f"perhaps {message}: {answer.reason}"
                    hint = answer.hint or hint
                case Solution() if not use.whole and self._fails_anyway(use, known, absent):
                    anyway = True  # whatever comes of the task: that is not what is wrong
                case Solution():
                    goal = _without(use, node) if use.whole else failing(use.code, use.target)
                    scenario = self._shown(use, answer, goal, escape.spared)
                    if scenario is not None:
                        self._said(use, message, scenario)
                        return True
                    doubt = doubt or f"perhaps {message}: no run was found that shows it"
        if doubt is None and not anyway and absent[0].text.startswith("tasks"):
            self._surely.add(node.id)
        if doubt is None or use.whole:
            return False
        self._doubt(use, "input-missing", doubt, hint)
        return True

    def _fails_anyway(self, use: Use, known: Known, absent: Ask) -> bool:
        """It can fail where what was looked for is there, too."""
        if not all(self._knowledge.typed(read, known) for read in use.expression.reads):
            return False
        asks = [*known.asks, *self._knowledge.implied(use.scope, use.expression), (absent[0], True)]
        return isinstance(self._solve([*asks, self._error(use, known)], known), Solution)

    def _said(self, use: Use, message: str, scenario: Scenario) -> None:
        if use.whole and takes_null(self._subject, use.node, str(use.where[-1])):
            return
        if not use.whole:
            self._refutes(use, "input-missing", message, scenario, HINTS["missing"])
            return
        self._sound = False
        text = f"{message}; it is called with null then, and nothing says that it takes it"
        self._subject.notes.add(
            "input-missing", use.where, text, HINTS["missing"], level="warning", counterexample=scenario
        )  # fmt: skip
        self._subject.proofs.append(Proof(RULE, "unknown", text))

    def _shown(self, use: Use, answer: Solution, goal: Goal, spared: str = "") -> Scenario | None:
        driver = None if use.final else self._subject.driver
        reads = use.expression.reads
        return self._player.show(driver, use.node, reads, answer, goal, spared=spared)

    def _sure_of(self, known: Known) -> Known:
        """The same, with the tasks round which there is no way."""
        if not self._surely:
            return known
        done = {
            id: replace(known.types.tasks.get(id, TaskType()), statuses=("COMPLETED",))
            for id in self._surely
        }
        types = replace(known.types, tasks={**known.types.tasks, **done})
        return replace(known, types=types, over=known.over | self._surely)

    # --- ways round a task ---------------------------------------------------------------------------------------

    def _escapes(self, use: Use, scope: ScopePlan, node: Node) -> list[Escape]:
        """Ways to the use on which that task does not complete; none if it may run at the same time: a race (3.5)."""
        here, there = _line(use.scope, use.node), _line(scope, node)
        for (outer, one), (beside, other) in zip(here, there, strict=False):
            if outer is not beside:
                return []
            if one is other:
                continue
            order = self._orders.of(outer)
            if order.leads(other.id, one.id) or (use.final and not order.leads(one.id, other.id)):
                found = list(self._round(outer, one, scope, node))
                return (
                    [*ended_before(self._orders.of(outer), other), *found] if use.final else found
                )
            if order.leads(one.id, other.id) or order.exclusive(one.id, other.id):
                words = f"where `{node.id}` has not run, which is always" if outer.kind == "run" else f"in the first pass, before `{node.id}`"  # fmt: skip
                return [Escape(words)]
            return []
        if len(there) > len(here) and not use.ended and use.where[-1] != "until":
            return [Escape(f"before anything in `{use.node.id}` has run")]
        if len(there) < len(here) and use.node is not node:
            return [Escape(f"as `{node.id}`, which it is in, is not over")]
        return []

    def _round(
        self, outer: ScopePlan, reader: Node, scope: ScopePlan, node: Node
    ) -> Iterator[Escape]:
        yield from not_done(node)
        inner, at = scope, node
        while inner is not outer:
            yield from self._not_taken(inner, at, None)
            assert inner.parent is not None
            inner, at = inner.parent, inner.parent.nodes[inner.owner]
            if at.loop is None:
                yield from not_done(at)
        yield from self._not_taken(outer, at, reader)

    def _not_taken(self, scope: ScopePlan, node: Node, reader: Node | None) -> Iterator[Escape]:
        """Links on the way to a task that may be dead, up to where its way is the reader's too."""
        if scope.path not in self._above:
            self._above[scope.path] = dominators(scope)
        above = self._above[scope.path]
        shared: set[str] = set()
        cursor = None if reader is None else reader.id
        while cursor is not None:
            shared.add(cursor)
            cursor = above.get(cursor)
        at: str | None = node.id
        while at is not None and at not in shared:
            current = scope.nodes[at]
            if len(current.arrivals) == 1:
                yield from dead(scope, current.arrivals[0])
            elif current.arrivals and all(e.guard is not None for e in current.arrivals):
                asks = tuple((e.guard, False) for e in current.arrivals if e.guard is not None)
                yield Escape(f"where no link to `{at}` is taken", asks)
            at = above.get(at)
            if at is not None and at not in shared and at != node.id:
                yield from fails(scope.nodes[at])

    # --- what may fail -------------------------------------------------------------------------------------------

    def _certain(self, read: Read, known: Known) -> bool:
        """It is there whatever happens."""
        match read[0]:
            case "input":
                return len(read) == 1 or _required(known.types.input, read[1:])
            case "tasks":
                if len(read) < 4:
                    return True
                task = known.types.tasks.get(read[1], TaskType())
                done = read[1] in known.over and task.statuses == ("COMPLETED",)
                return read[2] == "output" and done and _required(task.schema, read[3:])
            case "data":
                if len(read) == 1:
                    return True
                return len(read) == 2 and (read[1] in self._subject.definition.data or self._made(read[1], known))  # fmt: skip
            case "item":
                return len(read) == 1
            case "run" | "now" | "index" | "iteration":
                return True
            case _:
                return False

    def _made(self, name: str, known: Known) -> bool:
        return any(node.id in known.over for _, node in self._writers.get(name, ()))

    def _can_fail(self, use: Use, known: Known) -> None:
        asks = [*known.asks, *(self._knowledge.ask(g, True, known) for g in use.conditions)]
        asks += self._knowledge.implied(use.scope, use.expression)
        asks.append(self._error(use, known))
        if self._never_fails(use, known):
            self._large(use, known, asks)
            return
        answer = ask_failing(partial(self._ask, asks), known.types)
        code = "input-missing" if use.code == "input-missing" else "expression-fails"
        message = f"{use.what} can fail: `{use.expression.text}`"
        if use.code == "input-missing":
            read = ".".join(max(use.expression.reads, key=len))
            message = f"`{read}` need not be there for {use.what}"
        match answer:
            case Impossible():
                self._large(use, known, asks)
            case Unknown():
                text = f"perhaps {message}: {answer.reason}"
                self._doubt(use, code, text, answer.hint or HINTS["fails"])
            case Solution():
                goal = failing(use.code, use.target)
                scenario = self._shown(use, answer, goal)
                for id in _tasks_read(use) if use.final else ():
                    scenario = scenario or self._shown(use, answer, goal, id)
                if scenario is None:
                    text = f"perhaps {message}: no run was found that comes there with such values"
                    self._doubt(use, code, text, HINTS["fails"])
                    return
                self._refutes(use, code, message, scenario, HINTS["fails"])

    def _refutes(self, use: Use, code: str, message: str, scenario: Scenario, hint: str) -> None:
        self._sound = False
        self._refuted |= use.expression.reads
        self._subject.refute(RULE, code, use.where, message, scenario, hint)

    def _large(self, use: Use, known: Known, asks: list[Ask]) -> None:
        """It fails only where numbers leave their 64 bits, or become infinite: worth knowing, and no rule is broken."""
        if self._questions >= QUESTIONS_MAX or not reckons(use.expression):
            return
        answer = self._solver.solve(asks, known.types)
        if not isinstance(answer, Solution) and not use.decides:
            beyond = infinite(self._knowledge.expression(use.expression, known), known.types)
            if beyond is not None:
                answer = self._solver.solve([*asks[:-1], (beyond, True)], known.types)
        if isinstance(answer, Solution):
            self._large_count += 1
            scenario = self._shown(use, answer, failing(use.code, use.target))
            message = f"{use.what} fails for numbers that leave 64 bits: `{use.expression.text}`{shown(scenario)}"
            self._subject.notes.add(
                "expression-fails", use.where, message, HINT, level="note", counterexample=scenario
            )  # fmt: skip

    def _never_fails(self, use: Use, known: Known) -> bool:
        """Whatever the input is, and wherever it is asked; the same for all that is written alike."""
        if use.where[0] == "data" or any(r[0] != "input" for r in use.expression.reads):
            return False  # a merge is another at each task that writes
        key = use.expression.text, use.decides
        if key not in self._anywhere:
            asks = [self._error(use, replace(known, formulas={}))]
            answer = ask_failing(partial(self._ask, asks), known.types)
            self._anywhere[key] = isinstance(answer, Impossible)
        return self._anywhere[key]

    def _doubt(self, use: Use, code: str, message: str, hint: str) -> None:
        self._doubts.append((use, code, message, hint))

    def _say_doubts(self) -> None:
        """But for what another task is shown to fail by: this one may never come to it."""
        for reason in (UNASKED, SPENT, MISSING):
            alike = [each for each in self._doubts if each[2].endswith(reason)]
            if len(alike) > 1:
                use, code, _, hint = alike[0]
                message = f"{len(alike)} expressions were not looked at, {use.what} first: {reason}"
                self._doubts = [each for each in self._doubts if each not in alike]
                self._doubts.append((use, code, message, hint))
        for use, code, message, hint in self._doubts:
            if not use.expression.reads & self._refuted:
                self._sound = False
                self._subject.doubt(RULE, code, use.where, message, hint)

    def _error(self, use: Use, known: Known) -> Ask:
        """It gives nothing at all; of a condition, also that it gives no bool."""
        expression = self._knowledge.expression(use.expression, known)
        if use.decides:
            return expression, "error"
        tree = Binary(0, "==", expression.tree, Literal(0, None))
        text = f"({expression.text}) == null"
        try:
            checked = check(text, tree, known.types.environment)
        except ExpressionError:
            checked = check(text, tree, None)
        return Expression(text, tree, checked), "error"

    def _solve(self, asks: list[Ask], known: Known, *, absent: str = "") -> Answer:
        types = replace(known.types, modest=MODEST)
        if absent:
            kind = types.tasks.get(absent, TaskType())
            others = tuple(s for s in kind.statuses if s != "COMPLETED") or ("SKIPPED", "PENDING", "FAILED")  # fmt: skip
            types = replace(types, tasks={**types.tasks, absent: replace(kind, statuses=others)})
        return self._ask(asks, types)

    def _ask(self, asks: list[Ask], types: Types) -> Answer:
        if self._questions >= QUESTIONS_MAX:
            return Unknown(UNASKED)
        self._questions += 1
        return self._solver.solve(asks, types)

    def _say_untyped(self) -> None:
        """One word for all of which nothing is known."""
        if not self._untyped:
            return
        sources = ", ".join(f"`{source}`" for source in list(self._untyped)[:6])
        more = f" and {len(self._untyped) - 6} more" if len(self._untyped) > 6 else ""
        where, _ = next(iter(self._untyped.values()))
        message = f"nothing says what is in {sources}{more}: what is read there may be missing"
        self._subject.remark("input-untyped", where, message, HINTS["untyped"])
        if self._sound:
            self._sound = False
            self._subject.proofs.append(Proof(RULE, "unknown", message))


def _tasks_read(use: Use) -> list[str]:
    return sorted(
        {read[1] for read in use.expression.reads if read[0] == "tasks" and len(read) > 1}
    )


def _bare(use: Use) -> frozenset[Read]:
    """Paths that are read as they are: null is as good as anything."""
    paths = simple_paths(use.expression.tree)
    return frozenset(paths or ())


def _line(scope: ScopePlan, node: Node) -> list[tuple[ScopePlan, Node]]:
    line = [(scope, node)]
    while scope.parent is not None:
        node, scope = scope.parent.nodes[scope.owner], scope.parent
        line.append((scope, node))
    return line[::-1]


def _writers(subject: Subject) -> dict[str, list[tuple[ScopePlan, Node]]]:
    found: dict[str, list[tuple[ScopePlan, Node]]] = {}
    for scope in subject.plan.scopes.values():
        for node in scope.nodes.values():
            names = list(node.formulas) if node.type == "transform" else []
            for doing in (*node.on_complete, *node.on_error):
                names += [name for name, _ in doing.set]
            for name in dict.fromkeys(names):
                found.setdefault(name, []).append((scope, node))
    return found


def _required(schema: Any, path: Read) -> bool:
    """The schema says that there is something at that path."""
    root = schema
    for name in path:
        rules = dereference(schema, root)
        if not isinstance(rules, Mapping):
            return False
        known = cast("Mapping[str, Any]", rules)
        if known.get("type") != "object" or name not in known.get("required", ()):
            return False
        schema = cast("Mapping[str, Any]", known.get("properties") or {}).get(name)
    return True


def _without(use: Use, node: Node) -> Goal:
    """The task that uses it has run, and the other did not complete."""

    def goal(stage: Stage) -> Shows | None:
        states = stage.tasks
        ran = states.get(use.target)
        if ran is None or ran.status != "COMPLETED" or "/" in node.path:
            return None
        state = states.get(node.path)
        status = "never" if state is None or state.status == PENDING else state.status
        return None if status == "COMPLETED" else Shows(task=node.path, task_status=status)

    return goal
