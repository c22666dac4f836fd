"""Substitution: an expression with the formulas in it of what was computed before; and what a plain path is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from penstock.expr.compile import Expression
from penstock.expr.language import Foreign
from penstock.expr.tree import (
    Bind,
    Comprehension,
    Has,
    Ident,
    Index,
    Literal,
    Node,
    Select,
    children,
)
from penstock.expr.typecheck import check

Read = tuple[str, ...]
_ROOTS = frozenset({"input", "tasks", "data", "item", "index", "iteration"})


def plain_path(node: Node) -> Read | None:
    """`a.b["c"]` as a path; None if it is anything else."""
    keys: list[str] = []
    while True:
        match node:
            case Select(optional=False):
                keys.append(node.field)
                node = node.operand
            case Index(optional=False, key=Literal(value=str() as key)):
                keys.append(key)
                node = node.operand
            case Ident():
                return (node.name, *reversed(keys))
            case _:
                return None


def substituted(expression: Expression, formulas: Mapping[Read, Node], env: Any) -> Expression:
    if isinstance(expression, Foreign) or not formulas:
        return expression  # only its plugin knows what it says
    if not any(read[: len(f)] == f for read in expression.reads for f in formulas):
        return expression
    tree = replaced(expression.tree, formulas)
    if tree is None:
        return expression
    try:
        return Expression(expression.text, tree, check(expression.text, tree, env))
    except Exception:  # what does not fit together is left as it was written: less is known of it
        return expression


def replaced(tree: Node, formulas: Mapping[Read, Node]) -> Node | None:
    """None where a loop variable hides what is read."""
    stack = [tree]
    while stack:
        node = stack.pop()
        stack.extend(children(node))
        if isinstance(node, Bind) and node.variable in _ROOTS:
            return None
        if isinstance(node, Comprehension) and {node.variable, node.second} & _ROOTS:
            return None
    return _rewrite(tree, formulas)


def _rewrite(value: Any, formulas: Mapping[Read, Node]) -> Any:
    if isinstance(value, Has):
        path = plain_path(Select(value.position, value.operand, value.field))
        if path is not None and path in formulas:
            return Literal(value.position, True)
    if isinstance(value, Ident | Select | Index):
        path = plain_path(value)
        if path is not None and path in formulas:
            return formulas[path]
    if isinstance(value, tuple):
        return tuple(_rewrite(part, formulas) for part in cast("tuple[Any, ...]", value))
    if hasattr(value, "__dataclass_fields__"):
        parts = {
            name: _rewrite(getattr(value, name), formulas)
            for name in value.__dataclass_fields__
            if name not in ("position", "value") or not isinstance(value, Literal)
        }
        return replace(value, **{k: v for k, v in parts.items() if v is not getattr(value, k)})
    return value
