"""Bus events that a waiting task takes: made to fit its `where`, as far as that asks for equal values."""

from __future__ import annotations

from typing import Any, cast

from penstock.core.plan import Node
from penstock.core.values import Variables
from penstock.errors import PenstockError
from penstock.expr import tree as t
from penstock.verify.rehearsal import Stage
from penstock.verify.scenario import BusEvent

_ABSENT = object()


def fitting_event(stage: Stage, key: str, node: Node, output: Any) -> BusEvent | None:
    """One that the task takes, or None if none was found; `output` is what it should give if that is free."""
    topic = stage.run.listening.get(key)
    if topic is None:
        return None
    topic = topic.replace("*", "any").replace(">", "any")
    kind = str(node.config.get("type", ""))
    path = key.rpartition("/")[0]
    where = node.formulas["where"]
    seen: dict[str, Any] = {
        "id": "event",
        "topic": topic,
        "type": kind,
        "source": "",
        "run": stage.run.id,
        "data": output,
    }
    here = Variables(stage.flow, path)
    for names, value in _equalities(where.expression.tree, here):
        if names[:2] == ("event", "data"):
            seen["data"] = _put(seen["data"], names[2:], value)
    try:
        if where(Variables(stage.flow, path, {"event": seen})) is not True:
            return None
    except PenstockError:
        return None
    return BusEvent(topic, seen["data"], kind)


def _equalities(node: t.Node, here: Variables) -> list[tuple[tuple[str, ...], Any]]:
    """What must be equal to what, by conjunction."""
    if isinstance(node, t.Logic) and node.operator == "&&":
        return [each for operand in node.operands for each in _equalities(operand, here)]
    if isinstance(node, t.Binary) and node.operator == "==":
        for one, other in ((node.left, node.right), (node.right, node.left)):
            names = _names(one)
            value = _value(other, here)
            if names is not None and names[0] == "event" and value is not _ABSENT:
                return [(names, value)]
    names = _names(node)
    return [(names, True)] if names is not None and names[0] == "event" else []


def _names(node: t.Node) -> tuple[str, ...] | None:
    names: list[str] = []
    while isinstance(node, t.Select):
        names.append(node.field)
        node = node.operand
    return (node.name, *names[::-1]) if isinstance(node, t.Ident) else None


def _value(node: t.Node, here: Variables) -> Any:
    if isinstance(node, t.Literal):
        return node.value
    names = _names(node)
    if names is None or names[0] == "event":
        return _ABSENT
    value: Any = here
    for name in names:
        try:
            value = value[name]
        except (KeyError, TypeError, IndexError):
            return _ABSENT
    return value


def _put(whole: Any, path: tuple[str, ...], value: Any) -> Any:
    if not path:
        return value
    node: dict[str, Any] = dict(cast("dict[str, Any]", whole)) if isinstance(whole, dict) else {}
    node[path[0]] = _put(node.get(path[0]), path[1:], value)
    return node
