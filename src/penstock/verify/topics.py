"""Topics: what a task publishes to is a topic, and what it waits for a pattern of topics, whatever expressions come to
(SPEC 3.6, 7.1).

One that is computed is known to be a topic only where a schema lists its values. Where a schema lets it be any text, a
run that publishes to `a b` shows that it need not be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product
from typing import Any, cast

from penstock.core.plan import Node, ScopePlan, environment
from penstock.dsl.finding import Path
from penstock.errors import ExpressionError
from penstock.expr.compile import Expression
from penstock.expr.template import Template, compile_template
from penstock.expr.tree import Binary, Literal
from penstock.expr.typecheck import check
from penstock.policy.topics import is_pattern, is_topic
from penstock.verify.driving import failing
from penstock.verify.knowledge import Knowledge, Known, Moment
from penstock.verify.playing import Player
from penstock.verify.samples import below, resolve
from penstock.verify.scenario import Scenario
from penstock.verify.scopes import place
from penstock.verify.solver import Solution, Solver
from penstock.verify.substitution import plain_path
from penstock.verify.verification import Subject

RULE = "3.6"
CODE = "topic-invalid"
WRONG = "a b"
VALUES_MAX = 1_000
"""Topics that are tried of one that is computed from listed values."""
HINT = "list the values it can have in a schema (`enum`), or choose between written topics by a gateway"


def check_topics(subject: Subject, knowledge: Knowledge, player: Player, solver: Solver) -> bool:
    """Whether all that is published to, or waited for, is surely a topic."""
    sound = True
    for scope in subject.plan.scopes.values():
        for node in scope.nodes.values():
            for where, text, moment in _computed(scope, node):
                sound = _Topic(subject, knowledge, scope, node).check(where, text, moment, player, solver) and sound  # fmt: skip
    return sound


def _computed(scope: ScopePlan, node: Node) -> Iterator[tuple[Path, str, Moment]]:
    at = place(scope, node.id)
    found: list[tuple[Path, Any, Moment]] = []
    if node.type in ("publish", "event") and node.added is None:
        found.append(((*at, "config", "topic"), node.config.get("topic"), "begun"))
    actions = (("onComplete", node.task.on_complete, "ended"), ("onError", node.task.on_error, "failed"))  # fmt: skip
    for field, doings, moment in actions:
        for index, action in enumerate(doings):
            if action.publish is not None:
                where = (*at, field, index, "publish", "topic")
                found.append((where, action.publish.get("topic"), cast("Moment", moment)))
    for where, text, moment in found:
        if isinstance(text, str) and "${" in text:
            yield where, text, moment


class _Topic:
    def __init__(
        self, subject: Subject, knowledge: Knowledge, scope: ScopePlan, node: Node
    ) -> None:
        self._subject, self._knowledge = subject, knowledge
        self._scope, self._node = scope, node

    def check(self, where: Path, text: str, moment: Moment, player: Player, solver: Solver) -> bool:
        try:
            template = compile_template(text, environment(self._subject.definition))
        except ExpressionError:
            return True  # told already
        parts = [part for part in template.parts if isinstance(part, Expression)]
        known = {id(part): self._known(part, moment) for part in parts}
        waits = self._node.type == "event" and where[-2:] == ("config", "topic")
        wrong = _wrong(template, known, is_pattern if waits else is_topic)
        if wrong is not None and not wrong:
            return True
        for part in parts:
            for value in dict.fromkeys([WRONG, *(wrong or {}).get(id(part), [])]):
                scenario = self._shown(part, value, known[id(part)], player, solver)
                if scenario is not None:
                    message = f"the topic `{text}` of `{self._node.path}` need not be one: `{part.text}` may be `{value}`"
                    self._subject.refute(RULE, CODE, where, message, scenario, HINT)
                    return False
        does = "waits for" if waits else "publishes to"
        message = f"nothing says that `{text}`, which `{self._node.path}` {does}, is a topic"
        self._subject.doubt(RULE, CODE, where, message, HINT)
        return False

    def _known(self, part: Expression, moment: Moment) -> Known:
        return self._knowledge.amid(self._scope, self._node, part, moment)

    def _shown(
        self, part: Expression, value: str, known: Known, player: Player, solver: Solver
    ) -> Scenario | None:
        """A run in which it comes to that; none where nothing is known of what it reads."""
        if not all(self._knowledge.typed(read, known) for read in part.reads):
            return None
        expression = self._knowledge.expression(part, known)
        tree = Binary(0, "==", expression.tree, Literal(0, value))
        text = f"({expression.text}) == {value!r}"
        try:
            checked = check(text, tree, known.types.environment)
        except ExpressionError:
            return None
        asks = [*known.asks, *self._knowledge.implied(self._scope, part)]
        answer = solver.solve([*asks, (Expression(text, tree, checked), True)], known.types)
        if not isinstance(answer, Solution):
            return None
        goal = failing(CODE, self._node.path)
        return player.show(self._subject.driver, self._node, part.reads, answer, goal)


def _wrong(
    template: Template, known: Mapping[int, Known], fits: Callable[[str], bool]
) -> dict[int, list[str]] | None:
    """By part, values that make it no topic; empty: there are none; None: not all its values are listed."""
    listed: list[list[str]] = []
    for part in template.parts:
        values = [part] if isinstance(part, str) else _listed(part, known[id(part)])
        if values is None:
            return None
        listed.append(values)
    found: dict[int, list[str]] = {}
    chosen = list(islice(product(*listed), VALUES_MAX + 1))
    if len(chosen) > VALUES_MAX:
        return None
    for texts in chosen:
        if not fits("".join(texts)):
            for part, text in zip(template.parts, texts, strict=True):
                if isinstance(part, Expression):
                    found.setdefault(id(part), []).append(text)
    return found


def _listed(part: Expression, known: Known) -> list[str] | None:
    """All texts that a plain path can give, if its schema lists them."""
    path = plain_path(part.tree)
    schema: Any = None
    match path:
        case ("input", *rest):
            schema = known.types.input
        case ("data", *rest):
            schema = known.types.data
        case ("item", *rest):
            schema = known.types.item
        case ("tasks", str(id), "output", *rest):
            task = known.types.tasks.get(id)
            schema = None if task is None else task.schema
        case _:
            return None
    rules = resolve(below(schema, rest), schema)
    if not isinstance(rules, Mapping):
        return None
    found = cast("Mapping[str, Any]", rules)
    values: list[Any] = [found["const"]] if "const" in found else list(found.get("enum") or ())
    return values if values and all(isinstance(value, str) for value in values) else None
