"""Uses: every place of a definition where something is read that may not be there, as an expression (SPEC 3.6).

An input with a plain path is the expression that reads the same. Conditions of links are not here: they are branches
(SPEC 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

from msgspec import UNSET

from penstock.core.plan import Formula, Guard, Input, Node, Plan, ScopePlan, Value, environment
from penstock.dsl.derive import RULES
from penstock.dsl.finding import Path
from penstock.errors import ExpressionError
from penstock.expr.compile import Expression, compile_expression
from penstock.expr.template import compile_template
from penstock.expr.tree import (
    Binary,
    Has,
    ListLiteral,
    Logic,
    Unary,
)
from penstock.expr.tree import Literal as Constant
from penstock.expr.tree import Node as Tree
from penstock.expr.typecheck import Environment
from penstock.verify.cases import Read
from penstock.verify.scopes import place
from penstock.verify.sets import FIXED, parts_of
from penstock.verify.substitution import plain_path
from penstock.verify.tables import AGENDA, HOLD, ours, whens

Counted = Literal["", "duration", "moment"]
FALLIBLE = frozenset({"activity", "http", "subworkflow"})
"""Tasks that may fail whatever is known of them."""

COUNTED: Mapping[tuple[str, str], Counted] = {
    ("timer", "delay"): "duration", ("timer", "until"): "moment", ("signal", "timeout"): "duration",
    ("event", "timeout"): "duration", ("form", "due"): "duration",
}  # fmt: skip
"""By type and field."""


@dataclass(frozen=True, slots=True)
class Use:
    """One thing that is evaluated, and what fails if it does."""

    scope: ScopePlan
    node: Node
    where: Path
    what: str
    """In words."""
    expression: Expression
    code: str
    """Of the failure: `input-missing` or `expression-failed`."""
    target: str
    """Static path of the task that fails; empty: the run."""
    conditions: tuple[Guard, ...] = ()
    """What held just before."""
    whole: bool = False
    """An input without a path: null where there is nothing."""
    final: bool = False
    """Asked when the run is over."""
    defaulted: bool = False
    decides: bool = False
    """It must come to true or false."""
    ended: bool = False
    """Asked once the task is over."""
    failed: bool = False
    """Asked once the task has failed."""
    counts: Counted = ""
    """The engine must read it as such."""
    alone: bool = True
    """There is no text around it."""


def uses(plan: Plan) -> Iterator[Use]:
    env = environment(plan.definition)
    table = plan.definition.orchestration == "rule"
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            if node.loop is None:
                yield from _of_task(
                    scope, node, env, plan if table and scope.path == RULES else None
                )
    ends = plan.root.ends
    for name, formula in (plan.outputs or {}).items():
        where = ("outputs", name)
        yield Use(
            plan.root, ends[0], where, f"output `{name}`", formula.expression, "expression-failed", "",
            final=True,
        )  # fmt: skip


def _of_task(scope: ScopePlan, node: Node, env: Environment, table: Plan | None) -> Iterator[Use]:
    held: list[Guard] = []
    at = place(scope, node.id)
    for where, moment, part in parts_of(node, at):
        field = where[len(at)]
        failed = field == "onError"
        if failed and node.type not in FALLIBLE:
            continue  # what makes it fail is found elsewhere, or an operator's doing
        make = partial(
            Use, scope, node, target=node.path, conditions=tuple(held), ended=moment == "end", failed=failed
        )  # fmt: skip
        words = f"`{where[-1]}` of `{node.path}`"
        match part:
            case Guard():
                if field == "conditions":
                    words = f"a condition of `{node.path}`"
                    held.append(part)
                yield make(where, words, part.expression, "expression-failed", decides=True)
            case Formula() if table is not None and node.id == AGENDA and where[-1] == HOLD:
                yield from _of_table(table, scope, make)
            case Formula() if table is not None and ours(table, part):
                pass  # ours: flags of the table
            case Formula():
                yield make(where, words, part.expression, "expression-failed")
            case Input():
                undo = field == "compensate"
                yield from _of_input(node, where, part, make, env, undo=undo)
            case Value():
                text = _written(node, where, config=field == "config")
                counts = COUNTED.get((node.type, str(where[-1])), "") if field == "config" else ""
                alone = _alone(text)
                for inside, expression in _embedded(text, where, env):
                    yield make(
                        inside, words, expression, "expression-failed", counts=counts, alone=alone
                    )
            case _:
                pass


def set_before(use: Use, name: str) -> bool:
    """The task has set that key itself when this part of it is asked."""
    for where, _, part in parts_of(use.node, place(use.scope, use.node.id)):
        if where == use.where[: len(where)]:
            return False
        if "set" in where[-2:-1] and where[-1] == name and isinstance(part, Formula):
            return True
    return False


def _of_table(plan: Plan, scope: ScopePlan, make: Callable[..., Use]) -> Iterator[Use]:
    """The conditions of a table of rules, each where it stands."""
    for number, condition in enumerate(whens(plan).values(), 1):
        name = f"{RULES}_{number}"
        where = (*place(scope, name), "when")
        yield make(where, f"`when` of `{scope.path}/{name}`", condition, "expression-failed")


def _written(node: Node, where: Path, *, config: bool) -> Any:
    """The text of a config field or of an action."""
    if config:
        return node.config[str(where[-1])]
    actions = node.task.on_error if where[-3] == "onError" else node.task.on_complete
    return getattr(actions[int(where[-2])], str(where[-1]))


def _of_input(
    node: Node, where: Path, given: Input, make: Callable[..., Use], env: Environment, *, undo: bool
) -> Iterator[Use]:
    words = f"input `{given.name}` of `{node.path}`"
    if given.template is not None:
        inputs = node.task.inputs
        if undo and node.task.compensate is not None:
            inputs = node.task.compensate.inputs or {}
        text = inputs[given.name].template
        for at, expression in _embedded(text, (*where, "template"), env):
            yield make(at, words, expression, "expression-failed")
        return
    if given.source is None or given.source in ("index", "iteration"):
        return
    text = source_text(given)
    if text is None:
        return
    whole, at = given.path is None, where if given.path is None else (*where, "path")
    defaulted = given.default is not UNSET
    yield make(at, words, compile_expression(text), "input-missing", whole=whole, defaulted=defaulted)  # fmt: skip


def source_text(given: Input) -> str | None:
    """The expression that reads what the input reads; None for a path that gives a list, which may be empty."""
    assert given.source is not None
    special = given.source in (*FIXED, "data", "global")
    root = given.source if special else f'tasks["{given.source}"].output'
    if given.path is None:
        return root
    if not given.path.singular or not given.path.plain:
        return None
    return root + "".join(
        f'["{part}"]' if isinstance(part, str) else f"[{part}]" for part in given.path.plain
    )


def _alone(text: Any) -> bool:
    """It is one `${…}` and nothing else, and gives the value itself."""
    if not isinstance(text, str) or "${" not in text:
        return True
    try:
        return len(compile_template(text, None).parts) == 1
    except ExpressionError:
        return True


def _embedded(value: Any, where: Path, env: Environment) -> Iterator[tuple[Path, Expression]]:
    if isinstance(value, str):
        if "${" in value:
            try:
                template = compile_template(value, env)
            except ExpressionError:
                return
            for part in template.parts:
                if isinstance(part, Expression):
                    yield where, part
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _embedded(inner, (*where, name), env)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _embedded(inner, (*where, index), env)


def simple_paths(node: Tree) -> list[Read] | None:
    """What an expression reads that can fail for no other reason than that a path is not there; None for any other."""
    match node:
        case Constant():
            return []
        case Logic():
            return None
        case Unary(operator="!"):
            return None
        case Binary(operator="==" | "!="):
            return _all([node.left, node.right])
        case ListLiteral():
            if any(item.optional for item in node.items):
                return None
            return _all([item.value for item in node.items])
        case Has():
            path = plain_path(node.operand)
            return None if path is None else [path]
        case _:
            path = plain_path(node)
            return None if path is None else [path]


def _all(nodes: list[Tree]) -> list[Read] | None:
    found: list[Read] = []
    for node in nodes:
        paths = simple_paths(node)
        if paths is None:
            return None
        found += paths
    return found
