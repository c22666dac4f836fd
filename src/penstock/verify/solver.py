"""Is there an input, are there outputs, for which these expressions have these outcomes?

`solve` is what all checks use. With z3 (extra `verify`, imported when first asked) the answer is a Solution, Impossible,
or Unknown with what stands in the way; without it a small search may still find a Solution. Every Solution was evaluated
with the real expressions and validated with the real schemas before it is handed out; Impossible holds for every value
that fits the types, numbers being those of 64 bits.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from typing import Literal as OneOf

from penstock.errors import CostExceeded, EvaluationError, ExpressionError
from penstock.expr.compile import COST_MAX, Expression
from penstock.expr.language import Foreign
from penstock.expr.tree import (
    Bind,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    Node,
    children,
)
from penstock.expr.typecheck import check
from penstock.verify.candidates import candidates
from penstock.verify.samples import accepts, sample
from penstock.verify.types import ANY_STATUS, TaskType, Types, Values

Wanted = bool | OneOf["error", "value"]
"""True or false; an error, or what is no bool; `value`: anything but an error."""
Ask = tuple[Expression, Wanted]
Bound = dict[str, tuple[Node, "Bound"]]
"""What variables stand for, each with what its own variables stand for."""

MISSING = "the solver z3 is not installed"
INSTALL = "pip install 'penstock[verify]'"
IN_CEL = "write the condition in CEL if it is to be proved"
SPENT = "the solver was asked as much as it may be"
FULL = "penstock verify FILE asks all of them"
QUESTIONS_MAX = 20_000
UNITS_MAX = 2_000_000
"""What the solver may spend on one question, in its own units."""
UNITS_PART = 300
"""What it costs to put one part of an expression to it, in those units."""
PARTS_MAX = 1_500
"""Parts of all expressions of one question; what has more is unknown."""
MEMORY_MEBIBYTES_MAX = 512
SEARCH_STEPS_MAX = 2_000
"""Steps of an expression for one of many values that are tried."""
SEARCH_WHOLE = 20
"""The first values are tried with as many steps as a run may take."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Values with which every expression has the outcome that was asked for."""

    input: Any
    outputs: Mapping[str, Any]
    """Of tasks that completed, as far as they were read."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    values: Values = field(default_factory=Values)


@dataclass(frozen=True, slots=True)
class Impossible:
    """No values that fit the types give these outcomes."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Neither was found; what stood in the way."""

    reason: str
    hint: str | None = None


Answer = Solution | Impossible | Unknown


def available() -> bool:
    """Whether z3 is installed."""
    return importlib.util.find_spec("z3") is not None


@dataclass(slots=True)
class Purse:
    """Units that all questions of one verification may cost together."""

    left: int


class Solver:
    """Answers questions one after another; the same questions in the same order have the same answers. One thread."""

    def __init__(
        self, *, units: int = UNITS_MAX, questions: int = QUESTIONS_MAX, purse: Purse | None = None
    ) -> None:
        self._units = units
        self._left = questions
        self._purse = purse
        self._context: Any = None

    def solve(self, asks: Sequence[Ask], types: Types) -> Answer:
        """Values for which each expression has its outcome, all together."""
        if self._left <= 0 or (self._purse is not None and self._purse.left <= 0):
            return Unknown(SPENT, FULL)
        self._left -= 1
        foreign = [expression for expression, _ in asks if isinstance(expression, Foreign)]
        if foreign:
            return self._beside(asks, foreign[0], types)
        if not available():
            found = _search(asks, types)
            if found is not None:
                return found
            return Unknown(MISSING, INSTALL)
        parts = sum(_size(expression) for expression, _ in asks)
        if parts > PARTS_MAX:
            return Unknown(f"the conditions have more than {PARTS_MAX} parts")
        engine = importlib.import_module("penstock.verify.smt.question")
        if self._context is None:
            self._context = engine.Smt()
        before, visits = self._context.units, self._context.visits
        try:
            accept = partial(checked_solution, asks, types)
            answer = engine.answer(self._context, asks, types, self._units, accept)
        except RecursionError:
            return Unknown("the expression is nested too deep for the solver")
        except engine.Failed as failed:
            self._context = None
            return Unknown(str(failed))
        if self._purse is not None:
            parts = max(parts, self._context.visits - visits)
            self._purse.left -= parts * UNITS_PART + self._context.units - before
        if answer.impossible:
            return Impossible()
        if answer.solution is not None:
            return answer.solution
        found = _search(asks, types)
        if found is not None:
            return found
        reasons = ", ".join(answer.reasons[:3])
        return Unknown(reasons or "the solver gave up within its budget")

    def _beside(self, asks: Sequence[Ask], foreign: Foreign, types: Types) -> Answer:
        """Of a language that only its plugin reads: what the others exclude is impossible, else values are tried."""
        ours = [ask for ask in asks if not isinstance(ask[0], Foreign)]
        if ours and isinstance(self.solve(ours, types), Impossible):
            return Impossible()
        found = _search(asks, types)
        if found is not None:
            return found
        return Unknown(f"the solver does not read the language `{foreign.language}`", IN_CEL)


