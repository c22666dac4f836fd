"""Which open runs of one version can become runs of another, by where they stand (SPEC 3.8).

Every state that a run of the old version can stand in is visited, by the real decide and evolve, and each is asked the same
question that `migrate` asks (`core/migration.py`), so that the table and the command can never disagree. Conditions come
out either way, tasks end well or, where that leads somewhere, badly; values are not looked at: what depends on them (an
output, a signal that came early) is left to the preview of the run itself. If the input may not fit, no row says `can`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from msgspec import Raw, Struct

from penstock.core.flow import Flow
from penstock.core.keys import static
from penstock.core.migration import check_mapping, survey
from penstock.core.plan import Guard, Plan
from penstock.core.turn import turn
from penstock.core.values import Fault, encode
from penstock.core.vocabulary import PLAIN, Find, mentioned
from penstock.errors import PenstockError
from penstock.model import commands as c
from penstock.model.codec import decode_run, encode_run
from penstock.model.definition import Definition
from penstock.model.failure import Failure
from penstock.model.migration import Move
from penstock.model.run import OPEN_TASK, PENDING, WAITING, Run, TaskState

STATES_MAX = 3_000
BRANCHES_MAX = 256
INPUT = "the inputSchema has changed, and the input of a run may not fit the new one"
_LOOKED_AT = frozenset({"properties", "required", "additionalProperties", "title", "description"})
_INVOLVED = frozenset({"$ref", "$dynamicRef", "patternProperties", "unevaluatedProperties"})
FAILURE = Failure(code="error", message="error")


class Reason(Struct, frozen=True):
    """Why some of the runs of a row cannot move."""

    why: str
    key: str
    message: str


class Row(Struct, frozen=True):
    """Runs that stand alike: these tasks are open."""

    open: tuple[str, ...]
    """By path in the definition; none: the run has not begun or only waits for children to leave."""
    verdict: str
    """`can`, `cannot`, or `some can`: that depends on how they came there, or on their input."""
    reasons: tuple[Reason, ...] = ()


class Change(Struct, frozen=True):
    """The table."""

    before: str
    after: str
    mapping: dict[str, str]
    rows: tuple[Row, ...]
    states: int
    """Looked at."""
    complete: bool
    """Every state was; if not, there may be more rows, and `can` and `cannot` are what was seen."""

    @property
    def all_can(self) -> bool:
        return self.complete and all(row.verdict == "can" for row in self.rows)


@dataclass
class _Seen:
    good: int = 0
    bad: int = 0
    reasons: dict[tuple[str, str], Reason] = field(default_factory=dict[tuple[str, str], Reason])


def change(
    before: Definition,
    after: Definition,
    mapping: Mapping[str, str] | None = None,
    *,
    budget: int = STATES_MAX,
    plugins: Find | None = None,
) -> Change:
    """The table of where runs stand and whether they can move; `plugins` has what the versions mention and we do not."""
    mapping = dict(mapping or {})
    check_mapping(mapping, before, after)
    kin: dict[str, Plan] = {}
    old, new = _bare(before, plugins), _bare(after, plugins)
    old.join(kin, "old")
    new.join(kin, "new")
    found: dict[tuple[str, ...], _Seen] = {}
    states, complete = 0, True
    for state in _states(old):
        if state is None:
            complete = False
            continue
        states += 1
        if states > budget:
            complete = False
            break
        _note(found, state, survey(state, new, mapping))
    told = before.input_schema == after.input_schema or wider(
        before.input_schema, after.input_schema
    )
    rows = tuple(_row(open, seen, fits=told) for open, seen in sorted(found.items()))
    return Change(before.version, after.version, mapping, rows, min(states, budget), complete)


def _bare(definition: Definition, plugins: Find | None) -> Plan:
    """A plan that takes any value."""
    wanted = mentioned(definition)
    plan = Plan(definition, plugins(wanted) if plugins is not None and wanted else PLAIN)
    plan.input_schema = None
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            node.output_schema = node.schema = None
    return plan


def _note(found: dict[tuple[str, ...], _Seen], state: Flow, move: Move) -> None:
    keys = [
        state.key(path, id)
        for path, _, id, task in _tasks(state.run)
        if _stands(state, path, id, task)
    ]
    seen = found.setdefault(tuple(sorted({static(key) for key in keys})), _Seen())
    for each in move.obstacles:
        key = static(each.key) if " -> " not in each.key else each.key
        seen.reasons.setdefault((each.why, key), Reason(each.why, key, each.message))
    if move.obstacles:
        seen.bad += 1
    else:
        seen.good += 1


def _row(open: tuple[str, ...], seen: _Seen, *, fits: bool) -> Row:
    verdict = "can" if not seen.bad else "cannot" if not seen.good else "some can"
    reasons = tuple(seen.reasons.values())
    if not fits and verdict != "cannot":
        verdict = "some can"
        reasons = (*reasons, Reason("input", "input", INPUT))
    return Row(open, verdict, reasons)


def wider(old: Any, new: Any) -> bool:
    """Surely all that fits the old schema fits the new one; false: perhaps not."""
    if new is None or new is True or new == {} or old == new:
        return True
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return False
    was, now = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
    rest = (was.keys() | now.keys()) - _LOOKED_AT
    if any(was.get(name) != now.get(name) for name in rest) or was.keys() & _INVOLVED:
        return False
    if not set(now.get("required", ())) <= set(was.get("required", ())):
        return False
    had = cast("Mapping[str, Any]", was.get("properties") or {})
    has = cast("Mapping[str, Any]", now.get("properties") or {})
    if was.get("additionalProperties", True) != now.get("additionalProperties", True) or (
        now.get("additionalProperties", True) is not True and not had.keys() <= has.keys()
    ):
        return False
    return all(
        wider(had[name], has[name])
        if name in had
        else wider(was.get("additionalProperties", True), has[name])
        or was.get("additionalProperties") is False
        for name in has
    )


def _tasks(run: Run) -> Iterator[tuple[str, str, str, TaskState]]:
    for path, scope in run.scopes.items():
        for id, state in scope.tasks.items():
            yield path, scope.plan, id, state


def _stands(flow: Flow, path: str, id: str, state: TaskState) -> bool:
    """An open task that is not only the frame of others."""
    node = flow.plan.scopes[flow.run.scopes[path].plan].nodes[id]
    return state.status in OPEN_TASK and (
        (node.body or node.loop) is None or state.status == WAITING
    )


def _states(plan: Plan) -> Iterator[Flow | None]:
    """Every state in which a run of the plan can wait, once each; None where a step could go on in too many ways."""
    seen: set[Any] = set()
    todo: list[tuple[bytes, c.Command]] = [
        (b"", c.StartRun(at=0.0, id="run", definition="", version="old", input=b"null"))
    ]
    while todo:
        state, command = todo.pop()
        for flow in _branches(plan, state, command):
            if flow is None:
                yield None
                continue
            run = flow.run
            if run.closed or run.stopping is not None:
                continue
            mark = _mark(run)
            if mark in seen:
                continue
            seen.add(mark)
            yield flow
            kept = encode_run(run)
            todo.extend((kept, each) for each in _commands(flow))


def _branches(plan: Plan, state: bytes, command: c.Command) -> Iterator[Flow | None]:
    """One step in all the ways it can go, or None at last if there are too many."""
    script: list[bool] = []
    for _ in range(BRANCHES_MAX):
        flow = _Roaming(decode_run(state) if state else Run(id="run"), plan, script)
        outcome = turn(flow, [command])
        assert not outcome.refused, outcome.refused
        yield flow
        script = flow.script
        while script and not script[-1]:
            script.pop()
        if not script:
            return
        script[-1] = False
    yield None


def _commands(flow: Flow) -> Iterator[c.Command]:
    """What can happen next."""
    run = flow.run
    for path, _, id, state in list(_tasks(run)):
        if state.status not in OPEN_TASK:
            continue
        key, node = flow.key(path, id), flow.locate(flow.key(path, id))[2]
        handled = any(out.edge.on != "success" for out in node.outs)
        if state.attempt:
            yield c.CompleteTask(at=0.0, key=key, attempt=state.attempt, output=b"1")
            if handled:
                yield c.FailTask(
                    at=0.0, key=key, attempt=state.attempt, failure=FAILURE, final=True
                )
        elif state.child is not None:
            yield c.CloseChild(at=0.0, key=key, status="COMPLETED", output=b"1", run=state.child)
            if handled:
                yield c.CloseChild(
                    at=0.0, key=key, status="FAILED", failure=FAILURE, run=state.child
                )
        elif state.status == WAITING and node.type != "mutex":
            yield c.HandleWait(at=0.0, key=key, act="fire" if node.type == "timer" else "skip")
            if handled:
                yield c.HandleWait(at=0.0, key=key, act="fail")
        elif state.map is not None and not state.map.closed:
            yield c.SendSignal(at=0.0, name=node.config["more"], payload=b"null")
    for key, child in run.leaving.items():
        yield c.CloseChild(at=0.0, key=key, status="CANCELLED", run=child)


def _mark(run: Run) -> Any:
    """Equal for states that stand alike: whichever pass or item it is, whatever was given."""
    scopes: list[Any] = []
    for path, scope in run.scopes.items():
        tasks = frozenset(
            (id, _brief(state), state.rescue, bool(state.map and state.map.completed))
            for id, state in scope.tasks.items()
        )
        flags = scope.ended, scope.over, scope.failure is not None, scope.back, scope.left
        scopes.append((static(path), tasks, flags, tuple(scope.exits), tuple(scope.saved)))
    undo = frozenset(static(entry.key) for entry in run.undo)
    return frozenset(scopes), undo, frozenset(map(static, run.leaving)), frozenset(run.signals)


def _brief(state: TaskState) -> tuple[str, int, int]:
    return (
        (state.status, state.trues, state.deads)
        if state.status == PENDING
        else (state.status, 0, 0)
    )


class _Roaming(Flow):
    """A Flow whose conditions come to what a script says; a map has two items."""

    __slots__ = ("place", "script")

    def __init__(self, run: Run, plan: Plan, script: list[bool]) -> None:
        super().__init__(run, plan)
        self.script, self.place = list(script), 0

    def ask(  # type: ignore[override]
        self, compute: Any, path: str, what: str, extra: Any = None
    ) -> Any:
        self.cursor += 1
        value: Any = 1
        if isinstance(compute, Guard) and not compute.expression.reads:
            try:
                value = compute({})  # it is the same for every run
            except PenstockError as error:
                self.outcomes.append(Raw(b"null"))
                failure = Failure(code="expression-failed", message=f"{what}: {error.message}")
                self.faults[self.cursor - 1] = failure
                raise Fault(failure) from error
        elif isinstance(compute, Guard):
            if self.place >= len(self.script):
                self.script.append(True)
            value = self.script[self.place]
            self.place += 1
        elif what.startswith("items of "):
            value = [1, 2]
        self.outcomes.append(Raw(encode(value)))
        return value

    def announce(self, key: str, kind: str, value: Any) -> None:  # type: ignore[override]
        pass
