"""Timing: what a timer, a timeout or a form's `due` reads, must be a duration or a time that the engine reads (SPEC 3.6).

A number is one as long as it is not negative, and a constant can be looked at. Any other text cannot be told by its schema:
`format: duration` allows months and years, which have no fixed length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from penstock.errors import ExpressionError
from penstock.expr.compile import Expression
from penstock.expr.tree import Binary, Literal
from penstock.expr.typecheck import check
from penstock.policy.durations import Unreadable, seconds
from penstock.verify.driving import failing
from penstock.verify.knowledge import Knowledge, Known
from penstock.verify.scenario import Scenario
from penstock.verify.solver import Answer, Ask, Impossible, Solution, Unknown
from penstock.verify.uses import Use

HINT = "say in its schema that it is a number of seconds, not negative, or one of an `enum`"
NONSENSE = "abc"
_REASONS = {
    "duration": "a duration such as P1M cannot be counted in seconds",
    "date-time": "a time such as 0000-01-01T00:00:00Z, or a leap second, cannot be read",
}
_ANNOTATIONS = frozenset({"type", "title", "description", "default", "examples"})

Solve = Callable[[list[Ask], Known], Answer]
Show = Callable[[Use, Solution, Any], Scenario | None]
Verdict = tuple[str, Scenario | None]
"""What is wrong, and a run that shows it, if one was found."""


class Timing:
    def __init__(self, knowledge: Knowledge, solve: Solve, show: Show) -> None:
        self._knowledge, self._solve, self._show = knowledge, solve, show

    def look(self, use: Use, known: Known) -> Verdict | None:
        """None: it can be read whatever it is, or is said elsewhere to be unknown."""
        if _fixed(use):
            return None
        schema = self._knowledge.data.given(use.expression)
        doubt: Verdict | None = None
        for bad in _bad(use, schema):
            found = bad if isinstance(bad, str) else self._probe(use, known, *bad)
            if isinstance(found, tuple):
                return found
            if found and doubt is None:
                doubt = f"perhaps {_what(use)}: {found}", None
        return doubt

    def _probe(self, use: Use, known: Known, operator: str, value: Any) -> str | Verdict:
        """Whether it may be so: what stands in the way of knowing, or the run; empty: never."""
        expression = self._knowledge.expression(use.expression, known)
        asks = [*known.asks, *(self._knowledge.ask(g, True, known) for g in use.conditions)]
        asks += self._knowledge.implied(use.scope, use.expression)
        asks.append((_compared(expression, operator, value, known), True))
        answer = self._solve(asks, known)
        match answer:
            case Impossible():
                return ""
            case Unknown():
                return answer.reason
            case Solution():
                scenario = self._show(use, answer, failing(use.code, use.target))
                if scenario is None:
                    return "no run was found that comes there with such a value"
                return _what(use), scenario


def _what(use: Use) -> str:
    kind = "a time" if use.counts == "moment" else "a duration"
    return f"{use.what} need not be {kind}: `{use.expression.text}`"


def _fixed(use: Use) -> bool:
    """It reads nothing, or a moment is counted from now."""
    reads = use.expression.reads
    if not use.alone or (reads and (use.counts != "moment" or reads - {("now",)})):
        return False
    try:
        return _readable(
            use, use.expression.evaluate_json({"now": datetime(2030, 1, 1, tzinfo=UTC)})
        )
    except ExpressionError:
        return False


def _bad(use: Use, schema: Any) -> Iterator[str | tuple[str, Any]]:
    """Reasons why it may not be readable, or what it would then be."""
    if not isinstance(schema, Mapping):
        yield "nothing says what it is"
        return
    rules = cast("Mapping[str, Any]", schema)
    if "anyOf" in rules:
        for each in rules["anyOf"]:
            yield from _bad(use, each)
        return
    if "const" in rules or "enum" in rules:
        for value in [rules["const"]] if "const" in rules else rules["enum"]:
            if not _readable(use, value):
                yield "==", value
        return
    kinds = rules.get("type")
    for kind in [kinds] if isinstance(kinds, str) else kinds or [""]:
        yield from _bad_of(use, str(kind), rules)


def _bad_of(use: Use, kind: str, rules: Mapping[str, Any]) -> Iterator[str | tuple[str, Any]]:
    static = use.expression.type.name
    match kind:
        case "integer" | "number":
            if use.counts == "duration":
                yield "<", 0
        case "string" if static == "timestamp" and use.counts == "moment" and use.alone:
            return
        case "string":
            bare = not rules.keys() - _ANNOTATIONS
            if bare and static not in ("timestamp", "duration", "bytes"):
                yield "==", NONSENSE
                yield "not every text is one"
            else:
                yield _REASONS.get(str(rules.get("format")), "its type does not say that it can be read")  # fmt: skip
        case "null":
            yield "==", None
        case "boolean":
            yield "==", True
        case _:
            yield "its type does not say that it can be read"


def _readable(use: Use, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not use.alone:
        return number and value >= 0
    try:
        if use.counts == "duration":
            seconds(value)
        elif not number:
            datetime.fromisoformat(str(value)).timestamp()
    except (Unreadable, ValueError, OverflowError):
        return False
    return True


def _compared(expression: Expression, operator: str, value: Any, known: Known) -> Expression:
    tree = Binary(0, operator, expression.tree, Literal(0, value))
    text = f"({expression.text}) {operator} {value!r}"
    try:
        checked = check(text, tree, known.types.environment)
    except ExpressionError:
        checked = check(text, tree, None)
    return Expression(text, tree, checked)
