"""Escapes: ways on which a task does not complete, though others go on: it is skipped, fails, or no link leads to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.plan import Edge, Guard, Node, ScopePlan
from penstock.verify.certain import terminating
from penstock.verify.sets import Order


@dataclass(frozen=True, slots=True)
class Escape:
    """A way on which a task does not complete: what conditions come to, and which task fails."""

    words: str
    asks: tuple[tuple[Guard, bool], ...] = ()
    failed: str = ""
    spared: str = ""
    """A task that is not over yet, though it may be."""


def not_done(node: Node) -> Iterator[Escape]:
    """It is reached, and does not complete."""
    for guard in node.conditions:
        yield Escape(f"where `{node.id}` is skipped: `{guard.text}` does not hold", ((guard, False),))  # fmt: skip
    if node.type == "loop" and "while" in node.formulas:
        yield Escape(f"where `{node.id}` makes no pass", ((node.formulas["while"], False),))
    yield from fails(node)


def fails(node: Node) -> Iterator[Escape]:
    if any(out.edge.on != "success" for out in node.outs) and node.loop is None:
        yield Escape(f"where `{node.id}` fails", failed=node.id)


def ended_before(order: Order, node: Node) -> Iterator[Escape]:
    """Ends that do not wait for it."""
    for end in terminating(order.scope):
        if not order.leads(node.id, end.id):
            words = f"where `{end.id}` ends the run before `{node.id}` is over"
            for edge in end.arrivals:
                asks = () if edge.guard is None else ((edge.guard, True),)
                yield Escape(words, asks, spared=node.id)


def dead(scope: ScopePlan, edge: Edge) -> Iterator[Escape]:
    """Ways to let that link not be taken."""
    source = scope.nodes.get(edge.source)
    words = f"where the link `{edge.name}` is not taken"
    if edge.on == "error":
        yield Escape(f"where `{edge.source}` does not fail")
    if source is not None and source.gateway == "exclusive":
        default = source.config.get("default")
        for out in source.outs:
            other = out.edge
            if other is edge and default != edge.target:
                break
            if other is not edge and other.guard is not None and other.target != default:
                yield Escape(words, ((other.guard, True),))
    if edge.guard is not None:
        yield Escape(words, ((edge.guard, False),))
