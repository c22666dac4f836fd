"""Merging: what the `merge` of a key of the run's data comes to at each task that writes it, as uses (SPEC 2.6, 3.6);
and whether it comes to the same in either order (3.5).

`current` is what the key holds, and `value` what is written: with both put in, a merge is an expression like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from penstock.core.plan import Formula, Guard, environment
from penstock.errors import ExpressionError
from penstock.expr.compile import Expression
from penstock.expr.tree import (
    Binary,
    Bind,
    Comprehension,
    Ident,
    Index,
    Literal,
    Select,
    children,
)
from penstock.expr.tree import Node as Tree
from penstock.expr.typecheck import Environment, check
from penstock.verify.data import Writer
from penstock.verify.inference import either, kinds
from penstock.verify.knowledge import Knowledge, knowledge_of
from penstock.verify.solver import Ask, Impossible
from penstock.verify.substitution import replaced, substituted
from penstock.verify.types import Types
from penstock.verify.uses import Use
from penstock.verify.verification import Subject


def merges(subject: Subject, knowledge: Knowledge) -> Iterator[Use]:
    env = knowledge.environment
    for name, merge in subject.plan.merges.items():
        writers = knowledge.data.writers.get(name, [])
        if not isinstance(merge, Formula) or not writers:
            continue
        current = Index(0, Ident(0, "data"), Literal(0, name))
        held = (Guard(f'data["{name}"] != null', env),) if _never_null(knowledge, name) else ()
        for writer in writers:
            yield Use(
                writer.scope, writer.node, ("data", name, "merge"), f"`merge` of `{name}`, at `{writer.node.path}`,",
                _filled(merge.expression, writer, current, knowledge), "expression-failed", writer.node.path,
                conditions=held, ended=writer.node.type != "transform" and not writer.failed, failed=writer.failed,
            )  # fmt: skip


def _filled(merge: Expression, writer: Writer, current: Tree, knowledge: Knowledge) -> Expression:
    """Unchanged, and so not known, where a variable of its own hides what is put in."""
    stack = [merge.tree]
    while stack:
        node = stack.pop()
        stack.extend(children(node))
        names: set[str | None] = set()
        if isinstance(node, Bind):
            names = {node.variable}
        elif isinstance(node, Comprehension):
            names = {node.variable, node.second}
        if names & {"current", "value"} or any(name and (name,) in _roots(writer) for name in names):  # fmt: skip
            return merge
    formulas = {("current",): current, ("value",): writer.expression.tree}
    return substituted(merge, formulas, knowledge.environment)


def _roots(writer: Writer) -> set[tuple[str]]:
    return {(read[0],) for read in writer.expression.reads}


def _never_null(knowledge: Knowledge, name: str) -> bool:
    """Nothing that is written, or comes of merging, is null: what was there from the start, and is null, is not merged."""
    given = [knowledge.data.written(each) for each in knowledge.data.writers[name]]
    found = [kinds(each) for each in (*given, knowledge.data.merged(name))]
    return all(each is not None and "null" not in each for each in found)


_EXACT = {"integer", "boolean", "string", "null"}
"""Types of which the solver's arithmetic is that of runs: sums of doubles depend on their order."""


def commutes(subject: Subject, name: str) -> bool | None:
    """Proved: merging two of the values that are written there comes to the same in either order, numbers of any size.

    None if nothing, or too little, is known of those values.
    """
    knowledge, merge = knowledge_of(subject), subject.plan.merges[name]
    held = knowledge.data.types.get(name)
    value = either([knowledge.data.written(each) for each in knowledge.data.writers.get(name, [])])  # fmt: skip
    if not (_exact(held) and _exact(value)):
        return None
    schema = {
        "type": "object", "required": ["held", "one", "other"],
        "properties": {"held": held, "one": value, "other": value},
    }  # fmt: skip
    env = environment(replace(subject.definition, input_schema=schema))
    first, second = (_twice(merge.expression, *names) for names in (("one", "other"), ("other", "one")))  # fmt: skip
    if first is None or second is None:
        return False
    try:
        same, well, badly = (_equal(*pair, env) for pair in ((first, second), (first, first), (second, second)))  # fmt: skip
    except ExpressionError:
        return False
    asks: list[list[Ask]] = [[(same, False)], [(well, True), (badly, "error")]]
    types, solver = Types(env, input=schema, unbounded=True), subject.solver()
    return all(isinstance(solver.solve(each, types), Impossible) for each in asks)


def _exact(schema: Any) -> bool:
    found = kinds(schema)
    return found is not None and found <= _EXACT


def _twice(merge: Expression, one: str, other: str) -> Tree | None:
    """What is held, merged with one and then with the other."""
    if any(isinstance(node, Bind | Comprehension) for node in _parts(merge.tree)):
        return None
    held, first, second = (Select(0, Ident(0, "input"), each) for each in ("held", one, other))
    once = replaced(merge.tree, {("current",): held, ("value",): first})
    return None if once is None else replaced(merge.tree, {("current",): once, ("value",): second})


def _parts(tree: Tree) -> Iterator[Tree]:
    stack = [tree]
    while stack:
        node = stack.pop()
        stack.extend(children(node))
        yield node


def _equal(left: Tree, right: Tree, env: Environment) -> Expression:
    """Of a value and itself: whether there is one."""
    tree, text = Binary(0, "==", left, right), "both are merged"
    return Expression(text, tree, check(text, tree, env))