def _size(expression: Expression) -> int:
    """How many parts it has, with what a variable stands for at each place that reads it; only as far as it matters."""
    bound: Bound = {}
    count, stack = 0, [(expression.tree, bound)]
    while stack and count <= PARTS_MAX:
        node, bound = stack.pop()
        count += 1
        match node:
            case Ident(name=name) if name in bound:
                stack.append(bound[name])
            case Bind():
                stack.append((node.value, bound))
                stack.append((node.body, {**bound, node.variable: (node.value, bound)}))
            case Comprehension(source=source) if not _plain(source):
                inner = {**bound, node.variable: (source, bound)}
                stack.append((source, bound))
                stack.extend((part, inner) for part in children(node) if part is not source)
            case _:
                stack.extend((part, bound) for part in children(node))
    return count


def _plain(source: Node) -> bool:
    """A list of constants: each element is one part."""
    return isinstance(source, ListLiteral) and all(isinstance(item.value, Literal) for item in source.items)  # fmt: skip


def solve(asks: Sequence[Ask], types: Types, *, units: int = UNITS_MAX) -> Answer:
    """One question alone; for many use one Solver, which is faster."""
    return Solver(units=units).solve(asks, types)


def _search(asks: Sequence[Ask], types: Types) -> Solution | None:
    for index, values in enumerate(candidates([ask[0] for ask in asks], types)):
        steps = COST_MAX if index < SEARCH_WHOLE else SEARCH_STEPS_MAX
        found = checked_solution(asks, types, values, steps=steps)
        if found is not None:
            return found
    return None


def checked_solution(
    asks: Sequence[Ask], types: Types, values: Values, *, steps: int = COST_MAX
) -> Solution | None:
    """The values as a Solution, if they fit the types and each expression really has its outcome in so many steps."""
    if not values.has_input:
        values.input = sample(types.input)
    if not values.has_data:
        values.data = sample(types.data_schema) or {}
    if not accepts(types.input, values.input) or not accepts(types.data_schema, values.data):
        return None
    if types.item is not None and not accepts(types.item, values.item):
        return None
    for id, task in values.tasks.items():
        known = types.tasks.get(id, TaskType())
        if task["status"] not in (known.statuses or ANY_STATUS):
            return None
        if task["status"] == "COMPLETED" and not accepts(known.schema, task["output"]):
            return None
    if not all(has_outcome(expression, wanted, values, steps) for expression, wanted in asks):
        return None
    if types.unbounded and any(w == "error" and overflows(e, values) for e, w in asks):
        return None
    outputs = {
        id: task["output"] for id, task in values.tasks.items() if task["status"] == "COMPLETED"
    }
    return Solution(values.input, outputs, values.data, values)


def has_outcome(
    expression: Expression, wanted: Wanted, values: Values, steps: int = COST_MAX
) -> bool:
    """What the real expression says; no, if it takes more steps than are given here, but not too many for a run."""
    try:
        found = expression.evaluate(values.variables(), cost_max=steps)
    except CostExceeded:
        return wanted == "error" and steps == COST_MAX
    except EvaluationError:
        return wanted == "error"
    if wanted == "value":
        return True
    if wanted == "error":
        return found is not True and found is not False
    return found is wanted


def overflows(expression: Expression, values: Values) -> bool:
    """It fails because a number leaves its 64 bits."""
    try:
        expression.evaluate(values.variables())
    except EvaluationError as error:
        return "overflow" in error.message
    return False


def retyped(expression: Expression, types: Types) -> Any:
    """The static types of its parts, as it was compiled."""
    try:
        return check(expression.text, expression.tree, types.environment)
    except ExpressionError:
        return check(expression.text, expression.tree, None)
