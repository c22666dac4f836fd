"""One question to z3: expressions, types and wanted outcomes in; impossible, or values to try, out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.verify.smt.cells import Concreteless
from penstock.verify.smt.terms import Smt, Term, z3
from penstock.verify.smt.translate import Translator
from penstock.verify.smt.world import World
from penstock.verify.solver import MEMORY_MEBIBYTES_MAX, Ask, Solution, retyped
from penstock.verify.types import Types, Values

__all__ = ["Answered", "Failed", "Smt", "answer"]

_SECONDS_MAX = 10
"""A net beneath the units, which are counted and the same everywhere."""
_COUNT = "rlimit count"


class Failed(Exception):
    """z3 itself refused."""


@dataclass(slots=True)
class Answered:
    impossible: bool = False
    solution: Solution | None = None
    reasons: list[str] = field(default_factory=list[str])


def answer(
    smt: Smt,
    asks: Sequence[Ask],
    types: Types,
    units: int,
    accept: Callable[[Values], Solution | None],
) -> Answered:
    """Over what was read alone, and if what was filled in does not fit, over all that the schemas say."""
    try:
        found = _answer(smt, asks, types, units, accept, whole=False)
        if found.impossible or found.solution is not None:
            return found
        return _answer(smt, asks, types, units, accept, whole=True)
    except z3.Z3Exception as error:
        raise Failed(f"the solver failed: {error}") from None


def _answer(
    smt: Smt,
    asks: Sequence[Ask],
    types: Types,
    units: int,
    accept: Callable[[Values], Solution | None],
    *,
    whole: bool,
) -> Answered:
    smt.reset()
    smt.unbounded = types.unbounded
    world = World(smt, types, whole=whole)
    goals = _goals(smt, asks, types, world)
    world.settle()
    solver = z3.Solver(ctx=smt.context)
    solver.set("rlimit", units)
    solver.set("timeout", _SECONDS_MAX * 1000)
    solver.set("max_memory", MEMORY_MEBIBYTES_MAX)
    solver.add(*smt.laws, *goals)
    found = Answered(reasons=list(smt.reasons))
    for hopes in ([smt.hope, smt.nice], [smt.hope], []):
        verdict = solver.check(*hopes)
        if verdict == z3.unsat and not solver.unsat_core():
            _count(smt, solver)
            return Answered(impossible=True)
        if verdict == z3.unknown:
            found.reasons.append(f"the solver gave up ({solver.reason_unknown()})")
        if verdict != z3.sat:
            continue
        values = _concrete(world, solver.model(), found)
        found.solution = None if values is None else accept(values)
        if found.solution is not None:
            break
    _count(smt, solver)
    return found


def _count(smt: Smt, solver: Any) -> None:
    """What has been spent in this context, as the solver counts it."""
    counted = solver.statistics()
    if _COUNT in counted.keys():  # noqa: SIM118 (no dict)
        smt.units = max(smt.units, int(counted.get_key_value(_COUNT)))


def _goals(smt: Smt, asks: Sequence[Ask], types: Types, world: World) -> list[Term]:
    translator = Translator(smt, world.root)
    goals: list[Term] = []
    for expression, wanted in asks:
        sym = translator.translate(expression.tree, retyped(expression, types))
        holds, fails, wrong = smt.outcome(sym)
        match wanted:
            case True:
                goals.append(holds)
            case False:
                goals.append(fails)
            case "error":
                goals.append(wrong)
            case "value":
                goals.append(smt.no(sym.error))
    smt.visits += translator.visits
    return goals


def _concrete(world: World, model: Any, found: Answered) -> Values | None:
    try:
        return world.concrete(model)
    except (Concreteless, OverflowError) as error:
        found.reasons.append(f"no solution of reasonable size ({error})")
        return None
