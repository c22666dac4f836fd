"""Values worth a try: made of the constants in expressions, without a solver.

What a person would try by hand: each constant, its neighbours, an empty text, a field left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any, cast

from penstock.expr.compile import Expression
from penstock.expr.tree import Has, Literal, Node, children
from penstock.expr.values import INT_MAX, INT_MIN
from penstock.verify.samples import accepts, below, resolve, sample
from penstock.verify.types import TaskType, Types, Values

TRIES_MAX = 1_500
PATHS_MAX = 12
CONSTANTS_MAX = 30
_PER_PATH = 10
_ABSENT: Any = object()


def candidates(expressions: Sequence[Expression], types: Types) -> Iterator[Values]:
    """A bounded number of values, likely ones first."""
    constants = _constants(expressions)
    paths = sorted({read for expression in expressions for read in expression.reads})
    paths = [path for path in paths if path[0] in ("input", "tasks", "data", "global", "item", "iteration", "index")]  # fmt: skip
    if len(paths) > PATHS_MAX:
        return
    options = [_options(path, types, constants[:CONSTANTS_MAX]) for path in paths]
    begun = sample(types.input), sample(types.item), sample(types.data_schema)
    # Where not even a sample fits, what is made of it hardly ever will.
    tries = TRIES_MAX if accepts(types.input, begun[0]) else TRIES_MAX // 30
    for choice in islice(product(*options), tries):
        yield _values(dict(zip(paths, choice, strict=True)), types, begun)


def _constants(expressions: Sequence[Expression]) -> list[Any]:
    found: dict[Any, None] = {}
    for expression in expressions:
        stack: list[Node] = [expression.tree]
        while stack:
            node = stack.pop()
            stack.extend(children(node))
            if isinstance(node, Has):
                continue
            if isinstance(node, Literal) and isinstance(node.value, int | float | str | bool):
                found[(type(node.value), node.value)] = None
    return [value for _, value in found]


def _options(path: tuple[str, ...], types: Types, constants: list[Any]) -> list[Any]:
    if path[0] in ("iteration", "index"):
        numbers = [c for c in constants if type(c) is int]
        return list(dict.fromkeys([types.iteration, *numbers, *(n + 1 for n in numbers)]))[
            :_PER_PATH
        ]
    if path[0] == "tasks" and len(path) > 2 and path[2] == "status":
        return list(types.tasks.get(path[1], TaskType()).statuses)
    schema = _schema_at(path, types)
    found: list[Any] = [sample(schema, schema)] if schema is not None else []
    rules = resolve(schema, schema) if schema is not None else None
    if isinstance(rules, Mapping):
        known = cast("Mapping[str, Any]", rules)
        found += list(known.get("enum") or [])[:_PER_PATH]
        for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if word in known:
                found += [known[word], known[word] + 1, known[word] - 1]
        if known.get("type") == "boolean":
            found += [True, False]
    for constant in constants:
        found.append(constant)
        if type(constant) in (int, float):
            found += [n for n in (constant + 1, constant - 1) if INT_MIN <= n <= INT_MAX]
    found += [0, "", True, False, None, _ABSENT]
    kept: dict[str, Any] = {}
    for option in found:
        kept.setdefault(f"{type(option).__name__} {option!r}", option)
    return list(kept.values())[: _PER_PATH + 6]


def _schema_at(path: tuple[str, ...], types: Types) -> Any:
    rest = path[1:]
    match path[0]:
        case "input":
            schema = types.input
        case "item":
            schema = types.item
        case "data":
            schema = types.data_schema
        case "tasks":
            schema = types.tasks.get(path[1], TaskType()).schema if len(path) > 2 else None
            rest = path[3:]
        case _:
            return None
    return below(schema, rest)


def _values(
    chosen: Mapping[tuple[str, ...], Any], types: Types, begun: tuple[Any, Any, Any]
) -> Values:
    values = Values(iteration=types.iteration)
    values.input, values.item, data = begun  # never changed in place
    values.has_input = True
    values.data, values.has_data = data if isinstance(data, dict) else {}, True
    for path in chosen:
        if path[0] == "tasks" and len(path) > 1:
            _seen(values, path[1], types)
    for path, value in chosen.items():
        match path[0]:
            case "iteration":
                values.iteration = value
            case "index":
                values.index = value
            case "input":
                values.input = _put(values.input, path[1:], value)
            case "item":
                values.item = _put(values.item, path[1:], value)
            case "data":
                values.data = _put(values.data, path[1:], value)
            case "global":
                values.globals = _put(values.globals, path[1:], value)
            case _:
                if len(path) > 2 and value is not _ABSENT:
                    task = values.tasks[path[1]]
                    task[path[2]] = _put(task[path[2]], path[3:], value)
    for task in values.tasks.values():
        if task["status"] != "COMPLETED":
            task["output"] = None
    return values


def _seen(values: Values, id: str, types: Types) -> None:
    known = types.tasks.get(id, TaskType())
    values.tasks.setdefault(
        id,
        {
            "output": sample(known.schema), "status": known.statuses[0], "attempts": 1, "error": None,
        },
    )  # fmt: skip


def _put(into: Any, path: tuple[str, ...], value: Any) -> Any:
    if not path:
        return into if value is _ABSENT else value
    fields: dict[str, Any] = (
        dict(cast("Mapping[str, Any]", into)) if isinstance(into, Mapping) else {}
    )
    if len(path) == 1 and value is _ABSENT:
        fields.pop(path[0], None)
    else:
        fields[path[0]] = _put(fields.get(path[0]), path[1:], value)
    return fields
