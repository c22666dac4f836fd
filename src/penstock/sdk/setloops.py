"""Loops over sets that want steps: the order of a set of texts is another in each process (SPEC 2.8).

A look at the source, for the guard of tests: which lines of a file loop over something that may be a set and await, or ask
the Context, inside. What it is that they loop over is for the guard to see when it comes there.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from typing import Any

_MAKERS = ("set", "frozenset")
_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)


@dataclass(frozen=True)
class Loop:
    """One loop, at the line where it begins."""

    code: str
    """What it loops over, as it was written."""
    compiled: Any


@functools.lru_cache(maxsize=256)
def loops_in(file: str) -> dict[int, Loop]:
    """By line; empty where there is no source to read."""
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[int, Loop] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.AsyncFunctionDef):
            for node in ast.walk(function):
                for over, line in _loops(node):
                    found[line] = Loop(
                        ast.unparse(over), compile(ast.Expression(over), "<loop>", "eval")
                    )
    return found


def _loops(node: ast.AST) -> list[tuple[ast.expr, int]]:
    match node:
        case ast.For() if any(map(_waits, node.body)) and _plain(node.iter):
            return [(node.iter, node.lineno)]
        case ast.ListComp() | ast.GeneratorExp():
            if _waits(node.elt):
                return [
                    (each.iter, each.iter.lineno) for each in node.generators if _plain(each.iter)
                ]
        case _:
            pass
    return []


def _waits(node: ast.AST) -> bool:
    """Steps are wanted there: something is awaited, or asked of the Context."""
    return any(
        isinstance(each, ast.Await) or (isinstance(each, ast.Name) and each.id == "ctx")
        for each in ast.walk(node)
    )


def _plain(node: ast.expr) -> bool:
    """It can be looked at a second time without doing anything: names, attributes, sets of these, and what is made of sets."""
    match node:
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute():
            return _plain(node.value)
        case ast.Set():
            return all(map(_plain, node.elts))
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return name in _MAKERS and all(map(_plain, node.args))
        case ast.BinOp():
            return isinstance(node.op, _OPERATORS) and _plain(node.left) and _plain(node.right)
        case _:
            return False


def disordered(loop: Loop, names: dict[str, Any], around: dict[str, Any]) -> bool:
    """It loops over a set whose order depends on the process."""
    try:
        value = eval(loop.compiled, {**around, **names})
    except Exception:  # a name that is not there yet
        return False
    if not isinstance(value, set | frozenset) or len(value) < 2:  # pyright: ignore[reportUnknownArgumentType]
        return False
    return not all(isinstance(each, int | float) for each in value)  # pyright: ignore[reportUnknownVariableType]
