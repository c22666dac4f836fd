"""Text with `${CEL}` in it.

Rendering always gives text, also when the template is one expression and nothing else. Strings and
times appear as CEL's `string()` writes them, numbers as JSON does but 5 for 5.0, null as `null`, lists
and maps as JSON. `$${` is a
literal `${`. There are no loops, no includes and no code: see SPEC 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.errors import CostExceeded, EvaluationError, ExpressionError
from penstock.expr.compile import COST_MAX, JSON_NODES_PER_COST, Expression, compile_expression
from penstock.expr.jsonable import to_json
from penstock.expr.library_times import duration_text, timestamp_text
from penstock.expr.parse import embedded_end
from penstock.expr.typecheck import Environment
from penstock.expr.values import Exhausted, Fault, kind_of

RENDERED_CHARACTERS_MAX = 1_000_000


class Template:
    """A compiled template: immutable, reusable, safe to share between threads."""

    __slots__ = ("parts", "reads", "text")

    text: str
    parts: tuple[str | Expression, ...]
    reads: frozenset[tuple[str, ...]]

    def __init__(self, text: str, parts: tuple[str | Expression, ...]) -> None:
        self.text = text
        self.parts = parts
        self.reads = frozenset(
            path for part in parts if isinstance(part, Expression) for path in part.reads
        )

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    def render(
        self,
        variables: Mapping[str, Any],
        *,
        cost_max: int = COST_MAX,
        escape: Callable[[str], str] | None = None,
    ) -> str:
        """The text with every expression's value in it; the first that fails raises.

        `escape` is applied to what the expressions give, not to the text around them; the cost limit
        holds for each expression.
        """
        out: list[str] = []
        size = 0
        for part in self.parts:
            if isinstance(part, Expression):
                shown = _shown(part, part.evaluate(variables, cost_max=cost_max), cost_max)
                part = shown if escape is None else escape(shown)
            size += len(part)
            if size > RENDERED_CHARACTERS_MAX:
                raise EvaluationError(
                    f"a template renders to at most {RENDERED_CHARACTERS_MAX} characters"
                )
            out.append(part)
        return "".join(out)


def compile_template(text: str, env: Environment | None = None) -> Template:
    """Split and compile; the position of an `ExpressionError` counts in the template's text."""
    parts: list[str | Expression] = []
    plain = ""
    at = 0
    while True:
        start = text.find("${", at)
        if start < 0:
            break
        if start > at and text[start - 1] == "$":
            plain += text[at : start - 1] + "${"
            at = start + 2
            continue
        plain += text[at:start]
        if plain:
            parts.append(plain)
            plain = ""
        end = embedded_end(text, start + 2)
        parts.append(_compile_part(text, start + 2, end, env))
        at = end + 1
    plain += text[at:]
    if plain:
        parts.append(plain)
    return Template(text, tuple(parts))


def _compile_part(text: str, start: int, end: int, env: Environment | None) -> Expression:
    inside = text[start:end]
    if not inside.strip():
        raise ExpressionError("`${}` has no expression in it", text=text, position=start - 2)
    try:
        return compile_expression(inside, env)
    except ExpressionError as error:
        raise ExpressionError(
            error.message, text=text, position=start + error.position, hint=error.hint
        ) from error


def _shown(part: Expression, value: Any, cost_max: int) -> str:
    try:
        match kind_of(value):
            case "string":
                return value
            case "bool":
                return "true" if value else "false"
            case "int" | "uint":
                return str(int(value))
            case "double":
                return repr(value).removesuffix(".0")
            case "timestamp":
                return timestamp_text(value)
            case "duration":
                return duration_text(value)
            case _:
                plain = to_json(value, nodes_max=JSON_NODES_PER_COST * cost_max)
                return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
    except Fault as fault:
        raise EvaluationError(f"{fault.message} (in `{part.text[:80]}`)") from None
    except Exhausted:
        raise CostExceeded(f"the result of `{part.text[:80]}` is too large") from None
    except (RecursionError, UnicodeEncodeError):
        raise EvaluationError(f"the result of `{part.text[:80]}` cannot be shown") from None
