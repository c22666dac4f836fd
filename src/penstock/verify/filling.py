"""Filling: values for inputs and outputs of which only a part is wanted, made whole so that nothing fails for want of more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from penstock.core.plan import Formula, Guard, Input, Node, Plan, ScopePlan, Value
from penstock.expr.tree import Literal, children
from penstock.expr.tree import Node as Tree
from penstock.expr.values import INT_MAX, INT_MIN
from penstock.verify.cases import ABSENT, Read, Values, unique
from penstock.verify.samples import accepts, resolve, sample
from penstock.verify.scopes import map_around
from penstock.verify.substitution import plain_path
from penstock.verify.tables import ours

CONSTANTS_MAX = 400
FIRST = "[0]"
"""In a path: the first element of a list."""


def guesses_of(plan: Plan) -> Values:
    """Something for everything that is read anywhere, so that nothing fails for want of it."""
    found: Values = {}
    items: set[Read] = set()
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            for read in reads_of(node):
                found.setdefault(read, 1)
            if node.type == "map":
                items |= set(node.formulas["items"].expression.reads)
                items |= set(_in_items(scope, node))
            for given in (*node.inputs, *(node.undo_inputs or ())):
                if given.source is not None and given.path is not None:
                    read = _source(given)
                    if read is not None:
                        found.setdefault(read, 1)
    for formula in (plan.outputs or {}).values():
        for read in formula.expression.reads:
            found.setdefault(read, 1)
    for read in sorted(items, key=lambda read: (len(read), read)):
        found[read] = [1]
    return found


def _in_items(scope: ScopePlan, node: Node) -> Iterator[Read]:
    """Lists inside of the items of a map that another map goes through, as paths from outside."""
    path = plain_path(node.formulas["items"].expression.tree)
    body = map_around(scope)
    rest: Read = ()
    while path is not None and path[0] == "item" and body is not None and body.parent is not None:
        rest = (FIRST, *path[1:], *rest)
        owner = body.parent.nodes[body.owner]
        path = plain_path(owner.formulas["items"].expression.tree)
        body = map_around(body.parent)
    if rest and path is not None and path[0] != "item":
        yield (*path, *rest)


def constants_of(plan: Plan) -> list[Any]:
    """What expressions of the definition compare with, and what lies beside it; null and truth too."""
    found: list[Any] = []
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            parts = [out.edge.guard for out in node.outs if out.edge.guard is not None]
            for part in (*parts, *node.conditions, *node.formulas.values()):
                if ours(plan, part):
                    continue
                stack: list[Tree] = [part.expression.tree]
                while stack and len(found) < CONSTANTS_MAX:
                    each = stack.pop()
                    stack.extend(children(each))
                    if isinstance(each, Literal) and not isinstance(each.value, bytes):
                        found.append(each.value)
    numbers = [n for n in found if isinstance(n, int | float) and not isinstance(n, bool)]
    beside = [n + more for more in (1, -1) for n in numbers]
    found += [None, True, False, "other", *(n for n in beside if INT_MIN <= n <= INT_MAX)]
    return unique(found)


def reads_of(node: Node) -> Iterator[Read]:
    parts: list[Any] = [*node.conditions, *node.formulas.values(), *node.values.values()]
    parts += [out.edge.guard for out in node.outs if out.edge.guard is not None]
    parts += [given.template for given in node.inputs if given.template is not None]
    for doing in (*node.on_complete, *node.on_error):
        parts += [formula for _, formula in doing.set]
        parts += [] if doing.value is None else [doing.value]
    for part in parts:
        if isinstance(part, Guard | Formula):
            yield from part.expression.reads
        elif isinstance(part, Value):
            yield from part.reads


def _source(given: Input) -> Read | None:
    """Where an input with a simple path is read."""
    assert given.path is not None
    text = given.path.text
    if not text.startswith("$") or any(c in text for c in "[*?@'\""):
        return None
    names = tuple(text.lstrip("$").strip(".").split("."))
    root = ("input",) if given.source == "input" else ("tasks", given.source or "", "output")
    return (*root, *(name for name in names if name))


def filled(schema: Any, guesses: Values, values: Values, root: Read) -> Any:
    """What is wanted at a place, made whole by guesses and by what its schema asks for."""
    made: Any = None if schema is None else _whole(schema, guesses, root)
    for chosen, sure in ((guesses, schema is None), (values, True)):
        if not sure:
            continue
        for read, value in sorted(chosen.items(), key=lambda item: len(item[0])):
            if read[: len(root)] == root:
                made = _put(made, read[len(root) :], value)
    return made


def _whole(schema: Any, guesses: Values, root: Read) -> Any:
    """A sample in which all that is read anywhere is there, and no list that a map goes through is empty."""
    made = sample(schema)
    for read, value in guesses.items():
        if read[: len(root)] == root and not _there(made, read[len(root) :], value):
            made = _fuller(schema, made, read[len(root) :], items=isinstance(value, list))
    return made


def _there(made: Any, path: Read, value: Any) -> bool:
    """Something is at that path; an empty list is nothing where a list is gone through."""
    for name in path:
        if name == FIRST and isinstance(made, list) and made:
            made = cast("list[Any]", made)[0]
            continue
        if not isinstance(made, dict) or name not in made:
            return False
        made = cast("dict[str, Any]", made)[name]
    return not isinstance(value, list) or made != []


def _fuller(schema: Any, made: Any, path: Read, *, items: bool) -> Any:
    """The same with something at that path, if the schema has anything to say of it and accepts it."""
    rules: Any = schema
    words = [word for name in path for word in (("items",) if name == FIRST else ("properties", name))]  # fmt: skip
    for word in (*words, *(("items",) if items else ())):
        rules = resolve(rules, schema)
        rules = cast("dict[str, Any]", rules).get(word) if isinstance(rules, dict) else None
    if rules is None and not items:
        return made
    one = sample(rules, schema)
    fuller = _put(made, path, [one] if items else one)
    return fuller if accepts(schema, fuller) else made


def _put(whole: Any, path: Read, value: Any) -> Any:
    if not path:
        return None if value is ABSENT else value
    if path[0] == FIRST:
        elements = cast("list[Any]", whole) if isinstance(whole, list) else []
        return [_put(elements[0] if elements else None, path[1:], value), *elements[1:]]
    node: dict[str, Any] = dict(cast("dict[str, Any]", whole)) if isinstance(whole, dict) else {}
    if len(path) == 1 and value is ABSENT:
        node.pop(path[0], None)
    else:
        node[path[0]] = _put(node.get(path[0]), path[1:], value)
    return node
