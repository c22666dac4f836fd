"""World: what expressions of a definition read, as symbolic values, and as concrete ones in a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from penstock.expr.values import INT_MAX, timestamp_of
from penstock.verify.smt.cells import Cell, Garden
from penstock.verify.smt.terms import Int, Map, Null, Smt, Sym, Term, Text, Time, z3
from penstock.verify.types import ANY_STATUS, TaskType, Types, Values

COMPLETED, FAILED = "COMPLETED", "FAILED"
_TIME_LOW, _TIME_HIGH = 1_767_225_600, 4_102_444_800
"""Timestamps that a solution may have: the years 2026 to 2099."""


class World:
    """The roots of SPEC 2.1 as unknowns."""

    def __init__(self, smt: Smt, types: Types, *, whole: bool) -> None:
        self._smt, self._types = smt, types
        self._garden = Garden(smt, whole=whole, modest=types.modest)
        self._roots: dict[str, Sym] = {}
        self._cells: dict[str, Cell] = {}
        self._tasks: dict[str, _Task] = {}
        self._numbers: dict[str, Term] = {}
        self._texts: dict[str, Term] = {}

    def root(self, name: str) -> Sym | None:
        if name not in self._roots:
            made = self._make(name)
            if made is None:
                return None
            self._roots[name] = made
        return self._roots[name]

    def _make(self, name: str) -> Sym | None:
        types, smt = self._types, self._smt
        match name:
            case "input":
                return self._cell("input", types.input).sym()
            case "tasks":
                return smt.value(Map(self._task, lambda: types.tasks, False, smt.ident()))
            case "data":
                return self._cell("data", types.data_schema).sym()
            case "global":
                return self._cell("global", {"type": "object"}).sym()
            case "item":
                return self._cell("item", types.item).sym()
            case "index" | "iteration":
                low = 0 if name == "index" else types.iteration
                number = self._numbers[name] = smt.int(name)
                smt.laws += [number >= low, number <= (types.modest or INT_MAX)]
                return smt.value(Int(number))
            case "now":
                return smt.value(Time("timestamp", self._time("now")))
            case "run":
                return smt.value(self._run())
            case _:
                return None

    def settle(self) -> None:
        """All that is read is known: let the schemas hold."""
        self._garden.settle()

    def _cell(self, name: str, schema: Any, alive: Term = None) -> Cell:
        schema = True if schema is None else schema
        held = self._smt.true if alive is None else alive
        cell = self._garden.plant(name, schema, _root_of(schema), alive=held)
        self._cells[name] = cell
        return cell

    def _time(self, name: str) -> Term:
        seconds = self._numbers[name] = self._smt.int(name)
        self._smt.laws += [seconds >= _TIME_LOW, seconds <= _TIME_HIGH]
        # A clock has fractions; those of a solution are whole seconds, which is a hope.
        rest = self._smt.int(f"{name}.nanos")
        self._smt.laws += [rest >= 0, rest < 10**9, z3.Implies(self._smt.hope, rest == 0)]
        return seconds * 10**9 + rest

    def _run(self) -> Map:
        smt = self._smt
        start = smt.value(Time("timestamp", self._time("start")))
        known: dict[str, Sym] = {"start": start}
        for name in ("id", "definition", "version"):
            self._texts[name] = smt.string(f"run.{name}")
            known[name] = smt.value(Text(self._texts[name]))
        return _record(smt, known)

    def _task(self, id: str) -> tuple[Term, Sym]:
        if id not in self._tasks:
            known = self._types.tasks.get(id, TaskType())
            self._tasks[id] = _Task(self._smt, id, known, self._cell)
        return self._smt.true, self._tasks[id].sym

    # --- a model's values ------------------------------------------------------------------------------------

    def concrete(self, model: Any) -> Values:
        """What a model says that expressions read."""
        cells = {
            name: cell.concrete(model) for name, cell in self._cells.items() if "/" not in name
        }
        tasks = {id: task.concrete(model) for id, task in self._tasks.items()}
        numbers = {n: model.eval(term, True).as_long() for n, term in self._numbers.items()}
        return Values(
            input=cells.get("input"),
            has_input="input" in cells,
            data=cells.get("data") or {},
            has_data="data" in cells,
            globals=cells.get("global") or {},
            item=cells.get("item"),
            index=numbers.get("index", 0),
            iteration=numbers.get("iteration", self._types.iteration),
            tasks=tasks,
            now=timestamp_of(numbers.get("now", _TIME_LOW) * 10**9),
            start=timestamp_of(numbers.get("start", _TIME_LOW) * 10**9),
        )


ERROR: dict[str, Any] = {
    "type": "object", "required": ["code", "message", "type", "details", "cause"],
    "properties": {"code": {"type": "string", "minLength": 1}, "message": {"type": "string"}, "type": {"type": "string"}},
}  # fmt: skip
"""A failure, as expressions see it."""


class _Task:
    """`tasks.ID`"""

    def __init__(self, smt: Smt, id: str, known: TaskType, cell: Any) -> None:
        self._statuses = known.statuses or ANY_STATUS
        self._status = smt.string(f"{id}.status")
        literals = [self._status == smt.literal(one) for one in self._statuses]
        smt.laws.append(smt.any(*literals))
        done = self._status == smt.literal(COMPLETED)
        self._done = smt.true if self._statuses == (COMPLETED,) else done
        self._cell: Cell = cell(f"tasks/{id}", known.schema, self._done)
        self._attempts = smt.int(f"{id}.attempts")
        smt.laws += [self._attempts >= 0, self._attempts <= INT_MAX]
        output = smt.choose(self._done, self._cell.sym(), smt.value(Null()))
        if (
            not known.nulls
        ):  # what is not completed may still have an output, as a pass before left it
            output = smt.choose(self._done, self._cell.sym(), smt.anything(f"{id}.output"))
        failed = self._status == smt.literal(FAILED)
        failed = smt.true if self._statuses == (FAILED,) else failed
        self._error: Cell = cell(f"tasks/{id}/error", ERROR, failed)
        other = smt.choose(self._done, smt.value(Null()), smt.anything(f"{id}.error"))
        error = smt.choose(failed, self._error.sym(), other)
        fields = {
            "output": output,
            "status": smt.value(Text(self._status)),
            "attempts": smt.value(Int(self._attempts)),
            "error": error,
        }
        self.sym = smt.value(_record(smt, fields))

    def concrete(self, model: Any) -> dict[str, Any]:
        status = model.eval(self._status, True).as_string()
        done = status == COMPLETED
        attempts = model.eval(self._attempts, True).as_long()
        return {
            "output": self._cell.concrete(model) if done else None,
            "status": status,
            "attempts": attempts,
            "error": self._error.concrete(model) if status == FAILED else None,
        }


def _record(smt: Smt, known: Mapping[str, Sym]) -> Map:
    def field(name: str) -> tuple[Term, Sym]:
        return (smt.true, known[name]) if name in known else (smt.false, smt.failed())

    def names() -> Iterable[str]:
        return known

    return Map(field, names, True, smt.ident())


def _root_of(schema: Any) -> Any:
    """Where references point into; nothing, if a part of the schema calls itself a document of its own."""
    stack: list[Any] = [schema]
    first = True
    while stack:
        part = stack.pop()
        if isinstance(part, Mapping):
            rules = cast("Mapping[str, Any]", part)
            if not first and ("$id" in rules or "$dynamicRef" in rules):
                return {}
            stack.extend(rules.values())
        elif isinstance(part, list):
            stack.extend(cast("list[Any]", part))
        first = False
    return schema
