"""Merging: what the `merge` of a key of the run's data comes to at each task that writes it, as uses (SPEC 2.6, 3.6).

`current` is what the key holds, and `value` what is written: with both put in, a merge is an expression like any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.plan import Formula, Guard
from penstock.expr.compile import Expression
from penstock.expr.tree import Bind, Comprehension, Ident, Index, Literal, children
from penstock.expr.tree import Node as Tree
from penstock.verify.data import Writer
from penstock.verify.inference import kinds
from penstock.verify.knowledge import Knowledge
from penstock.verify.substitution import substituted
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
    given = [knowledge.data.given(each.expression) for each in knowledge.data.writers[name]]
    found = [kinds(each) for each in (*given, knowledge.data.merged(name))]
    return all(each is not None and "null" not in each for each in found)
