"""Languages that plugins add beside CEL (SPEC 2.1): what one is, and a condition written in it.

A language sees only what it said that it reads, as a copy in plain JSON: what the verifier knows of a condition is all
that there is to it, and no condition can change a run. Its outcome is recorded as any other's. How long it takes is the
plugin's own affair; its text and what it is given are bounded here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from penstock.errors import CostExceeded, EvaluationError, ExpressionError, shown
from penstock.expr.compile import COST_MAX, JSON_NODES_PER_COST, Expression
from penstock.expr.jsonable import to_json
from penstock.expr.tree import Call, Literal
from penstock.expr.types import DYN
from penstock.expr.values import Exhausted, Fault

Read = tuple[str, ...]
TEXT_CHARACTERS_MAX = 20_000
READS_MAX = 100
RAISED = (Exception, SystemExit)
"""Whatever a plugin's own code raises: it must not end a turn, or a verification."""
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Program:
    """What a language makes of a text."""

    reads: Collection[Read | str]
    """Paths: `"input.sku"`, or `("data", "a.b")`; `tasks` only by id: `"tasks.review.output.score"`."""
    evaluate: Callable[[Mapping[str, Any]], Any]
    """True or false of the values at those paths, nested as they are in expressions; one that is not there is absent.
    The same values give the same answer; anything else that it gives or raises is a failed expression."""
    constants: Collection[Any] = ()
    """Values that it compares with: what the verifier tries when it looks for a counterexample."""


class Language:
    """What conditions can be written in. Made without arguments, once in a process, and asked from any thread."""

    def compile(self, text: str) -> Program:
        """The program, or `ExpressionError(message, position=…, hint=…)` with where it is wrong, from 0."""
        raise NotImplementedError


class Foreign(Expression):
    """A condition in a language that is not CEL; only that can say what it means, so the solver does not."""

    __slots__ = ("_evaluate", "language")

    def __init__(self, language: str, text: str, program: Program, reads: frozenset[Read]) -> None:
        self.language = language
        self.text = f"{language}: {text}"
        # No function of CEL has such a name: whoever takes it for one learns that it means nothing.
        constants = tuple(Literal(0, value) for value in program.constants)
        self.tree = Call(0, f"{language}:", None, constants)
        self.type = DYN
        self.reads = reads
        self._evaluate = program.evaluate

    def evaluate(self, variables: Mapping[str, Any], *, cost_max: int = COST_MAX) -> Any:
        try:
            values = _values(self.reads, variables, JSON_NODES_PER_COST * cost_max)
        except Exhausted:
            raise CostExceeded(f"`{self.text}` reads more than it may") from None
        except (Fault, RecursionError) as error:
            raise EvaluationError(f"{error} (in `{self.text}`)") from None
        try:
            return self._evaluate(values)
        except EvaluationError:
            raise
        except RAISED as error:
            what = f"{type(error).__name__}: {shown_error(error)}"
            raise EvaluationError(f"{what} (in `{self.text}`)") from error


def compile_foreign(name: str, language: Language, text: str) -> Foreign:
    """As `compile_expression`, by the language of that name; ExpressionError whatever goes wrong."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ExpressionError(f"longer than {TEXT_CHARACTERS_MAX:,} characters", text=text)
    try:
        program: Any = language.compile(text)
    except ExpressionError as error:
        position = error.position if 0 <= error.position <= len(text) else 0
        raise ExpressionError(
            error.message, text=text, position=position, hint=error.hint
        ) from error
    except RAISED as error:
        what = (
            f"the language `{name}` cannot read this: {type(error).__name__}: {shown_error(error)}"
        )
        raise ExpressionError(what, text=text) from error
    if not isinstance(program, Program):
        what = f"the language `{name}` made {shown(program)} of this, and no Program"
        raise ExpressionError(what, text=text)
    try:
        return Foreign(name, text, program, frozenset(_reads(program.reads)))
    except (TypeError, ValueError) as error:
        what = f"the language `{name}` does not say what it reads: {error}"
        raise ExpressionError(what, text=text) from error


def shown_error(error: BaseException) -> str:
    """The text of an exception that somebody else wrote: never long, and also one that has none."""
    try:
        text = str(error)
    except Exception:
        text = "an exception whose text could not be read"
    return text if len(text) <= 300 else f"{text[:299]}…"


def _reads(given: Collection[Any]) -> Iterator[Read]:
    if len(given) > READS_MAX:
        raise ValueError(f"{len(given)} paths are more than {READS_MAX}")
    for each in given:
        read = tuple(each.split(".")) if isinstance(each, str) else each
        if not isinstance(read, tuple):
            raise TypeError(f"{shown(each)} is no path")
        path = cast("tuple[Any, ...]", read)
        if not path or not all(isinstance(name, str) and name for name in path):
            raise ValueError(f"{shown(each)} is no path")
        if path == ("tasks",):
            raise ValueError("`tasks` is read by the id of a task")
        yield path


def _values(reads: frozenset[Read], variables: Mapping[str, Any], nodes_max: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for read in sorted(reads, key=len):
        value = _value(read, variables)
        if value is _ABSENT:
            continue
        at = found
        for name in read[:-1]:
            inner = at.setdefault(name, {})
            at = cast("dict[str, Any]", inner)
        at[read[-1]] = to_json(value, nodes_max=nodes_max)
    return found


def _value(read: Read, variables: Mapping[str, Any]) -> Any:
    at: Any = variables
    for name in read:
        if not isinstance(at, Mapping):
            return _ABSENT
        try:
            at = cast("Mapping[str, Any]", at)[name]
        except KeyError:
            return _ABSENT
    return at
