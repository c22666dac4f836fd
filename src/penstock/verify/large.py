"""Large: what fails only where numbers leave their 64 bits, or become infinite (SPEC 2.1, 3.3, 3.6).

Whether an expression fails is asked of arithmetic without ends first: what is found then breaks a rule. What only the ends
show is a note, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec import json

from penstock.errors import ExpressionError
from penstock.expr.compile import Expression
from penstock.expr.tree import Binary, Literal, Logic
from penstock.expr.typecheck import check
from penstock.verify.scenario import Scenario
from penstock.verify.solver import Answer, Unknown
from penstock.verify.types import Types

HINT = "give the numbers a `minimum` and a `maximum` in the schema if that matters"
MODEST = 1_000_000
"""Where all whole numbers are too hard, those up to this are asked about."""
SHOWN_MAX = 200
"""Characters of an input that a message shows."""
_DOUBLE_MAX = 1.7976931348623157e308


def ask_failing(ask: Callable[[Types], Answer], types: Types) -> Answer:
    """Whether it fails by anything but numbers that leave 64 bits."""
    answer = ask(replace(types, unbounded=True))
    if not isinstance(answer, Unknown):
        return answer
    again = ask(replace(types, unbounded=True, modest=MODEST))
    return answer if isinstance(again, Unknown) else again


def reckons(expression: Expression) -> bool:
    return any(symbol in expression.text for symbol in "+-*/")


def infinite(expression: Expression, types: Types) -> Expression | None:
    """That a double comes to an infinity, which JSON can't hold."""
    if expression.type.name != "double":
        return None
    above = Binary(0, ">", expression.tree, Literal(0, _DOUBLE_MAX))
    below = Binary(0, "<", expression.tree, Literal(0, -_DOUBLE_MAX))
    tree = Logic(0, "||", (above, below))
    text = f"{expression.text} is infinite"
    try:
        return Expression(text, tree, check(text, tree, types.environment))
    except ExpressionError:
        return None


def shown(scenario: Scenario | None) -> str:
    """The input that shows it, as far as it is short."""
    if scenario is None or scenario.input is None:
        return ""
    text = json.encode(scenario.input).decode()
    return f" (input `{text}`)" if len(text) <= SHOWN_MAX else ""


def within(notes: int) -> str:
    """What a verdict adds for so many notes."""
    if not notes:
        return ""
    return f", as long as numbers stay within 64 bits ({notes} {'note' if notes == 1 else 'notes'})"
