"""`map`: its body once per item, at most `limit` at a time; items are numbered from 0 (SPEC 2.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from penstock.core.values import Fault
from penstock.model.failure import Failure
from penstock.model.run import RUNNING, MapState

if TYPE_CHECKING:
    from penstock.core.flow import Flow
    from penstock.core.plan import Node
    from penstock.model.run import Letter, Scope, TaskState


def begin_map(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    items = flow.ask(node.formulas["items"], path, f"items of `{node.id}`")
    if not isinstance(items, list):
        raise Fault(
            Failure(code="expression-failed", message=f"items of `{node.id}` is not a list")
        )
    ref, raw = flow.asked()
    flow.hold_live(ref, raw)
    more = node.config.get("more")
    state.map = MapState(items=ref, total=len(cast("list[Any]", items)), closed=more is None)
    flow.enter(scope, state, RUNNING)
    if more is not None:
        key = flow.key(path, node.id)
        while not state.map.closed and (letter := flow.take_letter(more, key)) is not None:
            add_item(flow, path, scope, node, state, letter)
        if not state.map.closed:
            flow.run.waiters.setdefault(more, []).append(key)
    go_on(flow, path, scope, node, state)


def add_item(
    flow: Flow, path: str, scope: Scope, node: Node, state: TaskState, letter: Letter
) -> None:
    """A `more` signal: another item, or with null the end of the list."""
    held = state.map
    assert held is not None
    if letter.payload == b"null":
        held.closed = True
        flow.forget_waiter(node.config["more"], flow.key(path, node.id))
        return
    if letter.payload is not None:
        flow.hold_live(letter.ref, letter.payload)
    held.extra.append(letter.ref)
    held.total += 1


def go_on(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """Begin as many items as may run; the map is over when all are, or enough of them."""
    held = state.map
    assert held is not None
    assert node.body is not None
    if over(node, held):
        finish(flow, path, scope, node, state)
        return
    wanted = node.config.get("n", 0)
    if held.closed and held.total - held.failed < wanted:
        message = f"`{node.id}` waits for {wanted} of its items, but only {held.total - held.failed} are left"
        give_up(flow, path, scope, node, state, Failure(code="join-starved", message=message))
        return
    limit = node.config.get("limit") or held.total
    key = flow.key(path, node.id)
    base = held.total - len(held.extra)
    while held.active < limit and held.next < held.total:
        index = held.next
        held.next += 1
        held.active += 1
        held.results.append(0)
        item = [held.items, index] if index < base else held.extra[index - base]
        flow.open_scope(f"{key}[{index}]", node.body.path, path, node.id, index, item)


def over(node: Node, held: MapState) -> bool:
    wanted = node.config.get("n")
    if wanted is not None:
        return held.completed >= wanted
    return held.closed and held.completed + held.failed >= held.total


def end_item(
    flow: Flow,
    path: str,
    scope: Scope,
    parent: Scope,
    node: Node,
    state: TaskState,
    failure: Failure | None,
) -> None:
    """An item's scope leaves the state; only where its result is stays."""
    assert scope.parent is not None
    outer, held = scope.parent, state.map
    assert held is not None
    ref, raw = flow.result(scope) if failure is None else (0, None)
    del flow.run.scopes[path]
    held.active -= 1
    if held.done:
        if not held.active:
            state.map = None
            flow.shut(outer, parent, state)
        return
    if failure is None:
        held.completed += 1
        held.results[scope.number] = ref
        if raw is not None:
            flow.hold_live(ref, raw)
    else:
        held.failed += 1
        if not tolerated(node, held):
            give_up(flow, outer, parent, node, state, failure)
            return
        held.errors[scope.number] = failure
    go_on(flow, outer, parent, node, state)


def give_up(
    flow: Flow, path: str, scope: Scope, node: Node, state: TaskState, failure: Failure
) -> None:
    key = flow.key(path, node.id)
    flow.shut(path, scope, state)
    flow.cancel_inside(key, state)
    flow.forget_waiter(node.config.get("more", ""), key)
    state.map = None
    flow.fail(path, scope, node, state, failure)


def tolerated(node: Node, held: MapState) -> bool:
    """`collect` goes on in spite of failed items, up to `tolerate` of them (a number, or a share below 1)."""
    if node.config.get("onItemError", "fail") != "collect":
        return False
    most = node.config.get("tolerate")
    if most is None:
        return True
    if isinstance(most, float) and most < 1:
        return held.failed <= most * max(1, held.total)
    return held.failed <= most


def finish(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """Outputs in item order; an item that failed gives its error, one that never ended gives null."""
    held = state.map
    assert held is not None
    flow.forget_waiter(node.config.get("more", ""), flow.key(path, node.id))
    if held.active and not node.config.get("cancel"):
        held.done = True  # the map stays in its scope until the others have ended, unheard
    else:
        flow.shut(path, scope, state)
        flow.cancel_inside(flow.key(path, node.id), state)
        state.map = None
    results: list[Any] = list(held.results)
    for number, failure in held.errors.items():
        error = {"error": {"code": failure.code, "message": failure.message, "key": failure.key}}
        flow.ask(lambda _, error=error: error, path, f"errors of `{node.id}`")
        ref, raw = flow.asked()
        flow.hold_live(ref, raw)
        results[number] = ref
    flow.keep(state, results, None if results else b"[]")
    flow.complete(path, scope, node, state)
