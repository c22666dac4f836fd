"""A run becomes one of another version: how its state is rewritten by `RunMigrated` (SPEC 2.7).

The event has the mapping and the tasks that are passed; all else follows from the two plans, so that every replay does the
same. Whether that is safe was decided before, in `core/migration.py`.
"""

from __future__ import annotations

from heapq import heapify

from msgspec import Raw
from msgspec.structs import replace

from penstock.core.flow import Flow
from penstock.core.keys import RUN, natural
from penstock.core.pairing import Pairing, ScopePair, paired
from penstock.core.values import encode
from penstock.model.events import RunMigrated
from penstock.model.run import OPEN_TASK, PENDING, SKIPPED, Run, Scope, TaskState, Write


def move(flow: Flow, event: RunMigrated) -> None:
    """Go on by the plan of another version, from where the run stands."""
    new = flow.plan.of(event.version)
    pairing = paired(flow.plan, new, event.mapping)
    run = flow.run
    for path, scope in run.scopes.items():
        pair = pairing.scopes[scope.plan]
        _scope(pairing, scope, pair)
        scope.plan = pair.new.path
        del path
    for key in event.passed:
        path, _, id = key.rpartition("/")
        run.scopes[path].tasks[id] = TaskState(status=SKIPPED, ended_at=event.at)
    _keys(pairing, run)
    _data(pairing, run)
    if event.keyed:
        for write in run.data.values():
            write.parts = renamed(pairing, write.parts)
    flow.plan, run.version = new, event.version
    if event.due != run.due:
        run.due = event.due
        if run.due is not None:
            flow.due(run.due, RUN)


def _scope(pairing: Pairing, scope: Scope, pair: ScopePair) -> None:
    tasks: dict[str, TaskState] = {}
    for id, state in scope.tasks.items():
        today = pair.ids.get(id)
        if today is None:
            continue
        tasks[today] = state
        if state.dead_link:
            state.dead_link = pair.links.get(state.dead_link - 1, -1) + 1
        if state.group is not None:
            state.group = pair.ids.get(state.group, state.group)
        if state.last is not None:
            state.last = _left(pairing, pair, id, state.last)
    scope.tasks = tasks
    for id, state in tasks.items():
        if state.status != PENDING:
            _recount(pair, tasks, id, state)
    scope.exits = [pair.links[index] for index in scope.exits if index in pair.links]
    scope.saved = [pair.links[index] for index in scope.saved if index in pair.links]


def _recount(pair: ScopePair, tasks: dict[str, TaskState], id: str, state: TaskState) -> None:
    """Of a task that has begun its links matter no more; that no more of them are counted than it has keeps the count."""
    inner, nodes = pair.new.inner, pair.new.nodes
    decided = 0
    for edge in nodes[id].arrivals:
        source = inner.get(edge.source, edge.source)
        there = tasks.get(source)
        over = there is not None and there.status not in OPEN_TASK and there.status != PENDING
        decided += over or nodes[source].type == "start"
    if state.trues + state.deads > decided:
        state.trues = min(state.trues, decided)
        state.deads = decided - state.trues


def _left(
    pairing: Pairing, pair: ScopePair, id: str, last: dict[str, TaskState]
) -> dict[str, TaskState]:
    """The tasks of a loop as its last pass left them, by their names of today."""
    node = pair.old.nodes[id]
    inner = node.body or node.loop
    inside = None if inner is None else pairing.scopes.get(inner.path)
    if inside is None:
        return last
    known = inside.new.nodes.keys() | inside.new.inner.keys()
    named = ((inside.names.get(each), state) for each, state in last.items())
    return {name: state for name, state in named if name is not None and name in known}


def _keys(pairing: Pairing, run: Run) -> None:
    def today(key: str) -> str:
        return key if key.startswith(("~", "#")) else pairing.node(key)[2]

    for index, entry in enumerate(run.undo):
        key, node = today(entry.key), entry.node and today(entry.node)
        if (key, node) != (entry.key, entry.node):
            run.undo[index] = replace(entry, key=key, node=node)
    if not pairing.mapping:
        return  # the others are keys of tasks that are open, which keep their names
    run.waiters = {name: [today(key) for key in keys] for name, keys in run.waiters.items()}
    run.listening = {today(key): topic for key, topic in run.listening.items()}
    run.mutexes = {name: [today(key) for key in keys] for name, keys in run.mutexes.items()}
    run.dues = [(when, today(key)) for when, key in run.dues]
    heapify(run.dues)


def renamed(pairing: Pairing, parts: list[tuple[str, Raw]]) -> list[tuple[str, Raw]]:
    """What was appended, in the order of the keys of today (SPEC 2.6)."""
    today = [(pairing.node(key)[2] if key else key, raw) for key, raw in parts]
    return sorted(today, key=lambda part: natural(part[0]))


def _data(pairing: Pairing, run: Run) -> None:
    """Keys that are new begin as they do in a run of the new version, those that are gone go; what was written stays."""
    wanted = pairing.new.definition.data
    declared = pairing.old.definition.data
    for name in [name for name in run.data if name in declared and name not in wanted]:
        del run.data[name]
    for name, datum in wanted.items():
        write = run.data.get(name)
        if write is None or not (write.key or write.parts):
            run.data[name] = Write(Raw(encode(datum.value)))
    for name, write in run.data.items():
        if not write.key:
            continue
        _, after, key = pairing.node(write.key)
        if after is None and not write.parts:
            run.data[name] = Write(write.single)  # nobody of today wrote it
        elif after is not None:
            write.key, write.node = key, after.path
