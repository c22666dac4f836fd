"""Which tasks are read by what is still ahead of a run (SPEC 3.8): expressions, inputs, conditions, results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.core.plan import Doing, Formula, Guard, Node, Plan, ScopePlan, Value

Reads = Iterable[tuple[str, ...]]


def reads_ahead(
    plan: Plan, scope: ScopePlan, wanted: set[str], ended: set[str]
) -> Iterator[tuple[str, str]]:
    """Each of `wanted`, tasks of the scope, with somebody who will read it and is not in `ended`."""
    for id, node in scope.nodes.items():
        if id not in ended:
            yield from _by_node(node, wanted, f"`{node.path}`")
    yield from _by_results(scope, wanted, plan.outputs is None)
    cursor = scope
    while cursor.parent is not None:
        owner = cursor.parent.nodes[cursor.owner]
        yield from _told(_own(owner), wanted, f"`{owner.path}`")
        if cursor.kind != "natural":
            return  # what is outside does not see into a body
        cursor = cursor.parent
        for node in cursor.nodes.values():
            if node is not owner:
                yield from _by_node(node, wanted, f"`{node.path}`")
        yield from _by_results(cursor, wanted, plan.outputs is None)
    for name, formula in (plan.outputs or {}).items():
        yield from _told(_of(formula), wanted, f"output `{name}`")


def _by_results(scope: ScopePlan, wanted: set[str], plain: bool) -> Iterator[tuple[str, str]]:
    if scope.kind != "run" or plain:
        for id in scope.results:
            if id in wanted:
                yield id, "the result"


def _by_node(node: Node, wanted: set[str], reader: str) -> Iterator[tuple[str, str]]:
    """The task itself, its links, and all that is inside it."""
    yield from _told(_own(node), wanted, reader)
    for given in (*node.inputs, *(node.undo_inputs or ())):
        if given.source in wanted:
            yield given.source, reader
    for out in node.outs:
        if out.edge.guard is not None:
            yield from _told(_of(out.edge.guard), wanted, f"link {out.edge.name}")
    inner = node.body or node.loop
    if inner is not None:
        hidden = (
            wanted if inner.kind == "natural" else wanted - inner.nodes.keys() - inner.inner.keys()
        )
        for each in inner.nodes.values():
            yield from _by_node(each, hidden, f"`{each.path}`")


def _told(reads: Reads, wanted: set[str], reader: str) -> Iterator[tuple[str, str]]:
    for path in reads:
        if path[0] != "tasks":
            continue
        if len(path) == 1:  # by a computed name: it may be any
            yield from ((id, reader) for id in sorted(wanted))
        elif path[1] in wanted:
            yield path[1], reader


def _own(node: Node) -> Iterator[tuple[str, ...]]:
    for guard in node.conditions:
        yield from _of(guard)
    for given in (*node.inputs, *(node.undo_inputs or ())):
        if given.template is not None:
            yield from given.template.reads
    for each in (*node.formulas.values(), *node.values.values()):
        yield from _of(each)
    for doing in (*node.on_complete, *node.on_error):
        yield from _done(doing)
    if node.key is not None:
        yield from _of(node.key)


def _done(doing: Doing) -> Iterator[tuple[str, ...]]:
    for _, formula in doing.set:
        yield from _of(formula)
    if doing.value is not None:
        yield from _of(doing.value)


def _of(each: Guard | Formula | Value) -> Reads:
    return each.reads if isinstance(each, Value) else each.expression.reads
